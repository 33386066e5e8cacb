// One step as flat arrays (`headway.runner.step`), borrowed from the caller, and the check that they mean something.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv_cache.h"
#include "sampling/sampler.h"

namespace headway {

using Ints = std::span<const std::int32_t>;
using Floats = std::span<const float>;

enum class OutputKind : std::int32_t { kLogits = 0, kHidden = 1 };

struct Step {
  Ints tokens, positions, sequence_starts, context_lens, block_table, block_table_starts, adapter_ids, output_rows,
      output_kinds;

  std::int64_t num_tokens() const { return std::ssize(tokens); }
  std::int64_t num_sequences() const { return std::ssize(context_lens); }
};

// `SamplingBatch`, S rows.
struct SamplingArrays {
  Floats temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, bias_values;
  Ints top_k, choices, positions, num_logprobs, history_starts, history, history_prompt_lens, bias_starts, bias_ids,
      mask_rows;
  std::span<const std::uint64_t> seeds;
  std::span<const std::uint32_t> masks;
};

// Throws std::invalid_argument with a sentence unless every array of the step fits the model, the cache and the others.
// `holders` is scratch.
void check_step(const Step& step, const KvCache& cache, std::vector<std::uint8_t>& holders);

// Fills `rows` with those of a batch, checked: throws std::invalid_argument unless there are `num_rows` sound ones.
void sampling_rows(const SamplingArrays& arrays, std::int64_t num_rows, std::int32_t vocab_size,
                   std::vector<SamplingRow>& rows);

}  // namespace headway
