// The clocks of a GPU, for kernels that time themselves (PTX ISA, "Special Registers").
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Cycles of the multiprocessor's own clock since an arbitrary moment.
KGEN_DEVICE int64_t clock_cycles() {
    int64_t cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}

// Nanoseconds of the card's timer, which no change of the clocks affects. It advances in steps: of 32 ns on an H100, of
// a microsecond on older cards.
KGEN_DEVICE int64_t clock_nanoseconds() {
    int64_t nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds)::"memory");
    return nanoseconds;
}

}  // namespace kgen
