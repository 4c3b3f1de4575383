// Stores of accumulator rows to device memory. The four lanes of a quad hold a row of 16-bit pairs: lane q has columns
// 2q and 2q + 1 of every eight.
#pragma once

#include "kgen/floats.cuh"
#include "kgen/global.cuh"
#include "kgen/sync.cuh"

namespace kgen {

// Writes a row of CHUNKS * 8 columns. All lanes of the warp must call it; rows for which `valid` is false are not
// written.
// `vector`: the row starts at a multiple of 8 bytes.
template <int CHUNKS>
KGEN_DEVICE void store_quad_row(uint16_t* row, uint32_t (&words)[CHUNKS], bool valid, bool vector) {
    const uint32_t lane = lane_index() % 4;
    if (!vector) {
        KGEN_UNROLL
        for (int j = 0; j < CHUNKS; ++j) {
            if (!valid) continue;
            store_global(row + j * 8 + lane * 2, static_cast<uint16_t>(words[j]));
            store_global(row + j * 8 + lane * 2 + 1, static_cast<uint16_t>(words[j] >> 16));
        }
        return;
    }
    // Of two neighbouring lanes, the even one gets both 32-bit words of the first eight columns and the odd one those
    // of the next eight: each then has 8 contiguous bytes, and a quad has a sector of 32. (16 bytes per lane would take
    // twice the exchanges and is slower.)
    const bool odd = lane % 2 != 0;
    KGEN_UNROLL
    for (int j = 0; j + 2 <= CHUNKS; j += 2) {
        const uint32_t received = shuffle_xor(odd ? words[j] : words[j + 1], 1);
        const words2 pair = odd ? words2{received, words[j + 1]} : words2{words[j], received};
        if (valid) store_global(static_cast<void*>(row + (j + lane % 2) * 8 + lane / 2 * 4), pair);
    }
    if (CHUNKS % 2 != 0 && valid)
        store_global(reinterpret_cast<int32_t*>(row + (CHUNKS - 1) * 8 + lane * 2),
                     static_cast<int32_t>(words[CHUNKS - 1]));
}

// Writes 16 columns of a row of fp32; a lane holds (a, b) of the first eight and (c, d) of the second eight. After an
// exchange each lane has 16 contiguous bytes. All lanes of the warp must call it; rows for which `valid` is false are
// not written. `row` must be 16-byte aligned.
KGEN_DEVICE void store_quad_floats(float* row, float a, float b, float c, float d, bool valid) {
    const uint32_t lane = lane_index() % 4;
    const bool odd = lane % 2 != 0;
    const float first = shuffle_xor(odd ? a : c, 1), second = shuffle_xor(odd ? b : d, 1);
    const floats4 piece = odd ? floats4{first, second, c, d} : floats4{a, b, first, second};
    if (valid) store_global(reinterpret_cast<floats4*>(row + lane % 2 * 8 + lane / 2 * 4), piece);
}

// Writes four adjacent columns held by a lane. `vector`: they start at a multiple of 8 bytes.
KGEN_DEVICE void store_four(uint16_t* to, uint32_t low, uint32_t high, bool vector) {
    if (vector) {
        store_global(static_cast<void*>(to), words2{low, high});
        return;
    }
    store_global(to, static_cast<uint16_t>(low));
    store_global(to + 1, static_cast<uint16_t>(low >> 16));
    store_global(to + 2, static_cast<uint16_t>(high));
    store_global(to + 3, static_cast<uint16_t>(high >> 16));
}

}  // namespace kgen
