// Q, K, V, dO and the workspace of a backward pass as TMA sees them. Host code.
#pragma once

#include "kgen/bwd_params.cuh"
#include "kgen/tensor_view.cuh"

namespace kgen {

// A tensor on the side of the queries or of the keys; a packed one is one long batch entry.
inline attention_tensor bwd_tensor(const kgen_bwd_params& p, const void* base, bool queries, int64_t batch_stride,
                                   int64_t row_stride, int64_t head_stride) {
    const bool packed = (queries ? p.cu_seqlens_q : p.cu_seqlens_k) != nullptr;
    const int32_t rows = packed ? queries ? p.total_q : p.total_k : queries ? p.seqlen_q : p.seqlen_k;
    attention_tensor tensor = {};
    tensor.base = base;
    tensor.columns = static_cast<uint64_t>(p.head_dim);
    tensor.rows = static_cast<uint64_t>(rows);
    tensor.heads = static_cast<uint64_t>(queries ? p.num_heads : p.num_heads_k);
    tensor.batches = packed ? 1 : static_cast<uint64_t>(p.batch);
    tensor.row_stride = row_stride;
    tensor.head_stride = head_stride;
    tensor.batch_stride = batch_stride;
    return tensor;
}

inline attention_tensor bwd_queries(const kgen_bwd_params& p) {
    return bwd_tensor(p, p.q, true, p.q_batch_stride, p.q_row_stride, p.q_head_stride);
}

inline attention_tensor bwd_output_gradients(const kgen_bwd_params& p) {
    return bwd_tensor(p, p.dout, true, p.dout_batch_stride, p.dout_row_stride, p.dout_head_stride);
}

inline attention_tensor bwd_keys(const kgen_bwd_params& p) {
    return bwd_tensor(p, p.k, false, p.k_batch_stride, p.k_row_stride, p.k_head_stride);
}

inline attention_tensor bwd_values(const kgen_bwd_params& p) {
    return bwd_tensor(p, p.v, false, p.v_batch_stride, p.v_row_stride, p.v_head_stride);
}

// Refuses packed tensors of unknown length: tiles may begin before and end behind a sequence's last row.
inline int require_totals(const kgen_bwd_params& p, const char* name) {
    const bool no_queries = p.cu_seqlens_q != nullptr && p.total_q == 0;
    if (!no_queries && (p.cu_seqlens_k == nullptr || p.total_k != 0)) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_UNSUPPORTED, "%s: %s is 0; TMA needs the rows of a packed tensor", name,
                no_queries ? "total_q" : "total_k");
}

// The shifts and deltas in the workspace, a row for each query tile of each head.
inline tensor_view bwd_row_statistics(const bwd_arguments& p, int block_m) {
    const auto floats = static_cast<uint32_t>(2 * block_m);
    const auto tiles = static_cast<uint64_t>(p.query_tiles) * static_cast<uint64_t>(p.num_heads);
    const auto row_bytes = static_cast<int64_t>(floats * sizeof(float));
    return {p.row_shifts, sizeof(float), 2, {floats, tiles}, {sizeof(float), row_bytes}, {floats, 1},
            tma_swizzle::none};
}

}  // namespace kgen
