// The portable kernels: the compiler's own 16-byte vectors, which every target has; no intrinsics, no fused
// multiply-add.
#include "kernels/kernels.h"

namespace headway {
namespace {

constexpr int kLanes = 4;
constexpr int kMatmulRows = 2;
constexpr int kMatmulVectors = 4;
constexpr int kSingleRowVectors = 8;
constexpr int kWeightBias = 0;
constexpr bool kHasBf16Dot = false;

using VectorF = float __attribute__((vector_size(16)));
using VectorI = std::int32_t __attribute__((vector_size(16)));
using VectorS = std::int16_t __attribute__((vector_size(16)));
struct Quad {
  VectorS even, odd;  // bytes 0, 2 and 1, 3 as words, repeated
};

template <class To, class From>
inline To reinterpret(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
inline VectorF select(VectorI condition, VectorF if_true, VectorF if_false) {
  return reinterpret<VectorF>((condition & reinterpret<VectorI>(if_true)) |
                              (~condition & reinterpret<VectorI>(if_false)));
}

inline VectorF set1(float value) { return VectorF{value, value, value, value}; }
inline VectorF load(const float* p) {
  VectorF v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, VectorF v) { __builtin_memcpy(p, &v, sizeof v); }
inline VectorF add(VectorF a, VectorF b) { return a + b; }
inline VectorF sub(VectorF a, VectorF b) { return a - b; }
inline VectorF mul(VectorF a, VectorF b) { return a * b; }
inline VectorF divide(VectorF a, VectorF b) { return a / b; }
inline VectorF fma(VectorF a, VectorF b, VectorF c) { return a * b + c; }
inline VectorF min(VectorF a, VectorF b) { return select(a < b, a, b); }
inline VectorF max(VectorF a, VectorF b) { return select(a > b, a, b); }
inline VectorF absolute(VectorF a) { return reinterpret<VectorF>(reinterpret<VectorI>(a) & 0x7fffffff); }
inline float first_lane(VectorF a) { return a[0]; }
inline float square_root(float a) { return __builtin_sqrtf(a); }

inline VectorI set1_int(std::int32_t value) { return VectorI{value, value, value, value}; }
inline VectorI load_int(const std::uint8_t* p) {
  VectorI v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline VectorI select_int(VectorI condition, std::int32_t if_true, std::int32_t if_false) {
  return (condition & if_true) | (~condition & if_false);
}
inline VectorI add_int(VectorI a, VectorI b) { return a + b; }
inline VectorF to_float(VectorI a) { return __builtin_convertvector(a, VectorF); }
// |a| < 2^22; to the nearest, ties to even.
inline VectorI round_to_int(VectorF a) {
  const VectorF magic = set1(0x1.8p23F);
  return reinterpret<VectorI>(a + magic) - reinterpret<VectorI>(magic);
}
inline void store_bytes(std::int8_t* p, VectorI a) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<std::int8_t>(a[i]);
}

inline Quad broadcast_quad(const std::int8_t* p) {
  std::int32_t quad;
  __builtin_memcpy(&quad, p, sizeof quad);
  const auto words = reinterpret<VectorS>(set1_int(quad));
  return {(words << 8) >> 8, words >> 8};
}
// Products of bytes within [-127, 127] fit a word, and so does the sum of two.
inline VectorI dot_quad(VectorI sum, VectorI weights, Quad x) {
  const auto words = reinterpret<VectorS>(weights);
  const auto pairs = reinterpret<VectorI>(((words << 8) >> 8) * x.even + (words >> 8) * x.odd);
  return sum + ((pairs << 16) >> 16) + (pairs >> 16);
}

inline VectorI dot_codes(VectorI sum, VectorI codes, Quad x) { return dot_quad(sum, codes, x); }

// Codes of four bits, one a byte.
inline VectorI low_nibbles(VectorI a) { return a & 0x0f0f0f0f; }
inline VectorI high_nibbles(VectorI a) { return (a >> 4) & 0x0f0f0f0f; }
struct Levels {
  std::int8_t values[16];
};
inline Levels load_levels(const std::int8_t* p) {
  Levels levels;
  __builtin_memcpy(levels.values, p, sizeof levels.values);
  return levels;
}
inline VectorI look_up(const Levels& levels, VectorI codes) {
  std::uint8_t bytes[kLanes * 4];
  __builtin_memcpy(bytes, &codes, sizeof bytes);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(levels.values[byte]);
  return load_int(bytes);
}

inline VectorF load_bf16(const std::uint8_t* p) {
  std::uint16_t halves[kLanes];
  __builtin_memcpy(halves, p, sizeof halves);
  return reinterpret<VectorF>(VectorI{halves[0], halves[1], halves[2], halves[3]} << 16);
}
inline void split_bf16(VectorI pairs, VectorF& even, VectorF& odd) {
  even = reinterpret<VectorF>(pairs << 16);
  odd = reinterpret<VectorF>(pairs & static_cast<std::int32_t>(0xffff0000));
}
// Halves (IEEE binary16). A subnormal half is an integer times 2^-24; no float here is subnormal.
inline VectorF load_half(const std::uint8_t* p) {
  std::uint16_t halves[kLanes];
  __builtin_memcpy(halves, p, sizeof halves);
  const VectorI bits{halves[0], halves[1], halves[2], halves[3]};
  const VectorI magnitude = bits & 0x7fff;
  const VectorI exponent_shift = select_int(magnitude >= 0x7c00, 224 << 23, 112 << 23);  // infinity and NaN go to 255
  const VectorI normal = (magnitude << 13) + exponent_shift;
  const auto subnormal = reinterpret<VectorI>(to_float(magnitude) * set1(0x1p-24F));
  const VectorI value = (normal & (magnitude >= 0x0400)) | (subnormal & (magnitude < 0x0400));
  return reinterpret<VectorF>(value | ((bits & 0x8000) << 16));
}
inline VectorF load_int8(const std::uint8_t* p) {
  std::int8_t bytes[kLanes];
  __builtin_memcpy(bytes, p, sizeof bytes);
  return to_float(VectorI{bytes[0], bytes[1], bytes[2], bytes[3]});
}

// value * 2^n, with n in the low bits of `shifted`.
inline VectorF scale_by_power(VectorF value, VectorF shifted) {
  return reinterpret<VectorF>(reinterpret<VectorI>(value) + (reinterpret<VectorI>(shifted) << 23));
}
inline VectorF zero_unless_at_least(VectorF x, VectorF low, VectorF value) {
  return select(x >= low, value, set1(0.0F));
}

inline float horizontal_add(VectorF a) { return (a[0] + a[2]) + (a[1] + a[3]); }
inline float horizontal_max(VectorF a) {
  const float even = a[0] > a[2] ? a[0] : a[2], odd = a[1] > a[3] ? a[1] : a[3];
  return even > odd ? even : odd;
}
inline std::int32_t horizontal_add_int(VectorI a) { return a[0] + a[1] + a[2] + a[3]; }

// ---- attention ----

constexpr int kScoreRows = 2;
constexpr int kScoreChains = 8;
constexpr int kValueVectors = 4;
constexpr int kSplitValueVectors = 2;  // where a pair takes two registers

inline VectorI and_int(VectorI a, VectorI b) { return a & b; }
inline VectorF and_float(VectorF a, VectorF b) {
  return reinterpret<VectorF>(reinterpret<VectorI>(a) & reinterpret<VectorI>(b));
}
// 8 signed bytes as words.
inline VectorI load_words(const std::uint8_t* p) {
  std::int8_t __attribute__((vector_size(8))) bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  return reinterpret<VectorI>(__builtin_convertvector(bytes, VectorS));
}
// 4 integers that fit words.
inline void store_words(std::uint8_t* p, VectorI a) {
  const std::int16_t words[kLanes] = {static_cast<std::int16_t>(a[0]), static_cast<std::int16_t>(a[1]),
                                      static_cast<std::int16_t>(a[2]), static_cast<std::int16_t>(a[3])};
  __builtin_memcpy(p, words, sizeof words);
}
// Per lane: sum + a.even * b.even + a.odd * b.odd, of words.
inline VectorI dot_words(VectorI sum, VectorI a, VectorI b) {
  return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
}

#include "kernels/body.inc"

constexpr Kernels kTable = make_kernels("portable", nullptr);

}  // namespace

const Kernels& portable_kernels() { return kTable; }

}  // namespace headway
