// The order of work items in a batch of sequences of unequal lengths.
#pragma once

#include "kgen/fwd_params.cuh"
#include "kgen/sync.cuh"

namespace kgen {

// Most classes of items. A block goes through all sequences once per class, 32 at a time: at most so many times 32.
constexpr int32_t MOST_CLASSES = 16;
constexpr int32_t MOST_VISITS = 64;

// Keys per class, or 0 if the order would not pay: all sequences have the same lengths, all items have one tile of
// `tile_keys` keys, or there are too many sequences for two classes. Host code.
inline int32_t keys_per_class(const kgen_fwd_params& p, int32_t tile_keys) {
    if (lengths_are_equal(p) || p.batch < 2 || p.seqlen_k <= tile_keys) return 0;
    const int32_t affordable = MOST_VISITS / ((p.batch - 1) / 32 + 1);
    const int32_t classes = affordable < MOST_CLASSES ? affordable : MOST_CLASSES;
    if (classes < 2) return 0;
    const int32_t step = p.seqlen_k / classes + 1;
    return step > tile_keys ? step : tile_keys;
}

// Tiles of a sequence, counted from its end.
struct tile_range {
    uint32_t first, count;
};

// A block's place in the order: items with the most keys first, wherever their sequences are in the batch. Items are
// divided into classes of `step` keys. Within a class the sequences keep their order, and so do the heads of a
// sequence and the tiles of a head, which read the same keys at about the same time. Tiles of TILE_ROWS queries are
// counted from a sequence's end; with CAUSAL, a tile sees the fewer keys the farther it is from there.
template <int TILE_ROWS, bool CAUSAL>
struct length_order {
    int32_t least;        // keys of the class's shortest items
    int32_t first = 0;    // sequence: lane l counts the items of sequence first + l
    uint32_t before = 0;  // items of earlier classes and sequences
    uint32_t head = 0, tile = 0;  // of the item found last: the head in all batch entries together

    // Begins with the class of the longest items that can be.
    KGEN_DEVICE void begin(const kgen_fwd_params& p, int32_t step) { least = p.seqlen_k / step * step; }

    // How many of a sequence's tiles have at least `least` keys. All have, in the last class, which begins at 0.
    static KGEN_DEVICE int32_t tiles_from(int32_t least, int32_t tiles, int32_t keys) {
        if (least == 0) return tiles;
        if (keys < least) return 0;
        return CAUSAL ? min(tiles, (keys - least) / TILE_ROWS + 1) : tiles;
    }

    // The tiles of a sequence that are in the class.
    KGEN_DEVICE tile_range in_class(const kgen_fwd_params& p, int32_t step, int32_t batch) const {
        if (batch >= p.batch) return {0, 0};
        const int32_t rows = sequence_of(batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q).rows;
        const int32_t keys = sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k).rows;
        const int32_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
        const bool is_first = least + step > p.seqlen_k;
        const int32_t earlier = is_first ? 0 : tiles_from(least + step, tiles, keys);
        return {static_cast<uint32_t>(earlier), static_cast<uint32_t>(tiles_from(least, tiles, keys) - earlier)};
    }

    // Finds an item by its number, which is not below the number found last. Returns false if there are fewer items.
    // All lanes of a warp search together.
    KGEN_DEVICE bool find(const kgen_fwd_params& p, int32_t step, uint32_t item) {
        for (; least >= 0; least -= step, first = 0) {
            for (; first < p.batch; first += 32) {
                const tile_range own = in_class(p, step, first + static_cast<int32_t>(lane_index()));
                uint32_t counted = own.count;  // tiles of all lanes' sequences
                KGEN_UNROLL
                for (int mask = 1; mask < 32; mask *= 2) counted += shuffle_xor(counted, mask);
                counted *= p.num_heads;
                if (item - before < counted) {
                    uint32_t place = item - before, tiles;
                    for (int lane = 0;; ++lane) {
                        tiles = shuffle(own.count, lane);
                        if (place < tiles * p.num_heads) {
                            head = (first + lane) * p.num_heads + place / tiles;
                            tile = shuffle(own.first, lane) + place % tiles;
                            return true;
                        }
                        place -= tiles * p.num_heads;
                    }
                }
                before += counted;
            }
        }
        return false;
    }
};

}  // namespace kgen
