// fp32 values in shared and device memory, on the emulator.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Four values moved at once.
struct alignas(16) floats4 {
    float x, y, z, w;
};

KGEN_DEVICE void store_shared(uint32_t address, float value, KGEN_AT) { emulator::store_shared(address, &value, 4, at); }

// Two values; `address` must be a multiple of 8.
KGEN_DEVICE void store_shared(uint32_t address, float first, float second, KGEN_AT) {
    const float pair[2] = {first, second};
    emulator::store_shared(address, pair, 8, at);
}

// 16 bytes; `address` must be a multiple of 16.
KGEN_DEVICE void store_shared(uint32_t address, floats4 value, KGEN_AT) { emulator::store_shared(address, &value, 16, at); }

KGEN_DEVICE float load_shared_float(uint32_t address, KGEN_AT) {
    float value;
    emulator::load_shared(address, &value, 4, at);
    return value;
}

// 16 bytes; `address` must be a multiple of 16.
KGEN_DEVICE floats4 load_shared_floats(uint32_t address, KGEN_AT) {
    floats4 value;
    emulator::load_shared(address, &value, 16, at);
    return value;
}

// 16 bytes; `pointer` must be 16-byte aligned. Not for data that the same launch writes.
KGEN_DEVICE floats4 load_global(const floats4* pointer, KGEN_AT) {
    floats4 value;
    emulator::load_global(pointer, &value, sizeof value, at);
    return value;
}

// Two values; `pointer` must be 8-byte aligned.
KGEN_DEVICE void load_global_pair(const float* pointer, float& first, float& second, KGEN_AT) {
    float values[2];
    emulator::load_global(pointer, values, sizeof values, at);
    first = values[0], second = values[1];
}

// 16 bytes; `pointer` must be 16-byte aligned.
KGEN_DEVICE void store_global(floats4* pointer, floats4 value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

}  // namespace kgen
