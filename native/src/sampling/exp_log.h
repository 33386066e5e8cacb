// exp and log that give the same bits on every machine, because libm's differ between versions of the C library.
//
// Only +, -, *, / and bit operations in a fixed order; compile without contraction and without fast-math.
// exp: x = n ln 2 + r with ln 2 in two parts (W. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980),
// then the Taylor polynomial of degree 7, whose remainder for |r| <= ln(2)/2 is below 6e-9, a tenth of a float's half ulp.
// log: x = 2^k m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1)/(m + 1)) as a series.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace headway {

// Four floats in one register; the compiler's own vectors, so that no instruction set is named here.
using Float4 = float __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));

inline Float4 load4(const float* source) {
  Float4 value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

inline void store4(float* target, Float4 value) { std::memcpy(target, &value, sizeof value); }

inline Float4 splat4(float value) { return Float4{value, value, value, value}; }

inline Float4 select4(Int4 condition, Float4 if_true, Float4 if_false) {
  return std::bit_cast<Float4>((condition & std::bit_cast<Int4>(if_true)) |
                               (~condition & std::bit_cast<Int4>(if_false)));
}

// exp(x) for x <= 0 (-infinity included), within 2 ulp; exp(0) is exactly 1. Zero below -87, where results would leave
// the normal floats, because whether a subnormal survives depends on the thread's control register.
inline Float4 exp_nonpositive4(Float4 x) {
  constexpr float kLowest = -87.0F;
  constexpr float kLog2E = 0x1.715476p+0F;
  constexpr float kLn2High = 0x1.62e4p-1F;  // 16 bits: n * kLn2High is exact for |n| <= 126
  constexpr float kLn2Low = 0x1.7f7d1cp-20F;
  constexpr float kRound = 0x1.8p23F;  // adding it rounds to an integer, which then lies in the low bits
  const Int4 in_range = x >= splat4(kLowest);
  x = select4(in_range, x, splat4(kLowest));
  const Float4 shifted = x * splat4(kLog2E) + splat4(kRound);
  const Float4 n = shifted - splat4(kRound);
  const Float4 r = (x - n * splat4(kLn2High)) - n * splat4(kLn2Low);
  Float4 sum = splat4(1.0F / 5040);
  sum = sum * r + splat4(1.0F / 720);
  sum = sum * r + splat4(1.0F / 120);
  sum = sum * r + splat4(1.0F / 24);
  sum = sum * r + splat4(1.0F / 6);
  sum = sum * r + splat4(0.5F);
  sum = sum * r + splat4(1.0F);
  sum = sum * r + splat4(1.0F);
  const std::int32_t bias = 127 - std::bit_cast<std::int32_t>(kRound);
  const Int4 exponent = std::bit_cast<Int4>(shifted) + Int4{bias, bias, bias, bias};
  const Float4 power = std::bit_cast<Float4>(exponent << 23);
  return select4(in_range, sum * power, splat4(0.0F));
}

// log(x) for a positive normal x, within 2 ulp.
inline double log_positive(double x) {
  constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits: a product with an exponent is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<std::int32_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & kFraction) | (std::uint64_t{1023} << 52));
  if (m > 0x1.6a09e667f3bcdp+0) {  // sqrt(2)
    m *= 0.5;
    exponent += 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;  // at most 0.0295: the first term left out is below 2^-60 of the sum
  double series = 1.0 / 23;
  for (int odd = 21; odd >= 3; odd -= 2) series = series * square + 1.0 / odd;
  return exponent * kLn2High + (2.0 * s + (2.0 * s * square * series + exponent * kLn2Low));
}

}  // namespace headway
