// Every instruction set's attention against plain double arithmetic over what the cache holds, each row alone against the
// same row among others, and both beside garbage.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../src/kv_cache.h"
#include "../src/tensor_types.h"
#include "areas.h"
#include "model_support.h"
#include "sampling_support.h"

namespace headway::test {
namespace {

constexpr int kLayer = 1, kHead = 1;

struct Partial {
  std::vector<float> max, sum, output;

  explicit Partial(int num_rows, int head_dim) : max(num_rows), sum(num_rows), output(std::size_t(num_rows) * head_dim) {}
};

// A span of the cache, with keys and values of its first positions as the cache holds them, and garbage in the rest.
struct Span {
  int head_dim;
  std::shared_ptr<Model> model;
  KvCache cache;
  std::vector<const std::uint8_t*> parts;

  Span(const char* kv, int head_dim, std::uint8_t garbage = 0xff)
      : head_dim(head_dim), model(make_model(head_dim)), cache(model, 2, kSpanTokens / 2, kv) {
    const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(cache.block_bytes()), garbage);
    for (int block = 0; block < 2; ++block) cache.write_block(block, bytes);
    for (int i = 0; i < kSpanParts; ++i) parts.push_back(part(i * kPartTokens));
  }

  static std::shared_ptr<Model> make_model(int head_dim) {
    ModelShape shape = tiny_shape();
    shape.head_dim = head_dim;
    shape.ropes = {tiny_rope(head_dim, true)};
    return std::make_shared<Model>(shape, "int8", 32, "f32", "portable", 1);
  }

  std::uint8_t* part(int position) const {
    const std::int32_t blocks[] = {0, 1};
    return cache.part_of(blocks, position, kLayer, kHead);
  }

  void store(int position, const std::vector<float>& key, const std::vector<float>& value) const {
    cache.store(part(position), position % kPartTokens, key.data(), value.data());
  }

  void store_random(int num_positions, float spread) const {
    for (int position = 0; position < num_positions; ++position)
      store(position, random_logits(head_dim, spread, 500 + position), random_logits(head_dim, 1.0F, 5000 + position));
  }

  // Overwrites a position's numbers, and in int8 its scales, with bytes.
  void spoil(int position, std::uint8_t byte) const {
    const int slot = position % kPartTokens, width = cache.int8() ? 1 : 2;
    std::uint8_t* at = part(position);
    for (int d = 0; d < head_dim; ++d) {
      std::memset(at + key_index(slot, d) * width, byte, width);
      std::memset(at + value_index(slot, d) * width, byte, width);
    }
    if (!cache.int8()) return;
    std::memset(at + 2 * kPartTokens * head_dim + slot * 4, byte, 4);
    std::memset(at + 2 * kPartTokens * head_dim + (kPartTokens + slot) * 4, byte, 4);
  }

  int key_index(int slot, int d) const { return d / 2 * 2 * kPartTokens + slot * 2 + d % 2; }
  int value_index(int slot, int d) const { return kPartTokens * head_dim + slot / 2 * 2 * head_dim + d * 2 + slot % 2; }
  double number(int position, int index, int which_scale) const {
    const std::uint8_t* at = part(position);
    if (!cache.int8()) {
      std::uint16_t bits;
      std::memcpy(&bits, at + index * 2, 2);
      return double{bf16_to_float(bits)};
    }
    float scale;
    std::memcpy(&scale, at + 2 * kPartTokens * head_dim + (which_scale * kPartTokens + position % kPartTokens) * 4, 4);
    return double{scale} * static_cast<std::int8_t>(at[index]);
  }
  double key(int position, int d) const { return number(position, key_index(position % kPartTokens, d), 0); }
  double value(int position, int d) const { return number(position, value_index(position % kPartTokens, d), 1); }
};

// Rows that look at a span.
struct Rows {
  std::vector<float> queries;  // (rows, head_dim)
  std::vector<std::int32_t> starts, limits;
  float softcap = 0.0F;

