// Single elements and 16-byte pieces of device memory that the same launch writes, and stores of elements of every width.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// Unlike load_global(), these may read what this launch writes: they do not go through the read-only path of the L1 cache.
KGEN_DEVICE uint8_t load_mutable(const uint8_t* pointer) { return *const_cast<const volatile uint8_t*>(pointer); }

KGEN_DEVICE uint16_t load_mutable(const uint16_t* pointer) { return *const_cast<const volatile uint16_t*>(pointer); }

KGEN_DEVICE uint32_t load_mutable(const uint32_t* pointer) { return *const_cast<const volatile uint32_t*>(pointer); }

// 16 bytes; `pointer` must be 16-byte aligned.
KGEN_DEVICE words4 load_mutable(const words4* pointer) {
    words4 value;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(pointer)
                 : "memory");
    return value;
}

KGEN_DEVICE void store_element(uint8_t* pointer, uint8_t value) { *pointer = value; }

KGEN_DEVICE void store_element(uint16_t* pointer, uint16_t value) { *pointer = value; }

KGEN_DEVICE void store_element(uint32_t* pointer, uint32_t value) { *pointer = value; }

}  // namespace kgen
