// Parameters of append_kv: the launcher's checks. For the host compiler as well as nvcc.
#pragma once

#include "kgen.h"
#include "kgen/contiguous.cuh"
#include "kgen/launch.cuh"
#include "kgen/params.cuh"
#include "kgen/strides.cuh"

namespace kgen {

// The version of the interface that introduced kgen_append_kv_params.
constexpr int APPEND_KV_VERSION = 6;

constexpr int32_t LARGEST_HEAD_DIM = 256;

// Copies the caller's structure and fills in the head dim of V.
inline int copy_append_kv_params(const kgen_append_kv_params* given, const char* name, kgen_append_kv_params& params) {
    constexpr size_t first_version = offsetof(kgen_append_kv_params, seqlens_after);
    if (const int code = copy_structure(given, first_version, APPEND_KV_VERSION, "kgen_append_kv_params", name, params))
        return code;
    constexpr uint32_t known = KGEN_FLAG_CAUSAL | KGEN_FLAG_WINDOW | KGEN_FLAG_ROTARY_INTERLEAVED |
                               KGEN_FLAG_DESCALE_BY_PAGE;
    if (const int code = check_flags(params.flags, known, name)) return code;
    if (params.head_dim_v == 0) params.head_dim_v = params.head_dim;
    return KGEN_SUCCESS;
}

inline bool is_fp8(int32_t dtype) { return dtype == KGEN_DTYPE_FP8_E4M3 || dtype == KGEN_DTYPE_FP8_E5M2; }

// Rows of K and of V.
inline int64_t rows_to_append(const kgen_append_kv_params& p) {
    return p.cu_seqlens_new != nullptr ? p.total_new : int64_t{p.batch} * p.seqlen_new;
}

// Rows of Q that are rotated.
inline int64_t query_rows(const kgen_append_kv_params& p) {
    if (p.q == nullptr) return 0;
    return p.cu_seqlens_q != nullptr ? p.total_q : int64_t{p.batch} * p.seqlen_q;
}

// Checks lengths, heads and head dims.
inline int check_append_shapes(const kgen_append_kv_params& p, const char* name) {
    const int32_t lengths[] = {p.batch, p.seqlen_new, p.total_new, p.seqlen_q, p.total_q};
    for (const int32_t length : lengths) {
        if (length >= 0) continue;
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: batch %d, seqlen_new %d, total_new %d, seqlen_q %d, total_q %d must not be negative", name,
                    p.batch, p.seqlen_new, p.total_new, p.seqlen_q, p.total_q);
    }
    const int32_t head_dims[] = {p.head_dim, p.head_dim_v};
    for (const int32_t head_dim : head_dims) {
        if (head_dim >= 8 && head_dim <= LARGEST_HEAD_DIM && head_dim % 8 == 0) continue;
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: head_dim %d and head_dim_v %d must be multiples of 8 in 8 .. %d",
                    name, p.head_dim, p.head_dim_v, LARGEST_HEAD_DIM);
    }
    if (p.num_heads_k < 1 || (p.q != nullptr && p.num_heads < 1)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: num_heads %d and num_heads_k %d must be at least 1", name,
                    p.num_heads, p.num_heads_k);
    }
    return KGEN_SUCCESS;
}

// Checks the fields of the rotary embedding.
inline int check_rotary(const kgen_append_kv_params& p, const char* name) {
    const auto refuse = [&](const char* what) { return fail(KGEN_ERROR_INVALID_VALUE, "%s: %s", name, what); };
    if ((p.rotary_cos == nullptr) != (p.rotary_sin == nullptr))
        return refuse("rotary_cos and rotary_sin must both be given or both be NULL");
    if (p.rotary_cos == nullptr) {
        if (p.rotary_dim != 0)
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: rotary_dim %d must be 0 without rotary_cos", name, p.rotary_dim);
        if (p.q != nullptr) return refuse("q needs rotary_cos: there is nothing else to do for it");
        if (p.positions != nullptr || p.seqlens_rotary != nullptr)
            return refuse("positions and seqlens_rotary need rotary_cos");
        return KGEN_SUCCESS;
    }
    if (p.rotary_dim < 16 || p.rotary_dim > p.head_dim || p.rotary_dim % 16 != 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: rotary_dim %d must be a multiple of 16 in 16 .. head_dim %d", name,
                    p.rotary_dim, p.head_dim);
    }
    if (p.rotary_rows < 1)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: rotary_rows %d must be at least 1", name, p.rotary_rows);
    if (p.positions != nullptr && p.seqlens_rotary != nullptr)
        return refuse("positions and seqlens_rotary exclude each other");
    if (p.positions == nullptr && p.seqlens_rotary == nullptr && p.cache_seqlens == nullptr) {
        return refuse("rotary_cos needs positions: cache_seqlens, seqlens_rotary or positions");
    }
    if (p.positions != nullptr && p.q != nullptr && query_rows(p) != rows_to_append(p)) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: with positions, q must have as many rows as k; they have %lld and %lld", name,
                    static_cast<long long>(query_rows(p)), static_cast<long long>(rows_to_append(p)));
    }
    return KGEN_SUCCESS;
}

