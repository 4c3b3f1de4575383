// Thread synchronisation, on the emulator.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// All threads of the block; orders their shared-memory accesses.
KGEN_DEVICE void block_sync(KGEN_AT) { emulator::block_sync(at); }

// All lanes of the warp; orders their shared-memory accesses.
KGEN_DEVICE void warp_sync(KGEN_AT) { emulator::warp_sync(at); }

// All lanes of the warp arrive before any continues; orders no memory accesses.
KGEN_DEVICE void warp_meet(KGEN_AT) { emulator::warp_meet(at); }

// Synchronisation between warps without the rest of the block: `threads` threads (whole warps) take part in barrier
// number `barrier`, 1 to 15. Threads that arrive continue at once; threads that wait do so until all have arrived or
// wait, and then see what the others had written. All lanes of a warp must call it together.
KGEN_DEVICE void barrier_arrive(int barrier, int threads, KGEN_AT) { emulator::barrier_arrive(barrier, threads, at); }

KGEN_DEVICE void barrier_wait(int barrier, int threads, KGEN_AT) { emulator::barrier_wait(barrier, threads, at); }

// The value of `lane_index() ^ mask`.
KGEN_DEVICE float shuffle_xor(float value, int mask, KGEN_AT) { return emulator::shuffle_xor(value, mask, at); }

KGEN_DEVICE uint32_t shuffle_xor(uint32_t value, int mask, KGEN_AT) {
    return static_cast<uint32_t>(emulator::shuffle_xor(static_cast<int64_t>(value), mask, at));
}

KGEN_DEVICE int64_t shuffle_xor(int64_t value, int mask, KGEN_AT) { return emulator::shuffle_xor(value, mask, at); }

// True in every lane if it is true in any.
KGEN_DEVICE bool warp_any(bool value, KGEN_AT) { return emulator::warp_any(value, at); }

// A bit for each lane in which it is true.
KGEN_DEVICE uint32_t warp_ballot(bool value, KGEN_AT) { return emulator::warp_ballot(value, at); }

// The value of lane `lane`.
KGEN_DEVICE uint32_t shuffle(uint32_t value, int lane, KGEN_AT) { return emulator::shuffle(value, lane, at); }

}  // namespace kgen
