// A tile of 1-byte elements in shared memory: the location of each element, and how a tile is loaded.
//
// Its layout is that of a tile of 16-bit elements half as wide (tile.cuh): panels of 128, 64 or 32 bytes per row with
// the same swizzles. fragment_address() therefore works for it too, with steps of 32 columns.
#pragma once

#include "kgen/cp_async.cuh"
#include "kgen/global.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/tile.cuh"

namespace kgen {

template <int ROWS, int COLUMNS>
struct byte_tile : shared_tile<ROWS, COLUMNS / 2> {
    static_assert(COLUMNS % 32 == 0, "a tile is as wide as whole MMA steps");

    static constexpr int element_bytes = 1;
};

// Lane offsets for 32 rows, one per lane, at the first chunk.
KGEN_DEVICE lane_offsets lanes_by_key() { return make_lane_offsets(lane_index(), 0); }

// ldmatrix address for 32 rows of `Tile` from row `row` (a multiple of 8) on, 16 columns from column 16 * `chunk` on.
template <class Tile>
KGEN_DEVICE uint32_t chunk_address(uint32_t tile, lane_offsets lanes, int row, int chunk) {
    const int start = Tile::panel_start(chunk * 8);
    const int width = Tile::panel_columns(start);
    const uint32_t flip = (chunk * 8 - start) * 2;
    const uint32_t lane = width == 64 ? lanes.in_64 : width == 32 ? lanes.in_32 : lanes.in_16;
    return tile + (lane ^ flip) + (Tile::panel_offset(start) + row * width * 2);
}

// Number of columns that a row of HEAD_DIM has among the 16 from `column` on.
template <int HEAD_DIM>
KGEN_DEVICE int columns_of_piece(int column) {
    if constexpr (HEAD_DIM % 16 == 0) return column < HEAD_DIM ? 16 : 0;
    else return max(0, min(16, HEAD_DIM - column));
}

// The first `columns` bytes of a 16-byte piece of a row, by element loads; zeros follow, and no more is read.
KGEN_DEVICE words4 load_elements(const uint8_t* from, int columns) {
    uint32_t words[4] = {0, 0, 0, 0};
    KGEN_UNROLL
    for (int i = 0; i < 16; ++i) {
        if (i < columns) words[i / 4] |= static_cast<uint32_t>(load_global(from + i)) << (i % 4 * 8);
    }
    return {words[0], words[1], words[2], words[3]};
}

// load_elements(), but ALIGNED pieces, which begin at multiples of 16 bytes, are loaded whole.
template <bool ALIGNED>
KGEN_DEVICE words4 load_byte_piece(const uint8_t* from, int columns) {
    if (ALIGNED && columns == 16) return load_global(reinterpret_cast<const words4*>(from));
    return load_elements(from, columns);
}

// Copies the first `columns` bytes of a 16-byte piece of a row into shared memory, followed by zeros.
// VECTOR: an asynchronous copy; otherwise element loads, for tensors that are not aligned to 16 bytes.
template <bool VECTOR>
KGEN_DEVICE void copy_piece(uint32_t destination, const uint8_t* from, int columns) {
    if constexpr (VECTOR) cp_async_partial(destination, from, columns);
    else store_shared(destination, load_elements(from, columns));
}

// The order in which rows are stored. The layout of P needs rows 2t, 2t + 1, 2t + 8 and 2t + 9 of each 16 adjacent (see
// the kernel), and a transposing load of bytes gives a lane four adjacent rows.
enum class row_order { natural, as_p };

// The stored position of row `row` of the tensor's tile: bit 3 moves below bits 2 and 1.
template <row_order ORDER>
KGEN_DEVICE int stored_row(int row) {
    if constexpr (ORDER == row_order::natural) return row;
    return (row & ~14) | (row << 1 & 12) | (row >> 2 & 2);
}

// Loads the tile of `Tile::rows` rows of HEAD_DIM bytes that starts at row `first_row` of `source` (row stride in
// bytes) into shared memory. Rows from `rows` on, and columns from HEAD_DIM up to the tile's width, are zero-filled and
// not read.
// VECTOR: 16-byte asynchronous copies; otherwise element loads, for tensors that are not aligned to 16 bytes.
template <class Tile, int HEAD_DIM, int THREADS, bool VECTOR, row_order ORDER, int START = 0>
KGEN_DEVICE void copy_bytes(uint32_t tile, const uint8_t* source, int64_t row_stride, int first_row, int rows) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);  // in pairs of bytes
        constexpr int chunks = width / 8;
        constexpr int pass_rows = THREADS / chunks;
        constexpr int passes = (Tile::rows + pass_rows - 1) / pass_rows;
        static_assert(pass_rows % (ORDER == row_order::natural ? 8 : 16) == 0,
                      "the swizzle and the order of a thread's row are the same in every pass");

        const int row = thread_index() / chunks;
        const int valid_rows = rows - first_row;
        const int column = START * 2 + thread_index() % chunks * 16;
        const int valid_columns = START * 2 + width * 2 <= HEAD_DIM ? 16 : max(0, min(16, HEAD_DIM - column));
        const uint32_t destination = tile + Tile::panel_offset(START) +
                                     swizzled<width>(stored_row<ORDER>(row), thread_index() % chunks);
        const uint8_t* from = source + (first_row + row) * row_stride + column;

        if constexpr (VECTOR) {
            KGEN_UNROLL
            for (int pass = 0; pass < passes; ++pass) {
                const int pass_row = pass * pass_rows;
                if (Tile::rows % pass_rows == 0 || row + pass_row < Tile::rows) {
                    cp_async_partial(destination + pass_row * width * 2, from,
                                     row + pass_row < valid_rows ? valid_columns : 0);
                }
                from = opaque(from + pass_rows * row_stride);
            }
        } else {
            KGEN_ROLLED
            for (int pass_row = 0; pass_row + row < Tile::rows; pass_row += pass_rows) {
                uint32_t words[4] = {0, 0, 0, 0};
                if (row + pass_row < valid_rows) {
                    KGEN_UNROLL
                    for (int i = 0; i < 16; ++i) {
                        if (i >= valid_columns) break;
                        const uint32_t byte = load_global(from + pass_row * row_stride + i);
                        words[i / 4] |= byte << (i % 4 * 8);
                    }
                }
                store_shared(destination + pass_row * width * 2, words4{words[0], words[1], words[2], words[3]});
            }
        }
        copy_bytes<Tile, HEAD_DIM, THREADS, VECTOR, ORDER, START + width>(tile, source, row_stride, first_row, rows);
    }
}

}  // namespace kgen
