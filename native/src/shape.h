// Sizes and constants of a decoder: `headway.core.plan.ModelShape`, in the same words, and the check that they fit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace headway {

// One way to rotate queries and keys (Su et al., arXiv 2104.09864), every method of scaling already in it.
struct Rope {
  std::int32_t dim = 0;  // how many of a head's dimensions rotate
  bool interleaved = false;
  std::vector<double> frequencies;  // (dim / 2,) radians per position
  double scale = 1.0;               // of cosines and sines
};

struct LayerShape {
  std::int32_t rope = 0;    // index into `ModelShape::ropes`
  std::int32_t window = 0;  // how many positions one sees, itself among them; 0 = all before it
};

enum class Activation : std::uint8_t { kSilu, kGeluTanh };

struct ModelShape {
  std::int32_t vocab_size, max_context, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, ffn_size;
  float norm_epsilon;
  bool tied_embeddings;
  std::vector<Rope> ropes;
  std::vector<LayerShape> layers;
  Activation activation = Activation::kSilu;
  std::optional<double> attention_scale, attention_softcap, logit_softcap;
  double embedding_scale = 1.0;
  bool qkv_bias = false, qk_norm = false, post_norms = false;
  std::int32_t num_experts = 0;  // 0: one dense feed-forward network
  std::int32_t num_experts_per_token = 0;
  bool normalize_experts = true;
};

// Returns the shape. Throws std::invalid_argument, with a sentence, for one that contradicts itself or exceeds bounds.
ModelShape checked_shape(ModelShape shape);

}  // namespace headway
