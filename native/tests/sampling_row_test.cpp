// Greedy choice, bias, penalties, mask, log-probabilities, malformed rows.
#include <cmath>
#include <limits>
#include <string>

#include "areas.h"
#include "sampling_support.h"

namespace headway::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void test_greedy(Checks& checks) {
  checks.run("sampling: greedy takes the first of equal maxima", [&] {
    CHECK_EQ(sample({1.0F, 3.0F, 2.0F, 3.0F, -1.0F}, {.temperature = 0.0F}).token_id, 1);
    CHECK_EQ(sample({0.0F, -0.0F}, {.temperature = 0.0F}).token_id, 0);
    CHECK_EQ(sample({-0.0F, 0.0F}, {.temperature = 0.0F}).token_id, 0);
    CHECK_EQ(sample({-5.0F}, {.temperature = 0.0F}).token_id, 0);
    for (std::int32_t n = 1; n < 40; ++n) {  // every tail length of the vector loops
      for (std::int32_t best = 0; best < n; ++best) {
        std::vector<float> logits(static_cast<std::size_t>(n), -2.0F);
        logits[best] = -1.0F;
        CHECK_EQ(sample(logits, {.temperature = 0.0F}).token_id, best);
      }
    }
  });

  checks.run("sampling: what is not a number is never chosen", [&] {
    CHECK_EQ(sample({kNan, 1.0F, kNan, -kInfinity, 0.0F}, {.temperature = 0.0F}).token_id, 1);
    CHECK(support({kNan, 1.0F, kNan, -kInfinity, 0.0F}, {}) == std::set<std::int32_t>{1, 4});
    CHECK_EQ(sample({0.0F, kInfinity, kInfinity}, {.temperature = 0.0F}).token_id, 1);
    CHECK(support({0.0F, kInfinity, kInfinity}, {}) == std::set<std::int32_t>{1, 2});
    for (const float temperature : {0.0F, 1.0F}) {
      const SampledToken none = sample({kNan, -kInfinity}, {.temperature = temperature, .num_logprobs = 2});
      CHECK(none.status == SampleStatus::kNoToken);
      CHECK_EQ(none.token_id, -1);
      CHECK(none.top.empty());
    }
  });
}

