// Processors we have no kernels for: the portable ones, and the float mode that the thread has.
// A port must set flush-to-zero here (aarch64: FPCR), or its results depend on the caller's mode.
#include "platform/platform.h"

namespace headway {

CpuFeatures detect_cpu() { return {}; }

void relax_cpu() {}

FloatModeScope::FloatModeScope() : saved_(0) {}

FloatModeScope::~FloatModeScope() = default;

}  // namespace headway
