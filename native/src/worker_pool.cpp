#include "worker_pool.h"

#include "platform/platform.h"

namespace headway {
namespace {

// About 50 us on Zen 4 (a pause is 40 to 65 cycles): longer than any phase's imbalance, far shorter than a time slice.
constexpr int kSpinLimit = 2000;

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
  helpers_.reserve(static_cast<std::size_t>(num_threads));
  try {
    for (int worker = 1; worker < num_threads; ++worker) helpers_.emplace_back([this, worker] { serve(worker); });
  } catch (...) {
    stopping_ = true;
    job_number_.fetch_add(1, std::memory_order_release);
    job_number_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
    throw;
  }
}

WorkerPool::~WorkerPool() {
  stopping_ = true;
  job_number_.fetch_add(1, std::memory_order_release);
  job_number_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void WorkerPool::run(const std::function<void(int)>& job) {
  const FloatModeScope float_mode;
  job_ = &job;
  error_ = nullptr;
  error_taken_.clear();
  job_number_.fetch_add(1, std::memory_order_release);
  job_number_.notify_all();
  run_part(0);
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void WorkerPool::barrier() {
  if (num_threads_ == 1) return;
  const std::uint32_t phase = phase_.load(std::memory_order_relaxed);  // cannot move before this worker arrives
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(num_threads_)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    wait_while(phase_, phase);
  }
}

void WorkerPool::serve(int worker) {
  const FloatModeScope float_mode;
  for (std::uint32_t done = 0;;) {
    wait_while(job_number_, done);
    ++done;  // a worker takes part in every job, so numbers rise by one
    if (stopping_) return;
    run_part(worker);
  }
}

void WorkerPool::run_part(int worker) {
  try {
    (*job_)(worker);
  } catch (...) {
    if (!error_taken_.test_and_set()) error_ = std::current_exception();
  }
  barrier();
}

}  // namespace headway
