#include "forward.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "forward_job.h"
#include "rope.h"

namespace headway {
Runner::Runner(std::shared_ptr<KvCache> cache)
    : cache_(std::move(cache)),
      model_(cache_->model()),
      shape_(model_.shape()),
      kernels_(model_.kernels()),
      activations_{model_.format().integers(), model_.format().halves, model_.format().group_size},
      part_columns_(std::max(kMinPartColumns, activations_.group_size)),
      num_workers_(model_.pool().size()),
      strides_(model_.shape()),
      attention_(model_.shape()) {
  if (!model_.finished())
    throw std::invalid_argument("The model is not finished: load its tensors, then call finish().");
  space_.workers.resize(static_cast<std::size_t>(num_workers_));
  clocks_.resize(static_cast<std::size_t>(num_workers_));
  job_ = std::make_unique<Job>();
}

Runner::~Runner() = default;

// The step checked, nothing left of the one before but memory.
Runner::Job& Runner::begin(const Step& step) {
  Job& job = *job_;
  check_step(step, *cache_, job.block_holders);
  job.step = step;
  job.sampling.clear();
  job.logit_rows.clear();
  job.hidden_rows.clear();
  job.slots.clear();
  job.expert_runs.clear();
  job.max_expert_runs = 1;
  job.output = {};
  return job;
}

StepOutput Runner::execute(const Step& step, const SamplingArrays& sampling) {
  const Model::Use use(model_);
  Job& job = begin(step);
  const auto num_rows =
      std::count(step.output_kinds.begin(), step.output_kinds.end(), static_cast<std::int32_t>(OutputKind::kLogits));
  sampling_rows(sampling, num_rows, shape_.vocab_size, job.sampling);
  prepare(job);
  job.output.sampled.resize(static_cast<std::size_t>(num_rows));
  run(job);
  return std::move(job.output);
}

StepOutput Runner::forward(const Step& step) {
  const Model::Use use(model_);
  Job& job = begin(step);
  prepare(job);
  run(job);
  const auto vocab_size = static_cast<std::size_t>(shape_.vocab_size);
  job.output.logits.resize(job.logit_rows.size() * vocab_size);
  for (std::size_t i = 0; i < job.logit_rows.size(); ++i)
    std::memcpy(job.output.logits.data() + i * vocab_size,
                space_.logits.data() + static_cast<std::int64_t>(i) * strides_.logits, vocab_size * sizeof(float));
  return std::move(job.output);
}

// Everything that may run out of memory, before any worker starts.
void Runner::prepare(Job& job) {
  const Step& step = job.step;
  job.num_tokens = step.num_tokens();
  for (std::size_t i = 0; i < step.output_rows.size(); ++i) {
    const bool logits = step.output_kinds[i] == static_cast<std::int32_t>(OutputKind::kLogits);
    (logits ? job.logit_rows : job.hidden_rows).push_back(step.output_rows[i]);
  }
  plan_attention(step, shape_, num_workers_, job.attention);
  job.output.hidden.resize(job.hidden_rows.size() * static_cast<std::size_t>(shape_.hidden_size));

  const int block_size = cache_->block_size();
  job.slots.reserve(step.tokens.size());
  for (std::size_t b = 0; b < step.context_lens.size(); ++b) {
    for (std::int32_t t = step.sequence_starts[b]; t < step.sequence_starts[b + 1]; ++t) {
      const std::int32_t position = step.positions[static_cast<std::size_t>(t)];
      const std::int32_t block =
          step.block_table[static_cast<std::size_t>(step.block_table_starts[b] + position / block_size)];
      job.slots.push_back({block, position % block_size});
    }
  }

  const std::int64_t n = job.num_tokens;
  space_.residual.reserve(n * strides_.hidden);
  space_.qkv.reserve(n * strides_.qkv);
  space_.rotation.reserve(n * strides_.rotation);
  space_.normed.reserve(n, strides_.hidden, activations_);
  space_.attention.reserve(n, strides_.heads, activations_);
  if (shape_.post_norms) space_.block_output.reserve(n * strides_.hidden);
  const std::int64_t num_chosen = n * std::max(1, shape_.num_experts_per_token);
  space_.inner.reserve(num_chosen, strides_.ffn, activations_);
  job.expert_runs.reserve(static_cast<std::size_t>(std::max(1, shape_.num_experts)));
  if (shape_.num_experts > 0) {
    job.max_expert_runs = std::min<std::int64_t>(shape_.num_experts, num_chosen);
    ExpertSpace& experts = space_.experts;
    experts.scores.reserve(n * strides_.experts);
    experts.chosen.reserve(num_chosen);
    experts.weights.reserve(num_chosen);
    experts.chosen_rows.reserve(num_chosen);
    experts.tokens.reserve(num_chosen);
    experts.next_rows.reserve(shape_.num_experts);
    experts.input.reserve(num_chosen, strides_.hidden, activations_);
    experts.output.reserve(num_chosen * strides_.hidden);
  } else {
    job.expert_runs.push_back({0, 0, n});
  }
  space_.logits.reserve(std::ssize(job.logit_rows) * strides_.logits);
  if (job.attention.split) {
    space_.partial_output.reserve(job.attention.num_partials * shape_.head_dim);
    space_.partial_max.reserve(job.attention.num_partials);
    space_.partial_sum.reserve(job.attention.num_partials);
  }
  const std::int64_t rows = job.attention.max_rows;
  for (WorkerScratch& scratch : space_.workers) {
    scratch.gate.reserve(n * part_columns_);
    scratch.up.reserve(n * part_columns_);
    scratch.normed.reserve(strides_.hidden);
    scratch.head.reserve(round_up(shape_.head_dim, kRowAlign));
    scratch.normed_head.reserve(round_up(shape_.head_dim, kRowAlign));
    scratch.queries.reserve(rows * shape_.head_dim);
    scratch.output.reserve(rows * shape_.head_dim);
    scratch.total_output.reserve(rows * shape_.head_dim);
    scratch.query_scales.reserve(rows);
    scratch.scores.reserve(rows * kSpanTokens);
    scratch.max.reserve(rows);
    scratch.sum.reserve(rows);
    scratch.total_max.reserve(rows);
    scratch.total_sum.reserve(rows);
    scratch.starts.reserve(rows);
    scratch.limits.reserve(rows);
  }
}

void Runner::compute(Job& job, Worker& worker) {
  PhaseClock& clock = clock_of(worker);
  embed(job, worker);
  clock.lap(Phase::kEmbed);
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    const LayerWeights& weights = model_.layers()[static_cast<std::size_t>(layer)];
    norm(job, weights.attention_norm, worker);
    project_qkv(job, weights, worker);
    rotate_and_store(job, layer, worker);
    clock.lap(Phase::kQkv);
    if (job.attention.split) {
      attend_split(job, layer, worker);
      merge_split(job, layer, worker);
    } else {
      attend(job, layer, worker);
    }
    clock.lap(Phase::kAttention);
    if (activations_.encoded()) encode_attention(job, worker);
    float* block_output = shape_.post_norms ? space_.block_output.data() : space_.residual.data();
    project(weights.attention_output, space_.attention.rows(), job.num_tokens, block_output, strides_.hidden,
            !shape_.post_norms, worker);
    if (shape_.post_norms) add_normed(job, weights.attention_post_norm, worker);
    clock.lap(Phase::kAttentionOutput);
    norm(job, weights.ffn_norm, worker);
    if (shape_.num_experts > 0) route(job, weights, worker);
    feed_forward(job, weights, worker);
    clock.lap(Phase::kMlp);
  }
  read_out(job, worker);
  if (!job.sampling.empty()) sample(job, worker);
  clock.lap(Phase::kHead);
}

