// Where the time of steps goes, phase by phase. Switched off it costs one predictable branch a phase.
//
// Each worker counts for itself: what passed since its last lap, less what it waited for others within. It knows no
// phase's work.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace headway {

// The names are those of `kPhaseNames`. Norms and activation quantisation belong to the products that they feed.
enum class Phase : std::uint8_t { kEmbed, kQkv, kAttention, kAttentionOutput, kMlp, kHead, kWait };
inline constexpr std::array kPhaseNames{"embed", "qkv", "attention", "attention_output", "mlp", "head", "wait"};
inline constexpr std::size_t kNumPhases = kPhaseNames.size();

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

using PhaseTimes = std::array<std::int64_t, kNumPhases>;  // nanoseconds

// One worker's, within one step.
struct alignas(64) PhaseClock {
  PhaseTimes times{};
  std::int64_t last_ns = 0;
  std::int64_t waited_ns = 0;  // since the last lap; whoever waits adds to it
  bool on = false;

  void start() {
    times.fill(0);
    waited_ns = 0;
    last_ns = now_ns();
  }
  // What passed since the last lap was `phase`, less what was waiting.
  void lap(Phase phase) {
    if (!on) return;
    const std::int64_t now = now_ns();
    times[static_cast<std::size_t>(phase)] += now - last_ns - waited_ns;
    times[static_cast<std::size_t>(Phase::kWait)] += waited_ns;
    last_ns = now;
    waited_ns = 0;
  }
};

// Of many steps: of every phase the mean over the workers. A worker that came late or not at all waited, so that the
// phases add up to the steps.
struct PhaseTotals {
  PhaseTimes times{};
  std::int64_t steps_ns = 0;
  std::int64_t num_steps = 0;

  template <class Clocks>
  void add(const Clocks& clocks, std::int64_t step_ns) {
    PhaseTimes sum{};
    for (const PhaseClock& clock : clocks)
      for (std::size_t i = 0; i < kNumPhases; ++i) sum[i] += clock.times[i];
    const auto num_workers = static_cast<std::int64_t>(clocks.size());
    std::int64_t known = 0;
    for (std::int64_t& time : sum) {
      time /= num_workers;
      known += time;
    }
    sum[static_cast<std::size_t>(Phase::kWait)] += step_ns - known;
    for (std::size_t i = 0; i < kNumPhases; ++i) times[i] += sum[i];
    steps_ns += step_ns;
    ++num_steps;
  }
};

}  // namespace headway
