// Device memory, on the emulator: every access must be to an element of a registered tensor.
#pragma once

#include "kgen/floats.cuh"
#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

KGEN_DEVICE int32_t load_global(const int32_t* pointer, KGEN_AT) {
    int32_t value;
    emulator::load_global(pointer, &value, sizeof value, at);
    return value;
}

KGEN_DEVICE int64_t load_global(const int64_t* pointer, KGEN_AT) {
    int64_t value;
    emulator::load_global(pointer, &value, sizeof value, at);
    return value;
}

KGEN_DEVICE uint16_t load_global(const uint16_t* pointer, KGEN_AT) {
    uint16_t value;
    emulator::load_global(pointer, &value, sizeof value, at);
    return value;
}

KGEN_DEVICE uint32_t load_global(const uint32_t* pointer, KGEN_AT) {
    uint32_t value;
    emulator::load_global(pointer, &value, sizeof value, at);
    return value;
}

KGEN_DEVICE float load_global(const float* pointer, KGEN_AT) {
    float value;
    emulator::load_global(pointer, &value, sizeof value, at);
    return value;
}

KGEN_DEVICE uint8_t load_global(const uint8_t* pointer, KGEN_AT) {
    uint8_t value;
    emulator::load_global(pointer, &value, sizeof value, at);
    return value;
}

// 16 bytes; `pointer` must be 16-byte aligned.
KGEN_DEVICE words4 load_global(const words4* pointer, KGEN_AT) {
    words4 value;
    emulator::load_global(pointer, &value, sizeof value, at);
    return value;
}

KGEN_DEVICE void store_global(int32_t* pointer, int32_t value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

// *pointer += value atomically, in no particular order with respect to other threads. The thread does not wait for it.
KGEN_DEVICE void add_global(float* pointer, float value, KGEN_AT) { emulator::add_global(pointer, &value, 1, at); }

// Four sums at once; `pointer` must be 16-byte aligned.
KGEN_DEVICE void add_global(float* pointer, floats4 values, KGEN_AT) {
    const float all[4] = {values.x, values.y, values.z, values.w};
    emulator::add_global(pointer, all, 4, at);
}

KGEN_DEVICE void store_global(float* pointer, float value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

KGEN_DEVICE void store_global(uint16_t* pointer, uint16_t value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

// 8 bytes; `pointer` must be 8-byte aligned.
KGEN_DEVICE void store_global(void* pointer, words2 value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

// 16 bytes; `pointer` must be 16-byte aligned.
KGEN_DEVICE void store_global(void* pointer, words4 value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

}  // namespace kgen
