// Part of primitives.cpp: atomics and flags, and the order that they create between blocks of one launch.
#pragma once

namespace {

alignas(16) uint32_t counters[8];
alignas(16) uint64_t wide[4];

// Runs `kernel` on blocks of two warps; true if the emulator reports no violation.
bool shared_run(body kernel, uint32_t blocks = 4, uint64_t seed = 1, int multiprocessors = 5) {
    kgen_emulator_multiprocessors(multiprocessors);
    kgen_emulator_reset(seed);
    kgen_emulator_tensor("output", output, sizeof output, nullptr, 4, 1);
    kgen_emulator_tensor("counters", counters, sizeof counters, nullptr, 4, 1);
    kgen_emulator_tensor("wide", wide, sizeof wide, nullptr, 8, 1);
    memset(counters, 0, sizeof counters);
    memset(wide, 0, sizeof wide);
    memset(output, 0, sizeof output);
    const bool right = launch(kernel, "words", blocks, 64, SHARED_BYTES, 0, nullptr) == KGEN_SUCCESS;
    kgen_emulator_multiprocessors(5);
    return right;
}

bool always_runs(body kernel, uint32_t blocks = 4) {
    bool right = true;
    for (uint64_t seed = 0; seed < 20; ++seed) right = right && shared_run(kernel, blocks, seed);
    return right;
}

bool is_reported(const char* kind, body kernel, uint32_t blocks = 4) {
    bool right = true;
    for (uint64_t seed = 0; seed < 20; ++seed) {
        right = right && !shared_run(kernel, blocks, seed) && std::string(kgen_emulator_report()).find(std::string("\n  ") + kind + ": ") != std::string::npos;
    }
    return right;
}

// Each block writes its part and increments a counter; the last block adds up all parts.
template <memory_order ORDER, bool SYNC_BEFORE = true, bool SYNC_BEHIND = true>
void last_block_sums(int) {
    store_global(output + block_index() * 64 + thread_index(), 1.0f);
    if (SYNC_BEFORE) block_sync();
    if (thread_index() == 0) {
        const bool last = atomic_add<ORDER>(counters, 1u) == 3;
        store_shared(shared_base(), last ? 1.0f : 0.0f);
    }
    if (SYNC_BEHIND) block_sync();
    if (SYNC_BEHIND ? load_shared_float(shared_base()) == 0.0f : atomic_add(counters + 1, 0u) + load_relaxed(counters) < 4) return;
    float sum = 0.0f;
    for (uint32_t i = 0; i < 256; ++i) sum += load_written(output + i);
    if (thread_index() == 0) store_global(output + 300, sum);
}

// Block 1 waits for data written by block 0.
template <class Set, class Await>
void hand_to_next(Set set, Await await, bool behind_barriers = true) {
    if (block_index() == 0) {
        store_global(output + thread_index(), 2.0f);
        if (behind_barriers) block_sync();
        if (thread_index() == 0) set();
    } else if (block_index() == 1) {
        if (thread_index() == 0) await();
        if (behind_barriers) block_sync();
        const float found = load_written(output + 63 - thread_index());
        store_global(output + 64 + thread_index(), found);
    }
}

void spin_acquire() {
    while (load_acquire(counters) == 0) {
    }
}

void atomics() {
    expect(shared_run([](int) {
               atomic_add(counters, thread_index());
               atomic_max(counters + 1, block_index() * 100 + thread_index());
               atomic_or(counters + 2, 1u << thread_index() % 32);
               atomic_cas(counters + 3, 0u, 7u);
               atomic_cas(counters + 3, 1u, 9u);
               reduce_add(counters + 4, 2u);
               atomic_add(wide, uint64_t(1) << 40);
               reduce_max(wide + 1, uint64_t(block_index()) << 33);
               atomic_add(output, 0.5f);
               atomic_exchange(counters + 5, 3u);
           }) && counters[0] == 4 * 63 * 32 && counters[1] == 363 && counters[2] == ~0u && counters[3] == 7 && counters[4] == 512 && counters[5] == 3 &&
               wide[0] == 256ull << 40 && wide[1] == 3ull << 33 && output[0] == 128.0f,
           "atomics have the documented results and need no order among themselves");
    expect(is_reported("conflict", [](int) {
               if (block_index() == 0) store_global(reinterpret_cast<int32_t*>(counters), 1);
               if (block_index() == 1) atomic_add(counters, 1u);
           }),
           "an atomic and a plain store to the same address without an order are a conflict");
    expect(always_runs(last_block_sums<memory_order::acquire_release>) && output[300] == 256.0f, "the last block to increment a counter may read the data of all blocks");
    expect(is_reported("conflict", last_block_sums<memory_order::relaxed>), "... but not with a relaxed atomic");
    expect(is_reported("conflict", last_block_sums<memory_order::release>), "... not without acquire");
    expect(is_reported("conflict", last_block_sums<memory_order::acquire>), "... and not without release");
    expect(is_reported("conflict", last_block_sums<memory_order::acquire_release, false>), "... nor what other warps have written, with no barrier before");

    expect(always_runs([](int) { hand_to_next([] { store_release(counters, 1u); }, spin_acquire); }, 2) && output[64] == 2.0f,
           "a block may wait for a flag set by another block, whichever runs first");
    expect(always_runs([](int) { hand_to_next([] { reduce_add<memory_order::release>(counters, 1u); }, [] { while (atomic_cas<memory_order::acquire>(counters, 1u, 2u) != 1) {} }); }, 2),
           "... also with the other acquire and release operations");
    expect(is_reported("conflict", [](int) { hand_to_next([] { store_relaxed(counters, 1u); }, spin_acquire); }, 2), "a relaxed store releases nothing");
    expect(is_reported("conflict", [](int) {
               hand_to_next([] { store_release(counters, 1u); }, [] {
                   while (load_relaxed(counters) == 0) {
                   }
               });
           }, 2),
           "a relaxed load does not acquire");
    expect(is_reported("conflict", [](int) { hand_to_next([] { store_release(counters, 1u); }, spin_acquire, false); }, 2), "other warps need barriers on both sides");
    expect(is_reported("conflict", [](int) {
               if (block_index() == 0 && thread_index() == 0) {
                   store_release(counters, 1u);
                   store_global(output, 1.0f);
               } else if (block_index() == 1 && thread_index() == 0) {
                   spin_acquire();
                   load_written(output);
               }
           }, 2),
           "a release does not cover later writes");
    expect(is_reported("conflict", [](int) {
               if (block_index() == 0 && thread_index() == 0) {
                   store_global(output, 1.0f);
                   store_release(counters, 1u);
               } else if (block_index() == 1 && thread_index() == 0) {
                   spin_acquire();
                   load_global(output);
               }
           }, 2),
           "load_global of data written in the same launch is a conflict even after an acquire");
    expect(always_runs([](int) {
               if (thread_index() != 0) return;
               if (block_index() == 0) store_global(output, 1.0f);
               if (block_index() > 0) {
                   while (load_acquire(counters) != block_index()) {
                   }
                   if (block_index() == 3) load_written(output);
               }
               store_release(counters, block_index() + 1);
           }),
           "release and acquire are transitive");
    expect(always_runs([](int) {
               if (thread_index() == 0 && block_index() == 0) store_global(output, 1.0f);
               if (thread_index() != 0) return;
               atomic_add<memory_order::release>(counters, block_index() == 0 ? 100u : 1u);
               while (load_acquire(counters) < 100) {
               }
               load_written(output);
           }),
           "an atomic by a third block continues a release sequence");
    expect(is_reported("conflict", [](int) {
               if (thread_index() != 0) return;
               if (block_index() == 0) {
                   store_global(output, 1.0f);
                   store_release(counters, 1u);
                   store_relaxed(counters, 2u);
               } else if (block_index() == 1) {
                   while (load_acquire(counters) != 2) {
                   }
                   load_written(output);
               }
           }, 2),
           "... but a relaxed store ends it");
    const body all_meet = [](int) {
        if (thread_index() == 0) reduce_add<memory_order::release>(counters, 1u);
        if (thread_index() == 0) {
            while (load_acquire(counters) < 5) {
            }
        }
    };
    expect(shared_run(all_meet, 5), "blocks may wait for each other if there is a multiprocessor for each");
    expect(!shared_run(all_meet, 5, 1, 4) && strstr(kgen_emulator_report(), "\n  deadlock: 4 blocks or clusters wait for flags that nobody sets; 1 blocks have not begun") != nullptr,
           "with one multiprocessor less it is a deadlock");
    expect(is_reported("deadlock", [](int) { spin_acquire(); }, 1), "so does one block, for a flag that nobody sets");
    expect(!shared_run([](int) { atomic_add(reinterpret_cast<uint32_t*>(input), 1u); }) && strstr(kgen_emulator_report(), "out of bounds: atomic_add (") != nullptr,
           "an atomic outside the registered tensors is reported");
}

}  // namespace
