// The tensor-core instruction of Turing, on the emulator. See include/kgen/mma_m16n8k8.cuh for the operand layout.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void mma_m16n8k8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0, KGEN_AT) {
    emulator::mma_m16n8k8(d, a0, a1, b0, at);
}

}  // namespace kgen
