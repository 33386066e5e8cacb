// Matrices packed from bytes of any storage type, and random bytes that are sound in those of blocks.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../src/packed_matrix.h"
#include "../src/sampling/rng.h"

namespace headway::test {

struct Packed {
  PackedMatrix matrix;
  std::vector<std::uint8_t> data;
  bool sound = true;

  // source: rows * row_bytes(type, columns)
  Packed(PackFormat format, TensorType type, std::int64_t rows, std::int64_t columns, const std::vector<std::uint8_t>& source) {
    matrix.pack = format;
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.choose_format(type);
    data.resize(static_cast<std::size_t>(matrix.num_bytes()));
    matrix.data = data.data();
    PackScratch scratch;
    for (std::int64_t tile = 0; tile < matrix.num_tiles(); ++tile)
      sound = pack_tile(matrix, tile, type, source.data() + tile * kTileColumns * row_bytes(type, columns), scratch) && sound;
  }

  std::vector<float> row(std::int64_t index) const {
    std::vector<float> values(static_cast<std::size_t>(matrix.columns));
    unpack_row(matrix, index, values.data());
    return values;
  }
};

inline std::vector<std::uint8_t> bytes_of(const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Bytes of a block, values of a block, halves at its start.
struct BlockLayout {
  std::int64_t bytes, values, halves;
};

inline BlockLayout layout_of(TensorType type) {
  const std::int64_t values = type == TensorType::kQ4_K ? 256 : 32;
  return {row_bytes(type, values), values, type == TensorType::kQ4_1 || type == TensorType::kQ4_K ? 2 : 1};
}

// Blocks of `count` values: random bytes but for their halves, which are chosen among `halves`.
inline std::vector<std::uint8_t> random_blocks(TensorType type, std::int64_t count, std::span<const std::uint16_t> halves,
                                               std::uint64_t seed) {
  const BlockLayout layout = layout_of(type);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count / layout.values * layout.bytes));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(256 * uniform_at(seed, 4000, static_cast<std::int32_t>(i)));
  std::int32_t draw = 0;
  for (std::size_t block = 0; block < bytes.size(); block += static_cast<std::size_t>(layout.bytes))
    for (std::int64_t i = 0; i < layout.halves; ++i) {
      const auto chosen = static_cast<std::size_t>(static_cast<double>(halves.size()) * uniform_at(seed, 4001, draw++));
      std::memcpy(bytes.data() + block + i * 2, &halves[chosen], 2);
    }
  return bytes;
}

}  // namespace headway::test
