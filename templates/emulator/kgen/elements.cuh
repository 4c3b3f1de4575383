// Single elements of 8, 16 and 32 bits in device memory that the same launch writes, on the emulator.
#pragma once

#include "kgen/atomics.cuh"
#include "kgen/platform.cuh"

namespace kgen {

KGEN_DEVICE uint8_t load_element(const uint8_t* pointer, KGEN_AT) {
    uint8_t value;
    emulator::load_written(pointer, &value, sizeof value, at);
    return value;
}

KGEN_DEVICE uint16_t load_element(const uint16_t* pointer, KGEN_AT) {
    uint16_t value;
    emulator::load_written(pointer, &value, sizeof value, at);
    return value;
}

KGEN_DEVICE uint32_t load_element(const uint32_t* pointer, KGEN_AT) { return load_written(pointer, at); }

KGEN_DEVICE void store_element(uint8_t* pointer, uint8_t value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

KGEN_DEVICE void store_element(uint16_t* pointer, uint16_t value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

KGEN_DEVICE void store_element(uint32_t* pointer, uint32_t value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

}  // namespace kgen
