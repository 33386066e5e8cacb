// Threads that compute one step together. The calling thread is worker 0.
//
// Waiting spins for a bounded time and then sleeps in the kernel (std::atomic::wait, a futex on Linux), so that an idle
// engine costs nothing. It knows no work: a job is a function of the worker's index, and jobs split their work by
// `partition`, whose result depends on nothing but the numbers given.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace headway {

struct Range {
  std::int64_t begin, end;
};

// The part of `count` items that falls to `worker` of `num_workers`.
constexpr Range partition(std::int64_t count, int worker, int num_workers) {
  return {count * worker / num_workers, count * (worker + 1) / num_workers};
}

class WorkerPool {
 public:
  // Throws std::system_error when threads cannot be made.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return num_threads_; }

  // Runs `job(worker)` on every worker and returns when all are done; one caller at a time. Rethrows what a worker threw:
  // a job may throw only after its last `barrier`, else the other workers wait for ever.
  void run(const std::function<void(int)>& job);

  // Called by every worker of a job: returns when all have come here; what they wrote before is visible after.
  void barrier();

 private:
  void serve(int worker);
  void run_part(int worker);

  const int num_threads_;
  const std::function<void(int)>* job_ = nullptr;
  std::exception_ptr error_;
  std::atomic_flag error_taken_;
  alignas(64) std::atomic<std::uint32_t> job_number_{0};
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
  bool stopping_ = false;  // written before job_number_ is raised, read after
  std::vector<std::thread> helpers_;
};

}  // namespace headway
