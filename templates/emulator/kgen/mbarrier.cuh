// Barriers in shared memory that count arrivals and bytes, on the emulator. See include/kgen/mbarrier.cuh for their
// semantics.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Initialises an mbarrier with `arrivals` (1 .. 2^20 - 1) arrivals per phase.
KGEN_DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals, KGEN_AT) { emulator::mbarrier_init(barrier, arrivals, at); }

// Makes the mbarriers initialised by this thread visible to the asynchronous copies and to the cluster.
KGEN_DEVICE void fence_mbarrier_init() { emulator::fence_mbarrier_init(); }

// One arrival.
KGEN_DEVICE void mbarrier_arrive(uint32_t barrier, KGEN_AT) { emulator::mbarrier_arrive(barrier, at); }

// One arrival, which also makes the phase wait for `bytes` more bytes (below 2^20) to be copied.
KGEN_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes, KGEN_AT) { emulator::mbarrier_arrive_expect_tx(barrier, bytes, at); }

// True if the phase of this parity has completed; occasionally gives up early, as the hardware may.
KGEN_DEVICE bool mbarrier_try_wait(uint32_t barrier, uint32_t parity, KGEN_AT) { return emulator::mbarrier_try_wait(barrier, parity, at); }

// mbarrier_try_wait() without waiting.
KGEN_DEVICE bool mbarrier_test_wait(uint32_t barrier, uint32_t parity, KGEN_AT) { return emulator::mbarrier_test_wait(barrier, parity, at); }

// Waits for the phase of this parity, the current one or the previous one, to complete.
KGEN_DEVICE void mbarrier_wait(uint32_t barrier, uint32_t parity, KGEN_AT) { emulator::mbarrier_wait(barrier, parity, at); }

}  // namespace kgen
