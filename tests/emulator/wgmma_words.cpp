// What products of a warpgroup mean on the emulator, and what it holds against a kernel that misuses them. Exit status 1 if a
// statement is false. tests/faults.rs compiles it together with the runtime.

#include <math.h>
#include <string.h>

#include "kgen/byte_tile.cuh"
#include "kgen/bytes.cuh"
#include "kgen/global.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/math.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/quad.cuh"
#include "kgen/registers.cuh"
#include "kgen/shared.cuh"
#include "kgen/stmatrix.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma.cuh"
#include "kgen/transpose_bytes.cuh"
#include "kgen/wgmma.cuh"

KGEN_WGMMA_WIDTH(8)
KGEN_WGMMA_WIDTH(16)
KGEN_WGMMA_WIDTH(64)
KGEN_WGMMA_WIDTH(80)
KGEN_WGMMA_WIDTH(112)
KGEN_WGMMA_WIDTH(256)
KGEN_WGMMA_WIDTH_FP8(8)
KGEN_WGMMA_WIDTH_FP8(16)
KGEN_WGMMA_WIDTH_FP8(24)
KGEN_WGMMA_WIDTH_FP8(64)
KGEN_WGMMA_WIDTH_FP8(112)
KGEN_WGMMA_WIDTH_FP8(256)

#include "statements.hpp"

// The words of the header that GPUs have, beside the emulator's. Nothing here calls one that is made of PTX.
#undef KGEN_WGMMA_WIDTH
#undef KGEN_WGMMA_WIDTH_FP8
#define kgen kgen_on_gpu
#include "../include/kgen/wgmma.cuh"
#undef kgen

