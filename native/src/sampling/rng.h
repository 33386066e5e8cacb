// A counter-based random generator: Philox4x32 with 10 rounds.
//
// Algorithm and constants: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// There is no state: the number drawn is a function of (seed, choice, position) and nothing else, so it cannot depend on
// the batch, on the thread, or on whether the sequence was preempted and resumed.
#pragma once

#include <array>
#include <cstdint>

namespace headway {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

// Ten rounds of Philox4x32 of `counter` under `key`.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;  // table 2 of the paper
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;  // golden ratio; sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// The uniform number in [0, 1), a multiple of 2^-53, that chooses the token at `position` of choice `choice`.
// The counter's last two words are zero: other uses of the generator must set the third word to something else.
constexpr double uniform_at(std::uint64_t seed, std::int32_t choice, std::int32_t position) {
  const PhiloxCounter bits =
      philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(choice), 0, 0},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t word = (static_cast<std::uint64_t>(bits[1]) << 32) | bits[0];
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

}  // namespace headway
