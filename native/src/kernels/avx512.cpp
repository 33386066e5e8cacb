// The AVX-512 kernels (F, BW, DQ, VL, VNNI). vpdpbusd wants unsigned times signed bytes, so weights are packed plus
// 128.
#include <immintrin.h>

#include "kernels/kernels.h"

namespace headway {
namespace {

constexpr int kLanes = 16;
constexpr int kMatmulRows = 6;  // 6 x 2 sums and 6 x 2 dots of 32 registers
constexpr int kMatmulVectors = 2;
constexpr int kSingleRowVectors = 2;
constexpr int kScoreRows = 4;
constexpr int kWeightBias = 128;

using VectorF = __m512;
using VectorI = __m512i;
using Quad = __m512i;

inline VectorF set1(float value) { return _mm512_set1_ps(value); }
inline VectorF load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, VectorF v) { _mm512_storeu_ps(p, v); }
inline VectorF add(VectorF a, VectorF b) { return _mm512_add_ps(a, b); }
inline VectorF sub(VectorF a, VectorF b) { return _mm512_sub_ps(a, b); }
inline VectorF mul(VectorF a, VectorF b) { return _mm512_mul_ps(a, b); }
inline VectorF divide(VectorF a, VectorF b) { return _mm512_div_ps(a, b); }
inline VectorF fma(VectorF a, VectorF b, VectorF c) { return _mm512_fmadd_ps(a, b, c); }
inline VectorF min(VectorF a, VectorF b) { return _mm512_min_ps(a, b); }
inline VectorF max(VectorF a, VectorF b) { return _mm512_max_ps(a, b); }
inline VectorF absolute(VectorF a) { return _mm512_abs_ps(a); }
inline float first_lane(VectorF a) { return _mm512_cvtss_f32(a); }
inline float square_root(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

inline VectorI set1_int(std::int32_t value) { return _mm512_set1_epi32(value); }
inline VectorI load_int(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
inline VectorI add_int(VectorI a, VectorI b) { return _mm512_add_epi32(a, b); }
inline VectorF to_float(VectorI a) { return _mm512_cvtepi32_ps(a); }
inline VectorI round_to_int(VectorF a) { return _mm512_cvtps_epi32(a); }
inline void store_bytes(std::int8_t* p, VectorI a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}

inline Quad broadcast_quad(const std::int8_t* p) {
  std::int32_t quad;
  __builtin_memcpy(&quad, p, sizeof quad);
  return _mm512_set1_epi32(quad);
}
inline VectorI dot_quad(VectorI sum, VectorI weights, Quad x) { return _mm512_dpbusd_epi32(sum, weights, x); }

inline VectorF load_bf16(const std::uint8_t* p) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline void split_bf16(VectorI pairs, VectorF& even, VectorF& odd) {
  even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}
inline VectorF load_int8(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// value * 2^n, with n in the low bits of `shifted`.
inline VectorF scale_by_power(VectorF value, VectorF shifted) {
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value), exponent));
}
inline VectorF zero_unless_at_least(VectorF x, VectorF low, VectorF value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_GE_OQ), value);
}

inline __m256 upper_half(VectorF a) { return _mm512_extractf32x8_ps(a, 1); }
inline float horizontal_add(VectorF a) {
  const __m256 h8 = _mm256_add_ps(_mm512_castps512_ps256(a), upper_half(a));
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_movehdup_ps(h2)));
}
inline float horizontal_max(VectorF a) {
  const __m256 h8 = _mm256_max_ps(_mm512_castps512_ps256(a), upper_half(a));
  const __m128 h4 = _mm_max_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_max_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_max_ss(h2, _mm_movehdup_ps(h2)));
}
inline std::int32_t horizontal_add_int(VectorI a) { return _mm512_reduce_add_epi32(a); }

#include "kernels/body.inc"

constexpr Kernels kTable = make_kernels("avx512");

}  // namespace

const Kernels& avx512_kernels() { return kTable; }

}  // namespace headway
