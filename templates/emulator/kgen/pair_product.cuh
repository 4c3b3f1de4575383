// Products of packed pairs of 16-bit elements, on the emulator. See include/kgen/pair_product.cuh.
#pragma once

#include "kgen/math.cuh"
#include "kgen/platform.cuh"

namespace kgen {

// Two bf16 values times two others. A product of two has 16 bits of mantissa at most, so that fp32 holds it, unless it
// is subnormal there: then it is rounded twice, which nothing here does.
KGEN_DEVICE uint32_t multiply_bf16_pairs(uint32_t pair, uint32_t factors) {
    const auto product = [&](int shift) {
        return emulator::round_to_bf16(emulator::widen_bf16(static_cast<uint16_t>(pair >> shift)) * emulator::widen_bf16(static_cast<uint16_t>(factors >> shift)));
    };
    return product(0) | product(16) << 16;
}

}  // namespace kgen
