#include "rope.h"

#include <cmath>

namespace headway {

std::int64_t rotation_offset(const ModelShape& shape, std::int32_t rope) {
  std::int64_t offset = 0;
  for (std::int32_t i = 0; i < rope; ++i) offset += shape.ropes[static_cast<std::size_t>(i)].dim;
  return offset;
}

std::int64_t rotation_size(const ModelShape& shape) {
  return rotation_offset(shape, static_cast<std::int32_t>(shape.ropes.size()));
}

void compute_rotation(const ModelShape& shape, std::int32_t position, float* rotation) {
  for (const Rope& rope : shape.ropes) {
    const std::size_t half = rope.frequencies.size();
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = position * rope.frequencies[i];
      rotation[i] = static_cast<float>(std::cos(angle) * rope.scale);
      rotation[half + i] = static_cast<float>(std::sin(angle) * rope.scale);
    }
    rotation += rope.dim;
  }
}

void rotate(const Rope& rope, const float* rotation, float* head) {
  const int half = rope.dim / 2;
  const int step = rope.interleaved ? 2 : 1, distance = rope.interleaved ? 1 : half;
  for (int i = 0; i < half; ++i) {
    float& a = head[i * step];
    float& b = head[i * step + distance];
    const float cosine = rotation[i], sine = rotation[half + i], a0 = a, b0 = b;
    a = a0 * cosine - b0 * sine;
    b = a0 * sine + b0 * cosine;
  }
}

}  // namespace headway
