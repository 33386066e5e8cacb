// What makes a row of sampling settings malformed. See sampler.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sampler.h"

namespace headway {
namespace {

// Less is zero or not, as the thread's float mode has it; a row must be sound on every thread or on none.
constexpr float kLeast = std::numeric_limits<float>::min();

}  // namespace

const char* sampling_row_error(const SamplingRow& row, std::int32_t vocab_size) {
  const auto is_id = [vocab_size](std::int32_t id) { return id >= 0 && id < vocab_size; };
  const auto lacks = [](const void* data, std::int32_t length) { return length > 0 && data == nullptr; };
  if (vocab_size < 1) return "the vocabulary is empty";
  if (!std::isfinite(row.temperature) || row.temperature < 0.0F) return "temperature must be finite and at least 0";
  if (row.top_k < 0) return "top_k must be at least 0";
  if (!(row.top_p >= kLeast && row.top_p <= 1.0F)) return "top_p must be above 0 and at most 1";
  if (!(row.min_p >= 0.0F && row.min_p <= 1.0F)) return "min_p must be from 0 to 1";
  if (!std::isfinite(row.repetition_penalty) || row.repetition_penalty < kLeast) {
    return "repetition_penalty must be finite and above 0";
  }
  if (!std::isfinite(row.presence_penalty)) return "presence_penalty must be finite";
  if (!std::isfinite(row.frequency_penalty)) return "frequency_penalty must be finite";
  if (row.choice < 0) return "choice must be at least 0";
  if (row.position < 0) return "position must be at least 0";
  if (row.num_logprobs < -1) return "num_logprobs must be at least -1";
  if (row.history_len < 0 || lacks(row.history, row.history_len)) return "history is missing";
  if (row.history_prompt_len < 0 || row.history_prompt_len > row.history_len) {
    return "history_prompt_len must be from 0 to the history's length";
  }
  if (row.bias_len < 0 || lacks(row.bias_ids, row.bias_len) || lacks(row.bias_values, row.bias_len)) {
    return "bias is missing";
  }
  if (!std::all_of(row.history, row.history + row.history_len, is_id)) return "history has an id outside the vocabulary";
  if (!std::all_of(row.bias_ids, row.bias_ids + row.bias_len, is_id)) return "bias has an id outside the vocabulary";
  for (std::int32_t i = 0; i < row.bias_len; ++i) {
    if (std::isnan(row.bias_values[i])) return "a bias is not a number";
  }
  return nullptr;
}

}  // namespace headway
