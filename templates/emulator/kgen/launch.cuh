// The host side of a launch, on the emulator: launch() runs the whole grid, one block or cluster after another, before
// it returns.
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "kgen.h"
#include "kgen/emulator.h"

namespace kgen {

// The message that kgen_last_error() returns; one per thread, shared by all launchers of a program.
inline thread_local char last_error[256] = "";

// Records a formatted message and returns `code`.
__attribute__((format(printf, 2, 3))) inline int fail(int code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return code;
}

// Common code of launch() and launch_early().
template <class Params>
int launch_with(emulator::launch_options options, void (*kernel)(Params), const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes,
                const Params& params) {
    if (blocks == 0) return KGEN_SUCCESS;
    struct call {
        void (*kernel)(Params);
        const Params& params;
        static void enter(const void* self) { static_cast<const call*>(self)->kernel(static_cast<const call*>(self)->params); }
    };
    const call made = {kernel, params};
    const char* error = emulator::run(name, blocks, threads, shared_bytes, options, call::enter, &made);
    return error == nullptr ? KGEN_SUCCESS : fail(KGEN_ERROR_LAUNCH, "%s: %s", name, error);
}

// Runs `kernel(params)` on `blocks` blocks, in clusters of `cluster`. A fault detected by the emulator is a failed
// launch; kgen_emulator_report() returns the full report.
template <class Params>
int launch(void (*kernel)(Params), const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, const Params& params, cudaStream_t,
           uint32_t cluster = 1) {
    return launch_with({false, cluster}, kernel, name, blocks, threads, shared_bytes, params);
}

// launch() for a kernel that calls await_earlier_kernels() (kgen/grid_order.cuh): it may start early.
template <class Params>
int launch_early(void (*kernel)(Params), const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, const Params& params, cudaStream_t,
                 uint32_t cluster = 1) {
    return launch_with({true, cluster}, kernel, name, blocks, threads, shared_bytes, params);
}

}  // namespace kgen
