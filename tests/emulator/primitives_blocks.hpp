// Part of primitives.cpp: conflicts in device memory between blocks of one launch.
#pragma once

namespace {

// Runs four blocks of one warp, independent or as one cluster; true if the emulator reports no violation.
bool blocks_run(body kernel, bool as_cluster = false) {
    kgen_emulator_device(as_cluster ? 90 : 80);
    kgen_emulator_reset(1);
    kgen_emulator_tensor("output", output, sizeof output, nullptr, 4, 1);
    const bool right = launch(kernel, "words", 4, 32, SHARED_BYTES, 0, nullptr, as_cluster ? 4 : 1) == KGEN_SUCCESS;
    kgen_emulator_device(80);
    return right;
}

bool blocks_conflict(body kernel, bool as_cluster = false) {
    return !blocks_run(kernel, as_cluster) && strstr(kgen_emulator_report(), "\n  conflict: ") != nullptr;
}

void blocks() {
    const body own = [](int) { store_global(output + block_index() * 32 + thread_index(), 1.0f); };
    expect(blocks_run(own), "blocks may write different elements");
    expect(blocks_conflict([](int) { store_global(output + thread_index(), 1.0f); }), "two blocks that write the same element are a conflict, even with equal values");
    const auto says = [](const char* second, const char* first) {
        return strstr(kgen_emulator_report(), second) != nullptr && strstr(kgen_emulator_report(), first) != nullptr;
    };
    // The seed determines whether blocks run in ascending or descending order.
    expect(says("`words`, block 1 of 4", "of block 0, in the same launch") || says("`words`, block 2 of 4", "of block 3, in the same launch"),
           "... whose report names both blocks");
    expect(blocks_conflict([](int) {
               if (block_index() == 0) store_global(output, 1.0f);
               if (block_index() == 3) load_global(output);
           }),
           "reading an element that another block writes later is a conflict");
    expect(blocks_conflict([](int) {
               if (block_index() == 3) store_global(output, 1.0f);
               if (block_index() < 2) load_global(output);
           }),
           "... or that it wrote earlier");
    expect(blocks_run(own) && blocks_run([](int) { load_global(output + thread_index()); }), "all blocks may read data written by an earlier launch");
    expect(blocks_run([](int) { add_global(output, 1.0f); }), "atomic additions need no order");
    expect(blocks_conflict([](int) {
               add_global(output, 1.0f);
               if (block_index() == 2) load_global(output);
           }),
           "... but reading the sum without an order is a conflict");
    const body to_and_fro = [](int) {
        store_global(output + block_index() * 32 + thread_index(), 1.0f);
        cluster_sync();
        load_global(output + (block_index() + 1) % 4 * 32 + thread_index());
    };
    expect(blocks_run(to_and_fro, true), "cluster_sync orders the blocks of a cluster");
    expect(blocks_conflict([](int) {
               store_global(output + block_index() * 32 + thread_index(), 1.0f);
               load_global(output + (block_index() + 1) % 4 * 32 + thread_index());
           }, true),
           "... and without it their accesses conflict");
}

// Runs a block of two warps that may begin before its predecessors have completed; true if the emulator reports no
// violation.
bool begins_early(body kernel) {
    kgen_emulator_reset(1);
    kgen_emulator_tensor("input", input, sizeof input, nullptr, 2, 0);
    kgen_emulator_tensor("output", output, sizeof output, nullptr, 4, 1);
    return launch_early(kernel, "words", 1, 64, SHARED_BYTES, 0, nullptr) == KGEN_SUCCESS;
}

bool is_too_early(body kernel) { return !begins_early(kernel) && strstr(kgen_emulator_report(), "\n  early: ") != nullptr; }

void earlier_kernels() {
    expect(begins_early([](int) {
               store_shared(shared_base() + thread_index() * 4, 1.0f);
               await_earlier_kernels();
               store_global(output + thread_index(), 1.0f);
           }),
           "an early kernel may access device memory after its wait for earlier kernels");
    expect(is_too_early([](int) {
               store_global(output + thread_index(), 1.0f);
               await_earlier_kernels();
           }),
           "a write before the wait is reported");
    expect(is_too_early([](int) {
               load_global(input + thread_index());
               await_earlier_kernels();
           }),
           "a read before the wait is reported, even of an input");
    expect(is_too_early([](int) {
               cp_async(shared_base() + thread_index() * 16, input, true);
               await_earlier_kernels();
               cp_async_commit();
               cp_async_wait<0>();
           }),
           "an asynchronous copy before the wait is reported");
    expect(is_too_early([](int) {
               if (warp_index() == 0) await_earlier_kernels();
               block_sync();
               if (warp_index() == 0) store_global(output + thread_index(), 1.0f);
           }),
           "a thread that exits without the wait is reported");
    expect(runs([](int) { store_global(output + thread_index(), 1.0f); }), "a kernel started by launch() needs no wait");
}

}  // namespace
