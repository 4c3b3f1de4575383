// Part of wgmma_primitives.cpp: operands of products, and the check of their results.
#pragma once

// Elements of the operands: small integers, representable in every type, so that sums are exact.
float element_a(uint32_t row, uint32_t k) { return static_cast<float>((row * 7 + k * 5 + row * k) % 13) - 6; }
float element_b(uint32_t k, uint32_t column) { return static_cast<float>((column * 3 + k * 11 + column * k) % 17) - 8; }
float element_d(uint32_t row, uint32_t column) { return static_cast<float>((row + column * 2) % 5); }

template <class Element>
constexpr int IN_WORD = 4 / sizeof(Element);

// A tile of bytes has the layout of a tile of 16-bit elements with half as many columns.
template <class Element, int ROWS, int COLUMNS>
using tile_of = shared_tile<ROWS, COLUMNS / (2 / sizeof(Element))>;

// Packs the elements of a row from `column` on into 32 bits.
template <class Element, class Value>
uint32_t word_of(Value value, uint32_t row, uint32_t column) {
    if constexpr (sizeof(Element) == 1) {
        return pack_e4m3(value(row, column), value(row, column + 1), value(row, column + 2), value(row, column + 3));
    } else {
        return pack<Element>(value(row, column), value(row, column + 1));
    }
}

// Writes `value(row, column)` to a tile in the layout of kgen/tile.cuh or kgen/byte_tile.cuh.
template <class Element, class Tile, class Value>
void store_tile(uint32_t tile, Value value) {
    for (uint32_t i = thread_index(); i < Tile::rows * Tile::columns / 8; i += WARPGROUP) {
        const uint32_t row = i / (Tile::columns / 8), chunk = i % (Tile::columns / 8);
        uint32_t words[4];
        for (uint32_t w = 0; w < 4; ++w) words[w] = word_of<Element>(value, row, (chunk * 4 + w) * IN_WORD<Element>);
        store_shared(tile + chunk_offset<Tile>(row, static_cast<int>(chunk * 8)), words4{words[0], words[1], words[2], words[3]});
    }
}

uint32_t row_of_d(uint32_t e) { return warp_index() % 4 * 16 + e / 2 * 8 + lane_index() / 4; }
uint32_t column_of_d(uint32_t tile, uint32_t e) { return tile * 8 + lane_index() % 4 * 2 + e % 2; }

template <int TILES>
void start_d(float (&d)[TILES][4]) {
    for (uint32_t j = 0; j < TILES; ++j) {
        for (uint32_t e = 0; e < 4; ++e) d[j][e] = element_d(row_of_d(e), column_of_d(j, e));
    }
}

// Sets output[thread] to 1 if the lane's part of D equals `times` A B, plus the initial D if `accumulated`.
template <int N, int TILES>
void judge(float (&d)[TILES][4], uint32_t depth, bool accumulated, uint32_t times = 1, uint32_t first = 0) {
    bool right = true;
    for (uint32_t j = 0; j < N / 8; ++j) {
        for (uint32_t e = 0; e < 4; ++e) {
            const uint32_t row = row_of_d(e), column = column_of_d(j, e);
            double sum = 0;
            for (uint32_t k = 0; k < depth; ++k) sum += static_cast<double>(element_a(row, k)) * element_b(k, column);
            sum = sum * times + (accumulated ? element_d(row, column + first * 8) : 0);
            right = right && d[first + j][e] == sum;
        }
    }
    store_global(output + thread_index(), right ? 1.0f : 0.0f);
}

bool all_ones(uint32_t count = WARPGROUP) {
    bool all = true;
    for (uint32_t i = 0; i < count; ++i) all = all && output[i] == 1.0f;
    return all;
}

void make_visible() {
    fence_proxy_async();
    block_sync();
}
