#include "step.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace headway {
namespace {

[[noreturn]] void refuse(const std::string& reason) { throw std::invalid_argument(reason); }

std::string text(std::int64_t value) { return std::to_string(value); }

void require_size(const char* name, std::size_t size, std::int64_t want) {
  if (static_cast<std::int64_t>(size) != want)
    refuse(std::string(name) + " must have " + text(want) + " items, not " + text(static_cast<std::int64_t>(size)) +
           ".");
}

// `starts` divides an array of `total` items into `count` runs.
void require_starts(const char* name, Ints starts, std::int64_t count, std::int64_t total) {
  require_size(name, starts.size(), count + 1);
  if (starts.front() != 0 || starts.back() != total)
    refuse(std::string(name) + " must begin with 0 and end with " + text(total) + ".");
  for (std::size_t i = 1; i < starts.size(); ++i)
    if (starts[i] < starts[i - 1]) refuse(std::string(name) + " must not fall.");
}

void check_sequence(const Step& step, std::size_t b, const KvCache& cache) {
  const ModelShape& shape = cache.model().shape();
  const std::int64_t begin = step.sequence_starts[b], end = step.sequence_starts[b + 1];
  const std::int64_t context = step.context_lens[b], length = context + (end - begin);
  const auto name = [b] { return "Sequence " + text(static_cast<std::int64_t>(b)); };
  if (context < 0) refuse(name() + " has a negative context length.");
  if (length > shape.max_context)
    refuse(name() + " would reach " + text(length) + " positions; the model has " + text(shape.max_context) + ".");
  for (std::int64_t t = begin; t < end; ++t)
    if (step.positions[static_cast<std::size_t>(t)] != context + (t - begin))
      refuse(name() + ": positions must be consecutive from the context length.");
  const std::int64_t num_blocks = step.block_table_starts[b + 1] - step.block_table_starts[b];
  const std::int64_t needed = (length + cache.block_size() - 1) / cache.block_size();
  if (num_blocks < needed) refuse(name() + " needs " + text(needed) + " blocks and has " + text(num_blocks) + ".");
}

// A block that one sequence writes may be in no other place of the tables: what is read there would depend on who is
// first.
void check_sharing(const Step& step, const KvCache& cache, std::vector<std::uint8_t>& holders) {
  holders.assign(static_cast<std::size_t>(cache.num_blocks()), 0);  // 2 stands for more, too
  for (const std::int32_t block : step.block_table) {
    std::uint8_t& count = holders[static_cast<std::size_t>(block)];
    count = count == 0 ? 1 : 2;
  }
  for (std::size_t b = 0; b < static_cast<std::size_t>(step.num_sequences()); ++b) {
    const std::int64_t context = step.context_lens[b];
    const std::int64_t length = context + step.sequence_starts[b + 1] - step.sequence_starts[b];
    for (std::int64_t i = context / cache.block_size(); i * cache.block_size() < length && length > context; ++i) {
      const std::int32_t block = step.block_table[static_cast<std::size_t>(step.block_table_starts[b] + i)];
      if (holders[static_cast<std::size_t>(block)] > 1)
        refuse("Block " + text(block) + " would be written by one sequence and is held elsewhere, too.");
    }
  }
}

}  // namespace

void check_step(const Step& step, const KvCache& cache, std::vector<std::uint8_t>& holders) {
  const std::int64_t num_tokens = step.num_tokens(), num_sequences = step.num_sequences();
  require_size("positions", step.positions.size(), num_tokens);
  require_starts("sequence_starts", step.sequence_starts, num_sequences, num_tokens);
  require_starts("block_table_starts", step.block_table_starts, num_sequences, std::ssize(step.block_table));
  require_size("adapter_ids", step.adapter_ids.size(), num_sequences);
  require_size("output_kinds", step.output_kinds.size(), std::ssize(step.output_rows));
  for (const std::int32_t token : step.tokens)
    if (token < 0 || token >= cache.model().shape().vocab_size)
      refuse("Token " + text(token) + " is not in the vocabulary.");
  for (const std::int32_t adapter : step.adapter_ids)
    if (adapter != 0) refuse("Adapter " + text(adapter) + " is not loaded; only 0, the base model, is.");
  std::int64_t previous = -1;
  for (const std::int32_t row : step.output_rows) {
    if (row <= previous || row >= num_tokens) refuse("output_rows must rise and lie within the step's tokens.");
    previous = row;
  }
  for (const std::int32_t kind : step.output_kinds)
    if (kind != static_cast<std::int32_t>(OutputKind::kLogits) &&
        kind != static_cast<std::int32_t>(OutputKind::kHidden))
      refuse("output_kinds must be 0 (logits) or 1 (hidden).");
  for (const std::int32_t block : step.block_table)
    if (block < 0 || block >= cache.num_blocks())
      refuse("A sequence names block " + text(block) + ", which does not exist.");
  for (std::size_t b = 0; b < static_cast<std::size_t>(num_sequences); ++b) check_sequence(step, b, cache);
  check_sharing(step, cache, holders);
}

