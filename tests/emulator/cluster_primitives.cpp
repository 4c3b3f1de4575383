// Tests of the cluster primitives on the emulator: their semantics, and the reports for kernels with unordered accesses
// between blocks of a cluster.
// Exit status 1 if a statement is false. tests/faults compiles it together with the runtime.

#include <string.h>

#include "kgen/cluster.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/global.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma_tile.cuh"
#include "kgen/wgmma.cuh"

KGEN_WGMMA_WIDTH(8)

#include "statements.hpp"

namespace {

constexpr uint32_t BARRIERS = emulator::SHARED_BASE + SHARED_BYTES - 64;
constexpr uint32_t FULL = BARRIERS, EMPTY = BARRIERS + 8;
constexpr uint32_t TILE = emulator::SHARED_BASE;

// Maps of `input` (element i is i): 16 rows of 64 columns.
using whole_tile = shared_tile<16, 64>;
using half_tile = shared_tile<8, 64>;
tile_maps<half_tile> halves;
tile_maps<whole_tile> wholes;

void make_maps() {
    const attention_tensor tensor = {input, 64, 16, 1, 1, 64, 0, 0};
    if (make_tile_maps(halves, tensor, "words", "input") != KGEN_SUCCESS || make_tile_maps(wholes, tensor, "words", "input") != KGEN_SUCCESS) {
        expect(false, kgen_last_error());
    }
}

// Runs a cluster of two blocks; the caller checks the output.
bool pair_runs(body kernel, uint32_t threads = 32, uint64_t seed = 1) { return runs(kernel, threads, seed, SHARED_BYTES, 2); }

bool pair_is_faulted(const char* kind, body kernel, uint32_t threads = 32) { return is_faulted(kind, kernel, threads, SHARED_BYTES, 2); }

bool report_says(const char* words) { return strstr(kgen_emulator_report(), words) != nullptr; }

// True if with every seed both blocks finish and each of their first 32 threads has written 1 to `output`.
bool pair_is_right(body kernel, uint32_t threads = 32) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        memset(output, 0, sizeof output);
        if (!pair_runs(kernel, threads, seed)) return false;
        for (int i = 0; i < 64; ++i) {
            if (output[i] != 1.0f) return false;
        }
    }
    return true;
}

void tell(bool right) { store_global(output + cluster_rank() * 32 + lane_index(), right ? 1.0f : 0.0f); }

bool leave_out_fence, leave_out_first_sync, leave_out_last_sync;  // primitives that the next kernel omits

void make_barriers(uint32_t empty_arrivals = 1) {
    if (thread_index() == 0) {
        mbarrier_init(FULL, 1);
        mbarrier_init(EMPTY, empty_arrivals);
        if (!leave_out_fence) fence_mbarrier_init();
    }
    if (leave_out_first_sync) {
        block_sync();
    } else {
        cluster_sync();
    }
}

void close() {
    if (!leave_out_last_sync) cluster_sync();
}

uint32_t other() { return cluster_rank() ^ 1; }

bool tile_is_right(int first_row = 0) {
    bool right = true;
    for (int row = 0; row < 16; ++row) {
        for (uint32_t chunk = 0; chunk < 8; ++chunk) {
            const uint32_t element = static_cast<uint32_t>(first_row + row) * 64 + chunk * 8;
            const uint32_t expected = first_row + row < 16 ? element | (element + 1) << 16 : 0;
            right = right && load_shared(TILE + swizzled<64>(static_cast<uint32_t>(row), chunk)).x == expected;
        }
    }
    return right;
}

void fetch_half(int first_row = 0) {
    if (thread_index() == 0) fetch_half_tile<whole_tile>(TILE, halves, FULL, static_cast<int>(cluster_rank()), first_row, 0, 0);
}

