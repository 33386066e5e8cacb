#include "row_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace headway {
namespace {

constexpr int kBlock = 32;  // values of a file's block, and of a group of codes

// Magnitudes compare like integers, which the compiler can do side by side; infinities and NaN exceed all others.
float greatest_magnitude(const float* values, std::int64_t count) {
  std::int32_t greatest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff;
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  return std::bit_cast<float>(greatest);
}

// A half not below `value` >= 0: the largest weight of a group must not exceed the format's range.
std::uint16_t half_at_least(float value) {
  const std::uint16_t half = float_to_half(value);
  return static_cast<std::uint16_t>(half + (half_to_float(half) < value ? 1 : 0));
}

std::uint16_t half_at_most(float value) {
  const std::uint16_t half = float_to_half(value);
  if (half_to_float(half) <= value) return half;
  if (half == 0) return 0x8001;  // the next below zero
  return static_cast<std::uint16_t>((half & 0x8000U) != 0 ? half + 1 : half - 1);
}

// A power of two: scales become halves relative to their row's greatest, which then lies in [1, 2).
float power_below(float value) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x7f800000U); }

// A bound this small would make 1 / scale overflow: such a row counts as zero.
bool is_live(float bound) { return bound > 1e-30F && bound < kWeightLimit; }

void clear(RowCodes& out) {
  std::ranges::fill(out.scratch.codes, std::uint8_t{0});
  std::ranges::fill(out.scratch.scales, std::uint16_t{0});
  std::ranges::fill(out.scratch.minima, std::uint16_t{0});
  out.factor = 0.0F;
}

// ---- from floats ----

// Adding 1.5 * 2^23 rounds to an integer, which then lies in the low bits.
std::uint32_t rounded_bits(float value) { return std::bit_cast<std::uint32_t>(value + 0x1.8p23F); }

void quantize_int8(const PackedMatrix& matrix, const float* row, float bound, RowCodes& out) {
  const int group = matrix.pack.group_size;
  out.factor = power_below(bound / 127.0F);
  for (std::int64_t g = 0, begin = 0; begin < matrix.padded_k(); begin += group, ++g) {
    const std::uint16_t scale = half_at_least(greatest_magnitude(row + begin, group) / 127.0F / out.factor);
    const float inverse = scale == 0 ? 0.0F : 1.0F / (half_to_float(scale) * out.factor);
    out.scratch.scales[static_cast<std::size_t>(g)] = scale;
    std::uint8_t* codes = out.scratch.codes.data() + begin;
    for (int i = 0; i < group; ++i) codes[i] = static_cast<std::uint8_t>(rounded_bits(row[begin + i] * inverse));
  }
}

// Minimum and scale so that codes 0 .. 15 span the group.
void quantize_int4(const PackedMatrix& matrix, const float* row, float bound, RowCodes& out) {
  out.factor = power_below(bound);
  for (std::int64_t g = 0, begin = 0; begin < matrix.padded_k(); begin += kBlock, ++g) {
    const auto [least, greatest] = std::minmax_element(row + begin, row + begin + kBlock);
    const std::uint16_t minimum = half_at_most(*least / out.factor);
    const float base = half_to_float(minimum) * out.factor;
    const std::uint16_t scale = half_at_least((*greatest - base) / 15.0F / out.factor);
    const float inverse = scale == 0 ? 0.0F : 1.0F / (half_to_float(scale) * out.factor);
    out.scratch.scales[static_cast<std::size_t>(g)] = scale;
    out.scratch.minima[static_cast<std::size_t>(g)] = minimum;
    std::uint8_t* codes = out.scratch.codes.data() + begin;
    for (int i = 0; i < kBlock; ++i) {
      const float code = std::min(std::max((row[begin + i] - base) * inverse, 0.0F), 15.0F);
      codes[i] = static_cast<std::uint8_t>(rounded_bits(code));
    }
  }
}

// The nearest of 16 ascending levels, the outermost of which are -127 and 127.
void quantize_levels(const PackedMatrix& matrix, const float* row, float bound, RowCodes& out) {
  out.factor = power_below(bound / 127.0F);
  float middles[15];
  for (int i = 0; i < 15; ++i) middles[i] = 0.5F * static_cast<float>(matrix.levels[i] + matrix.levels[i + 1]);
  for (std::int64_t g = 0, begin = 0; begin < matrix.padded_k(); begin += kBlock, ++g) {
    const std::uint16_t scale = float_to_half(greatest_magnitude(row + begin, kBlock) / 127.0F / out.factor);
    const float inverse = scale == 0 ? 0.0F : 1.0F / (half_to_float(scale) * out.factor);
    out.scratch.scales[static_cast<std::size_t>(g)] = scale;
    std::uint8_t* codes = out.scratch.codes.data() + begin;
    for (int i = 0; i < kBlock; ++i) {
      const float value = row[begin + i] * inverse;
      std::uint8_t code = 0;
      for (const float middle : middles) code = static_cast<std::uint8_t>(code + (value > middle ? 1 : 0));
      codes[i] = code;
    }
  }
}

bool encode_floats(const PackedMatrix& matrix, TensorType type, const std::uint8_t* source, RowCodes& out) {
  std::vector<float>& values = out.scratch.values;
  values.assign(static_cast<std::size_t>(matrix.padded_k()), 0.0F);
  dequantize_row(type, source, matrix.columns, values.data());
  const float bound = greatest_magnitude(values.data(), matrix.columns);
  if (!is_live(bound)) {
    clear(out);
    return bound < kWeightLimit;
  }
  switch (matrix.format) {
    case TileFormat::kInt8: quantize_int8(matrix, values.data(), bound, out); break;
    case TileFormat::kInt4Min: quantize_int4(matrix, values.data(), bound, out); break;
    default: quantize_levels(matrix, values.data(), bound, out); break;
  }
  return true;
}

