// Matrix fragments to shared memory (PTX ISA, "stmatrix"; sm_90 and newer): the inverse of ldmatrix.
// Four 8x8 matrices of 16-bit elements: lanes 8i .. 8i + 7 give the addresses of the eight 16-byte rows of matrix i,
// and lane l provides in fragment[i] elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of matrix i.
//
// These are ordinary writes: other lanes see them after warp_sync() or a barrier, and wgmma and TMA also need
// fence_proxy_async() (kgen/tma.cuh).
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void stmatrix_x4(uint32_t address, const uint32_t (&fragment)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3]) : "memory");
}

// stmatrix_x4() with each matrix transposed: lane l provides elements 2 (l % 4) and 2 (l % 4) + 1 of *column* l / 4.
KGEN_DEVICE void stmatrix_x4_transposed(uint32_t address, const uint32_t (&fragment)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3]) : "memory");
}

}  // namespace kgen