void ranks() {
    expect(pair_is_right([](int) { tell(cluster_rank() == block_index() % 2); }), "cluster_rank() is the block's index in its cluster");
    const body numbers = [](int) { store_global(output + block_index(), static_cast<float>(cluster_rank())); };
    kgen_emulator_reset(1);
    kgen_emulator_tensor("output", output, sizeof output, nullptr, 4, 1);
    expect(launch(numbers, "words", 6, 32, SHARED_BYTES, 0, nullptr, 3) == KGEN_SUCCESS && output[2] == 2 && output[3] == 0 && output[5] == 2,
           "consecutive blocks of the grid form a cluster");
    expect(launch_early(numbers, "words", 5, 32, SHARED_BYTES, 0, nullptr, 3) == KGEN_ERROR_LAUNCH, "a grid with an incomplete cluster is rejected");
    expect(launch(numbers, "words", 16, 32, SHARED_BYTES, 0, nullptr, 16) == KGEN_ERROR_LAUNCH, "a cluster of more than eight blocks is rejected");
    kgen_emulator_device(89);
    expect(launch(numbers, "words", 6, 32, SHARED_BYTES, 0, nullptr, 3) == KGEN_ERROR_LAUNCH, "clusters are rejected below compute capability 9.0");
    kgen_emulator_device(90);
    expect(runs([](int) {
               store_shared(TILE + thread_index() * 16, words4{});
               cluster_sync();
               load_shared(TILE + (thread_index() ^ 33) * 16);
               cluster_sync();
           }, 64),
           "without a cluster size a block is a cluster of one");
}

void syncs() {
    expect(pair_is_right([](int) {
               store_shared(TILE + thread_index() * 16, words4{7, 7, 7, 7});
               cluster_sync();
               if (thread_index() < 32) tell(load_shared(TILE + (thread_index() ^ 33) * 16).x == 7);
           }, 64),
           "cluster_sync orders the accesses of a block's warps");
    expect(pair_is_right([](int) {
               if (warp_index() == 0) tell(true);
               if (cluster_rank() == 0 && warp_index() == 1) return;
               cluster_sync();
               if (warp_index() == 0) return;
               cluster_sync();
           }, 64),
           "cluster_sync does not wait for threads that have exited");
    expect(pair_is_faulted("deadlock", [](int) {
               make_barriers();
               if (cluster_rank() == 0) mbarrier_wait(FULL, 0);
               close();
           }),
           "a cluster_sync that some threads never reach is a deadlock");
    expect(report_says("block 0, barrier interval 1") && report_says("block 1, barrier interval 1") && report_says("lanes 0-31 wait in cluster_sync") &&
               report_says("32 threads wait for phase 0"),
           "... whose report lists where every block waits");
    expect(pair_is_faulted("cluster", [](int) {
               if (thread_index() == 0) {
                   cluster_sync();
               } else {
                   cluster_sync();
               }
           }),
           "lanes of a warp in different cluster_syncs are reported");
    expect(pair_is_faulted("race", [](int) {
               if (cluster_rank() == 1) {
                   store_shared(TILE + thread_index() * 16, words4{});
                   load_shared(TILE + (thread_index() ^ 1) * 16);
               }
           }),
           "a race within one block of a cluster is reported");
    expect(report_says("blocks 0-1 of 2") && report_says("race: block 1: load_shared"), "the report names the block");
}

