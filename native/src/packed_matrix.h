// A weight matrix in a runtime format, packed into tiles of 32 output columns (README.md shows the layouts).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "tensor_types.h"

namespace headway {

enum class WeightFormat : std::uint8_t { kBF16, kInt8 };

// How matrices are packed: fixed for a model.
struct PackFormat {
  WeightFormat weights = WeightFormat::kInt8;
  int group_size = 32;  // 32 or 64, along K
  int weight_bias = 0;  // of the instruction set, `Kernels::weight_bias`
};

// `rows` output columns (as files call them) times `columns` (K). It borrows its memory.
struct PackedMatrix {
  PackFormat format;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::uint8_t* data = nullptr;

  std::int64_t num_tiles() const { return (rows + kTileColumns - 1) / kTileColumns; }
  std::int64_t padded_k() const;
  std::int64_t tile_bytes() const;
  std::int64_t num_bytes() const { return num_tiles() * tile_bytes(); }
  PackedTile tile(std::int64_t index) const;
};

// No model's weights come near it; int8 cannot hold them, nor any arithmetic infinities and NaN.
inline constexpr float kWeightLimit = 1e30F;

// Whether all values are numbers of magnitudes below the limit.
bool are_sound(const float* values, std::int64_t count);

// Packs one tile from a file's rows, `source` being the tile's first. `row_buffer` is scratch. Returns whether all values
// are sound; what is not becomes anything.
bool pack_tile(const PackedMatrix& matrix, std::int64_t tile, TensorType type, const std::uint8_t* source,
               std::vector<float>& row_buffer);

// Writes row `row` back as `columns` floats (token embeddings).
void unpack_row(const PackedMatrix& matrix, std::int64_t row, float* target);

}  // namespace headway
