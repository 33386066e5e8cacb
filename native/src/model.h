// A decoder's weights in memory, packed as the instruction set wants them, and the threads that compute with them.
//
// It knows no file format: tensors arrive one by one, by role, as bytes of a storage type.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "platform/platform.h"
#include "weights.h"
#include "worker_pool.h"

namespace headway {

// Names of the instruction sets this machine can run, worst to best.
std::vector<std::string> available_isas();

// Which of a model's tensors: `headway.core.plan.TensorRef`.
struct TensorPlace {
  std::string_view role;
  int layer = -1;   // -1 outside the layers
  int expert = -1;  // -1 where the role has none
};

class Model {
 public:
  // weights: "auto", "bf16", "int8", "int4" or "nf4"; isa: "auto" or one of `available_isas()`. Throws std::invalid_argument.
  Model(const ModelShape& shape, std::string_view weights, int group_size, std::string_view isa, int num_threads);

  // Packs rows [first_row, first_row + rows) of one tensor, in parallel; they come in ascending order and, but for the
  // last, by whole tiles. Vectors come at once. Throws std::invalid_argument for an unknown role, a shape that does not
  // fit, a buffer of another size, rows given twice.
  void load(const TensorPlace& place, TensorType type, std::int64_t first_row, std::int64_t rows, std::int64_t columns,
            std::span<const std::uint8_t> source, float add = 0.0F);
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
  const PaddedVector& output_norm() const { return output_norm_; }
  // Before `finish` the most that the weights may take.
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
  struct Slot;  // where a tensor goes
  Slot find_slot(const TensorPlace& place);
  void require(const TensorPlace& place);

  const ModelShape shape_;
  const LayerRoles roles_;
  const Kernels& kernels_;
  const PackFormat format_;
  std::vector<LayerWeights> layers_;
  PackedMatrix embedding_, output_;
  PaddedVector output_norm_;
  std::map<std::string, std::int64_t, std::less<>> loaded_rows_;  // by the tensor's name
  std::int64_t weight_bytes_ = 0, router_bytes_ = 0;
  std::int64_t packed_bytes_ = 0;  // so far, at the start of `memory_`
  Pages memory_;
  bool finished_ = false;
  std::atomic_flag in_use_;
  WorkerPool pool_;
};

}  // namespace headway
