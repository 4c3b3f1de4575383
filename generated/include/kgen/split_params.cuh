// Split-KV on the device: the division of a sequence's keys among blocks, and the location of partial results in the
// workspace (kgen/split_plan.cuh).
#pragma once

#include "kgen.h"
#include "kgen/fwd_params.cuh"
#include "kgen/split_plan.cuh"

namespace kgen {

// The row of the workspace for a split, a query of a sequence, and a head.
KGEN_DEVICE int64_t split_workspace_row(const kgen_fwd_params& p, int split, sequence queries, int batch, int query,
                                        int head) {
    const int64_t first = parts_lie_as_queries(p) ? queries.first_row : static_cast<int64_t>(batch) * p.seqlen_q;
    return (split * split_total_rows(p) + first + query) * p.num_heads + head;
}

KGEN_DEVICE float* split_output(const kgen_fwd_params& p, int64_t row) {
    return static_cast<float*>(p.workspace) + row * p.head_dim_v;
}

KGEN_DEVICE float* split_lse(const kgen_fwd_params& p, int64_t row) {
    return static_cast<float*>(p.workspace) + split_workspace_rows(p) * p.head_dim_v + row;
}

// The number of splits of a sequence's keys.
KGEN_DEVICE int split_count(const kgen_fwd_params& p, int batch) {
    return p.split_counts == nullptr ? p.num_splits : min(load_global(p.split_counts + batch), p.num_splits);
}

// True if the kernel that computes a sequence's only split writes its final O and LSE. fwd_combine skips such
// sequences.
KGEN_DEVICE bool writes_whole(const kgen_fwd_params& p, int splits) {
    return is_whole(p) || (p.split_counts != nullptr && splits == 1);
}

// Keys [first, end) of a split, with `keys` keys divided among `splits`: whole units of SPLIT_KEYS, as evenly as
// possible.
struct key_range {
    int first, end;
};

KGEN_DEVICE key_range split_keys(int keys, int split, int splits) {
    const int units = (keys + SPLIT_KEYS - 1) / SPLIT_KEYS;
    const int each = units / splits, more = units % splits;  // the first `more` splits have one unit more
    const int first = split * each + min(split, more);
    const int count = each + (split < more ? 1 : 0);
    return {min(keys, first * SPLIT_KEYS), min(keys, (first + count) * SPLIT_KEYS)};
}

}  // namespace kgen
