// Threads that compute one step together. The calling thread is worker 0.
//
// A job is a sequence of phases that every worker walks through; the items of a phase are claimed chunk by chunk, and a
// phase ends when all its chunks are done, by whomever. So a worker that the kernel has put aside between chunks, or
// that still sleeps, holds nobody up: the others do its share (sharing two cores with other processes, a design in
// which every worker had to arrive at every barrier decoded 2 to 4 times slower). Which worker computes an item must
// not matter.
//
// Waiting spins for a bounded time and then sleeps in the kernel (std::atomic::wait, a futex on Linux), so that an idle
// engine costs nothing. It knows no work.
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

// How finely a phase is divided.
enum class Grain : std::uint8_t {
  kCoarse,  // some chunks per worker: items are cheap, or best visited in runs
  kItem,    // one item at a time (until there are thousands): items are dear or uneven
};

class WorkerPool {
 public:
  class Worker;

  // Throws std::invalid_argument for a number beyond 1 .. 1024, std::system_error when threads cannot be made.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return num_threads_; }

  // Runs `job` on worker 0 and on every worker that is awake in time; returns when it is done. One caller at a time.
  // Rethrows the first exception of a phase or of the job; the other chunks were computed all the same.
  void run(const std::function<void(Worker&)>& job);

 private:
  void serve(int index);
  void run_part(int index);
  void take_error();
  int num_chunks(std::int64_t count, Grain grain) const;
  int claim(std::uint16_t phase, int num_chunks, std::int64_t* waited_ns);
  void finish(std::uint16_t phase, int num_chunks);
  void stop();

  const int num_threads_;
  const std::function<void(Worker&)>* job_ = nullptr;
  std::uint16_t first_phase_ = 0;  // of the job
  std::exception_ptr error_;
  std::atomic_flag error_taken_;
  std::atomic<bool> stopping_{false};
  // Raised to wake helpers; says that there may be a job.
  alignas(64) std::atomic<std::uint32_t> job_number_{0};
  // Who may enter the job: bit 0 = closed, above it the number of helpers inside.
  alignas(64) std::atomic<std::uint32_t> gate_{1};
  // The phase in the upper half (it may wrap: workers are at most one job apart), the next chunk in the lower.
  alignas(64) std::atomic<std::uint32_t> ticket_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};  // chunks of the phase
  std::vector<std::thread> helpers_;
};

// One worker within one job.
class WorkerPool::Worker {
 public:
  int index() const { return index_; }

  // From now on `*waited_ns` grows by what this worker waits for others.
  void time_waits(std::int64_t* waited_ns) { waited_ns_ = waited_ns; }

  // The next phase: `body(Range)` is called, here and on the other workers, until `count` items are covered once;
  // returns when all are done, and what was written by them is visible. Every worker must come with the same count and
  // grain.
  template <class Body>
  void share(std::int64_t count, Grain grain, const Body& body) {
    if (count <= 0) return;
    const int num_chunks = pool_.num_chunks(count, grain);
    for (int chunk; (chunk = pool_.claim(phase_, num_chunks, waited_ns_)) >= 0;) {
      try {
        body(partition(count, chunk, num_chunks));
      } catch (...) {
        pool_.take_error();
      }
      pool_.finish(phase_, num_chunks);
    }
    ++phase_;
  }

 private:
  friend class WorkerPool;
  Worker(WorkerPool& pool, int index, std::uint16_t phase) : pool_(pool), index_(index), phase_(phase) {}

  WorkerPool& pool_;
  const int index_;
  std::uint16_t phase_;
  std::int64_t* waited_ns_ = nullptr;  // waits are not timed
};

}  // namespace headway
