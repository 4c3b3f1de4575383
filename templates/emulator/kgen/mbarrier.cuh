// Barriers in shared memory that count arrivals and bytes, on the emulator. See include/kgen/mbarrier.cuh for what they mean.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Makes an mbarrier of `arrivals` (1 .. 2^20 - 1) arrivals a phase.
KGEN_DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals, KGEN_AT) { emulator::mbarrier_init(barrier, arrivals, at); }

// Makes the mbarriers that this thread has initialised known to the asynchronous copies, and to the cluster.
KGEN_DEVICE void fence_mbarrier_init() { emulator::fence_mbarrier_init(); }

// One arrival.
KGEN_DEVICE void mbarrier_arrive(uint32_t barrier, KGEN_AT) { emulator::mbarrier_arrive(barrier, at); }

// One arrival, after which the phase also waits for `bytes` bytes more (below 2^20) to be copied.
KGEN_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes, KGEN_AT) { emulator::mbarrier_arrive_expect_tx(barrier, bytes, at); }

// Whether the phase of this parity has ended; now and then gives up early, as the hardware may.
KGEN_DEVICE bool mbarrier_try_wait(uint32_t barrier, uint32_t parity, KGEN_AT) { return emulator::mbarrier_try_wait(barrier, parity, at); }

// The same without waiting.
KGEN_DEVICE bool mbarrier_test_wait(uint32_t barrier, uint32_t parity, KGEN_AT) { return emulator::mbarrier_test_wait(barrier, parity, at); }

// Waits for the end of the phase of this parity, which is the current one or the one before.
KGEN_DEVICE void mbarrier_wait(uint32_t barrier, uint32_t parity, KGEN_AT) { emulator::mbarrier_wait(barrier, parity, at); }

}  // namespace kgen
