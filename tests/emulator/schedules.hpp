// The part of tma_primitives.cpp about orders of threads: what priorities reveal, and what is a mistake under every
// order.
#pragma once

namespace {

// Like runs(), by priorities of which `depth` drop, after a shuffled run that measures the length of the kernel.
bool runs_by_priority(body kernel, uint32_t threads, uint64_t seed, uint32_t depth) {
    runs(kernel, threads, seed);
    kgen_emulator_reset(seed);
    kgen_emulator_tensor("input", input, sizeof input, nullptr, 2, 0);
    kgen_emulator_tensor("output", output, sizeof output, nullptr, 4, 1);
    kgen_emulator_priorities(depth);
    return launch(kernel, "words", 1, threads, SHARED_BYTES, 0, nullptr) == KGEN_SUCCESS;
}

bool lanes_look_together, polls;

void await(uint32_t barrier, uint32_t parity) {
    if (!polls) return mbarrier_wait(barrier, parity);
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

// Warp 0 fills, warp 1 only passes on: one lane of it signals that.
void pass_on(int) {
    make_barriers();
    for (uint32_t step = 0; step < 6; ++step) {
        if (warp_index() == 0) {
            if (lane_index() != 0) continue;
            await(EMPTY, (step + 1) % 2);
            mbarrier_arrive(FULL);
        } else {
            await(FULL, step % 2);
            if (lanes_look_together) warp_sync();
            if (lane_index() == 0) mbarrier_arrive(EMPTY);
        }
    }
}

void orders() {
    const auto all_run = [](body kernel) {
        bool all = true;
        for (uint64_t seed = 0; seed < 40; ++seed) all = runs_by_priority(kernel, 64, seed, static_cast<uint32_t>(seed % 4)) && all;
        return all;
    };
    lanes_look_together = true;
    expect(all_run(pass_on), "by priorities a pair of mbarriers passes a buffer to and fro");
    polls = true;
    expect(all_run(pass_on), "... and whoever polls gives way, so that the one it waits for comes to it");
    polls = lanes_look_together = false;
    expect(!all_run(pass_on), "a lane that looks after another has passed the phase on may wait forever, and under some priorities does");
    kgen_emulator_reset(1);
    launch<int>([](int) { block_sync(); }, "words", 1, 64, SHARED_BYTES, 0, nullptr);
    expect(kgen_emulator_steps() == 0, "block_sync is nothing that a schedule decides");

    expect(is_faulted("mbarrier", [](int) {
               make_barriers();
               if (lane_index() == 0) mbarrier_arrive(OTHER);
           }, 64),
           "whoever arrives must know that the phase before has ended");
    expect(runs([](int) {
               make_barriers();
               const bool second = warp_index() == 1;
               if (lane_index() != 0) return;
               if (second) mbarrier_wait(OTHER, 0);
               mbarrier_arrive(OTHER);
           }, 64),
           "... by a wait for it");
    expect(is_faulted("barrier", [](int) {
               barrier_wait(1, 64);
               if (warp_index() == 1) barrier_wait(1, 64);
           }, 96),
           "whoever comes to a named barrier must know that all who came to its last use have come");
    expect(runs([](int) {
               if (warp_index() < 2) barrier_wait(1, 64);
               if (warp_index() != 0) barrier_wait(2, 64);
               if (warp_index() != 1) barrier_wait(3, 64);
               if (warp_index() != 0) barrier_wait(1, 64);
           }, 96),
           "... also from somebody who has been there");
}

}  // namespace
