// The Python module `headway._native`. The only file that knows nanobind; it checks types and lets go of the GIL, no
// more.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <thread>

#include "forward.h"
#include "kv_cache.h"
#include "machine_limits.h"
#include "model.h"
#include "tensor_types.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace headway {
namespace {

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IntArray = Array<std::int32_t>;
using FloatArray = Array<float>;
using ByteArray = Array<std::uint8_t>;

template <class T>
std::span<const T> view(const Array<T>& array) {
  return {array.data(), array.size()};
}

// Lets go of the GIL while it lives.
//
// nanobind's own does, too, but Python before 3.14 ends a thread that wants the GIL back while the interpreter shuts
// down by unwinding its stack, which C++ answers with an abort of the process. Here such a thread sleeps until the
// process ends, as it does from Python 3.14 on.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

nb::bytes to_bytes(const std::vector<float>& values) { return nb::bytes(values.data(), values.size() * sizeof(float)); }

// (dim, interleaved, frequencies, scale) and (rope, window) of `headway.core.plan`.
using RopeTuple = std::tuple<int, bool, std::vector<double>, double>;
using LayerTuple = std::tuple<int, std::optional<int>>;

std::vector<Rope> to_ropes(const std::vector<RopeTuple>& tuples) {
  std::vector<Rope> ropes;
  for (const auto& [dim, interleaved, frequencies, scale] : tuples)
    ropes.push_back({dim, interleaved, frequencies, scale});
  return ropes;
}

std::vector<LayerShape> to_layers(const std::vector<LayerTuple>& tuples) {
  std::vector<LayerShape> layers;
  for (const auto& [rope, window] : tuples) {
    if (window.has_value() && *window < 1)
      throw std::invalid_argument("A layer's window must be at least 1, not " + std::to_string(*window) + ".");
    layers.push_back({rope, window.value_or(0)});
  }
  return layers;
}

Activation to_activation(const std::string& name) {
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu_tanh") return Activation::kGeluTanh;
  throw std::invalid_argument("activation must be \"silu\" or \"gelu_tanh\".");
}

void load(Model& model, const std::string& role, std::optional<int> layer, std::optional<int> expert, int type,
          std::int64_t first_row, std::int64_t rows, std::int64_t columns, const ByteArray& data, float add) {
  if (layer.value_or(0) < 0) throw std::invalid_argument("layer must not be negative.");
  if (expert.value_or(0) < 0) throw std::invalid_argument("expert must not be negative.");
  const GilRelease release;
  model.load({role, layer.value_or(-1), expert.value_or(-1)}, static_cast<TensorType>(type), first_row, rows, columns,
             view(data), add);
}

std::int64_t packed_bytes(const std::string& weights, int group_size, int tensor_type, std::int64_t rows,
                          std::int64_t columns) {
  const auto type = static_cast<TensorType>(tensor_type);
  if (rows < 1 || columns < 1) throw std::invalid_argument("A matrix has at least one row and one column.");
  row_bytes(type, columns);  // refuses what no file can hold
  PackedMatrix matrix;
  matrix.pack = checked_format(weights, group_size, 0);
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.choose_format(type);
  return matrix.num_bytes();
}

nb::tuple phases(const Runner& runner) {
  const PhaseTotals& totals = runner.phases();
  nb::dict times;
  for (std::size_t i = 0; i < kNumPhases; ++i) times[kPhaseNames[i]] = totals.times[i];
  return nb::make_tuple(totals.num_steps, totals.steps_ns, times);
}

nb::bytes dequantize(int tensor_type, std::int64_t columns, const ByteArray& data) {
  const auto type = static_cast<TensorType>(tensor_type);
  if (columns < 1 || static_cast<std::int64_t>(data.size()) != row_bytes(type, columns))
    throw std::invalid_argument("data must be the bytes of a row of that many columns.");
  std::vector<float> values(static_cast<std::size_t>(columns));
  dequantize_row(type, data.data(), columns, values.data());
  return to_bytes(values);
}

nb::tuple execute(Runner& runner, const IntArray& tokens, const IntArray& positions, const IntArray& sequence_starts,
                  const IntArray& context_lens, const IntArray& block_table, const IntArray& block_table_starts,
                  const IntArray& adapter_ids, const IntArray& output_rows, const IntArray& output_kinds,
                  const FloatArray& temperature, const IntArray& top_k, const FloatArray& top_p,
                  const FloatArray& min_p, const FloatArray& repetition_penalty, const FloatArray& presence_penalty,
                  const FloatArray& frequency_penalty, const Array<std::uint64_t>& seeds, const IntArray& choices,
                  const IntArray& sampling_positions, const IntArray& num_logprobs, const IntArray& history_starts,
                  const IntArray& history, const IntArray& history_prompt_lens, const IntArray& bias_starts,
                  const IntArray& bias_ids, const FloatArray& bias_values, const IntArray& mask_rows,
                  const Array<std::uint32_t>& masks) {
  const Step step{view(tokens),       view(positions),   view(sequence_starts),
                  view(context_lens), view(block_table), view(block_table_starts),
                  view(adapter_ids),  view(output_rows), view(output_kinds)};
  SamplingArrays sampling;
  sampling.temperature = view(temperature);
  sampling.top_k = view(top_k);
  sampling.top_p = view(top_p);
  sampling.min_p = view(min_p);
  sampling.repetition_penalty = view(repetition_penalty);
  sampling.presence_penalty = view(presence_penalty);
  sampling.frequency_penalty = view(frequency_penalty);
  sampling.seeds = view(seeds);
  sampling.choices = view(choices);
  sampling.positions = view(sampling_positions);
  sampling.num_logprobs = view(num_logprobs);
  sampling.history_starts = view(history_starts);
  sampling.history = view(history);
  sampling.history_prompt_lens = view(history_prompt_lens);
  sampling.bias_starts = view(bias_starts);
  sampling.bias_ids = view(bias_ids);
  sampling.bias_values = view(bias_values);
  sampling.mask_rows = view(mask_rows);
  sampling.masks = view(masks);
  StepOutput output;
  {
    const GilRelease release;
    output = runner.execute(step, sampling);
  }
  nb::list ids, logprobs;
  for (std::size_t i = 0; i < output.sampled.size(); ++i) {
    const SampledToken& token = output.sampled[i];
    ids.append(token.token_id);
    if (sampling.num_logprobs[i] < 0 || token.status != SampleStatus::kOk) {
      logprobs.append(nb::none());
      continue;
    }
    nb::list top;
    for (const TokenLogprob& entry : token.top) top.append(nb::make_tuple(entry.token_id, entry.logprob));
    logprobs.append(nb::make_tuple(token.logprob, nb::tuple(top)));
  }
  return nb::make_tuple(ids, logprobs, to_bytes(output.hidden));
}

nb::bytes forward(Runner& runner, const IntArray& tokens, const IntArray& positions, const IntArray& sequence_starts,
                  const IntArray& context_lens, const IntArray& block_table, const IntArray& block_table_starts,
                  const IntArray& adapter_ids, const IntArray& output_rows, const IntArray& output_kinds) {
  const Step step{view(tokens),       view(positions),   view(sequence_starts),
                  view(context_lens), view(block_table), view(block_table_starts),
                  view(adapter_ids),  view(output_rows), view(output_kinds)};
  StepOutput output;
  {
    const GilRelease release;
    output = runner.forward(step);
  }
  return to_bytes(output.logits);
}

void bind_model(nb::module_& module) {
  nb::class_<Model>(module, "Model", "Weights of a decoder, packed; made from tensors by `load`, then `finish`.")
      .def(
          "__init__",
          [](Model* self, int vocab_size, int max_context, int hidden_size, int num_layers, int num_heads,
             int num_kv_heads, int head_dim, int ffn_size, float norm_epsilon, bool tied_embeddings,
             const std::vector<RopeTuple>& ropes, const std::vector<LayerTuple>& layers, const std::string& activation,
             std::optional<double> attention_scale, std::optional<double> attention_softcap,
             std::optional<double> logit_softcap, double embedding_scale, bool qkv_bias, bool qk_norm, bool post_norms,
             int num_experts, int num_experts_per_token, bool normalize_experts, const std::string& weights,
             int group_size, const std::string& activations, const std::string& isa, int threads) {
            const ModelShape shape{vocab_size,
                                   max_context,
                                   hidden_size,
                                   num_layers,
                                   num_heads,
                                   num_kv_heads,
                                   head_dim,
                                   ffn_size,
                                   norm_epsilon,
                                   tied_embeddings,
                                   to_ropes(ropes),
                                   to_layers(layers),
                                   to_activation(activation),
                                   attention_scale,
                                   attention_softcap,
                                   logit_softcap,
                                   embedding_scale,
                                   qkv_bias,
                                   qk_norm,
                                   post_norms,
                                   num_experts,
                                   num_experts_per_token,
                                   normalize_experts};
            new (self) Model(shape, weights, group_size, activations, isa, threads);
          },
          nb::kw_only(), "vocab_size"_a, "max_context"_a, "hidden_size"_a, "num_layers"_a, "num_heads"_a,
          "num_kv_heads"_a, "head_dim"_a, "ffn_size"_a, "norm_epsilon"_a, "tied_embeddings"_a, "ropes"_a, "layers"_a,
          "activation"_a, "attention_scale"_a.none(), "attention_softcap"_a.none(), "logit_softcap"_a.none(),
          "embedding_scale"_a, "qkv_bias"_a, "qk_norm"_a, "post_norms"_a, "num_experts"_a, "num_experts_per_token"_a,
          "normalize_experts"_a, "weights"_a, "group_size"_a, "activations"_a = "f32",
          "isa"_a, "threads"_a)
      .def("load", &load, nb::kw_only(), "role"_a, "layer"_a.none(), "expert"_a.none() = nb::none(), "tensor_type"_a,
           "first_row"_a = 0, "rows"_a, "columns"_a, "data"_a, "add"_a = 0.0F,
           "Pack rows of one tensor; `data` holds their bytes in storage type `tensor_type`. Raises ValueError.")
      .def("finish", &Model::finish, "Raise ValueError if a tensor is missing; afterwards the model can run.")
      .def_prop_ro("isa", [](const Model& model) { return model.kernels().name; })
      .def_prop_ro("threads", [](Model& model) { return model.pool().size(); })
      .def_prop_ro("weight_bytes", &Model::weight_bytes);
}

void bind_kv_cache(nb::module_& module) {
  nb::class_<KvCache>(module, "KvCache", "Keys and values in blocks of `block_size` positions, a multiple of 16.")
      .def(nb::init<std::shared_ptr<Model>, std::int64_t, std::int64_t, std::string_view>(), "model"_a, nb::kw_only(),
           "num_blocks"_a, "block_size"_a = kPartTokens, "dtype"_a = "bf16")
      .def_prop_ro("model", &KvCache::shared_model)
      .def_prop_ro("num_blocks", &KvCache::num_blocks)
      .def_prop_ro("block_bytes", &KvCache::block_bytes)
      .def(
          "read_block",
          [](const KvCache& cache, std::int64_t block) {
            PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(cache.block_bytes()));
            if (bytes == nullptr) throw nb::python_error();
            auto result = nb::steal<nb::bytes>(bytes);
            auto* data = reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(bytes));
            cache.read_block(block, {data, static_cast<std::size_t>(cache.block_bytes())});
            return result;
          },
          "block"_a, "Return a block's raw bytes. Raises IndexError.")
      .def(
          "write_block",
          [](KvCache& cache, std::int64_t block, const ByteArray& data) { cache.write_block(block, view(data)); },
          "block"_a, "data"_a, "Overwrite a block with bytes that `read_block` gave. Raises IndexError, ValueError.")
      .def("copy_block", &KvCache::copy_block, "source"_a, "target"_a, "Copy a block onto another. Raises IndexError.")
      .def("bind_block", &KvCache::bind_block, "block"_a, "Give a block its memory before it is used. Raises IndexError.");
}

