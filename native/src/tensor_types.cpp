#include "tensor_types.h"

#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

namespace headway {
namespace {

constexpr std::int64_t kBlock = 32;  // values of a Q8_0, Q4_0 or Q4_1 block

template <class T>
T read(const std::uint8_t* source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (magnitude << 13));  // infinity, NaN
  if (magnitude >= 0x0400U) return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
  return sign != 0 ? -subnormal : subnormal;
}

}  // namespace

std::int64_t row_bytes(TensorType type, std::int64_t columns) {
  const auto blocks = [columns](std::int64_t block_bytes) {
    if (columns % kBlock != 0)
      throw std::invalid_argument("A row of " + std::to_string(columns) + " values does not fill blocks of 32.");
    return columns / kBlock * block_bytes;
  };
  switch (type) {
    case TensorType::kF32: return columns * 4;
    case TensorType::kF16:
    case TensorType::kBF16: return columns * 2;
    case TensorType::kQ8_0: return blocks(34);
    case TensorType::kQ4_0: return blocks(18);
    case TensorType::kQ4_1: return blocks(20);
  }
  throw std::invalid_argument("Tensor type " + std::to_string(static_cast<int>(type)) + " is not supported.");
}

void dequantize_row(TensorType type, const std::uint8_t* source, std::int64_t columns, float* target) {
  switch (type) {
    case TensorType::kF32: std::memcpy(target, source, static_cast<std::size_t>(columns) * 4); return;
    case TensorType::kF16:
      for (std::int64_t i = 0; i < columns; ++i) target[i] = half_to_float(read<std::uint16_t>(source + 2 * i));
      return;
    case TensorType::kBF16:
      for (std::int64_t i = 0; i < columns; ++i) target[i] = bf16_to_float(read<std::uint16_t>(source + 2 * i));
      return;
    case TensorType::kQ8_0:
      for (std::int64_t i = 0; i < columns; i += kBlock, source += 34) {
        const float scale = half_to_float(read<std::uint16_t>(source));
        for (int j = 0; j < kBlock; ++j)
          target[i + j] = scale * static_cast<float>(static_cast<std::int8_t>(source[2 + j]));
      }
      return;
    case TensorType::kQ4_0:
      for (std::int64_t i = 0; i < columns; i += kBlock, source += 18) {
        const float scale = half_to_float(read<std::uint16_t>(source));
        for (int j = 0; j < kBlock / 2; ++j) {
          target[i + j] = scale * static_cast<float>((source[2 + j] & 15) - 8);
          target[i + j + kBlock / 2] = scale * static_cast<float>((source[2 + j] >> 4) - 8);
        }
      }
      return;
    case TensorType::kQ4_1:
      for (std::int64_t i = 0; i < columns; i += kBlock, source += 20) {
        const float scale = half_to_float(read<std::uint16_t>(source));
        const float minimum = half_to_float(read<std::uint16_t>(source + 2));
        for (int j = 0; j < kBlock / 2; ++j) {
          target[i + j] = scale * static_cast<float>(source[4 + j] & 15) + minimum;
          target[i + j + kBlock / 2] = scale * static_cast<float>(source[4 + j] >> 4) + minimum;
        }
      }
      return;
  }
}

std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

}  // namespace headway
