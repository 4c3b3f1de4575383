// Dropout of attention weights: the generator, and the mask of a fragment of weights. kgen.h defines which random byte
// belongs to which query and key.
#pragma once

#include "kgen.h"
#include "kgen/global.cuh"
#include "kgen/math.cuh"
#include "kgen/platform.cuh"

namespace kgen {

// A counter or a result of the generator.
struct philox_words {
    uint32_t word[4];
};

// Philox4x32 with 7 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
KGEN_DEVICE philox_words philox(philox_words x, uint32_t low_key, uint32_t high_key) {
    KGEN_UNROLL
    for (int round = 0; round < 7; ++round) {
        const uint64_t even = uint64_t{0xD2511F53u} * x.word[0], odd = uint64_t{0xCD9E8D57u} * x.word[2];
        x = {{static_cast<uint32_t>(odd >> 32) ^ x.word[1] ^ low_key, static_cast<uint32_t>(odd),
              static_cast<uint32_t>(even >> 32) ^ x.word[3] ^ high_key, static_cast<uint32_t>(even)}};
        low_key += 0x9E3779B9u;
        high_key += 0xBB67AE85u;
    }
    return x;
}

// The mask of one query head of one batch entry.
struct dropout_mask {
    uint32_t low_key, high_key;  // the seed
    uint32_t head;               // counted over all batch entries
    uint32_t offset;
    uint32_t most;               // of the bytes of kept weights

    // The random words of a 32x32 block, of the lane's query and key in each 8x8 block of it.
    KGEN_DEVICE philox_words words(uint32_t query_block, uint32_t query, uint32_t key_block, uint32_t key) const {
        return philox({{query_block * 8 + query, key_block * 8 + key, head, offset}}, low_key, high_key);
    }
};

// floor((1 - p) * 255). The product of a float and 255 has 32 bits, so it may round up to an integer: the sign of the
// rounding error tells.
KGEN_DEVICE uint32_t most_of_kept(float p_dropout) {
    const float kept = 1.0f - p_dropout, rounded = rounded_product(kept, 255.0f);
    const uint32_t whole = static_cast<uint32_t>(rounded);
    const bool beyond = static_cast<float>(whole) == rounded && fused_multiply_add(kept, 255.0f, -rounded) < 0.0f;
    return beyond ? whole - 1 : whole;
}

// The factor for sums of kept weights.
template <class Params>
KGEN_DEVICE float factor_of_kept(const Params& p) { return reciprocal(1.0f - p.p_dropout); }

template <class Params>
KGEN_DEVICE dropout_mask read_dropout(const Params& p, int batch, int head) {
    dropout_mask mask = {0, 0, static_cast<uint32_t>(batch * p.num_heads + head), 0, most_of_kept(p.p_dropout)};
    if (p.p_dropout > 0.0f) {
        // Opaque, so that a loop reads it each time instead of keeping the words in registers.
        const uint32_t* state = opaque(reinterpret_cast<const uint32_t*>(p.rng_state));
        mask.low_key = load_global(state);
        mask.high_key = load_global(state + 1);
        mask.offset = load_global(state + 2);
    }
    return mask;
}

// Zeroes the dropped weights of a fragment in the accumulator layout of mma. `query`: of the warp's first row, `key`:
// of column 0; both are multiples of 16. A lane has two keys of each 8x8 block, and so two calls to the generator for
// each 32x32 block.
template <int TILES, int CHUNKS>
KGEN_DEVICE void drop(float (&weights)[TILES][CHUNKS][4], const dropout_mask& mask, int query, int key) {
    constexpr int rows = TILES % 2 == 0 ? 2 : 1;    // tiles of 16 rows in a block
    constexpr int columns = CHUNKS % 4 == 0 ? 4 : 2;  // chunks of 8 columns in a block
    KGEN_UNROLL
    for (int first = 0; first < TILES; first += rows) {
        KGEN_UNROLL
        for (int start = 0; start < CHUNKS; start += columns) {
            const uint32_t block_query = static_cast<uint32_t>(query + first * 16);
            const uint32_t block_key = static_cast<uint32_t>(key + start * 8);
            KGEN_UNROLL
            for (int e = 0; e < 2; ++e) {
                const philox_words random =
                    mask.words(block_query / 32, lane_index() / 4, block_key / 32, lane_index() % 4 * 2 + e);
                KGEN_UNROLL
                for (int i = 0; i < rows * 2; ++i) {
                    // Half a block may be its upper or its lower half.
                    uint32_t word = rows == 2 || block_query % 32 == 0 ? random.word[i] : random.word[i + 4 - rows * 2];
                    if (columns == 2) word >>= block_key % 32;
                    KGEN_UNROLL
                    for (int j = 0; j < columns; ++j) {
                        float& weight = weights[first + i / 2][start + j][i % 2 * 2 + e];
                        weight = (word >> j * 8 & 255) <= mask.most ? weight : 0.0f;
                    }
                }
            }
        }
    }
}

// Marks the dropped weights of S^T, A operands whose rows are keys, with the sign bit. `key`: of the warp's first row,
// a multiple of 16; `query`: of column 0, a multiple of 32.
template <int TILES, int STEPS>
KGEN_DEVICE void mark_dropped(uint32_t (&weights)[TILES][STEPS][4], const dropout_mask& mask, int key, int query) {
    static_assert(TILES <= 2 && STEPS % 2 == 0, "a warp has up to 32 keys, and whole blocks of queries");
    KGEN_UNROLL
    for (int start = 0; start < STEPS; start += 2) {
        const uint32_t block_key = static_cast<uint32_t>(key), block_query = static_cast<uint32_t>(query + start * 16);
        KGEN_UNROLL
        for (int e = 0; e < 2; ++e) {
            const philox_words random =
                mask.words(block_query / 32, lane_index() % 4 * 2 + e, block_key / 32, lane_index() / 4);
            KGEN_UNROLL
            for (int i = 0; i < 4; ++i) {
                const uint32_t word = TILES == 2 ? random.word[i] : random.word[i] >> block_key % 32;
                KGEN_UNROLL
                for (int j = 0; j < TILES * 2; ++j) {
                    const uint32_t sign = (mask.most - (word >> j * 8 & 255)) & 0x80000000u;
                    weights[j / 2][start + i / 2][i % 2 * 2 + j % 2] |= e == 0 ? sign >> 16 : sign;
                }
            }
        }
    }
}

// Zeroes marked weights.
template <int TILES, int STEPS>
KGEN_DEVICE void zero_marked(uint32_t (&weights)[TILES][STEPS][4]) {
    KGEN_UNROLL
    for (int t = 0; t < TILES; ++t) {
        KGEN_UNROLL
        for (int i = 0; i < STEPS * 4; ++i) {
            uint32_t& pair = weights[t][i / 4][i % 4];
            pair &= ~((pair >> 15 & 0x00010001u) * 0xffffu);
        }
    }
}

// dS of a weight that may be marked: dP reaches kept weights only.
KGEN_DEVICE float gradient_of_marked(float weight, float dp, float factor, float delta) {
    return absolute(weight) * (weight < 0.0f ? -delta : fused_multiply_add(dp, factor, -delta));
}

}  // namespace kgen
