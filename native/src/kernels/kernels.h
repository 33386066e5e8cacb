// The seam between the forward pass and the instruction sets: a table of plain functions, one table per instruction
// set.
//
// The functions know no model, no threads and no allocation. Each gives every row the same bits whatever the number of
// rows in the call: a row's sums run over ascending groups (columns, positions) in lanes that never see another row.
#pragma once

#include <cstdint>

namespace headway {

// Part of the system fingerprint: raise it with every change that changes a bit of any result.
inline constexpr int kNumericsVersion = 2;

inline constexpr int kTileColumns = 32;  // output columns of a packed tile: two AVX-512 registers
inline constexpr int kRowAlign = 128;    // rows of activations are padded with zeros to a multiple: the largest group
inline constexpr int kPartTokens = 16;   // positions of a part of a KV block: one AVX-512 register of scores
inline constexpr int kSpanTokens = 256;  // positions of one attention partial
inline constexpr int kSpanParts = kSpanTokens / kPartTokens;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// How a packed tile holds its weights (README.md shows the layouts).
enum class TileFormat : std::uint8_t {
  kBF16,
  kInt8,      // integers within [-127, 127] and a scale per group
  kInt4,      // codes 0 .. 15, which stand for code - 8, and a scale per group of 32
  kInt4Min,   // codes 0 .. 15, a scale and a minimum per group of 32
  kLevels4,   // codes of 16 levels, integers within [-127, 127], and a scale per group of 32
};

constexpr bool is_integer(TileFormat format) { return format != TileFormat::kBF16; }

// Rows of activations, ready to be multiplied. With integer weights all but `values` and `halves` are set; with bf16
// weights `values`, or `halves`, which are null else.
struct ActivationRows {
  const float* values;            // (rows, stride)
  const std::uint16_t* halves;    // (rows, stride) bfloat16
  const std::int8_t* quantized;   // (rows, stride), within [-127, 127]
  const float* scales;            // (rows, scale_stride), one per group
  const std::int32_t* sums;       // (rows, scale_stride): of a group's integers
  const float* scaled_sums;       // (rows, scale_stride): scale times sum, which a minimum is multiplied with
  std::int64_t stride;
  std::int64_t scale_stride;
};

// One packed tile: `kTileColumns` output columns over all of K.
struct PackedTile {
  const std::uint8_t* data;
  TileFormat format;
  int padded_k;    // with integers a multiple of group_size, else even
  int group_size;  // 32, 64 or 128; 32 with codes; unused by bf16
  const std::int8_t* levels;  // (16,) what kLevels4's codes stand for
  const std::uint8_t* next;   // null, or the tile that this thread will likely read next, fetched as if it were of the
                              // same format: a hint, which changes no bit
};

// Where one row of quantised activations goes.
struct QuantizedRow {
  std::int8_t* values;
  float* scales;
  std::int32_t* sums;
  float* scaled_sums;
};

// Attention of some rows to one span of one KV head. Rows are in order of position: `starts` and `limits` never fall.
// A row sees positions [start, limit) of the span, at least one; what the cache holds elsewhere changes nothing.
struct AttentionSpan {
  const std::uint8_t* const* parts;  // (kSpanParts,) of one layer and KV head, as far as needed
  const float* queries;              // (num_rows, head_dim) from `attention_query`
  const float* query_scales;         // (num_rows,), too
  const std::int32_t* starts;        // (num_rows,)
  const std::int32_t* limits;        // (num_rows,) at most kSpanTokens
  float softcap;                     // c: a score is c tanh(query . key); 0: it is query . key. Base-2 logarithms.
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
  void (*matmul)(const PackedTile& tile, const ActivationRows& x, int rows, float* y, std::int64_t y_stride,
                 bool accumulate);

  // y[row][0..31] = x[row] . tile, all float32; tile: (k, 32).
  void (*matmul_f32)(const float* tile, int k, const float* x, std::int64_t x_stride, int rows, float* y,
                     std::int64_t y_stride);

  // Symmetric quantisation of `count` values, a multiple of the group: scale = max|x| / 127.
  void (*quantize)(const float* x, int count, int group_size, const QuantizedRow& out);

  // To bfloat16, to the nearest, ties to even; `count` is a multiple of 32. Null without dot products of bfloat16.
  void (*round_to_halves)(const float* x, int count, std::uint16_t* out);

  // out = x / sqrt(mean(x^2) + epsilon) * weight over `size` values; all arrays padded with zeros to kRowAlign.
  void (*rms_norm)(const float* x, const float* weight, int size, float epsilon, float* out);

  // out = gate / (1 + e^-gate) * up; count is a multiple of 16.
  void (*silu_multiply)(const float* gate, const float* up, int count, float* out);

  // out = gate (1 + tanh(sqrt(2 / pi) (gate + 0.044715 gate^3))) / 2 * up (arXiv 1606.08415).
  void (*gelu_tanh_multiply)(const float* gate, const float* up, int count, float* out);

  // values = cap tanh(values / cap); count is a multiple of 16.
  void (*soften)(float* values, int count, float cap);

  // Brings a query (head_dim,), already scaled (see `AttentionSpan::softcap`), into the form that `attention_span` takes:
  // packed: (head_dim,). Returns its scale.
  float (*attention_query)(const float* query, int head_dim, bool int8, float* packed);
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
