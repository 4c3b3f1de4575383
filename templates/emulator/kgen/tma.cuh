// Copies of whole tiles by one thread, on the emulator: until a thread waits for the mbarrier that counts a copy's
// bytes, its destination holds NaN and must not be accessed. include/kgen/tma.cuh describes copies.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/tensor_map.cuh"

namespace kgen {

// Orders this thread's earlier accesses to shared memory before later TMA copies, and vice versa.
KGEN_DEVICE void fence_proxy_async() { emulator::fence_proxy_async(); }

// There is no cache here, but the map must be valid.
KGEN_DEVICE void tma_prefetch_map(const tensor_map& map, KGEN_AT) { emulator::tma_prefetch_map(map, at); }

// Starts copying the box at (c0, c1, ..) into shared memory; its bytes count towards the current phase of `barrier`.
KGEN_DEVICE void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, int32_t c0, int32_t c1, KGEN_AT) {
    const int32_t box[] = {c0, c1};
    emulator::tma_load(destination, map, barrier, box, 2, at);
}

KGEN_DEVICE void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, int32_t c0, int32_t c1, int32_t c2, KGEN_AT) {
    const int32_t box[] = {c0, c1, c2};
    emulator::tma_load(destination, map, barrier, box, 3, at);
}

KGEN_DEVICE void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, int32_t c0, int32_t c1, int32_t c2, int32_t c3, KGEN_AT) {
    const int32_t box[] = {c0, c1, c2, c3};
    emulator::tma_load(destination, map, barrier, box, 4, at);
}

KGEN_DEVICE void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4,
                          KGEN_AT) {
    const int32_t box[] = {c0, c1, c2, c3, c4};
    emulator::tma_load(destination, map, barrier, box, 5, at);
}

// tma_load() into the shared memory of several blocks of the cluster; each copy completes independently.
KGEN_DEVICE void tma_load_multicast(uint32_t destination, const tensor_map& map, uint32_t barrier, uint16_t blocks, int32_t c0, int32_t c1, int32_t c2,
                                    int32_t c3, KGEN_AT) {
    const int32_t box[] = {c0, c1, c2, c3};
    emulator::tma_load_multicast(destination, map, barrier, blocks, box, 4, at);
}

// Starts copying the box at `source` in shared memory to (c0, c1, ..) of the tensor, as part of the thread's open
// group.
KGEN_DEVICE void tma_store(const tensor_map& map, uint32_t source, int32_t c0, int32_t c1, int32_t c2, int32_t c3, KGEN_AT) {
    const int32_t box[] = {c0, c1, c2, c3};
    emulator::tma_store(map, source, box, 4, at);
}

// Closes the group of the stores started by this thread since the last commit.
KGEN_DEVICE void tma_store_commit() { emulator::tma_store_commit(); }

// Waits until all but the newest `GROUPS` groups of this thread have read their sources, which may then be overwritten.
template <int GROUPS>
KGEN_DEVICE void tma_store_wait_read() {
    emulator::tma_store_wait_read(GROUPS);
}

}  // namespace kgen
