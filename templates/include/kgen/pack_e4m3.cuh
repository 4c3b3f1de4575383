// Rounding to E4M3 without the instruction for it.
#pragma once

#include "kgen/bytes.cuh"
#include "kgen/math.cuh"

namespace kgen {

// Four fp32 values from 0 to 1.75, times 2^8, rounded to E4M3; ties go up. The first comes in the lowest byte.
//
// fp16's exponents have bias 15 and E4M3's 7, so the bits of fp16(p) from bit 7 on are E4M3(2^8 p), subnormal numbers included.
// Hopper's conversion to E4M3 occupies the unit that exponentials need (measured on an H100: 24 clocks for a pair of exponentials and
// its conversion, 16 without); these are ordinary instructions.
KGEN_DEVICE uint32_t pack_e4m3_times_256(float first, float second, float third, float fourth) {
    // One multiply-add for both halves of a word: half a unit of E4M3 more, and bits 7 to 14 moved up to 8 to 15.
    const uint32_t low = pack<fp16>(first, second) * 2 + 0x00800080u;
    const uint32_t high = pack<fp16>(third, fourth) * 2 + 0x00800080u;
    return choose_bytes<0x7531>(low, high);
}

}  // namespace kgen