// Checks the fields of the cache.
inline int check_append_cache(const kgen_append_kv_params& p, const char* name) {
    const auto refuse = [&](const char* what) { return fail(KGEN_ERROR_INVALID_VALUE, "%s: %s", name, what); };
    if (p.page_size < 1 || p.num_pages < 1) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: page_size %d and num_pages %d must be at least 1", name, p.page_size,
                    p.num_pages);
    }
    if ((p.slot_mapping != nullptr) + (p.page_table != nullptr) + (p.cache_batch_idx != nullptr) > 1) {
        return refuse("slot_mapping, page_table and cache_batch_idx exclude each other");
    }
    if (p.slot_mapping == nullptr && p.cache_seqlens == nullptr)
        return refuse("cache_seqlens must not be NULL without a slot_mapping");
    if (p.slot_mapping != nullptr && p.seqlens_after != nullptr)
        return refuse("seqlens_after must be NULL with a slot_mapping");
    if (p.page_table != nullptr && p.pages_per_sequence < 1) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: pages_per_sequence %d must be at least 1 with a page_table", name,
                    p.pages_per_sequence);
    }
    if (p.slot_mapping != nullptr && int64_t{p.num_pages} * p.page_size > INT32_MAX) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: num_pages %d of page_size %d are more than 2^31 - 1 slots", name,
                    p.num_pages, p.page_size);
    }
    return KGEN_SUCCESS;
}

// Checks that tensors are given and aligned to their elements, and that an in-place rotation of Q uses the same
// strides.
inline int check_append_tensors(const kgen_append_kv_params& p, const char* name) {
    const size_t cache_bytes = is_fp8(p.cache_dtype) ? 1 : 2;
    // One element of each tensor that is needed at all.
    const uint64_t rows = rows_to_append(p) > 0, queries = query_rows(p) > 0,
        rotary = p.rotary_cos != nullptr && (rows | queries) != 0;
    const span halves[] = { {"k", p.k, rows}, {"v", p.v, rows}, {"q_out", p.q_out, queries}, {"q", p.q, queries},
                            {"rotary_cos", p.rotary_cos, rotary}, {"rotary_sin", p.rotary_sin, rotary} };
    for (const span& tensor : halves) {
        if (const int code = check_span(tensor, 2, name)) return code;
    }
    const span caches[] = { {"k_cache", p.k_cache, rows}, {"v_cache", p.v_cache, rows} };
    for (const span& tensor : caches) {
        if (const int code = check_span(tensor, cache_bytes, name)) return code;
    }
    if (queries == 0 || p.q != p.q_out) return KGEN_SUCCESS;
    const bool same = (p.cu_seqlens_q != nullptr || p.q_batch_stride == p.q_out_batch_stride) &&
                      p.q_row_stride == p.q_out_row_stride && p.q_head_stride == p.q_out_head_stride;
    return same ? KGEN_SUCCESS : fail(KGEN_ERROR_INVALID_VALUE, "%s: q_out is q, and must have its strides", name);
}

// Checks the strides that are read.
inline int check_append_strides(const kgen_append_kv_params& p, const char* name) {
    const bool appends = rows_to_append(p) > 0, has_queries = query_rows(p) > 0,
        has_table = p.rotary_cos != nullptr && (appends || has_queries);
    const rows_and_entries none = {0, 0};
    const rows_and_entries rows = appends ? extents_of(p.cu_seqlens_new, p.total_new, p.seqlen_new, p.batch) : none;
    const rows_and_entries queries = has_queries ? extents_of(p.cu_seqlens_q, p.total_q, p.seqlen_q, p.batch) : none;
    const rows_and_entries cache = appends ? rows_and_entries{p.page_size, p.num_pages} : none;
    const int64_t heads = has_queries ? p.num_heads : 0, heads_k = appends ? p.num_heads_k : 0;
    const bool has_factors = appends && is_fp8(p.cache_dtype);
    const int64_t owners = (p.flags & KGEN_FLAG_DESCALE_BY_PAGE) != 0 ? p.num_pages : p.batch;
    const int64_t k_owners = has_factors && p.k_descale != nullptr ? owners : 0,
        v_owners = has_factors && p.v_descale != nullptr ? owners : 0;
    const named_stride all[] = {
        {"k_batch_stride", p.k_batch_stride, rows.entries}, {"k_row_stride", p.k_row_stride, rows.rows},
        {"k_head_stride", p.k_head_stride, heads_k},
        {"v_batch_stride", p.v_batch_stride, rows.entries}, {"v_row_stride", p.v_row_stride, rows.rows},
        {"v_head_stride", p.v_head_stride, heads_k},
        {"k_cache_page_stride", p.k_cache_page_stride, cache.entries},
        {"k_cache_row_stride", p.k_cache_row_stride, cache.rows},
        {"k_cache_head_stride", p.k_cache_head_stride, heads_k},
        {"v_cache_page_stride", p.v_cache_page_stride, cache.entries},
        {"v_cache_row_stride", p.v_cache_row_stride, cache.rows},
        {"v_cache_head_stride", p.v_cache_head_stride, heads_k},
        {"q_batch_stride", p.q_batch_stride, queries.entries}, {"q_row_stride", p.q_row_stride, queries.rows},
        {"q_head_stride", p.q_head_stride, heads},
        {"q_out_batch_stride", p.q_out_batch_stride, queries.entries},
        {"q_out_row_stride", p.q_out_row_stride, queries.rows},
        {"q_out_head_stride", p.q_out_head_stride, heads},
        {"rotary_row_stride", p.rotary_row_stride, has_table ? p.rotary_rows : 0},
        {"page_table_stride", p.page_table_stride, appends && p.page_table != nullptr ? p.batch : 0},
        {"k_descale_batch_stride", p.k_descale_batch_stride, k_owners},
        {"k_descale_head_stride", p.k_descale_head_stride, k_owners > 0 ? heads_k : 0},
        {"v_descale_batch_stride", p.v_descale_batch_stride, v_owners},
        {"v_descale_head_stride", p.v_descale_head_stride, v_owners > 0 ? heads_k : 0},
    };
    return check_strides(all, name);
}

