// TMA of paged K and V tiles: one copy per granule of 16 rows, all in one page.
#pragma once

#include "kgen/byte_tile.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/pages.cuh"
#include "kgen/sync.cuh"
#include "kgen/tma.cuh"
#include "kgen/tma_tile.cuh"

namespace kgen {

// Rows per copy. Pages hold a whole number of granules, and so do tiles.
constexpr int GRANULE = 16;

// Rounds up to whole granules.
KGEN_DEVICE int whole_granules(int rows) { return (rows + GRANULE - 1) / GRANULE * GRANULE; }

// A granule as wide as `Tile`, with elements of the same size; the maps describe granules.
template <class Tile, int BYTES = Tile::element_bytes>
struct granule {
    using tile = shared_tile<GRANULE, Tile::columns>;
};

template <class Tile>
struct granule<Tile, 1> {
    using tile = byte_tile<GRANULE, 2 * Tile::columns>;
};

template <class Tile>
using granule_of = typename granule<Tile>::tile;

template <class Tile, int START = 0>
KGEN_DEVICE void fetch_granule_panels(uint32_t tile, const tile_maps<granule_of<Tile>>& maps, uint32_t barrier,
                                      int tile_row, int row, int head, int page) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        tma_load(tile + Tile::panel_offset(START) + tile_row * width * 2, maps.of_width[maps.index(width)], barrier,
                 START * 2 / Tile::element_bytes, row, head, page);
        fetch_granule_panels<Tile, START + width>(tile, maps, barrier, tile_row, row, head, page);
    }
}

// The page of the lane's granule in a tile of ROWS rows of a sequence that begins at row `first_row`; 0, without any
// read, if the sequence has no such row. `exists`: there is such a tile.
template <int ROWS>
KGEN_DEVICE int page_of_granule(const sequence_pages& pages, int first_row, bool exists) {
    static_assert(ROWS % GRANULE == 0 && ROWS / GRANULE <= 32, "a lane for each granule");
    const int tile_row = static_cast<int>(lane_index()) * GRANULE;
    return exists && tile_row < ROWS && first_row + tile_row >= 0 ? pages.of_row(first_row + tile_row) : 0;
}

// Starts copying a tile of a sequence in pages, from row `first_row`, a multiple of GRANULE, on, and arrives at
// `barrier`, whose phase completes only when the tile has arrived. Rows before the sequence's first are zeros; rows
// after its last in the same granule have the contents of the page. Called by a warp; each granule is fetched by one
// lane, from its `page`.
template <class Tile>
KGEN_DEVICE void fetch_paged_tile(uint32_t tile, const tile_maps<granule_of<Tile>>& maps, uint32_t barrier,
                                  const sequence_pages& pages, int first_row, int page, int head) {
    const int tile_row = static_cast<int>(lane_index()) * GRANULE;
    const int row = first_row + tile_row;
    const bool inside = row >= 0;  // from a page's end on, TMA delivers zeros
    if (lane_index() == 0) mbarrier_arrive_expect_tx(barrier, Tile::bytes);
    warp_sync();  // the phase waits for the bytes before the first ones can arrive
    if (tile_row < Tile::rows) {
        fetch_granule_panels<Tile>(tile, maps, barrier, tile_row,
                                   inside ? pages.row_in_page(row) : static_cast<int>(pages.size.number), head, page);
    }
}

// Reports a page size that granules do not fit.
inline int check_granules(const kgen_fwd_params& p, const char* name) {
    if (p.page_size % GRANULE == 0) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_UNSUPPORTED, "%s: page_size %d is no multiple of %d, which TMA fetches at once", name,
                p.page_size, GRANULE);
}

}  // namespace kgen
