// Common code of the tests of the emulator's primitives: checks of statements, and kernels that the emulator must
// accept or reject.
#pragma once

#include <stdio.h>

#include <string>

#include "kgen.h"
#include "kgen/launch.cuh"

namespace {

using namespace kgen;

int failures = 0;

void expect(bool truth, const char* statement) {
    printf("%s  %s\n", truth ? "pass" : "FAIL", statement);
    if (!truth) {
        ++failures;
        printf("%s", kgen_emulator_report());
    }
}

// Data of the kernels. The emulator uses one host thread, so globals are safe.
alignas(16) uint16_t input[1024];
float output[1024];

constexpr uint32_t SHARED_BYTES = 4096;

// Runs `kernel` on one cluster of `blocks` blocks; true if the emulator reports no violation.
using body = void (*)(int);
bool runs(body kernel, uint32_t threads = 32, uint64_t seed = 1, uint32_t shared_bytes = SHARED_BYTES, uint32_t blocks = 1) {
    kgen_emulator_reset(seed);
    kgen_emulator_tensor("input", input, sizeof input, nullptr, 2, 0);
    kgen_emulator_tensor("output", output, sizeof output, nullptr, 4, 1);
    return launch(kernel, "words", blocks, threads, shared_bytes, 0, nullptr, blocks) == KGEN_SUCCESS;
}

// True if with each of 20 seeds the kernel is rejected and a line of the report starts with `kind`.
[[maybe_unused]] bool is_faulted(const char* kind, body kernel, uint32_t threads = 32, uint32_t shared_bytes = SHARED_BYTES, uint32_t blocks = 1) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        if (runs(kernel, threads, seed, shared_bytes, blocks)) return false;
        if (std::string(kgen_emulator_report()).find(std::string("\n  ") + kind + ": ") == std::string::npos) return false;
    }
    return true;
}

}  // namespace
