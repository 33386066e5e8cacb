// What comes before attention in `Runner`: queries, keys and values of every token, rotated; keys and values stored.
#include <cmath>

#include "forward_job.h"
#include "rope.h"

namespace headway {
namespace {

constexpr double kLog2E = 1.4426950408889634;

}  // namespace

void Runner::project_qkv(const Job& job, const LayerWeights& weights, Worker& worker) {
  const ActivationRows x = space_.normed.rows();
  const std::int64_t query_tiles = weights.query.num_tiles(), kv_tiles = weights.key.num_tiles();
  share_each(worker, query_tiles + 2 * kv_tiles, tile_grain(job.num_tokens), [&](std::int64_t i) {
    const std::int64_t kv_tile = i - query_tiles;
    const bool is_query = kv_tile < 0, is_key = !is_query && kv_tile < kv_tiles;
    const PackedMatrix& matrix = is_query ? weights.query : (is_key ? weights.key : weights.value);
    const std::int64_t tile = is_query ? i : (is_key ? kv_tile : kv_tile - kv_tiles);
    const std::int64_t column =
        (is_query ? 0 : strides_.heads + (is_key ? 0 : strides_.kv_heads)) + tile * kTileColumns;
    multiply_tile(matrix, tile, x, job.num_tokens, space_.qkv.data() + column, strides_.qkv, false);
  });
}

void Runner::rotate_and_store(const Job& job, int layer, Worker& worker) {
  const int head_dim = shape_.head_dim, num_heads = shape_.num_heads;
  const std::int32_t rope_index = shape_.layers[static_cast<std::size_t>(layer)].rope;
  const Rope& rope = shape_.ropes[static_cast<std::size_t>(rope_index)];
  const std::int64_t offset = rotation_offset(shape_, rope_index);
  // Scores in base 2, so that softmax needs no multiplication.
  const auto query_scale = static_cast<float>(kLog2E / std::sqrt(static_cast<double>(head_dim)));
  const std::int64_t heads_per_row = num_heads + shape_.num_kv_heads;
  share_each(worker, job.num_tokens * heads_per_row, Grain::kCoarse, [&](std::int64_t item) {
    const std::int64_t row = item / heads_per_row;
    const int head = static_cast<int>(item % heads_per_row);
    float* qkv = space_.qkv.data() + row * strides_.qkv;
    const float* rotation = space_.rotation.data() + row * strides_.rotation + offset;
    if (head < num_heads) {
      float* query = qkv + head * head_dim;
      rotate(rope, rotation, query);
      for (int d = 0; d < head_dim; ++d) query[d] *= query_scale;
    } else {
      const int kv_head = head - num_heads;
      float* key = qkv + strides_.heads + kv_head * head_dim;
      rotate(rope, rotation, key);
      const KvSlot slot = job.slots[static_cast<std::size_t>(row)];
      cache_->store(cache_->head_part(slot.block, layer, kv_head), slot.index, key, key + strides_.kv_heads);
    }
  });
}

}  // namespace headway
