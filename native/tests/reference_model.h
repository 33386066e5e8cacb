// The decoder in double arithmetic, one token after another, without a cache of any format: what the kernels approximate.
// It takes the weights as they were packed, so that only the arithmetic differs. Llama: arXiv 2302.13971.
#pragma once

#include <cmath>
#include <cstdint>
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

// Attention of the newest position's query to all `keys` and `values` of a layer.
inline Vector attend(const Vector& query, const std::vector<Vector>& keys, const std::vector<Vector>& values,
                     const ModelShape& shape) {
  const int dim = shape.head_dim;
  Vector output(query.size(), 0.0);
  for (int head = 0; head < shape.num_heads; ++head) {
    const int kv = head / (shape.num_heads / shape.num_kv_heads) * dim;
    Vector weights;
    double total = 0.0;
    for (const Vector& key : keys) {
      double score = 0.0;
      for (int d = 0; d < dim; ++d) score += query[head * dim + d] * key[kv + d];
      weights.push_back(std::exp(score / std::sqrt(double(dim))));
      total += weights.back();
    }
    for (std::size_t p = 0; p < keys.size(); ++p) {
      for (int d = 0; d < dim; ++d) output[head * dim + d] += weights[p] / total * values[p][kv + d];
    }
  }
  return output;
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
    const auto add = [&x](const Vector& y) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    };
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      const LayerWeights& weights = model.layers()[layer];
      const Vector normed = normalized(x, weights.attention_norm, shape.norm_epsilon);
      Vector query = times(weights.query, normed), key = times(weights.key, normed);
      const Rope& rope = shape.ropes[shape.layers[layer].rope];
      rotate(query, rope, shape.head_dim, static_cast<int>(position));
      rotate(key, rope, shape.head_dim, static_cast<int>(position));
      keys[layer].push_back(key);
      values[layer].push_back(times(weights.value, normed));
      add(times(weights.attention_output, attend(query, keys[layer], values[layer], shape)));
      const Vector ffn_in = normalized(x, weights.ffn_norm, shape.norm_epsilon);
      Vector gate = times(weights.ffn.front().gate, ffn_in);
      const Vector up = times(weights.ffn.front().up, ffn_in);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
      add(times(weights.ffn.front().down, gate));
    }
    const Vector logits = times(model.output(), normalized(x, model.output_norm(), shape.norm_epsilon));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

}  // namespace headway::test
