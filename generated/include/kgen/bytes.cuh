// Bytes in 32-bit registers: rounding to E4M3 and E5M2, and selecting bytes.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Four fp32 values rounded to E4M3, to nearest even; the first in the lowest byte. Saturates at 448.
KGEN_DEVICE uint32_t pack_e4m3(float first, float second, float third, float fourth) {
    uint32_t packed;
    asm(
        "{.reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high};}"
        : "=r"(packed) : "f"(first), "f"(second), "f"(third), "f"(fourth));
    return packed;
}

// Four fp32 values rounded to E5M2, to nearest even; the first in the lowest byte. Saturates at 57344.
KGEN_DEVICE uint32_t pack_e5m2(float first, float second, float third, float fourth) {
    uint32_t packed;
    asm(
        "{.reg .b16 low, high; cvt.rn.satfinite.e5m2x2.f32 low, %2, %1; cvt.rn.satfinite.e5m2x2.f32 high, %4, %3; mov.b32 %0, {low, high};}"
        : "=r"(packed) : "f"(first), "f"(second), "f"(third), "f"(fourth));
    return packed;
}

// Byte i of the result is the byte selected by hexadecimal digit i of `SELECTOR`: 0 to 3 from `low`, 4 to 7 from
// `high`.
template <uint32_t SELECTOR>
KGEN_DEVICE uint32_t choose_bytes(uint32_t low, uint32_t high) {
    uint32_t chosen;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(chosen) : "r"(low), "r"(high), "n"(SELECTOR));
    return chosen;
}

}  // namespace kgen
