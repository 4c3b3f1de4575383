// Contiguous tensors: the launchers' checks before they start a kernel. For the host compiler as well as nvcc.
#pragma once

#include <stddef.h>
#include <string.h>

#include "kgen.h"
#include "kgen/launch.cuh"
#include "kgen/params.cuh"

namespace kgen {

// The version of the interface that introduced the structures of these families.
constexpr int FAMILIES_VERSION = 3;

// Copies the caller's structure, which has had only one version so far. No flags are defined yet.
template <class Params>
int copy_params(const Params* given, const char* name, const char* structure, Params& params) {
    if (const int code = copy_structure(given, sizeof(Params), FAMILIES_VERSION, structure, name, params)) return code;
    return check_flags(params.flags, 0, name);
}

// Refuses an element type other than the kernel's.
inline int check_dtype(int32_t dtype, int32_t own, const char* own_name, const char* name) {
    if (dtype == own) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_MISMATCH, "%s: params.dtype is %d; this kernel is made for %d (%s)", name, dtype, own,
                own_name);
}

// The memory that a parameter points to.
struct span {
    const char* what;
    const void* start;
    uint64_t bytes;
};

// Refuses NULL and memory that is not aligned to its elements. An empty span is always accepted.
inline int check_span(const span& s, size_t element_bytes, const char* name) {
    if (s.bytes == 0) return KGEN_SUCCESS;
    if (s.start == nullptr) return fail(KGEN_ERROR_INVALID_VALUE, "%s: %s must not be NULL", name, s.what);
    if (reinterpret_cast<uintptr_t>(s.start) % element_bytes == 0) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE, "%s: %s must be a multiple of %zu bytes, the size of an element", name,
                s.what, element_bytes);
}

// Refuses an output that overlaps an input: blocks run in any order and would read what other blocks have written.
inline int check_apart(const span& input, const span& output, const char* name) {
    const auto in = reinterpret_cast<uintptr_t>(input.start), out = reinterpret_cast<uintptr_t>(output.start);
    if (input.bytes == 0 || output.bytes == 0 || (in < out ? out - in >= input.bytes : in - out >= output.bytes))
        return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE, "%s: %s overlaps %s; give it memory of its own", name, output.what,
                input.what);
}

// Bytes from the last 16-byte boundary to `pointer`.
inline uint32_t offset_in_piece(const void* pointer) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pointer) % 16);
}

// Elements before the first 16-byte boundary at or after `pointer`: all of them if they end before it.
inline uint64_t elements_to_piece(const void* pointer, size_t element_bytes, uint64_t count) {
    const uint64_t elements = (16 - offset_in_piece(pointer)) % 16 / element_bytes;
    return elements < count ? elements : count;
}

// Refuses more blocks than a grid allows along x (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability").
inline int check_grid(uint64_t blocks, const char* name) {
    if (blocks <= INT32_MAX) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE, "%s: this takes %llu blocks, more than a grid has, 2^31 - 1", name,
                static_cast<unsigned long long>(blocks));
}

}  // namespace kgen
