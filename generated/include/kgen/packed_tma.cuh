// TMA of Q tiles whose rows are the queries of all heads that read one key head: a box of queries x heads, in which the
// queries of a head are adjacent.
#pragma once

#include "kgen/mbarrier.cuh"
#include "kgen/tma_tile.cuh"

namespace kgen {

// Starts copying the tile whose first row is `query` of the first of `group` heads that read `head_k`, and arrives at
// `barrier`, whose phase completes only when the tile has arrived. Leftover rows of the tile are not written. Called by
// one thread.
template <class Tile>
KGEN_DEVICE void fetch_packed_tile(uint32_t tile, const tile_maps<Tile>& maps, uint32_t barrier, int query, int head_k,
                                   int group, int batch) {
    const uint32_t rows = static_cast<uint32_t>(Tile::rows / group * group);
    mbarrier_arrive_expect_tx(barrier, Tile::bytes / Tile::rows * rows);
    fetch_panels<Tile>(tile, maps, barrier, query, head_k * group, batch);
}

}  // namespace kgen
