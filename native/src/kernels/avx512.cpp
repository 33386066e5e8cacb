// The AVX-512 kernels of processors without dot products of bfloat16.
#include "kernels/avx512.inc"

namespace headway {
namespace {

constexpr bool kHasBf16Dot = false;

#include "kernels/body.inc"

constexpr Kernels kTable = make_kernels("avx512", nullptr);

}  // namespace

const Kernels& avx512_kernels() { return kTable; }

}  // namespace headway
