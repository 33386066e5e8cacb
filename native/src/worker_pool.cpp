#include "worker_pool.h"

#include <algorithm>
#include <stdexcept>

#include "phase_timer.h"
#include "platform/platform.h"

namespace headway {
namespace {

// About 50 us on Zen 4 (a pause is 40 to 65 cycles): longer than a phase's imbalance, far shorter than a time slice.
constexpr int kSpinLimit = 2000;

constexpr std::int64_t kCoarseChunks =
    8;  // per worker: at most a sixteenth of a phase is spent waiting for the last chunk
constexpr std::int64_t kMaxChunks = 16384;  // a ticket has 16 bits for it; room for every worker to overrun

constexpr int kMaxThreads = 1024;

constexpr std::uint32_t kClosed = 1, kOneInside = 2;

// Waits until `value` is no longer `old`.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int spin = 0; spin < kSpinLimit; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax_cpu();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

WorkerPool::WorkerPool(int num_threads) : num_threads_(num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) throw std::invalid_argument("threads must lie in 1 .. 1024.");
  helpers_.reserve(static_cast<std::size_t>(num_threads));
  try {
    for (int index = 1; index < num_threads; ++index) helpers_.emplace_back([this, index] { serve(index); });
  } catch (...) {
    stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::stop() {
  stopping_.store(true, std::memory_order_release);
  job_number_.fetch_add(1, std::memory_order_release);
  job_number_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void WorkerPool::run(const std::function<void(Worker&)>& job) {
  const FloatModeScope float_mode;
  job_ = &job;
  error_ = nullptr;
  error_taken_.clear();
  first_phase_ = static_cast<std::uint16_t>(ticket_.load(std::memory_order_relaxed) >> 16);
  if (num_threads_ > 1) {
    gate_.store(0, std::memory_order_release);
    job_number_.fetch_add(1, std::memory_order_release);
    job_number_.notify_all();
  }
  run_part(0);
  if (num_threads_ > 1) {
    std::uint32_t gate = gate_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
    while (gate != kClosed) {
      wait_while(gate_, gate);
      gate = gate_.load(std::memory_order_acquire);
    }
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void WorkerPool::serve(int index) {
  const FloatModeScope float_mode;
  for (std::uint32_t seen = 0;;) {
    wait_while(job_number_, seen);
    seen = job_number_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_acquire)) return;
    std::uint32_t gate = gate_.load(std::memory_order_acquire);
    bool inside = false;
    while (!inside && (gate & kClosed) == 0)
      inside =
          gate_.compare_exchange_weak(gate, gate + kOneInside, std::memory_order_acq_rel, std::memory_order_acquire);
    if (!inside) continue;
    run_part(index);
    if (gate_.fetch_sub(kOneInside, std::memory_order_acq_rel) == (kClosed | kOneInside)) gate_.notify_all();
  }
}

void WorkerPool::run_part(int index) {
  try {
    Worker worker(*this, index, first_phase_);
    (*job_)(worker);
  } catch (...) {
    take_error();
  }
}

void WorkerPool::take_error() {
  if (!error_taken_.test_and_set()) error_ = std::current_exception();
}

int WorkerPool::num_chunks(std::int64_t count, Grain grain) const {
  const std::int64_t limit =
      grain == Grain::kItem ? kMaxChunks : (num_threads_ == 1 ? 1 : kCoarseChunks * num_threads_);
  return static_cast<int>(std::min(count, std::min(limit, kMaxChunks)));
}

// Returns the chunk claimed, or -1 when the phase is over.
int WorkerPool::claim(std::uint16_t phase, int num_chunks, std::int64_t* waited_ns) {
  std::uint32_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket >> 16) == phase) {
    const std::uint32_t next = ticket & 0xffffU;
    if (next < static_cast<std::uint32_t>(num_chunks)) {
      if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        return static_cast<int>(next);
    } else {  // every chunk is claimed; wait for the last ones to be done
      const std::int64_t start_ns = waited_ns == nullptr ? 0 : now_ns();
      wait_while(ticket_, ticket);
      if (waited_ns != nullptr) *waited_ns += now_ns() - start_ns;
      ticket = ticket_.load(std::memory_order_acquire);
    }
  }
  return -1;
}

void WorkerPool::finish(std::uint16_t phase, int num_chunks) {
  if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 != static_cast<std::uint32_t>(num_chunks)) return;
  done_.store(0, std::memory_order_relaxed);  // nobody touches it before seeing the new ticket
  // An exchange, not a store: libstdc++'s notify_all looks for sleepers with a plain load, which x86 may do before an
  // earlier store is visible. A worker that falls asleep in between would wait for ever.
  ticket_.exchange((static_cast<std::uint32_t>(phase) + 1) << 16, std::memory_order_acq_rel);
  ticket_.notify_all();
}

}  // namespace headway
