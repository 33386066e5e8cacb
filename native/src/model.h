// A decoder's weights in memory, packed as the instruction set wants them, and the threads that compute with them.
//
// It knows no file format: tensors arrive one by one, by role, as bytes of a storage type.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "packed_matrix.h"
#include "platform/platform.h"
#include "worker_pool.h"

namespace headway {

// `headway.core.plan.ModelShape`, in the same words.
struct ModelShape {
  std::int32_t vocab_size, max_context, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, ffn_size;
  float norm_epsilon;
  double rope_theta;
  std::int32_t rope_dim;
  bool rope_interleaved, tied_embeddings;
};

struct LayerWeights {
  PackedMatrix query, key, value, attention_output, ffn_gate, ffn_up, ffn_down;
  std::vector<float> attention_norm, ffn_norm;  // padded with zeros
};

// Names of the instruction sets this machine can run, worst to best.
std::vector<std::string> available_isas();

class Model {
 public:
  // weights: "bf16" or "int8"; isa: "auto" or one of `available_isas()`. Throws std::invalid_argument.
  Model(const ModelShape& shape, std::string_view weights, int group_size, std::string_view isa, int num_threads);

  // Packs one tensor, rows in parallel. `layer` is -1 outside the layers. Throws std::invalid_argument for an unknown
  // role, a shape that does not fit, a buffer of another size, a tensor given twice.
  void load(std::string_view role, int layer, TensorType type, std::int64_t rows, std::int64_t columns,
            std::span<const std::uint8_t> source);
  // Throws std::invalid_argument naming the first tensor that is missing. Throws, like `load`, std::runtime_error while
  // another thread uses the model.
  void finish();
  bool finished() const { return finished_; }

  const ModelShape& shape() const { return shape_; }
  const Kernels& kernels() const { return kernels_; }
  const PackFormat& format() const { return format_; }
  WorkerPool& pool() { return pool_; }
  const std::vector<LayerWeights>& layers() const { return layers_; }
  const PackedMatrix& token_embedding() const { return shape_.tied_embeddings ? output_ : embedding_; }
  const PackedMatrix& output() const { return output_; }
  const std::vector<float>& output_norm() const { return output_norm_; }
  const std::vector<double>& rope_frequencies() const {
    return rope_frequencies_;
  }  // (rope_dim / 2,) radians per position
  std::int64_t weight_bytes() const { return weight_bytes_; }

  // Held by whoever uses the pool or the memory behind it. Throws std::runtime_error when taken: one caller at a time.
  class Use {
   public:
    explicit Use(Model& model);
    ~Use() { model_.in_use_.clear(std::memory_order_release); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Model& model_;
  };

 private:
  struct Slot;  // where a role's tensor goes
  Slot find_slot(std::string_view role, int layer);

  const ModelShape shape_;
  const Kernels& kernels_;
  const PackFormat format_;
  std::vector<LayerWeights> layers_;
  PackedMatrix embedding_, output_;
  std::vector<float> output_norm_, rope_factors_;
  std::vector<double> rope_frequencies_;
  std::vector<std::string> loaded_;
  std::int64_t weight_bytes_ = 0;
  Pages memory_;
  bool finished_ = false;
  std::atomic_flag in_use_;
  WorkerPool pool_;
};

}  // namespace headway
