// Clusters, on the emulator: their blocks run interleaved, in an order derived from the seed. include/kgen/cluster.cuh
// describes the primitives.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// This block's rank in its cluster.
KGEN_DEVICE uint32_t cluster_rank() { return emulator::cluster_rank(); }

// All threads of all blocks of the cluster, except exited ones; orders their memory accesses.
KGEN_DEVICE void cluster_sync(KGEN_AT) { emulator::cluster_sync(at); }

// Maps `address`, in this block's shared memory, to the same offset in block `rank`'s.
KGEN_DEVICE uint32_t shared_of(uint32_t address, uint32_t rank, KGEN_AT) { return emulator::shared_of(address, rank, at); }

// One arrival at a barrier whose address comes from shared_of().
KGEN_DEVICE void mbarrier_arrive_at(uint32_t barrier_of_cluster, KGEN_AT) { emulator::mbarrier_arrive_at(barrier_of_cluster, at); }

// mbarrier_wait for a barrier of this block at which threads of other blocks arrive.
KGEN_DEVICE void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity, KGEN_AT) { emulator::mbarrier_wait_cluster(barrier, parity, at); }

}  // namespace kgen
