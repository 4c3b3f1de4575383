// Transposed matrices of bytes from shared memory, on the emulator. See include/kgen/ldmatrix_b8.cuh for the fragment
// layout.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void ldmatrix_b8_x2_transposed(uint32_t (&fragment)[4], uint32_t address, KGEN_AT) {
    emulator::ldmatrix_b8_x2_transposed(fragment, address, at);
}

}  // namespace kgen
