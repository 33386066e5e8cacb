#include "weights.h"

namespace headway {

LayerRoles layer_roles(const ModelShape& shape) {
  using Layer = LayerWeights;
  const std::int64_t hidden = shape.hidden_size, ffn = shape.ffn_size, head_dim = shape.head_dim;
  const std::int64_t heads = shape.num_heads * head_dim, kv_heads = shape.num_kv_heads * head_dim;
  LayerRoles roles{
      {{"query", &Layer::query, heads, hidden},
       {"key", &Layer::key, kv_heads, hidden},
       {"value", &Layer::value, kv_heads, hidden},
       {"attention_output", &Layer::attention_output, hidden, heads}},
      {{"ffn_gate", &FeedForward::gate, ffn, hidden},
       {"ffn_up", &FeedForward::up, ffn, hidden},
       {"ffn_down", &FeedForward::down, hidden, ffn}},
      {{"attention_norm", &Layer::attention_norm, hidden}, {"ffn_norm", &Layer::ffn_norm, hidden}},
  };
  const auto also = [&roles](bool wanted, std::initializer_list<VectorRole> more) {
    if (wanted) roles.vectors.insert(roles.vectors.end(), more);
  };
  also(shape.qkv_bias, {{"query_bias", &Layer::query_bias, heads},
                        {"key_bias", &Layer::key_bias, kv_heads},
                        {"value_bias", &Layer::value_bias, kv_heads}});
  also(shape.qk_norm, {{"query_norm", &Layer::query_norm, head_dim}, {"key_norm", &Layer::key_norm, head_dim}});
  also(shape.post_norms, {{"attention_post_norm", &Layer::attention_post_norm, hidden},
                          {"ffn_post_norm", &Layer::ffn_post_norm, hidden}});
  return roles;
}

void pack_router_row(const ModelShape& shape, const float* row, std::int64_t expert, std::vector<float>& router) {
  const std::int64_t hidden = shape.hidden_size;
  const std::int64_t num_tiles = (shape.num_experts + kTileColumns - 1) / kTileColumns;
  router.resize(static_cast<std::size_t>(num_tiles * hidden * kTileColumns));
  float* target = router.data() + expert / kTileColumns * hidden * kTileColumns + expert % kTileColumns;
  for (std::int64_t k = 0; k < hidden; ++k) target[k * kTileColumns] = row[k];
}

}  // namespace headway
