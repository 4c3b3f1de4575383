// fp32 values in shared and device memory: the type of partial results.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Four values moved at once.
struct alignas(16) floats4 {
    float x, y, z, w;
};

KGEN_DEVICE void store_shared(uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

// Two values; `address` must be a multiple of 8.
KGEN_DEVICE void store_shared(uint32_t address, float first, float second) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second) : "memory");
}

// 16 bytes; `address` must be a multiple of 16.
KGEN_DEVICE void store_shared(uint32_t address, floats4 value) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w) : "memory");
}

KGEN_DEVICE float load_shared_float(uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

// 16 bytes; `address` must be a multiple of 16.
KGEN_DEVICE floats4 load_shared_floats(uint32_t address) {
    floats4 value;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address) : "memory");
    return value;
}

// 16 bytes; `pointer` must be 16-byte aligned. Not for data that the same launch writes.
KGEN_DEVICE floats4 load_global(const floats4* pointer) {
    floats4 value;
    asm("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
        : "l"(pointer));
    return value;
}

// Two values; `pointer` must be 8-byte aligned. Not for data that the same launch writes.
KGEN_DEVICE void load_global_pair(const float* pointer, float& first, float& second) {
    asm("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "l"(pointer));
}

// 16 bytes; `pointer` must be 16-byte aligned.
KGEN_DEVICE void store_global(floats4* pointer, floats4 value) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"l"(pointer), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w) : "memory");
}

}  // namespace kgen
