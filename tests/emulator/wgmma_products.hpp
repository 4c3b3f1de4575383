// Part of wgmma_primitives.cpp: results of products, in every type and width.
#pragma once

// D (64 x N) = A (64 x DEPTH) times B (N rows of DEPTH), in steps of 32 bytes of a row through all panels.
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

// A lane's fragments of A for all steps.
template <class Element, int STEPS>
void load_a(uint32_t (&a)[STEPS][4]) {
    for (uint32_t step = 0; step < STEPS; ++step) {
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t k = (step * 8 + i / 2 * 4 + lane_index() % 4) * IN_WORD<Element>;
            a[step][i] = word_of<Element>(element_a, row_of_d(i % 2 * 2), k);
        }
    }
}

// D += A B with A in registers and B as DEPTH rows of N, by one product for all panels of 64 columns.
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

// D += A B with A in registers and B as N rows of DEPTH bytes. D is the part of `d` from tile FIRST on.
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

// Row r of A (64 x 32) contains the bytes 32 r .. 32 r + 31 (modulo 256) except NaNs; each product uses eight of its
// columns.
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

// Sums of E4M3 as measured on hardware: initial D, 32 products (the first three are given, the others are equal), and
// the resulting D.
struct fp8_sum {
    float d;
    float a[4], b[4];
    float expected;
    const char* statement;
};

constexpr fp8_sum FP8_SUMS[] = {
    {0, {16, 0.25}, {16, 0.125}, 256 + 0x1p-5f, "13 bits below the largest term's power of two are kept"},
    {0, {16, 0.125, 0, 0.125}, {16, 0.125, 0, 0.125}, 256, "lower bits are dropped, even in thirty terms"},
    {0, {-16, 0.125, 0, 0.125}, {16, 0.125, 0, 0.125}, -256, "... for any sign"},
    {0, {16, -0.375}, {16, 0.125}, 256 - 0x1p-5f, "a term is truncated toward zero, not rounded down"},
    {0, {16, 16, 0.25}, {16, 16, 0.125}, 512, "a sum with a larger power of two drops one more low bit"},
    {0, {-16, -16, -0.25}, {16, 16, 0.125}, -512, "... truncated toward zero"},
    {0, {16, 16, -0.25}, {16, 16, 0.125}, 512 - 0x1p-5f, "... but keeps it if a subtraction keeps the sum below that"},
    {0, {448, -448, 2}, {448, 448, 4}, 8, "a product's power of two is that of its factors: 1.75 * 1.75 counts as 1"},
    {0, {0x1p-9f, 0x1p-6f}, {256, 0x1p-6f}, 0.5f, "a subnormal counts as 2^-6"},
    {256, {0.25}, {0.125}, 256 + 0x1p-5f, "D is one of the terms"},
    {256, {0.125, 0.125, 0.125, 0.125}, {0.125, 0.125, 0.125, 0.125}, 256, "... which may be the largest"},
    {-0x1p-6f, {16}, {16}, 256, "... or one that is truncated"},
    {1 + 0x1p-13f + 0x1p-14f, {}, {}, 1 + 0x1p-13f, "D is truncated even if all products are 0"},
    {1 + 0x1p-13f, {1}, {1}, 2, "... and with other products"},
    {448 * 256.0f, {1}, {1}, 448 * 256.0f, "small steps of a long sum are lost"},
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
