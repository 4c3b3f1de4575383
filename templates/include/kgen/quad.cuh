// Rows of accumulators to device memory. The four lanes of a quad hold a row of 16-bit pairs: of every eight columns, lane q has
// columns 2q and 2q + 1.
#pragma once

#include "kgen/global.cuh"
#include "kgen/sync.cuh"

namespace kgen {

// Transposes a 4x4 square of words across a quad: lane q ends up with word q of every lane, in the order of the lanes.
KGEN_DEVICE void transpose_quad(uint32_t (&words)[4]) {
    const bool odd = lane_index() % 2 != 0;
    const bool upper = lane_index() % 4 >= 2;
    KGEN_UNROLL
    for (int i = 0; i < 4; i += 2) {
        const uint32_t received = shuffle_xor(odd ? words[i] : words[i + 1], 1);
        if (odd) {
            words[i] = received;
        } else {
            words[i + 1] = received;
        }
    }
    KGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
        const uint32_t received = shuffle_xor(upper ? words[i] : words[i + 2], 2);
        if (upper) {
            words[i] = received;
        } else {
            words[i + 2] = received;
        }
    }
}

// Writes a row of CHUNKS * 8 columns. All lanes of the warp come here; rows for which `valid` is false are not written.
// `vector`: the row starts at a multiple of 16 bytes.
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
    KGEN_UNROLL
    for (int j = 0; j + 4 <= CHUNKS; j += 4) {
        uint32_t square[4] = {words[j], words[j + 1], words[j + 2], words[j + 3]};
        transpose_quad(square);
        if (valid) store_global(static_cast<void*>(row + (j + lane) * 8), words4{square[0], square[1], square[2], square[3]});
    }
    KGEN_UNROLL
    for (int j = CHUNKS / 4 * 4; j < CHUNKS; ++j) {
        if (valid) store_global(reinterpret_cast<int32_t*>(row + j * 8 + lane * 2), static_cast<int32_t>(words[j]));
    }
}

// Writes four columns that a lane holds side by side. `vector`: they start at a multiple of 8 bytes.
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
