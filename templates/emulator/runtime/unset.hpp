// The contents of uninitialised variables if a kernel is compiled with -ftrivial-auto-var-init=pattern
// (kgen/emulator.h).
#pragma once

// Replaces memset in kernels. GCC fills with 0xfe; no kernel uses that byte itself.
extern "C" void* kgen_emulator_fill(void* to, int value, size_t bytes) {
    constexpr int of_gcc = 0xfe, of_nan = 0xff;
    return memset(to, value == of_gcc ? of_nan : value, bytes);
}
