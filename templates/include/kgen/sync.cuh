// Where threads meet.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// All threads of the block; orders their shared-memory accesses.
KGEN_DEVICE void block_sync() { __syncthreads(); }

// All lanes of the warp; orders their shared-memory accesses.
KGEN_DEVICE void warp_sync() { __syncwarp(); }

// The value of `lane_index() ^ mask`.
KGEN_DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

KGEN_DEVICE int64_t shuffle_xor(int64_t value, int mask) { return __shfl_xor_sync(0xffffffffu, static_cast<long long>(value), mask); }

// True in every lane when it is true in one.
KGEN_DEVICE bool warp_any(bool value) { return __any_sync(0xffffffffu, value); }

}  // namespace kgen
