// Checks of the parameters for new rows of K and V (kgen_fwd_params.k_new). For the host compiler as well as nvcc.
#pragma once

#include "kgen.h"
#include "kgen/launch.cuh"

namespace kgen {

// Checks the fields for new rows. Without new rows none of them is read.
inline int check_new_rows(const kgen_fwd_params& p, const char* name) {
    const auto refuse = [&](const char* what) { return fail(KGEN_ERROR_INVALID_VALUE, "%s: %s", name, what); };
    if (p.k_new == nullptr) return KGEN_SUCCESS;
    if (p.v_new == nullptr) return refuse("v_new must not be NULL with k_new");
    if (p.seqused_k == nullptr) return refuse("k_new needs seqused_k, the keys before the new ones");
    if (p.cu_seqlens_k != nullptr)
        return refuse("cu_seqlens_k must be NULL with k_new: the rows of a packed tensor are followed by others");
    if (p.seqlen_new < 0)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: seqlen_new %d must not be negative", name, p.seqlen_new);
    if (p.least_queries != 0 || p.most_queries != 0)
        return refuse("least_queries and most_queries must be 0 with k_new");
    if ((p.rotary_cos == nullptr) != (p.rotary_sin == nullptr))
        return refuse("rotary_cos and rotary_sin must both be given or both be NULL");
    if (p.rotary_cos == nullptr) {
        if (p.rotary_dim != 0)
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: rotary_dim %d must be 0 without rotary_cos", name, p.rotary_dim);
        return p.seqlens_rotary == nullptr ? KGEN_SUCCESS : refuse("seqlens_rotary needs rotary_cos");
    }
    if (p.rotary_dim < 16 || p.rotary_dim > p.head_dim || p.rotary_dim % 16 != 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: rotary_dim %d must be a multiple of 16 in 16 .. head_dim %d", name,
                    p.rotary_dim, p.head_dim);
    }
    if (p.rotary_rows < 1)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: rotary_rows %d must be at least 1", name, p.rotary_rows);
    return KGEN_SUCCESS;
}

}  // namespace kgen
