// Shared memory as 32-bit addresses, on the emulator.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// Start of the block's dynamic shared memory, 1024-byte aligned.
KGEN_DEVICE uint32_t shared_base() { return emulator::SHARED_BASE; }

KGEN_DEVICE void store_shared(uint32_t address, uint16_t value, KGEN_AT) { emulator::store_shared(address, &value, 2, at); }

KGEN_DEVICE void store_shared(uint32_t address, uint32_t value, KGEN_AT) { emulator::store_shared(address, &value, 4, at); }

KGEN_DEVICE void store_shared(uint32_t address, words4 value, KGEN_AT) { emulator::store_shared(address, &value, 16, at); }

// Two floats; `address` must be a multiple of 8.
KGEN_DEVICE void store_shared_pair(uint32_t address, float first, float second, KGEN_AT) {
    const float pair[2] = {first, second};
    emulator::store_shared(address, pair, 8, at);
}

// Two floats; `address` must be a multiple of 8.
KGEN_DEVICE void load_shared_pair(uint32_t address, float& first, float& second, KGEN_AT) {
    float pair[2];
    emulator::load_shared(address, pair, 8, at);
    first = pair[0];
    second = pair[1];
}

KGEN_DEVICE uint32_t load_shared_word(uint32_t address, KGEN_AT) {
    uint32_t value;
    emulator::load_shared(address, &value, 4, at);
    return value;
}

KGEN_DEVICE uint32_t load_shared_half(uint32_t address, KGEN_AT) {
    uint16_t value;
    emulator::load_shared(address, &value, 2, at);
    return value;
}

KGEN_DEVICE words4 load_shared(uint32_t address, KGEN_AT) {
    words4 value;
    emulator::load_shared(address, &value, 16, at);
    return value;
}

}  // namespace kgen
