// Consecutive kernels of a stream, on the emulator, where each completes before the next begins. The emulator still
// checks that a kernel which may begin earlier waits before it accesses device memory.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void await_earlier_kernels() { emulator::await_earlier_kernels(); }

KGEN_DEVICE void let_later_kernels_start() {}

}  // namespace kgen
