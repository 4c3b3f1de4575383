// Part of tma_primitives.cpp: TMA stores, what they write and when their source may be overwritten.
#pragma once

#include "kgen/tma_tile.cuh"

namespace {

using stored_tile = shared_tile<8, 112>;  // panels of 64, 32 and 16 columns
tile_maps<stored_tile> to_output;         // as 16-bit elements: 12 rows of 112 columns

attention_tensor output_as_tensor(uint64_t columns, uint64_t rows) { return {output, columns, rows, 1, 1, 112, 0, 0}; }

void make_output_maps(uint64_t columns, uint64_t rows) {
    if (make_tile_maps(to_output, output_as_tensor(columns, rows), "words", "output") != KGEN_SUCCESS) expect(false, kgen_last_error());
}

uint16_t stored(uint32_t row, uint32_t column) {
    uint16_t element;
    memcpy(&element, reinterpret_cast<const unsigned char*>(output) + (row * 112 + column) * 2, sizeof element);
    return element;
}

// Element (row, column) of the tile becomes row * 112 + column.
void write_tile(uint32_t tile) {
    for (uint32_t row = 0; row < 8; ++row) {
        for (uint32_t chunk = thread_index(); chunk < 112 / 8; chunk += 32) {
            uint32_t words[4];
            for (uint32_t i = 0; i < 4; ++i) {
                const uint32_t element = row * 112 + chunk * 8 + i * 2;
                words[i] = element | (element + 1) << 16;
            }
            store_shared(tile + chunk_offset<stored_tile>(row, static_cast<int>(chunk) * 8), words4{words[0], words[1], words[2], words[3]});
        }
    }
}

bool fenced_by_all, fenced_by_one, synced, committed, waited, synced_again, overwritten;

// Writes a tile, stores it, and overwrites it.
void store_and_overwrite(int first_row) {
    write_tile(TILE);
    if (fenced_by_all || (fenced_by_one && thread_index() == 0)) fence_proxy_async();
    if (synced) block_sync();
    if (thread_index() == 0) {
        store_panels(TILE, to_output, first_row, 0, 0);
        if (committed) tma_store_commit();
        if (waited) tma_store_wait_read<0>();
    }
    if (synced_again) block_sync();
    if (overwritten) store_shared(TILE + thread_index() * 16, words4{});
}

void store_at_row_6(int) { store_and_overwrite(6); }

bool stores_are_right(uint32_t columns, uint32_t rows, uint32_t threads = 32) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        memset(output, 0xee, sizeof output);
        if (!runs(store_at_row_6, threads, seed)) return false;
        for (uint32_t row = 0; row < 18; ++row) {
            for (uint32_t column = 0; column < 112; ++column) {
                const bool inside = row >= 6 && row < 14 && row < rows && column < columns;
                if (stored(row, column) != (inside ? (row - 6) * 112 + column : 0xeeee)) return false;
            }
        }
    }
    return true;
}

