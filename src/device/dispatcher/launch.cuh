// Replaces kgen/launch.cuh where nothing is launched: in ask.cpp, and in a program of benches/.
#pragma once
#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>

#include "kgen.h"

namespace kgen {

inline thread_local char last_error[256] = "";

__attribute__((format(printf, 2, 3))) inline int fail(int code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return code;
}

}  // namespace kgen