void test_changes_of_logits(Checks& checks) {
  const SamplingRow greedy{.temperature = 0.0F};

  checks.run("sampling: bias is added to the logit, and adds up", [&] {
    const std::int32_t ids[] = {2, 0, 2};
    const float values[] = {1.5F, -10.0F, 1.0F};
    SamplingRow row = greedy;
    row.bias_ids = ids;
    row.bias_values = values;
    row.bias_len = 2;
    CHECK_EQ(sample({3.0F, 2.0F, 0.0F}, row).token_id, 1);
    row.bias_len = 3;
    CHECK_EQ(sample({3.0F, 2.0F, 0.0F}, row).token_id, 2);
  });

  checks.run("sampling: repetition divides positive and multiplies negative logits of prompt and output", [&] {
    const std::int32_t history[] = {0, 0, 1};  // prompt 0 0, output 1
    SamplingRow row{.temperature = 0.0F, .repetition_penalty = 2.0F, .history = history, .history_len = 3,
                    .history_prompt_len = 2};
    CHECK_EQ(sample({4.0F, 4.0F, 2.5F}, row).token_id, 2);    // 2, 2, 2.5
    CHECK_EQ(sample({4.0F, 4.0F, 1.5F}, row).token_id, 0);    // 2, 2, 1.5: once, though 0 occurs twice
    CHECK_EQ(sample({-1.0F, -1.2F, -1.9F}, row).token_id, 2);  // -2, -2.4, -1.9
    CHECK_EQ(sample({-0.9F, -1.2F, -1.9F}, row).token_id, 0);  // -1.8
  });

  checks.run("sampling: presence and frequency count the output only", [&] {
    const std::int32_t history[] = {2, 2, 2, 0, 1, 1};  // prompt 2 2 2, output 0 1 1
    SamplingRow row{.temperature = 0.0F, .history = history, .history_len = 6, .history_prompt_len = 3};
    row.presence_penalty = 1.0F;
    CHECK_EQ(sample({5.0F, 5.25F, 4.5F}, row).token_id, 2);  // 4, 4.25, 4.5
    CHECK_EQ(sample({5.0F, 5.25F, 4.0F}, row).token_id, 1);
    row.presence_penalty = 0.0F;
    row.frequency_penalty = 1.0F;
    CHECK_EQ(sample({5.0F, 5.25F, 3.5F}, row).token_id, 0);  // 4, 3.25, 3.5
    row.presence_penalty = -2.0F;
    row.frequency_penalty = -0.5F;
    CHECK_EQ(sample({1.0F, 1.0F, 3.75F}, row).token_id, 1);  // 3.5, 4, 3.75
  });

  checks.run("sampling: bias comes before the penalties", [&] {
    const std::int32_t history[] = {0}, ids[] = {0};
    const float values[] = {6.0F};
    SamplingRow row{.temperature = 0.0F, .repetition_penalty = 2.0F, .history = history, .history_len = 1,
                    .history_prompt_len = 1, .bias_ids = ids, .bias_values = values, .bias_len = 1};
    CHECK_EQ(sample({-2.0F, 1.9F}, row).token_id, 0);  // (-2 + 6) / 2 = 2
    CHECK_EQ(sample({-2.0F, 2.1F}, row).token_id, 1);
  });

  checks.run("sampling: a thread's scratch carries nothing from one row to the next", [&] {
    const std::int32_t history[] = {1, 1, 1};
    SamplingRow penal{.temperature = 0.0F, .frequency_penalty = 1.0F, .history = history, .history_len = 3};
    SamplerScratch scratch;
    SampledToken result;
    for (const std::int32_t n : {300, 3, 70}) {
      std::vector<float> logits(static_cast<std::size_t>(n), 0.0F);
      logits[1] = 2.5F;
      sample_row(logits.data(), n, penal, scratch, result);
      CHECK_EQ(result.token_id, 0);  // 2.5 - 3 < 0
      sample_row(logits.data(), n, {.top_k = 1}, scratch, result);
      CHECK_EQ(result.token_id, 1);
    }
  });

  checks.run("sampling: a mask forbids, over word borders and with unused bits set", [&] {
    constexpr std::int32_t kVocab = 70;
    const std::vector<float> logits(kVocab, 1.0F);
    std::uint32_t mask[3] = {0, 0, 0xFFFFFFC0U};  // only bits above the vocabulary
    SamplingRow row{.temperature = 0.0F, .mask = mask};
    CHECK(sample(logits, row).status == SampleStatus::kNoToken);
    row.temperature = 1.0F;
    CHECK(sample(logits, row).status == SampleStatus::kNoToken);
    mask[0] = 1U << 31;
    mask[1] = 1U;
    mask[2] |= 1U << 5;
    CHECK(support(logits, row) == std::set<std::int32_t>{31, 32, 69});
    row.temperature = 0.0F;
    CHECK_EQ(sample(logits, row).token_id, 31);
  });
}