void bind_runner(nb::module_& module) {
  nb::class_<Runner>(module, "Runner", "Computes steps: see headway.runner.step.")
      .def(nb::init<std::shared_ptr<KvCache>>(), "cache"_a)
      .def("execute", &execute, nb::kw_only(), "tokens"_a, "positions"_a, "sequence_starts"_a, "context_lens"_a,
           "block_table"_a, "block_table_starts"_a, "adapter_ids"_a, "output_rows"_a, "output_kinds"_a, "temperature"_a,
           "top_k"_a, "top_p"_a, "min_p"_a, "repetition_penalty"_a, "presence_penalty"_a, "frequency_penalty"_a,
           "seeds"_a, "choices"_a, "sampling_positions"_a, "num_logprobs"_a, "history_starts"_a, "history"_a,
           "history_prompt_lens"_a, "bias_starts"_a, "bias_ids"_a, "bias_values"_a, "mask_rows"_a, "masks"_a,
           "Return (token ids, logprobs, hidden bytes). A token is -1 where no token was allowed; logprobs has, per "
           "row,\n"
           "None or (logprob, ((id, logprob), ...)). Raises ValueError; nothing is computed then.")
      .def("forward", &forward, nb::kw_only(), "tokens"_a, "positions"_a, "sequence_starts"_a, "context_lens"_a,
           "block_table"_a, "block_table_starts"_a, "adapter_ids"_a, "output_rows"_a, "output_kinds"_a,
           "Compute a step without sampling; return the logits of its rows of kind logits as float32 bytes.")
      .def("time_phases", &Runner::time_phases, "on"_a, "Switch phase timers on or off; forget what they counted.")
      .def("phases", &phases, "Return (number of steps, their nanoseconds, {phase: nanoseconds}) since time_phases.");
}

