// Barriers in shared memory that count arrivals and bytes (PTX ISA, "mbarrier"; the words below need sm_90 and newer).
//
// An mbarrier is 8 bytes, aligned to 8. It goes through phases 0, 1, 2, ...; the parity of a phase is its number
// modulo 2. A phase ends when as many arrivals have come as mbarrier_init() said and every expected byte has landed;
// then the next one begins by itself, with the same count. Arriving publishes what the thread has done before (release);
// a wait that finds the phase ended makes it visible (acquire), and with it the copies whose bytes the phase counted.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Makes an mbarrier of `arrivals` (1 .. 2^20 - 1) arrivals a phase. One thread does so, and others use the barrier only
// behind fence_mbarrier_init() and a block_sync.
KGEN_DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes the mbarriers that this thread has initialised known to the asynchronous copies, and to the cluster.
KGEN_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// One arrival.
KGEN_DEVICE void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival, after which the phase also waits for `bytes` bytes more (below 2^20) to be copied.
KGEN_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Whether the phase of this parity has ended, where that phase is the current one or the one before: for a new barrier,
// parity 0 has not ended and parity 1 has. Gives up after a time of the hardware's choosing (`try_wait`).
KGEN_DEVICE bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
    uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
    return ended != 0;
}

// The same without waiting (`test_wait`).
KGEN_DEVICE bool mbarrier_test_wait(uint32_t barrier, uint32_t parity) {
    uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
    return ended != 0;
}

// Waits for the end of the phase of this parity, which is the current one or the one before.
KGEN_DEVICE void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

}  // namespace kgen
