// Asynchronous copies from device to shared memory (PTX ISA, "cp.async"; sm_80 and newer).
// A copy is complete only when the thread that issued it has waited for its group, and other threads may read it only
// after a barrier that follows that wait.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Copies 16 bytes, or writes 16 zero bytes without reading `source` if `valid` is false. Both are 16-byte aligned.
// `.cg` keeps the line out of L1: every tile is read once by a block.
KGEN_DEVICE void cp_async(uint32_t destination, const void* source, bool valid) {
    const uint32_t bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(bytes)
                 : "memory");
}

// Copies the first `bytes` bytes (0 to 16) and zero-fills the rest of the 16, which are not read. Both 16-byte aligned.
KGEN_DEVICE void cp_async_partial(uint32_t destination, const void* source, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(bytes)
                 : "memory");
}

// Closes the group of the copies issued since the last commit.
KGEN_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `PENDING` of this thread's groups are incomplete.
template <int PENDING>
KGEN_DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

}  // namespace kgen
