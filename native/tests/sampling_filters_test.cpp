// Top-k, top-p and min-p: which tokens can be drawn.
#include <algorithm>
#include <cmath>
#include <vector>

#include "../src/sampling/prefix_select.h"
#include "areas.h"
#include "sampling_support.h"

namespace headway::test {
namespace {

using Ids = std::set<std::int32_t>;

// Logits of these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

}  // namespace

void test_sampling_filters(Checks& checks) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.05, 0.2, 0.25});  // order: 1 4 3 0 2

  checks.run("filters: top-k keeps the k most likely", [&] {
    CHECK(support(logits, {.top_k = 1}) == Ids{1});
    CHECK(support(logits, {.top_k = 3}) == Ids{1, 3, 4});
    CHECK(support(logits, {.top_k = 5}) == Ids{0, 1, 2, 3, 4});
    CHECK(support(logits, {.top_k = 99}) == Ids{0, 1, 2, 3, 4});
  });

  checks.run("filters: top-p keeps the shortest prefix that reaches p", [&] {
    CHECK(support(logits, {.top_p = 1e-9F}) == Ids{1});
    CHECK(support(logits, {.top_p = 0.39F}) == Ids{1});
    CHECK(support(logits, {.top_p = 0.41F}) == Ids{1, 4});
    CHECK(support(logits, {.top_p = 0.64F}) == Ids{1, 4});
    CHECK(support(logits, {.top_p = 0.66F}) == Ids{1, 3, 4});
    CHECK(support(logits, {.top_p = 0.96F}) == Ids{0, 1, 2, 3, 4});
  });

  checks.run("filters: min-p is relative to the largest probability", [&] {
    CHECK(support(logits, {.min_p = 1.0F}) == Ids{1});
    CHECK(support(logits, {.min_p = 0.49F}) == Ids{1, 3, 4});
    CHECK(support(logits, {.min_p = 0.51F}) == Ids{1, 4});
    CHECK(support(logits, {.min_p = 0.1F}) == Ids{0, 1, 2, 3, 4});
  });

  checks.run("filters: top-p sees what top-k left, min-p what top-p left", [&] {
    // After top-k 3 the shares are 0.4, 0.25, 0.2 of 0.85: 0.47, 0.76, 1.
    CHECK(support(logits, {.top_k = 3, .top_p = 0.7F}) == Ids{1, 4});
    CHECK(support(logits, {.top_k = 3, .top_p = 0.8F}) == Ids{1, 3, 4});
    CHECK(support(logits, {.top_k = 3, .top_p = 0.8F, .min_p = 0.55F}) == Ids{1, 4});
    CHECK(support(logits, {.top_k = 2, .min_p = 0.1F}) == Ids{1, 4});
  });

  checks.run("filters: temperature comes before top-p and min-p", [&] {
    // At temperature 0.5 the probabilities are squared: 0.16, 0.0625, 0.04, 0.01, 0.0025 of 0.275.
    CHECK(support(logits, {.temperature = 0.5F, .top_p = 0.57F}) == Ids{1});
    CHECK(support(logits, {.temperature = 0.5F, .top_p = 0.6F}) == Ids{1, 4});
    CHECK(support(logits, {.temperature = 0.5F, .min_p = 0.3F}) == Ids{1, 4});
    CHECK(support(logits, {.temperature = 0.5F, .top_k = 4}) == Ids{0, 1, 3, 4});
  });

  checks.run("filters: among equal logits the lower ids stay", [&] {
    const std::vector<float> equal(6, 1.0F);
    CHECK(support(equal, {.top_k = 2}) == Ids{0, 1});
    CHECK(support(equal, {.top_p = 0.49F}) == Ids{0, 1, 2});
    CHECK(support(equal, {.min_p = 1.0F}) == Ids{0, 1, 2, 3, 4, 5});
    const std::vector<float> zeros{0.0F, -0.0F, 0.0F, -0.0F};  // equal numbers, though not equal bits
    CHECK(support(zeros, {.top_k = 2}) == Ids{0, 1});
    std::vector<float> many_zeros(5000, 0.0F);
    for (std::size_t i = 0; i < many_zeros.size(); i += 3) many_zeros[i] = -0.0F;
    CHECK_EQ(*support(many_zeros, {.top_k = 40}).rbegin(), 39);
    const std::vector<float> many(5000, -3.0F);
    CHECK_EQ(*support(many, {.top_k = 40}).rbegin(), 39);
    CHECK_EQ(*support(many, {.top_p = 0.01F}).rbegin(), 49);
    CHECK_EQ(support(many, {.top_k = 4000, .top_p = 0.01F}).size(), 40U);
  });

  checks.run("filters: one token always remains", [&] {
    const SamplingRow strict{.temperature = 1e-30F, .top_k = 1, .top_p = 1e-30F, .min_p = 1.0F};
    CHECK(support({3.0F, 9.0F, 9.0F}, strict, 10) == Ids{1});
    CHECK(support({-3e38F, 3e38F}, {.temperature = 1e30F, .top_p = 0.5F}, 10) == Ids{1});
    CHECK(support({-1e-30F}, strict, 10) == Ids{0});
  });

  checks.run("filters: the radix selection agrees with sorting", [&] {
    std::vector<double> bucket_mass;
    std::vector<float> chunk_max;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const auto n = static_cast<std::int32_t>(1 + 3000 * uniform_at(seed, 0, 0));
      std::vector<float> values = random_logits(n, seed % 2 == 0 ? 20.0F : 1e-3F, seed);
      if (seed % 4 >= 2) {  // many ties
        for (float& value : values) value = std::round(value * (seed % 2 == 0 ? 0.2F : 2000.0F)) + 0.0F;
      }
      if (seed % 4 == 1) {  // equal but for their last ten bits
        for (float& value : values) value = 1.0F + 0x1p-23F * std::floor(512.0F + 511.0F * value / 1e-3F);
      }
      std::vector<std::int32_t> order(static_cast<std::size_t>(n));
      for (std::int32_t i = 0; i < n; ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return values[a] > values[b]; });
      for (const double share : {0.0, 0.003, 0.1, 0.5, 1.0}) {
        const auto count = std::max(1, static_cast<std::int32_t>(share * n));
        std::vector<std::int32_t> selection;
        preselect(values.data(), n, count, selection, chunk_max);
        CHECK(std::is_sorted(selection.begin(), selection.end()));
        const PrefixEnd end = find_prefix_end(values.data(), nullptr, count, selection, bucket_mass);
        CHECK_EQ(end.index, order[count - 1]);
        CHECK_EQ(end.logit, values[order[count - 1]]);
      }
    }
  });

  checks.run("filters: find_at_least finds all, in order", [&] {
    const std::vector<float> values = random_logits(77, 1.0F, 9);
    std::vector<std::int32_t> found;
    for (const float bound : {-2.0F, 0.0F, 0.9F, 2.0F}) {
      find_at_least(values.data(), 77, bound, found);
      std::vector<std::int32_t> expected;
      for (std::int32_t i = 0; i < 77; ++i) {
        if (values[i] >= bound) expected.push_back(i);
      }
      CHECK(found == expected);
    }
  });
}

}  // namespace headway::test
