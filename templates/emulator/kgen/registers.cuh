// Register reallocation between warpgroups, on the emulator, which always has enough. When the block ends it checks
// that a GPU would have them too. See include/kgen/registers.cuh.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

template <int COUNT>
KGEN_DEVICE void release_registers(KGEN_AT) {
    static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256, "what setmaxnreg takes");
    emulator::release_registers(COUNT, at);
}

template <int COUNT>
KGEN_DEVICE void claim_registers(KGEN_AT) {
    static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256, "what setmaxnreg takes");
    emulator::claim_registers(COUNT, at);
}

}  // namespace kgen
