// Single elements of 8, 16 and 32 bits in device memory that the same launch writes.
#pragma once

#include "kgen/atomics.cuh"
#include "kgen/platform.cuh"

namespace kgen {

// As in kgen/atomics.cuh: these may read what this launch writes.
KGEN_DEVICE uint8_t load_written(const uint8_t* pointer) { return *const_cast<const volatile uint8_t*>(pointer); }

KGEN_DEVICE uint16_t load_written(const uint16_t* pointer) { return *const_cast<const volatile uint16_t*>(pointer); }

KGEN_DEVICE void store_element(uint8_t* pointer, uint8_t value) { *pointer = value; }

KGEN_DEVICE void store_element(uint16_t* pointer, uint16_t value) { *pointer = value; }

KGEN_DEVICE void store_element(uint32_t* pointer, uint32_t value) { *pointer = value; }

}  // namespace kgen
