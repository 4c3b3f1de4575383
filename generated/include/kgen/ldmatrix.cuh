// Matrix fragments from shared memory (PTX ISA, "ldmatrix"; sm_75 and newer).
// Four 8x8 matrices of 16-bit elements: lanes 8i .. 8i + 7 give the addresses of the eight 16-byte rows of matrix i,
// and lane l receives in fragment[i] elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of matrix i.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void ldmatrix_x4(uint32_t (&fragment)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

// ldmatrix_x4() with each matrix transposed: lane l receives elements 2 (l % 4) and 2 (l % 4) + 1 of *column* l / 4.
KGEN_DEVICE void ldmatrix_x4_transposed(uint32_t (&fragment)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

}  // namespace kgen