void Runner::embed(const Job& job, Worker& worker) {
  share_each(worker, job.num_tokens, Grain::kCoarse, [&](std::int64_t row) {
    const auto index = static_cast<std::size_t>(row);
    float* residual = space_.residual.data() + row * strides_.hidden;
    unpack_row(model_.token_embedding(), job.step.tokens[index], residual);
    // Half a tile's padding is computed like its columns: a row of an earlier step that held NaN has left NaN there.
    std::fill(residual + shape_.hidden_size, residual + strides_.hidden, 0.0F);
    const auto scale = static_cast<float>(shape_.embedding_scale);
    if (scale != 1.0F)
      for (std::int64_t i = 0; i < shape_.hidden_size; ++i) residual[i] *= scale;
    compute_rotation(shape_, job.step.positions[index], space_.rotation.data() + row * strides_.rotation);
  });
}

// Columns [column, column + count) of a row, in the form that products take.
void Runner::encode(const float* source, std::int64_t count, const Activations& target, std::int64_t row,
                    std::int64_t column) const {
  if (activations_.integers) {
    kernels_.quantize(source, static_cast<int>(count), activations_.group_size, target.quantized(row, column));
  } else if (activations_.halves) {
    kernels_.round_to_halves(source, static_cast<int>(count), target.halves(row) + column);
  }
}

void Runner::normalize_row(const float* row, const PaddedVector& weight, std::int64_t target) {
  float* out = space_.normed.row(target);
  kernels_.rms_norm(row, weight.data(), shape_.hidden_size, shape_.norm_epsilon, out);
  encode(out, strides_.hidden, space_.normed, target, 0);
}

