#include "kv_cache.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace headway {
namespace {

constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 30;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 46;

// Symmetric: scale = max|x| / 127. Returns the scale; byte i goes to target[place(i)].
template <class Place>
float quantize_head(const float* x, int count, std::uint8_t* target, const Place& place) {
  float bound = 0.0F;
  for (int i = 0; i < count; ++i) bound = std::fabs(x[i]) > bound ? std::fabs(x[i]) : bound;
  // As with weights: 127 / bound must stay finite.
  const bool live = bound > 1e-30F && bound < 1e30F;
  const float inverse = live ? 127.0F / bound : 0.0F;
  for (int i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>((live ? x[i] * inverse : 0.0F) + 0x1.8p23F);  // rounds
    target[place(i)] = static_cast<std::uint8_t>(bits);
  }
  return live ? bound / 127.0F : 0.0F;
}

}  // namespace

KvCache::KvCache(std::shared_ptr<Model> model, std::int64_t num_blocks, std::int64_t block_size,
                 std::string_view dtype)
    : model_(std::move(model)) {
  const ModelShape& shape = model_->shape();
  const std::int64_t most = round_up(shape.max_context, kPartTokens);
  if (block_size < kPartTokens || block_size % kPartTokens != 0 || block_size > most)
    throw std::invalid_argument("a block's number of tokens must be a multiple of 16, here of at most " +
                                std::to_string(most) + ", which holds the whole context; " + std::to_string(block_size) +
                                " is not.");
  if (dtype != "bf16" && dtype != "int8") throw std::invalid_argument("dtype must be \"bf16\" or \"int8\".");
  if (num_blocks < 1 || num_blocks > kMaxBlocks) throw std::invalid_argument("num_blocks must lie in 1 .. 2^30.");
  num_blocks_ = static_cast<std::int32_t>(num_blocks);
  int8_ = dtype == "int8";
  block_size_ = static_cast<int>(block_size);
  head_dim_ = shape.head_dim;
  num_kv_heads_ = shape.num_kv_heads;
  const std::int64_t values = std::int64_t{2} * kPartTokens * head_dim_;
  part_bytes_ = int8_ ? values + 2 * kPartTokens * static_cast<std::int64_t>(sizeof(float)) : values * 2;
  head_bytes_ = part_bytes_ * (block_size_ / kPartTokens);
  block_bytes_ = head_bytes_ * num_kv_heads_ * shape.num_layers;
  if (block_bytes_ > kMaxBytes / num_blocks_)
    throw std::invalid_argument("The cache would exceed 64 TiB, more than a process can address.");
  memory_ = allocate_pages(static_cast<std::size_t>(block_bytes_) * static_cast<std::size_t>(num_blocks_));
}

std::uint8_t* KvCache::checked_block(std::int64_t block) const {
  if (block < 0 || block >= num_blocks_)
    throw std::out_of_range("Block " + std::to_string(block) + " does not exist; the cache has " +
                            std::to_string(num_blocks_) + " blocks.");
  return memory_.get() + block * block_bytes_;
}

void KvCache::read_block(std::int64_t block, std::span<std::uint8_t> target) const {
  const std::uint8_t* source = checked_block(block);
  if (static_cast<std::int64_t>(target.size()) != block_bytes_)
    throw std::invalid_argument("A block has another size.");
  const Model::Use use(*model_);
  std::memcpy(target.data(), source, target.size());
}

void KvCache::write_block(std::int64_t block, std::span<const std::uint8_t> source) {
  std::uint8_t* target = checked_block(block);
  if (static_cast<std::int64_t>(source.size()) != block_bytes_)
    throw std::invalid_argument("A block has " + std::to_string(block_bytes_) + " bytes, not " +
                                std::to_string(source.size()) + ".");
  const Model::Use use(*model_);
  std::memcpy(target, source.data(), source.size());
}

void KvCache::copy_block(std::int64_t source, std::int64_t target) {
  const std::uint8_t* from = checked_block(source);
  std::uint8_t* to = checked_block(target);
  const Model::Use use(*model_);
  if (from != to) std::memcpy(to, from, static_cast<std::size_t>(block_bytes_));
}

void KvCache::bind_block(std::int64_t block) {
  std::uint8_t* begin = checked_block(block);
  const Model::Use use(*model_);
  bind_pages(begin, static_cast<std::size_t>(block_bytes_));
}

void KvCache::store(std::uint8_t* part, int slot, const float* key, const float* value) const {
  const auto key_place = [slot](int d) { return (d / 2 * kPartTokens + slot) * 2 + d % 2; };
  const auto value_place = [slot, this](int d) { return (slot / 2 * head_dim_ + d) * 2 + slot % 2; };
  if (int8_) {
    std::uint8_t* values = part + kPartTokens * head_dim_;
    const float key_scale = quantize_head(key, head_dim_, part, key_place);
    const float value_scale = quantize_head(value, head_dim_, values, value_place);
    std::uint8_t* scales = values + kPartTokens * head_dim_;
    std::memcpy(scales + slot * sizeof(float), &key_scale, sizeof(float));
    std::memcpy(scales + (kPartTokens + slot) * sizeof(float), &value_scale, sizeof(float));
    return;
  }
  auto* keys = reinterpret_cast<std::uint16_t*>(part);
  std::uint16_t* values = keys + kPartTokens * head_dim_;
  for (int d = 0; d < head_dim_; ++d) {
    keys[key_place(d)] = float_to_bf16(key[d]);
    values[value_place(d)] = float_to_bf16(value[d]);
  }
}

}  // namespace headway