void test_logprobs(Checks& checks) {
  checks.run("sampling: logprobs are the log-softmax of the raw logits, best first", [&] {
    const std::vector<float> logits = random_logits(1000, 8.0F, 3);
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(double{logit});
    const std::int32_t ids[] = {17};
    const float values[] = {100.0F};
    for (const float temperature : {0.0F, 0.3F}) {
      const SampledToken got = sample(logits, {.temperature = temperature, .num_logprobs = 1000, .bias_ids = ids,
                                               .bias_values = values, .bias_len = 1});
      CHECK_EQ(got.token_id, 17);
      CHECK_NEAR(got.logprob, logits[17] - std::log(sum), 1e-5);  // the bias moves the choice, not the logprob
      CHECK_EQ(got.top.size(), logits.size());
      double total = 0.0;
      for (std::size_t i = 0; i < got.top.size(); ++i) {
        total += std::exp(double{got.top[i].logprob});
        CHECK_NEAR(got.top[i].logprob, logits[got.top[i].token_id] - std::log(sum), 1e-5);
        if (i > 0) CHECK(logits[got.top[i - 1].token_id] >= logits[got.top[i].token_id]);
      }
      CHECK_NEAR(total, 1.0, 1e-5);
    }
  });

  checks.run("sampling: the top logprobs, for few and for many", [&] {
    const std::vector<float> logits{1.0F, 4.0F, 2.0F, 4.0F, -kInfinity};
    CHECK_EQ(sample(logits, {.num_logprobs = 0}).top.size(), 0U);
    const SampledToken two = sample(logits, {.num_logprobs = 3});
    CHECK_EQ(two.top.size(), 3U);
    CHECK_EQ(two.top[0].token_id, 1);
    CHECK_EQ(two.top[1].token_id, 3);
    CHECK_EQ(two.top[2].token_id, 2);
    CHECK_EQ(sample(logits, {.num_logprobs = 9}).top.size(), 4U);  // probability zero has no logarithm
    CHECK_EQ(sample(logits, {}).top.size(), 0U);
    const std::vector<float> many = random_logits(20000, 5.0F, 4);
    const SampledToken all = sample(many, {.num_logprobs = 20000});
    for (const std::int32_t count : {1, 20, 150, 160, 5000}) {
      const SampledToken some = sample(many, {.num_logprobs = count});
      CHECK_EQ(some.top.size(), static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < some.top.size(); ++i) CHECK_EQ(some.top[i].token_id, all.top[i].token_id);
    }
  });
}

void test_malformed(Checks& checks) {
  checks.run("sampling: malformed rows are refused with a reason", [&] {
    const std::int32_t good_ids[] = {0, 2}, bad_ids[] = {0, 3}, negative[] = {-1, 0};
    const float bias[] = {0.0F, 1.0F}, bad_bias[] = {0.0F, kNan};
    const SamplingRow rows[] = {
        {.temperature = -1.0F},
        {.temperature = kNan},
        {.temperature = kInfinity},
        {.top_k = -1},
        {.top_p = 0.0F},
        {.top_p = 1.5F},
        {.top_p = kNan},
        {.top_p = 1e-40F},  // on a worker, which flushes it, as much as here
        {.min_p = -0.1F},
        {.min_p = 1.1F},
        {.repetition_penalty = 0.0F},
        {.repetition_penalty = 1e-40F},
        {.presence_penalty = kNan},
        {.frequency_penalty = kInfinity},
        {.choice = -1},
        {.position = -1},
        {.num_logprobs = -2},
        {.history = good_ids, .history_len = 2, .history_prompt_len = 3},
        {.history = nullptr, .history_len = 2},
        {.history = bad_ids, .history_len = 2},
        {.history = negative, .history_len = 2},
        {.history_len = -1},
        {.bias_ids = bad_ids, .bias_values = bias, .bias_len = 2},
        {.bias_ids = good_ids, .bias_values = bad_bias, .bias_len = 2},
        {.bias_ids = good_ids, .bias_values = nullptr, .bias_len = 2},
    };
    for (const SamplingRow& row : rows) {
      CHECK(sampling_row_error(row, 3) != nullptr);
      const SampledToken got = sample({1.0F, 2.0F, 3.0F}, row);
      CHECK(got.status == SampleStatus::kInvalidRow);
      CHECK_EQ(got.token_id, -1);
    }
    CHECK(sampling_row_error({}, 0) != nullptr);
    CHECK(sampling_row_error({}, 3) == nullptr);
    CHECK(sampling_row_error({.history = good_ids, .history_len = 2, .bias_ids = good_ids, .bias_values = bias,
                              .bias_len = 2}, 3) == nullptr);
  });
}

}  // namespace

void test_sampling_row(Checks& checks) {
  test_greedy(checks);
  test_changes_of_logits(checks);
  test_logprobs(checks);
  test_malformed(checks);
}

}  // namespace headway::test
