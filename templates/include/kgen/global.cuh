// Device memory: the few plain loads and stores that do not go through cp.async.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

KGEN_DEVICE int32_t load_global(const int32_t* pointer) { return __ldg(pointer); }

KGEN_DEVICE uint16_t load_global(const uint16_t* pointer) { return __ldg(pointer); }

KGEN_DEVICE float load_global(const float* pointer) { return __ldg(pointer); }

KGEN_DEVICE void store_global(float* pointer, float value) { *pointer = value; }

KGEN_DEVICE void store_global(int32_t* pointer, int32_t value) { *pointer = value; }

KGEN_DEVICE void store_global(uint16_t* pointer, uint16_t value) { *pointer = value; }

// 16 bytes; `pointer` must be 16-byte aligned.
KGEN_DEVICE void store_global(void* pointer, words4 value) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(pointer), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

}  // namespace kgen
