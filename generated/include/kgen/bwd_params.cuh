// Parameter handling common to all backward kernels: the launcher's checks, and the layout of the workspace.
#pragma once

#include "kgen.h"
#include "kgen/fwd_params.cuh"
#include "kgen/query_rows.cuh"

namespace kgen {

// The parameters of the kernels of one backward pass. Query rows are cut into tiles; every tile of every head has a
// place in the workspace, and those of one head are consecutive.
struct bwd_arguments : kgen_bwd_params {
    float* dq_sums;       // dQ / scale in fp32, tile after tile; NULL: a deterministic pass, which sums in registers
    float* row_shifts;    // two floats for each row of a tile: first all shifts, then all deltas of the tile
    int32_t query_tiles;  // of one head, over all sequences
    // of the scores, in powers of two; stored here, so that kernels read it from constant memory each time
    float log2_scale;
    // from products to the cap's units, in which scores are then left; below 0: no cap, scores are left as they are
    float to_cap;
};

// The first tile of a sequence and head. Tiles of a packed sequence start as if every earlier sequence had one more
// whole tile.
template <int BLOCK_M>
KGEN_DEVICE int first_tile_of(const bwd_arguments& p, sequence queries, int batch, int head) {
    return head * p.query_tiles +
           (queries.packed ? queries.first_row / BLOCK_M + batch : batch * ((p.seqlen_q + BLOCK_M - 1) / BLOCK_M));
}

// The layout of a variant's tiles.
struct bwd_tiling {
    int block_m;
    size_t dq_floats;  // of a tile's sums
};

// Fills in the offsets in the workspace; returns its size in bytes, or 0 if the tile count does not fit 32 bits.
inline size_t place_workspace(bwd_arguments& p, const bwd_tiling& tiling) {
    const int64_t packed_rows = p.total_q > 0 ? p.total_q : static_cast<int64_t>(p.batch) * p.seqlen_q;
    const int64_t tiles = p.cu_seqlens_q != nullptr ? packed_rows / tiling.block_m + p.batch
                                                    : static_cast<int64_t>(p.batch) *
                                                      ((p.seqlen_q + tiling.block_m - 1) / tiling.block_m);
    if (tiles > INT32_MAX || tiles * p.num_heads > INT32_MAX) return 0;
    const size_t all = static_cast<size_t>(tiles) * p.num_heads;
    p.query_tiles = static_cast<int32_t>(tiles);
    const bool deterministic = (p.flags & KGEN_FLAG_DETERMINISTIC) != 0;
    const size_t shift_floats = all * 2 * tiling.block_m;
    const size_t sum_floats = deterministic ? 0 : all * tiling.dq_floats;
    p.row_shifts = static_cast<float*>(p.workspace);
    p.dq_sums = deterministic ? nullptr : p.row_shifts + shift_floats;
    const size_t bytes = (shift_floats + sum_floats) * sizeof(float);
    return bytes > 0 ? bytes : 16;
}

// Refuses `dbias` without a bias or with a sum over keys, and sums in no fixed order if a fixed one is requested.
inline int check_bias_gradient(const kgen_bwd_params& p, const char* name) {
    if (p.dbias == nullptr) return KGEN_SUCCESS;
    if (p.bias == nullptr)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: dbias is given and bias is NULL; give both, or no dbias", name);
    if (p.dbias_column_stride == 0 && p.seqlen_k > 1)
        return fail(KGEN_ERROR_UNSUPPORTED,
                    "%s: dbias_column_stride is 0; the gradient of a bias is not summed over keys", name);
    struct {
        const char* name;
        const char* what;
        int64_t stride;
        int32_t extent;
    } const axes[] = {{"dbias_batch_stride", "batch entries", p.dbias_batch_stride, p.batch},
                      {"dbias_head_stride", "heads", p.dbias_head_stride, p.num_heads},
                      {"dbias_row_stride", "rows", p.dbias_row_stride, p.seqlen_q}};
    for (const auto& axis : axes) {
        if ((p.flags & KGEN_FLAG_DETERMINISTIC) == 0 || axis.stride != 0 || axis.extent <= 1) continue;
        return fail(KGEN_ERROR_UNSUPPORTED,
                    "%s: %s 0 sums over %d %s in no fixed order, and KGEN_FLAG_DETERMINISTIC is set", name, axis.name,
                    axis.extent, axis.what);
    }
    return KGEN_SUCCESS;
}

// Checks everything except the pointers to tensors; `bytes` receives the size of the workspace.
template <class Arguments>
int check_bwd_numbers(const kgen_bwd_params* given, const fwd_identity& self, const bwd_tiling& tiling, Arguments& p,
                      size_t& bytes) {
    if (const int code = copy_bwd_params(given, self.name, p)) return code;
    if (const int code = check_numbers(p, FEATURE_FLAGS | KGEN_FLAG_DETERMINISTIC, self)) return code;
    if (p.cu_seqlens_q != nullptr && p.total_q < 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: total_q is %d; it must be cu_seqlens_q's last entry, or 0",
                    self.name, p.total_q);
    }
    if (p.cu_seqlens_k != nullptr && p.total_k < 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: total_k is %d; it must be cu_seqlens_k's last entry, or 0",
                    self.name, p.total_k);
    }
    if (!query_rows_are_bounded(p)) return refuse_unbounded_queries(self.name);
    if (p.dsinks != nullptr && p.features.sinks == nullptr) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: dsinks is given and features.sinks is NULL; give both, or no dsinks",
                    self.name);
    }
    if (const int code = check_bias_gradient(p, self.name)) return code;
    // A scale of 0 is replaced by one too small to change any exponential, so that a masked key stays at -infinity.
    const bool has_cap = p.features.softcap > 0.0f;
    p.to_cap = has_cap ? p.softmax_scale / p.features.softcap : -1.0f;
    const float log2_scale = (has_cap ? p.features.softcap : p.softmax_scale) * 1.44269504088896341f;
    p.log2_scale = log2_scale > 1e-30f ? log2_scale : 1e-30f;
    bytes = place_workspace(p, tiling);
    if (bytes == 0)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: %d sequences of up to %d queries are too many", self.name, p.batch,
                    p.seqlen_q);
    return KGEN_SUCCESS;
}

