// TMA of tiles (`Tile`: a shared_tile of kgen/tile.cuh, or a byte_tile): each panel is one box with the panel's
// swizzle. Columns of the tile that the tensor does not have arrive as zeros, and are not stored.
#pragma once

#include "kgen/mbarrier.cuh"
#include "kgen/tma.cuh"

namespace kgen {

// Required alignment of tiles, so that TMA's swizzle, which depends on addresses, is that of kgen/tile.cuh.
constexpr uint32_t TMA_TILE_ALIGNMENT = 1024;

// The maps of a tensor (batch, row, head, column): one for each panel width of `Tile`.
template <class Tile>
struct tile_maps {
    static constexpr bool has_64 = Tile::columns >= 64;
    static constexpr bool has_32 = Tile::columns % 64 >= 32;
    static constexpr bool has_16 = Tile::columns % 32 != 0;

    tensor_map of_width[has_64 + has_32 + has_16];

    static constexpr KGEN_HOST_DEVICE int index(int width) {
        return width == 64 ? 0 : width == 32 ? has_64 : has_64 + has_32;
    }
};

// Prefetches the maps, ahead of the first copy.
template <class Tile>
KGEN_DEVICE void prefetch_tile_maps(const tile_maps<Tile>& maps) {
    for (const tensor_map& map : maps.of_width) tma_prefetch_map(map);
}

// The rows of a box, and the heads it takes them from.
struct tile_box {
    uint32_t rows, heads;
};

// The tensor as boxes of one panel width (in pairs of bytes), each with that panel's swizzle.
inline tensor_view panels_of(const attention_tensor& t, uint32_t element_bytes, tile_box box, uint32_t width) {
    const tma_swizzle swizzle = width == 64 ? tma_swizzle::span_128
                                            : width == 32 ? tma_swizzle::span_64 : tma_swizzle::span_32;
    const auto in_bytes = [&](int64_t stride) {
        int64_t bytes;
        // which TMA does not take
        return __builtin_mul_overflow(stride, static_cast<int64_t>(element_bytes), &bytes) ? INT64_MAX : bytes;
    };
    const uint32_t columns = width * 2 / element_bytes;
    return {t.base, element_bytes, 4, {t.columns, t.rows, t.heads, t.batches},
            {element_bytes, in_bytes(t.row_stride), in_bytes(t.head_stride), in_bytes(t.batch_stride)},
            {columns, box.rows, box.heads, 1}, swizzle};
}

// True if TMA can load tiles of the tensor; otherwise `why` receives the reason.
template <class Tile>
bool tma_takes(const attention_tensor& tensor, char* why, size_t why_bytes, tile_box box = {Tile::rows, 1}) {
    return tma_takes(panels_of(tensor, Tile::element_bytes, box, Tile::panel_columns(0)), why, why_bytes);
}

// Makes the maps of a tensor accepted by tma_takes(). `name` is the launcher, `called` its name for the tensor. All
// rows of a box fit into `Tile`.
template <class Tile>
int make_tile_maps(tile_maps<Tile>& maps, const attention_tensor& tensor, const char* name, const char* called,
                   tile_box box = {Tile::rows, 1}) {
    for (int width = 64; width >= 16; width /= 2) {
        if ((width == 64 && !maps.has_64) || (width == 32 && !maps.has_32) || (width == 16 && !maps.has_16)) continue;
        if (const int code = make_tensor_map(maps.of_width[maps.index(width)],
                                             panels_of(tensor, Tile::element_bytes, box, static_cast<uint32_t>(width)),
                                             name, called))
            return code;
    }
    return KGEN_SUCCESS;
}

// make_tile_maps() for kernels that load only by TMA: reports why TMA cannot read the tensor.
template <class Tile>
int require_tile_maps(tile_maps<Tile>& maps, const attention_tensor& tensor, const char* name, const char* called,
                      tile_box box = {Tile::rows, 1}) {
    char why[160];
    if (tma_takes<Tile>(tensor, why, sizeof why, box)) return make_tile_maps(maps, tensor, name, called, box);
    return fail(KGEN_ERROR_UNSUPPORTED, "%s: %s: %s", name, called, why);
}

template <class Tile, int START = 0>
KGEN_DEVICE void fetch_panels(uint32_t tile, const tile_maps<Tile>& maps, uint32_t barrier, int row, int head,
                              int batch) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        tma_load(tile + Tile::panel_offset(START), maps.of_width[maps.index(width)], barrier,
                 START * 2 / Tile::element_bytes, row, head, batch);
        fetch_panels<Tile, START + width>(tile, maps, barrier, row, head, batch);
    }
}

// Starts copying the tile whose first row is `row` of a head and batch entry, and arrives at `barrier`, whose phase
// completes only when the tile has arrived. Called by one thread.
template <class Tile>
KGEN_DEVICE void fetch_tile(uint32_t tile, const tile_maps<Tile>& maps, uint32_t barrier, int row, int head,
                            int batch) {
    mbarrier_arrive_expect_tx(barrier, Tile::bytes);
    fetch_panels<Tile>(tile, maps, barrier, row, head, batch);
}

template <class Tile, int START = 0, class Half>
KGEN_DEVICE void fetch_half_panels(uint32_t tile, const tile_maps<Half>& maps, uint32_t barrier, int half, int row,
                                   int head, int batch) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        constexpr uint16_t both = 3;
        tma_load_multicast(tile + Tile::panel_offset(START) + half * Half::rows * width * 2,
                           maps.of_width[maps.index(width)], barrier, both, START * 2 / Tile::element_bytes,
                           row + half * Half::rows, head, batch);
        fetch_half_panels<Tile, START + width>(tile, maps, barrier, half, row, head, batch);
    }
}

// Fetches half of a tile for both blocks of a cluster: the tile's first row is `row`, and this block's half (0: the
// upper, 1: the lower one) goes to both. Each block calls it with a different half and arrives at its own barrier,
// whose phase completes only when the whole tile has arrived. The maps are those of a tile of half the height, `Half`.
// Called by one thread of each block.
template <class Tile, class Half>
KGEN_DEVICE void fetch_half_tile(uint32_t tile, const tile_maps<Half>& maps, uint32_t barrier, int half, int row,
                                 int head, int batch) {
    static_assert(Half::rows * 2 == Tile::rows && Half::columns == Tile::columns &&
                  Half::element_bytes == Tile::element_bytes, "a half has half the rows");
    static_assert(Half::rows % 8 == 0, "the swizzle repeats every 8 rows");
    mbarrier_arrive_expect_tx(barrier, Tile::bytes);
    fetch_half_panels<Tile>(tile, maps, barrier, half, row, head, batch);
}

// Starts storing the tile whose first row is `row` of a head and batch entry, as part of the thread's open group. Rows
// and columns that the tensor does not have are not written. Called by one thread.
template <class Tile, int START = 0>
KGEN_DEVICE void store_panels(uint32_t tile, const tile_maps<Tile>& maps, int row, int head, int batch) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START);
        tma_store(maps.of_width[maps.index(width)], tile + Tile::panel_offset(START), START * 2 / Tile::element_bytes,
                  row, head, batch);
        store_panels<Tile, START + width>(tile, maps, row, head, batch);
    }
}

}  // namespace kgen
