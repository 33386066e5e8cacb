// A weight matrix in a runtime format, packed into tiles of 32 output columns (README.md shows the layouts).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "tensor_types.h"

namespace headway {

// What a model's matrices become: one format, or the one that is nearest to the file's, matrix by matrix.
enum class WeightFormat : std::uint8_t {
  kBF16,
  kInt8,
  kInt4,  // Q4_0 and IQ4_NL as they are, all else with minima
  kNF4,
  kAuto,  // formats of 4 bits as they are, all else int8
};

// How matrices are packed: fixed for a model.
struct PackFormat {
  WeightFormat weights = WeightFormat::kInt8;
  int group_size = 32;  // 32, 64 or 128, along K; of activations, too
  int weight_bias = 0;  // of the instruction set, `Kernels::weight_bias`

  bool halves = false;  // bf16 weights meet activations rounded to bfloat16

  bool integers() const { return weights != WeightFormat::kBF16; }
};

// Throws std::invalid_argument for an unknown name, or a group size that does not go with it.
PackFormat checked_format(std::string_view weights, int group_size, int weight_bias);

// How the tiles of a matrix hold what comes as `type`.
TileFormat tile_format(const PackFormat& format, TensorType type);

// `rows` output columns (as files call them) times `columns` (K). It borrows its memory.
struct PackedMatrix {
  PackFormat pack;
  TileFormat format = TileFormat::kBF16;
  const std::int8_t* levels = nullptr;  // of kLevels4
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::uint8_t* data = nullptr;

  // Sets how tiles hold what comes as `type`.
  void choose_format(TensorType type);
  std::int64_t num_tiles() const { return (rows + kTileColumns - 1) / kTileColumns; }
  std::int64_t padded_k() const { return round_up(columns, is_integer(format) ? pack.group_size : 2); }
  std::int64_t record_bytes() const;  // of one group of integers
  std::int64_t tile_bytes() const;
  std::int64_t num_bytes() const { return num_tiles() * tile_bytes(); }
  // Where a tile lies; null beyond the last.
  const std::uint8_t* tile_data(std::int64_t index) const;
  // `next` is what the caller will read next, or null.
  PackedTile tile(std::int64_t index, const std::uint8_t* next = nullptr) const;
};

// Memory of a thread that packs.
struct PackScratch {
  std::vector<float> values;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint16_t> scales, minima;  // halves
};

// Packs one tile from a file's rows, `source` being the tile's first. Returns whether all values are sound; what is not
// becomes anything.
bool pack_tile(const PackedMatrix& matrix, std::int64_t tile, TensorType type, const std::uint8_t* source,
               PackScratch& scratch);

// Writes row `row` back as `columns` floats (token embeddings).
void unpack_row(const PackedMatrix& matrix, std::int64_t row, float* target);

}  // namespace headway