// Primitives called with addresses of another block.
void reach() {
    static void (*misuse)(uint32_t);
    const auto is_refused = [](void (*word)(uint32_t)) {
        misuse = word;
        return pair_is_faulted("cluster", [](int) {
            make_barriers();
            if (thread_index() < 32) misuse(shared_of(TILE, other()));
        });
    };
    expect(is_refused([](uint32_t there) { load_shared(there); }) && is_refused([](uint32_t there) { store_shared(there, 0u); }),
           "a load or store with another block's address is reported");
    expect(report_says("store_shared (cluster_primitives.cpp:") && report_says("shared memory offset 0 of block "), "... with the offset and the block");
    expect(is_refused([](uint32_t there) {
               uint32_t fragment[4];
               ldmatrix_x4(fragment, there);
           }),
           "so is ldmatrix");
    expect(is_refused([](uint32_t there) { cp_async(there, input, true); }), "so is cp_async");
    expect(is_refused([](uint32_t there) { mbarrier_wait(there + FULL - TILE, 1); }) && is_refused([](uint32_t there) { mbarrier_arrive(there + FULL - TILE); }) &&
               is_refused([](uint32_t there) { mbarrier_wait_cluster(there + FULL - TILE, 1); }) && is_refused([](uint32_t there) { mbarrier_init(there, 1); }),
           "so is any mbarrier primitive except mbarrier_arrive_at");
    expect(is_refused([](uint32_t there) { tma_load(there, halves.of_width[0], FULL, 0, 0, 0, 0); }) &&
               is_refused([](uint32_t there) { tma_load(TILE, halves.of_width[0], there + FULL - TILE, 0, 0, 0, 0); }),
           "so is a TMA load whose destination or mbarrier is in another block");
    expect(is_refused([](uint32_t there) { tma_load_multicast(there, halves.of_width[0], FULL, 3, 0, 0, 0, 0); }) &&
               is_refused([](uint32_t there) { tma_load_multicast(TILE, halves.of_width[0], there + FULL - TILE, 3, 0, 0, 0, 0); }),
           "so is a multicast load with another block's addresses");
    expect(is_refused([](uint32_t there) { tma_store(halves.of_width[0], there, 0, 0, 0, 0); }), "so is a TMA store");
    expect(is_refused([](uint32_t there) { matrix_descriptor<64>(there, 0, 1024); }), "so is a matrix descriptor");
    expect(is_refused([](uint32_t) { mbarrier_arrive_at(EMPTY); }), "mbarrier_arrive_at with an address not from shared_of is reported");
    expect(is_refused([](uint32_t there) { shared_of(there, 0); }), "shared_of of an address from shared_of is reported");
    expect(is_refused([](uint32_t) { shared_of(TILE, 2); }), "shared_of with a rank outside the cluster is reported");
    expect(is_refused([](uint32_t) { tma_load_multicast(TILE, halves.of_width[0], FULL, 5, 0, 0, 0, 0); }), "a multicast to a rank outside the cluster is reported");
    expect(pair_is_right([](int) {
               make_barriers();
               if (thread_index() == 0) mbarrier_arrive_at(shared_of(EMPTY, cluster_rank()));
               mbarrier_wait(EMPTY, 0);
               tell(true);
           }),
           "mbarrier_arrive_at works on the block's own barrier");
}

bool waits_plainly, arrives_at_both;

// Each block arrives at the other's barrier, and waits at its own.
void meet_the_other(int) {
    make_barriers(arrives_at_both ? 2 : 1);
    if (thread_index() == 0) {
        mbarrier_arrive_at(shared_of(EMPTY, other()));
        if (arrives_at_both) mbarrier_arrive(EMPTY);
    }
    if (waits_plainly) {
        mbarrier_wait(EMPTY, 0);
    } else {
        mbarrier_wait_cluster(EMPTY, 0);
    }
    tell(true);
    close();
}