  int size() const { return static_cast<int>(starts.size()); }
};

Partial attend(const Kernels& kernels, const Span& span, const Rows& rows, int first, int count) {
  const int head_dim = span.head_dim;
  Partial partial(count, head_dim);
  std::vector<float> packed(static_cast<std::size_t>(count) * head_dim), scales(count);
  std::vector<float> scores(static_cast<std::size_t>(count) * kSpanTokens, std::nanf(""));
  std::vector<const std::uint8_t*> parts(kSpanParts, nullptr);  // as far as needed
  for (int i = rows.starts[first] / kPartTokens; i * kPartTokens < rows.limits[first + count - 1]; ++i)
    parts[i] = span.parts[i];
  for (int r = 0; r < count; ++r)
    scales[r] = kernels.attention_query(rows.queries.data() + (first + r) * head_dim, head_dim, span.cache.int8(),
                                        packed.data() + r * head_dim);
  kernels.attention_span({parts.data(), packed.data(), scales.data(), rows.starts.data() + first,
                          rows.limits.data() + first, rows.softcap, count, head_dim, span.cache.int8(), scores.data(),
                          partial.max.data(), partial.sum.data(), partial.output.data()});
  return partial;
}

// A row's average against exact arithmetic. The bound: what rounding a query moves its scores by, and weights.
void check_row(Checks& checks, const Kernels& kernels, const Span& span, const Rows& rows, int row,
               const Partial& partial) {
  const int head_dim = span.head_dim;
  const bool int8 = span.cache.int8(), dot = std::string(kernels.name) == "avx512bf16";
  const float* query = rows.queries.data() + row * head_dim;
  double largest = 0.0;
  for (int d = 0; d < head_dim; ++d) largest = std::max(largest, std::abs(double{query[d]}));
  std::vector<double> scores;
  double score_error = 0.0, top = -1e300;
  for (int position = rows.starts[row]; position < rows.limits[row]; ++position) {
    double score = 0.0, error = 0.0;
    for (int d = 0; d < head_dim; ++d) {
      score += double{query[d]} * span.key(position, d);
      const double rounding = int8 ? largest / 65000.0 : std::abs(double{query[d]}) * (dot ? 1.0 / 510.0 : 1e-6);
      error += rounding * std::abs(span.key(position, d));
    }
    score_error = std::max(score_error, error);
    if (rows.softcap > 0.0F) score = rows.softcap * std::tanh(score);
    scores.push_back(score);
    top = std::max(top, score);
  }
  if (rows.softcap > 0.0F) score_error *= rows.softcap;
  CHECK_NEAR(partial.max[row], top, score_error + 1e-6 * std::abs(top) + 1e-6);
  double total = 0.0;
  for (const double score : scores) total += std::exp2(score - top);
  const double weight_error = int8 ? 1e-5 : (dot ? 1.0 / 255.0 : 1e-5);
  const double relative = std::expm1(std::min(20.0, 2.0 * score_error)) + weight_error;
  CHECK_NEAR(partial.sum[row], total, total * relative);
  for (int d = 0; d < head_dim; ++d) {
    double exact = 0.0, magnitude = 0.0, most = 0.0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double value = span.value(rows.starts[row] + static_cast<int>(i), d), weight = std::exp2(scores[i] - top);
      exact += weight * value / total;
      magnitude += weight * std::abs(value) / total;
      most = std::max(most, std::abs(value));
    }
    // Words have an absolute error: half a step of the largest product, over at most 256 positions.
    const double step = int8 ? most * static_cast<double>(scores.size()) / 65000.0 / total : 0.0;
    CHECK_NEAR(partial.output[row * head_dim + d] / partial.sum[row], exact,
               std::min(2.5 * most, 2.0 * magnitude * relative + step) + 1e-7);
  }
}

