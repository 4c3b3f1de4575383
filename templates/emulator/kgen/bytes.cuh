// Bytes in 32-bit registers, on the emulator. See include/kgen/bytes.cuh.
#pragma once

#include "kgen/math.cuh"
#include "kgen/platform.cuh"

namespace kgen::emulator {

// Rounds to nearest even. Infinity and values that would round to more than 448 become 448, a NaN becomes 0x7f.
KGEN_DEVICE uint32_t round_to_e4m3(float x) {
    const uint32_t bits = float_bits(x);
    const uint32_t sign = bits >> 24 & 0x80u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fu;
    if (magnitude >= 0x43e00000u) return sign | 0x7eu;  // 448
    if (magnitude < 0x3c800000u) {
        // A subnormal result is a multiple of 2^-9: adding 2^14, whose last bit is 2^-9, performs the rounding.
        return sign | (float_bits(float_of_bits(magnitude) + 0x1p14f) - 0x46800000u);
    }
    const uint32_t rounded = (magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1)) >> 20;
    return sign | (rounded > 0x7eu ? 0x7eu : rounded);
}

// Rounds to nearest even. Infinity and values that would round to more than 57344 become 57344, a NaN becomes 0x7f.
KGEN_DEVICE uint32_t round_to_e5m2(float x) {
    const uint32_t bits = float_bits(x);
    const uint32_t sign = bits >> 24 & 0x80u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fu;
    if (magnitude >= 0x47600000u) return sign | 0x7bu;  // 57344
    // A subnormal result is a multiple of 2^-16, the last bit of 2^7.
    if (magnitude < 0x38800000u) return sign | (float_bits(float_of_bits(magnitude) + 0x1p7f) - 0x43000000u);
    return sign | (magnitude - 0x38000000u + 0xfffffu + (magnitude >> 21 & 1)) >> 21;
}

}  // namespace kgen::emulator

namespace kgen {

// Four fp32 values rounded to E4M3, to nearest even; the first in the lowest byte. Saturates at 448.
KGEN_DEVICE uint32_t pack_e4m3(float first, float second, float third, float fourth) {
    return emulator::round_to_e4m3(first) | emulator::round_to_e4m3(second) << 8 | emulator::round_to_e4m3(third) << 16 |
           emulator::round_to_e4m3(fourth) << 24;
}

// Four fp32 values rounded to E5M2, to nearest even; the first in the lowest byte. Saturates at 57344.
KGEN_DEVICE uint32_t pack_e5m2(float first, float second, float third, float fourth) {
    return emulator::round_to_e5m2(first) | emulator::round_to_e5m2(second) << 8 | emulator::round_to_e5m2(third) << 16 |
           emulator::round_to_e5m2(fourth) << 24;
}

// Byte i of the result is the byte selected by hexadecimal digit i of `SELECTOR`: 0 to 3 from `low`, 4 to 7 from
// `high`.
template <uint32_t SELECTOR>
KGEN_DEVICE uint32_t choose_bytes(uint32_t low, uint32_t high) {
    static_assert((SELECTOR & ~0x7777u) == 0, "a digit names one of eight bytes");
    const uint64_t both = low | static_cast<uint64_t>(high) << 32;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < 4; ++i) chosen |= static_cast<uint32_t>(both >> (SELECTOR >> i * 4 & 7) * 8 & 0xff) << i * 8;
    return chosen;
}

}  // namespace kgen
