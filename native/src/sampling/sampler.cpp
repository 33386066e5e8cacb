// See sampler.h. Work over the whole vocabulary is linear and in few passes; everything after a filter touches candidates.
#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exp_log.h"
#include "platform/platform.h"
#include "prefix_select.h"
#include "rng.h"

namespace headway {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr std::int32_t kChunk = 64;  // tokens per partial sum: fixed, because it fixes the order of summation

// NaN -> -infinity, +infinity -> the largest float, -0 and subnormals -> +0, so that order and equality are those of the numbers.
float clean(float logit) {
  if (!(logit == logit)) return -kInfinity;
  return std::min(logit, kLargest) + 0.0F;
}

Float4 clean4(Float4 logits) {
  logits = select4(logits == logits, logits, splat4(-kInfinity));
  logits = logits < splat4(kLargest) ? logits : splat4(kLargest);
  return logits + splat4(0.0F);
}

void copy_clean(const float* logits, std::int32_t n, std::vector<float>& target) {
  target.resize(static_cast<std::size_t>(n));
  std::int32_t i = 0;
  for (; i + 4 <= n; i += 4) store4(target.data() + i, clean4(load4(logits + i)));
  for (; i < n; ++i) target[i] = clean(logits[i]);
}

// The least id among the largest logits. `max` is that largest logit.
std::int32_t first_equal(const std::vector<float>& logits, float max) {
  return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

// weights[i] = exp((logits[i] - max) / temperature), padded with zeros to whole chunks; chunk_sums[c] = the sum of chunk c.
// Returns the sum of the chunks, in ascending order. `max` is the largest logit, above -infinity.
double weigh(const std::vector<float>& logits, float max, float temperature, std::vector<float>& weights,
             std::vector<double>& chunk_sums) {
  const auto n = static_cast<std::int32_t>(logits.size());
  const std::int32_t num_chunks = (n + kChunk - 1) / kChunk;
  weights.resize(static_cast<std::size_t>(num_chunks) * kChunk);
  const auto weight4 = [max, temperature](Float4 x) {
    return exp_nonpositive4((x - splat4(max)) / splat4(temperature));
  };
  std::int32_t i = 0;
  for (; i + 4 <= n; i += 4) store4(weights.data() + i, weight4(load4(logits.data() + i)));
  if (i < n) {
    Float4 tail = splat4(-kInfinity);
    for (std::int32_t j = i; j < n; ++j) tail[j - i] = logits[j];
    store4(weights.data() + i, weight4(tail));
    i += 4;
  }
  std::fill(weights.begin() + i, weights.end(), 0.0F);
  chunk_sums.resize(static_cast<std::size_t>(num_chunks));
  double total = 0.0;
  for (std::int32_t chunk = 0; chunk < num_chunks; ++chunk) {
    const float* values = weights.data() + static_cast<std::ptrdiff_t>(chunk) * kChunk;
    double lanes[4] = {0.0, 0.0, 0.0, 0.0};
    for (std::int32_t j = 0; j < kChunk; j += 4) {
      for (std::int32_t lane = 0; lane < 4; ++lane) lanes[lane] += double{values[j + lane]};
    }
    chunk_sums[chunk] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    total += chunk_sums[chunk];
  }
  return total;
}

void add_bias(const SamplingRow& row, std::vector<float>& logits) {
  for (std::int32_t i = 0; i < row.bias_len; ++i) {
    float& logit = logits[row.bias_ids[i]];
    logit = clean(logit + row.bias_values[i]);
  }
}

void apply_penalties(const SamplingRow& row, std::vector<float>& logits, std::vector<std::int32_t>& marks,
                     std::vector<std::int32_t>& touched) {
  marks.resize(std::max(marks.size(), logits.size()), 0);
  touched.clear();
  for (std::int32_t i = 0; i < row.history_len; ++i) {
    std::int32_t& mark = marks[row.history[i]];  // 0 = not seen, else 1 + occurrences in the output
    if (mark == 0) {
      mark = 1;
      touched.push_back(row.history[i]);
    }
    if (i >= row.history_prompt_len) ++mark;
  }
  for (const std::int32_t token : touched) {
    const auto count = static_cast<float>(marks[token] - 1);
    marks[token] = 0;
    float logit = logits[token];
    logit = logit > 0.0F ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (count > 0.0F) logit -= row.presence_penalty + row.frequency_penalty * count;
    logits[token] = clean(logit);
  }
}

void apply_mask(const std::uint32_t* mask, std::vector<float>& logits) {
  const auto n = static_cast<std::int32_t>(logits.size());
  for (std::int32_t first = 0; first < n; first += 32) {
    const std::uint32_t word = mask[first / 32];
    if (word == 0xFFFFFFFFU) continue;
    const std::int32_t count = std::min(32, n - first);
    for (std::int32_t bit = 0; bit < count; ++bit) {
      if (((word >> bit) & 1U) == 0) logits[first + bit] = -kInfinity;
    }
  }
}

// Log-probabilities of raw logits: logit - log_normalizer.
struct LogSoftmax {
  double log_normalizer;

  float operator()(float logit) const { return static_cast<float>(double{logit} - log_normalizer); }
};

LogSoftmax log_softmax(float max, SamplerScratch& scratch) {
  const double sum = weigh(scratch.logits, max, 1.0F, scratch.weights, scratch.chunk_sums);
  return {double{max} + log_positive(sum)};
}

void collect_top(const LogSoftmax& logprob, std::int32_t count, SamplerScratch& scratch, std::vector<TokenLogprob>& top) {
  const std::vector<float>& logits = scratch.logits;
  const auto n = static_cast<std::int32_t>(logits.size());
  count = std::min(count, n);
  if (count == 0) return;
  preselect(logits.data(), n, count, scratch.selection, scratch.bucket_max);
  scratch.order = scratch.selection;
  const PrefixEnd end = find_prefix_end(logits.data(), nullptr, count, scratch.selection, scratch.bucket_mass);
  keep_if(scratch.order, [&](std::int32_t id) { return end.contains(logits[id], id) && logits[id] > -kInfinity; });
  std::sort(scratch.order.begin(), scratch.order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  top.reserve(scratch.order.size());
  for (const std::int32_t id : scratch.order) top.push_back({id, logprob(logits[id])});
}

// The candidates of a draw: scratch.logits and, once there are fewer than the vocabulary, scratch.ids (ascending).
// Keeps the positions in `kept` (ascending) only.
void keep(const std::vector<std::int32_t>& kept, bool& narrowed, SamplerScratch& scratch) {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto from = static_cast<std::size_t>(kept[i]);
    scratch.logits[i] = scratch.logits[from];  // i <= from: moves down, never overwrites what is still needed
    if (narrowed) scratch.ids[i] = scratch.ids[from];
  }
  scratch.logits.resize(kept.size());
  if (narrowed) {
    scratch.ids.resize(kept.size());
  } else {
    scratch.ids = kept;
  }
  narrowed = true;
}

void keep_top_k(std::int32_t top_k, bool& narrowed, SamplerScratch& scratch) {
  const auto n = static_cast<std::int32_t>(scratch.logits.size());
  const float* logits = scratch.logits.data();
  preselect(logits, n, top_k, scratch.selection, scratch.bucket_max);
  scratch.order = scratch.selection;
  const PrefixEnd end = find_prefix_end(logits, nullptr, top_k, scratch.selection, scratch.bucket_mass);
  keep_if(scratch.order, [&](std::int32_t i) { return end.contains(logits[i], i); });
  keep(scratch.order, narrowed, scratch);
}

// Sum of the weights that are at least `bound`; weights are padded to whole chunks.
double sum_at_least(const std::vector<float>& weights, float bound) {
  double lanes[4] = {0.0, 0.0, 0.0, 0.0};
  for (std::size_t i = 0; i < weights.size(); i += 4) {
    const Float4 values = load4(weights.data() + i);
    const Float4 counted = select4(values >= splat4(bound), values, splat4(0.0F));
    for (int lane = 0; lane < 4; ++lane) lanes[lane] += double{counted[lane]};
  }
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// Fills scratch.selection with positions that contain the shortest prefix of mass `target`, hopefully few more.
// Tokens of weight at least `bound` are all needed only if they weigh less than the target: halve the range of exponents.
void preselect_mass(double target, double total, SamplerScratch& scratch) {
  constexpr std::size_t kEnough = 2048;  // selecting among so few takes less than one pass over a vocabulary
  constexpr int kPasses = 4;             // from 1e-7..1 to a factor of e
  constexpr float kSlack = 1.0F - 0x1p-20F;  // exp is monotone but for its last bits
  const auto n = static_cast<std::int32_t>(scratch.logits.size());
  // All tokens lighter than this together weigh less than half of what may be left out.
  auto low = static_cast<float>(0.5 * (total - target) / n);
  find_at_least(scratch.weights.data(), n, low, scratch.selection);
  if (scratch.selection.size() <= kEnough || low <= 0.0F) return;
  float high = 1.0F;
  for (int pass = 0; pass < kPasses; ++pass) {
    const float middle = std::sqrt(low * high);
    if (sum_at_least(scratch.weights, middle) > target) {
      low = middle;
    } else {
      high = middle;
    }
  }
  find_at_least(scratch.weights.data(), n, low * kSlack, scratch.selection);
}

// Needs the weights of the candidates and their sum `total`.
void keep_top_p(float top_p, double total, bool& narrowed, SamplerScratch& scratch) {
  const float* logits = scratch.logits.data();
  const double target = double{top_p} * total;
  preselect_mass(target, total, scratch);
  scratch.order = scratch.selection;
  const PrefixEnd end =
      find_prefix_end(logits, scratch.weights.data(), target, scratch.selection, scratch.bucket_mass);
  keep_if(scratch.order, [&](std::int32_t i) { return end.contains(logits[i], i); });
  keep(scratch.order, narrowed, scratch);
}

// The inverse of the cumulative distribution at `uniform`: an index into the weights, never one of weight zero.
std::int32_t draw(const std::vector<float>& weights, const std::vector<double>& chunk_sums, double total, double uniform) {
  const double target = uniform * total;
  double before = 0.0;
  std::size_t chosen = 0;
  for (std::size_t chunk = 0; chunk < chunk_sums.size(); ++chunk) {
    if (chunk_sums[chunk] <= 0.0) continue;
    chosen = chunk;  // the last chunk of positive weight if rounding lets none pass the target
    if (before + chunk_sums[chunk] > target) break;
    before += chunk_sums[chunk];
  }
  std::size_t result = 0;
  for (std::size_t i = chosen * kChunk; i < (chosen + 1) * kChunk; ++i) {
    if (weights[i] <= 0.0F) continue;
    result = i;  // likewise the last token of positive weight
    before += double{weights[i]};
    if (before > target) break;
  }
  return static_cast<std::int32_t>(result);
}

// The token drawn at temperature > 0; `max` is the largest logit, above -infinity.
std::int32_t draw_token(const SamplingRow& row, float max, SamplerScratch& scratch) {
  bool narrowed = false;
  const auto weigh_all = [&] { return weigh(scratch.logits, max, row.temperature, scratch.weights, scratch.chunk_sums); };
  if (row.top_k > 0 && row.top_k < static_cast<std::int32_t>(scratch.logits.size())) {
    keep_top_k(row.top_k, narrowed, scratch);
  }
  double total = weigh_all();
  if (row.top_p < 1.0F) {
    keep_top_p(row.top_p, total, narrowed, scratch);
    total = weigh_all();
  }
  if (row.min_p > 0.0F) {  // the largest weight is exactly 1
    const auto n = static_cast<std::int32_t>(scratch.logits.size());
    find_at_least(scratch.weights.data(), n, row.min_p, scratch.selection);
    keep(scratch.selection, narrowed, scratch);
    total = weigh_all();
  }
  const std::int32_t index =
      draw(scratch.weights, scratch.chunk_sums, total, uniform_at(row.seed, row.choice, row.position));
  return narrowed ? scratch.ids[index] : index;
}

}  // namespace

void sample_row(const float* logits, std::int32_t vocab_size, const SamplingRow& row, SamplerScratch& scratch,
                SampledToken& result) {
  result.token_id = -1;
  result.logprob = 0.0F;
  result.top.clear();
  result.status = SampleStatus::kInvalidRow;
  if (sampling_row_error(row, vocab_size) != nullptr) return;
  const FloatModeScope float_mode;  // or subnormal numbers would mean what the calling thread chose

  result.status = SampleStatus::kNoToken;
  copy_clean(logits, vocab_size, scratch.logits);
  float max = max_of(scratch.logits.data(), vocab_size);
  if (max == -kInfinity) return;
  const bool wants_logprobs = row.num_logprobs >= 0;
  LogSoftmax logprob{0.0};
  if (wants_logprobs) {
    logprob = log_softmax(max, scratch);
    collect_top(logprob, row.num_logprobs, scratch, result.top);
  }
  const bool changed = row.bias_len > 0 || row.history_len > 0 || row.mask != nullptr;
  if (changed) {
    add_bias(row, scratch.logits);
    apply_penalties(row, scratch.logits, scratch.marks, scratch.touched);
    if (row.mask != nullptr) apply_mask(row.mask, scratch.logits);
    max = max_of(scratch.logits.data(), vocab_size);
    if (max == -kInfinity) {
      result.top.clear();
      return;
    }
  }
  result.token_id = row.temperature == 0.0F ? first_equal(scratch.logits, max) : draw_token(row, max, scratch);
  if (wants_logprobs) result.logprob = logprob(clean(logits[result.token_id]));
  result.status = SampleStatus::kOk;
}

}  // namespace headway
