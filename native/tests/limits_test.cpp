#include <array>

#include "../src/machine_limits.h"
#include "../src/model.h"
#include "../src/phase_timer.h"
#include "areas.h"

namespace headway::test {

void test_limits(Checks& checks) {
  checks.run("limits: every instruction set measures them, at any number of threads", [&] {
    for (const std::string& isa : available_isas()) {
      for (const int num_threads : {1, 3}) {
        MachineLimits limits(isa, num_threads, (3 << 20) + 1);
        CHECK_EQ(std::string(limits.isa()), isa);
        CHECK(limits.int8_ops_per_s(1e-3) > 0.0);
        CHECK(limits.float_ops_per_s(1e-3) > 0.0);
        CHECK(limits.read_bytes_per_s() > 0.0);
      }
    }
  });

  checks.run("phases: laps add up, less what was waited", [&] {
    PhaseClock clock;
    clock.lap(Phase::kMlp);  // off
    for (const std::int64_t time : clock.times) CHECK_EQ(time, 0);
    clock.on = true;
    clock.start();
    const std::int64_t start_ns = clock.last_ns;
    clock.lap(Phase::kEmbed);
    clock.waited_ns = 5;
    clock.lap(Phase::kMlp);
    std::int64_t sum = 0;
    for (const std::int64_t time : clock.times) sum += time;
    CHECK_EQ(sum, clock.last_ns - start_ns);
    CHECK_EQ(clock.times[static_cast<std::size_t>(Phase::kWait)], 5);
    CHECK_EQ(clock.waited_ns, 0);
  });

  checks.run("phases: what a worker was not there for, it waited", [&] {
    std::array<PhaseClock, 2> clocks;
    clocks[0].times[static_cast<std::size_t>(Phase::kMlp)] = 90;
    clocks[0].times[static_cast<std::size_t>(Phase::kWait)] = 10;
    clocks[1].times[static_cast<std::size_t>(Phase::kMlp)] = 40;
    PhaseTotals totals;
    totals.add(clocks, 100);
    CHECK_EQ(totals.times[static_cast<std::size_t>(Phase::kMlp)], 65);
    CHECK_EQ(totals.times[static_cast<std::size_t>(Phase::kWait)], 35);
    CHECK_EQ(totals.steps_ns, 100);
    CHECK_EQ(totals.num_steps, 1);
  });
}

}  // namespace headway::test
