// Asynchronous copies from device to shared memory, on the emulator: until the thread that issued a copy has waited for
// its group, the destination holds NaN and must not be accessed.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Copies 16 bytes, or writes 16 zero bytes without reading `source` if `valid` is false. Both are 16-byte aligned.
KGEN_DEVICE void cp_async(uint32_t destination, const void* source, bool valid, KGEN_AT) {
    emulator::cp_async(destination, source, valid ? 16 : 0, at);
}

// Copies the first `bytes` bytes (0 to 16) and zero-fills the rest of the 16, which are not read. Both 16-byte aligned.
KGEN_DEVICE void cp_async_partial(uint32_t destination, const void* source, uint32_t bytes, KGEN_AT) {
    emulator::cp_async(destination, source, bytes, at);
}

// Closes the group of the copies issued since the last commit.
KGEN_DEVICE void cp_async_commit() { emulator::cp_async_commit(); }

// Waits until at most `PENDING` of this thread's groups are incomplete.
template <int PENDING>
KGEN_DEVICE void cp_async_wait() {
    emulator::cp_async_wait(PENDING);
}

}  // namespace kgen
