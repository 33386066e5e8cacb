// A tiny decoder with random weights, the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../src/model.h"
#include "../src/sampling/rng.h"

namespace headway::test {

inline Rope tiny_rope(int dim, bool interleaved, double theta = 10000.0, double scale = 1.0) {
  Rope rope{dim, interleaved, {}, scale};
  for (int i = 0; i < dim / 2; ++i) rope.frequencies.push_back(static_cast<float>(std::pow(theta, -2.0 * i / dim)));
  return rope;
}

// Odd sizes on purpose: a vocabulary that fills no tile, a hidden size that fills no group of 64.
inline ModelShape tiny_shape() {
  ModelShape shape{};
  shape.vocab_size = 101;
  shape.max_context = 600;  // more than two spans of attention
  shape.hidden_size = 96;
  shape.num_layers = 2;
  shape.num_heads = 6;
  shape.num_kv_heads = 2;
  shape.head_dim = 16;
  shape.ffn_size = 160;
  shape.norm_epsilon = 1e-5F;
  shape.tied_embeddings = true;
  shape.ropes = {tiny_rope(16, true)};
  shape.layers.resize(2);
  return shape;
}

// `count` values about zero with the given spread, as the bytes of float32.
inline std::vector<std::uint8_t> random_bytes(std::int64_t count, float spread, std::uint64_t seed, float middle = 0.0F) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count) * sizeof(float));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto unit = static_cast<float>(2.0 * uniform_at(seed, 2000, static_cast<std::int32_t>(i)) - 1.0);
    const float value = middle + spread * unit;
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  return bytes;
}

// What a test varies.
struct Variant {
  std::string isa = "portable";
  std::string weights = "int8";
  std::string kv = "bf16";
  int group_size = 32;
  int num_threads = 1;

  std::string name() const { return isa + " " + weights + " g" + std::to_string(group_size) + " kv " + kv; }
};

// All tensors are loaded; what is left is `finish`.
inline std::shared_ptr<Model> loaded_model(const Variant& variant, const ModelShape& shape = tiny_shape()) {
  auto model = std::make_shared<Model>(shape, variant.weights, variant.group_size, variant.isa, variant.num_threads);
  std::uint64_t seed = 1;
  const auto matrix = [&](const char* role, int layer, std::int64_t rows, std::int64_t columns) {
    const float spread = 2.0F / std::sqrt(static_cast<float>(columns));
    model->load({role, layer}, TensorType::kF32, 0, rows, columns, random_bytes(rows * columns, spread, seed++));
  };
  const auto norm = [&](const char* role, int layer) {
    model->load({role, layer}, TensorType::kF32, 0, 1, shape.hidden_size, random_bytes(shape.hidden_size, 0.5F, seed++, 1.0F));
  };
  const std::int64_t hidden = shape.hidden_size, heads = std::int64_t{shape.num_heads} * shape.head_dim;
  const std::int64_t kv_heads = std::int64_t{shape.num_kv_heads} * shape.head_dim;
  matrix("token_embedding", -1, shape.vocab_size, hidden);
  if (!shape.tied_embeddings) matrix("output", -1, shape.vocab_size, hidden);
  norm("output_norm", -1);
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    norm("attention_norm", layer);
    matrix("query", layer, heads, hidden);
    matrix("key", layer, kv_heads, hidden);
    matrix("value", layer, kv_heads, hidden);
    matrix("attention_output", layer, hidden, heads);
    norm("ffn_norm", layer);
    matrix("ffn_gate", layer, shape.ffn_size, hidden);
    matrix("ffn_up", layer, shape.ffn_size, hidden);
    matrix("ffn_down", layer, hidden, shape.ffn_size);
  }
  return model;
}

inline std::shared_ptr<Model> tiny_model(const Variant& variant, const ModelShape& shape = tiny_shape()) {
  std::shared_ptr<Model> model = loaded_model(variant, shape);
  model->finish();
  return model;
}

}  // namespace headway::test
