#include "attention_plan.h"

#include <algorithm>

namespace headway {
namespace {

constexpr int kTileRows = 48;             // query rows of a tile: their scores, 48 KiB, stay in the second-level cache
constexpr std::int64_t kEnoughItems = 4;  // per worker: pairs of tile and KV head that balance without splitting
// Partials of spread spans are kept in memory; beyond this many floats a step has enough tiles anyway.
constexpr std::int64_t kMaxPartialFloats = std::int64_t{4} << 20;

}  // namespace

void plan_attention(const Step& step, const ModelShape& shape, int num_workers, AttentionPlan& plan) {
  plan.tiles.clear();
  plan.span_items.clear();
  plan.num_partials = 0;
  plan.max_rows = 0;
  const int group = shape.num_heads / shape.num_kv_heads;
  std::int64_t num_spans = 0;
  const int tile_tokens = std::max(1, kTileRows / group);
  for (std::size_t b = 0; b < static_cast<std::size_t>(step.num_sequences()); ++b) {
    const std::int32_t* blocks = step.block_table.data() + step.block_table_starts[b];
    const std::int32_t begin = step.sequence_starts[b], end = step.sequence_starts[b + 1];
    for (std::int32_t row = begin; row < end; row += tile_tokens) {
      const int count = std::min(tile_tokens, end - row);
      const AttentionTile tile{row, count, step.context_lens[b] + (row - begin), blocks, plan.num_partials};
      plan.tiles.push_back(tile);
      num_spans += tile.num_spans();
      plan.num_partials += std::int64_t{tile.num_spans()} * shape.num_heads * count;
      plan.max_rows = std::max(plan.max_rows, count * group);
    }
  }
  const std::int64_t items = std::ssize(plan.tiles) * shape.num_kv_heads;
  plan.split = num_workers > 1 && items < kEnoughItems * num_workers && num_spans > std::ssize(plan.tiles) &&
               plan.num_partials * shape.head_dim <= kMaxPartialFloats;
  if (plan.split) {
    for (std::int32_t tile = 0; tile < std::ssize(plan.tiles); ++tile)
      for (std::int32_t span = 0; span < plan.tiles[static_cast<std::size_t>(tile)].num_spans(); ++span)
        plan.span_items.push_back({tile, span});
  }
}

}  // namespace headway