// The rows together, then each alone while all that it does not see is spoilt.
void check_rows(Checks& checks, const Kernels& kernels, const char* kv, int head_dim, int num_positions, float spread,
                const Rows& rows) {
  const Span span(kv, head_dim);
  span.store_random(num_positions, spread);
  const Partial together = attend(kernels, span, rows, 0, rows.size());
  for (int r = 0; r < rows.size(); ++r) {
    check_row(checks, kernels, span, rows, r, together);
    const Span lonely(kv, head_dim, 0x7f);  // other garbage: great numbers
    lonely.store_random(num_positions, spread);
    for (int position = 0; position < num_positions; ++position)
      if (position < rows.starts[r] || position >= rows.limits[r]) lonely.spoil(position, position % 2 == 0 ? 0xff : 0x7f);
    const Partial alone = attend(kernels, lonely, rows, r, 1);
    CHECK_EQ(alone.max[0], together.max[r]);
    CHECK_EQ(alone.sum[0], together.sum[r]);
    CHECK(std::memcmp(alone.output.data(), together.output.data() + r * head_dim, sizeof(float) * head_dim) == 0);
  }
}

// `group` query heads of each token; the last token sees all positions. `window`: positions that a row sees; 0 = all.
Rows make_rows(int head_dim, int num_positions, int num_rows, int group, int window, float spread, float softcap = 0.0F) {
  Rows rows;
  rows.softcap = softcap;
  const int num_tokens = (num_rows + group - 1) / group;
  for (int r = 0; r < num_rows; ++r) {
    const int limit = num_positions - num_tokens + 1 + r / group;
    if (limit < 1) continue;
    const std::vector<float> query = random_logits(head_dim, spread, 50 + r);
    rows.queries.insert(rows.queries.end(), query.begin(), query.end());
    rows.limits.push_back(limit);
    rows.starts.push_back(window == 0 ? 0 : std::max(0, limit - window));
  }
  return rows;
}

