// Memory of a step that the next step uses again: activations of all rows, and scratch of each worker.
//
// Rows are padded with zeros to `kRowAlign`; who writes a row leaves its padding zero. Buffers only grow.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "model.h"
#include "platform/platform.h"
#include "rope.h"
#include "sampling/sampler.h"

namespace headway {

// An array that grows; new memory is zero, old contents are lost.
template <class T>
class Buffer {
 public:
  void reserve(std::int64_t count) {
    if (count <= count_) return;
    pages_ = allocate_pages(static_cast<std::size_t>(count) * sizeof(T));
    count_ = count;
  }
  T* data() const { return reinterpret_cast<T*>(pages_.get()); }

 private:
  Pages pages_;
  std::int64_t count_ = 0;
};

// How rows of activations meet the weights.
struct ActivationFormat {
  bool integers = false;  // quantised, in groups
  bool halves = false;    // rounded to bfloat16
  int group_size = 32;

  bool encoded() const { return integers || halves; }  // not the floats themselves
};

// The input of a matrix product: rows of floats and the same in the form that the product takes.
class Activations {
 public:
  void reserve(std::int64_t num_rows, std::int64_t stride, const ActivationFormat& format) {
    stride_ = stride;
    group_size_ = format.group_size;
    values_.reserve(num_rows * stride);
    if (format.halves) halves_.reserve(num_rows * stride);
    if (!format.integers) return;
    quantized_.reserve(num_rows * stride);
    scales_.reserve(num_rows * stride / group_size_);
    sums_.reserve(num_rows * stride / group_size_);
    scaled_sums_.reserve(num_rows * stride / group_size_);
  }
  float* row(std::int64_t row) const { return values_.data() + row * stride_; }
  std::uint16_t* halves(std::int64_t row) const { return halves_.data() + row * stride_; }
  std::int64_t stride() const { return stride_; }
  // Where `source`'s columns [column, ...) of a row are quantised to; `column` is a multiple of the group.
  QuantizedRow quantized(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * stride_ + column, group = at / group_size_;
    return {quantized_.data() + at, scales_.data() + group, sums_.data() + group, scaled_sums_.data() + group};
  }
  ActivationRows rows(std::int64_t first = 0) const {
    const std::int64_t at = first * stride_, group = at / group_size_;
    const std::uint16_t* halves = halves_.data();
    return {values_.data() + at,      halves == nullptr ? nullptr : halves + at,
            quantized_.data() + at,   scales_.data() + group,
            sums_.data() + group,     scaled_sums_.data() + group,
            stride_,                  stride_ / group_size_};
  }

 private:
  Buffer<float> values_, scales_, scaled_sums_;
  Buffer<std::uint16_t> halves_;
  Buffer<std::int8_t> quantized_;
  Buffer<std::int32_t> sums_;
  std::int64_t stride_ = 0;
  int group_size_ = 1;
};

// Lengths of rows, in items, fixed by the model's shape.
struct Strides {
  std::int64_t hidden, heads, kv_heads, ffn;
  std::int64_t qkv;  // query heads, then key heads, then value heads
  std::int64_t logits;
  std::int64_t rotation;
  std::int64_t experts;

  explicit Strides(const ModelShape& shape)
      : hidden(round_up(shape.hidden_size, kRowAlign)),
        heads(round_up(std::int64_t{shape.num_heads} * shape.head_dim, kRowAlign)),
        kv_heads(round_up(std::int64_t{shape.num_kv_heads} * shape.head_dim, kRowAlign)),
        ffn(round_up(shape.ffn_size, kRowAlign)),
        qkv(heads + 2 * kv_heads),
        logits(round_up(shape.vocab_size, kTileColumns)),
        rotation(rotation_size(shape)),
        experts(round_up(shape.num_experts, kTileColumns)) {}
};

struct WorkerScratch {
  Buffer<float> gate, up;                        // (num_tokens, columns of a part)
  Buffer<float> normed;                          // (hidden,)
  Buffer<float> head, normed_head;               // (head_dim,), padded
  Buffer<float> queries, output, total_output;   // (attention rows, head_dim)
  Buffer<float> query_scales;                    // (attention rows,)
  Buffer<float> scores;                          // (attention rows, kSpanTokens)
  Buffer<float> max, sum, total_max, total_sum;  // (attention rows,)
  Buffer<std::int32_t> starts, limits;           // (attention rows,)
  SamplerScratch sampler;
};

// With experts: num_chosen = num_tokens * num_experts_per_token rows, expert after expert, token after token.
struct ExpertSpace {
  Buffer<float> scores;              // (num_tokens, experts)
  Buffer<std::int32_t> chosen;       // (num_tokens, num_experts_per_token) ascending
  Buffer<float> weights;             // (num_tokens, num_experts_per_token)
  Buffer<std::int64_t> chosen_rows;  // (num_tokens, num_experts_per_token) of the three below
  Buffer<std::int64_t> tokens;       // (num_chosen,) whose row it is
  Buffer<std::int64_t> next_rows;    // (num_experts,) scratch
  Activations input;                 // (num_chosen, hidden)
  Buffer<float> output;              // (num_chosen, hidden)
};

struct Workspace {
  Buffer<float> residual;        // (num_tokens, hidden)
  Buffer<float> qkv;             // (num_tokens, qkv)
  Buffer<float> rotation;        // (num_tokens, rotation): `compute_rotation`
  Activations normed;            // (num_tokens, hidden)
  Activations attention;         // (num_tokens, heads)
  Buffer<float> block_output;    // (num_tokens, hidden), where it is normed before it is added
  Activations inner;             // (num_tokens or num_chosen, ffn)
  Buffer<float> partial_output;  // (partials, head_dim), when attention is split
  Buffer<float> partial_max, partial_sum;
  Buffer<float> logits;  // (num_logit_rows, logits)
  ExpertSpace experts;
  std::vector<WorkerScratch> workers;
};

}  // namespace headway
