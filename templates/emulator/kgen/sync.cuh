// Where threads meet, on the emulator.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// All threads of the block; orders their shared-memory accesses.
KGEN_DEVICE void block_sync(KGEN_AT) { emulator::block_sync(at); }

// All lanes of the warp; orders their shared-memory accesses.
KGEN_DEVICE void warp_sync(KGEN_AT) { emulator::warp_sync(at); }

// The value of `lane_index() ^ mask`.
KGEN_DEVICE float shuffle_xor(float value, int mask, KGEN_AT) { return emulator::shuffle_xor(value, mask, at); }

KGEN_DEVICE int64_t shuffle_xor(int64_t value, int mask, KGEN_AT) { return emulator::shuffle_xor(value, mask, at); }

// True in every lane when it is true in one.
KGEN_DEVICE bool warp_any(bool value, KGEN_AT) { return emulator::warp_any(value, at); }

}  // namespace kgen
