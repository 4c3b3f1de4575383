// The tensor-core instruction of the sm_80 path, on the emulator. See include/kgen/mma.cuh for the operand layout.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

template <class T>
KGEN_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, KGEN_AT);

template <>
KGEN_DEVICE void mma_m16n8k16<bf16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, emulator::source at) {
    emulator::mma_m16n8k16_bf16(d, a, b0, b1, at);
}

template <>
KGEN_DEVICE void mma_m16n8k16<fp16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, emulator::source at) {
    emulator::mma_m16n8k16_fp16(d, a, b0, b1, at);
}

}  // namespace kgen