void stores() {
    fenced_by_all = synced = committed = waited = synced_again = overwritten = true;
    make_output_maps(112, 18);
    expect(stores_are_right(112, 18), "a store writes a tile's panels to their coordinates and nothing else");
    make_output_maps(88, 12);
    expect(stores_are_right(88, 12), "elements outside the tensor are not written");
    overwritten = waited = false;
    expect(stores_are_right(88, 12), "a committed store without a wait completes before the grid ends");

    static uint8_t rows_of_9[1024];  // element map of `output`
    memset(rows_of_9, 1, 9 * 112 / 2);
    kgen_emulator_reset(1);
    kgen_emulator_tensor("output", output, sizeof output, rows_of_9, 4, 1);
    expect(launch(store_at_row_6, "words", 1, 32, SHARED_BYTES, 0, nullptr) != KGEN_SUCCESS &&
               strstr(kgen_emulator_report(), "out of bounds: tma_store (tma_tile.cuh") != nullptr,
           "a store into the gap after a sequence is reported, unlike a load from it");
    make_output_maps(112, 20);
    expect(is_faulted("out of bounds", [](int) { store_and_overwrite(14); }), "... and one behind the allocation");
    make_output_maps(112, 18);
    kgen_emulator_reset(1);
    kgen_emulator_tensor("output", output, sizeof output, nullptr, 4, 0);
    expect(launch(store_at_row_6, "words", 1, 32, SHARED_BYTES, 0, nullptr) != KGEN_SUCCESS && strstr(kgen_emulator_report(), "read-only: tma_store") != nullptr,
           "a store to an input is reported");
    expect(is_faulted("misaligned", [](int) {
               if (thread_index() == 0) tma_store(to_output.of_width[0], TILE + 16, 0, 0, 0, 0);
           }),
           "a source that is not a multiple of 128 bytes is reported");
    expect(is_faulted("out of bounds", [](int) {
               if (thread_index() == 0) tma_store(to_output.of_width[0], emulator::SHARED_BASE + SHARED_BYTES - 512, 0, 0, 0, 0);
           }),
           "a source beyond shared memory is reported");
    use_map(64, tma_swizzle::span_128);
    expect(is_faulted("tma", [](int) {
               if (thread_index() == 0) tma_store(map, TILE, 0, 0, 0, 0);
           }),
           "a store whose number of coordinates is not that of its map's dimensions is reported");
}

void order_of_stores() {
    make_output_maps(112, 18);
    fenced_by_all = synced = committed = waited = synced_again = overwritten = true;
    expect(runs(store_at_row_6), "a source may be overwritten after the wait and a barrier");
    synced_again = false;
    expect(is_faulted("race", store_at_row_6), "... but not after another thread's wait without a barrier");
    waited = false;
    synced_again = true;
    expect(is_faulted("race", store_at_row_6), "... and not after a barrier without the wait");
    overwritten = false;
    committed = false;
    expect(is_faulted("never committed", store_at_row_6), "an uncommitted store is reported");
    waited = true;
    expect(is_faulted("never committed", store_at_row_6), "... and a wait does not cover it");
    committed = true;
    fenced_by_all = false;
    expect(is_faulted("proxy", store_at_row_6), "storing written data without a fence_proxy_async is reported");
    fenced_by_one = true;
    expect(is_faulted("proxy", store_at_row_6), "... also if only some writers fenced");
    fenced_by_all = true;
    synced = false;
    expect(is_faulted("race", store_at_row_6), "... and without a barrier after the fences");
    expect(is_faulted("unwritten", [](int) {
               if (thread_index() == 0) {
                   store_panels(TILE, to_output, 0, 0, 0);
                   tma_store_commit();
               }
           }),
           "storing uninitialised shared memory is reported");

    static int pending;
    const body two_groups = [](int) {
        write_tile(TILE);
        write_tile(TILE + 2048);
        fence_proxy_async();
        block_sync();
        if (thread_index() == 0) {
            store_panels(TILE, to_output, 0, 0, 0);
            tma_store_commit();
            store_panels(TILE + 2048, to_output, 8, 0, 0);
            tma_store_commit();
            if (pending == 1) tma_store_wait_read<1>();
            if (pending == 2) tma_store_wait_read<2>();
            store_shared(TILE, words4{});
        }
    };
    pending = 1;
    expect(runs(two_groups), "a wait for all but the newest group frees the sources of the others");
    pending = 2;
    expect(is_faulted("race", two_groups), "... and a wait for all but two groups frees neither of two sources");
    expect(is_faulted("race", [](int) {
               make_barriers();
               write_tile(TILE);
               fence_proxy_async();
               block_sync();
               if (thread_index() == 0) {
                   store_panels(TILE, to_output, 0, 0, 0);
                   tma_store_commit();
               }
               fetch(TILE, FULL);
               mbarrier_wait(FULL, 0);
           }),
           "a load over the source of a store without a wait is a race");
}

}  // namespace