namespace {

constexpr uint32_t WARPGROUP = 128;
constexpr uint32_t A_TILE = emulator::SHARED_BASE, B_TILE = A_TILE + 64 * 1024;
constexpr uint32_t BYTES = 192 * 1024;

// Elements of the operands: small integers, which every type has, so that sums are exact.
float element_a(uint32_t row, uint32_t k) { return static_cast<float>((row * 7 + k * 5 + row * k) % 13) - 6; }
float element_b(uint32_t k, uint32_t column) { return static_cast<float>((column * 3 + k * 11 + column * k) % 17) - 8; }
float element_d(uint32_t row, uint32_t column) { return static_cast<float>((row + column * 2) % 5); }

template <class Element>
constexpr int IN_WORD = 4 / sizeof(Element);

// Bytes lie as the tile of 16-bit elements half as wide.
template <class Element, int ROWS, int COLUMNS>
using tile_of = shared_tile<ROWS, COLUMNS / (2 / sizeof(Element))>;

// The elements of a row from `column` on that make up 32 bits.
template <class Element, class Value>
uint32_t word_of(Value value, uint32_t row, uint32_t column) {
    if constexpr (sizeof(Element) == 1) {
        return pack_e4m3(value(row, column), value(row, column + 1), value(row, column + 2), value(row, column + 3));
    } else {
        return pack<Element>(value(row, column), value(row, column + 1));
    }
}

// Writes a tile as kgen/tile.cuh and kgen/byte_tile.cuh lay it out; `value(row, column)`.
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

// D (64 x N) of A (64 x DEPTH) and B (N rows of DEPTH), 32 bytes of a row after the other through all panels.
template <class Element, int N, int DEPTH, int START = 0, int TILES>
void multiply_rows(float (&d)[TILES][4], bool accumulate) {
    using a_tile = tile_of<Element, 64, DEPTH>;
    using b_tile = tile_of<Element, N, DEPTH>;
    if constexpr (START < a_tile::columns) {
        constexpr int width = a_tile::panel_columns(START);
        const uint64_t a = matrix_descriptor_by_bytes<width * 2>(A_TILE + a_tile::panel_offset(START), 0, width * 16);
        const uint64_t b = matrix_descriptor_by_bytes<width * 2>(B_TILE + b_tile::panel_offset(START), 0, width * 16);
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
        store_tile<Element, tile_of<Element, 64, DEPTH>>(A_TILE, element_a);
        store_tile<Element, tile_of<Element, N, DEPTH>>(B_TILE, [](uint32_t row, uint32_t column) { return element_b(column, row); });
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

// Steps of A as a lane holds them.
template <class Element, int STEPS>
void load_a(uint32_t (&a)[STEPS][4]) {
    for (uint32_t step = 0; step < STEPS; ++step) {
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t k = (step * 8 + i / 2 * 4 + lane_index() % 4) * IN_WORD<Element>;
            a[step][i] = word_of<Element>(element_a, row_of_d(i % 2 * 2), k);
        }
    }
}

// The same with A in registers and B as DEPTH rows of N, all panels of 64 at once.
template <class Element, int N, int DEPTH, int START = 0, int TILES>
void multiply_transposed(float (&d)[TILES][4], const uint32_t (&a)[DEPTH / 16][4], bool accumulate) {
    if constexpr (START < N) {
        using tile = shared_tile<DEPTH, N>;
        constexpr int width = tile::panel_columns(START);
        constexpr int columns = width == 64 ? N / 64 * 64 : width;
        const uint64_t b = matrix_descriptor<width>(B_TILE + tile::panel_offset(START), DEPTH * width * 2, width * 16);
        for (uint32_t step = 0; step < DEPTH / 16; ++step) {
            wgmma_transposed<Element, columns, START / 8>(d, a[step], advance(b, step * 16 * width * 2), accumulate || step > 0);
        }
        multiply_transposed<Element, N, DEPTH, START + columns>(d, a, accumulate);
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
        uint32_t a[DEPTH / 16][4];
        load_a<Element>(a);
        wgmma_fence();
        multiply_transposed<Element, N, DEPTH>(d, a, adds);
        wgmma_commit();
        wgmma_wait<0>(d);
        judge<N>(d, DEPTH, adds);
    }, WARPGROUP, 1, BYTES) && all_ones();
}

// The same with A in registers and B as N rows of DEPTH bytes. D is a part of what `d` holds, from tile FIRST on.
template <int N, int DEPTH, int FIRST, int START = 0, int TILES>
void multiply_from_registers(float (&d)[TILES][4], const uint32_t (&a)[DEPTH / 32][4], bool accumulate) {
    using tile = tile_of<e4m3, N, DEPTH>;
    if constexpr (START < tile::columns) {
        constexpr int width = tile::panel_columns(START);
        const uint64_t b = matrix_descriptor_by_bytes<width * 2>(B_TILE + tile::panel_offset(START), 0, width * 16);
        for (uint32_t step = 0; step < width / 16; ++step) {
            wgmma_registers<e4m3, N, FIRST>(d, a[START / 16 + step], advance(b, step * 32), accumulate || START + step > 0);
        }
        multiply_from_registers<N, DEPTH, FIRST, START + width>(d, a, accumulate);
    }
}

template <int N, int DEPTH, int FIRST = 0>
bool registers_are_multiplied(bool accumulate) {
    static bool adds;
    adds = accumulate;
    return runs([](int) {
        store_tile<e4m3, tile_of<e4m3, N, DEPTH>>(B_TILE, [](uint32_t row, uint32_t column) { return element_b(column, row); });
        make_visible();
        float d[FIRST + N / 8][4];
        start_d(d);
        uint32_t a[DEPTH / 32][4];
        load_a<e4m3>(a);
        wgmma_fence();
        multiply_from_registers<N, DEPTH, FIRST>(d, a, adds);
        wgmma_commit();
        wgmma_wait<0>(d);
        judge<N>(d, DEPTH, adds, 1, FIRST);
        for (uint32_t j = 0; j < FIRST; ++j) {
            for (uint32_t e = 0; e < 4; ++e) {
                if (d[j][e] != element_d(row_of_d(e), column_of_d(j, e))) store_global(output + thread_index(), 0.0f);
            }
        }
    }, WARPGROUP, 1, BYTES) && all_ones();
}

// A (64 x 32) has in row r the bytes 32 r .. 32 r + 31 (modulo 256), but for NaNs; each product takes eight of its columns.
void every_byte(int) {
    const auto byte = [](uint32_t row, uint32_t k) {
        const uint32_t value = (row * 32 + k) % 256;
        return value % 128 == 127 ? 0 : value;
    };
    uint32_t a[4];
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = row_of_d(i % 2 * 2), k = i / 2 * 16 + lane_index() % 4 * 4;
        a[i] = byte(row, k) | byte(row, k + 1) << 8 | byte(row, k + 2) << 16 | byte(row, k + 3) << 24;
    }
    bool right = true;
    for (uint32_t first = 0; first < 32; first += 8) {
        store_tile<e4m3, tile_of<e4m3, 8, 32>>(B_TILE, [=](uint32_t row, uint32_t k) { return k == first + row ? 1.0f : 0.0f; });
        make_visible();
        float d[1][4];
        wgmma_fence();
        wgmma_registers<e4m3, 8>(d, a, matrix_descriptor_by_bytes<32>(B_TILE, 0, 256), false);
        wgmma_commit();
        wgmma_wait<0>(d);
        for (uint32_t e = 0; e < 4; ++e) {
            const uint32_t bits = byte(row_of_d(e), first + column_of_d(0, e));
            const double magnitude = (bits >> 3 & 15) == 0 ? ldexp(bits & 7, -9) : ldexp(8 + (bits & 7), static_cast<int>(bits >> 3 & 15) - 10);
            right = right && d[0][e] == (bits & 0x80 ? -magnitude : magnitude);
        }
        block_sync();
    }
    store_global(output + thread_index(), right ? 1.0f : 0.0f);
}

// Sums of E4M3 as hardware has them: a D, 32 products, the first three of which are given and the others alike, and what becomes of D.
struct fp8_sum {
    float d;
    float a[4], b[4];
    float expected;
    const char* statement;
};

constexpr fp8_sum FP8_SUMS[] = {
    {0, {16, 0.25}, {16, 0.125}, 256 + 0x1p-5f, "13 bits behind the largest term's power of two count"},
    {0, {16, 0.125, 0, 0.125}, {16, 0.125, 0, 0.125}, 256, "further ones do not, though there be thirty terms of them"},
    {0, {-16, 0.125, 0, 0.125}, {16, 0.125, 0, 0.125}, -256, "... whatever the signs"},
    {0, {16, -0.375}, {16, 0.125}, 256 - 0x1p-5f, "a term is cut off toward zero, not rounded down"},
    {0, {16, 16, 0.25}, {16, 16, 0.125}, 512, "a sum that is twice as large keeps a bit less of its end"},
    {0, {-16, -16, -0.25}, {16, 16, 0.125}, -512, "... cut off toward zero"},
    {0, {16, 16, -0.25}, {16, 16, 0.125}, 512 - 0x1p-5f, "... and all of it where a subtraction keeps it below that"},
    {0, {448, -448, 2}, {448, 448, 4}, 8, "a product's power of two is that of its factors: 1.75 times 1.75 is not 2 and more"},
    {0, {0x1p-9f, 0x1p-6f}, {256, 0x1p-6f}, 0.5f, "a subnormal counts as 2^-6"},
    {256, {0.25}, {0.125}, 256 + 0x1p-5f, "D is one of the terms"},
    {256, {0.125, 0.125, 0.125, 0.125}, {0.125, 0.125, 0.125, 0.125}, 256, "... and may be the largest"},
    {-0x1p-6f, {16}, {16}, 256, "... or one that is cut off"},
    {1 + 0x1p-13f + 0x1p-14f, {}, {}, 1 + 0x1p-13f, "D itself is cut off, where all products are 0"},
    {1 + 0x1p-13f, {1}, {1}, 2, "... and with them"},
    {448 * 256.0f, {1}, {1}, 448 * 256.0f, "steps of a long sum are lost"},
};

