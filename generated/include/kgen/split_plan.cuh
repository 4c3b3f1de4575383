// Split-KV on the host: the workspace, the launchers' checks, and the largest useful number of splits for a request.
// For the host compiler as well as nvcc.
//
// The workspace has rows for the queries below seqlen_q of each sequence: row i of sequence b is row b * seqlen_q + i,
// or cu_seqlens_q[b] + i if that takes fewer rows (total_q is given and below batch * seqlen_q):
//
//   partial O    fp32 [num_splits][rows][num_heads][head_dim_v], normalised within its split
//   partial LSE  fp32 [num_splits][rows][num_heads], natural logarithms; -infinity if the split holds no key that
//                the row sees, and partial O is then undefined
//
// Only splits below the sequence's count, and rows that take part, are written.
#pragma once

#include "kgen.h"
#include "kgen/blocks.cuh"
#include "kgen/features.cuh"
#include "kgen/launch.cuh"
#include "kgen/split_sizes.cuh"

#ifndef KGEN_HOST_DEVICE
#define KGEN_HOST_DEVICE inline  // for the host compiler, which cannot read platform.cuh
#endif

namespace kgen {

// True if the workspace's rows are numbered like those of the packed queries.
KGEN_HOST_DEVICE bool parts_lie_as_queries(const kgen_fwd_params& p) {
    return p.cu_seqlens_q != nullptr && p.total_q > 0 && p.total_q < static_cast<int64_t>(p.batch) * p.seqlen_q;
}

KGEN_HOST_DEVICE int64_t split_total_rows(const kgen_fwd_params& p) {
    return parts_lie_as_queries(p) ? p.total_q : static_cast<int64_t>(p.batch) * p.seqlen_q;
}

// Rows of the workspace: a row for each query row, head and split.
KGEN_HOST_DEVICE int64_t split_workspace_rows(const kgen_fwd_params& p) {
    return split_total_rows(p) * p.num_heads * p.num_splits;
}

// Saturates at 2^64 - 1. The sizes are at least 0, and batch * seqlen_q always fits.
inline uint64_t split_workspace_bytes(const kgen_fwd_params& p) {
    return product(split_total_rows(p), p.num_heads, p.num_splits, p.head_dim_v + 1, sizeof(float));
}

// Checks the numbers that only the split-KV kernels read.
inline int check_split_numbers(const kgen_fwd_params& p, const char* name) {
    if (p.num_splits < 1 || p.num_splits > MOST_SPLITS) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: num_splits %d must lie in 1 .. %d", name, p.num_splits, MOST_SPLITS);
    }
    if (p.total_q < 0) return fail(KGEN_ERROR_INVALID_VALUE, "%s: total_q %d must not be negative", name, p.total_q);
    return KGEN_SUCCESS;
}

// True if fwd_split writes final O and LSE: one split, and no workspace.
KGEN_HOST_DEVICE bool is_whole(const kgen_fwd_params& p) { return p.num_splits == 1 && p.workspace == nullptr; }

// True if the blocks of fwd_split merge partial results themselves.
KGEN_HOST_DEVICE bool merges_by_last_block(const kgen_fwd_params& p) { return p.arrivals != nullptr && !is_whole(p); }

// A word holds the counters of this many row tiles, a byte each: at most MOST_COUNTED blocks of a tile are counted.
constexpr int TILES_A_WORD = 4;
constexpr int MOST_COUNTED = 255;

// Words of counters for a launch with row tiles of `tile_rows` rows; each tile counts its finished blocks. Saturates.
inline uint64_t split_counters(const kgen_fwd_params& p, uint64_t tile_rows) {
    const uint64_t tiles = product(tiles_of(product(p.seqlen_q, p.num_heads / p.num_heads_k), tile_rows), p.num_heads_k,
                                   p.batch);
    return tiles / TILES_A_WORD + (tiles % TILES_A_WORD != 0);
}

// Checks the counters of a launch of fwd_split with tiles of `tile_rows` rows.
inline int check_arrivals(const kgen_fwd_params& p, uint64_t tile_rows, const char* name) {
    if (!merges_by_last_block(p)) return KGEN_SUCCESS;
    if (p.num_splits > MOST_COUNTED) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: num_splits %d; with counters (arrivals) at most %d", name,
                    p.num_splits, MOST_COUNTED);
    }
    const uint64_t words = split_counters(p, tile_rows);
    if (p.arrivals_count >= 0 && static_cast<uint64_t>(p.arrivals_count) >= words) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE, "%s: arrivals_count is %lld; the row tiles need %llu", name,
                static_cast<long long>(p.arrivals_count), static_cast<unsigned long long>(words));
}

inline int check_split_workspace(const kgen_fwd_params& p, const char* name) {
    const uint64_t bytes = split_workspace_bytes(p);
    if (p.workspace == nullptr || p.workspace_bytes < bytes) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: the workspace has %zu bytes; %d splits need %llu", name,
                    p.workspace == nullptr ? static_cast<size_t>(0) : p.workspace_bytes, p.num_splits,
                    static_cast<unsigned long long>(bytes));
    }
    if (reinterpret_cast<uintptr_t>(p.workspace) % 16 != 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: the workspace is not aligned to 16 bytes", name);
    }
    return KGEN_SUCCESS;
}

// Checks a launch of fwd or fwd_short whose blocks share the keys of a query tile. Each sequence has num_splits splits,
// which fwd_combine merges.
inline int check_shared_tiles(const kgen_fwd_params& p, const char* name) {
    if (const int code = check_split_numbers(p, name)) return code;
    if (p.split_counts != nullptr || p.arrivals != nullptr) {
        return fail(KGEN_ERROR_UNSUPPORTED,
                    "%s: %s is given; this kernel has num_splits splits of each sequence, merged "
                    "by a launch of fwd_combine", name, p.split_counts != nullptr ? "split_counts" : "arrivals");
    }
    return check_split_workspace(p, name);
}

// Row tiles of one sequence of seqlen_q queries, over all key heads: fewer than 2^59.
inline int64_t split_tiles(const kgen_fwd_params& p) {
    const uint64_t rows = product(p.seqlen_q, p.num_heads / p.num_heads_k);
    return static_cast<int64_t>(tiles_of(rows, SPLIT_TILE_ROWS) * p.num_heads_k);
}

// The largest useful number of splits for any sequence of a batch of unequal lengths: one sequence should not fill the
// GPU more than once.
inline int32_t most_split_count(const kgen_fwd_params& p, int64_t blocks) {
    const int64_t tiles = split_tiles(p);
    const int64_t at_once = tiles < blocks ? blocks / tiles : 1;
    const int32_t seen = most_keys_seen(p.features), keys = seen < p.seqlen_k ? seen : p.seqlen_k;
    const int64_t worthwhile = (static_cast<int64_t>(keys) + SPLIT_KEYS * SPLIT_LEAST - 1) / (SPLIT_KEYS * SPLIT_LEAST);
    const int64_t splits = at_once < worthwhile ? at_once : worthwhile;
    return splits < MOST_COUNTED ? static_cast<int32_t>(splits) : MOST_COUNTED;  // last blocks may merge them
}

}  // namespace kgen
