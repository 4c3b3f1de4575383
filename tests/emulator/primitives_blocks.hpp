// The part of primitives.cpp about blocks of one launch that meet in device memory.
#pragma once

namespace {

// Runs four blocks of one warp, each by itself or all as a cluster; true if the emulator found nothing wrong.
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
    expect(blocks_run(own), "blocks may write elements of their own");
    expect(blocks_conflict([](int) { store_global(output + thread_index(), 1.0f); }), "two that write the same are a conflict, the value being the same");
    const auto says = [](const char* second, const char* first) {
        return strstr(kgen_emulator_report(), second) != nullptr && strstr(kgen_emulator_report(), first) != nullptr;
    };
    // The seed determines from which end the blocks begin.
    expect(says("`words`, block 1 of 4", "of block 0, in the same launch") || says("`words`, block 2 of 4", "of block 3, in the same launch"),
           "... and the report says who was there before");
    expect(blocks_conflict([](int) {
               if (block_index() == 0) store_global(output, 1.0f);
               if (block_index() == 3) load_global(output);
           }),
           "so is reading what another block writes, whether it comes later");
    expect(blocks_conflict([](int) {
               if (block_index() == 3) store_global(output, 1.0f);
               if (block_index() < 2) load_global(output);
           }),
           "... or earlier");
    expect(blocks_run(own) && blocks_run([](int) { load_global(output + thread_index()); }), "what an earlier launch has written may be read by all");
    expect(blocks_run([](int) { add_global(output, 1.0f); }), "additions need no order");
    expect(blocks_conflict([](int) {
               add_global(output, 1.0f);
               if (block_index() == 2) load_global(output);
           }),
           "... but reading the sum does");
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
           "... which are blocks like others without it");
}

// Runs a block of two warps that may begin before its predecessors have completed; true if the emulator found nothing
// wrong.
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
           "a kernel that begins early waits for those before it, and then touches device memory");
    expect(is_too_early([](int) {
               store_global(output + thread_index(), 1.0f);
               await_earlier_kernels();
           }),
           "... and not before: it does not write there");
    expect(is_too_early([](int) {
               load_global(input + thread_index());
               await_earlier_kernels();
           }),
           "... nor read, not even an input");
    expect(is_too_early([](int) {
               cp_async(shared_base() + thread_index() * 16, input, true);
               await_earlier_kernels();
               cp_async_commit();
               cp_async_wait<0>();
           }),
           "... nor start copies");
    expect(is_too_early([](int) {
               if (warp_index() == 0) await_earlier_kernels();
               block_sync();
               if (warp_index() == 0) store_global(output + thread_index(), 1.0f);
           }),
           "every thread waits before it ends");
    expect(runs([](int) { store_global(output + thread_index(), 1.0f); }), "a kernel that launch() starts need not wait");
}

}  // namespace
