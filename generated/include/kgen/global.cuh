// Device memory: the few plain loads and stores that do not go through cp.async.
#pragma once

#include "kgen/floats.cuh"
#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

KGEN_DEVICE int32_t load_global(const int32_t* pointer) { return __ldg(pointer); }

KGEN_DEVICE int64_t load_global(const int64_t* pointer) {
    int64_t value;
    asm("ld.global.nc.s64 %0, [%1];" : "=l"(value) : "l"(pointer));
    return value;
}

KGEN_DEVICE uint16_t load_global(const uint16_t* pointer) { return __ldg(pointer); }

// 16 bytes; `pointer` must be 16-byte aligned.
KGEN_DEVICE words4 load_global(const words4* pointer) {
    words4 value;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
        : "l"(pointer));
    return value;
}

KGEN_DEVICE float load_global(const float* pointer) { return __ldg(pointer); }

KGEN_DEVICE uint8_t load_global(const uint8_t* pointer) { return __ldg(pointer); }

KGEN_DEVICE uint32_t load_global(const uint32_t* pointer) { return __ldg(pointer); }

// *pointer += value atomically, in no particular order with respect to other threads. The thread does not wait for it.
KGEN_DEVICE void add_global(float* pointer, float value) {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(pointer), "f"(value) : "memory");
}

// Four sums at once; `pointer` must be 16-byte aligned. (PTX ISA, "red", vectors of .f32; sm_90 and newer.)
KGEN_DEVICE void add_global(float* pointer, floats4 values) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"l"(pointer), "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w) : "memory");
}

KGEN_DEVICE void store_global(float* pointer, float value) { *pointer = value; }

KGEN_DEVICE void store_global(int32_t* pointer, int32_t value) { *pointer = value; }

KGEN_DEVICE void store_global(uint16_t* pointer, uint16_t value) { *pointer = value; }

// 8 bytes; `pointer` must be 8-byte aligned.
KGEN_DEVICE void store_global(void* pointer, words2 value) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(pointer), "r"(value.x), "r"(value.y) : "memory");
}

// 16 bytes; `pointer` must be 16-byte aligned.
KGEN_DEVICE void store_global(void* pointer, words4 value) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"l"(pointer), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}

}  // namespace kgen
