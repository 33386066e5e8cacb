// The forward pass of a decoder over one step, and sampling at its output rows.
//
// Workers share the items of each phase; no sum is divided between items, so neither the number of threads nor the rest
// of the batch changes a bit of any row.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention_plan.h"
#include "kv_cache.h"
#include "phase_timer.h"
#include "step.h"
#include "workspace.h"

namespace headway {

struct StepOutput {
  std::vector<SampledToken> sampled;  // one per logits row
  std::vector<float> logits;          // (num_logit_rows, vocab_size), only if asked for
  std::vector<float> hidden;          // (num_hidden_rows, hidden_size)
};

// Factors that a shape's attention needs.
struct AttentionConstants {
  float query_scale;     // of rotated queries
  float softcap = 0.0F;  // `AttentionSpan::softcap`

  explicit AttentionConstants(const ModelShape& shape);
};

class Runner {
 public:
  // Throws std::invalid_argument when the model is not finished.
  explicit Runner(std::shared_ptr<KvCache> cache);
  ~Runner();

  // Writes keys and values of every token, then samples at the rows of kind logits, in order.
  // Throws std::invalid_argument for a step that breaks the contract; nothing is computed then. A step no larger than
  // an earlier one allocates what it returns and nothing else.
  StepOutput execute(const Step& step, const SamplingArrays& sampling);
  // The same without sampling: returns the logits.
  StepOutput forward(const Step& step);

  // Switches phase timers on, or off; either way forgets what they counted.
  void time_phases(bool on);
  const PhaseTotals& phases() const { return phases_; }

 private:
  using Worker = WorkerPool::Worker;
  struct Job;  // what the workers share during a step

  Job& begin(const Step& step);
  void prepare(Job& job);
  void run(Job& job);
  void compute(Job& job, Worker& worker);
  void embed(const Job& job, Worker& worker);
  void norm(const Job& job, const PaddedVector& weight, Worker& worker);
  void project_qkv(const Job& job, const LayerWeights& weights, Worker& worker);
  void rotate_and_store(const Job& job, int layer, Worker& worker);
  void attend(const Job& job, int layer, Worker& worker);
  void attend_split(const Job& job, int layer, Worker& worker);
  void merge_split(const Job& job, int layer, Worker& worker);
  void encode_attention(const Job& job, Worker& worker);
  void add_normed(const Job& job, const PaddedVector& weight, Worker& worker);
  void route(Job& job, const LayerWeights& weights, Worker& worker);
  void choose_experts(std::int64_t row);
  void group_by_expert(Job& job);
  void gather(std::int64_t chosen);
  void feed_forward(const Job& job, const LayerWeights& weights, Worker& worker);
  void activate(const Job& job, const LayerWeights& weights, const Activations& input, Worker& worker);
  void add_experts(const Job& job, const LayerWeights& weights, float* target, bool accumulate, Worker& worker);
  void read_out(Job& job, Worker& worker);
  void sample(Job& job, Worker& worker);

  WorkerScratch& scratch_of(const Worker& worker) { return space_.workers[static_cast<std::size_t>(worker.index())]; }
  PhaseClock& clock_of(Worker& worker);
  int window_of(int layer) const { return shape_.layers[static_cast<std::size_t>(layer)].window; }
  void normalize_head(float* head, const PaddedVector& weight, WorkerScratch& scratch) const;
  void normalize_row(const float* row, const PaddedVector& weight, std::int64_t target);
  void encode(const float* source, std::int64_t count, const Activations& target, std::int64_t row,
              std::int64_t column) const;
  void multiply_tile(const PackedMatrix& matrix, std::int64_t tile, const ActivationRows& x, std::int64_t num_rows,
                     float* out, std::int64_t out_stride, bool accumulate, const std::uint8_t* next) const;
  // How many items after this one a worker's next likely is, where items are tiles.
  std::int64_t items_ahead(std::int64_t num_rows) const;
  void project(const PackedMatrix& matrix, const ActivationRows& x, std::int64_t num_rows, float* out,
               std::int64_t out_stride, bool accumulate, Worker& worker) const;
  int gather_queries(const AttentionTile& tile, int kv_head, WorkerScratch& scratch) const;
  Range attend_span(const AttentionTile& tile, int layer, int kv_head, int span, WorkerScratch& scratch, float* output,
                    float* max, float* sum) const;
  void write_attention(std::int64_t row, int head, const float* output, float sum) const;

  std::shared_ptr<KvCache> cache_;
  Model& model_;
  const ModelShape& shape_;
  const Kernels& kernels_;
  const ActivationFormat activations_;
  const std::int64_t part_columns_;  // of the feed-forward network, worked on together
  const int num_workers_;
  const Strides strides_;
  const AttentionConstants attention_;
  Workspace space_;
  std::unique_ptr<Job> job_;
  std::vector<PhaseClock> clocks_;  // one per worker
  PhaseTotals phases_;
};

}  // namespace headway