void arrivals() {
    expect(pair_is_right(meet_the_other), "an arrival from another block counts");
    arrives_at_both = true;
    expect(pair_is_right(meet_the_other), "... together with the block's own arrivals");
    waits_plainly = true;
    expect(pair_is_faulted("cluster", meet_the_other), "mbarrier_wait on a phase with arrivals of other blocks is reported");
    expect(report_says("only mbarrier_wait_cluster shows what they have done"), "... with the primitive to use");
    arrives_at_both = false;
    expect(pair_is_faulted("cluster", meet_the_other), "... also without arrivals of the block itself");
    expect(pair_is_right([](int) {
               make_barriers();
               if (thread_index() == 0) mbarrier_arrive_at(shared_of(EMPTY, other()));
               mbarrier_wait_cluster(EMPTY, 0);
               warp_sync();
               if (thread_index() == 0) mbarrier_arrive(EMPTY);
               mbarrier_wait(EMPTY, 1);
               tell(true);
               close();
           }),
           "mbarrier_wait may follow on a phase with only the block's own arrivals");
    expect(pair_is_faulted("cluster", [](int) {
               make_barriers();
               if (thread_index() == 0) mbarrier_arrive_at(shared_of(EMPTY, other()));
               while (!(lane_index() % 2 == 0 ? mbarrier_test_wait(EMPTY, 0) : mbarrier_try_wait(EMPTY, 0))) {
               }
               close();
           }),
           "polling a phase with arrivals of other blocks is reported");
    waits_plainly = false;
    leave_out_fence = true;
    expect(pair_is_faulted("proxy", meet_the_other), "an arrival from another block without a fence_mbarrier_init is reported");
    leave_out_fence = false;

    leave_out_last_sync = true;
    expect(pair_is_right(meet_the_other), "a block may exit after it has waited for all arrivals of other blocks");
    const body one_way = [](int) {
        make_barriers();
        if (cluster_rank() == 1 && thread_index() == 0) mbarrier_arrive_at(shared_of(EMPTY, 0));
        tell(true);
        close();
    };
    expect(pair_is_faulted("cluster", one_way), "exiting before an arrival of another block is reported under every schedule");
    expect(report_says("cluster: block 0: mbarrier_arrive_at (cluster_primitives.cpp:") && report_says("may come when this one has ended"), "... with the arrival and the block");
    leave_out_last_sync = false;
    expect(pair_is_right(one_way), "a final cluster_sync keeps the block alive for later arrivals");
    leave_out_first_sync = true;
    bool refused = true;
    for (uint64_t seed = 0; seed < 40; ++seed) {
        refused = refused && !pair_runs(one_way, 32, seed) && (report_says("there is no mbarrier") || report_says("is used with no cluster_sync since its mbarrier_init"));
    }
    expect(refused, "an arrival without a cluster_sync after the barrier's initialisation is reported");
    leave_out_first_sync = false;
    expect(pair_is_faulted("mbarrier", [](int) {
               make_barriers();
               if (cluster_rank() == 0 && thread_index() == 0) mbarrier_arrive_expect_tx(FULL, 16);
               cluster_sync();
               if (cluster_rank() == 1 && thread_index() == 0) mbarrier_arrive_at(shared_of(FULL, 0));
               close();
           }),
           "an excess arrival from another block is reported");
}

// Consumer of a pipeline in which each block copies half of every tile: after reading it arrives at both blocks' EMPTY.
bool tells_own, tells_other, reads_late, reads_early, lanes_together, waits_for_empty, covers_writes;

void release(uint32_t lane) {
    if (tells_own && lane_index() == lane) mbarrier_arrive_at(shared_of(EMPTY, cluster_rank()));
    if (tells_other && lane_index() == lane) mbarrier_arrive_at(shared_of(EMPTY, other()));
}

// Warp 0 produces, warp 1 consumes: two tiles through one buffer per block.
void pipeline(int) {
    make_barriers(2);
    for (uint32_t step = 0; step < 2; ++step) {
        if (warp_index() == 0) {
            if (lane_index() == 0) {
                if (waits_for_empty) mbarrier_wait_cluster(EMPTY, (step + 1) % 2);
                fetch_half_tile<whole_tile>(TILE, halves, FULL, static_cast<int>(cluster_rank()), static_cast<int>(step), 0, 0);
            }
        } else {
            if (!reads_early) mbarrier_wait(FULL, step % 2);
            if (reads_late) release(0);
            const bool right = tile_is_right(static_cast<int>(step));
            if (reads_early) mbarrier_wait(FULL, step % 2);
            warp_sync();
            if (!reads_late) release(0);
            if (step == 1) tell(right);
        }
    }
    close();
}

