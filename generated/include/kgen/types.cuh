// The element types, as named bit patterns. CUDA's own half and bfloat16 headers cost half a CPU second of compile time
// per file, and nothing here does arithmetic on 8- and 16-bit values: the tensor cores do, and everything else is fp32.
#pragma once

#include <stdint.h>

namespace kgen {

struct fp16 {
    uint16_t bits;
};

struct bf16 {
    uint16_t bits;
};

// FP8: sign, 4 bits of exponent, 3 of mantissa. No infinity; 0x7f and 0xff are NaN; the largest number is 448, the
// smallest above 0 is 2^-9.
struct e4m3 {
    uint8_t bits;
};

// FP8: sign, 5 bits of exponent, 2 of mantissa: the upper half of an fp16. The largest number is 57344, the smallest
// above 0 is 2^-16.
struct e5m2 {
    uint8_t bits;
};

static_assert(sizeof(fp16) == 2 && sizeof(bf16) == 2 && sizeof(e4m3) == 1 && sizeof(e5m2) == 1,
              "elements are 16 bits or 8");

// Two 32-bit words moved at once.
struct alignas(8) words2 {
    uint32_t x, y;
};

// Four 32-bit words moved at once.
struct alignas(16) words4 {
    uint32_t x, y, z, w;
};

}  // namespace kgen
