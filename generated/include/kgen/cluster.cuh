// Clusters: small groups of blocks that run at the same time on neighbouring multiprocessors and can access each
// other's shared memory (PTX ISA, "Cluster of cooperative thread arrays"; sm_90 and newer; launch() sets their size). A
// cluster consists of the blocks with the numbers
//   rank + size * cluster
// with rank from 0 to size - 1.
//
// The same variable has the same offset in the shared memory of each block. A block's own addresses refer to its own
// memory; shared_of() gives another block's, which only mbarrier_arrive_at() accepts. (tma_load_multicast() takes this
// block's.)
//
// A block may be accessed once all have reached a cluster_sync that follows its mbarrier_init and fence_mbarrier_init,
// and until it exits: a kernel whose blocks access each other ends with one more cluster_sync, after all arrivals from
// other blocks.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// This block's rank in its cluster.
KGEN_DEVICE uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all blocks of the cluster, except exited ones; orders their memory accesses. All lanes of a warp must
// call it together.
KGEN_DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Maps `address`, in this block's shared memory, to the same offset in block `rank`'s.
KGEN_DEVICE uint32_t shared_of(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// One arrival at a barrier whose address comes from shared_of(), which may be this block's. It signals that this
// thread's reads are complete, and publishes nothing it has written (relaxed): a release at cluster scope is a
// MEMBAR.GPU, which costs a warp hundreds of clocks. Data that the thread itself wrote there may also be overwritten by
// a copy, if products have read it since (after fence_proxy_async).
KGEN_DEVICE void mbarrier_arrive_at(uint32_t barrier_of_cluster) {
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier_of_cluster) : "memory");
}

// mbarrier_wait for a barrier of this block at which threads of other blocks arrive by mbarrier_arrive_at(). Data that
// they read before may then be overwritten by a copy; none of their writes becomes visible (relaxed).
KGEN_DEVICE void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
    uint32_t ended = 0;
    while (ended == 0) {
        asm volatile(
            "{\n"
            ".reg .pred ended;\n"
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 ended, [%1], %2;\n"
            "selp.u32 %0, 1, 0, ended;\n"
            "}"
            : "=r"(ended)
            : "r"(barrier), "r"(parity)
            : "memory");
    }
}

}  // namespace kgen