void sampling_rows(const SamplingArrays& arrays, std::int64_t num_rows, std::int32_t vocab_size,
                   std::vector<SamplingRow>& rows) {
  require_size("temperature", arrays.temperature.size(), num_rows);
  require_size("top_k", arrays.top_k.size(), num_rows);
  require_size("top_p", arrays.top_p.size(), num_rows);
  require_size("min_p", arrays.min_p.size(), num_rows);
  require_size("repetition_penalty", arrays.repetition_penalty.size(), num_rows);
  require_size("presence_penalty", arrays.presence_penalty.size(), num_rows);
  require_size("frequency_penalty", arrays.frequency_penalty.size(), num_rows);
  require_size("seeds", arrays.seeds.size(), num_rows);
  require_size("choices", arrays.choices.size(), num_rows);
  require_size("sampling positions", arrays.positions.size(), num_rows);
  require_size("num_logprobs", arrays.num_logprobs.size(), num_rows);
  require_starts("history_starts", arrays.history_starts, num_rows, std::ssize(arrays.history));
  require_size("history_prompt_lens", arrays.history_prompt_lens.size(), num_rows);
  require_starts("bias_starts", arrays.bias_starts, num_rows, std::ssize(arrays.bias_ids));
  require_size("bias_values", arrays.bias_values.size(), std::ssize(arrays.bias_ids));
  require_size("mask_rows", arrays.mask_rows.size(), num_rows);
  const std::int64_t mask_words = (std::int64_t{vocab_size} + 31) / 32;
  const std::int64_t num_masks = std::ssize(arrays.masks) / mask_words;
  require_size("masks", arrays.masks.size(), num_masks * mask_words);

  rows.resize(static_cast<std::size_t>(num_rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SamplingRow& row = rows[i];
    row.temperature = arrays.temperature[i];
    row.top_k = arrays.top_k[i];
    row.top_p = arrays.top_p[i];
    row.min_p = arrays.min_p[i];
    row.repetition_penalty = arrays.repetition_penalty[i];
    row.presence_penalty = arrays.presence_penalty[i];
    row.frequency_penalty = arrays.frequency_penalty[i];
    row.seed = arrays.seeds[i];
    row.choice = arrays.choices[i];
    row.position = arrays.positions[i];
    row.num_logprobs = arrays.num_logprobs[i];
    row.history = arrays.history.data() + arrays.history_starts[i];
    row.history_len = arrays.history_starts[i + 1] - arrays.history_starts[i];
    row.history_prompt_len = arrays.history_prompt_lens[i];
    row.bias_ids = arrays.bias_ids.data() + arrays.bias_starts[i];
    row.bias_values = arrays.bias_values.data() + arrays.bias_starts[i];
    row.bias_len = arrays.bias_starts[i + 1] - arrays.bias_starts[i];
    const std::int32_t mask = arrays.mask_rows[i];
    if (mask < -1 || mask >= num_masks) refuse("mask_rows names mask " + text(mask) + ", which does not exist.");
    row.mask = mask < 0 ? nullptr : arrays.masks.data() + mask * mask_words;
    if (const char* error = sampling_row_error(row, vocab_size); error != nullptr)
      refuse("Sampling row " + text(static_cast<std::int64_t>(i)) + ": " + error);
  }
}

}  // namespace headway