void Runner::norm(const Job& job, const PaddedVector& weight, Worker& worker) {
  share_each(worker, job.num_tokens, Grain::kCoarse,
             [&](std::int64_t row) { normalize_row(space_.residual.data() + row * strides_.hidden, weight, row); });
}

// residual += norm(block_output), row by row.
void Runner::add_normed(const Job& job, const PaddedVector& weight, Worker& worker) {
  float* normed = scratch_of(worker).normed.data();
  share_each(worker, job.num_tokens, Grain::kCoarse, [&](std::int64_t row) {
    kernels_.rms_norm(space_.block_output.data() + row * strides_.hidden, weight.data(), shape_.hidden_size,
                      shape_.norm_epsilon, normed);
    float* residual = space_.residual.data() + row * strides_.hidden;
    for (std::int64_t i = 0; i < shape_.hidden_size; ++i) residual[i] += normed[i];
  });
}

// out[row] (+)= x[row] . one tile of the matrix, for every row; `next` is what this worker will read next, or null.
void Runner::multiply_tile(const PackedMatrix& matrix, std::int64_t tile, const ActivationRows& x,
                           std::int64_t num_rows, float* out, std::int64_t out_stride, bool accumulate,
                           const std::uint8_t* next) const {
  kernels_.matmul(matrix.tile(tile, next), x, static_cast<int>(num_rows), out, out_stride, accumulate);
}

std::int64_t Runner::items_ahead(std::int64_t num_rows) const {
  return tile_grain(num_rows) == Grain::kItem ? num_workers_ : 1;
}

void Runner::project(const PackedMatrix& matrix, const ActivationRows& x, std::int64_t num_rows, float* out,
                     std::int64_t out_stride, bool accumulate, Worker& worker) const {
  share_each(worker, matrix.num_tiles(), tile_grain(num_rows), [&](std::int64_t tile) {
    multiply_tile(matrix, tile, x, num_rows, out + tile * kTileColumns, out_stride, accumulate,
                  matrix.tile_data(tile + items_ahead(num_rows)));
  });
}

void Runner::encode_attention(const Job& job, Worker& worker) {
  const std::int64_t parts = strides_.heads / kRowAlign;
  share_each(worker, job.num_tokens * parts, Grain::kCoarse, [&](std::int64_t item) {
    const std::int64_t row = item / parts, column = item % parts * kRowAlign;
    encode(space_.attention.row(row) + column, kRowAlign, space_.attention, row, column);
  });
}

void Runner::read_out(Job& job, Worker& worker) {
  const auto num_logit_rows = std::ssize(job.logit_rows), num_hidden_rows = std::ssize(job.hidden_rows);
  const auto residual = [this](std::int64_t row) { return space_.residual.data() + row * strides_.hidden; };
  float* normed = scratch_of(worker).normed.data();
  share_each(worker, num_logit_rows + num_hidden_rows, Grain::kCoarse, [&](std::int64_t item) {
    if (item < num_logit_rows) {
      normalize_row(residual(job.logit_rows[static_cast<std::size_t>(item)]), model_.output_norm(), item);
      return;
    }
    const std::int64_t i = item - num_logit_rows;
    kernels_.rms_norm(residual(job.hidden_rows[static_cast<std::size_t>(i)]), model_.output_norm().data(),
                      shape_.hidden_size, shape_.norm_epsilon, normed);
    std::memcpy(job.output.hidden.data() + i * shape_.hidden_size, normed,
                static_cast<std::size_t>(shape_.hidden_size) * sizeof(float));
  });
  if (num_logit_rows == 0) return;
  project(model_.output(), space_.normed.rows(), num_logit_rows, space_.logits.data(), strides_.logits, false, worker);
  if (!shape_.logit_softcap.has_value()) return;
  const auto cap = static_cast<float>(*shape_.logit_softcap);
  share_each(worker, num_logit_rows * strides_.logits / kTileColumns, Grain::kCoarse, [&](std::int64_t tile) {
    kernels_.soften(space_.logits.data() + tile * kTileColumns, kTileColumns, cap);
  });
}

void Runner::sample(Job& job, Worker& worker) {
  WorkerScratch& scratch = scratch_of(worker);
  share_each(worker, std::ssize(job.sampling), Grain::kItem, [&](std::int64_t i) {
    const auto index = static_cast<std::size_t>(i);
    sample_row(space_.logits.data() + i * strides_.logits, shape_.vocab_size, job.sampling[index], scratch.sampler,
               job.output.sampled[index]);
  });
}

}  // namespace headway
