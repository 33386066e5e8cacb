// Chooses one token from one row of logits. It knows no batch, no thread, no model and no Python.
//
// Order of operations:
//   log-softmax of the raw logits (only if log-probabilities are asked for)
//   -> logit bias -> penalties -> mask -> greedy choice if temperature is 0
//   -> temperature -> top-k -> top-p -> min-p -> draw
//
// Rules that make the result a function of the row alone:
//   - NaN logits count as -infinity, +infinity as the largest finite float; so do results of bias and penalties.
//   - Tokens are ordered by (logit descending, id ascending): greedy takes the first, and among tokens with equal logits
//     top-k and top-p keep those with the lower ids. Top-k keeps exactly k tokens (or all there are), top-p the shortest
//     prefix of that order whose share of what top-k left reaches p, min-p those whose probability is at least min_p times
//     the largest. The first token of the order survives every filter.
//   - A draw is the inverse of the cumulative distribution over the kept tokens, ids ascending, at one uniform number
//     keyed by (seed, choice, position).
//   - exp and log are our own (exp_log.h), so the bits depend on the version only and not on the machine's libm.
#pragma once

#include <cstdint>
#include <vector>

namespace headway {

// Settings of one row; the fields mean what `headway.core.sampling.SamplingParams` and `SamplingBatch` say.
// Pointers are borrowed for the length of the call.
struct SamplingRow {
  float temperature = 1.0F;         // 0 = greedy
  std::int32_t top_k = 0;           // 0 = off
  float top_p = 1.0F;               // 1 = off
  float min_p = 0.0F;               // 0 = off
  float repetition_penalty = 1.0F;  // 1 = off
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::uint64_t seed = 0;
  std::int32_t choice = 0;
  std::int32_t position = 0;               // absolute position of the token that is drawn
  std::int32_t num_logprobs = -1;          // -1 = none
  const std::int32_t* history = nullptr;   // (history_len,) prompt, then output
  std::int32_t history_len = 0;
  std::int32_t history_prompt_len = 0;
  const std::int32_t* bias_ids = nullptr;  // (bias_len,); a repeated id adds up
  const float* bias_values = nullptr;      // (bias_len,)
  std::int32_t bias_len = 0;
  const std::uint32_t* mask = nullptr;     // (ceil(vocab_size / 32),) bit t % 32 of word t / 32 set = allowed; or null
};

enum class SampleStatus : std::uint8_t {
  kOk,
  kNoToken,     // every token is masked, or no logit is above -infinity
  kInvalidRow,  // `sampling_row_error` names the reason
};

struct TokenLogprob {
  std::int32_t token_id = -1;
  float logprob = 0.0F;
};

// What a row gave. After any status but kOk the token is -1 and there are no log-probabilities.
struct SampledToken {
  SampleStatus status = SampleStatus::kOk;
  std::int32_t token_id = -1;
  float logprob = 0.0F;           // of the token under the raw logits; only if num_logprobs >= 0
  std::vector<TokenLogprob> top;  // the num_logprobs most likely, best first; those of probability zero are left out
};

// Memory that rows reuse, one per thread; grows to the vocabulary's size at the first row.
struct SamplerScratch {
  std::vector<float> logits;            // of the candidates, cleaned, after bias, penalties and mask
  std::vector<float> weights;           // exp((logit - max) / temperature) of the candidates
  std::vector<double> chunk_sums;       // of the weights
  std::vector<std::int32_t> ids;        // of the candidates, ascending; not used while all tokens are candidates
  std::vector<std::int32_t> selection;  // the rest is scratch of the selection and of the penalties
  std::vector<std::int32_t> order;
  std::vector<double> bucket_mass;
  std::vector<float> bucket_max;
  std::vector<std::int32_t> marks;      // (vocab_size,) all zero between rows
  std::vector<std::int32_t> touched;
};

// What is wrong with a row, as a static string, or null. Checks ranges and every id; O(history_len + bias_len).
// The binding calls it before anything is computed, so that a malformed step changes nothing.
const char* sampling_row_error(const SamplingRow& row, std::int32_t vocab_size);

// Chooses one token from `logits` (vocab_size,), which are only read. Never throws but for lack of memory.
// Calls `sampling_row_error` first. Deterministic: equal inputs give equal bits on every machine and thread.
void sample_row(const float* logits, std::int32_t vocab_size, const SamplingRow& row, SamplerScratch& scratch,
                SampledToken& result);

}  // namespace headway
