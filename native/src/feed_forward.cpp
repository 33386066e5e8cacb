// The feed-forward phases of `Runner`: down(activation(gate(x)) * up(x)) (arXiv 2002.05202), dense or by experts.
//
// With experts (arXiv 1701.06538), a token goes through the few that its router's scores rank highest. Rows are
// gathered expert after expert, so that each expert's matrices are read once a step; which rows share an expert changes
// no bit, as a row's products depend on the row alone. A token's outputs are added in ascending order of its experts.
#include <algorithm>
#include <cstring>

#include "forward_job.h"
#include "sampling/exp_log.h"

namespace headway {
namespace {

constexpr std::int64_t kRouterRows = 16;  // of one item: few enough to share, enough to read a tile for

}  // namespace

// Fills `job.expert_runs` and the space of the experts.
void Runner::route(Job& job, const LayerWeights& weights, Worker& worker) {
  const std::int64_t hidden = shape_.hidden_size, num_tiles = strides_.experts / kTileColumns;
  const std::int64_t num_parts = (job.num_tokens + kRouterRows - 1) / kRouterRows;
  ExpertSpace& space = space_.experts;
  share_each(worker, num_tiles * num_parts, Grain::kItem, [&](std::int64_t item) {
    const std::int64_t tile = item % num_tiles, row = item / num_tiles * kRouterRows;
    kernels_.matmul_f32(weights.router.data() + tile * hidden * kTileColumns, shape_.hidden_size,
                        space_.normed.row(row), space_.normed.stride(),
                        static_cast<int>(std::min(kRouterRows, job.num_tokens - row)),
                        space.scores.data() + row * strides_.experts + tile * kTileColumns, strides_.experts);
  });
  share_each(worker, job.num_tokens, Grain::kCoarse, [&](std::int64_t row) { choose_experts(row); });
  share_each(worker, 1, Grain::kItem, [&](std::int64_t) { group_by_expert(job); });
  share_each(worker, job.num_tokens * shape_.num_experts_per_token, Grain::kCoarse,
             [&](std::int64_t chosen) { gather(chosen); });
}

// The token's experts, of equal scores those with the lower index, and their weights.
void Runner::choose_experts(std::int64_t row) {
  const int num_experts = shape_.num_experts, num_chosen = shape_.num_experts_per_token;
  float* scores = space_.experts.scores.data() + row * strides_.experts;
  std::int32_t* chosen = space_.experts.chosen.data() + row * num_chosen;
  float* weights = space_.experts.weights.data() + row * num_chosen;
  const auto rank = [scores](std::int32_t a, std::int32_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  };
  for (int i = 0; i < num_experts; ++i) {  // NaN would have no rank
    if (!(scores[i] > -1e30F)) scores[i] = -1e30F;
    if (scores[i] > 1e30F) scores[i] = 1e30F;
  }
  for (int count = 0, i = 0; i < num_experts; ++i) {  // the best so far, best first
    if (count == num_chosen && !rank(i, chosen[count - 1])) continue;
    int at = count < num_chosen ? count++ : count - 1;
    for (; at > 0 && rank(i, chosen[at - 1]); --at) chosen[at] = chosen[at - 1];
    chosen[at] = i;
  }
  const float greatest = scores[chosen[0]];
  float total = 0.0F;
  for (int i = 0; i < num_experts; i += 4) {  // rows are padded to 32
    const Float4 power = exp_nonpositive4(load4(scores + i) - splat4(greatest));
    store4(scores + i, power);
    for (int j = i; j < std::min(i + 4, num_experts); ++j) total += scores[j];
  }
  std::sort(chosen, chosen + num_chosen);
  if (shape_.normalize_experts) {
    total = 0.0F;
    for (int j = 0; j < num_chosen; ++j) total += scores[chosen[j]];
  }
  for (int j = 0; j < num_chosen; ++j) weights[j] = scores[chosen[j]] / total;
}

// Counts each expert's tokens and gives every pair of token and expert its row.
void Runner::group_by_expert(Job& job) {
  ExpertSpace& space = space_.experts;
  const std::int64_t num_chosen = job.num_tokens * shape_.num_experts_per_token;
  std::int64_t* next = space.next_rows.data();
  std::fill_n(next, shape_.num_experts, std::int64_t{0});
  for (std::int64_t i = 0; i < num_chosen; ++i) ++next[space.chosen.data()[i]];
  job.expert_runs.clear();
  std::int64_t first = 0;
  for (std::int32_t expert = 0; expert < shape_.num_experts; ++expert) {
    const std::int64_t count = next[expert];
    if (count > 0) job.expert_runs.push_back({static_cast<std::size_t>(expert), first, count});
    next[expert] = first;
    first += count;
  }
  for (std::int64_t i = 0; i < num_chosen; ++i) {
    const std::int64_t row = next[space.chosen.data()[i]]++;
    space.chosen_rows.data()[i] = row;
    space.tokens.data()[row] = i / shape_.num_experts_per_token;
  }
}

void Runner::gather(std::int64_t chosen) {
  const Activations &from = space_.normed, &to = space_.experts.input;
  const std::int64_t token = space_.experts.tokens.data()[chosen];
  const auto hidden = static_cast<std::size_t>(strides_.hidden);
  if (activations_.halves) {
    std::memcpy(to.halves(chosen), from.halves(token), hidden * sizeof(std::uint16_t));
    return;
  }
  if (!activations_.integers) {
    std::memcpy(to.row(chosen), from.row(token), hidden * sizeof(float));
    return;
  }
  const QuantizedRow source = from.quantized(token, 0), target = to.quantized(chosen, 0);
  const std::size_t num_groups = hidden / static_cast<std::size_t>(activations_.group_size);
  std::memcpy(target.values, source.values, hidden);
  std::memcpy(target.scales, source.scales, num_groups * sizeof(float));
  std::memcpy(target.sums, source.sums, num_groups * sizeof(std::int32_t));
  std::memcpy(target.scaled_sums, source.scaled_sums, num_groups * sizeof(float));
}

void Runner::feed_forward(const Job& job, const LayerWeights& weights, Worker& worker) {
  const bool post_norm = shape_.post_norms;
  float* target = post_norm ? space_.block_output.data() : space_.residual.data();
  if (shape_.num_experts > 0) {
    activate(job, weights, space_.experts.input, worker);
    add_experts(job, weights, target, !post_norm, worker);
  } else {
    activate(job, weights, space_.normed, worker);
    project(weights.ffn.front().down, space_.inner.rows(), job.num_tokens, target, strides_.hidden, !post_norm, worker);
  }
  if (post_norm) add_normed(job, weights.ffn_post_norm, worker);
}

// Gate, up, their product and its encoding, a part of the columns at a time: nothing of it leaves the worker's cache.
void Runner::activate(const Job& job, const LayerWeights& weights, const Activations& input, Worker& worker) {
  WorkerScratch& scratch = scratch_of(worker);
  const auto multiply = shape_.activation == Activation::kSilu ? kernels_.silu_multiply : kernels_.gelu_tanh_multiply;
  const std::int64_t num_parts = strides_.ffn / part_columns_, tiles_per_part = part_columns_ / kTileColumns;
  share_each(worker, job.max_expert_runs * num_parts, tile_grain(job.num_tokens), [&](std::int64_t item) {
    if (item / num_parts >= std::ssize(job.expert_runs)) return;
    const ExpertRun& run = job.expert_runs[static_cast<std::size_t>(item / num_parts)];
    const FeedForward& ffn = weights.ffn[run.expert];
    const ActivationRows x = input.rows(run.first_row);
    const std::int64_t part = item % num_parts;
    for (std::int64_t half = 0; half < tiles_per_part; ++half) {
      const std::int64_t tile = part * tiles_per_part + half;
      float* gate = scratch.gate.data() + half * kTileColumns;
      float* up = scratch.up.data() + half * kTileColumns;
      if (tile < ffn.gate.num_tiles()) {
        const bool is_last = half + 1 == tiles_per_part;
        const std::int64_t next = is_last ? (part + items_ahead(job.num_tokens)) * tiles_per_part : tile + 1;
        multiply_tile(ffn.gate, tile, x, run.num_rows, gate, part_columns_, false, ffn.up.tile_data(tile));
        multiply_tile(ffn.up, tile, x, run.num_rows, up, part_columns_, false, ffn.gate.tile_data(next));
      } else {  // the padding of the last part
        for (std::int64_t row = 0; row < run.num_rows; ++row) {
          std::fill_n(gate + row * part_columns_, kTileColumns, 0.0F);
          std::fill_n(up + row * part_columns_, kTileColumns, 0.0F);
        }
      }
    }
    for (std::int64_t row = 0; row < run.num_rows; ++row) {
      float* gate = scratch.gate.data() + row * part_columns_;
      const std::int64_t inner_row = run.first_row + row, column = part * part_columns_;
      float* out = activations_.encoded() ? gate : space_.inner.row(inner_row) + column;
      multiply(gate, scratch.up.data() + row * part_columns_, static_cast<int>(part_columns_), out);
      encode(out, part_columns_, space_.inner, inner_row, column);
    }
  });
}

// target[token] (+)= the sum, in ascending order of experts, of weight * down(inner).
void Runner::add_experts(const Job& job, const LayerWeights& weights, float* target, bool accumulate, Worker& worker) {
  const std::int64_t num_tiles = weights.ffn.front().down.num_tiles(), num_chosen = shape_.num_experts_per_token;
  const ExpertSpace& space = space_.experts;
  share_each(worker, job.max_expert_runs * num_tiles, tile_grain(job.num_tokens), [&](std::int64_t item) {
    if (item / num_tiles >= std::ssize(job.expert_runs)) return;
    const ExpertRun& run = job.expert_runs[static_cast<std::size_t>(item / num_tiles)];
    const std::int64_t tile = item % num_tiles;
    const PackedMatrix& down = weights.ffn[run.expert].down;
    multiply_tile(down, tile, space_.inner.rows(run.first_row), run.num_rows,
                  space.output.data() + run.first_row * strides_.hidden + tile * kTileColumns, strides_.hidden, false,
                  down.tile_data(tile + items_ahead(job.num_tokens)));
  });
  share_each(worker, job.num_tokens, Grain::kCoarse, [&](std::int64_t token) {
    float* sum = scratch_of(worker).normed.data();
    std::fill_n(sum, shape_.hidden_size, 0.0F);
    for (std::int64_t j = token * num_chosen; j < (token + 1) * num_chosen; ++j) {
      const float* output = space.output.data() + space.chosen_rows.data()[j] * strides_.hidden;
      const float weight = space.weights.data()[j];
      for (std::int64_t i = 0; i < shape_.hidden_size; ++i) sum[i] += weight * output[i];
    }
    float* row = target + token * strides_.hidden;
    for (std::int64_t i = 0; i < shape_.hidden_size; ++i) row[i] = accumulate ? row[i] + sum[i] : sum[i];
  });
}

}  // namespace headway
