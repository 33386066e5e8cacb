// What differs between operating systems and processors, and is not a kernel: memory, CPU features, float mode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace headway {

struct PageDeleter {
  std::size_t num_bytes = 0;
  void operator()(std::uint8_t* pages) const;
};
using Pages = std::unique_ptr<std::uint8_t[], PageDeleter>;

// Zeroed memory aligned to a page, in huge pages where the system offers them. Pages are bound at first touch.
// Throws std::bad_alloc.
Pages allocate_pages(std::size_t num_bytes);

// Binds pages that were not touched yet; what is in them stays. Nobody else may write them meanwhile.
void bind_pages(std::uint8_t* begin, std::size_t num_bytes);

// What the processor and the operating system support together.
struct CpuFeatures {
  bool avx2 = false;        // AVX2, FMA and F16C
  bool avx512 = false;      // F, BW, DQ, VL, VNNI
  bool avx512bf16 = false;  // and BF16
};
CpuFeatures detect_cpu();

// Tells the processor that this thread spins.
void relax_cpu();

// Sets this thread's rounding to nearest and flushes subnormals to zero, in and out, while it lives: floats mean the
// same on every thread, whatever the caller or a library set before.
class FloatModeScope {
 public:
  FloatModeScope();
  ~FloatModeScope();
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;

 private:
  std::uint64_t saved_;
};

}  // namespace headway
