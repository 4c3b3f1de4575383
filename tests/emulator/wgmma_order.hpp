// Part of wgmma_primitives.cpp: groups of products, their order relative to TMA, and register reallocation.
#pragma once

// Two groups in flight, each with its own D.
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
           "a wait leaves the newest groups pending; D is NaN until a wait or hold names it; consecutive groups add to one D");
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
           "a D that is not passed to a wait or hold is reported");
}

// A fifth warp loads B by TMA repeatedly, into memory that threads wrote first; the warpgroup adds A B to D each
// time.
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
    expect(right, "data from TMA needs no fence, and one lane per warp may release it after the wait without a warp_sync");
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
    expect(runs(share_registers<240, 24>, 384), "two warpgroups may claim registers that a third releases");
    expect(is_faulted("warpgroup", share_registers<240, 40>, 384), "claiming more registers than there are is reported");
    expect(is_faulted("warpgroup", [](int) {
               release_registers<40>();
               claim_registers<24>();
           }, WARPGROUP),
           "claiming fewer registers than the warpgroup has is reported");
    expect(is_faulted("warpgroup", [](int) {
               if (warp_index() != 2) release_registers<40>();
           }, WARPGROUP),
           "release_registers in only some of the four warps is reported");
    kgen_emulator_device(89);
    expect(is_faulted("warpgroup", [](int) { release_registers<40>(); }, WARPGROUP), "devices before compute capability 9.0 do not pass on registers");
    kgen_emulator_device(90);
}
