// Single elements of 8, 16 and 32 bits in device memory that the same launch writes.
#pragma once

#include "kgen/atomics.cuh"
#include "kgen/platform.cuh"

namespace kgen {

// Loads an element that the same launch may have written, like load_written() (kgen/atomics.cuh).
KGEN_DEVICE uint8_t load_element(const uint8_t* pointer) { return *const_cast<const volatile uint8_t*>(pointer); }

KGEN_DEVICE uint16_t load_element(const uint16_t* pointer) { return *const_cast<const volatile uint16_t*>(pointer); }

KGEN_DEVICE uint32_t load_element(const uint32_t* pointer) { return load_written(pointer); }

KGEN_DEVICE void store_element(uint8_t* pointer, uint8_t value) { *pointer = value; }

KGEN_DEVICE void store_element(uint16_t* pointer, uint16_t value) { *pointer = value; }

KGEN_DEVICE void store_element(uint32_t* pointer, uint32_t value) { *pointer = value; }

}  // namespace kgen