void sum_fp8(int number) {
    const fp8_sum& sum = FP8_SUMS[number];
    const auto given = [](const float (&values)[4], uint32_t k) { return values[k < 3 ? k : 3]; };
    store_tile<e4m3, tile_of<e4m3, 8, 32>>(B_TILE, [&](uint32_t, uint32_t k) { return given(sum.b, k); });
    make_visible();
    uint32_t a[4];
    for (uint32_t i = 0; i < 4; ++i) a[i] = word_of<e4m3>([&](uint32_t, uint32_t k) { return given(sum.a, k); }, 0, (i / 2 * 4 + lane_index() % 4) * 4);
    float d[1][4] = {{sum.d, sum.d, sum.d, sum.d}};
    wgmma_fence();
    wgmma_registers<e4m3, 8>(d, a, matrix_descriptor_by_bytes<32>(B_TILE, 0, 256), true);
    wgmma_commit();
    wgmma_wait<0>(d);
    bool right = true;
    for (uint32_t e = 0; e < 4; ++e) right = right && d[0][e] == sum.expected;
    store_global(output + thread_index(), right ? 1.0f : 0.0f);
}

void sums_of_fp8() {
    static int number;
    for (number = 0; number < static_cast<int>(sizeof FP8_SUMS / sizeof *FP8_SUMS); ++number) {
        expect(runs([](int) { sum_fp8(number); }, WARPGROUP, 1, BYTES) && all_ones(), FP8_SUMS[number].statement);
    }
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
    expect(rows_are_multiplied<e4m3, 64, 128>(false), "D = A B of E4M3, both K-major in panels of 128 bytes");
    expect(rows_are_multiplied<e4m3, 24, 64>(true), "D += A B, panels of 64 bytes, 24 columns");
    expect(rows_are_multiplied<e4m3, 8, 32>(true), "panels of 32 bytes, 8 columns");
    expect(rows_are_multiplied<e4m3, 256, 128 + 64 + 32>(false), "panels of every width, 256 columns");
    expect(rows_are_multiplied<e4m3, 112, 256>(true), "several panels");
    expect(registers_are_multiplied<64, 128>(false), "D = A B of E4M3, A in registers and B K-major, one panel of 128 bytes");
    expect(registers_are_multiplied<8, 32>(true), "D += A B, a panel of 32 bytes, 8 columns");
    expect(registers_are_multiplied<256, 64>(true), "a panel of 64 bytes, 256 columns");
    expect(registers_are_multiplied<112, 128 + 64 + 32>(true), "panels of every width");
    expect(registers_are_multiplied<24, 256, 2>(true), "D is the last three of five tiles");
    expect(runs(every_byte, WARPGROUP, 1, BYTES) && all_ones(), "every finite E4M3 is multiplied exactly, subnormals included");
}

// D (64 x 16) += A B, A 64 rows of 128 bytes, with one of many mistakes.
constexpr int N = 16, DEPTH = 64;
template <class Element>
constexpr int DEPTH_OF = 128 / sizeof(Element);
using tile_of_d = float[N / 8][4];

enum class slip {
    none,
    no_fence,
    no_fence_behind_a_wait,
    fence_before_d_is_written,
    no_commit,
    no_wait,
    d_is_written_too_early,
    d_is_read_too_early,
    no_proxy_fence,
    one_warp_without_proxy_fence,
    no_barrier,
    wrong_swizzle,
    no_swizzle,
    start_inside_the_pattern,
    beyond_shared_memory,
    other_operands_in_a_warp,
    other_operands_in_a_lane,
    a_product_less_in_a_warp,
    another_shape_for_d,
    stage_overwritten_before_the_wait,
    stage_overwritten_behind_a_barrier_before_the_wait,
    stage_overwritten_without_a_barrier,
};
slip made;

template <class Element = bf16>
void store_operands() {
    store_tile<Element, tile_of<Element, 64, DEPTH_OF<Element>>>(A_TILE, element_a);
    store_tile<Element, tile_of<Element, N, DEPTH_OF<Element>>>(B_TILE, [](uint32_t row, uint32_t column) { return element_b(column, row); });
}