// ---- as the file has it ----

std::uint16_t read_bits(const std::uint8_t* source) {
  std::uint16_t bits;
  std::memcpy(&bits, source, sizeof bits);
  return bits;
}

// Whether a block with these halves holds sound weights: a finite half is at most 65504, a code at most 128.
bool are_finite(std::uint16_t scale, std::uint16_t minimum = 0) {
  return (scale & 0x7c00U) != 0x7c00U && (minimum & 0x7c00U) != 0x7c00U;
}

// Q4_0, IQ4_NL: a half and nibbles; Q4_1: another half between them.
bool copy_codes(const PackedMatrix& matrix, const std::uint8_t* source, bool has_minima, RowCodes& out) {
  const int block_bytes = has_minima ? 20 : 18;
  bool sound = true;
  for (std::int64_t g = 0; g < matrix.columns / kBlock; ++g, source += block_bytes) {
    const auto index = static_cast<std::size_t>(g);
    out.scratch.scales[index] = read_bits(source);
    out.scratch.minima[index] = has_minima ? read_bits(source + 2) : 0;
    sound = sound && are_finite(out.scratch.scales[index], out.scratch.minima[index]);
    unpack_nibbles(source + block_bytes - kBlock / 2, out.scratch.codes.data() + g * kBlock);
  }
  out.factor = 1.0F;
  return sound;
}

// False if a code is -128, which is no integer of ours.
bool copy_q8_0(const PackedMatrix& matrix, const std::uint8_t* source, RowCodes& out, bool& sound) {
  bool fits = true;
  for (std::int64_t g = 0; g < matrix.columns / kBlock; ++g, source += 2 + kBlock) {
    out.scratch.scales[static_cast<std::size_t>(g)] = read_bits(source);
    sound = sound && are_finite(read_bits(source));
    std::uint8_t* codes = out.scratch.codes.data() + g * kBlock;
    std::memcpy(codes, source + 2, kBlock);
    for (int i = 0; i < kBlock; ++i) fits = fits && codes[i] != 0x80;
  }
  out.factor = 1.0F;
  return fits;
}

// Codes as they are. A scale, the product of a half and an integer of six bits, is rounded to a half: within 2^-11 of it,
// where a step between codes is 1/15 of the group's span.
bool copy_q4_k(const PackedMatrix& matrix, const std::uint8_t* source, RowCodes& out) {
  const std::int64_t num_blocks = matrix.columns / 256;
  std::vector<float>& values = out.scratch.values;
  values.resize(static_cast<std::size_t>(num_blocks * 16));
  for (std::int64_t block = 0; block < num_blocks; ++block) {
    float *scales = values.data() + block * 16, *minima = scales + 8;
    q4_k_scales(source + block * 144, scales, minima);
    const std::uint8_t* nibbles = source + block * 144 + 16;
    std::uint8_t* codes = out.scratch.codes.data() + block * 256;
    for (int pair = 0; pair < 4; ++pair, nibbles += 32, codes += 64) {
      for (int j = 0; j < 32; ++j) {
        codes[j] = nibbles[j] & 15;
        codes[j + 32] = static_cast<std::uint8_t>(nibbles[j] >> 4);
      }
    }
  }
  const float bound = greatest_magnitude(values.data(), num_blocks * 16);
  if (!is_live(bound)) {
    clear(out);
    return bound < kWeightLimit;
  }
  out.factor = power_below(bound);
  for (std::int64_t g = 0; g < num_blocks * 8; ++g) {
    const float* scales = values.data() + g / 8 * 16;
    out.scratch.scales[static_cast<std::size_t>(g)] = float_to_half(scales[g % 8] / out.factor);
    out.scratch.minima[static_cast<std::size_t>(g)] = float_to_half(-scales[8 + g % 8] / out.factor);
  }
  return true;
}

}  // namespace

bool are_sound(const float* values, std::int64_t count) { return greatest_magnitude(values, count) < kWeightLimit; }

bool encode_row(const PackedMatrix& matrix, TensorType type, const std::uint8_t* source, RowCodes& out) {
  const auto num_groups = static_cast<std::size_t>(matrix.padded_k() / matrix.pack.group_size);
  out.scratch.codes.resize(static_cast<std::size_t>(matrix.padded_k()));
  out.scratch.scales.resize(num_groups);
  out.scratch.minima.resize(num_groups);
  bool sound = true;
  if (type == TensorType::kQ8_0 && matrix.format == TileFormat::kInt8 && matrix.pack.group_size == kBlock) {
    if (copy_q8_0(matrix, source, out, sound)) return sound;
  } else if (type == TensorType::kQ4_0 && matrix.format == TileFormat::kInt4) {
    return copy_codes(matrix, source, false, out);
  } else if (type == TensorType::kIQ4_NL && matrix.levels == iq4_nl_levels()) {
    return copy_codes(matrix, source, false, out);
  } else if (type == TensorType::kQ4_1 && matrix.format == TileFormat::kInt4Min) {
    return copy_codes(matrix, source, true, out);
  } else if (type == TensorType::kQ4_K && matrix.format == TileFormat::kInt4Min) {
    return copy_q4_k(matrix, source, out);
  }
  return encode_floats(matrix, type, source, out);
}

}  // namespace headway
