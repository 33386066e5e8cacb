// See prefix_select.h.
#include "prefix_select.h"

#include "exp_log.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>

namespace headway {
namespace {

constexpr std::int32_t kChunk = 64;         // tokens per maximum in `preselect`
constexpr std::size_t kSortAtMost = 128;    // below this, sorting costs less than clearing the buckets

struct Digit {
  int shift;
  std::uint32_t num_buckets;
};
constexpr std::array<Digit, 3> kDigits{Digit{21, 2048}, Digit{10, 2048}, Digit{0, 1024}};

// An integer that orders like the float.
std::uint32_t order_key(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

std::uint32_t bucket_of(float logit, Digit digit) {
  return (order_key(logit) >> digit.shift) & (digit.num_buckets - 1);
}

}  // namespace

float max_of(const float* values, std::int32_t n) {
  Float4 even = splat4(-std::numeric_limits<float>::infinity()), odd = even;
  std::int32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const Float4 a = load4(values + i), b = load4(values + i + 4);
    even = a > even ? a : even;
    odd = b > odd ? b : odd;
  }
  const Float4 lanes = even > odd ? even : odd;
  float best = std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
  for (; i < n; ++i) best = std::max(best, values[i]);
  return best;
}

PrefixEnd find_prefix_end(const float* logits, const float* masses, double target, std::vector<std::int32_t>& selection,
                          std::vector<double>& bucket_mass) {
  const auto mass_of = [masses](std::int32_t index) { return masses == nullptr ? 1.0 : double{masses[index]}; };
  double before = 0.0;  // mass of all tokens that precede the selection
  for (const Digit digit : kDigits) {
    if (selection.size() <= kSortAtMost) break;
    bucket_mass.assign(digit.num_buckets, -1.0);  // negative: empty, as a bucket may hold tokens of mass zero
    for (const std::int32_t index : selection) {
      double& sum = bucket_mass[bucket_of(logits[index], digit)];
      sum = std::max(sum, 0.0) + mass_of(index);
    }
    std::uint32_t chosen = 0;
    double before_chosen = before;
    for (std::uint32_t bucket = digit.num_buckets; bucket-- > 0;) {
      if (bucket_mass[bucket] < 0.0) continue;
      chosen = bucket;
      before_chosen = before;
      before += bucket_mass[bucket];
      if (before >= target) break;
    }
    before = before_chosen;
    keep_if(selection, [&](std::int32_t index) { return bucket_of(logits[index], digit) == chosen; });
  }
  if (selection.size() <= kSortAtMost) {
    std::sort(selection.begin(), selection.end(), [logits](std::int32_t a, std::int32_t b) {
      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    });
  }  // else every digit was used: all logits are equal, and the indices ascend already
  for (const std::int32_t index : selection) {
    before += mass_of(index);
    if (before >= target) return {logits[index], index};
  }
  return {logits[selection.back()], selection.back()};
}

void find_at_least(const float* values, std::int32_t n, float bound, std::vector<std::int32_t>& selection) {
  selection.resize(static_cast<std::size_t>(n));
  std::int32_t* out = selection.data();
  std::size_t count = 0;
  std::int32_t i = 0;
  for (; i + 16 <= n; i += 16) {  // most groups of a vocabulary hold nothing: look at 16 values at once
    const Float4 bound4 = splat4(bound);
    const Int4 any = ((load4(values + i) >= bound4) | (load4(values + i + 4) >= bound4)) |
                     ((load4(values + i + 8) >= bound4) | (load4(values + i + 12) >= bound4));
    const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(any);
    if ((words[0] | words[1]) == 0) continue;
    for (std::int32_t j = i; j < i + 16; ++j) {
      out[count] = j;
      count += values[j] >= bound ? 1 : 0;
    }
  }
  for (; i < n; ++i) {
    out[count] = i;
    count += values[i] >= bound ? 1 : 0;
  }
  selection.resize(count);
}

void preselect(const float* logits, std::int32_t n, std::int32_t count, std::vector<std::int32_t>& selection,
               std::vector<float>& chunk_max) {
  const std::int32_t num_chunks = n / kChunk;  // the tail has no maximum; that only lowers the bound
  if (count > num_chunks / 2) {                // the bound would let most tokens pass
    selection.resize(static_cast<std::size_t>(n));
    std::iota(selection.begin(), selection.end(), 0);
    return;
  }
  chunk_max.clear();
  for (std::int32_t chunk = 0; chunk < num_chunks; ++chunk) {
    chunk_max.push_back(max_of(logits + static_cast<std::ptrdiff_t>(chunk) * kChunk, kChunk));
  }
  // `count` chunks have a maximum of at least the count-th largest maximum, so at least `count` tokens reach it.
  std::nth_element(chunk_max.begin(), chunk_max.begin() + (count - 1), chunk_max.end(), std::greater<>());
  const float bound = chunk_max[static_cast<std::size_t>(count) - 1];
  find_at_least(logits, n, bound, selection);
}

}  // namespace headway
