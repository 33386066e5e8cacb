// One row of a matrix as integers, what tiles of integers are packed from; and which values any row may hold.
#pragma once

#include "packed_matrix.h"

namespace headway {

// Weights must lie below it in magnitude: beyond, sums of products would no longer be floats.
inline constexpr float kWeightLimit = 1e30F;

// Whether all values are numbers of magnitudes below the limit.
bool are_sound(const float* values, std::int64_t count);

// A row in a tile's format: weight = factor * (scale * integer + minimum).
struct RowCodes {
  PackScratch& scratch;  // `codes` (padded_k,): bytes of int8, or codes 0 .. 15; `scales`, `minima`: one per group
  float factor = 0.0F;
};

// Encodes a row of the file; returns whether its values are sound. What the format can hold as it is stays as it is.
bool encode_row(const PackedMatrix& matrix, TensorType type, const std::uint8_t* source, RowCodes& out);

}  // namespace headway
