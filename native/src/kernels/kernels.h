// The seam between the forward pass and the instruction sets: a table of plain functions, one table per instruction
// set.
//
// The functions know no model, no threads and no allocation. Each gives every row the same bits whatever the number of
// rows in the call: a row's sums run over ascending groups (columns, positions) in lanes that never see another row.
#pragma once

#include <cstdint>

namespace headway {

// Part of the system fingerprint: raise it with every change that changes a bit of any result.
inline constexpr int kNumericsVersion = 1;

inline constexpr int kTileColumns = 32;  // output columns of a packed tile: two AVX-512 registers
inline constexpr int kRowAlign = 64;     // rows of activations are padded with zeros to a multiple: the largest group
inline constexpr int kBlockTokens = 16;  // positions of a KV block: one AVX-512 register of scores
inline constexpr int kSpanTokens = 256;  // positions of one attention partial
inline constexpr int kSpanBlocks = kSpanTokens / kBlockTokens;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Rows of activations, ready to be multiplied. In int8 mode `quantized`, `scales` and `corrections` are set, else
// `values`.
struct ActivationRows {
  const float* values;              // (rows, stride)
  const std::int8_t* quantized;     // (rows, stride), within [-127, 127]
  const float* scales;              // (rows, scale_stride), one per group
  const std::int32_t* corrections;  // (rows, scale_stride): what the bias of packed weights adds, negated
  std::int64_t stride;
  std::int64_t scale_stride;
};

// One packed tile: `kTileColumns` output columns over all of K (README.md shows the layouts).
struct PackedTile {
  const std::uint8_t* data;
  int padded_k;    // int8: a multiple of group_size; bf16: even
  int group_size;  // 32 or 64; unused by bf16
};

// Where one row of quantised activations goes.
struct QuantizedRow {
  std::int8_t* values;
  float* scales;
  std::int32_t* corrections;
};

// Attention of some rows to one span of one KV head. Rows are in order of position: `starts` and `limits` never fall.
// A row sees positions [start, limit) of the span, at least one; what the cache holds elsewhere changes nothing.
struct AttentionSpan {
  const std::uint8_t* const* blocks;  // (kSpanBlocks,) this layer's and head's part of each block, as far as needed
  const float* queries;               // (num_rows, head_dim), already scaled: see `softcap`
  const std::int32_t* starts;         // (num_rows,)
  const std::int32_t* limits;         // (num_rows,) at most kSpanTokens
  float softcap;                      // c: a score is c tanh(query . key); 0: it is query . key. Base-2 logarithms.
  int num_rows;
  int head_dim;   // a multiple of 16
  bool int8;      // the cache's format
  float* scores;  // (num_rows, kSpanTokens) scratch
  float* max;     // (num_rows,) out: greatest score, base-2 logarithm
  float* sum;     // (num_rows,) out: sum of 2^(score - max)
  float* output;  // (num_rows, head_dim) out: sum of 2^(score - max) times value
};

struct Kernels {
  const char* name;
  int weight_bias;  // added to int8 weights when they are packed: 128 where the instruction wants unsigned bytes

  // y[row][0..31] = x[row] . tile, or += with `accumulate`.
  void (*matmul_int8)(const PackedTile& tile, const ActivationRows& x, int rows, float* y, std::int64_t y_stride,
                      bool accumulate);
  void (*matmul_bf16)(const PackedTile& tile, const ActivationRows& x, int rows, float* y, std::int64_t y_stride,
                      bool accumulate);

  // y[row][0..31] = x[row] . tile, all float32; tile: (k, 32).
  void (*matmul_f32)(const float* tile, int k, const float* x, std::int64_t x_stride, int rows, float* y,
                     std::int64_t y_stride);

  // Symmetric quantisation of `count` values, a multiple of the group: scale = max|x| / 127.
  void (*quantize)(const float* x, int count, int group_size, const QuantizedRow& out);

  // out = x / sqrt(mean(x^2) + epsilon) * weight over `size` values; all arrays padded with zeros to kRowAlign.
  void (*rms_norm)(const float* x, const float* weight, int size, float epsilon, float* out);

  // out = gate / (1 + e^-gate) * up; count is a multiple of 16.
  void (*silu_multiply)(const float* gate, const float* up, int count, float* out);

  // out = gate (1 + tanh(sqrt(2 / pi) (gate + 0.044715 gate^3))) / 2 * up (arXiv 1606.08415).
  void (*gelu_tanh_multiply)(const float* gate, const float* up, int count, float* out);

  // values = cap tanh(values / cap); count is a multiple of 16.
  void (*soften)(float* values, int count, float cap);

  void (*attention_span)(const AttentionSpan& span);

  // Add a later span's partial (output, max, sum) to a row's total, or start the total with `first`.
  void (*attention_merge)(bool first, int head_dim, const float* output, float max, float sum, float* total_output,
                          float* total_max, float* total_sum);

  // What the processor can do at most (machine_limits.h): dot products of bytes, of bfloat16 or else of floats, in registers.
  // Return the operations done.
  std::int64_t (*int8_peak)(std::int64_t rounds);
  std::int64_t (*float_peak)(std::int64_t rounds);
  void (*read_bytes)(const std::uint8_t* data, std::int64_t num_bytes);  // a multiple of 1024
};

const Kernels& portable_kernels();
#if defined(HEADWAY_X86)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512bf16_kernels();
#endif

}  // namespace headway
