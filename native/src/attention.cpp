// The attention phases of `Runner`: paged, grouped-query, in partials over spans of 256 absolute positions that are
// merged in ascending order (the partial softmax of Milakov and Gimelshein, arXiv 1805.02867), on every path.
#include <algorithm>

#include "forward_job.h"

namespace headway {

// The tile's query heads of one KV head as the kernel takes them, token after token: rows in order of position. Returns
// how many.
int Runner::gather_queries(const AttentionTile& tile, int kv_head, WorkerScratch& scratch) const {
  const int group = shape_.num_heads / shape_.num_kv_heads;
  const int num_rows = tile.num_tokens * group;
  for (int row = 0; row < num_rows; ++row) {
    const float* query = space_.qkv.data() + (tile.first_row + row / group) * strides_.qkv +
                         (std::int64_t{kv_head} * group + row % group) * shape_.head_dim;
    scratch.query_scales.data()[row] = kernels_.attention_query(
        query, shape_.head_dim, cache_->int8(), scratch.queries.data() + std::int64_t{row} * shape_.head_dim);
  }
  return num_rows;
}

// One span's partial of the rows that see any of it, a run of them, which is returned; others' is left alone.
Range Runner::attend_span(const AttentionTile& tile, int layer, int kv_head, int span, WorkerScratch& scratch,
                          float* output, float* max, float* sum) const {
  const int group = shape_.num_heads / shape_.num_kv_heads, head_dim = shape_.head_dim, window = window_of(layer);
  int begin = tile.num_tokens, end = 0;  // tokens
  for (int token = 0; token < tile.num_tokens; ++token) {
    const int start = tile.start(token, span, window), limit = tile.limit(token, span);
    if (start >= limit) continue;
    begin = std::min(begin, token);
    end = token + 1;
    std::fill_n(scratch.starts.data() + token * group, group, start);
    std::fill_n(scratch.limits.data() + token * group, group, limit);
  }
  if (begin >= end) return {0, 0};
  const std::uint8_t* parts[kSpanParts] = {};
  const int first_part = tile.start(begin, span, window) / kPartTokens;
  for (int i = first_part; i * kPartTokens < tile.limit(end - 1, span); ++i)
    parts[i] = cache_->part_of(tile.blocks, span * kSpanTokens + i * kPartTokens, layer, kv_head);
  const std::int64_t first = begin * group;
  kernels_.attention_span({parts, scratch.queries.data() + first * head_dim, scratch.query_scales.data() + first,
                           scratch.starts.data() + first, scratch.limits.data() + first, attention_.softcap,
                           (end - begin) * group, head_dim, cache_->int8(), scratch.scores.data(), max + first,
                           sum + first, output + first * head_dim});
  return {first, std::int64_t{end} * group};
}

void Runner::write_attention(std::int64_t row, int head, const float* output, float sum) const {
  float* target = space_.attention.row(row) + std::int64_t{head} * shape_.head_dim;
  const float inverse = 1.0F / sum;
  for (int d = 0; d < shape_.head_dim; ++d) target[d] = output[d] * inverse;
}

void Runner::attend(const Job& job, int layer, Worker& worker) {
  const int group = shape_.num_heads / shape_.num_kv_heads, head_dim = shape_.head_dim, window = window_of(layer);
  const std::int64_t num_tiles = std::ssize(job.attention.tiles);
  WorkerScratch& scratch = scratch_of(worker);
  share_each(worker, num_tiles * shape_.num_kv_heads, Grain::kItem, [&](std::int64_t item) {
    // Last tiles first: they see the most positions, and what is dear should not come last.
    const AttentionTile& tile =
        job.attention.tiles[static_cast<std::size_t>(num_tiles - 1 - item / shape_.num_kv_heads)];
    const int kv_head = static_cast<int>(item % shape_.num_kv_heads);
    const int num_rows = gather_queries(tile, kv_head, scratch);
    for (int span = tile.first_span(0, window); span < tile.num_spans(); ++span) {
      const Range rows = attend_span(tile, layer, kv_head, span, scratch, scratch.output.data(), scratch.max.data(),
                                     scratch.sum.data());
      for (std::int64_t row = rows.begin; row < rows.end; ++row)
        kernels_.attention_merge(span == tile.first_span(static_cast<int>(row) / group, window), head_dim,
                                 scratch.output.data() + row * head_dim, scratch.max.data()[row],
                                 scratch.sum.data()[row], scratch.total_output.data() + row * head_dim,
                                 scratch.total_max.data() + row, scratch.total_sum.data() + row);
    }
    for (int row = 0; row < num_rows; ++row)
      write_attention(tile.first_row + row / group, kv_head * group + row % group,
                      scratch.total_output.data() + row * head_dim, scratch.total_sum.data()[row]);
  });
}

// Partials of a tile lie span after span, KV head after KV head, row after row.
void Runner::attend_split(const Job& job, int layer, Worker& worker) {
  WorkerScratch& scratch = scratch_of(worker);
  share_each(worker, std::ssize(job.attention.span_items) * shape_.num_kv_heads, Grain::kItem, [&](std::int64_t item) {
    const auto [index, span] = job.attention.span_items[static_cast<std::size_t>(item / shape_.num_kv_heads)];
    const AttentionTile& tile = job.attention.tiles[static_cast<std::size_t>(index)];
    if (span < tile.first_span(0, window_of(layer))) return;  // wholly before every row's window
    const int kv_head = static_cast<int>(item % shape_.num_kv_heads);
    const std::int64_t num_rows = gather_queries(tile, kv_head, scratch);
    const std::int64_t at = tile.first_partial + (std::int64_t{span} * shape_.num_kv_heads + kv_head) * num_rows;
    attend_span(tile, layer, kv_head, span, scratch, space_.partial_output.data() + at * shape_.head_dim,
                space_.partial_max.data() + at, space_.partial_sum.data() + at);
  });
}

void Runner::merge_split(const Job& job, int layer, Worker& worker) {
  const int head_dim = shape_.head_dim, num_heads = shape_.num_heads, group = num_heads / shape_.num_kv_heads;
  const int window = window_of(layer);
  WorkerScratch& scratch = scratch_of(worker);
  share_each(worker, std::ssize(job.attention.tiles) * num_heads, Grain::kCoarse, [&](std::int64_t item) {
    const AttentionTile& tile = job.attention.tiles[static_cast<std::size_t>(item / num_heads)];
    const int head = static_cast<int>(item % num_heads);
    for (int token = 0; token < tile.num_tokens; ++token) {
      const std::int64_t row = (std::int64_t{head / group} * tile.num_tokens + token) * group + head % group;
      float max = 0.0F, sum = 0.0F;
      const int first_span = tile.first_span(token, window);
      for (int span = first_span; span < tile.num_spans() && tile.limit(token, span) > 0; ++span) {
        const std::int64_t at = tile.first_partial + std::int64_t{span} * tile.num_tokens * num_heads + row;
        kernels_.attention_merge(span == first_span, head_dim, space_.partial_output.data() + at * head_dim,
                                 space_.partial_max.data()[at], space_.partial_sum.data()[at],
                                 scratch.total_output.data(), &max, &sum);
      }
      write_attention(tile.first_row + token, head, scratch.total_output.data(), sum);
    }
  });
}

}  // namespace headway
