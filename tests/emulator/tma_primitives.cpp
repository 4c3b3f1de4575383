// Tests of mbarriers and TMA copies on the emulator: their semantics, and the reports for kernels that misuse them.
// Exit status 1 if a statement is false. tests/faults compiles it together with the runtime.

#include <string.h>

#include "kgen/global.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma.cuh"
#include "statements.hpp"

namespace {

constexpr uint32_t BARRIERS = emulator::SHARED_BASE + SHARED_BYTES - 64;
constexpr uint32_t FULL = BARRIERS, EMPTY = BARRIERS + 8, OTHER = BARRIERS + 16;
constexpr uint32_t TILE = emulator::SHARED_BASE, NEXT_TILE = TILE + 1024;
constexpr uint32_t TILE_BYTES = 1024;

tensor_map map;  // of `input` (element i is i): 16 rows of 64 columns, in boxes of 8 rows

tensor_view view_of_input(uint32_t width, tma_swizzle swizzle) {
    return {input, 2, 2, {64, 16}, {0, 128}, {width, 8}, swizzle};
}

void use_map(uint32_t width, tma_swizzle swizzle) {
    if (make_tensor_map(map, view_of_input(width, swizzle), "words", "input") != KGEN_SUCCESS) expect(false, kgen_last_error());
}

void make_barriers(uint32_t empty_arrivals = 1) {
    if (thread_index() == 0) {
        mbarrier_init(FULL, 1);
        mbarrier_init(EMPTY, empty_arrivals);
        mbarrier_init(OTHER, 1);
        fence_mbarrier_init();
    }
    block_sync();
}

void fetch(uint32_t tile, uint32_t barrier, int row = 0) {
    if (thread_index() != 0) return;
    mbarrier_arrive_expect_tx(barrier, TILE_BYTES);
    tma_load(tile, map, barrier, 0, row);
}

uint16_t element_at(uint32_t address) {
    const words4 chunk = load_shared(address & ~15u);
    const uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    return static_cast<uint16_t>(words[address % 16 / 4] >> address % 4 * 8);
}

bool all_ones(int count = 32) {
    bool all = true;
    for (int i = 0; i < count; ++i) all = all && output[i] == 1.0f;
    return all;
}

template <int WIDTH, tma_swizzle SWIZZLE>
bool box_looks_like_a_panel() {
    use_map(WIDTH, SWIZZLE);
    return runs([](int) {
        make_barriers();
        if (thread_index() == 0) {
            mbarrier_arrive_expect_tx(FULL, WIDTH * 2 * 8);
            tma_load(TILE, map, FULL, 0, 3);
        }
        mbarrier_wait(FULL, 0);
        bool right = true;
        for (uint32_t row = 0; row < 8; ++row) {
            for (uint32_t column = 0; column < WIDTH; ++column) {
                const uint32_t plain = row * WIDTH * 2 + column / 8 * 16;
                const uint32_t offset = SWIZZLE == tma_swizzle::none ? plain : swizzled<WIDTH>(row, column / 8);
                right = right && element_at(TILE + offset + column % 8 * 2) == (row + 3) * 64 + column;
            }
        }
        store_global(output + lane_index(), right ? 1.0f : 0.0f);
    }) && all_ones();
}

void boxes() {
    expect(box_looks_like_a_panel<64, tma_swizzle::span_128>(), "a box of 64 columns with 128-byte swizzle is a panel of kgen/tile.cuh");
    expect(box_looks_like_a_panel<32, tma_swizzle::span_64>(), "a box of 32 columns with 64-byte swizzle is a panel of kgen/tile.cuh");
    expect(box_looks_like_a_panel<16, tma_swizzle::span_32>(), "a box of 16 columns with 32-byte swizzle is a panel of kgen/tile.cuh");
    expect(box_looks_like_a_panel<32, tma_swizzle::none>(), "a box without swizzle is row-major");

    use_map(64, tma_swizzle::span_128);
    expect(runs([](int) {
               make_barriers();
               fetch(TILE + 128, FULL);
               mbarrier_wait(FULL, 0);
               bool right = true;
               for (uint32_t row = 0; row < 8; ++row) {
                   const uint32_t line = row + 1;  // of 128 bytes, counted from a multiple of 1024
                   for (uint32_t chunk = 0; chunk < 8; ++chunk) right = right && element_at(TILE + line * 128 + (chunk ^ line % 8) * 16) == row * 64 + chunk * 8;
               }
               store_global(output + lane_index(), right ? 1.0f : 0.0f);
           }) && all_ones(),
           "the swizzle is a function of the address: a tile at another offset has another pattern");

    expect(runs([](int) {
               make_barriers();
               if (thread_index() == 0) {
                   mbarrier_arrive_expect_tx(FULL, 2 * TILE_BYTES);
                   tma_load(TILE, map, FULL, 56, 12);
                   tma_load(NEXT_TILE, map, FULL, -8, -1);
               }
               mbarrier_wait(FULL, 0);
               bool right = true;
               for (uint32_t row = 0; row < 8; ++row) {
                   for (uint32_t column = 0; column < 64; ++column) {
                       const uint32_t offset = swizzled<64>(row, column / 8) + column % 8 * 2;
                       const bool inside = column < 8 && row < 4;
                       right = right && element_at(TILE + offset) == (inside ? (row + 12) * 64 + column + 56 : 0);
                       const bool inside_next = column >= 8 && row >= 1;
                       right = right && element_at(NEXT_TILE + offset) == (inside_next ? (row - 1) * 64 + column - 8 : 0);
                   }
               }
               store_global(output + lane_index(), right ? 1.0f : 0.0f);
           }) && all_ones(),
           "elements outside the tensor, on any side, are zeros and count as bytes");

    // Extents 8, 4, 2, 4, 4; the strides of the outer dimensions are not in ascending order.
    const tensor_view five = {input, 2, 5, {8, 4, 2, 4, 4}, {0, 128, 16, 32, 512}, {8, 2, 2, 1, 2}, tma_swizzle::none};
    const tensor_view three = {input, 2, 3, {8, 16, 8}, {0, 128, 16}, {8, 8, 2}, tma_swizzle::none};
    const tensor_view four = {input, 2, 4, {8, 4, 4, 8}, {0, 512, 128, 16}, {8, 2, 2, 2}, tma_swizzle::none};
    static tensor_map of_five, of_four, of_three;
    expect(make_tensor_map(of_five, five, "words", "input") == KGEN_SUCCESS && make_tensor_map(of_four, four, "words", "input") == KGEN_SUCCESS &&
               make_tensor_map(of_three, three, "words", "input") == KGEN_SUCCESS && runs([](int) {
                   make_barriers();
                   if (thread_index() == 0) {
                       tma_prefetch_map(of_five);
                       mbarrier_arrive_expect_tx(FULL, 16 * 8 + 16 * 8 + 16 * 16);
                       tma_load(TILE, of_five, FULL, 0, 1, 0, 3, 2);
                       tma_load(TILE + 128, of_four, FULL, 0, 2, 1, 5);
                       tma_load(TILE + 256, of_three, FULL, 0, 4, 6);
                   }
                   mbarrier_wait(FULL, 0);
                   bool right = true;
                   for (uint32_t row = 0; row < 8; ++row) {
                       const uint32_t a = row % 2, b = row / 2 % 2, c = row / 4;
                       right = right && element_at(TILE + row * 16) == ((1 + a) * 128 + b * 16 + 3 * 32 + (2 + c) * 512) / 2;
                       right = right && element_at(TILE + 128 + row * 16) == ((2 + a) * 512 + (1 + b) * 128 + (5 + c) * 16) / 2;
                       right = right && element_at(TILE + 256 + (row + a * 8) * 16) == ((4 + row) * 128 + (6 + a) * 16) / 2;
                   }
                   store_global(output + lane_index(), right ? 1.0f : 0.0f);
               }) && all_ones(),
           "boxes have up to five dimensions, innermost first, with any strides");
}

// Requirements of TMA on tensors.
void tensors_for_tma() {
    char why[160] = "";
    const auto takes = [&](auto change) {
        tensor_view view = view_of_input(64, tma_swizzle::span_128);
        change(view);
        return tma_takes(view, why, sizeof why);
    };
    const auto says = [&](const char* words) { return strstr(why, words) != nullptr; };
    expect(takes([](tensor_view&) {}), "a row stride that is a multiple of 16 bytes is accepted");
    expect(!takes([](tensor_view& v) { v.strides[1] = 130; }) && says("the stride of dimension 1 is 130"), "another row stride is rejected, with its value in the message");
    expect(!takes([](tensor_view& v) { v.strides[1] = -128; }) && says("-128"), "a negative stride is rejected");
    expect(!takes([](tensor_view& v) { v.strides[1] = 1ll << 40; }), "strides from 2^40 bytes on are rejected");
    expect(takes([](tensor_view& v) { v.extents[1] = 1, v.strides[1] = -3; }), "the stride of a dimension of extent 1 does not matter");
    expect(!takes([](tensor_view& v) { v.base = input + 1; }) && says("multiples of 16 bytes"), "a start that is not a multiple of 16 bytes is rejected");
    expect(!takes([](tensor_view& v) { v.extents[1] = 0; }) && !takes([](tensor_view& v) { v.extents[1] = (1ull << 32) + 1; }), "extents outside 1 .. 2^32 are rejected");
    expect(!takes([](tensor_view& v) { v.box[0] = 32; }) && says("a row of the box has 64 bytes"), "a swizzled box whose row is not as wide as the span is rejected");
    kgen_emulator_device(89);
    expect(make_tensor_map(map, view_of_input(64, tma_swizzle::span_128), "words", "input") == KGEN_ERROR_LAUNCH, "a device before 9.0 has no tensor maps");
    kgen_emulator_device(90);
}

void phases() {
    expect(runs([](int) {
               make_barriers(32);
               bool right = !mbarrier_test_wait(EMPTY, 0) && mbarrier_test_wait(EMPTY, 1);
               warp_sync();
               for (uint32_t phase = 0; phase < 5; ++phase) {
                   mbarrier_arrive(EMPTY);
                   mbarrier_wait(EMPTY, phase % 2);
                   right = right && mbarrier_test_wait(EMPTY, phase % 2) && !mbarrier_test_wait(EMPTY, (phase + 1) % 2);
                   warp_sync();
               }
               store_global(output + lane_index(), right ? 1.0f : 0.0f);
           }) && all_ones(),
           "a phase completes with its last arrival; a wait takes the parity of the current or the previous phase");
    expect(runs([](int) {
               make_barriers();
               fetch(TILE, FULL);
               while (!mbarrier_test_wait(FULL, 0)) {
               }
               warp_sync();
               fetch(NEXT_TILE, FULL, 1);
               while (!mbarrier_try_wait(FULL, 1)) {
               }
               store_global(output + lane_index(), element_at(TILE) == 0 && element_at(NEXT_TILE) == 64 ? 1.0f : 0.0f);
           }) && all_ones(),
           "test_wait and try_wait return true after the bytes have arrived");

    expect(is_faulted("deadlock", [](int) {
               make_barriers();
               fetch(TILE, FULL);
               mbarrier_wait(FULL, 0);
               mbarrier_wait(FULL, 1);
           }),
           "waiting for a phase that never completes is a deadlock");
    const std::string report = kgen_emulator_report();
    expect(report.find("32 threads wait for phase 1 (parity 1) of the mbarrier at shared memory offset 4032, made by mbarrier_init (tma_primitives.cpp:") !=
                   std::string::npos &&
               report.find("1 of 1 arrivals are missing; 0 bytes are expected that no copy brings") != std::string::npos,
           "... whose report has the mbarrier, its phase, and the missing arrivals and bytes");
    expect(is_faulted("deadlock", [](int) {
               make_barriers();
               while (!mbarrier_test_wait(FULL, 0)) {
               }
           }),
           "so is polling for it");
    expect(is_faulted("deadlock", [](int) {
               make_barriers();
               if (thread_index() == 0) mbarrier_arrive_expect_tx(FULL, TILE_BYTES + 16);
               if (thread_index() == 0) tma_load(TILE, map, FULL, 0, 0);
               mbarrier_wait(FULL, 0);
           }),
           "expecting more bytes than are copied is a deadlock");
    expect(is_faulted("deadlock", [](int) {
               make_barriers();
               if (thread_index() == 0) mbarrier_arrive_expect_tx(FULL, TILE_BYTES / 2);
               if (thread_index() == 0) tma_load(TILE, map, FULL, 0, 0);
               mbarrier_wait(FULL, 0);
           }),
           "expecting fewer bytes than one copy transfers is a deadlock");
    expect(is_faulted("race", [](int) {
               make_barriers();
               if (thread_index() == 0) {
                   mbarrier_arrive_expect_tx(FULL, TILE_BYTES);
                   tma_load(TILE, map, FULL, 0, 0);
                   tma_load(NEXT_TILE, map, FULL, 0, 8);
               }
               mbarrier_wait(FULL, 0);
               load_shared(TILE);
               load_shared(NEXT_TILE);
           }),
           "expecting the bytes of one of two copies completes the phase too early");
    expect(is_faulted("mbarrier", [](int) {
               make_barriers();
               if (thread_index() < 2) mbarrier_arrive_expect_tx(FULL, 16);
           }),
           "an excess arrival in a phase is reported");
    expect(is_faulted("mbarrier", [](int) { mbarrier_wait(FULL, 0); }), "waiting where no mbarrier is, is reported");
    expect(is_faulted("mbarrier", [](int) {
               make_barriers();
               if (thread_index() == 0) store_shared(FULL, 0u);
           }),
           "writing over an mbarrier is reported");
}

}  // namespace

#include "tma_order.hpp"
#include "schedules.hpp"
#include "tma_stores.hpp"

int main() {
    kgen_emulator_device(90);
    for (uint16_t i = 0; i < 1024; ++i) input[i] = i;
    boxes();
    tensors_for_tma();
    phases();
    order_of_copies();
    order_of_threads();
    orders();
    stores();
    order_of_stores();
    printf("%d false\n", failures);
    return failures == 0 ? 0 : 1;
}
