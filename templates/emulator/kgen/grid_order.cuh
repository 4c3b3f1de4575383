// Kernels of a stream one after another, on the emulator, where each has ended before the next one begins. Whether a kernel that may begin
// earlier waits before it touches device memory is looked at all the same.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void await_earlier_kernels() { emulator::await_earlier_kernels(); }

KGEN_DEVICE void let_later_kernels_start() {}

}  // namespace kgen
