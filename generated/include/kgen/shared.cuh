// Shared memory as 32-bit addresses, the form that ldmatrix and cp.async take.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// Start of the block's dynamic shared memory, 1024-byte aligned by the launch.
KGEN_DEVICE uint32_t shared_base() {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared_bytes));
}

KGEN_DEVICE void store_shared(uint32_t address, uint16_t value) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}

KGEN_DEVICE void store_shared(uint32_t address, uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

KGEN_DEVICE void store_shared(uint32_t address, words4 value) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}

// Two floats; `address` must be a multiple of 8.
KGEN_DEVICE void store_shared_pair(uint32_t address, float first, float second) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second) : "memory");
}

// Two floats; `address` must be a multiple of 8.
KGEN_DEVICE void load_shared_pair(uint32_t address, float& first, float& second) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "r"(address) : "memory");
}

KGEN_DEVICE uint32_t load_shared_word(uint32_t address) {
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

// The element in the lower half.
KGEN_DEVICE uint32_t load_shared_half(uint32_t address) {
    uint16_t value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
    return value;
}

KGEN_DEVICE words4 load_shared(uint32_t address) {
    words4 value;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

}  // namespace kgen