void multicasts() {
    expect(pair_is_right([](int) {
               make_barriers();
               fetch_half();
               mbarrier_wait(FULL, 0);
               tell(tile_is_right());
               close();
           }),
           "two blocks multicast half a tile each, and both receive the whole tile");
    expect(pair_is_right([](int) {
               make_barriers();
               if (thread_index() == 0) {
                   mbarrier_arrive_expect_tx(FULL, whole_tile::bytes);
                   if (cluster_rank() == 0) tma_load_multicast(TILE, wholes.of_width[0], FULL, 3, 0, 4, 0, 0);
               }
               mbarrier_wait(FULL, 0);
               tell(tile_is_right(4));
               close();
           }),
           "one block may multicast to both, and rows outside the tensor are zeros");
    expect(pair_is_right([](int) {
               make_barriers();
               if (thread_index() == 0) tma_load_multicast(TILE, wholes.of_width[0], FULL, static_cast<uint16_t>(1 << other()), 0, 0, 0, 0);
               if (thread_index() == 0) mbarrier_arrive_expect_tx(FULL, whole_tile::bytes);
               mbarrier_wait(FULL, 0);
               tell(tile_is_right());
               close();
           }),
           "a block may copy into the other block only");
    expect(pair_is_right([](int) {
               make_barriers();
               if (warp_index() == 0) {
                   if (cluster_rank() == 0) {
                       if (lane_index() == 0) {
                           tma_load_multicast(TILE, wholes.of_width[0], FULL, 3, 0, 0, 0, 0);
                           mbarrier_arrive_at(shared_of(EMPTY, 1));
                       }
                   } else {
                       mbarrier_wait_cluster(EMPTY, 0);
                   }
                   if (lane_index() == 0) mbarrier_arrive_expect_tx(FULL, whole_tile::bytes);
               } else {
                   mbarrier_wait(FULL, 0);
                   tell(tile_is_right());
               }
               close();
           }, 64),
           "bytes may arrive before the block's expect_tx");
    expect(pair_is_faulted("deadlock", [](int) {
               make_barriers();
               if (cluster_rank() == 0) fetch_half();
               if (cluster_rank() == 1 && thread_index() == 0) mbarrier_arrive_expect_tx(FULL, whole_tile::bytes);
               mbarrier_wait(FULL, 0);
               close();
           }),
           "waiting for a tile with one half missing is a deadlock");
    expect(report_says("1024 bytes are expected that no copy brings"), "... whose report has the number of missing bytes");
    expect(pair_is_faulted("race", [](int) {
               make_barriers();
               if (cluster_rank() == 0) fetch_half();
               cluster_sync();
               if (cluster_rank() == 1) load_shared(TILE);
               cluster_sync();
               if (cluster_rank() == 1) fetch_half();
               mbarrier_wait(FULL, 0);
           }),
           "reading the destination of another block's copy without a wait is a race");
    const body unwatched = [](int) {
        make_barriers();
        if (cluster_rank() == 0) fetch_half();
        if (cluster_rank() == 1 && thread_index() == 0) mbarrier_arrive_expect_tx(FULL, half_tile::bytes);
        close();
    };
    expect(pair_is_faulted("never waited for", unwatched), "a copy into a block that exits without a wait is reported");
    leave_out_last_sync = true;
    expect(pair_is_faulted("never waited for", unwatched), "... also if the block has exited before the copy is issued");
    leave_out_last_sync = false;
    leave_out_fence = true;
    expect(pair_is_faulted("proxy", [](int) {
               make_barriers();
               fetch_half();
               mbarrier_wait(FULL, 0);
               close();
           }),
           "bytes from another block's copy without a fence_mbarrier_init are reported");
    leave_out_fence = false;

    static tile_maps<half_tile> longer;
    expect(make_tile_maps(longer, {input, 64, 24, 1, 1, 64, 0, 0}, "words", "input") == KGEN_SUCCESS && pair_is_faulted("out of bounds", [](int) {
               make_barriers();
               if (thread_index() == 0) mbarrier_arrive_expect_tx(FULL, half_tile::bytes);
               if (cluster_rank() == 0 && thread_index() == 0) tma_load_multicast(TILE, longer.of_width[0], FULL, 3, 0, 16, 0, 0);
               mbarrier_wait(FULL, 0);
               close();
           }),
           "a multicast that reads past the allocation is reported");

    const body written_before = [](int) {
        make_barriers();
        store_shared(TILE + thread_index() * 16, words4{});
        if (covers_writes) fence_proxy_async();
        if (waits_for_empty) cluster_sync();
        fetch_half();
        mbarrier_wait(FULL, 0);
        tell(tile_is_right());
        close();
    };
    covers_writes = waits_for_empty = true;
    expect(pair_is_right(written_before), "another block's copy may overwrite written data after the writer's fence_proxy_async and a cluster_sync");
    covers_writes = false;
    expect(pair_is_faulted("proxy", written_before), "... but not without the fence");
    covers_writes = true;
    waits_for_empty = false;
    expect(pair_is_faulted("race", written_before), "... and not without the cluster_sync");
}

