// Storage types of a model file, row by row to float. Formats: ggml's documentation of its block types.
#pragma once

#include <cstdint>

namespace headway {

// Numbered as `headway.core.plan.TensorType`.
enum class TensorType : std::int32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kBF16 = 30,
};

// Bytes of a row of `columns` values. Throws std::invalid_argument for an unknown type or a row of broken blocks.
std::int64_t row_bytes(TensorType type, std::int64_t columns);

// Writes `columns` floats, each the float32 that ggml's own conversion of the type yields. `source` may be misaligned.
void dequantize_row(TensorType type, const std::uint8_t* source, std::int64_t columns, float* target);

// To the nearest, ties to even; NaN stays NaN.
std::uint16_t float_to_bf16(float value);
float bf16_to_float(std::uint16_t bits);

// IEEE binary16, to the nearest, ties to even; for numbers below 65520 in magnitude.
std::uint16_t float_to_half(float value);
float half_to_float(std::uint16_t half);

// The 32 codes of a block of 4 bits, the first half of them in low nibbles.
void unpack_nibbles(const std::uint8_t* nibbles, std::uint8_t* codes);

// What the codes of kIQ4_NL stand for, (16,).
const std::int8_t* iq4_nl_levels();

// The 8 scales and 8 minima of a block of kQ4_K: weight = scale * code - minimum.
void q4_k_scales(const std::uint8_t* block, float* scales, float* minima);

}  // namespace headway
