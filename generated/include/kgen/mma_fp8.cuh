// The FP8 tensor-core instructions (PTX ISA, "mma.sync.aligned.m16n8k32"; E4M3 on both sides; sm_89 and newer).
//
// D (16x8) += A (16x32, row) * B (32x8, column). With g = lane / 4 and t = lane % 4:
//   A: a[0] = (g, 4t..), a[1] = (g + 8, 4t..), a[2] = (g, 4t + 16..), a[3] = (g + 8, 4t + 16..), four elements each
//   B: b0 = (4t.., g), b1 = (4t + 16.., g)
//   D: as in mma.cuh, rows g and g + 8, columns 2t and 2t + 1
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// D in fp32.
KGEN_DEVICE void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// D in fp16, twice as fast on GeForce: d[0] holds row g, d[1] row g + 8, two columns each. Sums saturate at 65504.
KGEN_DEVICE void mma_m16n8k32_fp16(uint32_t (&d)[2], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Scale of a row of A or a column of B, a power of two in a byte (UE8M0: 2^(byte - 127); 255 is NaN): here 1.
constexpr uint32_t UNIT_SCALE = 127;

// D in fp32 += (A * a power of two per row) * (B * a power of two per column), the microscaling form (sm_120 family
// only). Byte BYTE_A of `scale_a` is used, in lanes 2 PAIR_A and 2 PAIR_A + 1 of each four: the first holds the scale
// of row g, the second that of row g + 8. Byte BYTE_B of `scale_b` is used, in lane LANE_B of each four, which holds
// the scale of column g.
template <int BYTE_A = 0, int PAIR_A = 0, int BYTE_B = 0, int LANE_B = 0>
KGEN_DEVICE void mma_m16n8k32_block_scaled(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                           uint32_t scale_a, uint32_t scale_b) {
    asm volatile("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%14, %15};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(scale_a), "r"(scale_b),
                   "n"(BYTE_A), "n"(PAIR_A),
                   "n"(BYTE_B), "n"(LANE_B));
}

}  // namespace kgen
