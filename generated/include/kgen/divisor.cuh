// Division by a number that is known when a kernel is launched, computed by a multiplication and a shift
// (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994, figure 4.1).
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Made by make_divisor(). With l = ceil(log2 d), `multiplier` is floor(2^32 (2^l - d) / d) + 1 and `shift` is l.
struct divisor {
    uint32_t number, multiplier, shift;
};

// `number` is in 1 .. 2^31 - 1. Host code.
inline divisor make_divisor(int32_t number) {
    const uint64_t d = static_cast<uint64_t>(number);
    uint32_t shift = 0;
    while ((uint64_t{1} << shift) < d) ++shift;
    return {static_cast<uint32_t>(d),
            static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1), shift};
}

// n / d, rounded down, for n in 0 .. 2^31 - 1: the sum below stays under 2^32.
KGEN_DEVICE int quotient(int n, const divisor& d) {
    const uint32_t high = static_cast<uint32_t>(static_cast<uint64_t>(static_cast<uint32_t>(n)) * d.multiplier >> 32);
    return static_cast<int>((high + static_cast<uint32_t>(n)) >> d.shift);
}

}  // namespace kgen
