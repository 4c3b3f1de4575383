// Tiles of paged K and V staged through registers, for GPUs without cp.async.
#pragma once

#include "kgen/pages.cuh"
#include "kgen/staged_tile.cuh"

namespace kgen {

// stage_tile() of kgen/staged_tile.cuh for a sequence in pages: starts loading rows `first_row` ..
// `first_row + Tile::rows` of it. Rows from `rows` on become zeros; neither they nor their pages are read.
template <class Tile, int HEAD_DIM, int START = 0, int PIECE = 0, int THREADS>
KGEN_DEVICE void stage_paged_tile(staged_tile<Tile, THREADS>& staged, const paged_rows& source,
                                  const sequence_pages& pages, int first_row, int rows) {
    if constexpr (START < Tile::columns) {
        using passes = panel_passes<Tile, THREADS, START>;
        const int row = thread_index() / passes::chunks;
        const int column = START + thread_index() % passes::chunks * 8;
        const bool valid_column = START + passes::width <= HEAD_DIM || column < HEAD_DIM;
        KGEN_UNROLL
        for (int pass = 0; pass < passes::count; ++pass) {
            words4 piece = {0, 0, 0, 0};
            const int tile_row = row + pass * passes::rows, sequence_row = first_row + tile_row;
            const bool in_tile = Tile::rows % passes::rows == 0 || tile_row < Tile::rows;
            if (in_tile && sequence_row < rows && valid_column) {
                const uint16_t* from = source.row(pages.of_row(sequence_row), pages.row_in_page(sequence_row)) + column;
                piece = load_global(reinterpret_cast<const words4*>(from));
            }
            staged.pieces[PIECE + pass] = piece;
        }
        stage_paged_tile<Tile, HEAD_DIM, START + passes::width, PIECE + passes::count>(staged, source, pages, first_row,
                                                                                       rows);
    }
}

}  // namespace kgen
