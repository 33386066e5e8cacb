// A layer's weights, and which of them a shape asks for, role by role.
#pragma once

#include <cstdint>
#include <vector>

#include "packed_matrix.h"
#include "shape.h"

namespace headway {

using PaddedVector = std::vector<float>;  // padded with zeros to `kRowAlign`

struct FeedForward {
  PackedMatrix gate, up, down;
};

// What the shape does not ask for stays empty.
struct LayerWeights {
  PackedMatrix query, key, value, attention_output;
  std::vector<FeedForward> ffn;  // one, or one per expert
  PaddedVector attention_norm, ffn_norm, attention_post_norm, ffn_post_norm;
  PaddedVector query_bias, key_bias, value_bias, query_norm, key_norm;
  std::vector<float> router;  // (num_experts / 32, hidden_size, 32): tiles of experts, the last padded with zeros
};

// A role, as files' plans name it (`headway.core.plan.Role`), its place and its size.
struct MatrixRole {
  const char* name;
  PackedMatrix LayerWeights::* matrix;
  std::int64_t rows, columns;
};
struct FeedForwardRole {
  const char* name;
  PackedMatrix FeedForward::* matrix;
  std::int64_t rows, columns;
};
struct VectorRole {
  const char* name;
  PaddedVector LayerWeights::* vector;
  std::int64_t size;
};

struct LayerRoles {
  std::vector<MatrixRole> matrices;  // these and the next in the order in which a step reads them
  std::vector<FeedForwardRole> feed_forward;
  std::vector<VectorRole> vectors;
};

// The same for every layer.
LayerRoles layer_roles(const ModelShape& shape);

// Puts one expert's row of the router, `hidden_size` floats, into its tile.
void pack_router_row(const ModelShape& shape, const float* row, std::int64_t expert, std::vector<float>& router);

}  // namespace headway
