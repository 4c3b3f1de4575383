// The host side of a launch, on the emulator: the whole grid runs, one block or cluster after another, before launch() returns.
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "kgen.h"
#include "kgen/emulator.h"

namespace kgen {

// What kgen_last_error() returns; one a thread, shared by every launcher of a program.
inline thread_local char last_error[256] = "";

// Records a formatted message and returns `code`.
__attribute__((format(printf, 2, 3))) inline int fail(int code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return code;
}

// Runs `kernel(params)` on `blocks` blocks, in clusters of `cluster`. A fault that the emulator sees is a failed launch; kgen_emulator_report()
// has all of it.
template <class Params>
int launch(void (*kernel)(Params), const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes,
           const Params& params, cudaStream_t, uint32_t cluster = 1) {
    if (blocks == 0) return KGEN_SUCCESS;
    struct call {
        void (*kernel)(Params);
        const Params& params;
        static void enter(const void* self) { static_cast<const call*>(self)->kernel(static_cast<const call*>(self)->params); }
    };
    const call made = {kernel, params};
    const char* error = emulator::run(name, blocks, threads, shared_bytes, cluster, call::enter, &made);
    return error == nullptr ? KGEN_SUCCESS : fail(KGEN_ERROR_LAUNCH, "%s: %s", name, error);
}

template <class Params>
int launch_early(void (*kernel)(Params), const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes,
                 const Params& params, cudaStream_t stream, uint32_t cluster = 1) {
    return launch(kernel, name, blocks, threads, shared_bytes, params, stream, cluster);
}

}  // namespace kgen