template <class Element>
void multiply_with_slips(int) {
    constexpr int depth = DEPTH_OF<Element>;
    store_operands<Element>();
    if (made != slip::no_proxy_fence && (made != slip::one_warp_without_proxy_fence || warp_index() != 2)) fence_proxy_async();
    if (made != slip::no_barrier) block_sync();
    tile_of_d d;
    start_d(d);
    if (made != slip::no_fence) wgmma_fence();
    if (made == slip::wrong_swizzle || made == slip::no_swizzle || made == slip::start_inside_the_pattern || made == slip::beyond_shared_memory) {
        uint64_t a = made == slip::wrong_swizzle ? matrix_descriptor<32>(A_TILE, 0, 512) : matrix_descriptor<64>(A_TILE, 0, 1024);
        if (made == slip::no_swizzle) a &= ~(3ull << 62);
        if (made == slip::start_inside_the_pattern) a = advance(a, 128);
        if (made == slip::beyond_shared_memory) a = advance(a, BYTES);
        for (uint32_t step = 0; step < 2; ++step) wgmma<Element, N>(d, advance(a, step * 32), matrix_descriptor<64>(B_TILE, 0, 1024), true);
    } else if (made == slip::other_operands_in_a_warp || made == slip::other_operands_in_a_lane) {
        const bool other = made == slip::other_operands_in_a_warp ? warp_index() == 1 : lane_index() == 1;
        wgmma<Element, N>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE + other * 32, 0, 1024), true);
    } else {
        multiply_rows<Element, N, depth>(d, true);
    }
    if (made == slip::another_shape_for_d) wgmma<Element, 8, 1>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE, 0, 1024), true);
    if (made != slip::no_commit) wgmma_commit();
    if (made == slip::no_wait) return;
    if (made == slip::d_is_written_too_early && thread_index() == 5) d[1][2] = 0;
    if (made == slip::d_is_read_too_early) judge<N>(d, depth, true);
    if (made == slip::stage_overwritten_behind_a_barrier_before_the_wait) block_sync();
    if ((made == slip::stage_overwritten_before_the_wait || made == slip::stage_overwritten_behind_a_barrier_before_the_wait) && thread_index() == 77) {
        store_shared(B_TILE + 1024, words4{});
    }
    wgmma_wait<0>(d);
    if (made == slip::d_is_read_too_early) return;
    judge<N>(d, depth, true);
    if (made == slip::a_product_less_in_a_warp) {
        wgmma_fence();
        if (warp_index() != 3) wgmma<Element, N>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE, 0, 1024), true);
        wgmma_commit();
        wgmma_wait<0>(d);
    }
    if (made != slip::stage_overwritten_without_a_barrier) block_sync();
    if (thread_index() == 77) store_shared(B_TILE + 1024, words4{});
    make_visible();
    if (made == slip::fence_before_d_is_written) wgmma_fence();
    for (uint32_t j = 0; j < N / 8; ++j) {
        for (uint32_t e = 0; made != slip::no_fence_behind_a_wait && e < 4; ++e) d[j][e] *= 2;
    }
    if (made != slip::fence_before_d_is_written && made != slip::no_fence_behind_a_wait) wgmma_fence();
    wgmma<Element, N>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE, 0, 1024), true);
    wgmma_commit();
    wgmma_wait<0>(d);
}

template <class Element>
bool shows_as(const char* kind, slip slipped) {
    made = slipped;
    return is_faulted(kind, multiply_with_slips<Element>, WARPGROUP, BYTES);
}

template <class Element>
bool shows_in_numbers(slip slipped) {
    made = slipped;
    return runs(multiply_with_slips<Element>, WARPGROUP, 1, BYTES) && !all_ones();
}

template <class Element>
void misuse() {
    made = slip::none;
    expect(runs(multiply_with_slips<Element>, WARPGROUP, 1, BYTES) && all_ones(),
           "operands that threads have written, D that they change between products, an operand overwritten");
    expect(shows_as<Element>("wgmma", slip::no_fence), "a product needs a wgmma_fence");
    expect(shows_as<Element>("wgmma", slip::no_fence_behind_a_wait), "... and another behind each wgmma_wait");
    expect(shows_as<Element>("wgmma", slip::fence_before_d_is_written), "... behind what is written to D");
    expect(shows_as<Element>("wgmma", slip::no_commit), "a wait for products that no wgmma_commit has closed is reported");
    expect(shows_as<Element>("never waited for", slip::no_wait), "products nobody waits for are reported");
    expect(shows_as<Element>("wgmma", slip::d_is_written_too_early), "writing to D before the wait is reported");
    expect(shows_in_numbers<Element>(slip::d_is_read_too_early), "reading D before the wait finds NaN");
    expect(shows_as<Element>("proxy", slip::no_proxy_fence), "a product of what threads have written needs their fence_proxy_async");
    expect(shows_as<Element>("proxy", slip::one_warp_without_proxy_fence), "... of each of them");
    expect(shows_as<Element>("race", slip::no_barrier), "... and a barrier");
    expect(shows_in_numbers<Element>(slip::wrong_swizzle), "a descriptor of another swizzle shows as wrong numbers");
    expect(shows_as<Element>("wgmma", slip::no_swizzle), "a descriptor without swizzle is reported");
    expect(shows_as<Element>("misaligned", slip::start_inside_the_pattern), "so is an operand that starts inside its swizzle's pattern");
    expect(shows_as<Element>("out of bounds", slip::beyond_shared_memory), "so is one that is not all in shared memory");
    expect(shows_as<Element>("warpgroup", slip::other_operands_in_a_warp), "the four warps bring the same operands");
    expect(shows_as<Element>("wgmma", slip::other_operands_in_a_lane), "... and all lanes of a warp");
    expect(shows_as<Element>("warpgroup", slip::a_product_less_in_a_warp), "the four warps issue the same products");
    expect(shows_as<Element>("wgmma", slip::another_shape_for_d), "products that add to the same registers have D of one shape");
    expect(shows_as<Element>("race", slip::stage_overwritten_before_the_wait), "overwriting an operand before the wait is a race");
    expect(shows_as<Element>("race", slip::stage_overwritten_behind_a_barrier_before_the_wait), "... behind a barrier too");
    expect(shows_as<Element>("race", slip::stage_overwritten_without_a_barrier), "... and behind the wait without one");
}

