#include "../src/worker_pool.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "areas.h"

namespace headway::test {

void test_worker_pool(Checks& checks) {
  using Worker = WorkerPool::Worker;

  checks.run("worker pool: every item of every phase is visited once", [&] {
    for (const int num_threads : {1, 2, 3, 4}) {
      WorkerPool pool(num_threads);
      CHECK_EQ(pool.size(), num_threads);
      for (const std::int64_t count : {0, 1, 2, 31, 1000, 40000}) {
        for (const Grain grain : {Grain::kCoarse, Grain::kItem}) {
          std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
          pool.run([&](Worker& worker) {
            for (int phase = 0; phase < 3; ++phase) {
              worker.share(count, grain, [&](Range range) {
                for (std::int64_t i = range.begin; i < range.end; ++i) visits[static_cast<std::size_t>(i)].fetch_add(1);
              });
            }
          });
          for (const auto& visit : visits) CHECK_EQ(visit.load(), 3);
        }
      }
    }
  });

  checks.run("worker pool: the caller is worker 0, and no two workers share an index", [&] {
    constexpr int kThreads = 3;
    WorkerPool pool(kThreads);
    std::vector<std::thread::id> ids(kThreads);  // each element belongs to one worker
    std::atomic<int> wrong{0};
    for (int job = 0; job < 100; ++job) {
      pool.run([&](Worker& worker) {
        std::thread::id& id = ids[static_cast<std::size_t>(worker.index())];
        if (id == std::thread::id()) id = std::this_thread::get_id();
        worker.share(64, Grain::kItem, [&](Range) {
          if (id != std::this_thread::get_id()) wrong.fetch_add(1);
        });
      });
    }
    CHECK_EQ(wrong.load(), 0);
    CHECK(ids[0] == std::this_thread::get_id());
  });

  checks.run("worker pool: what a phase wrote is read in the next", [&] {
    constexpr int kItems = 64, kPhases = 500;
    WorkerPool pool(4);
    int values[kItems] = {};
    std::atomic<int> wrong{0};
    pool.run([&](Worker& worker) {
      for (int phase = 1; phase <= kPhases; ++phase) {
        worker.share(kItems, Grain::kItem, [&](Range range) { values[range.begin] = phase; });
        worker.share(kItems, Grain::kCoarse, [&](Range range) {
          for (std::int64_t i = range.begin; i < range.end; ++i)
            if (values[kItems - 1 - i] != phase) wrong.fetch_add(1);
        });
      }
    });
    CHECK_EQ(wrong.load(), 0);
  });

  checks.run("worker pool: the count of phases may wrap", [&] {
    WorkerPool pool(2);
    std::atomic<std::int64_t> visits{0};
    for (int job = 0; job < 7; ++job) {
      pool.run([&](Worker& worker) {
        for (int phase = 0; phase < 10000; ++phase) worker.share(2, Grain::kItem, [&](Range) { visits.fetch_add(1); });
      });
    }
    CHECK_EQ(visits.load(), 7 * 10000 * 2);
  });

  checks.run("worker pool: pools start and stop many times, used or not", [&] {
    std::int64_t visits = 0, expected = 0;
    for (int round = 0; round < 100; ++round) {
      WorkerPool pool(1 + round % 4);
      if (round % 3 == 0) continue;
      std::atomic<int> count{0};
      pool.run([&](Worker& worker) { worker.share(5, Grain::kItem, [&](Range) { count.fetch_add(1); }); });
      visits += count.load();
      expected += 5;
    }
    CHECK_EQ(visits, expected);
  });

  checks.run("worker pool: what a phase throws reaches the caller, and the pool goes on", [&] {
    WorkerPool pool(3);
    for (std::int64_t thrower = 0; thrower < 30; ++thrower) {
      std::atomic<int> visits{0};
      CHECK_THROWS(std::runtime_error, pool.run([&](Worker& worker) {
        worker.share(30, Grain::kItem, [&](Range range) {
          visits.fetch_add(1);
          if (range.begin == thrower) throw std::runtime_error("on purpose");
        });
        worker.share(30, Grain::kItem, [&](Range) { visits.fetch_add(1); });
      }));
      CHECK_EQ(visits.load(), 60);
    }
    CHECK_THROWS(std::runtime_error, pool.run([](Worker&) { throw std::runtime_error("all at once"); }));
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
