// Barriers in shared memory that count arrivals and bytes (PTX ISA, "mbarrier"; the primitives below need sm_90 and
// newer).
//
// An mbarrier is 8 bytes, aligned to 8. It goes through phases 0, 1, 2, ...; the parity of a phase is its number modulo
// 2. A phase completes when the number of arrivals given to mbarrier_init() has been reached and every expected byte
// has been copied; the next one then begins automatically, with the same count. An arrival publishes the thread's
// earlier writes (release); a wait that finds the phase complete makes them visible (acquire), along with the copies
// whose bytes the phase counted.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Initialises an mbarrier with `arrivals` (1 .. 2^20 - 1) arrivals per phase. Done by one thread; others use the
// barrier only after fence_mbarrier_init() and a block_sync.
KGEN_DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes the mbarriers initialised by this thread visible to the asynchronous copies and to the cluster.
KGEN_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// One arrival.
KGEN_DEVICE void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival, which also makes the phase wait for `bytes` more bytes (below 2^20) to be copied.
KGEN_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// True if the phase of this parity, which is the current one or the previous one, has completed: for a new barrier,
// parity 0 has not completed and parity 1 has. Gives up after a time limit chosen by the hardware (`try_wait`).
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

// mbarrier_try_wait() without waiting (`test_wait`).
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

// Waits for the phase of this parity, the current one or the previous one, to complete.
KGEN_DEVICE void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

}  // namespace kgen
