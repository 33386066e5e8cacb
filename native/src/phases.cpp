// The phase timers of `Runner`: who starts them, and what becomes of what they counted.
#include <functional>

#include "forward_job.h"

namespace headway {

void Runner::time_phases(bool on) {
  const Model::Use use(model_);
  for (PhaseClock& clock : clocks_) clock.on = on;
  phases_ = {};
}

// Computes the step on all workers.
void Runner::run(Job& job) {
  if (job.num_tokens == 0) return;
  const bool timed = clocks_.front().on;
  const std::int64_t start_ns = timed ? now_ns() : 0;
  if (timed)
    for (PhaseClock& clock : clocks_) clock.times.fill(0);  // also of workers that will come too late
  model_.pool().run([&](Worker& worker) { compute(job, worker); });
  if (timed) phases_.add(clocks_, now_ns() - start_ns);
}

// The worker's clock, started if phases are timed.
PhaseClock& Runner::clock_of(Worker& worker) {
  PhaseClock& clock = clocks_[static_cast<std::size_t>(worker.index())];
  if (clock.on) {
    clock.start();
    worker.time_waits(&clock.waited_ns);
  }
  return clock;
}

}  // namespace headway
