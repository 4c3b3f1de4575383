// Refusals: every argument of an op is either honoured or named in an exception.
//
// Python sees a RuntimeError, for example
//   _vllm_fa3_C.fwd: `cp_world_size` is 2: context parallelism is not provided
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

#include "kgen.h"

namespace kgen_torch {

template <class... Parts>
[[noreturn]] void refuse(const char* op, const Parts&... parts) {
    std::ostringstream text;
    text << op << ": ";
    (text << ... << parts);
    throw std::runtime_error(text.str());
}

// Refuses unless `holds`. The message is only assembled in that case.
template <class... Parts>
void require(bool holds, const char* op, const Parts&... parts) {
    if (!holds) refuse(op, parts...);
}

// Refuses with the library's own message unless a call of libkgen succeeded.
inline void require_success(int code, const char* op) {
    if (code != KGEN_SUCCESS) refuse(op, kgen_last_error(), " (kgen error ", code, ")");
}

// Reports that Torch could not allocate a tensor of `elements` elements. Its stable interface writes the reason to
// stderr and does not return it.
[[noreturn]] inline void refuse_allocation(int64_t elements) {
    throw std::runtime_error("Torch could not allocate " + std::to_string(elements) + " elements; its own message (out of memory, for example) is on stderr");
}

}  // namespace kgen_torch
