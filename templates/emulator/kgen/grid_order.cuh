// Kernels of a stream one behind the other, on the emulator, where each has ended before the next one begins.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void await_earlier_kernels() {}

KGEN_DEVICE void let_later_kernels_start() {}

}  // namespace kgen
