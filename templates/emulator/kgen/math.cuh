// Scalar arithmetic of the softmax, on the emulator. Subnormal operands and results are flushed to zero, as by the
// GPU's `.ftz` instructions; the last bits differ from a GPU's approximations.
#pragma once

#include <string.h>

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen::emulator {

KGEN_DEVICE float flush_to_zero(float x) { return __builtin_fabsf(x) < 1.17549435e-38f ? __builtin_copysignf(0.0f, x) : x; }

KGEN_DEVICE uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

KGEN_DEVICE float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Rounds to nearest even. A NaN becomes 0x7fff, as the PTX ISA specifies.
KGEN_DEVICE uint32_t round_to_bf16(float x) {
    const uint32_t bits = float_bits(x);
    return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

KGEN_DEVICE uint32_t round_to_fp16(float x) {
    const uint32_t bits = float_bits(x);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fffu;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more round to infinity
    if (magnitude < 0x38800000u) {
        // A subnormal result is a multiple of 2^-24: adding 0.5, whose last bit is 2^-24, performs the rounding.
        return sign | (float_bits(float_of_bits(magnitude) + 0.5f) - 0x3f000000u);
    }
    return sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
}

KGEN_DEVICE float widen_bf16(uint16_t bits) { return float_of_bits(static_cast<uint32_t>(bits) << 16); }

// Exact, subnormals included: a multiplication rebiases the exponent, so only infinity and NaN need special handling.
KGEN_DEVICE float widen_fp16(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const float magnitude = float_of_bits(static_cast<uint32_t>(bits & 0x7fffu) << 13) * 0x1p112f;
    const uint32_t special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    return float_of_bits(sign | float_bits(magnitude) | special);
}

}  // namespace kgen::emulator

namespace kgen {

KGEN_DEVICE float infinity() { return __builtin_inff(); }

// 2^x; exp2(-infinity) is +0.
KGEN_DEVICE float exp2_fast(float x) { return emulator::flush_to_zero(__builtin_exp2f(x)); }

// log2(x); log2(0) is -infinity.
KGEN_DEVICE float log2_fast(float x) { return __builtin_log2f(emulator::flush_to_zero(x)); }

// 1 / x; infinity for 0.
KGEN_DEVICE float reciprocal(float x) { return emulator::flush_to_zero(1.0f / emulator::flush_to_zero(x)); }

// 1 / sqrt(x); infinity for 0.
KGEN_DEVICE float reciprocal_root(float x) { return 1.0f / __builtin_sqrtf(x); }

// The hyperbolic tangent, with only as many bits as on the GPU: 11, rounded to nearest.
KGEN_DEVICE float tanh_fast(float x) {
    const float y = __builtin_tanhf(x);
    uint32_t bits;
    __builtin_memcpy(&bits, &y, sizeof bits);
    bits = (bits + 0x0fff + (bits >> 13 & 1)) & ~0x1fffu;
    float rounded;
    __builtin_memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

// Index of the lowest set bit; at least one bit must be set.
KGEN_DEVICE int lowest_bit(uint32_t bits) { return __builtin_ctz(bits); }

KGEN_DEVICE float absolute(float x) { return __builtin_fabsf(x); }

// The magnitude of x with the sign of `sign`.
KGEN_DEVICE float with_sign_of(float x, float sign) { return __builtin_copysignf(x, sign); }

// a * b + c, rounded once.
KGEN_DEVICE float fused_multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// a * b, rounded; host code is compiled without contraction.
KGEN_DEVICE float rounded_product(float a, float b) { return a * b; }

// The larger and the smaller of two values. Of a number and a NaN, the result is the number, as on the GPU.
KGEN_DEVICE float maximum(float a, float b) { return a >= b || b != b ? a : b; }
KGEN_DEVICE float minimum(float a, float b) { return a <= b || b != b ? a : b; }

// Two fp32 values rounded to nearest even and packed, `low` in the low half.
template <class T>
KGEN_DEVICE uint32_t pack(float low, float high);

template <>
KGEN_DEVICE uint32_t pack<bf16>(float low, float high) {
    return emulator::round_to_bf16(low) | emulator::round_to_bf16(high) << 16;
}

template <>
KGEN_DEVICE uint32_t pack<fp16>(float low, float high) {
    return emulator::round_to_fp16(low) | emulator::round_to_fp16(high) << 16;
}

// The two values of a packed pair, exactly.
template <class T>
KGEN_DEVICE void unpack(uint32_t packed, float& low, float& high);

template <>
KGEN_DEVICE void unpack<bf16>(uint32_t packed, float& low, float& high) {
    low = emulator::widen_bf16(static_cast<uint16_t>(packed));
    high = emulator::widen_bf16(static_cast<uint16_t>(packed >> 16));
}

template <>
KGEN_DEVICE void unpack<fp16>(uint32_t packed, float& low, float& high) {
    low = emulator::widen_fp16(static_cast<uint16_t>(packed));
    high = emulator::widen_fp16(static_cast<uint16_t>(packed >> 16));
}

}  // namespace kgen
