// Keys and values of all sequences in blocks of some positions. It knows no sequences: who owns a block is decided
// elsewhere.
//
// A block holds, layer after layer and head after head, parts of 16 positions. In a part lie the keys with positions
// innermost, so that 16 scores are one vector; the values with dimensions innermost; in int8 also a float scale per
// position for the keys and for the values. Numbers lie in pairs, of dimensions (keys) and of positions (values), which
// one lane of a dot product takes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "model.h"

namespace headway {

class KvCache {
 public:
  // block_size: positions, a multiple of 16, at most the model's context rounded up; dtype: "bf16" or "int8". Throws
  // std::invalid_argument, std::bad_alloc. Blocks are zero at first.
  KvCache(std::shared_ptr<Model> model, std::int64_t num_blocks, std::int64_t block_size, std::string_view dtype);

  std::int32_t num_blocks() const { return num_blocks_; }
  int block_size() const { return block_size_; }
  std::int64_t block_bytes() const { return block_bytes_; }
  bool int8() const { return int8_; }
  Model& model() const { return *model_; }
  const std::shared_ptr<Model>& shared_model() const { return model_; }

  // Raw bytes of a block. Throw std::out_of_range for a block that does not exist, std::invalid_argument for a wrong
  // size.
  void read_block(std::int64_t block, std::span<std::uint8_t> target) const;
  void write_block(std::int64_t block, std::span<const std::uint8_t> source);
  void copy_block(std::int64_t source, std::int64_t target);
  // Gives a block memory, which it otherwise gets when it is first written; its content stays. Throws std::out_of_range.
  void bind_block(std::int64_t block);

  // The part that holds position `index` of a block, for one layer and KV head. Not checked.
  std::uint8_t* part(std::int32_t block, int index, int layer, int kv_head) const {
    return memory_.get() + block * block_bytes_ + (std::int64_t{layer} * num_kv_heads_ + kv_head) * head_bytes_ +
           index / kPartTokens * part_bytes_;
  }
  // The same for a position of a sequence whose blocks these are.
  std::uint8_t* part_of(const std::int32_t* blocks, int position, int layer, int kv_head) const {
    return part(blocks[position / block_size_], position % block_size_, layer, kv_head);
  }
  // Writes one position's key and value, (head_dim,) each, to place `slot` of a part. Not checked.
  void store(std::uint8_t* part, int slot, const float* key, const float* value) const;

 private:
  std::uint8_t* checked_block(std::int64_t block) const;

  std::shared_ptr<Model> model_;
  std::int32_t num_blocks_;
  bool int8_;
  int block_size_, head_dim_, num_kv_heads_;
  std::int64_t part_bytes_, head_bytes_, block_bytes_;
  Pages memory_;
};

}  // namespace headway
