// Tiles staged through registers on their way to shared memory, for GPUs without cp.async: a thread fetches its 16-byte
// pieces of the next tile while the block works on the current one, and stores them after a barrier has shown that the
// buffer is free.
#pragma once

#include "kgen/global.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/tile.cuh"

namespace kgen {

// The division of the panel of `Tile` at column START among THREADS threads: in passes over its rows, one 16-byte piece
// per thread and pass.
template <class Tile, int THREADS, int START>
struct panel_passes {
    static constexpr int width = Tile::panel_columns(START);
    static constexpr int chunks = width / 8;
    static constexpr int rows = THREADS / chunks;  // per pass
    static constexpr int count = (Tile::rows + rows - 1) / rows;
    static_assert(rows % 8 == 0, "the swizzle of a thread's chunk is the same in every pass");
};

// Pieces of one thread in the panels from column START on.
template <class Tile, int THREADS, int START = 0>
constexpr KGEN_HOST_DEVICE int staged_pieces() {
    if constexpr (START < Tile::columns) {
        using passes = panel_passes<Tile, THREADS, START>;
        return passes::count + staged_pieces<Tile, THREADS, START + passes::width>();
    } else {
        return 0;
    }
}

// One thread's share of a tile.
template <class Tile, int THREADS>
struct staged_tile {
    words4 pieces[staged_pieces<Tile, THREADS>()];
};

// Starts loading the tile of `Tile::rows` rows of HEAD_DIM elements that starts at row `first_row` of `source` (row
// stride in elements, rows aligned to 16 bytes). Rows from `rows` on, and columns from HEAD_DIM on, become zeros and
// are not read.
template <class Tile, int HEAD_DIM, int START = 0, int PIECE = 0, int THREADS>
KGEN_DEVICE void stage_tile(staged_tile<Tile, THREADS>& staged, const uint16_t* source, int64_t row_stride,
                            int first_row, int rows) {
    if constexpr (START < Tile::columns) {
        using passes = panel_passes<Tile, THREADS, START>;
        const int row = thread_index() / passes::chunks;
        const int valid_rows = rows - first_row;
        const int column = START + thread_index() % passes::chunks * 8;
        const bool valid_column = START + passes::width <= HEAD_DIM || column < HEAD_DIM;
        const uint16_t* from = source + (first_row + row) * row_stride + column;
        KGEN_UNROLL
        for (int pass = 0; pass < passes::count; ++pass) {
            words4 piece = {0, 0, 0, 0};
            const int pass_row = pass * passes::rows;
            const bool in_tile = Tile::rows % passes::rows == 0 || row + pass_row < Tile::rows;
            if (in_tile && row + pass_row < valid_rows && valid_column)
                piece = load_global(reinterpret_cast<const words4*>(from));
            staged.pieces[PIECE + pass] = piece;
            from = opaque(from + passes::rows * row_stride);
        }
        stage_tile<Tile, HEAD_DIM, START + passes::width, PIECE + passes::count>(staged, source, row_stride, first_row,
                                                                                 rows);
    }
}

// Stores a fetched tile to shared memory.
template <int START = 0, int PIECE = 0, class Tile, int THREADS>
KGEN_DEVICE void put_tile(uint32_t tile, const staged_tile<Tile, THREADS>& staged) {
    if constexpr (START < Tile::columns) {
        using passes = panel_passes<Tile, THREADS, START>;
        const int row = thread_index() / passes::chunks;
        const uint32_t place = tile + Tile::panel_offset(START) +
                               swizzled<passes::width>(row, thread_index() % passes::chunks);
        KGEN_UNROLL
        for (int pass = 0; pass < passes::count; ++pass) {
            const int pass_row = pass * passes::rows;
            if (Tile::rows % passes::rows == 0 || row + pass_row < Tile::rows) {
                store_shared(place + pass_row * passes::width * 2, staged.pieces[PIECE + pass]);
            }
        }
        put_tile<START + passes::width, PIECE + passes::count>(tile, staged);
    }
}

}  // namespace kgen
