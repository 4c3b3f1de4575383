// A tile of 16-bit elements in shared memory: the location of each element, and how a tile is loaded and stored.
//
// A row is cut into panels of 64 columns, then at most one of 32 and one of 16, so that every head dim has an exact
// tile. A panel is stored row by row (128, 64 or 32 bytes each). Its 16-byte chunks are permuted by an XOR with bits of
// the row, so that the same chunk of eight consecutive rows covers all 32 banks: ldmatrix, cp.async and the epilogue
// are then free of bank conflicts. (The layouts are the 128-, 64- and 32-byte swizzles of the PTX ISA.)
#pragma once

#include "kgen/cp_async.cuh"
#include "kgen/global.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"

namespace kgen {

template <int ROWS, int COLUMNS>
struct shared_tile {
    static_assert(ROWS % 8 == 0, "the swizzle repeats every 8 rows");
    static_assert(COLUMNS % 16 == 0, "a tile is as wide as whole MMA steps");

    static constexpr int rows = ROWS;
    static constexpr int element_bytes = 2;
    static constexpr int columns = COLUMNS;
    static constexpr uint32_t bytes = ROWS * COLUMNS * 2;

    // First column of the panel that holds `column`.
    static constexpr KGEN_HOST_DEVICE int panel_start(int column) {
        const int wide = COLUMNS / 64 * 64;
        if (column < wide) return column / 64 * 64;
        if (COLUMNS - wide == 48 && column >= wide + 32) return wide + 32;
        return wide;
    }

    // Width of the panel that starts at `start`.
    static constexpr KGEN_HOST_DEVICE int panel_columns(int start) {
        const int left = COLUMNS - start;
        return left >= 64 ? 64 : left >= 32 ? 32 : 16;
    }

