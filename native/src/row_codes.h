// One row of a matrix as integers: what tiles of integers are packed from.
#pragma once

#include "packed_matrix.h"

namespace headway {

// A row in a tile's format: weight = factor * (scale * integer + minimum).
struct RowCodes {
  PackScratch& scratch;  // `codes` (padded_k,): bytes of int8, or codes 0 .. 15; `scales`, `minima`: one per group
  float factor = 0.0F;
};

// Encodes a row of the file; returns whether its values are sound. What the format can hold as it is stays as it is.
bool encode_row(const PackedMatrix& matrix, TensorType type, const std::uint8_t* source, RowCodes& out);

}  // namespace headway
