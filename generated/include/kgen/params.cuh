// Reading a caller's parameters, of whatever version of the interface. For the host compiler as well as nvcc.
#pragma once

#include <stddef.h>
#include <string.h>

#include "kgen.h"
#include "kgen/launch.cuh"

namespace kgen {

// Bytes of the structure's first version; what a caller's version lacks is zero.
constexpr size_t FWD_PARAMS_VERSION_1 = offsetof(kgen_fwd_params, q_descale);

// Copies the caller's structure, of whatever version, into `params`.
inline int copy_fwd_params(const kgen_fwd_params* given, const char* name, kgen_fwd_params& params) {
    if (given == nullptr) return fail(KGEN_ERROR_INVALID_VALUE, "%s: params is NULL", name);
    const size_t size = given->struct_size;
    if (size < FWD_PARAMS_VERSION_1) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: params.struct_size is %zu; version 1 of kgen_fwd_params has %zu bytes, version %d has %zu",
                    name, size, FWD_PARAMS_VERSION_1, KGEN_ABI_VERSION, sizeof(kgen_fwd_params));
    }
    params = {};
    memcpy(&params, given, size < sizeof params ? size : sizeof params);
    return KGEN_SUCCESS;
}

// The same for a backward pass, whose structure has had one version so far.
inline int copy_bwd_params(const kgen_bwd_params* given, const char* name, kgen_bwd_params& params) {
    if (given == nullptr) return fail(KGEN_ERROR_INVALID_VALUE, "%s: params is NULL", name);
    const size_t size = given->struct_size;
    if (size < sizeof(kgen_bwd_params)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: params.struct_size is %zu; version %d of kgen_bwd_params has %zu bytes", name, size, KGEN_ABI_VERSION,
                    sizeof(kgen_bwd_params));
    }
    params = *given;
    return KGEN_SUCCESS;
}

}  // namespace kgen
