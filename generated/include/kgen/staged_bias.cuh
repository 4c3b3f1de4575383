// A warp's part of a tile of a 16-bit bias, copied to shared memory while the warp works on the previous tile. Biases
// that are not staged (fp32, columns that are not adjacent) are read from device memory by add_bias.
#pragma once

#include "kgen.h"
#include "kgen/bias.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/global.cuh"
#include "kgen/ldmatrix.cuh"
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

    uint32_t rows;  // the address of the warp's rows in shared memory
};

// True if the bias of a call is staged.
template <class Params>
KGEN_DEVICE bool is_staged(const Params& p) {
    return p.bias != nullptr && p.bias_dtype != KGEN_DTYPE_FP32 && p.bias_column_stride == 1;
}

// A row of the bias from one key on.
struct bias_source {
    const uint8_t* pieces;  // the key's address, rounded down to 16 bytes
    uint32_t shift;         // bytes from there to the key

    template <class Params>
    KGEN_DEVICE bias_source(const Params& p, const head_bias& bias, int position, int key) {
        const uint8_t* first = bias.start + (bias.row(position) * p.bias_row_stride + key) * 2;
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

// True if rows from `position` on begin at multiples of 16 bytes at `key`.
template <class Params>
KGEN_DEVICE bool is_bias_aligned(const Params& p, const head_bias& bias, int position, int key) {
    return p.bias_row_stride % 8 == 0 && bias_source(p, bias, position, key).shift == 0;
}

// Starts to copy the warp's part of a tile of a staged bias, once all lanes have read the one before. `position`: of
// its first row.
template <int ROWS, int COLUMNS, class Params>
KGEN_DEVICE void stage_bias(const staged_bias<ROWS, COLUMNS>& staged, const Params& p, const head_bias& bias,
                            int position, int first_key) {
    constexpr int PIECES = COLUMNS / 8;
    constexpr int LANES = PIECES <= 2 ? 2 : PIECES <= 4 ? 4 : PIECES <= 8 ? 8 : PIECES <= 16 ? 16 : 32;  // a row
    constexpr int ROWS_A_PASS = 32 / LANES;
    warp_sync();
    const int lane = static_cast<int>(lane_index()), piece = lane % LANES;
    const uint32_t own = staged.rows + lane / LANES * staged.pitch + piece * 16;
    const int query = position - (bias.keys - bias.queries);
    const bool is_inside =
        query >= 0 && query + ROWS <= bias.queries && first_key >= 0 && first_key + COLUMNS <= bias.keys;
    if (is_inside && is_bias_aligned(p, bias, position, first_key)) {
        const uint8_t* from = bias.start + ((query + lane / LANES) * p.bias_row_stride + first_key) * 2 + piece * 16;
        const int64_t step = ROWS_A_PASS * 2 * p.bias_row_stride;
        if (PIECES == LANES || piece < PIECES) {
            KGEN_UNROLL
            for (int pass = 0; pass < ROWS / ROWS_A_PASS; ++pass) {
                cp_async(own + pass * ROWS_A_PASS * staged.pitch, from, true);
                from += step;
            }
        }
    } else {
        KGEN_ROLLED
        for (int row = lane / LANES; row < ROWS; row += ROWS_A_PASS) {
            const bias_source source(p, bias, position + row, first_key);
            const uint32_t to = staged.rows + row * staged.pitch;
            if (piece < PIECES) copy_bias_piece(to, source, piece, first_key, bias.keys);
            if (piece == 0 && source.shift > 0) copy_bias_piece(to, source, PIECES, first_key, bias.keys);
        }
    }
    cp_async_commit();
}

// Waits for the warp's part of a tile.
KGEN_DEVICE void await_bias() {
    cp_async_wait<0>();
    warp_sync();
}

// add_bias of a staged bias, from the tile that was staged last, for both rows of a lane in piece `piece` of 16 rows.
// `position`: of the first of the two.
template <class T, int ROWS, int COLUMNS, class Params, int CHUNKS>
KGEN_DEVICE void add_staged_bias(float (&s)[CHUNKS][4], float scale, const Params& p, const head_bias& bias,
                                 const staged_bias<ROWS, COLUMNS>& staged, int piece, int position, int first_key) {
    const int lane = static_cast<int>(lane_index());
    const uint32_t rows = staged.rows + piece * 16 * staged.pitch;
    if (is_bias_aligned(p, bias, position, first_key)) {
        // Four 8x8 matrices in the layout of s.
        const uint32_t own = rows + lane % 16 * staged.pitch + lane / 16 * 16;
        KGEN_UNROLL
        for (int j = 0; j < CHUNKS; j += 2) {
            uint32_t fragment[4];
            ldmatrix_x4(fragment, own + j * 16);
            KGEN_UNROLL
            for (int i = 0; i < 4; ++i) {
                float low, high;
                unpack<T>(fragment[i], low, high);
                float(&of_chunk)[4] = s[j + i / 2];
                of_chunk[i % 2 * 2] = fused_multiply_add(of_chunk[i % 2 * 2], scale, low);
                of_chunk[i % 2 * 2 + 1] = fused_multiply_add(of_chunk[i % 2 * 2 + 1], scale, high);
            }
        }
    } else {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            const uint32_t shift = bias_source(p, bias, position + h * 8, first_key).shift;
            const uint32_t own = rows + (lane / 4 + h * 8) * staged.pitch + shift + lane % 4 * 4;
            KGEN_UNROLL
            for (int j = 0; j < CHUNKS; ++j) {
                float low, high;
                unpack<T>(load_shared_half(own + j * 16) | load_shared_half(own + j * 16 + 2) << 16, low, high);
                s[j][2 * h] = fused_multiply_add(s[j][2 * h], scale, low);
                s[j][2 * h + 1] = fused_multiply_add(s[j][2 * h + 1], scale, high);
            }
        }
    }
}

}  // namespace kgen
