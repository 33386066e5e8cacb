// What the machine can do at most with an instruction set and some threads: int8 and bfloat16 arithmetic in registers,
// and reading memory. Results are compared with it; nothing that computes a model needs it.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/kernels.h"
#include "platform/platform.h"
#include "worker_pool.h"

namespace headway {

class MachineLimits {
 public:
  // Writes `num_bytes` of memory, to be read: more than the caches hold. Rounded up to whole pieces of 1 MiB.
  // Throws std::invalid_argument (an instruction set this machine lacks, no threads, no bytes), std::bad_alloc.
  MachineLimits(std::string_view isa, int num_threads, std::int64_t num_bytes);

  // One run each, of about `duration_s` per thread: operations, floating-point operations and bytes a second. A multiply
  // and an add count as two. One caller at a time.
  double int8_ops_per_s(double duration_s);
  double float_ops_per_s(double duration_s);  // bfloat16 dot products where the instruction set has them, else float32
  double read_bytes_per_s();                  // all of the memory, once

  const char* isa() const { return kernels_.name; }

 private:
  double ops_per_s(std::int64_t (*peak)(std::int64_t rounds), double duration_s);

  const Kernels& kernels_;
  WorkerPool pool_;
  std::int64_t num_pieces_;
  Pages memory_;
};

}  // namespace headway
