// The tensor memory accelerator: copies of whole tiles issued by one thread (PTX ISA, "cp.async.bulk.tensor", `.tile`;
// sm_90 and newer).
//
// A tensor map (kgen/tensor_map.cuh) holds the tensor's address and the size of a box; a copy is given the coordinates
// of the box's first element, innermost first. Elements outside the tensor arrive as zeros and are not read; their
// bytes are counted like all others. The box is stored in shared memory with consecutive rows, each 16-byte chunk at
// the address
//   a ^ (a / 128 % 8) * 16    128-byte swizzle
//   a ^ (a / 128 % 4) * 16    64-byte swizzle
//   a ^ (a / 128 % 2) * 16    32-byte swizzle
// where a is its unswizzled address. These are addresses, not offsets in the box: a box that must have the layout of
// kgen/tile.cuh's panels starts at a multiple of 1024, 512 or 256 bytes. Any box starts at a multiple of 128.
//
// Copies run in the asynchronous proxy. A copy is complete for a thread that has waited for the phase of the mbarrier
// that counted its bytes. A copy may overwrite data that other instructions have read once the reads are ordered before
// it (by a barrier); data that other instructions have *written* also needs fence_proxy_async() by the writers, before
// that barrier.
//
// Stores go the other way, box by box, in groups of the issuing thread. Committed stores complete even after the kernel
// has ended; a kernel needs to wait until their sources have been read only if it writes there again.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/tensor_map.cuh"

namespace kgen {

// Orders this thread's earlier accesses to shared memory before later TMA copies, and vice versa.
KGEN_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Prefetches a tensor map in the kernel's parameters into the cache ahead of the first copy.
KGEN_DEVICE void tma_prefetch_map(const tensor_map& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Starts copying the box at (c0, c1, ..) into shared memory; its bytes count towards the current phase of `barrier`.
// Called by one thread; each caller starts a copy of its own. The destination is declared shared::cta (PTX ISA 8.6):
// with shared::cluster, ptxas 13.0 calls a system function for every copy on sm_120, which has no clusters.
KGEN_DEVICE void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, int32_t c0, int32_t c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
        ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1)
        : "memory");
}

KGEN_DEVICE void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, int32_t c0, int32_t c1,
                          int32_t c2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
        ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
}

KGEN_DEVICE void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, int32_t c0, int32_t c1,
                          int32_t c2, int32_t c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
        ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

KGEN_DEVICE void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, int32_t c0, int32_t c1,
                          int32_t c2, int32_t c3, int32_t c4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
        ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}

// tma_load() into the shared memory of several blocks of the cluster (kgen/cluster.cuh): those whose bits are set in
// `blocks`, which may or may not include this one. In each of them the box is stored at `destination`, and its bytes
// count towards the current phase of `barrier`; both are given as this block's addresses and name the same offsets
// there. sm_90.
KGEN_DEVICE void tma_load_multicast(uint32_t destination, const tensor_map& map, uint32_t barrier, uint16_t blocks,
                                    int32_t c0, int32_t c1, int32_t c2, int32_t c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
        ::"r"(destination),
        "l"(&map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// Starts copying the box at `source` in shared memory to (c0, c1, ..) of the tensor, as part of the thread's open
// group. Elements outside the tensor are not written. Threads that have written to the source must have called
// fence_proxy_async(), with a barrier after it. Called by one thread.
KGEN_DEVICE void tma_store(const tensor_map& map, uint32_t source, int32_t c0, int32_t c1, int32_t c2, int32_t c3) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
                 ::"l"(&map), "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}

// Closes the group of the stores started by this thread since the last commit.
KGEN_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but the newest `GROUPS` groups of this thread have read their sources, which may then be overwritten.
template <int GROUPS>
KGEN_DEVICE void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(GROUPS) : "memory");
}

}  // namespace kgen