void pipelines() {
    tells_own = tells_other = waits_for_empty = true;
    expect(pair_is_right(pipeline, 64), "two blocks reuse a buffer whose halves both blocks fill");
    reads_late = true;
    expect(pair_is_faulted("race", pipeline, 64), "a consumer that tells them before it has read is a race");
    reads_late = false;
    reads_early = true;
    expect(pair_is_faulted("race", pipeline, 64), "so is one that reads before it waits");
    reads_early = false;
    waits_for_empty = false;
    expect(pair_is_faulted("race", pipeline, 64), "so is a producer that does not wait for both blocks' consumers");
    waits_for_empty = true;
    tells_other = false;
    expect(pair_is_faulted("deadlock", pipeline, 64), "a consumer that does not tell the other block lets it wait forever");
    tells_other = true;
    leave_out_last_sync = true;
    expect(pair_is_faulted("cluster", pipeline, 64), "without a closing cluster_sync the last news may come too late");
    leave_out_last_sync = false;

    // All lanes read; then all lanes or one lane arrive.
    const body ldmatrix_and_tell = [](int) {
        make_barriers(lanes_together ? 32 : 1);
        if (cluster_rank() == 1) {
            fetch_half();
            mbarrier_wait(FULL, 0);
        } else if (thread_index() == 0) {
            tma_load_multicast(TILE, halves.of_width[0], FULL, 2, 0, 0, 0, 0);
            mbarrier_arrive_expect_tx(FULL, half_tile::bytes);
        }
        uint32_t fragment[4];
        if (cluster_rank() == 1) {
            ldmatrix_x4(fragment, TILE + lane_index() % 8 * 128);
            if (lanes_together || lane_index() == 0) mbarrier_arrive_at(shared_of(EMPTY, 0));
        } else {
            mbarrier_wait(FULL, 0);
            mbarrier_wait_cluster(EMPTY, 0);
            if (thread_index() == 0) tma_load_multicast(TILE, halves.of_width[0], FULL, 2, 0, 0, 0, 0);
        }
        if (cluster_rank() == 1) {
            if (thread_index() == 0) mbarrier_arrive_expect_tx(FULL, half_tile::bytes);
            mbarrier_wait(FULL, 1);
        }
        tell(true);
        close();
    };
    lanes_together = true;
    expect(pair_is_right(ldmatrix_and_tell), "after a warp's read, arrivals of all its lanes release the tile to another block");
    lanes_together = false;
    expect(pair_is_faulted("race", ldmatrix_and_tell), "an arrival of one lane releases it only after a warp_sync");
    expect(report_says("race: block 1: tma_load_multicast (cluster_primitives.cpp:") &&
               report_says("of another block writes what ldmatrix_x4 (cluster_primitives.cpp:") && report_says("with no mbarrier_arrive_at or cluster_sync between them"),
           "... which the report says");
}

