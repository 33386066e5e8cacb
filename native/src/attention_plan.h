// How one step's attention is cut into tiles of query rows, and tiles into work for the workers.
//
// A tile is some consecutive tokens of one sequence with all query heads of one KV head. With few tiles (decoding few
// sequences) their spans of 256 positions are spread over the workers as well. Which way is taken changes no bit: spans
// are merged in ascending order either way.
#pragma once

#include <cstdint>
#include <vector>

#include "step.h"

namespace headway {

struct AttentionTile {
  std::int64_t first_row;  // of the step's tokens
  int num_tokens;
  std::int32_t first_position;
  const std::int32_t* blocks;  // the sequence's block table
  std::int64_t first_partial;  // of `Workspace::partial_*`, when spans are spread

  // The first span that token `token` sees any of, with a window of so many positions (0 = all).
  int first_span(int token, int window) const {
    const int first = first_position + token - window + 1;
    return window == 0 || first < 0 ? 0 : first / kSpanTokens;
  }
  int num_spans() const { return (first_position + num_tokens - 1) / kSpanTokens + 1; }
  // Positions [start, limit) of span `span` are what the tile's token `token` sees.
  int start(int token, int span, int window) const {
    return window == 0 ? 0 : within_span(first_position + token + 1 - window - span * kSpanTokens);
  }
  int limit(int token, int span) const { return within_span(first_position + token + 1 - span * kSpanTokens); }

 private:
  static int within_span(int position) { return position < 0 ? 0 : (position > kSpanTokens ? kSpanTokens : position); }
};

struct SpanItem {
  std::int32_t tile;  // index into AttentionPlan::tiles
  std::int32_t span;
};

struct AttentionPlan {
  std::vector<AttentionTile> tiles;
  bool split;                        // spans are spread over the workers
  std::vector<SpanItem> span_items;  // every span of every tile, if split
  std::int64_t num_partials;         // rows of `Workspace::partial_*`
  int max_rows;                      // query rows of the largest tile
};

// Fills `plan` anew, in the memory it has.
void plan_attention(const Step& step, const ModelShape& shape, int num_workers, AttentionPlan& plan);

}  // namespace headway
