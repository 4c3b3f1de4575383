// Part of tma_primitives.cpp: the order that makes the data of a copy or of another warp safe to use. Uses that file's
// barriers, tiles and map.
#pragma once

namespace {

// Tests which threads may access the data of a copy, and from when on.
void order_of_copies() {
    use_map(64, tma_swizzle::span_128);
    expect(is_faulted("race", [](int) {
               make_barriers();
               fetch(TILE, FULL);
               load_shared(TILE);
               mbarrier_wait(FULL, 0);
           }),
           "reading a copy's destination without a wait is a race");
    expect(is_faulted("race", [](int) {
               make_barriers();
               fetch(TILE, FULL);
               fetch(NEXT_TILE, OTHER);
               mbarrier_wait(OTHER, 0);
               load_shared(TILE);
               mbarrier_wait(FULL, 0);
           }),
           "so is reading it after a wait for another mbarrier");
    expect(is_faulted("race", [](int) {
               make_barriers();
               fetch(TILE, FULL);
               fetch(NEXT_TILE, OTHER);
               if (warp_index() == 0) {
                   mbarrier_wait(FULL, 0);
               } else {
                   mbarrier_wait(OTHER, 0);
                   load_shared(TILE);
               }
           }, 64),
           "... even if another warp has waited for the copy");
    expect(is_faulted("race", [](int) {
               make_barriers();
               fetch(TILE, FULL);
               mbarrier_wait(FULL, 0);
               load_shared(TILE);
               block_sync();
               fetch(TILE, FULL);
               mbarrier_wait(FULL, 0);
               load_shared(TILE);
               mbarrier_wait(FULL, 1);
           }),
           "a wait with the wrong parity creates no order");
    static bool sync;
    const body lone_wait = [](int) {
        make_barriers();
        fetch(TILE, FULL);
        if (lane_index() == 0) mbarrier_wait(FULL, 0);
        warp_any(true);
        if (sync) warp_sync();
        load_shared(TILE + lane_index() * 16);
    };
    sync = true;
    expect(runs(lone_wait), "after one lane's wait and a warp_sync the whole warp may read");
    sync = false;
    expect(is_faulted("race", lone_wait), "... but not after another warp-wide primitive");
    expect(is_faulted("race", [](int) {
               make_barriers();
               fetch(TILE, FULL);
               mbarrier_wait(FULL, 0);
               load_shared(TILE);
               fetch(TILE, FULL);
               mbarrier_wait(FULL, 1);
           }, 64),
           "a copy over data that another warp may still read is a race");
    expect(is_faulted("race", [](int) {
               make_barriers();
               fetch(TILE, FULL);
               fetch(TILE, OTHER);
               mbarrier_wait(FULL, 0);
               mbarrier_wait(OTHER, 0);
           }),
           "so are two concurrent copies to the same destination");

    static bool fence, by_the_writer;
    const body written_before = [](int) {
        make_barriers();
        store_shared(TILE + thread_index() * 16, words4{});
        if (fence && (by_the_writer || thread_index() == 0)) fence_proxy_async();
        block_sync();
        fetch(TILE, FULL);
        mbarrier_wait(FULL, 0);
    };
    fence = by_the_writer = true;
    expect(runs(written_before, 64), "a copy may overwrite data written by threads after their fence_proxy_async and a barrier");
    by_the_writer = false;
    expect(is_faulted("proxy", written_before, 64), "... each writer needs the fence");
    fence = false;
    expect(is_faulted("proxy", written_before, 64), "... and a barrier alone does not do");
    expect(is_faulted("race", [](int) {
               make_barriers();
               store_shared(TILE + thread_index() * 16, words4{});
               fence_proxy_async();
               fetch(TILE, FULL);
               mbarrier_wait(FULL, 0);
           }, 64),
           "... and not after the fence alone");
    expect(is_faulted("proxy", [](int) {
               if (thread_index() == 0) mbarrier_init(FULL, 1);
               block_sync();
               fetch(TILE, FULL);
               mbarrier_wait(FULL, 0);
           }),
           "a copy to an mbarrier without a fence_mbarrier_init is reported");
    expect(is_faulted("never waited for", [](int) {
               make_barriers();
               fetch(TILE, FULL);
           }),
           "a copy without a wait is reported");
    expect(is_faulted("misaligned", [](int) {
               make_barriers();
               fetch(TILE + 16, FULL);
           }),
           "a destination that is not a multiple of 128 bytes is reported");
    expect(is_faulted("out of bounds", [](int) {
               make_barriers();
               fetch(emulator::SHARED_BASE + SHARED_BYTES - 512, OTHER);
               mbarrier_wait(OTHER, 0);
           }),
           "a destination beyond shared memory is reported");
    expect(is_faulted("tma", [](int) {
               make_barriers();
               if (thread_index() == 0) tma_load(TILE, map, FULL, 0, 0, 0);
           }),
           "a copy whose number of coordinates is not that of its map's dimensions is reported");

    tensor_view longer = view_of_input(64, tma_swizzle::span_128);
    longer.extents[1] = 17;
    expect(make_tensor_map(map, longer, "words", "input") == KGEN_SUCCESS, "the driver cannot know where an allocation ends");
    expect(is_faulted("out of bounds", [](int) {
               make_barriers();
               fetch(TILE, FULL, 16);
               mbarrier_wait(FULL, 0);
           }),
           "reading past the end of the tensor's allocation is reported");
    use_map(64, tma_swizzle::span_128);
    static uint8_t gaps[1024];  // 1 for each element that belongs to the tensor: those of the first row only
    memset(gaps, 1, 64);
    kgen_emulator_reset(1);
    kgen_emulator_tensor("input", input, sizeof input, gaps, 2, 0);
    const body copy_gaps = [](int) {
        make_barriers();
        fetch(TILE, FULL);
        mbarrier_wait(FULL, 0);
    };
    expect(launch(copy_gaps, "words", 1, 32, SHARED_BYTES, 0, nullptr) == KGEN_SUCCESS, "a copy may read what lies between a tensor's rows, or in unused ones");
}

// A producer warp copies tiles into one buffer and a consumer warp reads them; the loop has no block-wide barrier.
bool consumer_syncs, consumer_is_early, producer_waits, all_lanes_arrive;

void pipeline(int) {
    make_barriers(all_lanes_arrive ? 32 : 1);
    for (uint32_t step = 0; step < 4; ++step) {
        if (warp_index() == 0) {
            if (lane_index() == 0) {
                if (producer_waits) mbarrier_wait(EMPTY, (step + 1) % 2);
                fetch(TILE, FULL, static_cast<int>(step));
            }
        } else {
            mbarrier_wait(FULL, step % 2);
            if (consumer_is_early) mbarrier_arrive(EMPTY);
            uint32_t fragment[4];
            ldmatrix_x4(fragment, TILE + lane_index() % 8 * 128);
            if (consumer_syncs) warp_sync();
            if (!consumer_is_early && (all_lanes_arrive || lane_index() == 0)) mbarrier_arrive(EMPTY);
            const uint32_t row = lane_index() / 4, expected = (step + row) * 64 + row * 8 + lane_index() % 4 * 2;
            store_global(output + step * 32 + lane_index(), (fragment[0] & 0xffff) == expected ? 1.0f : 0.0f);
        }
    }
}

void order_of_threads() {
    producer_waits = consumer_syncs = true;
    expect(runs(pipeline, 64) && all_ones(128), "a pair of mbarriers orders reuse of a buffer if one lane arrives after a warp_sync");
    all_lanes_arrive = true;
    consumer_syncs = false;
    expect(runs(pipeline, 64) && all_ones(128), "... or if all lanes of the warp arrive");
    consumer_is_early = true;
    expect(is_faulted("race", pipeline, 64), "a consumer that arrives before it has read is a race");
    consumer_is_early = all_lanes_arrive = false;
    expect(is_faulted("race", pipeline, 64), "so is one lane that arrives for its warp without a warp_sync");
    consumer_syncs = true;
    producer_waits = false;
    expect(is_faulted("race", pipeline, 64), "so is a producer that does not wait until the buffer is empty");

    use_map(64, tma_swizzle::span_128);
    expect(runs([](int) {
               make_barriers();
               fetch(TILE, FULL);
               if (warp_index() == 0) {
                   mbarrier_wait(FULL, 0);
                   barrier_arrive(1, 64);
               } else {
                   barrier_wait(1, 64);
                   load_shared(TILE);
               }
           }, 64),
           "a named barrier passes on the order of a warp's wait");

    const body hand_over = [](int) {
        make_barriers();
        if (thread_index() == 0) {
            store_shared(TILE, 7u);
            mbarrier_arrive(EMPTY);
        } else if (thread_index() >= 32) {
            mbarrier_wait(EMPTY, 0);
            store_global(output + lane_index(), load_shared(TILE).x == 7 ? 1.0f : 0.0f);
        }
    };
    expect(is_faulted("unwritten", hand_over, 64), "an mbarrier shows what was written and no more");
    const body hand_over_all = [](int) {
        make_barriers();
        if (thread_index() == 0) {
            store_shared(TILE, words4{7, 7, 7, 7});
            mbarrier_arrive(EMPTY);
        } else if (thread_index() >= 32) {
            mbarrier_wait(EMPTY, 0);
            store_global(output + lane_index(), load_shared(TILE).x == 7 ? 1.0f : 0.0f);
        }
    };
    expect(runs(hand_over_all, 64) && all_ones(), "waiting threads may read what a single lane wrote before its arrival");
    expect(is_faulted("race", [](int) {
               make_barriers();
               if (thread_index() == 0) {
                   store_shared(TILE, words4{});
                   mbarrier_arrive(EMPTY);
                   store_shared(TILE, words4{});
               } else if (thread_index() >= 32) {
                   mbarrier_wait(EMPTY, 0);
                   load_shared(TILE);
               }
           }, 64),
           "... but a write after the arrival is a race");
    expect(is_faulted("race", [](int) {
               if (lane_index() == 0) mbarrier_init(EMPTY, 1);
               warp_any(true);
               if (lane_index() == 1) mbarrier_arrive(EMPTY);
           }),
           "using an mbarrier without a barrier after its initialisation is reported");
    expect(is_faulted("mbarrier", [](int) {
               make_barriers(2);
               if (thread_index() == 0) mbarrier_arrive(EMPTY);
           }),
           "a phase with missing arrivals at the end of the block is reported");
}

}  // namespace