// The result of <name>_workspace().
inline size_t bwd_workspace(const kgen_bwd_params* given, const fwd_identity& self, const bwd_tiling& tiling) {
    bwd_arguments p = {};
    size_t bytes = 0;
    return check_bwd_numbers(given, self, tiling, p, bytes) == KGEN_SUCCESS ? bytes : 0;
}

// Copies the caller's structure, of any version, into `p`, checks every documented range, and lays out the workspace.
template <class Arguments>
int check_bwd_params(const kgen_bwd_params* given, const fwd_identity& self, const bwd_tiling& tiling, Arguments& p) {
    size_t bytes = 0;
    if (const int code = check_bwd_numbers(given, self, tiling, p, bytes)) return code;
    const bool has_queries = p.batch > 0 && p.seqlen_q > 0;
    const bool has_keys = p.batch > 0 && p.seqlen_k > 0;
    if (has_queries && (p.q == nullptr || p.o == nullptr || p.dout == nullptr || p.lse == nullptr || p.dq == nullptr)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: q, o, dout, lse and dq must not be NULL", self.name);
    }
    if (has_keys && (p.k == nullptr || p.v == nullptr || p.dk == nullptr || p.dv == nullptr)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: k, v, dk and dv must not be NULL", self.name);
    }
    if (const int code = p.batch > 0 ? check_bwd_strides(p, self.name) : KGEN_SUCCESS) return code;
    if (has_queries &&
        (p.workspace == nullptr || p.workspace_bytes < bytes || reinterpret_cast<uintptr_t>(p.workspace) % 16 != 0)) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: workspace must be 16-byte aligned and have %zu bytes; given %zu at %p", self.name, bytes,
                    p.workspace_bytes, p.workspace);
    }
    return KGEN_SUCCESS;
}

inline bool bwd_is_aligned(const kgen_bwd_params& p) {
    return rows_are_aligned(p.q, p.cu_seqlens_q ? 0 : p.q_batch_stride, p.q_row_stride, p.q_head_stride) &&
           rows_are_aligned(p.k, p.cu_seqlens_k ? 0 : p.k_batch_stride, p.k_row_stride, p.k_head_stride) &&
           rows_are_aligned(p.v, p.cu_seqlens_k ? 0 : p.v_batch_stride, p.v_row_stride, p.v_head_stride) &&
           rows_are_aligned(p.o, p.cu_seqlens_q ? 0 : p.o_batch_stride, p.o_row_stride, p.o_head_stride) &&
           rows_are_aligned(p.dout, p.cu_seqlens_q ? 0 : p.dout_batch_stride, p.dout_row_stride, p.dout_head_stride) &&
           rows_are_aligned(p.dq, p.cu_seqlens_q ? 0 : p.dq_batch_stride, p.dq_row_stride, p.dq_head_stride) &&
           rows_are_aligned(p.dk, p.cu_seqlens_k ? 0 : p.dk_batch_stride, p.dk_row_stride, p.dk_head_stride) &&
           rows_are_aligned(p.dv, p.cu_seqlens_k ? 0 : p.dv_batch_stride, p.dv_row_stride, p.dv_head_stride);
}

}  // namespace kgen
