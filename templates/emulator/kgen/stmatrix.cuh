// Matrix fragments to shared memory, on the emulator. See include/kgen/stmatrix.cuh for the fragment layout.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void stmatrix_x4(uint32_t address, const uint32_t (&fragment)[4], KGEN_AT) { emulator::stmatrix_x4(address, fragment, at); }

// stmatrix_x4() with each matrix transposed: lane l provides elements 2 (l % 4) and 2 (l % 4) + 1 of *column* l / 4.
KGEN_DEVICE void stmatrix_x4_transposed(uint32_t address, const uint32_t (&fragment)[4], KGEN_AT) {
    emulator::stmatrix_x4_transposed(address, fragment, at);
}

}  // namespace kgen
