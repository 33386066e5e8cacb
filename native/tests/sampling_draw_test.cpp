// The draw itself: frequencies, agreement with a plain reference, repeatability.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "areas.h"
#include "sampling_support.h"

namespace headway::test {
namespace {

// The definition, written down without regard to speed: sort, filter, normalise, walk the cumulative distribution.
// Returns the token at `uniform`, and sets `margin` to the distance of `uniform` from that token's nearest border.
std::int32_t reference(const std::vector<float>& logits, const SamplingRow& row, double uniform, double& margin) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (row.top_k > 0 && static_cast<std::size_t>(row.top_k) < order.size()) order.resize(row.top_k);
  const auto weight = [&](std::int32_t id) {
    return std::exp((double{logits[id]} - double{logits[order[0]]}) / double{row.temperature});
  };
  const auto sum = [&] {
    double total = 0.0;
    for (const std::int32_t id : order) total += weight(id);
    return total;
  };
  const double target = double{row.top_p} * sum();
  double before = 0.0;
  std::size_t kept = 0;
  while (kept < order.size() && (before < target || kept == 0)) before += weight(order[kept++]);
  if (row.top_p < 1.0F) order.resize(kept);
  std::erase_if(order, [&](std::int32_t id) { return weight(id) < double{row.min_p}; });
  const double total = sum();
  std::sort(order.begin() + 0, order.end());
  const std::int32_t best = *std::max_element(order.begin(), order.end(),
                                              [&](std::int32_t a, std::int32_t b) { return logits[a] < logits[b]; });
  const double scale = double{logits[best]};
  double low = 0.0;
  for (const std::int32_t id : order) {
    const double high = low + std::exp((double{logits[id]} - scale) / double{row.temperature}) / total;
    if (high > uniform || id == order.back()) {
      margin = std::min(uniform - low, high - uniform);
      return id;
    }
    low = high;
  }
  return -1;
}

}  // namespace

void test_sampling_draw(Checks& checks) {
  checks.run("draw: frequencies are the probabilities", [&] {
    constexpr int kDraws = 60000;
    const std::vector<float> logits{0.0F, 1.0F, -1.0F, 2.0F, 0.5F};
    for (const float temperature : {0.7F, 1.0F, 2.0F}) {
      double probabilities[5], total = 0.0;
      for (int i = 0; i < 5; ++i) total += probabilities[i] = std::exp(double{logits[i]} / double{temperature});
      int counts[5] = {};
      SamplerScratch scratch;
      SampledToken result;
      for (int position = 0; position < kDraws; ++position) {
        sample_row(logits.data(), 5, {.temperature = temperature, .seed = 7, .position = position}, scratch, result);
        ++counts[result.token_id];
      }
      double chi_square = 0.0;
      for (int i = 0; i < 5; ++i) {
        const double expected = kDraws * probabilities[i] / total;
        chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
      }
      CHECK(chi_square < 18.5);  // 4 degrees of freedom: exceeded once in a thousand seeds; this seed is fixed
    }
  });

  checks.run("draw: agrees with the plain reference wherever rounding cannot decide", [&] {
    SamplerScratch scratch;
    SampledToken result;
    int close = 0;
    constexpr int kRows = 600;
    for (int i = 0; i < kRows; ++i) {
      const auto random = [i](int which) { return uniform_at(99, which, i); };
      const auto n = static_cast<std::int32_t>(1 + 4000 * random(0) * random(0));
      const auto spread = static_cast<float>(1 + 15 * random(1));
      const std::vector<float> logits = random_logits(n, spread, static_cast<std::uint64_t>(i));
      SamplingRow row{.temperature = static_cast<float>(0.2 + 1.5 * random(2)), .seed = 5, .position = i};
      if (i % 2 == 0) row.top_p = static_cast<float>(0.02 + 0.97 * random(3));
      if (i % 3 == 0) row.top_k = static_cast<std::int32_t>(1 + 1.2 * n * random(4));
      if (i % 5 == 0) row.min_p = static_cast<float>(0.3 * random(5));
      double margin = 0.0;
      const std::int32_t expected = reference(logits, row, uniform_at(row.seed, row.choice, row.position), margin);
      sample_row(logits.data(), n, row, scratch, result);
      if (result.token_id != expected) {
        ++close;
        CHECK(margin < 1e-3);  // a token at top-p's border moves every later border by its probability
      }
    }
    CHECK(close <= kRows / 100);
  });

  checks.run("draw: the same key gives the same token, another key another", [&] {
    const std::vector<float> logits(1000, 0.0F);
    const std::int32_t token = sample(logits, {.seed = 3, .choice = 1, .position = 9}).token_id;
    CHECK_EQ(sample(logits, {.seed = 3, .choice = 1, .position = 9}).token_id, token);
    CHECK(sample(logits, {.seed = 4, .choice = 1, .position = 9}).token_id != token);
    CHECK(sample(logits, {.seed = 3, .choice = 2, .position = 9}).token_id != token);
    CHECK(sample(logits, {.seed = 3, .choice = 1, .position = 8}).token_id != token);
    CHECK_EQ(token, static_cast<std::int32_t>(1000 * uniform_at(3, 1, 9)));  // equal weights: the inverse is plain
  });

  checks.run("draw: scratch used for other rows and sizes changes nothing", [&] {
    SamplerScratch used;
    SampledToken result;
    for (int i = 0; i < 200; ++i) {
      const auto n = static_cast<std::int32_t>(1 + 3000 * uniform_at(1, 1, i));
      const std::vector<float> logits = random_logits(n, 6.0F, static_cast<std::uint64_t>(i));
      SamplingRow row{.temperature = i % 7 == 0 ? 0.0F : 0.8F, .seed = 11, .position = i};
      if (i % 2 == 0) row.top_p = 0.9F;
      if (i % 3 == 0) row.top_k = 50;
      if (i % 5 == 0) row.min_p = 0.02F;
      if (i % 4 == 0) row.num_logprobs = i % 20;
      sample_row(logits.data(), n, row, used, result);
      const SampledToken fresh = sample(logits, row);
      CHECK_EQ(result.token_id, fresh.token_id);
      CHECK_EQ(result.logprob, fresh.logprob);
      CHECK_EQ(result.top.size(), fresh.top.size());
    }
  });

  checks.run("draw: these tokens, on every machine and in every build", [&] {
    // Pins the generator, exp and the order of summation. A change here changes what seeds mean: raise the version.
    const std::vector<float> logits = random_logits(49152, 4.0F, 1);
    const std::int32_t expected[] = {41908, 5526, 48352, 6878, 45148, 10033};
    for (std::int32_t i = 0; i < 6; ++i) {
      SamplingRow row{.seed = 1234, .position = i};
      if (i % 2 == 1) row.top_p = 0.6F;
      if (i % 3 == 2) row.top_k = 3000;
      CHECK_EQ(sample(logits, row).token_id, expected[i]);
    }
  });
}

}  // namespace headway::test
