#include "../src/sampling/rng.h"

#include <set>

#include "areas.h"

namespace headway::test {

void test_rng(Checks& checks) {
  checks.run("rng: the published vectors of philox4x32-10", [&] {
    // Known-answer file of Random123, the reference implementation by the paper's authors.
    CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK((philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
           PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    CHECK((philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
           PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  });

  checks.run("rng: seed, choice and position each change the number", [&] {
    std::set<double> seen;
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
      for (std::int32_t choice = 0; choice < 8; ++choice) {
        for (std::int32_t position = 0; position < 8; ++position) seen.insert(uniform_at(seed, choice, position));
      }
    }
    CHECK_EQ(seen.size(), 4U * 8U * 8U);
  });

  checks.run("rng: numbers are uniform in [0, 1)", [&] {
    constexpr int kNumbers = 100000, kBins = 20;
    int bins[kBins] = {};
    for (int position = 0; position < kNumbers; ++position) {
      const double u = uniform_at(42, 0, position);
      CHECK(u >= 0.0 && u < 1.0);
      ++bins[static_cast<int>(u * kBins)];
    }
    double chi_square = 0.0;
    for (const int count : bins) {
      const double expected = double{kNumbers} / kBins;
      chi_square += (count - expected) * (count - expected) / expected;
    }
    CHECK(chi_square < 43.8);  // 19 degrees of freedom: exceeded once in a thousand seeds; this seed is fixed
  });
}

}  // namespace headway::test
