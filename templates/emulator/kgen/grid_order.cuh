// Consecutive kernels of a stream, on the emulator, where each completes before the next begins. Whether a kernel that
// may begin earlier waits before it accesses device memory is checked nevertheless.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void await_earlier_kernels() { emulator::await_earlier_kernels(); }

KGEN_DEVICE void let_later_kernels_start() {}

}  // namespace kgen