// D (64 x 16) = A B of E4M3, A in registers, with a mistake.
void multiply_from_registers_with_slips(int) {
    store_operands<e4m3>();
    if (made != slip::no_proxy_fence) fence_proxy_async();
    block_sync();
    tile_of_d d;
    start_d(d);
    uint32_t a[4][4];
    load_a<e4m3>(a);
    if (made != slip::no_fence) wgmma_fence();
    const bool other = made == slip::other_operands_in_a_warp && warp_index() == 1;
    wgmma_registers<e4m3, N>(d, a[0], matrix_descriptor_by_bytes<128>(B_TILE + other * 32, 0, 1024), false);
    memset(a, 0xff, sizeof a);
    wgmma_commit();
    if (made == slip::stage_overwritten_before_the_wait && thread_index() == 77) store_shared(B_TILE + 1024, words4{});
    wgmma_wait<0>(d);
    judge<N>(d, 32, false);
}

void misuse_of_registers() {
    const auto shows = [](const char* kind, slip slipped) {
        made = slipped;
        return is_faulted(kind, multiply_from_registers_with_slips, WARPGROUP, BYTES);
    };
    made = slip::none;
    expect(runs(multiply_from_registers_with_slips, WARPGROUP, 1, BYTES) && all_ones(), "A in registers is taken when the product is issued");
    expect(shows("wgmma", slip::no_fence), "it needs a wgmma_fence");
    expect(shows("proxy", slip::no_proxy_fence), "... and what threads have written to B their fence_proxy_async");
    expect(shows("warpgroup", slip::other_operands_in_a_warp), "the four warps bring the same B");
    expect(shows("race", slip::stage_overwritten_before_the_wait), "overwriting B before the wait is a race");
}

void misuse_of_any_element() {
    expect(is_faulted("misaligned", [](int) { matrix_descriptor<64>(A_TILE + 8, 0, 1024); }), "an operand starts at a multiple of 16 bytes");
    expect(is_faulted("warpgroup", [](int) { wgmma_fence(); }, 96), "three warps are no warpgroup");
    for (const int capability : {80, 100, 120}) {
        kgen_emulator_device(capability);
        expect(is_faulted("warpgroup", [](int) { wgmma_fence(); }, WARPGROUP), "a device that is not of compute capability 9.0 has no wgmma");
    }
    kgen_emulator_device(90);
}

// Two groups at a time, each with a D of its own.
void groups() {
    expect(runs([](int) {
               store_operands();
               make_visible();
               tile_of_d first, second;
               start_d(first);
               start_d(second);
               wgmma_fence();
               multiply_rows<bf16, N, DEPTH>(first, true);
               wgmma_commit();
               multiply_rows<bf16, N, DEPTH>(second, true);
               wgmma_commit();
               wgmma_wait<1>(first);
               judge<N>(first, DEPTH, true);
               hold(second);
               const bool in_flight = second[0][0] != second[0][0];
               wgmma_wait<0>(first);
               const bool unheld = second[0][0] != second[0][0];
               if (!in_flight || !unheld) store_global(output + thread_index(), 0.0f);
               wgmma_fence();
               hold(second);
               multiply_rows<bf16, N, DEPTH>(second, true);
               wgmma_commit();
               wgmma_fence();
               multiply_rows<bf16, N, DEPTH>(second, true);
               wgmma_commit();
               wgmma_wait<0>(second);
               if (first[0][0] == first[0][0] && output[thread_index()] == 1) judge<N>(second, DEPTH, true, 3);
           }, WARPGROUP, 1, BYTES) && all_ones(),
           "a wait leaves the last groups unfinished; a D is NaN until a wait or hold names it behind its wait; groups in a row add to one D");
    expect(is_faulted("never waited for", [](int) {
               store_operands();
               make_visible();
               tile_of_d first, second;
               wgmma_fence();
               multiply_rows<bf16, N, DEPTH>(first, false);
               multiply_rows<bf16, N, DEPTH>(second, false);
               wgmma_commit();
               wgmma_wait<0>(first);
           }, WARPGROUP, BYTES),
           "a D that no wait or hold names is reported");
}

// A fifth warp brings B by TMA, again and again to where threads have written it; the warpgroup adds A B to D each time.
constexpr uint32_t FULL = emulator::SHARED_BASE + BYTES - 64, EMPTY = FULL + 8;
constexpr uint32_t STEPS = 4;
tensor_map map;
bool whole_warp_waits, producer_waits, releases_early;

