// Products of a warpgroup with tiles of kgen/tile.cuh, which must start at multiples of 1024 bytes.
#pragma once

#include "kgen/shared.cuh"
#include "kgen/tile.cuh"
#include "kgen/wgmma.cuh"

namespace kgen {

// An operand in a panel of WIDTH columns: each group of eight rows follows the previous eight; `leading` is for
// transposed ones.
template <int WIDTH>
KGEN_DEVICE uint64_t panel_descriptor(uint32_t address, uint32_t leading = 16) {
    return matrix_descriptor<WIDTH>(address, leading, 8 * WIDTH * 2);
}

// S = A B^T over the first COLUMNS columns of both, for the 64 rows of `A` and all rows of `B`.
template <class Element, class A, class B, int COLUMNS, int STEP = 0>
KGEN_DEVICE void multiply_by_rows(float (&s)[B::rows / 8][4], uint32_t a_tile, uint32_t b_tile) {
    static_assert(A::rows == 64, "the rows of one product");
    if constexpr (STEP < COLUMNS / 16) {
        constexpr int start = A::panel_start(STEP * 16);
        constexpr int width = A::panel_columns(start);
        constexpr uint32_t in_row = (STEP * 16 - start) * 2;
        const uint64_t a = advance(panel_descriptor<width>(a_tile), A::panel_offset(start) + in_row);
        const uint64_t b = advance(panel_descriptor<width>(b_tile), B::panel_offset(start) + in_row);
        wgmma<Element, B::rows>(s, a, b, STEP > 0);
        multiply_by_rows<Element, A, B, COLUMNS, STEP + 1>(s, a_tile, b_tile);
    }
}

// S = A B^T, or S += A B^T with `accumulate`, over all columns of both, for the 64 rows of `A` and ROWS rows of `B`
// from `first_row` on, a multiple of 8.
template <class Element, class A, class B, int ROWS, int STEP = 0>
KGEN_DEVICE void multiply_by_some_rows(float (&s)[ROWS / 8][4], uint32_t a_tile, uint32_t b_tile, int first_row,
                                       bool accumulate) {
    static_assert(A::rows == 64, "the rows of one product");
    static_assert(A::columns == B::columns && A::columns % 64 == 0, "both have the same panels, all of one width");
    if constexpr (STEP < A::columns / 16) {
        constexpr int start = A::panel_start(STEP * 16);
        constexpr uint32_t in_row = (STEP * 16 - start) * 2;
        const uint64_t a = advance(panel_descriptor<64>(a_tile), A::panel_offset(start) + in_row);
        const uint64_t b = advance(panel_descriptor<64>(b_tile + first_row * 128), B::panel_offset(start) + in_row);
        wgmma<Element, ROWS>(s, a, b, accumulate || STEP > 0);
        multiply_by_some_rows<Element, A, B, ROWS, STEP + 1>(s, a_tile, b_tile, first_row, accumulate);
    }
}

// O += W X for one step of 16 rows of X: one product of up to WIDEST columns, a multiple of 64, for each run of panels
// of one width.
template <class Element, class X, int COLUMNS, int WIDEST = 256, int START = 0>
KGEN_DEVICE void multiply_step_by_columns(float (&o)[COLUMNS / 8][4], const uint32_t (&w)[4], uint32_t x_tile,
                                          int row) {
    if constexpr (START < COLUMNS) {
        constexpr int width = X::panel_columns(START);
        constexpr int of_width = width == 64 ? X::columns / 64 * 64 - START : width;
        constexpr int run = of_width < WIDEST ? of_width : WIDEST;
        constexpr int columns = COLUMNS - START < run ? COLUMNS - START : run;
        const uint64_t x = advance(panel_descriptor<width>(x_tile, X::rows * width * 2),
                                   X::panel_offset(START) + row * width * 2);
        wgmma_transposed<Element, columns, START / 8>(o, w, x, true);
        multiply_step_by_columns<Element, X, COLUMNS, WIDEST, START + run>(o, w, x_tile, row);
    }
}

// O += W X, with W (64 rows) in registers and the first COLUMNS columns of `X`.
template <class Element, class X, int COLUMNS, int WIDEST = 256>
KGEN_DEVICE void multiply_by_columns(float (&o)[COLUMNS / 8][4], const uint32_t (&w)[X::rows / 16][4],
                                     uint32_t x_tile) {
    KGEN_UNROLL
    for (int step = 0; step < X::rows / 16; ++step)
        multiply_step_by_columns<Element, X, COLUMNS, WIDEST>(o, w[step], x_tile, step * 16);
}

// D += A X for one step of 16 rows of X and its columns FIRST .. FIRST + COLUMNS, from the first of a panel on.
template <class Element, class X, int FIRST, int COLUMNS, int DONE = 0, int TILES>
KGEN_DEVICE void multiply_panel_step(float (&d)[TILES][4], uint64_t a, uint32_t x_tile, int row, bool accumulate) {
    if constexpr (DONE < COLUMNS) {
        constexpr int start = FIRST + DONE;
        static_assert(X::panel_start(start) == start, "columns from the first of a panel on");
        constexpr int width = X::panel_columns(start);
        constexpr int run = width == 64 ? X::columns / 64 * 64 - start : width;
        constexpr int columns = COLUMNS - DONE < run ? COLUMNS - DONE : run;
        const uint64_t x = advance(panel_descriptor<width>(x_tile, X::rows * width * 2),
                                   X::panel_offset(start) + row * width * 2);
        wgmma_transposed<Element, columns, DONE / 8>(d, a, x, accumulate);
        multiply_panel_step<Element, X, FIRST, COLUMNS, DONE + run>(d, a, x_tile, row, accumulate);
    }
}

// D = A X, or D += A X with `accumulate`, for columns FIRST .. FIRST + COLUMNS of X, which has 64 rows. A (64 rows) is
// in one panel of shared memory.
template <class Element, class X, int FIRST, int COLUMNS, int TILES>
KGEN_DEVICE void multiply_panel_by_columns(float (&d)[TILES][4], uint32_t a_panel, uint32_t x_tile, bool accumulate) {
    static_assert(X::rows == 64, "a panel has 64 columns");
    KGEN_UNROLL
    for (int step = 0; step < 4; ++step)
        multiply_panel_step<Element, X, FIRST, COLUMNS>(d, advance(panel_descriptor<64>(a_panel), step * 32), x_tile,
                                                        step * 16, accumulate || step > 0);
}

// O += W X, with W (64 rows) in registers, and ROWS rows of `X` from `first_row` on and its first COLUMNS columns.
template <class Element, class X, int ROWS, int COLUMNS = X::columns>
KGEN_DEVICE void multiply_part_by_columns(float (&o)[COLUMNS / 8][4], const uint32_t (&w)[ROWS / 16][4],
                                          uint32_t x_tile, int first_row) {
    KGEN_UNROLL
    for (int step = 0; step < ROWS / 16; ++step)
        multiply_step_by_columns<Element, X, COLUMNS>(o, w[step], x_tile, first_row + step * 16);
}

// D = W X, or D += W X with ADD, for columns START .. START + COLUMNS of W X, which are rows of `X`: 1-byte elements,
// with W (64 rows) in registers.
template <class Element, class X, int START, int COLUMNS, bool ADD = false, int STEP = 0, int TILES>
KGEN_DEVICE void multiply_by_keys(float (&d)[TILES][4], const uint32_t (&w)[X::columns / 16][4], uint32_t x_tile) {
    if constexpr (STEP < X::columns / 16) {
        constexpr int start = X::panel_start(STEP * 16);
        constexpr int width = X::panel_columns(start);
        const uint64_t x = advance(panel_descriptor<width>(x_tile),
                                   X::panel_offset(start) + START * width * 2 + (STEP * 16 - start) * 2);
        wgmma_registers<Element, COLUMNS>(d, w[STEP], x, ADD || STEP > 0);
        multiply_by_keys<Element, X, START, COLUMNS, ADD, STEP + 1>(d, w, x_tile);
    }
}

template <int TILES>
KGEN_DEVICE void clear(float (&values)[TILES][4]) {
    KGEN_UNROLL
    for (int j = 0; j < TILES; ++j) {
        KGEN_UNROLL
        for (int e = 0; e < 4; ++e) values[j][e] = 0.0f;
    }
}

// Zeroes the rows before `rows` of a tile, by `threads` threads; this one is number `thread`.
template <class Tile, int START = 0>
KGEN_DEVICE void clear_rows(uint32_t tile, int rows, int thread, int threads) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        for (int chunk = thread; chunk < rows * (width / 8); chunk += threads) {
            store_shared(tile + Tile::panel_offset(START) + chunk * 16, words4{0, 0, 0, 0});
        }
        clear_rows<Tile, START + width>(tile, rows, thread, threads);
    }
}

// Zeroes the rows from `first` on.
template <class Tile, int START = 0>
KGEN_DEVICE void clear_rows_from(uint32_t tile, int first, int thread, int threads) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        for (int chunk = first * (width / 8) + thread; chunk < Tile::rows * (width / 8); chunk += threads) {
            store_shared(tile + Tile::panel_offset(START) + chunk * 16, words4{0, 0, 0, 0});
        }
        clear_rows_from<Tile, START + width>(tile, first, thread, threads);
    }
}

// Zeroes the rows from `first` to the one before `end`.
template <class Tile, int START = 0>
KGEN_DEVICE void clear_rows_between(uint32_t tile, int first, int end, int thread, int threads) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        for (int chunk = first * (width / 8) + thread; chunk < end * (width / 8); chunk += threads) {
            store_shared(tile + Tile::panel_offset(START) + chunk * 16, words4{0, 0, 0, 0});
        }
        clear_rows_between<Tile, START + width>(tile, first, end, thread, threads);
    }
}

}  // namespace kgen
