// Scalar arithmetic of the softmax.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

KGEN_DEVICE float infinity() { return __int_as_float(0x7f800000); }

// 2^x with a relative error below 2^-22 (one MUFU instruction); exp2(-infinity) is +0.
KGEN_DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// log2(x) with an absolute error below 2^-22 (one MUFU instruction); log2(0) is -infinity.
KGEN_DEVICE float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x to within 1 ulp.
KGEN_DEVICE float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / sqrt(x) with a relative error below 2^-22 (one MUFU instruction; PTX ISA, `rsqrt`); of 0, infinity.
KGEN_DEVICE float reciprocal_root(float x) {
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The hyperbolic tangent with a relative error below 2^-10.9 (one MUFU instruction; PTX ISA, `tanh`).
KGEN_DEVICE float tanh_fast(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Index of the lowest set bit; at least one bit must be set.
KGEN_DEVICE int lowest_bit(uint32_t bits) { return __ffs(static_cast<int>(bits)) - 1; }

KGEN_DEVICE float absolute(float x) { return fabsf(x); }

// The magnitude of x with the sign of `sign` (one LOP3).
KGEN_DEVICE float with_sign_of(float x, float sign) { return copysignf(x, sign); }

// a * b + c, rounded once.
KGEN_DEVICE float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// a * b, rounded even if a sum follows: the compiler may not fuse the two (CUDA's `__fmul_rn`).
KGEN_DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }

// The greater and the lesser of two values; of a NaN and a number, the number.
KGEN_DEVICE float maximum(float a, float b) { return fmaxf(a, b); }
KGEN_DEVICE float minimum(float a, float b) { return fminf(a, b); }

// Two fp32 values rounded to nearest even and packed, `low` in the low half.
template <class T>
KGEN_DEVICE uint32_t pack(float low, float high);

template <>
KGEN_DEVICE uint32_t pack<bf16>(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

template <>
KGEN_DEVICE uint32_t pack<fp16>(float low, float high) {
    uint32_t packed;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800  // Turing converts one value per instruction
    asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }" : "=r"(packed)
        : "f"(low), "f"(high));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#endif
    return packed;
}

// The two values of a packed pair, exactly.
template <class T>
KGEN_DEVICE void unpack(uint32_t packed, float& low, float& high);

template <>
KGEN_DEVICE void unpack<bf16>(uint32_t packed, float& low, float& high) {
    low = __uint_as_float(packed << 16);
    high = __uint_as_float(packed & 0xffff0000u);
}

template <>
KGEN_DEVICE void unpack<fp16>(uint32_t packed, float& low, float& high) {
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high)
        : "r"(packed));
}

}  // namespace kgen
