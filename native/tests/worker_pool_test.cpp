#include "../src/worker_pool.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "areas.h"

namespace headway::test {

void test_worker_pool(Checks& checks) {
  checks.run("worker pool: every worker takes part in every job once", [&] {
    for (const int num_threads : {1, 2, 3, 4}) {
      WorkerPool pool(num_threads);
      CHECK_EQ(pool.size(), num_threads);
      std::vector<int> visits(static_cast<std::size_t>(num_threads), 0);  // each element belongs to one worker
      for (int job = 0; job < 200; ++job) pool.run([&](int worker) { ++visits[static_cast<std::size_t>(worker)]; });
      for (const int count : visits) CHECK_EQ(count, 200);
    }
  });

  checks.run("worker pool: the caller is worker 0", [&] {
    WorkerPool pool(2);
    std::thread::id ids[2];
    pool.run([&](int worker) { ids[worker] = std::this_thread::get_id(); });
    CHECK(ids[0] == std::this_thread::get_id());
    CHECK(ids[1] != ids[0]);
  });

  checks.run("worker pool: what was written before a barrier is read after it", [&] {
    constexpr int kThreads = 4, kPhases = 200;
    WorkerPool pool(kThreads);
    int values[kThreads] = {};
    std::atomic<int> wrong{0};
    pool.run([&](int worker) {
      for (int phase = 1; phase <= kPhases; ++phase) {
        values[worker] = phase;
        pool.barrier();
        for (const int value : values) {
          if (value != phase) wrong.fetch_add(1);
        }
        pool.barrier();
      }
    });
    CHECK_EQ(wrong.load(), 0);
  });

  checks.run("worker pool: pools start and stop many times, used or not", [&] {
    std::atomic<int> visits{0};
    for (int round = 0; round < 100; ++round) {
      WorkerPool pool(1 + round % 4);
      if (round % 3 != 0) pool.run([&](int) { visits.fetch_add(1); });
    }
    int expected = 0;
    for (int round = 0; round < 100; ++round) expected += round % 3 != 0 ? 1 + round % 4 : 0;
    CHECK_EQ(visits.load(), expected);
  });

  checks.run("worker pool: what a worker throws reaches the caller, and the pool goes on", [&] {
    WorkerPool pool(3);
    for (int thrower = 0; thrower < 3; ++thrower) {
      CHECK_THROWS(std::runtime_error, pool.run([&](int worker) {
        if (worker == thrower) throw std::runtime_error("on purpose");
      }));
      std::atomic<int> visits{0};
      pool.run([&](int) { visits.fetch_add(1); });
      CHECK_EQ(visits.load(), 3);
    }
    CHECK_THROWS(std::runtime_error, pool.run([](int) { throw std::runtime_error("all at once"); }));
  });

  checks.run("worker pool: partitions cover everything once, in order", [&] {
    for (const std::int64_t count : {0, 1, 5, 16, 49152}) {
      for (const int num_workers : {1, 2, 3, 7}) {
        std::int64_t next = 0;
        for (int worker = 0; worker < num_workers; ++worker) {
          const Range range = partition(count, worker, num_workers);
          CHECK_EQ(range.begin, next);
          CHECK(range.end >= range.begin && range.end - range.begin <= count / num_workers + 1);
          next = range.end;
        }
        CHECK_EQ(next, count);
      }
    }
  });
}

}  // namespace headway::test
