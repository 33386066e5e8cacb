#include "shape.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace headway {
namespace {

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 24;  // far above any model; keeps products in range
constexpr int kMaxLayers = 2048;   // a job's phases, up to sixteen a layer, are counted in 16 bits
constexpr std::size_t kMaxRopes = 16;  // models have up to two; each is computed for every token
constexpr int kMaxExperts = 1024;  // of a layer; models have up to 512
constexpr std::int64_t kMaxLayerExperts = std::int64_t{1} << 16;  // of all layers: bounds what is made before loading

[[noreturn]] void refuse(const std::string& reason) { throw std::invalid_argument(reason); }

std::string text(std::int64_t value) { return std::to_string(value); }

void check_dimension(const char* name, std::int64_t value) {
  if (value < 1 || value > kMaxDimension)
    refuse(std::string(name) + " must lie in 1 .. 2^24, not be " + text(value) + ".");
}

// Also false for NaN.
bool positive(double value) { return value > 1e-30 && value < 1e30; }

void check_positive(const char* name, double value) {
  if (!positive(value)) refuse(std::string(name) + " must be positive and finite.");
}

void check_ropes(const ModelShape& shape) {
  if (shape.ropes.empty()) refuse("ropes must name at least one rotation.");
  if (shape.ropes.size() > kMaxRopes) refuse("ropes must name at most 16 rotations.");
  for (const Rope& rope : shape.ropes) {
    if (rope.dim < 0 || rope.dim > shape.head_dim || rope.dim % 2 != 0)
      refuse("A rope's dim must be even and at most head_dim, not be " + text(rope.dim) + ".");
    if (std::ssize(rope.frequencies) != rope.dim / 2)
      refuse("A rope of dim " + text(rope.dim) + " must have " + text(rope.dim / 2) + " frequencies, not " +
             text(std::ssize(rope.frequencies)) + ".");
    for (const double frequency : rope.frequencies)
      if (!std::isfinite(frequency)) refuse("A rope's frequencies must be finite.");
    check_positive("A rope's scale", rope.scale);
  }
}

void check_layers(const ModelShape& shape) {
  if (std::ssize(shape.layers) != shape.num_layers)
    refuse("layers must have " + text(shape.num_layers) + " items, not " + text(std::ssize(shape.layers)) + ".");
  for (const LayerShape& layer : shape.layers) {
    if (layer.rope < 0 || layer.rope >= std::ssize(shape.ropes))
      refuse("A layer names rope " + text(layer.rope) + ", which does not exist.");
    if (layer.window < 0) refuse("A layer's window must be at least 1, not " + text(layer.window) + ".");
  }
}

void check_experts(const ModelShape& shape) {
  if (shape.num_experts < 0 || shape.num_experts > kMaxExperts)
    refuse("num_experts must lie in 0 .. 1024, not be " + text(shape.num_experts) + ".");
  if (std::int64_t{shape.num_experts} * shape.num_layers > kMaxLayerExperts)
    refuse("All layers together must have at most 2^16 experts.");
  const std::int32_t least = shape.num_experts > 0 ? 1 : 0;
  if (shape.num_experts_per_token < least || shape.num_experts_per_token > shape.num_experts)
    refuse("num_experts_per_token must lie in " + text(least) + " .. " + text(shape.num_experts) + ", not be " +
           text(shape.num_experts_per_token) + ".");
}

}  // namespace

ModelShape checked_shape(ModelShape shape) {
  check_dimension("vocab_size", shape.vocab_size);
  check_dimension("max_context", shape.max_context);
  check_dimension("hidden_size", shape.hidden_size);
  check_dimension("num_layers", shape.num_layers);
  if (shape.num_layers > kMaxLayers) refuse("num_layers must be at most 2048.");
  check_dimension("num_heads", shape.num_heads);
  check_dimension("num_kv_heads", shape.num_kv_heads);
  check_dimension("head_dim", shape.head_dim);
  check_dimension("ffn_size", shape.ffn_size);
  check_dimension("num_heads * head_dim", std::int64_t{shape.num_heads} * shape.head_dim);
  if (shape.num_heads % shape.num_kv_heads != 0) refuse("num_heads must be a multiple of num_kv_heads.");
  if (shape.head_dim % 16 != 0) refuse("head_dim must be a multiple of 16.");
  if (!(shape.norm_epsilon >= 0.0F && shape.norm_epsilon < 1.0F)) refuse("norm_epsilon must lie in [0, 1).");
  check_ropes(shape);
  check_layers(shape);
  check_experts(shape);
  check_positive("attention_scale", shape.attention_scale.value_or(1.0));
  check_positive("attention_softcap", shape.attention_softcap.value_or(1.0));
  check_positive("logit_softcap", shape.logit_softcap.value_or(1.0));
  check_positive("embedding_scale", shape.embedding_scale);
  return shape;
}

}  // namespace headway
