// What comes before attention in `Runner`: queries, keys and values of every token, normed (arXiv 2302.05442) and
// rotated; keys and values stored.
#include <cmath>
#include <cstring>

#include "forward_job.h"
#include "rope.h"

namespace headway {

// Scores are in base 2, so that softmax needs no multiplication.
AttentionConstants::AttentionConstants(const ModelShape& shape) {
  constexpr double kLog2E = 1.4426950408889634;
  const double root = std::sqrt(static_cast<double>(shape.head_dim));
  if (shape.attention_softcap.has_value()) {  // c tanh(score / c)
    const double cap = *shape.attention_softcap;
    query_scale = static_cast<float>(shape.attention_scale.value_or(1.0 / root) / cap);
    softcap = static_cast<float>(kLog2E * cap);
  } else if (shape.attention_scale.has_value()) {
    query_scale = static_cast<float>(kLog2E * *shape.attention_scale);
  } else {
    query_scale = static_cast<float>(kLog2E / root);
  }
}

void Runner::project_qkv(const Job& job, const LayerWeights& weights, Worker& worker) {
  const ActivationRows x = space_.normed.rows();
  const std::int64_t query_tiles = weights.query.num_tiles(), kv_tiles = weights.key.num_tiles();
  share_each(worker, query_tiles + 2 * kv_tiles, tile_grain(job.num_tokens), [&](std::int64_t i) {
    const std::int64_t kv_tile = i - query_tiles;
    const bool is_query = kv_tile < 0, is_key = !is_query && kv_tile < kv_tiles;
    const PackedMatrix& matrix = is_query ? weights.query : (is_key ? weights.key : weights.value);
    const PaddedVector& bias = is_query ? weights.query_bias : (is_key ? weights.key_bias : weights.value_bias);
    const std::int64_t tile = is_query ? i : (is_key ? kv_tile : kv_tile - kv_tiles);
    const std::int64_t column =
        (is_query ? 0 : strides_.heads + (is_key ? 0 : strides_.kv_heads)) + tile * kTileColumns;
    float* out = space_.qkv.data() + column;
    multiply_tile(matrix, tile, x, job.num_tokens, out, strides_.qkv, false,
                  matrix.tile_data(tile + items_ahead(job.num_tokens)));
    if (bias.empty()) return;
    for (std::int64_t row = 0; row < job.num_tokens; ++row, out += strides_.qkv)
      for (int c = 0; c < kTileColumns; ++c) out[c] += bias[static_cast<std::size_t>(tile * kTileColumns + c)];
  });
}

// In place. A head's neighbours are heads: the norm wants its row padded with zeros.
void Runner::normalize_head(float* head, const PaddedVector& weight, WorkerScratch& scratch) const {
  const auto num_bytes = static_cast<std::size_t>(shape_.head_dim) * sizeof(float);
  std::memcpy(scratch.head.data(), head, num_bytes);
  kernels_.rms_norm(scratch.head.data(), weight.data(), shape_.head_dim, shape_.norm_epsilon,
                    scratch.normed_head.data());
  std::memcpy(head, scratch.normed_head.data(), num_bytes);
}

void Runner::rotate_and_store(const Job& job, int layer, Worker& worker) {
  const int head_dim = shape_.head_dim, num_heads = shape_.num_heads;
  const LayerWeights& weights = model_.layers()[static_cast<std::size_t>(layer)];
  WorkerScratch& scratch = scratch_of(worker);
  const std::int32_t rope_index = shape_.layers[static_cast<std::size_t>(layer)].rope;
  const Rope& rope = shape_.ropes[static_cast<std::size_t>(rope_index)];
  const std::int64_t offset = rotation_offset(shape_, rope_index);
  const std::int64_t heads_per_row = num_heads + shape_.num_kv_heads;
  share_each(worker, job.num_tokens * heads_per_row, Grain::kCoarse, [&](std::int64_t item) {
    const std::int64_t row = item / heads_per_row;
    const int head = static_cast<int>(item % heads_per_row);
    float* qkv = space_.qkv.data() + row * strides_.qkv;
    const float* rotation = space_.rotation.data() + row * strides_.rotation + offset;
    if (head < num_heads) {
      float* query = qkv + head * head_dim;
      if (shape_.qk_norm) normalize_head(query, weights.query_norm, scratch);
      rotate(rope, rotation, query);
      for (int d = 0; d < head_dim; ++d) query[d] *= attention_.query_scale;
    } else {
      const int kv_head = head - num_heads;
      float* key = qkv + strides_.heads + kv_head * head_dim;
      if (shape_.qk_norm) normalize_head(key, weights.key_norm, scratch);
      rotate(rope, rotation, key);
      const KvSlot slot = job.slots[static_cast<std::size_t>(row)];
      cache_->store(cache_->part(slot.block, slot.index, layer, kv_head), slot.index % kPartTokens, key,
                    key + strides_.kv_heads);
    }
  });
}

}  // namespace headway
