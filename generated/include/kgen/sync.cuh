// Thread synchronisation.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// All threads of the block; orders their shared-memory accesses.
KGEN_DEVICE void block_sync() { __syncthreads(); }

// All lanes of the warp; orders their shared-memory accesses.
KGEN_DEVICE void warp_sync() { __syncwarp(); }

// All lanes of the warp arrive before any continues; orders no memory accesses. (PTX ISA, "elect.sync"; sm_90 and
// newer. After a wait in a loop, ptxas keeps values of a __syncwarp() in registers over the whole kernel, and spills
// others.)
KGEN_DEVICE void warp_meet() {
    asm volatile("{\n.reg .pred chosen;\nelect.sync _|chosen, 0xffffffff;\n}" ::: "memory");
}

// Synchronisation between warps without the rest of the block: `threads` threads (whole warps) take part in barrier
// number `barrier`, 1 to 15. Threads that arrive continue at once; threads that wait do so until all have arrived or
// wait, and then see what the others had written. All lanes of a warp must call it together.
KGEN_DEVICE void barrier_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

KGEN_DEVICE void barrier_wait(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// The value of `lane_index() ^ mask`.
KGEN_DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

KGEN_DEVICE uint32_t shuffle_xor(uint32_t value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

KGEN_DEVICE int64_t shuffle_xor(int64_t value, int mask) {
    return __shfl_xor_sync(0xffffffffu, static_cast<long long>(value), mask);
}

// True in every lane if it is true in any.
KGEN_DEVICE bool warp_any(bool value) { return __any_sync(0xffffffffu, value); }

// A bit for each lane in which it is true.
KGEN_DEVICE uint32_t warp_ballot(bool value) { return __ballot_sync(0xffffffffu, value); }

// The value of lane `lane`, 0 to 31, which may differ from lane to lane.
KGEN_DEVICE uint32_t shuffle(uint32_t value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }

}  // namespace kgen
