#include "tensor_types.h"

#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

// Every loop below has a fixed length and no branch in it, so that the compiler vectorises it: loading a model reads
// gigabytes through them.

namespace headway {
namespace {

constexpr int kBlock = 32;        // values of a block of the types without K
constexpr int kSuperBlock = 256;  // values of a block of the K types
constexpr int kKScaleBytes = 12;  // eight 6-bit scales and eight 6-bit minima of Q4_K and Q5_K

// What the 16 codes of IQ4_NL stand for (ggml-common.h, kvalues_iq4nl).
constexpr std::int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

constexpr std::array<std::uint32_t, kBlock> kBits = [] {
  std::array<std::uint32_t, kBlock> bits{};
  for (int j = 0; j < kBlock; ++j) bits[j] = 1U << j;
  return bits;
}();

template <class T>
T read(const std::uint8_t* source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

float read_half(const std::uint8_t* source) { return half_to_float(read<std::uint16_t>(source)); }

float to_float(int value) { return static_cast<float>(value); }

// The codes of `unpack_nibbles` as integers, with a fifth bit of code j in bit j of the little-endian word before the nibbles.
void unpack_five_bits(const std::uint8_t* source, std::int32_t* codes) {
  const auto fifth = read<std::uint32_t>(source);
  const std::uint8_t* nibbles = source + 4;
  for (int j = 0; j < kBlock / 2; ++j) {
    codes[j] = (nibbles[j] & 15) | ((fifth & kBits[j]) != 0 ? 16 : 0);
    codes[j + kBlock / 2] = nibbles[j] >> 4 | ((fifth & kBits[j + kBlock / 2]) != 0 ? 16 : 0);
  }
}

void q4_0(const std::uint8_t* block, float* target) {
  const float scale = read_half(block);
  std::uint8_t codes[kBlock];
  unpack_nibbles(block + 2, codes);
  for (int j = 0; j < kBlock; ++j) target[j] = scale * to_float(codes[j] - 8);
}

void q4_1(const std::uint8_t* block, float* target) {
  const float scale = read_half(block), minimum = read_half(block + 2);
  std::uint8_t codes[kBlock];
  unpack_nibbles(block + 4, codes);
  for (int j = 0; j < kBlock; ++j) target[j] = scale * to_float(codes[j]) + minimum;
}

void q5_0(const std::uint8_t* block, float* target) {
  const float scale = read_half(block);
  std::int32_t codes[kBlock];
  unpack_five_bits(block + 2, codes);
  for (int j = 0; j < kBlock; ++j) target[j] = scale * to_float(codes[j] - 16);
}

void q5_1(const std::uint8_t* block, float* target) {
  const float scale = read_half(block), minimum = read_half(block + 2);
  std::int32_t codes[kBlock];
  unpack_five_bits(block + 4, codes);
  for (int j = 0; j < kBlock; ++j) target[j] = scale * to_float(codes[j]) + minimum;
}

void q8_0(const std::uint8_t* block, float* target) {
  const float scale = read_half(block);
  for (int j = 0; j < kBlock; ++j) target[j] = scale * to_float(static_cast<std::int8_t>(block[2 + j]));
}

void iq4_nl(const std::uint8_t* block, float* target) {
  const float scale = read_half(block);
  float products[16];  // a block has twice as many values as there are products
  for (int code = 0; code < 16; ++code) products[code] = scale * to_float(kIq4NlValues[code]);
  for (int j = 0; j < kBlock / 2; ++j) {
    target[j] = products[block[2 + j] & 15];
    target[j + kBlock / 2] = products[block[2 + j] >> 4];
  }
}

// Scale and minimum of each eighth of a Q4_K or Q5_K block, which starts with the halves that multiply them. Bytes 0-3
// hold scales 0-3 in six bits, 4-7 minima 0-3, 8-11 the low nibbles of scale and minimum 4-7, whose upper two bits are
// those of bytes 0-7.
struct KScales {
  float scales[8];
  float minima[8];
};

KScales k_scales(const std::uint8_t* block) {
  const float scale = read_half(block), minimum = read_half(block + 2);
  const std::uint8_t* packed = block + 4;
  KScales result;
  for (int j = 0; j < 4; ++j) {
    result.scales[j] = scale * to_float(packed[j] & 63);
    result.minima[j] = minimum * to_float(packed[j + 4] & 63);
    result.scales[j + 4] = scale * to_float((packed[j + 8] & 15) | (packed[j] >> 6 << 4));
    result.minima[j + 4] = minimum * to_float((packed[j + 8] >> 4) | (packed[j + 4] >> 6 << 4));
  }
  return result;
}

void q4_k(const std::uint8_t* block, float* target) {
  const KScales k = k_scales(block);
  const std::uint8_t* nibbles = block + 4 + kKScaleBytes;
  for (int part = 0; part < 8; part += 2, nibbles += 32, target += 64) {
    for (int j = 0; j < 32; ++j) target[j] = k.scales[part] * to_float(nibbles[j] & 15) - k.minima[part];
    for (int j = 0; j < 32; ++j)
      target[j + 32] = k.scales[part + 1] * to_float(nibbles[j] >> 4) - k.minima[part + 1];
  }
}

void q5_k(const std::uint8_t* block, float* target) {
  const KScales k = k_scales(block);
  const std::uint8_t* fifth = block + 4 + kKScaleBytes;  // bit `part` of byte j belongs to value j of that part
  const std::uint8_t* nibbles = fifth + 32;
  for (int part = 0; part < 8; part += 2, nibbles += 32, target += 64) {
    for (int j = 0; j < 32; ++j) {
      const int code = (nibbles[j] & 15) | (fifth[j] >> part & 1) << 4;
      target[j] = k.scales[part] * to_float(code) - k.minima[part];
    }
    for (int j = 0; j < 32; ++j) {
      const int code = nibbles[j] >> 4 | (fifth[j] >> (part + 1) & 1) << 4;
      target[j + 32] = k.scales[part + 1] * to_float(code) - k.minima[part + 1];
    }
  }
}

// One scale per 16 values. In each half of 128 values, byte j of 32 upper bit pairs holds those of values j, j + 32,
// j + 64 and j + 96; of the 64 bytes of nibbles, the first two of these values lie low, the last two high.
void q6_k(const std::uint8_t* block, float* target) {
  const std::uint8_t* nibbles = block;
  const std::uint8_t* pairs = block + 128;
  const std::uint8_t* factors = block + 192;  // signed bytes
  const float scale = read_half(block + 208);
  for (int half = 0; half < 2; ++half, nibbles += 64, pairs += 32, factors += 8, target += 128) {
    for (int part = 0; part < 4; ++part) {
      const std::uint8_t* low = nibbles + part % 2 * 32;
      const int nibble_shift = part / 2 * 4, pair_shift = part * 2;
      for (int side = 0; side < 32; side += 16) {
        const float factor = scale * to_float(static_cast<std::int8_t>(factors[part * 2 + side / 16]));
        for (int j = side; j < side + 16; ++j) {
          const int code = (low[j] >> nibble_shift & 15) | (pairs[j] >> pair_shift & 3) << 4;
          target[part * 32 + j] = factor * to_float(code - 32);
        }
      }
    }
  }
}

struct BlockFormat {
  int values;  // of a block
  int bytes;
  void (*dequantize)(const std::uint8_t* source, std::int64_t columns, float* target);
};

template <int Values, int Bytes, void (*Dequantize)(const std::uint8_t*, float*)>
constexpr BlockFormat format_of() {
  return {Values, Bytes, [](const std::uint8_t* source, std::int64_t columns, float* target) {
            for (std::int64_t i = 0; i < columns; i += Values, source += Bytes) Dequantize(source, target + i);
          }};
}

BlockFormat block_format(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0: return format_of<kBlock, 18, q4_0>();
    case TensorType::kQ4_1: return format_of<kBlock, 20, q4_1>();
    case TensorType::kQ5_0: return format_of<kBlock, 22, q5_0>();
    case TensorType::kQ5_1: return format_of<kBlock, 24, q5_1>();
    case TensorType::kQ8_0: return format_of<kBlock, 34, q8_0>();
    case TensorType::kIQ4_NL: return format_of<kBlock, 18, iq4_nl>();
    case TensorType::kQ4_K: return format_of<kSuperBlock, 144, q4_k>();
    case TensorType::kQ5_K: return format_of<kSuperBlock, 176, q5_k>();
    case TensorType::kQ6_K: return format_of<kSuperBlock, 210, q6_k>();
    default: throw std::invalid_argument("Tensor type " + std::to_string(static_cast<int>(type)) + " is not supported.");
  }
}

}  // namespace

// Free of branches, and of subnormal floats, which a thread may be set to flush to zero.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  const std::uint32_t exponent_shift = magnitude >= 0x7c00U ? 224U << 23 : 112U << 23;  // infinity and NaN go to 255
  const std::uint32_t normal = (magnitude << 13) + exponent_shift;
  const auto subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F);
  const std::uint32_t is_subnormal = 0U - static_cast<std::uint32_t>(magnitude < 0x0400U);
  return std::bit_cast<float>(sign | (subnormal & is_subnormal) | (normal & ~is_subnormal));
}

