// Tiles of 16-bit elements (kgen/tile.cuh) that TMA brings: each panel is one box, whose swizzle is the panel's.
#pragma once

#include "kgen/mbarrier.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma.cuh"

namespace kgen {

// What tiles must start at a multiple of, so that TMA's swizzle, which goes by addresses, is that of kgen/tile.cuh.
constexpr uint32_t TMA_TILE_ALIGNMENT = 1024;

// The maps of a tensor (batch, row, head, column): one for each panel width that `Tile` has.
template <class Tile>
struct tile_maps {
    static constexpr bool has_64 = Tile::columns >= 64;
    static constexpr bool has_32 = Tile::columns % 64 >= 32;
    static constexpr bool has_16 = Tile::columns % 32 != 0;

    tensor_map of_width[has_64 + has_32 + has_16];

    static constexpr KGEN_HOST_DEVICE int index(int width) { return width == 64 ? 0 : width == 32 ? has_64 : has_64 + has_32; }
};

// A tensor for tile_maps; strides in elements. Columns from `columns` up to the tile's width arrive as zeros.
struct tma_tensor {
    const void* base;
    uint64_t columns, rows, heads, batches;
    int64_t row_stride, head_stride, batch_stride;

    tensor_view boxes(uint32_t box_rows, uint32_t width) const {
        return {base,
                2,
                4,
                {columns, rows, heads, batches},
                {2, row_stride * 2, head_stride * 2, batch_stride * 2},
                {width, box_rows, 1, 1},
                width == 64 ? tma_swizzle::span_128 : width == 32 ? tma_swizzle::span_64 : tma_swizzle::span_32};
    }
};

// True if TMA can bring tiles of the tensor; otherwise `why` receives the reason.
template <class Tile>
bool tma_takes(const tma_tensor& tensor, char* why, size_t why_bytes) {
    return tma_takes(tensor.boxes(Tile::rows, Tile::panel_columns(0)), why, why_bytes);
}

// Makes the maps of a tensor that tma_takes().
template <class Tile>
int make_tile_maps(tile_maps<Tile>& maps, const tma_tensor& tensor, const char* name, const char* called) {
    for (const int width : {64, 32, 16}) {
        if ((width == 64 && !maps.has_64) || (width == 32 && !maps.has_32) || (width == 16 && !maps.has_16)) continue;
        const tensor_view view = tensor.boxes(Tile::rows, width);
        if (const int code = make_tensor_map(maps.of_width[maps.index(width)], view, name, called)) return code;
    }
    return KGEN_SUCCESS;
}

template <class Tile, int START = 0>
KGEN_DEVICE void fetch_panels(uint32_t tile, const tile_maps<Tile>& maps, uint32_t barrier, int row, int head, int batch) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        tma_load(tile + Tile::panel_offset(START), maps.of_width[maps.index(width)], barrier, START, row, head, batch);
        fetch_panels<Tile, START + width>(tile, maps, barrier, row, head, batch);
    }
}

// Starts copying the tile whose first row is `row` of a head and batch entry, and arrives at `barrier`, whose phase ends
// no sooner than the tile is there. For one thread.
template <class Tile>
KGEN_DEVICE void fetch_tile(uint32_t tile, const tile_maps<Tile>& maps, uint32_t barrier, int row, int head, int batch) {
    mbarrier_arrive_expect_tx(barrier, Tile::bytes);
    fetch_panels<Tile>(tile, maps, barrier, row, head, batch);
}

}  // namespace kgen
