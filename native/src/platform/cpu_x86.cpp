// CPU features and float mode of x86-64. Compiled for the baseline.
#include <cpuid.h>
#include <xmmintrin.h>

#include "platform/platform.h"

namespace headway {
namespace {

constexpr bool has_bit(unsigned value, int bit) { return ((value >> bit) & 1U) != 0; }

std::uint64_t read_xcr0() {
  std::uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

}  // namespace

CpuFeatures detect_cpu() {
  // Bits: Intel 64 and IA-32 manual, volume 2, CPUID; volume 1, 14.5 and 15.2 (XCR0: what the system saves).
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return {};
  const bool osxsave = has_bit(ecx, 27), avx = has_bit(ecx, 28), fma = has_bit(ecx, 12), f16c = has_bit(ecx, 29);
  if (!osxsave || !avx) return {};
  const std::uint64_t saved = read_xcr0();
  const bool saves_ymm = (saved & 0x06) == 0x06;  // SSE, AVX
  const bool saves_zmm = (saved & 0xe6) == 0xe6;  // and opmask, upper halves, upper registers
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return {};
  CpuFeatures features;
  features.avx2 = saves_ymm && fma && f16c && has_bit(ebx, 5);
  features.avx512 = features.avx2 && saves_zmm && has_bit(ebx, 16) && has_bit(ebx, 17) && has_bit(ebx, 30) &&
                    has_bit(ebx, 31) && has_bit(ecx, 11);  // F, DQ, BW, VL, VNNI
  const unsigned max_subleaf = eax;
  if (features.avx512 && max_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0)
    features.avx512bf16 = has_bit(eax, 5);
  return features;
}

void relax_cpu() { _mm_pause(); }

FloatModeScope::FloatModeScope() : saved_(_mm_getcsr()) {
  constexpr unsigned kMaskExceptions = 0x1f80, kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(kMaskExceptions | kFlushToZero | kDenormalsAreZero);
}

FloatModeScope::~FloatModeScope() { _mm_setcsr(static_cast<unsigned>(saved_)); }

}  // namespace headway
