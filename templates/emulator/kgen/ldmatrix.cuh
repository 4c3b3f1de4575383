// Matrix fragments from shared memory, on the emulator. See include/kgen/ldmatrix.cuh for the fragment layout.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void ldmatrix_x4(uint32_t (&fragment)[4], uint32_t address, KGEN_AT) { emulator::ldmatrix_x4(fragment, address, at); }

// ldmatrix_x4() with each matrix transposed: lane l receives elements 2 (l % 4) and 2 (l % 4) + 1 of *column* l / 4.
KGEN_DEVICE void ldmatrix_x4_transposed(uint32_t (&fragment)[4], uint32_t address, KGEN_AT) {
    emulator::ldmatrix_x4_transposed(fragment, address, at);
}

}  // namespace kgen
