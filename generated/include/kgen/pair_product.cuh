// Products of packed pairs of 16-bit elements (PTX ISA, "fma"; sm_80 and newer).
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Two bf16 values times two others, each rounded to nearest even. Subnormal numbers are kept, and so is the sign of 0,
// because the addend is -0.
KGEN_DEVICE uint32_t multiply_bf16_pairs(uint32_t pair, uint32_t factors) {
    uint32_t products;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(products) : "r"(pair), "r"(factors), "r"(0x80008000u));
    return products;
}

}  // namespace kgen
