// Rounding to FP8 by integer arithmetic, for targets without the instruction (kgen/bytes.cuh has that).
#pragma once

#include <string.h>

#include "kgen/platform.cuh"

namespace kgen {

// `x` rounded to nearest even, to a number with EXPONENT_BITS of exponent and MANTISSA_BITS of mantissa whose largest
// has the bits LARGEST. Larger values saturate to it; NaN becomes 0x7f.
template <int EXPONENT_BITS, int MANTISSA_BITS, uint32_t LARGEST>
KGEN_DEVICE uint32_t round_to_byte(float x) {
    constexpr int dropped = 23 - MANTISSA_BITS;
    constexpr int bias = (1 << (EXPONENT_BITS - 1)) - 1;
    constexpr uint32_t smallest_normal = static_cast<uint32_t>(128 - bias) << 23;
    // The fp32 number whose last bit has the weight of the last bit of subnormal results: adding it performs the
    // rounding.
    constexpr uint32_t rounder = static_cast<uint32_t>(128 - bias + dropped) << 23;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fu;
    uint32_t rounded;
    if (magnitude < smallest_normal) {
        float value, large;
        memcpy(&value, &magnitude, sizeof value);
        memcpy(&large, &rounder, sizeof large);
        value += large;
        memcpy(&rounded, &value, sizeof rounded);
        rounded -= rounder;
    } else {
        rounded = (magnitude - (smallest_normal - (1u << 23)) + ((1u << (dropped - 1)) - 1) +
                   (magnitude >> dropped & 1)) >> dropped;
    }
    return sign | (rounded < LARGEST ? rounded : LARGEST);
}

KGEN_DEVICE uint32_t round_to_e4m3(float x) { return round_to_byte<4, 3, 0x7e>(x); }

KGEN_DEVICE uint32_t round_to_e5m2(float x) { return round_to_byte<5, 2, 0x7b>(x); }

}  // namespace kgen
