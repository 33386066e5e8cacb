// Steps made of sequences, and a sequence run to its end in chunks: what the forward tests share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../src/forward.h"
#include "model_support.h"

namespace headway::test {

using Tokens = std::vector<std::int32_t>;

// What one sequence contributes to a step.
struct Part {
  Tokens tokens;             // computed in this step
  std::int32_t context = 0;  // tokens cached before
  Tokens blocks;
  bool all_rows = true;      // logits at every token, else at the last only
};

// A step's arrays, owned.
struct StepArrays {
  Tokens tokens, positions, sequence_starts{0}, context_lens, block_table, block_table_starts{0}, adapter_ids, output_rows,
      output_kinds;

  explicit StepArrays(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      for (std::size_t i = 0; i < part.tokens.size(); ++i) {
        if (part.all_rows || i + 1 == part.tokens.size()) output_rows.push_back(static_cast<std::int32_t>(tokens.size()));
        tokens.push_back(part.tokens[i]);
        positions.push_back(part.context + static_cast<std::int32_t>(i));
      }
      sequence_starts.push_back(static_cast<std::int32_t>(tokens.size()));
      context_lens.push_back(part.context);
      block_table.insert(block_table.end(), part.blocks.begin(), part.blocks.end());
      block_table_starts.push_back(static_cast<std::int32_t>(block_table.size()));
      adapter_ids.push_back(0);
    }
    output_kinds.assign(output_rows.size(), static_cast<std::int32_t>(OutputKind::kLogits));
  }

  Step view() const {
    return {tokens,        positions,          sequence_starts, context_lens, block_table,
            block_table_starts, adapter_ids, output_rows,     output_kinds};
  }
};

inline Tokens random_tokens(int count, std::uint64_t seed) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(101 * uniform_at(seed, 3000, i)));
  return tokens;
}

inline Tokens block_range(std::int32_t first, std::size_t num_tokens, std::size_t block_size = kPartTokens) {
  Tokens blocks;
  for (std::size_t i = 0; i < (num_tokens + block_size - 1) / block_size; ++i) {
    blocks.push_back(first + static_cast<std::int32_t>(i));
  }
  return blocks;
}

// Sampling arrays of `count` rows with one setting.
struct Sampling {
  std::vector<float> temperature, top_p, min_p, repetition, presence, frequency, bias_values;
  Tokens top_k, choices, positions, num_logprobs, history_starts, history, prompt_lens, bias_starts, bias_ids, mask_rows;
  std::vector<std::uint64_t> seeds;
  std::vector<std::uint32_t> masks;

  Sampling(std::size_t count, float heat, std::int32_t logprobs)
      : temperature(count, heat), top_p(count, 0.9F), min_p(count, 0.0F), repetition(count, 1.0F), presence(count, 0.0F),
        frequency(count, 0.0F), top_k(count, 0), choices(count, 0), num_logprobs(count, logprobs),
        history_starts(count + 1, 0),
        prompt_lens(count, 0), bias_starts(count + 1, 0), mask_rows(count, -1), seeds(count, 7) {
    for (std::size_t i = 0; i < count; ++i) positions.push_back(static_cast<std::int32_t>(i));
  }

  SamplingArrays view() const {
    return {.temperature = temperature, .top_p = top_p, .min_p = min_p, .repetition_penalty = repetition,
            .presence_penalty = presence, .frequency_penalty = frequency, .bias_values = bias_values, .top_k = top_k,
            .choices = choices, .positions = positions, .num_logprobs = num_logprobs, .history_starts = history_starts,
            .history = history, .history_prompt_lens = prompt_lens, .bias_starts = bias_starts, .bias_ids = bias_ids,
            .mask_rows = mask_rows, .seeds = seeds, .masks = masks};
  }
};

// A model, its cache and its runner.
struct Bench {
  std::shared_ptr<Model> model;
  std::shared_ptr<KvCache> cache;
  Runner runner;

  explicit Bench(const Variant& variant, std::int64_t num_blocks = 128, const ModelShape& shape = tiny_shape(),
                 int block_size = kPartTokens)
      : model(tiny_model(variant, shape)),
        cache(std::make_shared<KvCache>(model, num_blocks, block_size, variant.kv)),
        runner(cache) {}

  std::vector<float> logits(const std::vector<Part>& parts) {
    const StepArrays arrays(parts);
    return runner.forward(arrays.view()).logits;
  }

  // Logits of all positions, computed `chunk` tokens a step.
  std::vector<float> logits_in_chunks(const Tokens& tokens, const Tokens& blocks, std::size_t chunk) {
    std::vector<float> all;
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const std::size_t end = std::min(begin + chunk, tokens.size());
      const std::vector<float> some =
          logits({{Tokens(tokens.begin() + begin, tokens.begin() + end), static_cast<std::int32_t>(begin), blocks}});
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  std::vector<std::uint8_t> block_bytes(const Tokens& blocks) const {
    std::vector<std::uint8_t> bytes(blocks.size() * static_cast<std::size_t>(cache->block_bytes()));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto size = static_cast<std::size_t>(cache->block_bytes());
      cache->read_block(blocks[i], {bytes.data() + i * size, size});
    }
    return bytes;
  }
};

// Every combination that has bits of its own. One cache format is enough for what only differs in weights.
inline std::vector<Variant> all_variants() {
  std::vector<Variant> variants;
  for (const std::string& isa : available_isas()) {
#if defined(__SANITIZE_THREAD__)
    // Which threads meet does not depend on the kernels, and every access is recorded: ten times as long.
    if (isa != available_isas().back()) continue;
#endif
    for (const char* kv : {"bf16", "int8"}) {
      variants.push_back({.isa = isa, .weights = "bf16", .kv = kv});
      variants.push_back({.isa = isa, .weights = "int8", .kv = kv});
    }
    for (const int group_size : {64, 128})
      variants.push_back({.isa = isa, .weights = "int8", .group_size = group_size});
    for (const char* weights : {"int4", "nf4", "auto"}) variants.push_back({.isa = isa, .weights = weights});
    if (isa == "avx512bf16") variants.push_back({.isa = isa, .weights = "bf16", .activations = "bf16"});
  }
  return variants;
}

}  // namespace headway::test
