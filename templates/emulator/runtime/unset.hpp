// What variables hold that nobody has set, where a kernel is compiled with -ftrivial-auto-var-init=pattern (kgen/emulator.h).
#pragma once

// In place of memset in kernels. 0xfe is what GCC fills with; no kernel asks for that byte itself.
extern "C" void* kgen_emulator_fill(void* to, int value, size_t bytes) {
    constexpr int of_gcc = 0xfe, of_nan = 0xff;
    return memset(to, value == of_gcc ? of_nan : value, bytes);
}
