// Q, K, V and O of a forward pass as TMA sees them. Host code.
#pragma once

#include "kgen.h"
#include "kgen/tensor_view.cuh"

namespace kgen {

// Pages are batch entries. A packed tensor is one long batch entry. If its number of rows is unknown, the map is
// unbounded; none is needed, since kernels fetch only tiles inside a sequence. The entries of a cache that are chosen
// by an index are unbounded too: their number is unknown.
inline attention_tensor key_tensor(const kgen_fwd_params& p, const void* base, int32_t columns, int64_t batch_stride,
                                   int64_t row_stride, int64_t head_stride) {
    attention_tensor tensor = {};
    tensor.base = base;
    tensor.columns = static_cast<uint64_t>(columns);
    const bool paged = p.page_table != nullptr;
    tensor.rows = static_cast<uint64_t>(paged ? p.page_size : p.cu_seqlens_k == nullptr ? p.seqlen_k
                                              : p.total_k > 0 ? p.total_k : INT32_MAX);
    tensor.heads = static_cast<uint64_t>(p.num_heads_k);
    const int32_t entries = p.cache_batch_idx != nullptr ? INT32_MAX : p.batch;
    tensor.batches = static_cast<uint64_t>(paged ? p.num_pages : p.cu_seqlens_k == nullptr ? entries : 1);
    tensor.row_stride = row_stride;
    tensor.head_stride = head_stride;
    tensor.batch_stride = batch_stride;
    return tensor;
}

inline attention_tensor fwd_queries(const kgen_fwd_params& p) {
    attention_tensor tensor = {};
    tensor.base = p.q;
    tensor.columns = static_cast<uint64_t>(p.head_dim);
    tensor.rows = static_cast<uint64_t>(p.cu_seqlens_q == nullptr ? p.seqlen_q : p.total_q > 0 ? p.total_q : INT32_MAX);
    tensor.heads = static_cast<uint64_t>(p.num_heads);
    tensor.batches = p.cu_seqlens_q == nullptr ? static_cast<uint64_t>(p.batch) : 1;
    tensor.row_stride = p.q_row_stride;
    tensor.head_stride = p.q_head_stride;
    tensor.batch_stride = p.q_batch_stride;
    return tensor;
}

// O has the shape of Q, with V's columns.
inline attention_tensor fwd_outputs(const kgen_fwd_params& p) {
    attention_tensor tensor = fwd_queries(p);
    tensor.base = p.o;
    tensor.columns = static_cast<uint64_t>(p.head_dim_v);
    tensor.row_stride = p.o_row_stride;
    tensor.head_stride = p.o_head_stride;
    tensor.batch_stride = p.o_batch_stride;
    return tensor;
}

inline attention_tensor fwd_keys(const kgen_fwd_params& p) {
    return key_tensor(p, p.k, p.head_dim, p.k_batch_stride, p.k_row_stride, p.k_head_stride);
}

inline attention_tensor fwd_values(const kgen_fwd_params& p) {
    return key_tensor(p, p.v, p.head_dim_v, p.v_batch_stride, p.v_row_stride, p.v_head_stride);
}

}  // namespace kgen