// Below 2^-14 halves are multiples of 2^-24, the last bit of 0.5: adding that rounds to them.
std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & 0x80000000U) >> 16, magnitude = bits & 0x7fffffffU;
  if (magnitude < 113U << 23) {  // 2^-14
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F)));
  }
  const std::uint32_t rounded = magnitude - (112U << 23) + 0x0fffU + (magnitude >> 13 & 1U);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

void unpack_nibbles(const std::uint8_t* nibbles, std::uint8_t* codes) {
  for (int j = 0; j < kBlock / 2; ++j) {
    codes[j] = nibbles[j] & 15;
    codes[j + kBlock / 2] = static_cast<std::uint8_t>(nibbles[j] >> 4);
  }
}

const std::int8_t* iq4_nl_levels() { return kIq4NlValues; }

void q4_k_scales(const std::uint8_t* block, float* scales, float* minima) {
  const KScales k = k_scales(block);
  std::memcpy(scales, k.scales, sizeof k.scales);
  std::memcpy(minima, k.minima, sizeof k.minima);
}

std::int64_t row_bytes(TensorType type, std::int64_t columns) {
  if (type == TensorType::kF32) return columns * 4;
  if (type == TensorType::kF16 || type == TensorType::kBF16) return columns * 2;
  const BlockFormat format = block_format(type);
  if (columns % format.values != 0)
    throw std::invalid_argument("A row of " + std::to_string(columns) + " values does not fill blocks of " +
                                std::to_string(format.values) + ".");
  return columns / format.values * format.bytes;
}

void dequantize_row(TensorType type, const std::uint8_t* source, std::int64_t columns, float* target) {
  if (type == TensorType::kF32) {
    std::memcpy(target, source, static_cast<std::size_t>(columns) * 4);
  } else if (type == TensorType::kF16) {
    for (std::int64_t i = 0; i < columns; ++i) target[i] = read_half(source + 2 * i);
  } else if (type == TensorType::kBF16) {
    for (std::int64_t i = 0; i < columns; ++i) target[i] = bf16_to_float(read<std::uint16_t>(source + 2 * i));
  } else {
    block_format(type).dequantize(source, columns, target);
  }
}

std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

}  // namespace headway
