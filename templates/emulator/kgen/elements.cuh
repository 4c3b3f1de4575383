// Single elements and 16-byte pieces of device memory that the same launch writes, on the emulator.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// A plain load of any width: reads what this launch writes.
template <class T>
KGEN_DEVICE T load_mutable(const T* pointer, KGEN_AT) {
    T value;
    emulator::load_global(pointer, &value, sizeof value, at);
    return value;
}

KGEN_DEVICE void store_element(uint8_t* pointer, uint8_t value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

KGEN_DEVICE void store_element(uint16_t* pointer, uint16_t value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

KGEN_DEVICE void store_element(uint32_t* pointer, uint32_t value, KGEN_AT) { emulator::store_global(pointer, &value, sizeof value, at); }

}  // namespace kgen
