#include "packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "row_codes.h"

namespace headway {
namespace {

// The quantiles of a normal distribution between -1 and 1 (arXiv 2305.14314, appendix E) in steps of 1/127.
constexpr std::int8_t kNF4Levels[16] = {-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127};

int bits_of(TileFormat format) { return format == TileFormat::kInt8 ? 8 : 4; }

// Where integer `k` of `lane` lies in a tile's record, and in which nibble.
struct Place {
  std::int64_t byte;
  int shift;
};

Place place_of(TileFormat format, int k, std::int64_t lane) {
  if (format == TileFormat::kInt8) return {std::int64_t{k / 4} * kTileColumns * 4 + lane * 4 + k % 4, 0};
  return {std::int64_t{k / 8} * kTileColumns * 4 + lane * 4 + k % 4, k % 8 / 4 * 4};
}

std::int64_t header_bytes(TileFormat format) { return kTileColumns * (format == TileFormat::kInt4Min ? 4 : 2); }

void place_integers(const PackedMatrix& matrix, const RowCodes& row, std::uint8_t* tile, std::int64_t lane) {
  const int group = matrix.pack.group_size;
  std::memcpy(tile + lane * 4, &row.factor, sizeof row.factor);
  std::uint8_t* record = tile + kTileColumns * sizeof(float);
  const std::uint8_t* codes = row.scratch.codes.data();
  for (std::size_t g = 0; g < row.scratch.scales.size(); ++g, record += matrix.record_bytes(), codes += group) {
    std::memcpy(record + lane * 2, &row.scratch.scales[g], 2);
    if (matrix.format == TileFormat::kInt4Min)
      std::memcpy(record + kTileColumns * 2 + lane * 2, &row.scratch.minima[g], 2);
    std::uint8_t* target = record + header_bytes(matrix.format) + lane * 4;
    if (matrix.format == TileFormat::kInt8) {
      std::uint8_t packed[kRowAlign];
      for (int i = 0; i < group; ++i) packed[i] = static_cast<std::uint8_t>(codes[i] + matrix.pack.weight_bias);
      for (int i = 0; i < group; i += 4) std::memcpy(target + i * kTileColumns, packed + i, 4);
      continue;
    }
    for (int i = 0; i < group; i += 8, target += kTileColumns * 4)
      for (int j = 0; j < 4; ++j) target[j] = static_cast<std::uint8_t>(codes[i + j] | codes[i + 4 + j] << 4);
  }
}

bool pack_row_bf16(const PackedMatrix& matrix, TensorType type, const std::uint8_t* source, std::vector<float>& values,
                   std::uint8_t* tile, std::int64_t lane) {
  const std::int64_t padded = matrix.padded_k();
  values.assign(static_cast<std::size_t>(padded), 0.0F);
  if (source != nullptr) dequantize_row(type, source, matrix.columns, values.data());
  for (std::int64_t k = 0; k < padded; k += 2) {
    const std::uint16_t pair[2] = {float_to_bf16(values[static_cast<std::size_t>(k)]),
                                   float_to_bf16(values[static_cast<std::size_t>(k) + 1])};
    std::memcpy(tile + k * kTileColumns * 2 + lane * 4, pair, 4);
  }
  return are_sound(values.data(), padded);
}

}  // namespace

PackFormat checked_format(std::string_view weights, int group_size, int weight_bias) {
  const auto format = [weights] {
    if (weights == "bf16") return WeightFormat::kBF16;
    if (weights == "int8") return WeightFormat::kInt8;
    if (weights == "int4") return WeightFormat::kInt4;
    if (weights == "nf4") return WeightFormat::kNF4;
    if (weights == "auto") return WeightFormat::kAuto;
    throw std::invalid_argument("weights must be \"auto\", \"bf16\", \"int8\", \"int4\" or \"nf4\".");
  }();
  if (group_size != 32 && group_size != 64 && group_size != 128)
    throw std::invalid_argument("group_size must be 32, 64 or 128.");
  if (format != WeightFormat::kInt8 && format != WeightFormat::kBF16 && group_size != 32)
    throw std::invalid_argument("group_size must be 32 with weights of 4 bits.");
  return {format, group_size, weight_bias};
}

TileFormat tile_format(const PackFormat& format, TensorType type) {
  const bool is_q4_0 = type == TensorType::kQ4_0, is_levels = type == TensorType::kIQ4_NL;
  switch (format.weights) {
    case WeightFormat::kBF16: return TileFormat::kBF16;
    case WeightFormat::kInt8: return TileFormat::kInt8;
    case WeightFormat::kNF4: return TileFormat::kLevels4;
    case WeightFormat::kInt4:
      return is_q4_0 ? TileFormat::kInt4 : (is_levels ? TileFormat::kLevels4 : TileFormat::kInt4Min);
    case WeightFormat::kAuto: break;
  }
  if (is_q4_0) return TileFormat::kInt4;
  if (is_levels) return TileFormat::kLevels4;
  return type == TensorType::kQ4_1 || type == TensorType::kQ4_K ? TileFormat::kInt4Min : TileFormat::kInt8;
}

void PackedMatrix::choose_format(TensorType type) {
  format = tile_format(pack, type);
  if (format == TileFormat::kLevels4) levels = pack.weights == WeightFormat::kNF4 ? kNF4Levels : iq4_nl_levels();
}

std::int64_t PackedMatrix::record_bytes() const {
  return header_bytes(format) + std::int64_t{kTileColumns} * pack.group_size * bits_of(format) / 8;
}

std::int64_t PackedMatrix::tile_bytes() const {
  if (format == TileFormat::kBF16) return padded_k() * kTileColumns * 2;
  return kTileColumns * static_cast<std::int64_t>(sizeof(float)) + padded_k() / pack.group_size * record_bytes();
}

const std::uint8_t* PackedMatrix::tile_data(std::int64_t index) const {
  return index < num_tiles() ? data + index * tile_bytes() : nullptr;
}

PackedTile PackedMatrix::tile(std::int64_t index, const std::uint8_t* next) const {
  return {data + index * tile_bytes(), format, static_cast<int>(padded_k()), pack.group_size, levels, next};
}

bool pack_tile(const PackedMatrix& matrix, std::int64_t tile, TensorType type, const std::uint8_t* source,
               PackScratch& scratch) {
  const std::int64_t source_bytes = row_bytes(type, matrix.columns);
  std::uint8_t* target = matrix.data + tile * matrix.tile_bytes();
  bool sound = true;
  for (std::int64_t lane = 0; lane < kTileColumns; ++lane) {
    const bool exists = tile * kTileColumns + lane < matrix.rows;  // else the padding of the last tile
    const std::uint8_t* row = exists ? source + lane * source_bytes : nullptr;
    if (matrix.format == TileFormat::kBF16) {
      sound = pack_row_bf16(matrix, type, row, scratch.values, target, lane) && sound;
      continue;
    }
    RowCodes codes{scratch};
    if (exists) {
      sound = encode_row(matrix, type, row, codes) && sound;
    } else {
      std::ranges::fill(scratch.scales, std::uint16_t{0});
      std::ranges::fill(scratch.minima, std::uint16_t{0});
    }
    place_integers(matrix, codes, target, lane);
  }
  return sound;
}

void unpack_row(const PackedMatrix& matrix, std::int64_t row, float* target) {
  const std::uint8_t* tile = matrix.data + row / kTileColumns * matrix.tile_bytes();
  const std::int64_t lane = row % kTileColumns;
  if (matrix.format == TileFormat::kBF16) {
    for (std::int64_t k = 0; k < matrix.columns; ++k) {
      std::uint16_t bits;
      std::memcpy(&bits, tile + k / 2 * kTileColumns * 4 + lane * 4 + k % 2 * 2, 2);
      target[k] = bf16_to_float(bits);
    }
    return;
  }
  float factor;
  std::memcpy(&factor, tile + lane * 4, sizeof factor);
  const std::uint8_t* record = tile + kTileColumns * sizeof(float);
  const int group = matrix.pack.group_size;
  for (std::int64_t begin = 0; begin < matrix.columns; begin += group, record += matrix.record_bytes()) {
    std::uint16_t scale_bits, minimum_bits = 0;
    std::memcpy(&scale_bits, record + lane * 2, 2);
    if (matrix.format == TileFormat::kInt4Min) std::memcpy(&minimum_bits, record + kTileColumns * 2 + lane * 2, 2);
    const float scale = half_to_float(scale_bits), minimum = half_to_float(minimum_bits);
    const std::uint8_t* integers = record + header_bytes(matrix.format);
    for (int i = 0; i < std::min<std::int64_t>(group, matrix.columns - begin); ++i) {
      const Place place = place_of(matrix.format, i, lane);
      const int bits = integers[place.byte] >> place.shift;
      int value = bits & 15;
      if (matrix.format == TileFormat::kInt8) {
        value = static_cast<std::int8_t>(bits - matrix.pack.weight_bias);
      } else if (matrix.format == TileFormat::kInt4) {
        value -= 8;
      } else if (matrix.format == TileFormat::kLevels4) {
        value = matrix.levels[value];
      }
      const float product = scale * static_cast<float>(value);  // to add a zero would take the sign of another
      target[begin + i] = factor * (matrix.format == TileFormat::kInt4Min ? product + minimum : product);
    }
  }
}

}  // namespace headway
