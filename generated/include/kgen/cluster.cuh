// Clusters: the few blocks that run at the same time, on multiprocessors side by side, and reach each other's shared memory (PTX ISA,
// "Cluster of cooperative thread arrays"; sm_90 and newer; launch() says how many blocks one has). Blocks number
//   rank + size * cluster
// make up a cluster, rank from 0 to size - 1.
//
// The same place lies at the same offset in the shared memory of each block. A block's own addresses name its own memory; shared_of()
// names another block's, for mbarrier_arrive_at() and for nothing else. (tma_load_multicast() takes own addresses.)
//
// A block may be reached once all have come to a cluster_sync that follows its mbarrier_init and fence_mbarrier_init, and until it ends:
// a kernel whose blocks reach each other closes with one more cluster_sync, behind everything that arrives from elsewhere.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Which block of its cluster this one is.
KGEN_DEVICE uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all blocks of the cluster but those that have ended; orders their accesses to memory. All lanes of a warp come here
// together.
KGEN_DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place as one's own `address`, in the shared memory of block `rank`.
KGEN_DEVICE uint32_t shared_of(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// One arrival at a barrier that shared_of() has named, which may be one's own. It says that this thread's reads are done, and publishes
// nothing it has written (relaxed): a release at the scope of the cluster is a MEMBAR.GPU, which costs a warp hundreds of clocks. What the
// thread itself has written there may be overwritten by a copy as well, where products have read it since (behind fence_proxy_async).
KGEN_DEVICE void mbarrier_arrive_at(uint32_t barrier_of_cluster) {
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier_of_cluster) : "memory");
}

// mbarrier_wait for one's own barrier at which threads of other blocks arrive by mbarrier_arrive_at(). What they have read before may be
// overwritten by a copy; nothing becomes visible (relaxed).
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