void pipeline(int) {
    if (thread_index() == 0) {
        mbarrier_init(FULL, 1);
        mbarrier_init(EMPTY, 4);
        fence_mbarrier_init();
    }
    if (thread_index() < WARPGROUP) store_operands();
    make_visible();
    if (warp_index() == 4) {
        if (lane_index() != 0) return;
        for (uint32_t step = 0; step < STEPS; ++step) {
            if (producer_waits) mbarrier_wait(EMPTY, (step + 1) % 2);
            mbarrier_arrive_expect_tx(FULL, N * DEPTH * 2);
            tma_load(B_TILE, map, FULL, 0, 0);
        }
        return;
    }
    tile_of_d d;
    start_d(d);
    for (uint32_t step = 0; step < STEPS; ++step) {
        if (whole_warp_waits || lane_index() == 3) mbarrier_wait(FULL, step % 2);
        wgmma_fence();
        multiply_rows<bf16, N, DEPTH>(d, true);
        wgmma_commit();
        if (releases_early && lane_index() == 0) mbarrier_arrive(EMPTY);
        wgmma_wait<0>(d);
        if (!releases_early && lane_index() == 0) mbarrier_arrive(EMPTY);
    }
    judge<N>(d, DEPTH, true, STEPS);
}

void order() {
    for (uint32_t row = 0; row < 16; ++row) {
        for (uint32_t column = 0; column < 64; ++column) input[row * 64 + column] = static_cast<uint16_t>(pack<bf16>(element_b(column, row), 0));
    }
    const tensor_view view = {input, 2, 2, {64, 16}, {0, 128}, {64, 16}, tma_swizzle::span_128};
    expect(make_tensor_map(map, view, "words", "input") == KGEN_SUCCESS, "a map of B");
    whole_warp_waits = producer_waits = true;
    bool right = true;
    for (uint64_t seed = 0; seed < 20; ++seed) right = right && runs(pipeline, WARPGROUP + 32, seed, BYTES) && all_ones();
    expect(right, "what TMA has brought needs no fence, and one lane of each warp releases it behind the wait, without a warp_sync");
    releases_early = true;
    expect(is_faulted("race", pipeline, WARPGROUP + 32, BYTES), "releasing it before the wait is a race");
    releases_early = producer_waits = false;
    expect(is_faulted("race", pipeline, WARPGROUP + 32, BYTES), "so is fetching the next before the release");
    producer_waits = true;
    whole_warp_waits = false;
    expect(is_faulted("race", pipeline, WARPGROUP + 32, BYTES), "so is a product for which one lane has waited alone");
    static bool fetched_first;
    const body fetch_beside = [](int) {
        if (thread_index() == 0) {
            mbarrier_init(FULL, 1);
            fence_mbarrier_init();
        }
        store_operands();
        make_visible();
        const auto fetch = [] {
            block_sync();
            if (thread_index() == 0) {
                mbarrier_arrive_expect_tx(FULL, N * DEPTH * 2);
                tma_load(B_TILE, map, FULL, 0, 0);
            }
            block_sync();
        };
        if (fetched_first) fetch();
        tile_of_d d;
        wgmma_fence();
        multiply_rows<bf16, N, DEPTH>(d, false);
        wgmma_commit();
        if (!fetched_first) fetch();
        wgmma_wait<0>(d);
        mbarrier_wait(FULL, 0);
    };
    fetched_first = true;
    expect(is_faulted("race", fetch_beside, WARPGROUP, BYTES), "so is one for which nobody has");
    fetched_first = false;
    expect(is_faulted("race", fetch_beside, WARPGROUP, BYTES), "fetching over what an unfinished product reads is a race, behind a barrier too");
}

template <int CONSUMER, int PRODUCER>
void share_registers(int) {
    if (warp_index() / 4 == 2) {
        release_registers<PRODUCER>();
    } else {
        claim_registers<CONSUMER>();
    }
}

void registers() {
    expect(runs(share_registers<240, 24>, 384), "two warpgroups take what a third gives up");
    expect(is_faulted("warpgroup", share_registers<240, 40>, 384), "claiming more registers than there are is reported");
    expect(is_faulted("warpgroup", [](int) {
               release_registers<40>();
               claim_registers<24>();
           }, WARPGROUP),
           "claiming fewer than the warpgroup has is reported");
    expect(is_faulted("warpgroup", [](int) {
               if (warp_index() != 2) release_registers<40>();
           }, WARPGROUP),
           "all four warps come to release_registers");
    kgen_emulator_device(89);
    expect(is_faulted("warpgroup", [](int) { release_registers<40>(); }, WARPGROUP), "devices before compute capability 9.0 do not pass on registers");
    kgen_emulator_device(90);
}

// Element `column` of row `row` of matrix `matrix`, and where its row lies: in a tile of 32 rows of 32 bytes, not in their order.
uint32_t element_of(uint32_t matrix, uint32_t row, uint32_t column) { return matrix * 1000 + row * 10 + column; }
uint32_t row_place(uint32_t matrix, uint32_t row) { return emulator::SHARED_BASE + (row * 4 + (matrix ^ row % 4)) * 32; }

// What the lane has of the four matrices, or of the four transposed ones.
void load_fragment(uint32_t (&fragment)[4], bool transposed) {
    const uint32_t row = lane_index() / 4, column = lane_index() % 4 * 2;
    for (uint32_t i = 0; i < 4; ++i) {
        fragment[i] = transposed ? element_of(i, column, row) | element_of(i, column + 1, row) << 16 : element_of(i, row, column) | element_of(i, row, column + 1) << 16;
    }
}

uint32_t place_of_lane() { return row_place(lane_index() / 8, lane_index() % 8); }

