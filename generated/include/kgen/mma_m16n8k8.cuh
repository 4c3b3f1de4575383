// The tensor-core instruction of Turing (PTX ISA, "mma.sync.aligned.m16n8k8"; sm_75 and newer): half the depth of
// m16n8k16.
//
// D (16x8, fp32) += A (16x8, row) * B (8x8, column), A and B fp16. With g = lane / 4 and t = lane % 4:
//   A: a0 = (g, 2t..), a1 = (g + 8, 2t..), two elements each
//   B: b0 = (2t.., g)
//   D: d[0], d[1] = (g, 2t), (g, 2t + 1); d[2], d[3] = (g + 8, 2t), (g + 8, 2t + 1)
// The fragments of m16n8k16 are thus those of two m16n8k8: a[0], a[1], b0 and a[2], a[3], b1.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE void mma_m16n8k8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}

}  // namespace kgen