void bind_limits(nb::module_& module) {
  nb::class_<MachineLimits>(module, "MachineLimits", "What the machine can do at most: one run a call.")
      .def(nb::init<std::string_view, int, std::int64_t>(), nb::kw_only(), "isa"_a, "threads"_a, "num_bytes"_a,
           nb::call_guard<GilRelease>())
      .def_prop_ro("isa", &MachineLimits::isa)
      .def("int8_ops_per_s", &MachineLimits::int8_ops_per_s, "duration_s"_a, nb::call_guard<GilRelease>())
      .def("float_ops_per_s", &MachineLimits::float_ops_per_s, "duration_s"_a, nb::call_guard<GilRelease>())
      .def("read_bytes_per_s", &MachineLimits::read_bytes_per_s, nb::call_guard<GilRelease>());
}

}  // namespace
}  // namespace headway

NB_MODULE(_native, module) {
  module.attr("NUMERICS_VERSION") = headway::kNumericsVersion;
  module.def("available_isas", &headway::available_isas,
             "Names of the instruction sets this machine can run, worst to best.");
  module.def("packed_bytes", &headway::packed_bytes, nb::kw_only(), "weights"_a, "group_size"_a, "tensor_type"_a,
             "rows"_a, "columns"_a, "Return the bytes of a packed matrix. Raises ValueError.");
  module.def("dequantize", &headway::dequantize, nb::kw_only(), "tensor_type"_a, "columns"_a, "data"_a,
             "Return one row in storage type `tensor_type` as float32 bytes. Raises ValueError.");
  headway::bind_model(module);
  headway::bind_kv_cache(module);
  headway::bind_runner(module);
  headway::bind_limits(module);
}
