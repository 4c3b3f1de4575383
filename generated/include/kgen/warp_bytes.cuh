// A tile of 1-byte elements that one warp loads and uses by itself; kgen/warp_tile.cuh is the same for 16-bit elements.
#pragma once

#include "kgen/byte_tile.cuh"

namespace kgen {

// Loads ROWS rows of HEAD_DIM bytes, the first at `source` (row stride in bytes), into the tile's rows from `first` on,
// a multiple of 8. Rows from `rows` on, and columns from HEAD_DIM up to the tile's width, are zero-filled and not read.
// VECTOR: 16-byte asynchronous copies; otherwise element loads, for tensors that are not aligned to 16 bytes.
template <class Tile, int HEAD_DIM, bool VECTOR, int ROWS = Tile::rows, int START = 0>
KGEN_DEVICE void copy_warp_bytes(uint32_t tile, const uint8_t* source, int64_t row_stride, int rows, int first = 0) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);  // in pairs of bytes
        constexpr int chunks = width / 8;
        constexpr int pass_rows = 32 / chunks;                         // 4, 8 or 16
        constexpr int phases = pass_rows < 8 ? 8 / pass_rows : 1;  // passes after which the swizzle repeats
        static_assert(ROWS % (phases * pass_rows) == 0, "whole passes");

        const int row = lane_index() / chunks;
        const int chunk = lane_index() % chunks;
        const int columns = columns_of_piece<HEAD_DIM>(START * 2 + chunk * 16);
        const uint32_t panel = tile + (Tile::panel_offset(START) + first * width * 2);
        const uint8_t* from = source + row * row_stride + (START * 2 + chunk * 16);

        KGEN_UNROLL
        for (int pass = 0; pass < ROWS / pass_rows; ++pass) {
            const int phase = pass % phases;
            const uint32_t destination = panel + (pass - phase) * pass_rows * width * 2 +
                                         swizzled<width>(phase * pass_rows + row, chunk);
            copy_piece<VECTOR>(destination, from, pass * pass_rows + row < rows ? columns : 0);
            from = opaque(from + pass_rows * row_stride);
        }
        copy_warp_bytes<Tile, HEAD_DIM, VECTOR, ROWS, START + width>(tile, source, row_stride, rows, first);
    }
}

}  // namespace kgen
