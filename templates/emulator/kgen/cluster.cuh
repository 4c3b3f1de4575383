// Clusters, on the emulator: their blocks run together, in an order that the seed decides. See include/kgen/cluster.cuh for what the words
// mean.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Which block of its cluster this one is.
KGEN_DEVICE uint32_t cluster_rank() { return emulator::cluster_rank(); }

// All threads of all blocks of the cluster but those that have ended; orders their accesses to memory.
KGEN_DEVICE void cluster_sync(KGEN_AT) { emulator::cluster_sync(at); }

// The same place as one's own `address`, in the shared memory of block `rank`.
KGEN_DEVICE uint32_t shared_of(uint32_t address, uint32_t rank, KGEN_AT) { return emulator::shared_of(address, rank, at); }

// One arrival at a barrier that shared_of() has named.
KGEN_DEVICE void mbarrier_arrive_at(uint32_t barrier_of_cluster, KGEN_AT) { emulator::mbarrier_arrive_at(barrier_of_cluster, at); }

// mbarrier_wait for one's own barrier at which threads of other blocks arrive.
KGEN_DEVICE void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity, KGEN_AT) { emulator::mbarrier_wait_cluster(barrier, parity, at); }

}  // namespace kgen
