// Shared by the sampling tests.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "../src/sampling/rng.h"
#include "../src/sampling/sampler.h"

namespace headway::test {

inline SampledToken sample(const std::vector<float>& logits, const SamplingRow& row) {
  SamplerScratch scratch;
  SampledToken result;
  sample_row(logits.data(), static_cast<std::int32_t>(logits.size()), row, scratch, result);
  return result;
}

// Every token that a row draws over many positions.
inline std::set<std::int32_t> support(const std::vector<float>& logits, SamplingRow row, int num_draws = 2000) {
  SamplerScratch scratch;
  SampledToken result;
  std::set<std::int32_t> seen;
  for (row.position = 0; row.position < num_draws; ++row.position) {
    sample_row(logits.data(), static_cast<std::int32_t>(logits.size()), row, scratch, result);
    seen.insert(result.token_id);
  }
  return seen;
}

// Logits in [-spread, spread], the same on every machine.
inline std::vector<float> random_logits(std::int32_t n, float spread, std::uint64_t seed) {
  std::vector<float> logits(static_cast<std::size_t>(n));
  for (std::int32_t i = 0; i < n; ++i) {
    logits[i] = spread * static_cast<float>(2.0 * uniform_at(seed, 1000, i) - 1.0);
  }
  return logits;
}

}  // namespace headway::test
