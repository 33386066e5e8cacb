// A tiny decoder with random weights, the same on every machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../src/model.h"
#include "packed_support.h"
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

// What a shape may ask for beyond that, in three mixtures.
struct NamedShape {
  const char* name;
  ModelShape shape;
};

inline std::vector<NamedShape> other_shapes() {
  ModelShape capped = tiny_shape();  // a window longer than a span's rest, one shorter than a tile
  capped.ropes = {tiny_rope(16, false), tiny_rope(12, false, 500.0, 1.3)};
  capped.layers = {{0, 0}, {1, 300}, {1, 17}};
  capped.num_layers = 3;
  capped.activation = Activation::kGeluTanh;
  capped.attention_scale = 0.4;
  capped.attention_softcap = 3.0;
  capped.logit_softcap = 5.0;
  capped.embedding_scale = 3.7;
  capped.qk_norm = capped.post_norms = true;
  ModelShape experts = tiny_shape();
  experts.num_experts = 37;  // more than a tile of the router
  experts.num_experts_per_token = 5;
  experts.ffn_size = 40;
  experts.qk_norm = true;
  ModelShape biased = tiny_shape();
  biased.qkv_bias = true;
  biased.layers = {{0, 40}, {0, 3}};
  biased.num_experts = 3;
  biased.num_experts_per_token = 2;
  biased.normalize_experts = false;
  biased.post_norms = true;
  return {{"norms, caps and windows", capped}, {"experts", experts}, {"biases, experts and short windows", biased}};
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
  std::string activations = "f32";

  std::string name() const {
    return isa + " " + weights + " g" + std::to_string(group_size) + " kv " + kv +
           (activations == "f32" ? "" : " activations " + activations);
  }
};

// One matrix of a file of many types, as "auto" likes it: `columns` fill blocks, or it is of floats.
struct MixedSource {
  TensorType type = TensorType::kF32;
  std::vector<std::uint8_t> bytes;

  MixedSource(std::int64_t rows, std::int64_t columns, float spread, std::uint64_t seed) {
    constexpr TensorType kTypes[] = {TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kIQ4_NL};
    if (columns % 32 != 0) {
      bytes = random_bytes(rows * columns, spread, seed);
      return;
    }
    type = kTypes[seed % 4];
    const bool wide = type == TensorType::kQ8_0 || type == TensorType::kIQ4_NL;  // integers up to 127
    const std::uint16_t half = float_to_half(spread / (wide ? 127.0F : 8.0F));
    const std::uint16_t halves[] = {half, static_cast<std::uint16_t>(half | 0x8000U), static_cast<std::uint16_t>(half - 99)};
    bytes = random_blocks(type, rows * columns, halves, seed);
  }
};

// All tensors are loaded; what is left is `finish`.
inline std::shared_ptr<Model> loaded_model(const Variant& variant, const ModelShape& shape = tiny_shape()) {
  auto model = std::make_shared<Model>(shape, variant.weights, variant.group_size, variant.activations,
                                       variant.isa, variant.num_threads);
  std::uint64_t seed = 1;
  const auto matrix = [&](const char* role, int layer, int expert, std::int64_t rows, std::int64_t columns) {
    const float spread = 2.0F / std::sqrt(static_cast<float>(columns));
    if (variant.weights == "auto") {
      const MixedSource source(rows, columns, spread, seed++);
      model->load({role, layer, expert}, source.type, 0, rows, columns, source.bytes);
      return;
    }
    model->load({role, layer, expert}, TensorType::kF32, 0, rows, columns, random_bytes(rows * columns, spread, seed++));
  };
  const auto vector = [&](const std::string& role, int layer, std::int64_t size) {
    const bool bias = role.ends_with("bias");
    model->load({role, layer}, TensorType::kF32, 0, 1, size, random_bytes(size, 0.5F, seed++, bias ? 0.0F : 1.0F));
  };
  matrix("token_embedding", -1, -1, shape.vocab_size, shape.hidden_size);
  if (!shape.tied_embeddings) matrix("output", -1, -1, shape.vocab_size, shape.hidden_size);
  vector("output_norm", -1, shape.hidden_size);
  const LayerRoles roles = layer_roles(shape);
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    for (const VectorRole& role : roles.vectors) vector(role.name, layer, role.size);
    for (const MatrixRole& role : roles.matrices) matrix(role.name, layer, -1, role.rows, role.columns);
    if (shape.num_experts > 0) matrix("router", layer, -1, shape.num_experts, shape.hidden_size);
    for (int expert = 0; expert < std::max(1, shape.num_experts); ++expert) {
      for (const FeedForwardRole& role : roles.feed_forward)
        matrix(role.name, layer, shape.num_experts > 0 ? expert : -1, role.rows, role.columns);
    }
  }
  return model;
}

inline std::shared_ptr<Model> tiny_model(const Variant& variant, const ModelShape& shape = tiny_shape()) {
  std::shared_ptr<Model> model = loaded_model(variant, shape);
  model->finish();
  return model;
}

inline std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> kernels;
  for (const std::string& isa : available_isas()) kernels.push_back(&tiny_model({.isa = isa})->kernels());
  return kernels;
}

}  // namespace headway::test
