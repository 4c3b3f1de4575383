// What products of a warpgroup mean on the emulator, and what it holds against a kernel that misuses them. Exit status 1 if a
// statement is false. tests/faults.rs compiles it together with the runtime.

#include <string.h>

#include "kgen/global.cuh"
#include "kgen/math.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/registers.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma.cuh"
#include "kgen/wgmma.cuh"

KGEN_WGMMA_WIDTH(8)
KGEN_WGMMA_WIDTH(16)
KGEN_WGMMA_WIDTH(64)
KGEN_WGMMA_WIDTH(80)
KGEN_WGMMA_WIDTH(112)
KGEN_WGMMA_WIDTH(256)

#include "statements.hpp"

namespace {

constexpr uint32_t WARPGROUP = 128;
constexpr uint32_t A_TILE = emulator::SHARED_BASE, B_TILE = A_TILE + 64 * 1024;
constexpr uint32_t BYTES = 192 * 1024;

// Elements of the operands: small integers, so that sums are exact.
float element_a(uint32_t row, uint32_t k) { return static_cast<float>((row * 7 + k * 5 + row * k) % 13) - 6; }
float element_b(uint32_t k, uint32_t column) { return static_cast<float>((column * 3 + k * 11 + column * k) % 17) - 8; }
float element_d(uint32_t row, uint32_t column) { return static_cast<float>((row + column * 2) % 5); }

// Writes a tile as kgen/tile.cuh lays it out; `value(row, column)`.
template <class Element, class Tile, class Value>
void store_tile(uint32_t tile, Value value) {
    for (uint32_t i = thread_index(); i < Tile::rows * Tile::columns / 8; i += WARPGROUP) {
        const uint32_t row = i / (Tile::columns / 8), column = i % (Tile::columns / 8) * 8;
        uint32_t words[4];
        for (uint32_t w = 0; w < 4; ++w) words[w] = pack<Element>(value(row, column + w * 2), value(row, column + w * 2 + 1));
        store_shared(tile + chunk_offset<Tile>(row, static_cast<int>(column)), words4{words[0], words[1], words[2], words[3]});
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

// output[thread] is 1 where the lane's part of D is `times` A B, plus what D was before where `accumulated`.
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

// D (64 x N) of A (64 x DEPTH) and B (N rows of DEPTH), a step of 16 after the other through all panels.
template <class Element, int N, int DEPTH, int START = 0, int TILES>
void multiply_rows(float (&d)[TILES][4], bool accumulate) {
    if constexpr (START < DEPTH) {
        using a_tile = shared_tile<64, DEPTH>;
        using b_tile = shared_tile<N, DEPTH>;
        constexpr int width = a_tile::panel_columns(START);
        const uint64_t a = matrix_descriptor<width>(A_TILE + a_tile::panel_offset(START), 0, width * 16);
        const uint64_t b = matrix_descriptor<width>(B_TILE + b_tile::panel_offset(START), 0, width * 16);
        for (uint32_t step = 0; step < width / 16; ++step) {
            wgmma<Element, N>(d, advance(a, step * 32), advance(b, step * 32), accumulate || START + step > 0);
        }
        multiply_rows<Element, N, DEPTH, START + width>(d, accumulate);
    }
}

template <class Element, int N, int DEPTH>
bool rows_are_multiplied(bool accumulate) {
    static bool adds;
    adds = accumulate;
    return runs([](int) {
        store_tile<Element, shared_tile<64, DEPTH>>(A_TILE, element_a);
        store_tile<Element, shared_tile<N, DEPTH>>(B_TILE, [](uint32_t row, uint32_t column) { return element_b(column, row); });
        make_visible();
        float d[N / 8][4];
        start_d(d);
        wgmma_fence();
        multiply_rows<Element, N, DEPTH>(d, adds);
        wgmma_commit();
        wgmma_wait<0>(d);
        judge<N>(d, DEPTH, adds);
    }, WARPGROUP, 1, BYTES) && all_ones();
}

// The same with A in registers and B as DEPTH rows of N, all panels of one width at once.
template <class Element, int N, int DEPTH, int START = 0, int TILES>
void multiply_transposed(float (&d)[TILES][4], bool accumulate) {
    if constexpr (START < N) {
        using tile = shared_tile<DEPTH, N>;
        constexpr int width = tile::panel_columns(START);
        constexpr int columns = width == 64 ? N / 64 * 64 : width;
        const uint64_t b = matrix_descriptor<width>(B_TILE + tile::panel_offset(START), DEPTH * width * 2, width * 16);
        for (uint32_t step = 0; step < DEPTH / 16; ++step) {
            uint32_t a[4];
            for (uint32_t i = 0; i < 4; ++i) {
                const uint32_t row = row_of_d(i % 2 * 2), k = step * 16 + i / 2 * 8 + lane_index() % 4 * 2;
                a[i] = pack<Element>(element_a(row, k), element_a(row, k + 1));
            }
            wgmma_transposed<Element, columns, START / 8>(d, a, advance(b, step * 16 * width * 2), accumulate || step > 0);
        }
        multiply_transposed<Element, N, DEPTH, START + columns>(d, accumulate);
    }
}

template <class Element, int N, int DEPTH>
bool columns_are_multiplied(bool accumulate) {
    static bool adds;
    adds = accumulate;
    return runs([](int) {
        store_tile<Element, shared_tile<DEPTH, N>>(B_TILE, element_b);
        make_visible();
        float d[N / 8][4];
        start_d(d);
        wgmma_fence();
        multiply_transposed<Element, N, DEPTH>(d, adds);
        wgmma_commit();
        wgmma_wait<0>(d);
        judge<N>(d, DEPTH, adds);
    }, WARPGROUP, 1, BYTES) && all_ones();
}

void products() {
    expect(rows_are_multiplied<bf16, 64, 64>(false), "D = A B, both K-major in panels of 64");
    expect(rows_are_multiplied<fp16, 64, 64>(true), "D += A B");
    expect(rows_are_multiplied<fp16, 8, 32>(true), "panels of 32, 8 columns");
    expect(rows_are_multiplied<bf16, 80, 16>(true), "panels of 16, 80 columns");
    expect(rows_are_multiplied<bf16, 256, 64 + 32 + 16>(false), "panels of every width, 256 columns");
    expect(rows_are_multiplied<fp16, 112, 192>(true), "several panels");
    expect(columns_are_multiplied<bf16, 64, 64>(false), "D = A B, A in registers and B transposed, one panel of 64");
    expect(columns_are_multiplied<fp16, 16, 32>(true), "a panel of 16");
    expect(columns_are_multiplied<fp16, 256, 80>(true), "four panels of 64");
    expect(columns_are_multiplied<bf16, 64 + 16, 48>(true), "panels of two widths, each a part of D");
}

}  // namespace

int main() {
    kgen_emulator_device(90);
    products();
    printf("%d false\n", failures);
    return failures == 0 ? 0 : 1;
}
