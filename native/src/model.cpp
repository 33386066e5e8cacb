#include "model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace headway {
namespace {

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 24;  // far above any model; keeps products in range
constexpr int kMaxLayers = 4096;  // a job's phases, about ten a layer, are counted in 16 bits
constexpr int kMaxThreads = 1024;

[[noreturn]] void refuse(const std::string& reason) { throw std::invalid_argument(reason); }

void check_dimension(const char* name, std::int64_t value) {
  if (value < 1 || value > kMaxDimension)
    refuse(std::string(name) + " must lie in 1 .. 2^24, not be " + std::to_string(value) + ".");
}

ModelShape checked(const ModelShape& shape) {
  check_dimension("vocab_size", shape.vocab_size);
  check_dimension("max_context", shape.max_context);
  check_dimension("hidden_size", shape.hidden_size);
  check_dimension("num_layers", shape.num_layers);
  if (shape.num_layers > kMaxLayers) refuse("num_layers must be at most 4096.");
  check_dimension("num_heads", shape.num_heads);
  check_dimension("num_kv_heads", shape.num_kv_heads);
  check_dimension("head_dim", shape.head_dim);
  check_dimension("ffn_size", shape.ffn_size);
  check_dimension("num_heads * head_dim", std::int64_t{shape.num_heads} * shape.head_dim);
  if (shape.num_heads % shape.num_kv_heads != 0) refuse("num_heads must be a multiple of num_kv_heads.");
  if (shape.head_dim % 16 != 0) refuse("head_dim must be a multiple of 16.");
  if (shape.rope_dim < 0 || shape.rope_dim > shape.head_dim || shape.rope_dim % 2 != 0)
    refuse("rope_dim must be even and at most head_dim.");
  if (!(shape.norm_epsilon >= 0.0F && shape.norm_epsilon < 1.0F)) refuse("norm_epsilon must lie in [0, 1).");
  if (!(shape.rope_theta > 0.0 && std::isfinite(shape.rope_theta))) refuse("rope_theta must be positive and finite.");
  return shape;
}

const Kernels& choose_kernels(std::string_view isa) {
  const std::vector<std::string> available = available_isas();
  const std::string name = isa == "auto" ? available.back() : std::string(isa);
  if (name != "portable" && name != "avx2" && name != "avx512")
    refuse("Instruction set \"" + name + "\" is unknown; use auto, portable, avx2 or avx512.");
  if (std::find(available.begin(), available.end(), name) == available.end())
    refuse("This processor cannot run the instruction set \"" + name + "\"; use auto.");
#if defined(HEADWAY_X86)
  if (name == "avx512") return avx512_kernels();
  if (name == "avx2") return avx2_kernels();
#endif
  return portable_kernels();
}

PackFormat choose_format(std::string_view weights, int group_size, const Kernels& kernels) {
  if (weights != "bf16" && weights != "int8") refuse("weights must be \"bf16\" or \"int8\".");
  if (group_size != 32 && group_size != 64) refuse("group_size must be 32 or 64.");
  return {weights == "int8" ? WeightFormat::kInt8 : WeightFormat::kBF16, group_size, kernels.weight_bias};
}

int checked_threads(int num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) refuse("threads must lie in 1 .. 1024.");
  return num_threads;
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names{"portable"};
#if defined(HEADWAY_X86)
  const CpuFeatures features = detect_cpu();
  if (features.avx2) names.emplace_back("avx2");
  if (features.avx512) names.emplace_back("avx512");
#endif
  return names;
}

// Either a matrix or a vector.
struct Model::Slot {
  PackedMatrix* matrix = nullptr;
  std::vector<float>* vector = nullptr;
  std::int64_t size = 0;  // of the vector
};

Model::Model(const ModelShape& shape, std::string_view weights, int group_size, std::string_view isa, int num_threads)
    : shape_(checked(shape)),
      kernels_(choose_kernels(isa)),
      format_(choose_format(weights, group_size, kernels_)),
      layers_(static_cast<std::size_t>(shape.num_layers)),
      pool_(checked_threads(num_threads)) {
  const std::int64_t hidden = shape.hidden_size, ffn = shape.ffn_size;
  const std::int64_t heads = std::int64_t{shape.num_heads} * shape.head_dim;
  const std::int64_t kv_heads = std::int64_t{shape.num_kv_heads} * shape.head_dim;
  std::vector<PackedMatrix*> matrices;
  const auto plan = [&](PackedMatrix& matrix, std::int64_t rows, std::int64_t columns) {
    matrix = {format_, rows, columns, nullptr};
    weight_bytes_ += matrix.num_bytes();
    matrices.push_back(&matrix);
  };
  for (LayerWeights& layer : layers_) {  // in the order in which a step reads them
    plan(layer.query, heads, hidden);
    plan(layer.key, kv_heads, hidden);
    plan(layer.value, kv_heads, hidden);
    plan(layer.attention_output, hidden, heads);
    plan(layer.ffn_gate, ffn, hidden);
    plan(layer.ffn_up, ffn, hidden);
    plan(layer.ffn_down, hidden, ffn);
  }
  plan(output_, shape.vocab_size, hidden);
  if (!shape.tied_embeddings) plan(embedding_, shape.vocab_size, hidden);
  memory_ = allocate_pages(static_cast<std::size_t>(weight_bytes_));
  std::uint8_t* next = memory_.get();
  for (PackedMatrix* matrix : matrices) {
    matrix->data = next;
    next += matrix->num_bytes();
  }
}

