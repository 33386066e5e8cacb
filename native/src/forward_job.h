// What the files of the forward pass share: the state of a step, and how a phase is divided. Internal to `Runner`.
#pragma once

#include <cstdint>
#include <vector>

#include "attention_plan.h"
#include "forward.h"
#include "worker_pool.h"

namespace headway {

struct KvSlot {
  std::int32_t block;
  int index;
};

// Rows of the feed-forward network's input that go through one expert.
struct ExpertRun {
  std::size_t expert;
  std::int64_t first_row, num_rows;
};

// A runner has one, so that the next step finds the memory that this one needed; what it borrows is the step's.
struct Runner::Job {
  Step step;
  std::vector<std::uint8_t> block_holders;  // scratch of `check_step`
  std::vector<SamplingRow> sampling;        // empty: no sampling
  AttentionPlan attention;
  std::int64_t num_tokens = 0;
  std::vector<std::int64_t> logit_rows, hidden_rows;  // of the step's tokens
  std::vector<KvSlot> slots;                          // where each token's key and value go
  // Of the current layer, ascending; a dense one has one. Read only within a phase's items: a worker that lags behind
  // may look when another writes the next layer's.
  std::vector<ExpertRun> expert_runs;
  std::int64_t max_expert_runs = 1;
  StepOutput output;
};

// Columns of the feed-forward network that are worked on together, at least: two tiles, whose rows share loads.
inline constexpr int kMinPartColumns = 2 * kTileColumns;

// With many rows a tile is work enough for a chunk.
inline Grain tile_grain(std::int64_t num_rows) { return num_rows < 7 ? Grain::kCoarse : Grain::kItem; }

// `WorkerPool::Worker::share`, item by item.
template <class Body>
void share_each(WorkerPool::Worker& worker, std::int64_t count, Grain grain, const Body& body) {
  worker.share(count, grain, [&body](Range range) {
    for (std::int64_t item = range.begin; item < range.end; ++item) body(item);
  });
}

}  // namespace headway
