// Products of packed pairs of 16-bit elements, on the emulator. See include/kgen/pair_product.cuh.
#pragma once

#include "kgen/math.cuh"
#include "kgen/platform.cuh"

namespace kgen {

// Two bf16 values times two others. A product has at most 16 bits of mantissa, so fp32 holds it exactly unless it is
// subnormal there: it would then be rounded twice, which does not occur in kgen's kernels.
KGEN_DEVICE uint32_t multiply_bf16_pairs(uint32_t pair, uint32_t factors) {
    const auto product = [&](int shift) {
        return emulator::round_to_bf16(emulator::widen_bf16(static_cast<uint16_t>(pair >> shift)) * emulator::widen_bf16(static_cast<uint16_t>(factors >> shift)));
    };
    return product(0) | product(16) << 16;
}

}  // namespace kgen
