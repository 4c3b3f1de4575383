// Tiles of Q by TMA whose rows are the queries of all heads that read one key head: a box of queries x heads, in which
// the queries of a head are neighbours.
#pragma once

#include "kgen/mbarrier.cuh"
#include "kgen/tma.cuh"
#include "kgen/tma_tile.cuh"

namespace kgen {

// The tensor as boxes of `queries` queries of `group` heads, one panel wide.
inline tensor_view packed_panels_of(const attention_tensor& t, uint32_t element_bytes, uint32_t queries, uint32_t group, uint32_t width) {
    tensor_view view = panels_of(t, element_bytes, queries, width);
    view.box[2] = group;
    return view;
}

// Makes the maps of a tensor, or reports why TMA cannot read it. `name` is the launcher, `called` its name for the
// tensor. `queries` * `group` rows fit into `Tile`.
template <class Tile>
int require_packed_maps(tile_maps<Tile>& maps, const attention_tensor& tensor, int queries, int group, const char* name, const char* called) {
    char why[160];
    if (!tma_takes<Tile>(tensor, why, sizeof why)) return fail(KGEN_ERROR_UNSUPPORTED, "%s: %s: %s", name, called, why);
    for (int width = 64; width >= 16; width /= 2) {
        if ((width == 64 && !maps.has_64) || (width == 32 && !maps.has_32) || (width == 16 && !maps.has_16)) continue;
        const tensor_view view = packed_panels_of(tensor, Tile::element_bytes, static_cast<uint32_t>(queries), static_cast<uint32_t>(group), static_cast<uint32_t>(width));
        if (const int code = make_tensor_map(maps.of_width[maps.index(width)], view, name, called)) return code;
    }
    return KGEN_SUCCESS;
}

template <class Tile, int START = 0>
KGEN_DEVICE void fetch_packed_panels(uint32_t tile, const tile_maps<Tile>& maps, uint32_t barrier, int query, int head, int batch) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        tma_load(tile + Tile::panel_offset(START), maps.of_width[maps.index(width)], barrier, START * 2 / Tile::element_bytes, query, head, batch);
        fetch_packed_panels<Tile, START + width>(tile, maps, barrier, query, head, batch);
    }
}

// Starts copying the tile whose first row is `query` of the first of `group` heads that read `head_k`, and arrives at
// `barrier`, whose phase completes only when the tile has arrived. Rows of the tile that are left over stay as they
// are. Called by one thread.
template <class Tile>
KGEN_DEVICE void fetch_packed_tile(uint32_t tile, const tile_maps<Tile>& maps, uint32_t barrier, int query, int head_k, int group, int batch) {
    const uint32_t rows = static_cast<uint32_t>(Tile::rows / group * group);
    mbarrier_arrive_expect_tx(barrier, Tile::bytes / Tile::rows * rows);
    fetch_packed_panels<Tile>(tile, maps, barrier, query, head_k * group, batch);
}

}  // namespace kgen
