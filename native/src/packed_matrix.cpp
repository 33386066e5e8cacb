#include "packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace headway {
namespace {

// bfloat16 not below `value`: the largest weight of a group must not exceed 127 scales.
std::uint16_t bf16_at_least(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0xffffU) >> 16);
}

// Magnitudes compare like integers, which the compiler can do side by side; infinities and NaN exceed all others.
float greatest_magnitude(const float* values, std::int64_t count) {
  std::int32_t greatest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff;
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  return std::bit_cast<float>(greatest);
}

bool pack_row_int8(const PackedMatrix& matrix, const float* row, std::uint8_t* tile, int lane) {
  const int group = matrix.format.group_size;
  const std::int64_t record_bytes = kTileColumns * (2 + group);
  const std::int64_t padded = matrix.padded_k();
  bool sound = true;
  for (std::int64_t begin = 0; begin < padded; begin += group, tile += record_bytes) {
    const float bound = greatest_magnitude(row + begin, group);
    sound = sound && bound < kWeightLimit;
    // A bound this small would make 1 / scale overflow: such a group counts as zero.
    const bool live = bound > 1e-30F && bound < kWeightLimit;
    const std::uint16_t scale = live ? bf16_at_least(bound / 127.0F) : 0;
    const float inverse = live ? 1.0F / bf16_to_float(scale) : 0.0F;
    std::memcpy(tile + lane * 2, &scale, 2);
    std::uint8_t* weights = tile + kTileColumns * 2 + lane * 4;
    std::uint8_t packed[64] = {};
    for (int i = 0; live && i < group; ++i)  // adding 1.5 * 2^23 rounds to an integer, which then lies in the low bits
      packed[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(row[begin + i] * inverse + 0x1.8p23F));
    for (int i = 0; i < group; ++i) packed[i] = static_cast<std::uint8_t>(packed[i] + matrix.format.weight_bias);
    for (int i = 0; i < group; i += 4) std::memcpy(weights + i * kTileColumns, packed + i, 4);
  }
  return sound;
}

bool pack_row_bf16(const PackedMatrix& matrix, const float* row, std::uint8_t* tile, int lane) {
  const std::int64_t padded = matrix.padded_k();
  for (std::int64_t k = 0; k < padded; k += 2) {
    const std::uint16_t pair[2] = {float_to_bf16(row[k]), float_to_bf16(row[k + 1])};
    std::memcpy(tile + k * kTileColumns * 2 + lane * 4, pair, 4);
  }
  return are_sound(row, padded);
}

}  // namespace

bool are_sound(const float* values, std::int64_t count) { return greatest_magnitude(values, count) < kWeightLimit; }

std::int64_t PackedMatrix::padded_k() const {
  return round_up(columns, format.weights == WeightFormat::kInt8 ? format.group_size : 2);
}

std::int64_t PackedMatrix::tile_bytes() const {
  if (format.weights == WeightFormat::kBF16) return padded_k() * kTileColumns * 2;
  return padded_k() / format.group_size * kTileColumns * (2 + format.group_size);
}

PackedTile PackedMatrix::tile(std::int64_t index) const {
  return {data + index * tile_bytes(), static_cast<int>(padded_k()), format.group_size};
}

bool pack_tile(const PackedMatrix& matrix, std::int64_t tile, TensorType type, const std::uint8_t* source,
               std::vector<float>& row_buffer) {
  const std::int64_t source_bytes = row_bytes(type, matrix.columns);
  row_buffer.assign(static_cast<std::size_t>(matrix.padded_k()), 0.0F);
  std::uint8_t* target = matrix.data + tile * matrix.tile_bytes();
  bool sound = true;
  for (int lane = 0; lane < kTileColumns; ++lane) {
    const std::int64_t row = tile * kTileColumns + lane;
    if (row < matrix.rows) {
      dequantize_row(type, source + lane * source_bytes, matrix.columns, row_buffer.data());
    } else if (row == matrix.rows) {  // the padding of the last tile
      std::fill(row_buffer.begin(), row_buffer.end(), 0.0F);
    }
    if (matrix.format.weights == WeightFormat::kInt8) {
      sound = pack_row_int8(matrix, row_buffer.data(), target, lane) && sound;
    } else {
      sound = pack_row_bf16(matrix, row_buffer.data(), target, lane) && sound;
    }
  }
  return sound;
}

void unpack_row(const PackedMatrix& matrix, std::int64_t row, float* target) {
  const std::uint8_t* tile = matrix.data + row / kTileColumns * matrix.tile_bytes();
  const auto lane = row % kTileColumns;
  if (matrix.format.weights == WeightFormat::kBF16) {
    for (std::int64_t k = 0; k < matrix.columns; ++k) {
      std::uint16_t bits;
      std::memcpy(&bits, tile + k / 2 * kTileColumns * 4 + lane * 4 + k % 2 * 2, 2);
      target[k] = bf16_to_float(bits);
    }
    return;
  }
  const int group = matrix.format.group_size;
  for (std::int64_t begin = 0; begin < matrix.columns; begin += group, tile += kTileColumns * (2 + group)) {
    std::uint16_t bits;
    std::memcpy(&bits, tile + lane * 2, 2);
    const float scale = bf16_to_float(bits);
    const std::uint8_t* weights = tile + kTileColumns * 2 + lane * 4;
    const std::int64_t count = std::min<std::int64_t>(group, matrix.columns - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto weight =
          static_cast<std::int8_t>(weights[i / 4 * 4 * kTileColumns + i % 4] - matrix.format.weight_bias);
      target[begin + i] = scale * static_cast<float>(weight);
    }
  }
}

}  // namespace headway
