// Transposed matrices of bytes from shared memory (PTX ISA, "ldmatrix ... .m16n16.b8"; sm_100 and sm_120 families).
// Two 16x16 matrices of 1-byte elements: lanes 16i .. 16i + 15 give the addresses of the sixteen 16-byte rows of matrix
// i. Lane l receives rows 4 (l % 4) .. 4 (l % 4) + 3 of column l / 4 of matrix i in fragment[2i], and the same rows of
// column l / 4 + 8 in fragment[2i + 1].
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void ldmatrix_b8_x2_transposed(uint32_t (&fragment)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

}  // namespace kgen