template <bool TRANSPOSED>
void store_matrices(int) {
    uint32_t fragment[4], plain[4], transposed[4];
    load_fragment(fragment, TRANSPOSED);
    if (TRANSPOSED) {
        stmatrix_x4_transposed(place_of_lane(), fragment);
    } else {
        stmatrix_x4(place_of_lane(), fragment);
    }
    warp_sync();
    bool right = true;
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
        const words4 row = load_shared(row_place(matrix, lane_index() % 8));
        const uint32_t words[4] = {row.x, row.y, row.z, row.w};
        for (uint32_t i = 0; i < 8; ++i) right = right && (words[i / 2] >> i % 2 * 16 & 0xffff) == element_of(matrix, lane_index() % 8, i);
    }
    ldmatrix_x4(plain, place_of_lane());
    ldmatrix_x4_transposed(transposed, place_of_lane());
    load_fragment(fragment, false);
    right = right && memcmp(plain, fragment, sizeof plain) == 0;
    load_fragment(fragment, true);
    right = right && memcmp(transposed, fragment, sizeof transposed) == 0;
    store_global(output + lane_index(), right ? 1.0f : 0.0f);
}

// Matrices are transposed where they lie, and read by another warp.
bool others_wait;
void transpose_in_place(int) {
    uint32_t fragment[4];
    if (warp_index() == 0) {
        store_shared(place_of_lane(), words4{lane_index(), 0, 0, 0});
        warp_sync();
        ldmatrix_x4(fragment, place_of_lane());
        stmatrix_x4_transposed(place_of_lane(), fragment);
    }
    if (others_wait) block_sync();
    if (warp_index() == 1) ldmatrix_x4_transposed(fragment, place_of_lane());
    if (!others_wait) block_sync();
    store_global(output + thread_index(), fragment[0] == (lane_index() % 4 == 0 ? lane_index() / 4 : 0) ? 1.0f : 0.0f);
}

// B is what stmatrix has written: 16 rows of 32 bytes.
bool proxy_is_told;
void multiply_stored_matrices(int) {
    uint32_t fragment[4];
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t column = i / 2 * 8 + lane_index() / 4, k = (i % 2 * 4 + lane_index() % 4) * 4;
        fragment[i] = word_of<e4m3>([](uint32_t row, uint32_t first) { return element_b(first, row); }, column, k);
    }
    const uint32_t row = lane_index() / 16 * 8 + lane_index() % 8, half = lane_index() / 8 % 2;
    if (warp_index() == 2) stmatrix_x4(B_TILE + swizzled<16>(row, half), fragment);
    if (proxy_is_told) fence_proxy_async();
    block_sync();
    tile_of_d d;
    uint32_t a[1][4];
    load_a<e4m3>(a);
    wgmma_fence();
    wgmma_registers<e4m3, N>(d, a[0], matrix_descriptor_by_bytes<32>(B_TILE, 0, 256), false);
    wgmma_commit();
    wgmma_wait<0>(d);
    judge<N>(d, 32, false);
}

// Operands of a panel width: every address in shared memory, the next ones there, panels of few rows and of many.
template <int ROW_BYTES>
bool descriptors_are_alike() {
    bool alike = true;
    for (uint32_t address = A_TILE; address < A_TILE + BYTES; address += 16) {
        for (const uint32_t leading : {16u, 128u * ROW_BYTES, 256u * ROW_BYTES}) {
            const uint32_t stride = 8 * ROW_BYTES;
            const uint64_t here = matrix_descriptor_by_bytes<ROW_BYTES>(address, leading, stride);
            alike = alike && kgen_on_gpu::matrix_descriptor_by_bytes<ROW_BYTES>(address, leading, stride) == here;
            for (const uint32_t bytes : {0u, 32u, 2048u, A_TILE + BYTES - address}) {
                const uint64_t there = matrix_descriptor_by_bytes<ROW_BYTES>(address + bytes, leading, stride);
                alike = alike && advance(here, bytes) == there && kgen_on_gpu::advance(here, bytes) == there;
            }
        }
    }
    return alike;
}

// The emulator decodes what its own header encodes, so a GPU's must not encode anything else.
void descriptors() {
    expect(runs([](int) {
               if (lane_index() != 0) return;
               store_global(output, descriptors_are_alike<128>() && descriptors_are_alike<64>() && descriptors_are_alike<32>() ? 1.0f : 0.0f);
           }) && all_ones(1),
           "both headers encode operands alike, and an operand some bytes further as one that starts there");
}

// V: KEYS rows of COLUMNS bytes, of which the last 16 are padding.
constexpr uint32_t KEYS = 160, COLUMNS = 64, TRANSPOSERS = 3;
using rows_of_keys = byte_tile<KEYS, COLUMNS>;
using rows_of_columns = byte_tile<COLUMNS - 16, KEYS>;
uint32_t byte_of_v(uint32_t key, uint32_t column) { return (key * 37 + column * 11 + key * column) % 255 + 1; }

