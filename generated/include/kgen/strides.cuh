// Checks for strides with which the address of an element would exceed 64 bits: no memory is that large, and kernels,
// which compute offsets without overflow checks, would wrap around. For the host compiler as well as nvcc.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kgen.h"
#include "kgen/launch.cuh"

namespace kgen {

// A stride, by its name in kgen.h, and the elements of its dimension.
struct named_stride {
    const char* name;
    int64_t stride;
    int64_t extent;
};

// The largest distance that one stride may span, in elements: three of them, with elements of up to 4 bytes, stay below
// 2^63 bytes.
constexpr uint64_t FURTHEST = uint64_t{1} << 59;

// Refuses a stride that spans too far. The stride of a dimension with at most one element is not read.
template <size_t COUNT>
int check_strides(const named_stride (&all)[COUNT], const char* name) {
    for (const named_stride& one : all) {
        const uint64_t magnitude = one.stride < 0 ? 0 - static_cast<uint64_t>(one.stride)
                                                  : static_cast<uint64_t>(one.stride);
        uint64_t reach;
        if (one.extent <= 1 ||
            (!__builtin_mul_overflow(magnitude, static_cast<uint64_t>(one.extent - 1), &reach) && reach <= FURTHEST))
            continue;
        return fail(
            KGEN_ERROR_INVALID_VALUE,
            "%s: %s %lld leads %lld times beyond what memory can have; elements must lie within 2^59 of the first",
            name, one.name, static_cast<long long>(one.stride), static_cast<long long>(one.extent - 1));
    }
    return KGEN_SUCCESS;
}

// Rows that a tensor of sequences may have along its row axis, and its batch entries. `total`: 0 if unknown.
struct rows_and_entries {
    int64_t rows, entries;
};
inline rows_and_entries extents_of(const int32_t* cu_seqlens, int32_t total, int32_t seqlen, int32_t batch) {
    if (cu_seqlens == nullptr) return {seqlen, batch};
    return {total > 0 ? total : INT32_MAX, 1};
}

// Checks the strides of a forward pass that are read.
inline int check_fwd_strides(const kgen_fwd_params& p, const char* name) {
    const rows_and_entries q = extents_of(p.cu_seqlens_q, p.total_q, p.seqlen_q, p.batch);
    rows_and_entries k = extents_of(p.cu_seqlens_k, p.total_k, p.seqlen_k, p.batch);
    if (p.page_table != nullptr) k = {p.page_size, p.num_pages};
    else if (p.cache_batch_idx != nullptr) k.entries = p.cache_entries > 0 ? p.cache_entries : INT32_MAX;
    if (p.seqlen_k == 0) k = {0, 0};
    const int64_t entries = p.batch, heads = p.num_heads, heads_k = k.rows > 0 ? p.num_heads_k : 0,
        lse_heads = p.lse != nullptr ? heads : 0;
    const named_stride all[] = {
        {"q_batch_stride", p.q_batch_stride, q.entries}, {"q_row_stride", p.q_row_stride, q.rows},
        {"q_head_stride", p.q_head_stride, heads},
        {"k_batch_stride", p.k_batch_stride, k.entries}, {"k_row_stride", p.k_row_stride, k.rows},
        {"k_head_stride", p.k_head_stride, heads_k},
        {"v_batch_stride", p.v_batch_stride, k.entries}, {"v_row_stride", p.v_row_stride, k.rows},
        {"v_head_stride", p.v_head_stride, heads_k},
        {"o_batch_stride", p.o_batch_stride, q.entries}, {"o_row_stride", p.o_row_stride, q.rows},
        {"o_head_stride", p.o_head_stride, heads},
        {"lse_batch_stride", p.lse_batch_stride, p.lse != nullptr ? q.entries : 0},
        {"lse_head_stride", p.lse_head_stride, lse_heads},
        {"page_table_stride", p.page_table_stride, p.page_table != nullptr ? entries : 0},
        {"features.alibi_batch_stride", p.features.alibi_batch_stride,
         p.features.alibi_slopes != nullptr ? entries : 0},
        {"q_descale_batch_stride", p.q_descale_batch_stride, p.q_descale != nullptr ? entries : 0},
        {"q_descale_head_stride", p.q_descale_head_stride, p.q_descale != nullptr ? heads_k : 0},
        {"k_descale_batch_stride", p.k_descale_batch_stride, p.k_descale != nullptr ? entries : 0},
        {"k_descale_head_stride", p.k_descale_head_stride, p.k_descale != nullptr ? heads_k : 0},
        {"v_descale_batch_stride", p.v_descale_batch_stride, p.v_descale != nullptr ? entries : 0},
        {"v_descale_head_stride", p.v_descale_head_stride, p.v_descale != nullptr ? heads_k : 0},
        {"k_page_descale_page_stride", p.k_page_descale_page_stride, p.k_page_descale != nullptr ? k.entries : 0},
        {"k_page_descale_head_stride", p.k_page_descale_head_stride, p.k_page_descale != nullptr ? heads_k : 0},
        {"v_page_descale_page_stride", p.v_page_descale_page_stride, p.v_page_descale != nullptr ? k.entries : 0},
        {"v_page_descale_head_stride", p.v_page_descale_head_stride, p.v_page_descale != nullptr ? heads_k : 0},
        {"qv_batch_stride", p.qv_batch_stride, p.qv != nullptr ? q.entries : 0},
        {"qv_row_stride", p.qv_row_stride, p.qv != nullptr ? q.rows : 0},
        {"qv_head_stride", p.qv_head_stride, p.qv != nullptr ? heads : 0},
        {"k_new_batch_stride", p.k_new_batch_stride, p.k_new != nullptr ? entries : 0},
        {"k_new_row_stride", p.k_new_row_stride, p.k_new != nullptr ? p.seqlen_new : 0},
        {"k_new_head_stride", p.k_new_head_stride, p.k_new != nullptr ? heads_k : 0},
        {"v_new_batch_stride", p.v_new_batch_stride, p.k_new != nullptr ? entries : 0},
        {"v_new_row_stride", p.v_new_row_stride, p.k_new != nullptr ? p.seqlen_new : 0},
        {"v_new_head_stride", p.v_new_head_stride, p.k_new != nullptr ? heads_k : 0},
        {"rotary_row_stride", p.rotary_row_stride, p.k_new != nullptr && p.rotary_cos != nullptr ? p.rotary_rows : 0},
        {"bias_batch_stride", p.bias_batch_stride, p.bias != nullptr ? int64_t{p.batch} : 0},
        {"bias_head_stride", p.bias_head_stride, p.bias != nullptr ? int64_t{p.num_heads} : 0},
        {"bias_row_stride", p.bias_row_stride, p.bias != nullptr ? int64_t{p.seqlen_q} : 0},
        {"bias_column_stride", p.bias_column_stride, p.bias != nullptr ? int64_t{p.seqlen_k} : 0},
    };
    return check_strides(all, name);
}

// Checks the strides of the O and LSE that partial results are merged into.
inline int check_merged_strides(const kgen_fwd_params& p, const char* name) {
    const rows_and_entries q = extents_of(p.cu_seqlens_q, p.total_q, p.seqlen_q, p.batch);
    const int64_t heads = p.num_heads;
    const named_stride all[] = {
        {"o_batch_stride", p.o_batch_stride, q.entries}, {"o_row_stride", p.o_row_stride, q.rows},
        {"o_head_stride", p.o_head_stride, heads},
        {"lse_batch_stride", p.lse_batch_stride, p.lse != nullptr ? q.entries : 0},
        {"lse_head_stride", p.lse_head_stride, p.lse != nullptr ? heads : 0},
    };
    return check_strides(all, name);
}

// Checks the strides of a backward pass.
inline int check_bwd_strides(const kgen_bwd_params& p, const char* name) {
    rows_and_entries q = extents_of(p.cu_seqlens_q, p.total_q, p.seqlen_q, p.batch),
        k = extents_of(p.cu_seqlens_k, 0, p.seqlen_k, p.batch);
    if (p.seqlen_q == 0) q = {0, 0};
    if (p.seqlen_k == 0) k = {0, 0};
    const int64_t heads = q.rows > 0 ? p.num_heads : 0, heads_k = k.rows > 0 ? p.num_heads_k : 0;
    const named_stride all[] = {
        {"q_batch_stride", p.q_batch_stride, q.entries}, {"q_row_stride", p.q_row_stride, q.rows},
        {"q_head_stride", p.q_head_stride, heads},
        {"k_batch_stride", p.k_batch_stride, k.entries}, {"k_row_stride", p.k_row_stride, k.rows},
        {"k_head_stride", p.k_head_stride, heads_k},
        {"v_batch_stride", p.v_batch_stride, k.entries}, {"v_row_stride", p.v_row_stride, k.rows},
        {"v_head_stride", p.v_head_stride, heads_k},
        {"o_batch_stride", p.o_batch_stride, q.entries}, {"o_row_stride", p.o_row_stride, q.rows},
        {"o_head_stride", p.o_head_stride, heads},
        {"dout_batch_stride", p.dout_batch_stride, q.entries}, {"dout_row_stride", p.dout_row_stride, q.rows},
        {"dout_head_stride", p.dout_head_stride, heads},
        {"dq_batch_stride", p.dq_batch_stride, q.entries}, {"dq_row_stride", p.dq_row_stride, q.rows},
        {"dq_head_stride", p.dq_head_stride, heads},
        {"dk_batch_stride", p.dk_batch_stride, k.entries}, {"dk_row_stride", p.dk_row_stride, k.rows},
        {"dk_head_stride", p.dk_head_stride, heads_k},
        {"dv_batch_stride", p.dv_batch_stride, k.entries}, {"dv_row_stride", p.dv_row_stride, k.rows},
        {"dv_head_stride", p.dv_head_stride, heads_k},
        {"lse_batch_stride", p.lse_batch_stride, q.entries}, {"lse_head_stride", p.lse_head_stride, heads},
        {"dlse_batch_stride", p.dlse_batch_stride, p.dlse != nullptr ? q.entries : 0},
        {"dlse_head_stride", p.dlse_head_stride, p.dlse != nullptr ? heads : 0},
        {"features.alibi_batch_stride", p.features.alibi_batch_stride,
         p.features.alibi_slopes != nullptr ? int64_t{p.batch} : 0},
        {"bias_batch_stride", p.bias_batch_stride, p.bias != nullptr ? int64_t{p.batch} : 0},
        {"bias_head_stride", p.bias_head_stride, p.bias != nullptr ? int64_t{p.num_heads} : 0},
        {"bias_row_stride", p.bias_row_stride, p.bias != nullptr ? int64_t{p.seqlen_q} : 0},
        {"bias_column_stride", p.bias_column_stride, p.bias != nullptr ? int64_t{p.seqlen_k} : 0},
        {"dbias_batch_stride", p.dbias_batch_stride, p.dbias != nullptr ? int64_t{p.batch} : 0},
        {"dbias_head_stride", p.dbias_head_stride, p.dbias != nullptr ? int64_t{p.num_heads} : 0},
        {"dbias_row_stride", p.dbias_row_stride, p.dbias != nullptr ? int64_t{p.seqlen_q} : 0},
        {"dbias_column_stride", p.dbias_column_stride, p.dbias != nullptr ? int64_t{p.seqlen_k} : 0},
    };
    return check_strides(all, name);
}

}  // namespace kgen