void test_spans(Checks& checks, const Kernels& kernels, const char* kv) {
  const std::string name = std::string("attention: ") + kernels.name + " kv " + kv;
  checks.run(name + ", positions, windows and caps", [&] {
    for (const int head_dim : {16, 64, 80, 128}) {
      for (const int num_positions : {1, 2, 15, 16, 17, 33, 256}) {
        for (const int window : {0, 1, 2, 3, 20})
          check_rows(checks, kernels, kv, head_dim, num_positions, 1.0F,
                     make_rows(head_dim, num_positions, 7, 1, window, 1.0F));
        for (const int window : {0, 21})
          check_rows(checks, kernels, kv, head_dim, num_positions, 1.0F,
                     make_rows(head_dim, num_positions, 7, 1, window, 0.3F, 2.0F));
      }
    }
  });
  checks.run(name + ", any number of rows and heads", [&] {
    for (const int group : {1, 3, 6, 7})
      for (const int num_rows : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 24})
        for (const int num_positions : {31, 95}) {
          check_rows(checks, kernels, kv, 48, num_positions, 1.0F, make_rows(48, num_positions, num_rows, group, 0, 1.0F));
          check_rows(checks, kernels, kv, 48, num_positions, 1.0F, make_rows(48, num_positions, num_rows, group, 5, 1.0F));
        }
  });
  checks.run(name + ", extremes", [&] {
    for (const int head_dim : {16, 128, 256}) {
      check_rows(checks, kernels, kv, head_dim, 19, 1e4F, make_rows(head_dim, 19, 8, 2, 0, 1e4F));
      check_rows(checks, kernels, kv, head_dim, 19, 1e4F, make_rows(head_dim, 19, 8, 2, 0, 1e-4F));
      check_rows(checks, kernels, kv, head_dim, 19, 0.0F, make_rows(head_dim, 19, 8, 2, 0, 1.0F));
      check_rows(checks, kernels, kv, head_dim, 256, 1.0F, make_rows(head_dim, 256, 8, 2, 0, 0.0F));
      check_rows(checks, kernels, kv, head_dim, 33, 1.0F, make_rows(head_dim, 33, 8, 2, 7, 1e-36F));
    }
    // All dots and sums at the bound of their integers.
    for (const int head_dim : {128, 512, 1024}) {
      const Span span(kv, head_dim);
      const std::vector<float> ones(static_cast<std::size_t>(head_dim), 1.0F);
      for (int position = 0; position < kSpanTokens; ++position) span.store(position, ones, ones);
      Rows rows = make_rows(head_dim, kSpanTokens, 2, 2, 0, 0.0F);
      for (int d = 0; d < head_dim; ++d) {
        rows.queries[d] = 1.0F;
        rows.queries[head_dim + d] = -1.0F;
      }
      const Partial partial = attend(kernels, span, rows, 0, 2);
      for (int r = 0; r < 2; ++r) {
        CHECK_NEAR(partial.max[r], r == 0 ? head_dim : -head_dim, 1e-5 * head_dim);
        CHECK_EQ(partial.sum[r], float{kSpanTokens});
        for (int d = 0; d < head_dim; ++d) CHECK_NEAR(partial.output[r * head_dim + d], kSpanTokens, 1e-3);
      }
    }
  });
  checks.run(name + ", what is no number shows", [&] {
    for (const int num_positions : {16, 17}) {
      Span span(kv, 32);
      span.store_random(num_positions, 1.0F);
      Rows rows = make_rows(32, num_positions, 6, 6, 0, 1.0F);
      rows.queries[3 * 32 + 5] = std::nanf("");
      rows.queries[4 * 32 + 6] = INFINITY;
      const Partial queries = attend(kernels, span, rows, 0, 6);
      for (int r = 0; r < 6; ++r) CHECK_EQ(std::isnan(queries.output[r * 32] / queries.sum[r]), r == 3 || r == 4);
      rows = make_rows(32, num_positions, 6, 6, 0, 1.0F);
      span.spoil(num_positions - 1, 0xff);
      const Partial values = attend(kernels, span, rows, 0, 6);
      for (int r = 0; r < 6; ++r) CHECK(std::isnan(values.output[r * 32] / values.sum[r]));
    }
  });
}

void test_merge(Checks& checks, const Kernels& kernels) {
  checks.run(std::string("attention: ") + kernels.name + " merges partials as if they were one", [&] {
    constexpr int kHeadDim = 16;
    std::vector<float> a = random_logits(kHeadDim, 1.0F, 1), b = random_logits(kHeadDim, 1.0F, 2), total(kHeadDim);
    for (const float later_max : {-3.0F, 2.0F, 9.0F, -200.0F, 200.0F}) {
      float max = 0.0F, sum = 0.0F;
      kernels.attention_merge(true, kHeadDim, a.data(), 2.0F, 3.0F, total.data(), &max, &sum);
      CHECK(total == a && max == 2.0F && sum == 3.0F);
      kernels.attention_merge(false, kHeadDim, b.data(), later_max, 5.0F, total.data(), &max, &sum);
      const double top = std::max(2.0, double{later_max});
      const double old_factor = std::exp2(2.0 - top), new_factor = std::exp2(double{later_max} - top);
      CHECK_EQ(max, static_cast<float>(top));
      CHECK_NEAR(sum, 3.0 * old_factor + 5.0 * new_factor, 1e-5);
      for (int d = 0; d < kHeadDim; ++d) CHECK_NEAR(total[d], a[d] * old_factor + b[d] * new_factor, 1e-6);
    }
  });
}

}  // namespace

void test_attention(Checks& checks) {
  const FloatModeScope float_mode;  // as on the workers
  for (const Kernels* kernels : available_kernels()) {
    for (const char* kv : {"bf16", "int8"}) test_spans(checks, *kernels, kv);
    test_merge(checks, *kernels);
  }
}

}  // namespace headway::test
