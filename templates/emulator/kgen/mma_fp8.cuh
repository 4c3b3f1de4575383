// The FP8 tensor-core instructions, on the emulator. See include/kgen/mma_fp8.cuh for the operand layouts.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// D in fp32.
KGEN_DEVICE void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, KGEN_AT) {
    emulator::mma_m16n8k32(d, a, b0, b1, at);
}

// D in fp16: d[0] holds row g, d[1] row g + 8, two columns each. Sums saturate at 65504.
KGEN_DEVICE void mma_m16n8k32_fp16(uint32_t (&d)[2], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, KGEN_AT) {
    emulator::mma_m16n8k32_fp16(d, a, b0, b1, at);
}

// Scale of a row of A or a column of B, a power of two in a byte (UE8M0: 2^(byte - 127); 255 is NaN): here 1.
constexpr uint32_t UNIT_SCALE = 127;

// D in fp32 += (A * a power of two per row) * (B * a power of two per column).
template <int BYTE_A = 0, int PAIR_A = 0, int BYTE_B = 0, int LANE_B = 0>
KGEN_DEVICE void mma_m16n8k32_block_scaled(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, uint32_t scale_a,
                                           uint32_t scale_b, KGEN_AT) {
    static_assert(BYTE_A >= 0 && BYTE_A < 4 && BYTE_B >= 0 && BYTE_B < 4, "a register holds four scales");
    static_assert(PAIR_A >= 0 && PAIR_A < 2 && LANE_B >= 0 && LANE_B < 4, "scales come from lanes of the same four");
    const emulator::block_scales scales = {scale_a >> BYTE_A * 8 & 0xff, scale_b >> BYTE_B * 8 & 0xff, PAIR_A, LANE_B};
    emulator::mma_m16n8k32_block_scaled(d, a, b0, b1, scales, at);
}

}  // namespace kgen
