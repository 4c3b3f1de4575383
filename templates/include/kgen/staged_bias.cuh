// A warp's part of a tile of a 16-bit bias, copied to shared memory while the warp works on the tile before. What is not
// staged (fp32, columns that are not adjacent) is read from device memory by add_bias.
#pragma once

#include <limits.h>

#include "kgen.h"
#include "kgen/bias.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/global.cuh"
#include "kgen/math.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"
#include "kgen/types.cuh"

namespace kgen {

// ROWS rows of COLUMNS keys. Rows may begin at any multiple of an element, and copies move 16 aligned bytes: a row in
// shared memory begins with up to 7 elements of keys before its first one. The odd number of 16-byte pieces of a row
// spreads 8 rows over all banks.
template <int ROWS, int COLUMNS>
struct staged_bias {
    static constexpr uint32_t pitch = COLUMNS * 2 + 16;
    static_assert(COLUMNS % 16 == 0, "a row has an odd number of pieces");

    uint32_t rows;            // the address of the warp's rows in shared memory
    int position = 0;         // of the first row
    int first_key = INT_MAX;  // of column 0; INT_MAX: nothing is staged

    // The address of the row at `position`, or 0 if that tile is not staged.
    KGEN_DEVICE uint32_t row(int its_position, int its_first_key) const {
        const uint32_t row = static_cast<uint32_t>(its_position - position);
        return its_first_key == first_key && row < ROWS ? rows + row * pitch : 0;
    }
};

// A row of the bias from one key on.
struct bias_source {
    const uint8_t* pieces;  // the key's address, rounded down to 16 bytes
    uint32_t shift;         // bytes from there to the key

    template <class Params>
    KGEN_DEVICE bias_source(const Params& p, const head_bias& bias, int position, int key) {
        const uint8_t* first = bias.start + (bias_row_offset(p, bias, position) + key) * 2;
        shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(first) % 16);
        pieces = first - shift;
    }
};

// Starts to copy piece `piece` of a row. Keys that the sequence does not have get 0. `key`: the first of the row.
KGEN_DEVICE void copy_bias_piece(uint32_t row, const bias_source& source, int piece, int key, int keys) {
    const int first = key - static_cast<int>(source.shift / 2) + piece * 8;
    const uint8_t* from = source.pieces + piece * 16;
    if (first < 0 && first > -8) {  // a copy cannot leave out its first elements
        KGEN_ROLLED
        for (int i = 0; i < 8; ++i) {
            const bool has = static_cast<uint32_t>(first + i) < static_cast<uint32_t>(keys);
            const uint16_t* element = reinterpret_cast<const uint16_t*>(from) + i;
            store_shared(row + piece * 16 + i * 2, has ? load_global(element) : uint16_t{0});
        }
    } else {
        const int valid = first < 0 ? 0 : min(max((keys - first) * 2, 0), 16);
        cp_async_partial(row + piece * 16, from, static_cast<uint32_t>(valid));
    }
}

// Starts to copy the warp's part of a tile, once all lanes have read the one before. `position`: of its first row.
template <int ROWS, int COLUMNS, class Params>
KGEN_DEVICE void stage_bias(staged_bias<ROWS, COLUMNS>& staged, const Params& p, const head_bias& bias, int position,
                            int first_key) {
    constexpr int PIECES = COLUMNS / 8, LANES = PIECES <= 2 ? 2 : PIECES <= 4 ? 4 : PIECES <= 8 ? 8 : PIECES <= 16 ? 16 : 32;
    staged.first_key = INT_MAX;
    if (bias.start == nullptr || p.bias_dtype == KGEN_DTYPE_FP32 || p.bias_column_stride != 1) return;
    staged.first_key = first_key;
    staged.position = position;
    warp_sync();
    const int lane = static_cast<int>(lane_index()), piece = lane % LANES;
    KGEN_UNROLL
    for (int row = lane / LANES; row < ROWS; row += 32 / LANES) {
        const bias_source source(p, bias, position + row, first_key);
        if (piece < PIECES) copy_bias_piece(staged.rows + row * staged.pitch, source, piece, first_key, bias.keys);
    }
    KGEN_UNROLL
    for (int row = lane; row < ROWS; row += 32) {
        const bias_source source(p, bias, position + row, first_key);
        if (source.shift > 0) copy_bias_piece(staged.rows + row * staged.pitch, source, PIECES, first_key, bias.keys);
    }
    cp_async_commit();
}

// Waits for the warp's part of a tile.
KGEN_DEVICE void await_bias() {
    cp_async_wait<0>();
    warp_sync();
}

// add_bias where the tile may be staged.
template <class T, int ROWS, int COLUMNS, class Params, int CHUNKS>
KGEN_DEVICE void add_staged_bias(float (&s)[CHUNKS][4], int h, float scale, const Params& p, const head_bias& bias,
                                 const staged_bias<ROWS, COLUMNS>& staged, int position, int first_key) {
    const uint32_t row = staged.row(position, first_key);
    if (row == 0) {
        add_bias<T>(s, h, scale, p, bias, position, first_key);
        return;
    }
    const uint32_t shift = bias_source(p, bias, position, first_key).shift;
    const uint32_t own = row + shift + lane_index() % 4 * 4;
    KGEN_UNROLL
    for (int j = 0; j < CHUNKS; ++j) {
        uint32_t both;
        if (shift % 4 == 0) both = load_shared_word(own + j * 16);
        else both = load_shared_half(own + j * 16) | load_shared_half(own + j * 16 + 2) << 16;
        float low, high;
        unpack<T>(both, low, high);
        s[j][2 * h] = fused_multiply_add(s[j][2 * h], scale, low);
        s[j][2 * h + 1] = fused_multiply_add(s[j][2 * h + 1], scale, high);
    }
}

}  // namespace kgen
