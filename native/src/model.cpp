#include "model.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "row_codes.h"

namespace headway {
namespace {

constexpr std::int64_t kMaxPackedBytes = std::int64_t{1} << 46;  // one matrix is at most 2^50: sums do not overflow

[[noreturn]] void refuse(const std::string& reason) { throw std::invalid_argument(reason); }

std::string name_of(const TensorPlace& place) {
  std::string name(place.role);
  if (place.expert >= 0) name += " of expert " + std::to_string(place.expert);
  if (place.layer >= 0) name += " of layer " + std::to_string(place.layer);
  return name;
}

PackFormat choose_format(std::string_view weights, int group_size, std::string_view activations,
                         const Kernels& kernels) {
  PackFormat format = checked_format(weights, group_size, kernels.weight_bias);
  if (activations != "f32" && activations != "bf16") refuse("activations must be \"f32\" or \"bf16\".");
  format.halves = activations == "bf16" && !format.integers();
  if (format.halves && kernels.round_to_halves == nullptr)
    refuse("The instruction set \"" + std::string(kernels.name) + "\" has no products of bf16 activations; use f32.");
  return format;
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names{"portable"};
#if defined(HEADWAY_X86)
  const CpuFeatures features = detect_cpu();
  if (features.avx2) names.emplace_back("avx2");
  if (features.avx512) names.emplace_back("avx512");
  if (features.avx512bf16) names.emplace_back("avx512bf16");
#endif
  return names;
}

const Kernels& choose_kernels(std::string_view isa) {
  const std::vector<std::string> available = available_isas();
  const std::string name = isa == "auto" ? available.back() : std::string(isa);
  if (name != "portable" && name != "avx2" && name != "avx512" && name != "avx512bf16")
    refuse("Instruction set \"" + name + "\" is unknown; use auto, portable, avx2, avx512 or avx512bf16.");
  if (std::find(available.begin(), available.end(), name) == available.end())
    refuse("This processor cannot run the instruction set \"" + name + "\"; use auto.");
#if defined(HEADWAY_X86)
  if (name == "avx512bf16") return avx512bf16_kernels();
  if (name == "avx512") return avx512_kernels();
  if (name == "avx2") return avx2_kernels();
#endif
  return portable_kernels();
}

// A matrix, a vector, or the router's floats.
struct Model::Slot {
  PackedMatrix* matrix = nullptr;
  PaddedVector* vector = nullptr;
  std::vector<float>* router = nullptr;
  std::int64_t rows = 1, columns = 0;
};

Model::Model(const ModelShape& shape, std::string_view weights, int group_size, std::string_view activations,
             std::string_view isa, int num_threads)
    : shape_(checked_shape(shape)),
      roles_(layer_roles(shape_)),
      kernels_(choose_kernels(isa)),
      format_(choose_format(weights, group_size, activations, kernels_)),
      layers_(static_cast<std::size_t>(shape.num_layers)),
      pool_(num_threads) {
  // Room for the largest format that a matrix may come to have: what is never touched costs nothing.
  constexpr TensorType kFileTypes[] = {TensorType::kF32, TensorType::kQ4_0, TensorType::kQ4_1};
  std::int64_t most_bytes = 0;
  const auto plan = [&](PackedMatrix& matrix, std::int64_t rows, std::int64_t columns) {
    matrix.pack = format_;
    matrix.rows = rows;
    matrix.columns = columns;
    std::int64_t matrix_bytes = 0;
    for (const TensorType type : kFileTypes) {
      matrix.choose_format(type);
      matrix_bytes = std::max(matrix_bytes, matrix.num_bytes());
    }
    most_bytes += matrix_bytes;
    if (most_bytes > kMaxPackedBytes) refuse("The weights of this shape would exceed 64 TiB.");
  };
  for (LayerWeights& layer : layers_) {
    for (const MatrixRole& role : roles_.matrices) plan(layer.*role.matrix, role.rows, role.columns);
    layer.ffn.resize(static_cast<std::size_t>(std::max(1, shape.num_experts)));
    for (FeedForward& ffn : layer.ffn)
      for (const FeedForwardRole& role : roles_.feed_forward) plan(ffn.*role.matrix, role.rows, role.columns);
  }
  plan(output_, shape.vocab_size, shape.hidden_size);
  if (!shape.tied_embeddings) plan(embedding_, shape.vocab_size, shape.hidden_size);
  memory_ = allocate_pages(static_cast<std::size_t>(most_bytes));
  router_bytes_ = shape.num_layers * round_up(shape.num_experts, kTileColumns) * shape.hidden_size *
                  static_cast<std::int64_t>(sizeof(float));
  weight_bytes_ = most_bytes + router_bytes_;
}

Model::Slot Model::find_slot(const TensorPlace& place) {
  const std::string_view role = place.role;
  const auto matrix = [](PackedMatrix& target) { return Slot{&target, nullptr, nullptr, target.rows, target.columns}; };
  const auto vector = [](PaddedVector& target, std::int64_t size) { return Slot{nullptr, &target, nullptr, 1, size}; };
  if (place.layer < 0) {
    if (place.expert >= 0) refuse("Experts lie within layers.");
    if (role == "token_embedding") return matrix(shape_.tied_embeddings ? output_ : embedding_);
    if (role == "output" && !shape_.tied_embeddings) return matrix(output_);
    if (role == "output_norm") return vector(output_norm_, shape_.hidden_size);
    refuse("A model has no tensor \"" + std::string(role) + "\" outside its layers.");
  }
  if (place.layer >= shape_.num_layers)
    refuse("Layer " + std::to_string(place.layer) + " does not exist; the model has " +
           std::to_string(shape_.num_layers) + ".");
  LayerWeights& weights = layers_[static_cast<std::size_t>(place.layer)];
  for (const FeedForwardRole& known : roles_.feed_forward) {
    if (role != known.name) continue;
    if ((place.expert >= 0) != (shape_.num_experts > 0) || place.expert >= std::max(1, shape_.num_experts))
      refuse("Tensor " + name_of(place) + " does not exist; a layer has " + std::to_string(shape_.num_experts) +
             " experts.");
    return matrix(weights.ffn[static_cast<std::size_t>(std::max(0, place.expert))].*known.matrix);
  }
  if (place.expert >= 0) refuse("Tensor " + name_of(place) + " does not exist: that role has no experts.");
  for (const MatrixRole& known : roles_.matrices)
    if (role == known.name) return matrix(weights.*known.matrix);
  for (const VectorRole& known : roles_.vectors)
    if (role == known.name) return vector(weights.*known.vector, known.size);
  if (role == "router" && shape_.num_experts > 0)
    return {nullptr, nullptr, &weights.router, shape_.num_experts, shape_.hidden_size};
  refuse("A layer of this model has no tensor \"" + std::string(role) + "\".");
}

void Model::load(const TensorPlace& place, TensorType type, std::int64_t first_row, std::int64_t rows,
                 std::int64_t columns, std::span<const std::uint8_t> source, float add) {
  const Use use(*this);
  const FloatModeScope float_mode;  // vectors are unpacked by the caller's own thread
  if (finished_) refuse("The model is finished; it takes no more tensors.");
  const Slot slot = find_slot(place);
  const std::string name = name_of(place);
  const auto known = loaded_rows_.find(name);
  const std::int64_t next_row = known == loaded_rows_.end() ? 0 : known->second;
  if (next_row == slot.rows) refuse("Tensor " + name + " was loaded already.");
  const std::int64_t left = slot.rows - next_row;
  if (rows < 1 || rows > left || columns != slot.columns || (rows < left && rows % kTileColumns != 0))
    refuse("Tensor " + name + " must be " + std::to_string(slot.rows) + " x " + std::to_string(slot.columns) +
           ", not " + std::to_string(rows) + " x " + std::to_string(columns) + ".");
  if (first_row != next_row)
    refuse("Tensor " + name + " goes on with row " + std::to_string(next_row) + ", not " + std::to_string(first_row) +
           ".");
  const std::int64_t source_row_bytes = row_bytes(type, columns), want_bytes = rows * source_row_bytes;
  if (static_cast<std::int64_t>(source.size()) != want_bytes)
    refuse("Tensor " + name + " must have " + std::to_string(want_bytes) + " bytes, not " +
           std::to_string(source.size()) + ".");
  if (add != 0.0F && slot.vector == nullptr) refuse("Tensor " + name + " is no vector; nothing can be added to it.");

  std::atomic<bool> sound{true};
  if (slot.vector != nullptr) {
    slot.vector->assign(static_cast<std::size_t>(round_up(columns, kRowAlign)), 0.0F);
    dequantize_row(type, source.data(), columns, slot.vector->data());
    if (add != 0.0F)
      for (std::int64_t i = 0; i < columns; ++i) (*slot.vector)[static_cast<std::size_t>(i)] += add;
    sound = are_sound(slot.vector->data(), columns);
  } else if (slot.router != nullptr) {
    std::vector<float> row(static_cast<std::size_t>(columns));
    for (std::int64_t i = 0; i < rows; ++i) {
      dequantize_row(type, source.data() + i * source_row_bytes, columns, row.data());
      if (!are_sound(row.data(), columns)) sound = false;
      pack_router_row(shape_, row.data(), first_row + i, *slot.router);
    }
  } else {
    PackedMatrix& matrix = *slot.matrix;
    if (matrix.data == nullptr) {  // matrices lie in the order in which they come
      matrix.choose_format(type);
      matrix.data = memory_.get() + packed_bytes_;
      packed_bytes_ += matrix.num_bytes();
    }
    const std::int64_t first_tile = first_row / kTileColumns, num_tiles = (rows + kTileColumns - 1) / kTileColumns;
    pool_.run([&](WorkerPool::Worker& worker) {
      PackScratch scratch;
      worker.share(num_tiles, Grain::kItem, [&](Range tiles) {
        for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile)
          if (!pack_tile(matrix, first_tile + tile, type, source.data() + tile * kTileColumns * source_row_bytes,
                         scratch))
            sound.store(false, std::memory_order_relaxed);
      });
    });
  }
  if (!sound) refuse("Tensor " + name + " holds values that are not numbers, infinite, or beyond 1e30.");
  loaded_rows_[name] = first_row + rows;
}

void Model::require(const TensorPlace& place) {
  const std::string name = name_of(place);
  const auto known = loaded_rows_.find(name);
  if (known == loaded_rows_.end()) refuse("Tensor " + name + " is missing.");
  if (known->second < find_slot(place).rows)
    refuse("Tensor " + name + " ends after row " + std::to_string(known->second) + ".");
}

void Model::finish() {
  const Use use(*this);
  require({"token_embedding"});
  if (!shape_.tied_embeddings) require({"output"});
  require({"output_norm"});
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    for (const VectorRole& role : roles_.vectors) require({role.name, layer});
    for (const MatrixRole& role : roles_.matrices) require({role.name, layer});
    if (shape_.num_experts > 0) require({"router", layer});
    for (int i = 0; i < std::max(1, shape_.num_experts); ++i)
      for (const FeedForwardRole& role : roles_.feed_forward)
        require({role.name, layer, shape_.num_experts > 0 ? i : -1});
  }
  loaded_rows_.clear();
  weight_bytes_ = packed_bytes_ + router_bytes_;
  finished_ = true;
}

Model::Use::Use(Model& model) : model_(model) {
  if (model.in_use_.test_and_set(std::memory_order_acquire))
    throw std::runtime_error("The model is busy on another thread; it takes one caller at a time.");
}

}  // namespace headway
