// The AVX-512 kernels with dot products of bfloat16 (BF16): bf16 weights take activations rounded to bfloat16.
#include "kernels/avx512.inc"

namespace headway {
namespace {

constexpr bool kHasBf16Dot = true;

// Per lane: sum + a.odd * b.odd, then + a.even * b.even; each rounded once to nearest, subnormals flushed (Intel 64 and
// IA-32 manual, VDPBF16PS).
inline VectorF dot_bf16(VectorF sum, VectorI a, VectorI b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
// 32 floats, rounded to nearest even, to bfloat16 in order.
inline VectorI to_bf16(VectorF low, VectorF high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

#include "kernels/body.inc"

void round_to_halves(const float* x, int count, std::uint16_t* out) {
  for (int i = 0; i < count; i += 32) _mm512_storeu_si512(out + i, to_bf16(load(x + i), load(x + i + 16)));
}

constexpr Kernels kTable = make_kernels("avx512bf16", round_to_halves);

}  // namespace

const Kernels& avx512bf16_kernels() { return kTable; }

}  // namespace headway
