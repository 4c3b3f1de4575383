// Part of tma_primitives.cpp: schedules of threads. Errors that only some priorities expose, and errors reported under
// every schedule.
#pragma once

namespace {

// Like runs(), with priorities and `depth` priority drops, after a shuffled run that counts the kernel's steps.
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

// Warp 0 arrives at FULL, warp 1 waits for it; one lane of warp 1 arrives at EMPTY.
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
    expect(all_run(pass_on), "a pair of mbarriers alternates correctly under priorities");
    polls = true;
    expect(all_run(pass_on), "... also with polling, because a polling warp yields");
    polls = lanes_look_together = false;
    expect(!all_run(pass_on), "a lane that checks a phase after another lane has released it can deadlock, and some priorities expose it");
    kgen_emulator_reset(1);
    launch<int>([](int) { block_sync(); }, "words", 1, 64, SHARED_BYTES, 0, nullptr);
    expect(kgen_emulator_steps() == 0, "block_sync is not a step of the schedule");

    expect(is_faulted("mbarrier", [](int) {
               make_barriers();
               if (lane_index() == 0) mbarrier_arrive(OTHER);
           }, 64),
           "an arrival not ordered after the end of the previous phase is reported");
    expect(runs([](int) {
               make_barriers();
               const bool second = warp_index() == 1;
               if (lane_index() != 0) return;
               if (second) mbarrier_wait(OTHER, 0);
               mbarrier_arrive(OTHER);
           }, 64),
           "... and accepted after a wait for it");
    expect(is_faulted("barrier", [](int) {
               barrier_wait(1, 64);
               if (warp_index() == 1) barrier_wait(1, 64);
           }, 96),
           "an arrival at a named barrier not ordered after its previous use is reported");
    expect(runs([](int) {
               if (warp_index() < 2) barrier_wait(1, 64);
               if (warp_index() != 0) barrier_wait(2, 64);
               if (warp_index() != 1) barrier_wait(3, 64);
               if (warp_index() != 0) barrier_wait(1, 64);
           }, 96),
           "... and accepted if another warp passed that order on");
}

}  // namespace
