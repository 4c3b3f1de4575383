// The number of packed query rows that a workspace must hold. For the host compiler as well as nvcc.
#pragma once

#include "kgen.h"
#include "kgen/launch.cuh"

namespace kgen {

// True if batch * seqlen_q or total_q bounds the rows of packed queries. If seqused_q is given too, rows that belong to
// no sequence come between the sequences, and only total_q counts them.
template <class Params>
inline bool query_rows_are_bounded(const Params& p) {
    return p.cu_seqlens_q == nullptr || p.seqused_q == nullptr || p.total_q > 0;
}

inline int refuse_unbounded_queries(const char* name) {
    return fail(KGEN_ERROR_INVALID_VALUE,
                "%s: total_q is 0; with both cu_seqlens_q and seqused_q it must be cu_seqlens_q's last entry or more",
                name);
}

}  // namespace kgen