    // Byte offset in the tile of the panel that starts at `start`.
    static constexpr KGEN_HOST_DEVICE uint32_t panel_offset(int start) { return ROWS * start * 2; }
};

// Byte offset, within a panel `WIDTH` columns wide, of 16-byte chunk `chunk` of row `row`.
template <int WIDTH>
KGEN_DEVICE uint32_t swizzled(uint32_t row, uint32_t chunk) {
    constexpr uint32_t chunks = WIDTH / 8;           // 8, 4 or 2 per row
    constexpr uint32_t rows_per_line = 8 / chunks;  // rows that share a 128-byte line
    return row * (WIDTH * 2) + ((chunk ^ (row / rows_per_line % chunks)) * 16);
}

// Byte offset in `Tile` of the eight elements of row `row` from column `column`, a multiple of 8, on.
template <class Tile>
KGEN_DEVICE uint32_t chunk_offset(uint32_t row, int column) {
    const int start = Tile::panel_start(column);
    const int width = Tile::panel_columns(start);
    const uint32_t chunk = (column - start) / 8;
    const uint32_t in_panel = width == 64 ? swizzled<64>(row, chunk)
                                          : width == 32 ? swizzled<32>(row, chunk) : swizzled<16>(row, chunk);
    return Tile::panel_offset(start) + in_panel;
}

// The lane's part of every ldmatrix address into tiles that start at multiples of 128 bytes: its row and its chunk (0
// or 1) inside a 16-column step, for each panel width. The compiler removes unused ones.
struct lane_offsets {
    uint32_t in_64, in_32, in_16;
};

KGEN_DEVICE lane_offsets make_lane_offsets(uint32_t row, uint32_t chunk) {
    return {swizzled<64>(row, chunk), swizzled<32>(row, chunk), swizzled<16>(row, chunk)};
}

// The offsets of the lanes `step` 16-column steps further on, for addresses whose own step has none of the bits of
// `step`. A panel of 16 columns has only step 0.
KGEN_DEVICE lane_offsets lanes_at_step(lane_offsets lanes, uint32_t step) {
    return {lanes.in_64 ^ step * 32, lanes.in_32 ^ step * 32, lanes.in_16};
}

// The overloads that take a lane are for kernels that hide it from the compiler. (With the lane as a default argument
// of one function the forward kernel at head dim 128 spills: ptxas is that sensitive.)

// Lanes of the A operand and of a transposed B operand: 16 rows from `first_row` (a multiple of 8) on, then the same
// rows for the second chunk.
KGEN_DEVICE lane_offsets lanes_by_row(int first_row, uint32_t lane) {
    return make_lane_offsets(first_row + lane % 16, lane / 16);
}
KGEN_DEVICE lane_offsets lanes_by_row(int first_row) {
    return make_lane_offsets(first_row + lane_index() % 16, lane_index() / 16);
}

// Lane offsets for a B operand whose columns are rows of the tile, such as K in Q K^T: lanes 0 .. 7 address rows 0 .. 7
// of chunk 0, lanes 8 .. 15 the same rows of chunk 1, and lanes 16 .. 31 rows 8 .. 15 likewise.
KGEN_DEVICE lane_offsets lanes_by_chunk(uint32_t lane) {
    return make_lane_offsets(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}
KGEN_DEVICE lane_offsets lanes_by_chunk() {
    return make_lane_offsets(lane_index() % 8 + lane_index() / 16 * 8, lane_index() / 8 % 2);
}

// ldmatrix address for the 16x16 block of `Tile` at row `row` (a multiple of 8) and 16-column step `step`. In a panel
// the step only flips chunk bits above the lane's own, so it is an XOR with a constant; the rest is a constant offset.
template <class Tile>
KGEN_DEVICE uint32_t fragment_address(uint32_t tile, lane_offsets lanes, int row, int step) {
    const int start = Tile::panel_start(step * 16);
    const int width = Tile::panel_columns(start);
    const uint32_t flip = (step * 16 - start) * 2;
    const uint32_t lane = width == 64 ? lanes.in_64 : width == 32 ? lanes.in_32 : lanes.in_16;
    return tile + (lane ^ flip) + (Tile::panel_offset(start) + row * width * 2);
}

// Loads the tile of `Tile::rows` rows of HEAD_DIM elements that starts at row `first_row` of `source` (row stride in
// elements) into shared memory. Rows from `rows` on, and columns from HEAD_DIM up to the tile's width, are zero-filled
// and not read.
// VECTOR: 16-byte asynchronous copies; otherwise element loads, for tensors that are not aligned to 16 bytes.
template <class Tile, int HEAD_DIM, int THREADS, bool VECTOR, int START = 0>
KGEN_DEVICE void copy_tile(uint32_t tile, const uint16_t* source, int64_t row_stride, int first_row, int rows) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        constexpr int chunks = width / 8;
        constexpr int pass_rows = THREADS / chunks;
        constexpr int passes = (Tile::rows + pass_rows - 1) / pass_rows;
        static_assert(pass_rows % 8 == 0, "the swizzle of a thread's chunk is the same in every pass");

        const int row = thread_index() / chunks;
        const int valid_rows = rows - first_row;
        const int column = START + thread_index() % chunks * 8;
        const bool valid_column = START + width <= HEAD_DIM || column < HEAD_DIM;
        const uint32_t destination = tile + Tile::panel_offset(START) + swizzled<width>(row, thread_index() % chunks);
        const uint16_t* from = source + (first_row + row) * row_stride + column;

        if constexpr (VECTOR) {
            KGEN_UNROLL
            for (int pass = 0; pass < passes; ++pass) {
                const int pass_row = pass * pass_rows;
                if (Tile::rows % pass_rows == 0 || row + pass_row < Tile::rows) {
                    cp_async(destination + pass_row * width * 2, from, row + pass_row < valid_rows && valid_column);
                }
                from = opaque(from + pass_rows * row_stride);
            }
        } else {
            KGEN_ROLLED
            for (int pass_row = 0; pass_row + row < Tile::rows; pass_row += pass_rows) {
                uint32_t words[4] = {0, 0, 0, 0};
                if (row + pass_row < valid_rows && valid_column) {
                    KGEN_UNROLL
                    for (int i = 0; i < 4; ++i) {
                        const uint32_t low = load_global(from + pass_row * row_stride + 2 * i);
                        const uint32_t high = load_global(from + pass_row * row_stride + 2 * i + 1);
                        words[i] = low | high << 16;
                    }
                }
                store_shared(destination + pass_row * width * 2, words4{words[0], words[1], words[2], words[3]});
            }
        }
        copy_tile<Tile, HEAD_DIM, THREADS, VECTOR, START + width>(tile, source, row_stride, first_row, rows);
    }
}

// Writes rows `first_row` .. `first_row + ROWS` of a tile, filled by one warp, to `destination` (the tensor's row of
// the tile's row 0). Rows from `valid_rows` on and columns from HEAD_DIM on are not written.
template <class Tile, int HEAD_DIM, int ROWS, bool VECTOR, int START = 0>
KGEN_DEVICE void store_warp_rows(uint16_t* destination, int64_t row_stride, uint32_t tile, int first_row,
                                 int valid_rows) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        constexpr int chunks = width / 8;
        constexpr int pass_rows = 32 / chunks;
        const uint32_t chunk = lane_index() % chunks;
        const int column = START + chunk * 8;

        KGEN_UNROLL
        for (int pass = 0; pass < ROWS / pass_rows; ++pass) {
            const int row = first_row + pass * pass_rows + lane_index() / chunks;
            if (row < valid_rows && (START + width <= HEAD_DIM || column < HEAD_DIM)) {
                const words4 value = load_shared(tile + Tile::panel_offset(START) + swizzled<width>(row, chunk));
                uint16_t* to = destination + row * row_stride + column;
                if constexpr (VECTOR) {
                    store_global(static_cast<void*>(to), value);
                } else {
                    const uint32_t words[4] = {value.x, value.y, value.z, value.w};
                    KGEN_UNROLL
                    for (int i = 0; i < 8; ++i)
                        store_global(to + i, static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
                }
            }
        }
        store_warp_rows<Tile, HEAD_DIM, ROWS, VECTOR, START + width>(destination, row_stride, tile, first_row,
                                                                     valid_rows);
    }
}

}  // namespace kgen