bool hands_over, last_tells;

// Warp 1 of the last block reads its tile; its warp 0 arrives at the middle block, which arrives at the first block,
// which then copies another tile into the last block.
void pass_on(int) {
    make_barriers();
    const uint32_t rank = cluster_rank();
    if (rank == 2) {
        if (thread_index() == 0) {
            mbarrier_arrive_expect_tx(FULL, half_tile::bytes);
            tma_load(TILE, halves.of_width[0], FULL, 0, 0, 0, 0);
        }
        if (warp_index() == 1) {
            mbarrier_wait(FULL, 0);
            load_shared(TILE + lane_index() * 16);
            if (hands_over) barrier_arrive(1, 64);
        } else {
            if (hands_over) barrier_wait(1, 64);
            if (thread_index() == 0 && last_tells) mbarrier_arrive_at(shared_of(EMPTY, 1));
        }
        block_sync();
        if (thread_index() == 0) mbarrier_arrive_expect_tx(FULL, half_tile::bytes);
        mbarrier_wait(FULL, 1);
    } else if (thread_index() == 0) {
        if (rank == 0 || last_tells) mbarrier_wait_cluster(EMPTY, 0);
        if (rank == 1) mbarrier_arrive_at(shared_of(EMPTY, 0));
        if (rank == 0) tma_load_multicast(TILE, halves.of_width[0], FULL, 4, 0, 0, 0, 0);
    }
    close();
}

void news() {
    const auto is_fine = [] {
        for (uint64_t seed = 0; seed < 40; ++seed) {
            if (!runs(pass_on, 64, seed, SHARED_BYTES, 3)) return false;
        }
        return true;
    };
    hands_over = last_tells = true;
    expect(is_fine(), "ordering is transitive through warps and blocks");
    hands_over = false;
    expect(is_faulted("race", pass_on, 64, SHARED_BYTES, 3), "... and not where a warp");
    hands_over = true;
    last_tells = false;
    expect(is_faulted("race", pass_on, 64, SHARED_BYTES, 3), "... or a block has not been told");
}

// Products of two warpgroups in different blocks, one with an additional product: A is all 1 or all 2, B is all 1.
void products() {
    const body multiply = [](int) {
        constexpr uint32_t ones = 0x3f803f80, twos = 0x40004000, b_tile = TILE + 2048;
        const uint32_t a = cluster_rank() == 0 ? ones : twos;
        store_shared(TILE + thread_index() * 16, words4{a, a, a, a});
        if (thread_index() < 16) store_shared(b_tile + thread_index() * 16, words4{ones, ones, ones, ones});
        fence_proxy_async();
        cluster_sync();
        float d[1][4] = {};
        wgmma_fence();
        for (uint32_t i = 0; i <= cluster_rank(); ++i) wgmma<bf16, 8>(d, matrix_descriptor<16>(TILE, 0, 256), matrix_descriptor<16>(b_tile, 0, 256), true);
        wgmma_commit();
        block_sync();
        wgmma_wait<0>(d);
        if (thread_index() < 32) tell(d[0][0] == (cluster_rank() == 0 ? 16 : 64) && d[0][3] == d[0][0]);
    };
    expect(pair_is_right(multiply, 128), "products of warpgroups in different blocks are independent");
}

}  // namespace

int main() {
    kgen_emulator_device(90);
    for (uint16_t i = 0; i < 1024; ++i) input[i] = i;
    make_maps();
    ranks();
    syncs();
    reach();
    arrivals();
    multicasts();
    pipelines();
    news();
    products();
    printf("%d false\n", failures);
    return failures == 0 ? 0 : 1;
}
