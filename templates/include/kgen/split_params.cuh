// Split-KV: how the keys of a sequence are shared out over blocks, and where the partial results lie until
// fwd_combine has merged them.
//
// The workspace, for total_q query rows (cu_seqlens_q: params.total_q, or batch * seqlen_q where that is 0; otherwise
// batch * seqlen_q), row i of sequence b being row cu_seqlens_q[b] + i or b * seqlen_q + i:
//
//   partial O    fp32 [num_splits][total_q][num_heads][head_dim], normalised within its split
//   partial LSE  fp32 [num_splits][total_q][num_heads], natural logarithms; -infinity where the split holds no key that
//                the row sees, and partial O is then undefined
//
// Only splits below the sequence's count and rows that take part are written.
#pragma once

#include "kgen.h"
#include "kgen/fwd_params.cuh"

namespace kgen {

constexpr int MOST_SPLITS = 256;

// Splits are cut between multiples of this many keys.
constexpr int SPLIT_KEYS = 16;

// A split of fewer of them (128 keys) would take longer to start and to merge than to read.
constexpr int SPLIT_LEAST = 8;

// Rows of the tiles that the scheduler counts: query rows of all heads that read one key head.
constexpr int SPLIT_TILE_ROWS = 16;

KGEN_HOST_DEVICE int64_t split_total_rows(const kgen_fwd_params& p) {
    return p.cu_seqlens_q != nullptr && p.total_q > 0 ? p.total_q : static_cast<int64_t>(p.batch) * p.seqlen_q;
}

// Rows of the workspace: a row for each query row, head and split.
KGEN_HOST_DEVICE int64_t split_workspace_rows(const kgen_fwd_params& p) { return split_total_rows(p) * p.num_heads * p.num_splits; }

KGEN_HOST_DEVICE uint64_t split_workspace_bytes(const kgen_fwd_params& p) {
    return static_cast<uint64_t>(split_workspace_rows(p)) * (p.head_dim + 1) * sizeof(float);
}

// The workspace's row of a split, a query of a sequence, and a head.
KGEN_DEVICE int64_t split_workspace_row(const kgen_fwd_params& p, int split, sequence queries, int batch, int query, int head) {
    const int64_t first = queries.packed ? queries.first_row : static_cast<int64_t>(batch) * p.seqlen_q;
    return (split * split_total_rows(p) + first + query) * p.num_heads + head;
}

KGEN_DEVICE float* split_output(const kgen_fwd_params& p, int64_t row) { return static_cast<float*>(p.workspace) + row * p.head_dim; }

KGEN_DEVICE float* split_lse(const kgen_fwd_params& p, int64_t row) { return static_cast<float*>(p.workspace) + split_workspace_rows(p) * p.head_dim + row; }

// How many splits the keys of a sequence are shared out over.
KGEN_DEVICE int split_count(const kgen_fwd_params& p, int batch) {
    return p.split_counts == nullptr ? p.num_splits : min(load_global(p.split_counts + batch), p.num_splits);
}

// Keys [first, end) of a split, of `keys` keys shared out over `splits`: whole units of SPLIT_KEYS, as evenly as they go.
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

// Checks what the split-KV kernels need beyond the shapes.
inline int check_split_params(const kgen_fwd_params& p, const char* name) {
    if (p.num_splits < 1 || p.num_splits > MOST_SPLITS) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: num_splits %d must lie in 1 .. %d", name, p.num_splits, MOST_SPLITS);
    }
    if (p.total_q < 0) return fail(KGEN_ERROR_INVALID_VALUE, "%s: total_q %d must not be negative", name, p.total_q);
    return KGEN_SUCCESS;
}

inline int check_split_workspace(const kgen_fwd_params& p, const char* name) {
    const uint64_t bytes = split_workspace_bytes(p);
    if (p.workspace == nullptr || p.workspace_bytes < bytes) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: the workspace has %zu bytes; %d splits need %llu", name,
                    p.workspace == nullptr ? static_cast<size_t>(0) : p.workspace_bytes, p.num_splits, static_cast<unsigned long long>(bytes));
    }
    if (reinterpret_cast<uintptr_t>(p.workspace) % 16 != 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: the workspace is not aligned to 16 bytes", name);
    }
    return KGEN_SUCCESS;
}

}  // namespace kgen
