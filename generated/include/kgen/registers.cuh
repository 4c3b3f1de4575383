// Register reallocation between warpgroups (PTX ISA, "setmaxnreg"; sm_90a and newer).
//
// A kernel starts with the same number of registers in every thread, determined by its launch bounds. A warpgroup that
// needs few releases the rest; another one waits until enough are free. COUNT is a multiple of 8 from 24 to 256. All
// four warps of the warpgroup must call it together.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

template <int COUNT>
KGEN_DEVICE void release_registers() {
    static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256, "what setmaxnreg takes");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
KGEN_DEVICE void claim_registers() {
    static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256, "what setmaxnreg takes");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

}  // namespace kgen
