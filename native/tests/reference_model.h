// The decoder in double arithmetic, one token after another, without a cache of any format: what the kernels approximate.
// It takes the weights as they were packed, so that only the arithmetic differs. Llama: arXiv 2302.13971.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "../src/model.h"

namespace headway::test {

using Vector = std::vector<double>;

inline Vector times(const PackedMatrix& matrix, const Vector& x) {
  Vector y(static_cast<std::size_t>(matrix.rows), 0.0);
  std::vector<float> row(static_cast<std::size_t>(matrix.columns));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    unpack_row(matrix, r, row.data());
    for (std::size_t k = 0; k < row.size(); ++k) y[r] += double{row[k]} * x[k];
  }
  return y;
}

inline Vector normalized(const Vector& x, const std::vector<float>& weight, double epsilon) {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * double{weight[i]};
  }
  return y;
}

inline void rotate(Vector& heads, const Rope& rope, int head_dim, int position) {
  const int half = rope.dim / 2;
  for (std::size_t head = 0; head < heads.size(); head += head_dim) {
    for (int i = 0; i < half; ++i) {
      const double angle = position * rope.frequencies[i];
      const double cosine = std::cos(angle) * rope.scale, sine = std::sin(angle) * rope.scale;
      double& a = heads[head + (rope.interleaved ? 2 * i : i)];
      double& b = heads[head + (rope.interleaved ? 2 * i + 1 : i + half)];
      const double rotated = a * cosine - b * sine;
      b = a * sine + b * cosine;
      a = rotated;
    }
  }
}

inline double softened(double value, const std::optional<double>& cap) {
  return cap ? *cap * std::tanh(value / *cap) : value;
}

inline void normalize_heads(Vector& heads, const std::vector<float>& weight, const ModelShape& shape) {
  for (std::size_t head = 0; head < heads.size(); head += shape.head_dim) {
    const Vector normed = normalized({heads.begin() + head, heads.begin() + head + shape.head_dim}, weight, shape.norm_epsilon);
    std::copy(normed.begin(), normed.end(), heads.begin() + head);
  }
}

// Attention of the newest position's query to those of `keys` and `values` that lie within the window.
inline Vector attend(const Vector& query, const std::vector<Vector>& keys, const std::vector<Vector>& values,
                     const ModelShape& shape, int window) {
  const int dim = shape.head_dim;
  const std::size_t first = window == 0 || keys.size() < std::size_t(window) ? 0 : keys.size() - window;
  const double scale = shape.attention_scale.value_or(1.0 / std::sqrt(double(dim)));
  Vector output(query.size(), 0.0);
  for (int head = 0; head < shape.num_heads; ++head) {
    const int kv = head / (shape.num_heads / shape.num_kv_heads) * dim;
    Vector weights(keys.size(), 0.0);
    double total = 0.0;
    for (std::size_t p = first; p < keys.size(); ++p) {
      double score = 0.0;
      for (int d = 0; d < dim; ++d) score += query[head * dim + d] * keys[p][kv + d];
      weights[p] = std::exp(softened(score * scale, shape.attention_softcap));
      total += weights[p];
    }
    for (std::size_t p = first; p < keys.size(); ++p) {
      for (int d = 0; d < dim; ++d) output[head * dim + d] += weights[p] / total * values[p][kv + d];
    }
  }
  return output;
}

inline Vector feed_forward(const FeedForward& ffn, const Vector& x, Activation activation) {
  Vector gate = times(ffn.gate, x);
  const Vector up = times(ffn.up, x);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    const double gelu = 0.5 * g * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g)));
    gate[i] = (activation == Activation::kSilu ? g / (1.0 + std::exp(-g)) : gelu) * up[i];
  }
  return times(ffn.down, gate);
}

// The experts of a position, best first, and their weights.
inline std::vector<std::pair<int, double>> chosen_experts(const LayerWeights& weights, const Vector& x, const ModelShape& shape) {
  std::vector<std::pair<int, double>> experts;
  double all = 0.0, chosen = 0.0;
  for (int expert = 0; expert < shape.num_experts; ++expert) {
    const float* tile = weights.router.data() + std::size_t(expert / 32) * shape.hidden_size * 32 + expert % 32;
    double score = 0.0;
    for (int k = 0; k < shape.hidden_size; ++k) score += double{tile[k * 32]} * x[k];
    experts.emplace_back(expert, std::exp(score));
    all += experts.back().second;
  }
  std::stable_sort(experts.begin(), experts.end(), [](auto a, auto b) { return a.second > b.second; });
  experts.resize(shape.num_experts_per_token);
  for (auto& [expert, weight] : experts) chosen += weight;
  for (auto& [expert, weight] : experts) weight /= shape.normalize_experts ? chosen : all;
  return experts;
}

inline Vector feed_forward(const LayerWeights& weights, const Vector& x, const ModelShape& shape) {
  if (shape.num_experts == 0) return feed_forward(weights.ffn.front(), x, shape.activation);
  Vector sum(x.size(), 0.0);
  for (const auto& [expert, weight] : chosen_experts(weights, x, shape)) {
    const Vector output = feed_forward(weights.ffn[expert], x, shape.activation);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * output[i];
  }
  return sum;
}

// Logits of every position, (num_tokens, vocab_size).
inline Vector reference_logits(const Model& model, const std::vector<std::int32_t>& tokens) {
  const ModelShape& shape = model.shape();
  std::vector<std::vector<Vector>> keys(shape.num_layers), values(shape.num_layers);
  Vector all;
  for (std::size_t position = 0; position < tokens.size(); ++position) {
    std::vector<float> embedding(static_cast<std::size_t>(shape.hidden_size));
    unpack_row(model.token_embedding(), tokens[position], embedding.data());
    Vector x(embedding.begin(), embedding.end());
    for (double& value : x) value *= shape.embedding_scale;
    const auto add = [&](Vector y, const std::vector<float>& post_norm) {
      if (shape.post_norms) y = normalized(y, post_norm, shape.norm_epsilon);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    };
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      const LayerWeights& weights = model.layers()[layer];
      const auto product = [&](const PackedMatrix& matrix, const Vector& in, const std::vector<float>& bias) {
        Vector y = times(matrix, in);
        for (std::size_t i = 0; shape.qkv_bias && i < y.size(); ++i) y[i] += bias[i];
        return y;
      };
      const Vector normed = normalized(x, weights.attention_norm, shape.norm_epsilon);
      Vector query = product(weights.query, normed, weights.query_bias), key = product(weights.key, normed, weights.key_bias);
      if (shape.qk_norm) normalize_heads(query, weights.query_norm, shape);
      if (shape.qk_norm) normalize_heads(key, weights.key_norm, shape);
      const Rope& rope = shape.ropes[shape.layers[layer].rope];
      rotate(query, rope, shape.head_dim, static_cast<int>(position));
      rotate(key, rope, shape.head_dim, static_cast<int>(position));
      keys[layer].push_back(key);
      values[layer].push_back(product(weights.value, normed, weights.value_bias));
      const Vector mixed = attend(query, keys[layer], values[layer], shape, shape.layers[layer].window);
      add(times(weights.attention_output, mixed), weights.attention_post_norm);
      add(feed_forward(weights, normalized(x, weights.ffn_norm, shape.norm_epsilon), shape), weights.ffn_post_norm);
    }
    const Vector logits = times(model.output(), normalized(x, model.output_norm(), shape.norm_epsilon));
    for (const double logit : logits) all.push_back(softened(logit, shape.logit_softcap));
  }
  return all;
}

}  // namespace headway::test
