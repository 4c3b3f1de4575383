// The platform of a kernel, on the emulator: function qualifiers and thread indices. The counterpart of
// include/kgen/platform.cuh; docs/emulator.md describes the emulator.
#pragma once

#include <stdint.h>
#include <stdlib.h>

#include "kgen/emulator.h"

// The functions that kernels call by name. C's <math.h> would take a fifteenth of a kernel's compile time, and <cmath>
// a quarter.
extern "C" {
float expf(float) noexcept;
float fabsf(float) noexcept;
float fmaxf(float, float) noexcept;
float fminf(float, float) noexcept;
float logf(float) noexcept;
float tanhf(float) noexcept;
}

#define KGEN_DEVICE inline
#define KGEN_HOST_DEVICE inline
#define KGEN_KERNEL(max_threads, min_blocks) ::kgen::emulator::kernel_result<(max_threads), (min_blocks)>
#define KGEN_PARAMETER const
#define KGEN_UNROLL  // loops stay loops: less code for the host compiler
#define KGEN_ROLLED

namespace kgen::emulator {

// A kernel's return type: void, once its launch bounds have been checked.
template <int MAX_THREADS, int MIN_BLOCKS>
struct bounded {
    static_assert(MAX_THREADS > 0 && MAX_THREADS <= 1024 && MIN_BLOCKS >= 1, "launch bounds that no GPU supports");
    using result = void;
};

// An alias, so that KGEN_KERNEL works without `typename` if the bounds depend on template parameters.
template <int MAX_THREADS, int MIN_BLOCKS>
using kernel_result = typename bounded<MAX_THREADS, MIN_BLOCKS>::result;

}  // namespace kgen::emulator

namespace kgen {

KGEN_DEVICE uint32_t thread_index() { return emulator::current->thread; }
KGEN_DEVICE uint32_t block_index() { return emulator::current->block; }
KGEN_DEVICE uint32_t lane_index() { return emulator::current->lane; }
// A shuffle on a GPU, so a warp-wide primitive here too.
KGEN_DEVICE uint32_t warp_index(KGEN_AT) { return emulator::warp_index(at); }

// The GPU's version hides from the compiler how `value` was computed; the emulator's returns it unchanged.
template <class T>
KGEN_DEVICE T* opaque(T* value) {
    return value;
}

template <class T>
KGEN_DEVICE T* opaque_after(T* value, float) {
    return value;
}

KGEN_DEVICE int opaque(int value) { return value; }

// The CUDA built-in functions that kernels use.
KGEN_DEVICE int min(int a, int b) { return a < b ? a : b; }
KGEN_DEVICE int max(int a, int b) { return a > b ? a : b; }
KGEN_DEVICE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
KGEN_DEVICE int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace kgen
