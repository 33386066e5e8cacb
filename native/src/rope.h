// Rotary positions (Su et al., arXiv 2104.09864): a position's cosines and sines, and the rotation of a head by them.
#pragma once

#include <cstdint>

#include "shape.h"

namespace headway {

// Floats of one position: of every rope its dim / 2 cosines, then as many sines.
std::int64_t rotation_size(const ModelShape& shape);
// Where rope `rope`'s part of them begins.
std::int64_t rotation_offset(const ModelShape& shape, std::int32_t rope);

// Writes `rotation_size` floats.
void compute_rotation(const ModelShape& shape, std::int32_t position, float* rotation);

// Rotates one head in place. `rotation`: the rope's part.
void rotate(const Rope& rope, const float* rotation, float* head);

}  // namespace headway
