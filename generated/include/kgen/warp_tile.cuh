// A tile that one warp loads and uses by itself: no other warp waits for it, so its copies need no block barrier.
#pragma once

#include "kgen/tile.cuh"

namespace kgen {

// Loads rows `first_row` .. `first_row + Tile::rows` of `source` (row stride in elements) into shared memory. Rows from
// `rows` on, and columns from HEAD_DIM up to the tile's width, are zero-filled and not read.
// VECTOR: 16-byte asynchronous copies; otherwise element loads, for tensors that are not aligned to 16 bytes.
template <class Tile, int HEAD_DIM, bool VECTOR, int START = 0>
KGEN_DEVICE void copy_warp_tile(uint32_t tile, const uint16_t* source, int64_t row_stride, int first_row, int rows) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        constexpr int chunks = width / 8;
        constexpr int pass_rows = 32 / chunks;                         // 4, 8 or 16
        constexpr int phases = pass_rows < 8 ? 8 / pass_rows : 1;  // passes after which the swizzle repeats
        static_assert(Tile::rows % (phases * pass_rows) == 0, "whole passes");

        const int row = lane_index() / chunks;
        const int chunk = lane_index() % chunks;
        const int valid_rows = rows - first_row;
        const int column = START + chunk * 8;
        const bool valid_column = START + width <= HEAD_DIM || column < HEAD_DIM;
        const uint32_t panel = tile + Tile::panel_offset(START);
        const uint16_t* from = source + (first_row + row) * row_stride + column;

        KGEN_UNROLL
        for (int pass = 0; pass < Tile::rows / pass_rows; ++pass) {
            const int phase = pass % phases;
            const int tile_row = pass * pass_rows + row;
            const uint32_t destination = panel + (pass - phase) * pass_rows * width * 2 +
                                         swizzled<width>(phase * pass_rows + row, chunk);
            const bool valid = tile_row < valid_rows && valid_column;
            if constexpr (VECTOR) {
                cp_async(destination, from, valid);
            } else {
                uint32_t words[4] = {0, 0, 0, 0};
                if (valid) {
                    KGEN_UNROLL
                    for (int i = 0; i < 4; ++i) {
                        const uint32_t low = load_global(from + 2 * i);
                        const uint32_t high = load_global(from + 2 * i + 1);
                        words[i] = low | high << 16;
                    }
                }
                store_shared(destination, words4{words[0], words[1], words[2], words[3]});
            }
            from = opaque(from + pass_rows * row_stride);
        }
        copy_warp_tile<Tile, HEAD_DIM, VECTOR, START + width>(tile, source, row_stride, first_row, rows);
    }
}

}  // namespace kgen