// Where the keys and the columns of each 16 go.
constexpr uint32_t KEY_AT[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
constexpr uint32_t COLUMN_AT[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};

// Calls `use` with the address, the row and the first column of every 16 bytes of a tile, shared out to the block's threads.
template <class Tile, class Use>
void each_chunk(uint32_t tile, Use use) {
    constexpr uint32_t chunks = Tile::columns / 8;
    for (uint32_t i = thread_index(); i < Tile::rows * chunks; i += TRANSPOSERS * 32) {
        use(tile + chunk_offset<Tile>(i / chunks, static_cast<int>(i % chunks * 8)), i / chunks, i % chunks * 16);
    }
}

uint32_t first_key;
void transpose_v(int) {
    each_chunk<rows_of_keys>(A_TILE, [](uint32_t address, uint32_t key, uint32_t column) {
        uint32_t words[4] = {};
        for (uint32_t i = 0; i < 16; ++i) words[i / 4] |= byte_of_v(key, column + i) << i % 4 * 8;
        store_shared(address, words4{words[0], words[1], words[2], words[3]});
    });
    block_sync();
    transpose_bytes<rows_of_keys, rows_of_columns, TRANSPOSERS, 2>(A_TILE, B_TILE, static_cast<int>(warp_index()), static_cast<int>(first_key));
    block_sync();
    bool right = true;
    each_chunk<rows_of_columns>(B_TILE, [&](uint32_t address, uint32_t row, uint32_t start) {
        const words4 value = load_shared(address);
        const uint32_t words[4] = {value.x, value.y, value.z, value.w};
        for (uint32_t i = 0; i < 16; ++i) {
            const uint32_t key = start + KEY_AT[i], column = row / 16 * 16 + COLUMN_AT[row % 16];
            right = right && (words[i / 4] >> i % 4 * 8 & 0xff) == (key < first_key ? 0 : byte_of_v(key, column));
        }
    });
    store_global(output + thread_index(), right ? 1.0f : 0.0f);
}

void transposed_bytes() {
    first_key = 0;
    expect(runs(transpose_v, TRANSPOSERS * 32, 1, BYTES) && all_ones(TRANSPOSERS * 32),
           "transpose_bytes has the even ones of 16 columns before the odd ones, and of 16 keys four side by side as P has them");
    bool right = true;
    for (first_key = 1; first_key <= KEYS; first_key += first_key % 16 == 1 ? 15 : 1) {
        right = right && runs(transpose_v, TRANSPOSERS * 32, 1, BYTES) && all_ones(TRANSPOSERS * 32);
    }
    expect(right, "... and zeros for all keys before the first, and for no other");
}

// Each lane of a quad writes its four columns of a row, which holds the numbers from 1 on.
template <bool VECTOR, int SHIFT>
void store_row(int) {
    const uint32_t first = lane_index() * 4 + 1;
    store_four(reinterpret_cast<uint16_t*>(output) + SHIFT + lane_index() * 4, first | (first + 1) << 16, (first + 2) | (first + 3) << 16, VECTOR);
}

bool is_row(uint32_t shift) {
    uint16_t row[128];
    memcpy(row, reinterpret_cast<const char*>(output) + shift * 2, sizeof row);
    bool right = true;
    for (uint32_t i = 0; i < 128; ++i) right = right && row[i] == i + 1;
    return right;
}

void stored_rows() {
    expect(runs(store_row<true, 4>) && is_row(4), "store_four writes four columns side by side");
    expect(runs(store_row<false, 1>) && is_row(1), "... one after the other where they do not start at a multiple of 8 bytes");
    expect(is_faulted("misaligned", store_row<true, 2>), "... and not at once there");
}

void stored_matrices() {
    expect(runs(store_matrices<false>) && all_ones(32), "stmatrix writes what ldmatrix reads, to the rows that the lanes name");
    expect(runs(store_matrices<true>) && all_ones(32), "stmatrix of transposed matrices is the opposite of the transposing ldmatrix");
    others_wait = true;
    expect(runs(transpose_in_place, 64) && all_ones(64), "what a warp has read with ldmatrix, stmatrix may overwrite; other warps see it behind a barrier");
    others_wait = false;
    expect(is_faulted("race", transpose_in_place, 64), "... and without one it is a race");
    expect(runs([](int) {
               store_shared(shared_base() + lane_index() * 16, words4{});
               warp_sync();
               const words4 value = load_shared(shared_base() + (lane_index() ^ 1) * 16);
               const uint32_t fragment[4] = {value.x, value.y, value.z, value.w};
               stmatrix_x4(shared_base() + lane_index() * 16, fragment);
           }),
           "what a lane has loaded before it, stmatrix may overwrite: all lanes meet in it");
    expect(is_faulted("race", [](int) {
               uint32_t fragment[4] = {};
               stmatrix_x4(place_of_lane(), fragment);
               ldmatrix_x4(fragment, place_of_lane());
           }),
           "the warp itself sees it behind a warp_sync");
    expect(is_faulted("race", [](int) {
               const uint32_t fragment[4] = {};
               stmatrix_x4(shared_base() + lane_index() / 2 * 16, fragment);
           }),
           "two rows in one place are a race");
    expect(is_faulted("misaligned", [](int) {
               const uint32_t fragment[4] = {};
               stmatrix_x4(shared_base() + lane_index() * 16 + 8, fragment);
           }),
           "a row starts at a multiple of 16 bytes");
    expect(is_faulted("out of bounds", [](int) {
               const uint32_t fragment[4] = {};
               stmatrix_x4_transposed(shared_base() + SHARED_BYTES - 256 + lane_index() * 16, fragment);
           }),
           "rows lie in shared memory");
    proxy_is_told = true;
    expect(runs(multiply_stored_matrices, WARPGROUP, 1, BYTES) && all_ones(), "a product takes what stmatrix has written");
    proxy_is_told = false;
    expect(is_faulted("proxy", multiply_stored_matrices, WARPGROUP, BYTES), "... behind a fence_proxy_async");
}

}  // namespace

int main() {
    kgen_emulator_device(90);
    products();
    sums_of_fp8();
    misuse<bf16>();
    misuse<e4m3>();
    misuse_of_registers();
    misuse_of_any_element();
    groups();
    order();
    registers();
    stored_matrices();
    descriptors();
    transposed_bytes();
    stored_rows();
    printf("%d false\n", failures);
    return failures == 0 ? 0 : 1;
}
