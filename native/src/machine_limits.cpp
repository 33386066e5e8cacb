#include "machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>

#include "model.h"

namespace headway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;
constexpr std::int64_t kTrialRounds = 10'000;  // tens of microseconds: enough to tell how many fill a millisecond
constexpr double kItemS = 1e-3;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::int64_t checked_pieces(std::int64_t num_bytes) {
  if (num_bytes < 1 || num_bytes > std::int64_t{1} << 46) throw std::invalid_argument("num_bytes must lie in 1 .. 2^46.");
  return (num_bytes + kPieceBytes - 1) / kPieceBytes;
}

}  // namespace

MachineLimits::MachineLimits(std::string_view isa, int num_threads, std::int64_t num_bytes)
    : kernels_(choose_kernels(isa)),
      pool_(num_threads),
      num_pieces_(checked_pieces(num_bytes)),
      memory_(allocate_pages(static_cast<std::size_t>(num_pieces_ * kPieceBytes))) {
  // Pages that nobody has written may all be the same page of zeros, which reads twice as fast as memory; and pages that
  // are alike may be made one.
  pool_.run([&](WorkerPool::Worker& worker) {
    worker.share(num_pieces_, Grain::kCoarse, [&](Range pieces) {
      auto* words = reinterpret_cast<std::uint64_t*>(memory_.get());
      constexpr std::int64_t kPieceWords = kPieceBytes / 8;
      for (std::int64_t i = pieces.begin * kPieceWords; i < pieces.end * kPieceWords; ++i)
        words[i] = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U;
    });
  });
}

double MachineLimits::int8_ops_per_s(double duration_s) { return ops_per_s(kernels_.int8_peak, duration_s); }
double MachineLimits::float_ops_per_s(double duration_s) { return ops_per_s(kernels_.float_peak, duration_s); }

double MachineLimits::ops_per_s(std::int64_t (*peak)(std::int64_t rounds), double duration_s) {
  const Clock::time_point trial = Clock::now();
  peak(kTrialRounds);
  const double per_item = std::clamp(kItemS / std::max(seconds_since(trial), 1e-9), 1e-2, 1e4);
  const auto rounds = static_cast<std::int64_t>(per_item * kTrialRounds);
  const auto items = static_cast<std::int64_t>(std::clamp(duration_s / kItemS, 1.0, 10'000.0)) * pool_.size();
  std::atomic<std::int64_t> num_ops{0};
  const Clock::time_point start = Clock::now();
  pool_.run([&](WorkerPool::Worker& worker) {
    worker.share(items, Grain::kItem, [&](Range range) {
      for (std::int64_t i = range.begin; i < range.end; ++i)
        num_ops.fetch_add(peak(rounds), std::memory_order_relaxed);
    });
  });
  return static_cast<double>(num_ops.load()) / seconds_since(start);
}

double MachineLimits::read_bytes_per_s() {
  const Clock::time_point start = Clock::now();
  pool_.run([&](WorkerPool::Worker& worker) {
    worker.share(num_pieces_, Grain::kCoarse, [&](Range pieces) {
      kernels_.read_bytes(memory_.get() + pieces.begin * kPieceBytes, (pieces.end - pieces.begin) * kPieceBytes);
    });
  });
  return static_cast<double>(num_pieces_ * kPieceBytes) / seconds_since(start);
}

}  // namespace headway
