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

// Steps of A as a lane holds them.
template <class Element, int STEPS>
void load_a(uint32_t (&a)[STEPS][4]) {
    for (uint32_t step = 0; step < STEPS; ++step) {
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t row = row_of_d(i % 2 * 2), k = step * 16 + i / 2 * 8 + lane_index() % 4 * 2;
            a[step][i] = pack<Element>(element_a(row, k), element_a(row, k + 1));
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

// D (64 x 16) += A B, A 64 x 64, with one of many mistakes.
constexpr int N = 16, DEPTH = 64;
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

void store_operands() {
    store_tile<bf16, shared_tile<64, DEPTH>>(A_TILE, element_a);
    store_tile<bf16, shared_tile<N, DEPTH>>(B_TILE, [](uint32_t row, uint32_t column) { return element_b(column, row); });
}

void multiply_with_slips(int) {
    store_operands();
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
        for (uint32_t step = 0; step < 2; ++step) wgmma<bf16, N>(d, advance(a, step * 32), matrix_descriptor<64>(B_TILE, 0, 1024), true);
    } else if (made == slip::other_operands_in_a_warp || made == slip::other_operands_in_a_lane) {
        const bool other = made == slip::other_operands_in_a_warp ? warp_index() == 1 : lane_index() == 1;
        wgmma<bf16, N>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE + other * 32, 0, 1024), true);
    } else {
        multiply_rows<bf16, N, DEPTH>(d, true);
    }
    if (made == slip::another_shape_for_d) wgmma<bf16, 8, 1>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE, 0, 1024), true);
    if (made != slip::no_commit) wgmma_commit();
    if (made == slip::no_wait) return;
    if (made == slip::d_is_written_too_early && thread_index() == 5) d[1][2] = 0;
    if (made == slip::d_is_read_too_early) judge<N>(d, DEPTH, true);
    if (made == slip::stage_overwritten_behind_a_barrier_before_the_wait) block_sync();
    if ((made == slip::stage_overwritten_before_the_wait || made == slip::stage_overwritten_behind_a_barrier_before_the_wait) && thread_index() == 77) {
        store_shared(B_TILE + 1024, words4{});
    }
    wgmma_wait<0>(d);
    if (made == slip::d_is_read_too_early) return;
    judge<N>(d, DEPTH, true);
    if (made == slip::a_product_less_in_a_warp) {
        wgmma_fence();
        if (warp_index() != 3) wgmma<bf16, N>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE, 0, 1024), true);
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
    wgmma<bf16, N>(d, matrix_descriptor<64>(A_TILE, 0, 1024), matrix_descriptor<64>(B_TILE, 0, 1024), true);
    wgmma_commit();
    wgmma_wait<0>(d);
}

bool shows_as(const char* kind, slip slipped) {
    made = slipped;
    return is_faulted(kind, multiply_with_slips, WARPGROUP, BYTES);
}

bool shows_in_numbers(slip slipped) {
    made = slipped;
    return runs(multiply_with_slips, WARPGROUP, 1, BYTES) && !all_ones();
}

void misuse() {
    made = slip::none;
    expect(runs(multiply_with_slips, WARPGROUP, 1, BYTES) && all_ones(), "operands that threads have written, D that they change between products, an operand overwritten");
    expect(shows_as("wgmma", slip::no_fence), "a product needs a wgmma_fence");
    expect(shows_as("wgmma", slip::no_fence_behind_a_wait), "... and another behind each wgmma_wait");
    expect(shows_as("wgmma", slip::fence_before_d_is_written), "... behind what is written to D");
    expect(shows_as("wgmma", slip::no_commit), "a wait for products that no wgmma_commit has closed is reported");
    expect(shows_as("never waited for", slip::no_wait), "products nobody waits for are reported");
    expect(shows_as("wgmma", slip::d_is_written_too_early), "writing to D before the wait is reported");
    expect(shows_in_numbers(slip::d_is_read_too_early), "reading D before the wait finds NaN");
    expect(shows_as("proxy", slip::no_proxy_fence), "a product of what threads have written needs their fence_proxy_async");
    expect(shows_as("proxy", slip::one_warp_without_proxy_fence), "... of each of them");
    expect(shows_as("race", slip::no_barrier), "... and a barrier");
    expect(shows_in_numbers(slip::wrong_swizzle), "a descriptor of another swizzle shows as wrong numbers");
    expect(shows_as("wgmma", slip::no_swizzle), "a descriptor without swizzle is reported");
    expect(shows_as("misaligned", slip::start_inside_the_pattern), "so is an operand that starts inside its swizzle's pattern");
    expect(shows_as("out of bounds", slip::beyond_shared_memory), "so is one that is not all in shared memory");
    expect(shows_as("warpgroup", slip::other_operands_in_a_warp), "the four warps bring the same operands");
    expect(shows_as("wgmma", slip::other_operands_in_a_lane), "... and all lanes of a warp");
    expect(shows_as("warpgroup", slip::a_product_less_in_a_warp), "the four warps issue the same products");
    expect(shows_as("wgmma", slip::another_shape_for_d), "products that add to the same registers have D of one shape");
    expect(shows_as("race", slip::stage_overwritten_before_the_wait), "overwriting an operand before the wait is a race");
    expect(shows_as("race", slip::stage_overwritten_behind_a_barrier_before_the_wait), "... behind a barrier too");
    expect(shows_as("race", slip::stage_overwritten_without_a_barrier), "... and behind the wait without one");
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

}  // namespace

int main() {
    kgen_emulator_device(90);
    products();
    misuse();
    groups();
    order();
    registers();
    printf("%d false\n", failures);
    return failures == 0 ? 0 : 1;
}
