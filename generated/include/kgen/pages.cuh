// Paged K and V: the locations of a sequence's rows (kgen_fwd_params.page_table), and loads of tiles.
#pragma once

#include "kgen.h"
#include "kgen/byte_tile.cuh"
#include "kgen/divisor.cuh"
#include "kgen/global.cuh"
#include "kgen/platform.cuh"
#include "kgen/tile.cuh"
#include "kgen/warp_tile.cuh"

namespace kgen {

// The pages of one sequence. Only entries of rows that the sequence has are read.
struct sequence_pages {
    const int32_t* table;
    divisor size;  // rows of a page

    KGEN_DEVICE int of_row(int row) const { return load_global(table + quotient(row, size)); }

    // The place of a row in its page.
    KGEN_DEVICE int row_in_page(int row) const { return row - quotient(row, size) * static_cast<int>(size.number); }
};

KGEN_DEVICE sequence_pages pages_of(const kgen_fwd_params& p, const divisor& page_size, int batch) {
    return {p.page_table + batch * p.page_table_stride, page_size};
}

// A tensor of pages, at one head; strides in elements.
template <class Element>
struct rows_in_pages {
    const Element* base;
    int64_t page_stride, row_stride;

    KGEN_DEVICE const Element* row(int page, int row_in_page) const {
        return base + page * page_stride + row_in_page * row_stride;
    }
};

using paged_rows = rows_in_pages<uint16_t>;
using paged_bytes = rows_in_pages<uint8_t>;

// One 16-byte piece of a row, from its first column on; zeros, without any read, if it is not `valid`.
// VECTOR: an asynchronous copy; otherwise element loads, for tensors that are not aligned to 16 bytes.
template <bool VECTOR>
KGEN_DEVICE void copy_piece(uint32_t destination, const uint16_t* from, bool valid) {
    if constexpr (VECTOR) {
        cp_async(destination, from, valid);
    } else {
        uint32_t words[4] = {0, 0, 0, 0};
        if (valid) {
            KGEN_UNROLL
            for (int i = 0; i < 8; ++i) words[i / 2] |= static_cast<uint32_t>(load_global(from + i)) << (i % 2 * 16);
        }
        store_shared(destination, words4{words[0], words[1], words[2], words[3]});
    }
}

// The part of a row of HEAD_DIM elements in the 16-byte piece from `column` on, which is in a tile's panel at START:
// all or nothing for 16-bit elements, a number of bytes for 1-byte ones.
template <class Tile, int HEAD_DIM, int START>
KGEN_DEVICE auto part_of_piece(int column) {
    if constexpr (Tile::element_bytes == 1) return columns_of_piece<HEAD_DIM>(column);
    else return START + Tile::panel_columns(START) <= HEAD_DIM || column < HEAD_DIM;
}

// copy_tile() of kgen/tile.cuh, or copy_bytes() of kgen/byte_tile.cuh, for a sequence in pages: rows `first_row` ..
// `first_row + Tile::rows` of it, by all threads. The pages of several rows are looked up at once, so that their
// latencies overlap. ORDER: the order in which rows are stored.
template <class Tile, int HEAD_DIM, int THREADS, bool VECTOR, row_order ORDER = row_order::natural, int START = 0,
          class Element>
KGEN_DEVICE void copy_paged_tile(uint32_t tile, const rows_in_pages<Element>& source, const sequence_pages& pages,
                                 int first_row, int rows) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        constexpr int chunks = width / 8;
        constexpr int pass_rows = THREADS / chunks;
        constexpr int passes = (Tile::rows + pass_rows - 1) / pass_rows;
        constexpr int at_once = passes < 2 ? passes : 2;
        static_assert(pass_rows % (ORDER == row_order::natural ? 8 : 16) == 0,
                      "the swizzle and the order of a thread's row are the same in every pass");

        const int row = thread_index() / chunks;
        const int column = (START + thread_index() % chunks * 8) * (2 / Tile::element_bytes);
        const auto part = part_of_piece<Tile, HEAD_DIM, START>(column);
        const uint32_t destination = tile + Tile::panel_offset(START) +
                                     swizzled<width>(stored_row<ORDER>(row), thread_index() % chunks);
        KGEN_ROLLED
        for (int begin = 0; begin < passes; begin += at_once) {
            int page[at_once];
            KGEN_UNROLL
            for (int i = 0; i < at_once; ++i) {
                const int sequence_row = first_row + row + (begin + i) * pass_rows;
                page[i] = sequence_row < rows ? pages.of_row(sequence_row) : 0;
            }
            KGEN_UNROLL
            for (int i = 0; i < at_once; ++i) {
                const int tile_row = row + (begin + i) * pass_rows;
                if (begin + i >= passes || (Tile::rows % pass_rows != 0 && tile_row >= Tile::rows)) continue;
                const Element* from = source.row(page[i], pages.row_in_page(first_row + tile_row)) + column;
                copy_piece<VECTOR>(destination + (begin + i) * pass_rows * width * 2, from,
                                   first_row + tile_row < rows ? part : 0);
            }
        }
        copy_paged_tile<Tile, HEAD_DIM, THREADS, VECTOR, ORDER, START + width>(tile, source, pages, first_row, rows);
    }
}

// copy_warp_tile() of kgen/warp_tile.cuh, or copy_warp_bytes() of kgen/warp_bytes.cuh, for a sequence in pages; a tile
// may span several.
template <class Tile, int HEAD_DIM, bool VECTOR, int START = 0, class Element>
KGEN_DEVICE void copy_paged_warp_tile(uint32_t tile, const rows_in_pages<Element>& source, const sequence_pages& pages,
                                      int first_row, int rows) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        constexpr int chunks = width / 8;
        constexpr int pass_rows = 32 / chunks;

        const int row = lane_index() / chunks;
        const int column = (START + static_cast<int>(lane_index() % chunks) * 8) * (2 / Tile::element_bytes);
        const auto part = part_of_piece<Tile, HEAD_DIM, START>(column);
        KGEN_ROLLED
        for (int tile_row = row; tile_row < Tile::rows; tile_row += pass_rows) {
            const int sequence_row = first_row + tile_row;
            const auto valid = sequence_row < rows ? part : 0;
            const int page = valid ? pages.of_row(sequence_row) : 0;
            const uint32_t destination = tile + chunk_offset<Tile>(tile_row, column / (2 / Tile::element_bytes));
            copy_piece<VECTOR>(destination, source.row(page, pages.row_in_page(sequence_row)) + column, valid);
        }
        copy_paged_warp_tile<Tile, HEAD_DIM, VECTOR, START + width>(tile, source, pages, first_row, rows);
    }
}

}  // namespace kgen
