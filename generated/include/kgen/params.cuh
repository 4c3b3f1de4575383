// Reading a caller's parameters, of any version of the interface. For the host compiler as well as nvcc.
#pragma once

#include <stddef.h>
#include <string.h>

#include "kgen.h"
#include "kgen/launch.cuh"

namespace kgen {

// Size in bytes of the structure's first version; fields missing from a caller's version are zero.
constexpr size_t FWD_PARAMS_VERSION_1 = offsetof(kgen_fwd_params, q_descale);

constexpr size_t BWD_PARAMS_VERSION_2 = offsetof(kgen_bwd_params, features);

// An upper bound for every version: a larger size means an uninitialised structure.
constexpr size_t LARGEST_PARAMS = 4096;

// Copies a structure of `size` bytes, at least `least` (the size of `version`, the oldest supported), into `params`, of
// this library's version. Fields of a newer caller beyond it must be zero.
template <class Params>
int copy_structure(const Params* given, size_t least, int version, const char* structure, const char* name,
                   Params& params) {
    if (given == nullptr) return fail(KGEN_ERROR_INVALID_VALUE, "%s: params is NULL", name);
    const size_t size = given->struct_size;
    if (size < least || size > LARGEST_PARAMS) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: params.struct_size is %zu; version %d of %s has %zu bytes, version %d has %zu", name, size,
                    version, structure, least, KGEN_ABI_VERSION, sizeof(Params));
    }
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(given);
    for (size_t i = sizeof(Params); i < size; ++i) {
        if (bytes[i] != 0) {
            return fail(
                KGEN_ERROR_UNSUPPORTED,
                "%s: params.struct_size is %zu and byte %zu is not zero; this library is of version %d and knows the first %zu bytes",
                name, size, i, KGEN_ABI_VERSION, sizeof(Params));
        }
    }
    params = {};
    memcpy(static_cast<void*>(&params), given, size < sizeof(Params) ? size : sizeof(Params));
    params.struct_size = sizeof(Params);  // the size of the copy, for launchers that receive it
    return KGEN_SUCCESS;
}

// Refuses a flag about fields that the caller's version does not have.
template <class Params>
int check_has_window(const Params* given, const char* name) {
    constexpr size_t needed = offsetof(Params, features) + sizeof(kgen_attention_features);
    if ((given->flags & KGEN_FLAG_WINDOW) == 0 || given->struct_size >= needed) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE,
                "%s: KGEN_FLAG_WINDOW needs params.features, the first %zu bytes; params.struct_size is %u", name,
                needed, given->struct_size);
}

// Fills in the head dim of V and O if the caller left it 0.
template <class Params>
void read_head_dims(Params& params) {
    if (params.head_dim_v == 0) params.head_dim_v = params.head_dim;
}

// Refuses head dims that no kernel in any library supports.
template <class Params>
int check_head_dims(const Params& params, const char* name) {
    if (params.head_dim > 0 && params.head_dim_v > 0) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE,
                "%s: head_dim %d and head_dim_v %d must be at least 8 (head_dim_v may be 0, for head_dim)", name,
                params.head_dim, params.head_dim_v);
}

inline int copy_fwd_params(const kgen_fwd_params* given, const char* name, kgen_fwd_params& params) {
    if (const int code = copy_structure(given, FWD_PARAMS_VERSION_1, 1, "kgen_fwd_params", name, params)) return code;
    if (params.reserved_2 != 0)
        return fail(KGEN_ERROR_UNSUPPORTED, "%s: params.reserved_2 is %d and must be 0", name, params.reserved_2);
    if (params.reserved != 0)
        return fail(KGEN_ERROR_UNSUPPORTED, "%s: params.reserved is %d and must be 0", name, params.reserved);
    read_head_dims(params);
    return check_has_window(given, name);
}

inline int copy_bwd_params(const kgen_bwd_params* given, const char* name, kgen_bwd_params& params) {
    if (const int code = copy_structure(given, BWD_PARAMS_VERSION_2, 2, "kgen_bwd_params", name, params)) return code;
    read_head_dims(params);
    return check_has_window(given, name);
}

// Refuses flags that are not among `known`.
inline int check_flags(uint32_t flags, uint32_t known, const char* name) {
    if ((flags & ~known) == 0) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_UNSUPPORTED, "%s: unknown flags 0x%x; version %d of the library knows 0x%x here", name,
                flags & ~known, KGEN_ABI_VERSION, known);
}

}  // namespace kgen