// Copies the caller's structure into `params` and checks every documented range.
inline int check_append_kv_params(const kgen_append_kv_params* given, int32_t dtype, const char* dtype_name,
                                  const char* name, kgen_append_kv_params& params) {
    if (const int code = copy_append_kv_params(given, name, params)) return code;
    if (const int code = check_dtype(params.dtype, dtype, dtype_name, name)) return code;
    if (params.cache_dtype != dtype && !is_fp8(params.cache_dtype)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: params.cache_dtype is %d; it must be dtype (%d, %s) or one of FP8",
                    name, params.cache_dtype, dtype, dtype_name);
    }
    if (const int code = check_append_shapes(params, name)) return code;
    if (const int code = check_rotary(params, name)) return code;
    if (rows_to_append(params) > 0 || params.seqlens_after != nullptr) {
        if (const int code = check_append_cache(params, name)) return code;
    }
    if (const int code = check_append_strides(params, name)) return code;
    return check_append_tensors(params, name);
}

// Refuses more shares of rows than a kernel can count, which are far more than any memory holds.
inline int check_shares(int64_t rows, int32_t groups, int32_t row_shares, const char* name) {
    constexpr int32_t most = INT32_MAX - 1024;  // thread numbers in the last block stay in range
    if (rows <= most / groups / row_shares) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE, "%s: %lld rows of so many heads are more than one call takes", name,
                static_cast<long long>(rows));
}

// Rows of a sequence that the cache can hold.
inline int32_t append_capacity(const kgen_append_kv_params& p) {
    const int64_t pages = p.slot_mapping != nullptr ? p.num_pages : p.page_table != nullptr ? p.pages_per_sequence : 1;
    const int64_t capacity = pages * p.page_size;
    return static_cast<int32_t>(capacity < INT32_MAX ? capacity : INT32_MAX);
}

// True if every row of a tensor begins at a multiple of `bytes` bytes.
inline bool rows_begin_at(const void* pointer, int64_t batch_stride, int64_t row_stride, int64_t head_stride,
                          int element_bytes, int bytes) {
    return ((reinterpret_cast<uintptr_t>(pointer) |
             static_cast<uint64_t>(batch_stride | row_stride | head_stride) * element_bytes) & (bytes - 1)) == 0;
}

// True if all tensors of a request can be moved in pieces of 8 elements.
inline bool append_is_aligned(const kgen_append_kv_params& p) {
    const int cache_bytes = is_fp8(p.cache_dtype) ? 1 : 2;
    const bool rows = rows_to_append(p) == 0 ||
                      (rows_begin_at(p.k, p.cu_seqlens_new ? 0 : p.k_batch_stride, p.k_row_stride, p.k_head_stride, 2,
                                     16) && rows_begin_at(p.v, p.cu_seqlens_new ? 0 : p.v_batch_stride, p.v_row_stride,
                                                          p.v_head_stride, 2, 16) &&
                       rows_begin_at(p.k_cache, p.k_cache_page_stride, p.k_cache_row_stride, p.k_cache_head_stride,
                                     cache_bytes, 8 * cache_bytes) &&
                       rows_begin_at(p.v_cache, p.v_cache_page_stride, p.v_cache_row_stride, p.v_cache_head_stride,
                                     cache_bytes, 8 * cache_bytes));
    const bool queries = query_rows(p) == 0 ||
                         (rows_begin_at(p.q, p.cu_seqlens_q ? 0 : p.q_batch_stride, p.q_row_stride, p.q_head_stride, 2,
                                        16) && rows_begin_at(p.q_out, p.cu_seqlens_q ? 0 : p.q_out_batch_stride,
                                                             p.q_out_row_stride, p.q_out_head_stride, 2, 16));
    const bool rotary = p.rotary_cos == nullptr ||
                        (rows_begin_at(p.rotary_cos, 0, p.rotary_row_stride, 0, 2, 16) &&
                         rows_begin_at(p.rotary_sin, 0, p.rotary_row_stride, 0, 2, 16));
    return rows && queries && rotary;
}

}  // namespace kgen
