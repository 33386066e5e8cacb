// The AVX2 kernels (AVX2, FMA, F16C).
//
// vpmaddubsw adds two products of an unsigned and a signed byte with saturation at 32767. Both factors lie within
// [-127, 127], and the signs move to one side: |x| * (w with the sign of x), so that a pair is at most 2 * 127 * 127 =
// 32258.
#include <immintrin.h>

#include "kernels/kernels.h"

namespace headway {
namespace {

constexpr int kLanes = 8;
constexpr int kMatmulRows = 4;  // 4 x 2 dots of 16 registers
constexpr int kMatmulVectors = 2;
constexpr int kSingleRowVectors = 4;
constexpr int kWeightBias = 0;
constexpr bool kHasBf16Dot = false;

using VectorF = __m256;
using VectorI = __m256i;
struct Quad {
  __m256i value, magnitude;
};

inline VectorF set1(float value) { return _mm256_set1_ps(value); }
inline VectorF load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, VectorF v) { _mm256_storeu_ps(p, v); }
inline VectorF add(VectorF a, VectorF b) { return _mm256_add_ps(a, b); }
inline VectorF sub(VectorF a, VectorF b) { return _mm256_sub_ps(a, b); }
inline VectorF mul(VectorF a, VectorF b) { return _mm256_mul_ps(a, b); }
inline VectorF divide(VectorF a, VectorF b) { return _mm256_div_ps(a, b); }
inline VectorF fma(VectorF a, VectorF b, VectorF c) { return _mm256_fmadd_ps(a, b, c); }
inline VectorF min(VectorF a, VectorF b) { return _mm256_min_ps(a, b); }
inline VectorF max(VectorF a, VectorF b) { return _mm256_max_ps(a, b); }
inline VectorF absolute(VectorF a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a); }
inline float first_lane(VectorF a) { return _mm256_cvtss_f32(a); }
inline float square_root(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

inline VectorI set1_int(std::int32_t value) { return _mm256_set1_epi32(value); }
inline VectorI load_int(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline VectorI add_int(VectorI a, VectorI b) { return _mm256_add_epi32(a, b); }
inline VectorF to_float(VectorI a) { return _mm256_cvtepi32_ps(a); }
inline VectorI round_to_int(VectorF a) { return _mm256_cvtps_epi32(a); }
inline void store_bytes(std::int8_t* p, VectorI a) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}

inline Quad broadcast_quad(const std::int8_t* p) {
  std::int32_t quad;
  __builtin_memcpy(&quad, p, sizeof quad);
  const __m256i value = _mm256_set1_epi32(quad);
  return {value, _mm256_abs_epi8(value)};
}
inline VectorI dot_quad(VectorI sum, VectorI weights, Quad x) {
  const __m256i pairs = _mm256_maddubs_epi16(x.magnitude, _mm256_sign_epi8(weights, x.value));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// At most 2 * 15 * 127 a pair.
inline VectorI dot_codes(VectorI sum, VectorI codes, Quad x) {
  const __m256i pairs = _mm256_maddubs_epi16(codes, x.value);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Codes of four bits, one a byte.
inline VectorI low_nibbles(VectorI a) { return _mm256_and_si256(a, _mm256_set1_epi8(15)); }
inline VectorI high_nibbles(VectorI a) { return _mm256_and_si256(_mm256_srli_epi16(a, 4), _mm256_set1_epi8(15)); }
using Levels = __m256i;
inline Levels load_levels(const std::int8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline VectorI look_up(Levels levels, VectorI codes) { return _mm256_shuffle_epi8(levels, codes); }

inline VectorF load_bf16(const std::uint8_t* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline void split_bf16(VectorI pairs, VectorF& even, VectorF& odd) {
  even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
  odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
}
// Halves (IEEE binary16).
inline VectorF load_half(const std::uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline VectorF load_int8(const std::uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// value * 2^n, with n in the low bits of `shifted`.
inline VectorF scale_by_power(VectorF value, VectorF shifted) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), exponent));
}
inline VectorF zero_unless_at_least(VectorF x, VectorF low, VectorF value) {
  return _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_GE_OQ), value);
}

inline float horizontal_add(VectorF a) {
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_movehdup_ps(h2)));
}
inline float horizontal_max(VectorF a) {
  const __m128 h4 = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 h2 = _mm_max_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_max_ss(h2, _mm_movehdup_ps(h2)));
}
inline std::int32_t horizontal_add_int(VectorI a) {
  const __m128i h4 = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i h2 = _mm_add_epi32(h4, _mm_shuffle_epi32(h4, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(h2, _mm_shuffle_epi32(h2, 0xb1)));
}

// ---- attention ----

constexpr int kScoreRows = 4;  // 4 x 2 scores, 4 x 2 sums of values of 16 registers
constexpr int kScoreChains = 8;
constexpr int kValueVectors = 2;
constexpr int kSplitValueVectors = 2;  // where a pair takes two registers

inline VectorI and_int(VectorI a, VectorI b) { return _mm256_and_si256(a, b); }
inline VectorF and_float(VectorF a, VectorF b) { return _mm256_and_ps(a, b); }
// 16 signed bytes as words.
inline VectorI load_words(const std::uint8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// 8 integers that fit words.
inline void store_words(std::uint8_t* p, VectorI a) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), words);
}
// Per lane: sum + a.even * b.even + a.odd * b.odd, of words. vpmaddwd would wrap only for four factors of -32768; those
// of `a` are bytes.
inline VectorI dot_words(VectorI sum, VectorI a, VectorI b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

#include "kernels/body.inc"

constexpr Kernels kTable = make_kernels("avx2", nullptr);

}  // namespace

const Kernels& avx2_kernels() { return kTable; }

}  // namespace headway