Model::Slot Model::find_slot(std::string_view role, int layer) {
  const auto matrix = [](PackedMatrix& target) { return Slot{&target, nullptr, 0}; };
  const auto vector = [](std::vector<float>& target, std::int64_t size) { return Slot{nullptr, &target, size}; };
  if (layer < 0) {
    if (role == "token_embedding") return matrix(shape_.tied_embeddings ? output_ : embedding_);
    if (role == "output" && !shape_.tied_embeddings) return matrix(output_);
    if (role == "output_norm") return vector(output_norm_, shape_.hidden_size);
    if (role == "rope_factors") return vector(rope_factors_, shape_.rope_dim / 2);
    refuse("A model has no tensor \"" + std::string(role) + "\" outside its layers.");
  }
  if (layer >= shape_.num_layers)
    refuse("Layer " + std::to_string(layer) + " does not exist; the model has " + std::to_string(shape_.num_layers) +
           ".");
  LayerWeights& weights = layers_[static_cast<std::size_t>(layer)];
  if (role == "attention_norm") return vector(weights.attention_norm, shape_.hidden_size);
  if (role == "query") return matrix(weights.query);
  if (role == "key") return matrix(weights.key);
  if (role == "value") return matrix(weights.value);
  if (role == "attention_output") return matrix(weights.attention_output);
  if (role == "ffn_norm") return vector(weights.ffn_norm, shape_.hidden_size);
  if (role == "ffn_gate") return matrix(weights.ffn_gate);
  if (role == "ffn_up") return matrix(weights.ffn_up);
  if (role == "ffn_down") return matrix(weights.ffn_down);
  refuse("A layer has no tensor \"" + std::string(role) + "\".");
}

void Model::load(std::string_view role, int layer, TensorType type, std::int64_t rows, std::int64_t columns,
                 std::span<const std::uint8_t> source) {
  const Use use(*this);
  const FloatModeScope float_mode;  // vectors are unpacked by the caller's own thread
  if (finished_) refuse("The model is finished; it takes no more tensors.");
  const Slot slot = find_slot(role, layer);
  const std::string name = layer < 0 ? std::string(role) : std::string(role) + " of layer " + std::to_string(layer);
  const std::int64_t want_rows = slot.matrix != nullptr ? slot.matrix->rows : 1;
  const std::int64_t want_columns = slot.matrix != nullptr ? slot.matrix->columns : slot.size;
  if (rows != want_rows || columns != want_columns)
    refuse("Tensor " + name + " must be " + std::to_string(want_rows) + " x " + std::to_string(want_columns) +
           ", not " + std::to_string(rows) + " x " + std::to_string(columns) + ".");
  const std::int64_t want_bytes = rows * row_bytes(type, columns);
  if (static_cast<std::int64_t>(source.size()) != want_bytes)
    refuse("Tensor " + name + " must have " + std::to_string(want_bytes) + " bytes, not " +
           std::to_string(source.size()) + ".");
  if (std::find(loaded_.begin(), loaded_.end(), name) != loaded_.end())
    refuse("Tensor " + name + " was loaded already.");

  if (slot.vector != nullptr) {
    slot.vector->assign(static_cast<std::size_t>(round_up(columns, kRowAlign)), 0.0F);
    dequantize_row(type, source.data(), columns, slot.vector->data());
  } else {
    const PackedMatrix& matrix = *slot.matrix;
    pool_.run([&](WorkerPool::Worker& worker) {
      std::vector<float> row_buffer;
      worker.share(matrix.num_tiles(), Grain::kItem, [&](Range tiles) {
        for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile)
          pack_tile(matrix, tile, type, source.data(), row_buffer);
      });
    });
  }
  loaded_.push_back(name);
}

void Model::finish() {
  const Use use(*this);
  const FloatModeScope float_mode;
  const auto require = [this](const std::string& name) {
    if (std::find(loaded_.begin(), loaded_.end(), name) == loaded_.end()) refuse("Tensor " + name + " is missing.");
  };
  require("token_embedding");
  if (!shape_.tied_embeddings) require("output");
  require("output_norm");
  for (int layer = 0; layer < shape_.num_layers; ++layer)
    for (const char* role :
         {"attention_norm", "query", "key", "value", "attention_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"})
      require(std::string(role) + " of layer " + std::to_string(layer));
  rope_frequencies_.resize(static_cast<std::size_t>(shape_.rope_dim / 2));
  for (std::size_t i = 0; i < rope_frequencies_.size(); ++i) {
    const double factor = rope_factors_.empty() ? 1.0 : static_cast<double>(rope_factors_[i]);
    // Rounded to float: models were trained so, and a last bit of the C library's pow does not show.
    const double frequency = std::pow(shape_.rope_theta, -2.0 * static_cast<double>(i) / shape_.rope_dim) / factor;
    rope_frequencies_[i] = static_cast<double>(static_cast<float>(frequency));
    if (!std::isfinite(rope_frequencies_[i])) refuse("rope_factors must be finite and not zero.");
  }
  finished_ = true;
}

Model::Use::Use(Model& model) : model_(model) {
  if (model.in_use_.test_and_set(std::memory_order_acquire))
    throw std::runtime_error("The model is busy on another thread; it takes one caller at a time.");
}

}  // namespace headway
