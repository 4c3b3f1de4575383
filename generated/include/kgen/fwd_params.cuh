// Parameter handling common to all forward kernels: the launchers' checks, and the location of a sequence.
#pragma once

#include "kgen.h"
#include "kgen/declared_score.cuh"
#include "kgen/features.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/params.cuh"
#include "kgen/platform.cuh"
#include "kgen/strides.cuh"

namespace kgen {

// A sequence along the row axis of a tensor.
struct sequence {
    int32_t first_row;  // with cu_seqlens, its first row; otherwise 0 (the batch stride leads there)
    int32_t rows;
    bool packed;  // cu_seqlens in use: the batch stride is ignored
};

KGEN_DEVICE sequence sequence_of(int batch, const int32_t* cu_seqlens, const int32_t* seqused, int32_t seqlen) {
    sequence s = {0, seqlen, cu_seqlens != nullptr};
    if (cu_seqlens != nullptr) {
        s.first_row = load_global(cu_seqlens + batch);
        s.rows = load_global(cu_seqlens + batch + 1) - s.first_row;
    }
    // Limited to the rows that exist in memory: the host has not checked the number.
    if (seqused != nullptr) s.rows = min(load_global(seqused + batch), s.rows);
    return s;
}

// True if the host knows that all sequences have `seqlen_q` queries and `seqlen_k` keys.
inline bool lengths_are_equal(const kgen_fwd_params& p) {
    return p.cu_seqlens_q == nullptr && p.cu_seqlens_k == nullptr && p.seqused_q == nullptr && p.seqused_k == nullptr;
}

// Element offset of row 0 of a sequence and head.
KGEN_DEVICE int64_t sequence_offset(sequence s, int batch, int head, int64_t batch_stride, int64_t row_stride,
                                    int64_t head_stride) {
    return (s.packed ? s.first_row * row_stride : batch * batch_stride) + head * head_stride;
}

// A factor of an FP8 tensor, or of a cache in FP8, for a batch entry and key head; 1 if the caller gave none.
KGEN_DEVICE float descale_of(const float* descale, int batch, int head_k, int64_t batch_stride, int64_t head_stride) {
    return descale == nullptr ? 1.0f : load_global(descale + batch * batch_stride + head_k * head_stride);
}

// The properties that a variant was built for; its launcher compares them with a request.
struct fwd_identity {
    const char* name;
    int32_t head_dim;
    int32_t dtype;
    uint32_t features;  // KGEN_FEATURE_*
    score_identity score = {};
    int32_t head_dim_v = 0;  // of V and O; 0: that of Q and K
};

// Checks the documented ranges of the numeric fields common to all passes, and reads the features. Pointers are left to
// the caller.
template <class Params>
int check_shapes(Params& params, uint32_t known_flags, const char* name) {
    if (const int code = check_flags(params.flags, known_flags, name)) return code;
    if (const int code = read_features(params, name)) return code;
    if (const int code = check_bias(params, name)) return code;
    const int32_t longest = INT32_MAX - 1024;  // row indices of the last tile stay in range
    if (params.batch < 0 || params.seqlen_q < 0 || params.seqlen_k < 0 || params.seqlen_q > longest ||
        params.seqlen_k > longest) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: batch %d, seqlen_q %d, seqlen_k %d must lie in 0 .. %d", name,
                    params.batch, params.seqlen_q, params.seqlen_k, longest);
    }
    if (params.num_heads_k <= 0 || params.num_heads <= 0 || params.num_heads % params.num_heads_k != 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: num_heads %d must be a positive multiple of num_heads_k %d", name,
                    params.num_heads, params.num_heads_k);
    }
    if (!(params.softmax_scale >= 0.0f && params.softmax_scale <= 3.402823466e38f)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: softmax_scale %g must be finite and >= 0", name,
                    static_cast<double>(params.softmax_scale));
    }
    return KGEN_SUCCESS;
}

// Checks the numbers, and that they match what a variant was built for.
template <class Params>
int check_numbers(Params& params, uint32_t known_flags, const fwd_identity& self) {
    const int32_t head_dim_v = self.head_dim_v == 0 ? self.head_dim : self.head_dim_v;
    if (params.head_dim != self.head_dim) {
        return fail(KGEN_ERROR_MISMATCH, "%s: built for head_dim %d, called with %d", self.name, self.head_dim,
                    params.head_dim);
    }
    if (params.head_dim_v != head_dim_v) {
        return fail(KGEN_ERROR_MISMATCH, "%s: built for head_dim_v %d, called with %d", self.name, head_dim_v,
                    params.head_dim_v);
    }
    if (params.dtype != self.dtype) {
        return fail(KGEN_ERROR_MISMATCH, "%s: built for dtype %d, called with %d", self.name, self.dtype, params.dtype);
    }
    if (const int code = check_shapes(params, known_flags, self.name)) return code;
    const uint32_t asked = asked_features(params);
    if (const uint32_t missing = lacking_features(asked, self.features)) {
        return fail(KGEN_ERROR_MISMATCH, "%s: built without the feature `%s`, which the call asks for", self.name,
                    feature_name(missing));
    }
    if ((self.features & WITH_POSITIONS) != 0 && params.batch > 0 &&
        (params.seqlen_q > NO_LIMIT + 1 || params.seqlen_k > NO_LIMIT + 1)) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: seqlen_q %d and seqlen_k %d must not exceed 2^30 with windows, chunks, slopes or a bias",
                    self.name,
                    params.seqlen_q, params.seqlen_k);
    }
    if (const int code = check_declared_score(params.score, self.score, self.name)) return code;
    if (self.score.id != 0 && params.batch > 0 &&
        (params.seqlen_q > LONGEST_WITH_SCORE || params.seqlen_k > LONGEST_WITH_SCORE)) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: seqlen_q %d and seqlen_k %d must not exceed %d with a declared score", self.name,
                    params.seqlen_q, params.seqlen_k, LONGEST_WITH_SCORE);
    }
    if (!serves_features(asked, self.features))
        return fail(KGEN_ERROR_MISMATCH, "%s: called without %s", self.name, not_left_aside(self.features & ~asked));
    return KGEN_SUCCESS;
}

// Refuses limits on the queries of a sequence, which only kernels that read pages implement.
inline int refuse_query_limits(const kgen_fwd_params& params, const char* name) {
    if (params.least_queries == 0 && params.most_queries == 0) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_UNSUPPORTED, "%s: least_queries %d and most_queries %d must be 0", name,
                params.least_queries, params.most_queries);
}

// Checks the fields of a KV cache: its dtype, entries and pages. Without a page table no field about pages is read.
inline int check_cache(const kgen_fwd_params& params, const char* name) {
    const bool bytes = params.kv_dtype == KGEN_DTYPE_FP8_E4M3 || params.kv_dtype == KGEN_DTYPE_FP8_E5M2;
    if (params.kv_dtype != 0 && !bytes) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: kv_dtype %d must be KGEN_DTYPE_FP8_E4M3, KGEN_DTYPE_FP8_E5M2 or 0, for that of q", name,
                    params.kv_dtype);
    }
    if (bytes && params.dtype != KGEN_DTYPE_FP16 && params.dtype != KGEN_DTYPE_BF16) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: kv_dtype %d needs queries in fp16 or bf16; dtype is %d", name,
                    params.kv_dtype, params.dtype);
    }
    if (const int code = refuse_two_places(params, name)) return code;
    if (params.cache_entries < 0 || (params.cache_entries > 0 && params.cache_batch_idx == nullptr)) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: cache_entries %d must be the entries that cache_batch_idx may name, or 0; 0 without it", name,
                    params.cache_entries);
    }
    if (params.reserved_3 != 0)
        return fail(KGEN_ERROR_UNSUPPORTED, "%s: params.reserved_3 is %d and must be 0", name, params.reserved_3);
    if (params.page_table == nullptr) return refuse_query_limits(params, name);
    if (params.least_queries < 0 || params.most_queries < 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: least_queries %d and most_queries %d must not be negative", name,
                    params.least_queries, params.most_queries);
    }
    if (params.cu_seqlens_k != nullptr)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: cu_seqlens_k must be NULL with a page_table; give seqused_k", name);
    if (params.page_size < 1)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: page_size %d must be at least 1", name, params.page_size);
    const bool has_keys = params.batch > 0 && params.seqlen_k > 0;
    if (params.num_pages < 0 || (has_keys && params.num_pages == 0)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: num_pages %d must be at least 1 where there are keys", name,
                    params.num_pages);
    }
    return KGEN_SUCCESS;
}

// Copies the caller's structure into `params` and checks every documented range. A template, so that the emulator's
// headers can leave it to an object that is compiled once.
template <class Params>
int check_fwd_params(const Params* given, const fwd_identity& self, Params& params) {
    if (const int code = copy_fwd_params(given, self.name, params)) return code;
    if (const int code = check_numbers(params, FEATURE_FLAGS, self)) return code;
    if (const int code = check_cache(params, self.name)) return code;
    const bool has_queries = params.batch > 0 && params.seqlen_q > 0;
    if (has_queries && (params.q == nullptr || params.o == nullptr)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: q and o must not be NULL", self.name);
    }
    if (has_queries && params.seqlen_k > 0 && (params.k == nullptr || params.v == nullptr)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: k and v must not be NULL", self.name);
    }
    if (params.total_q < 0)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: total_q %d must not be negative", self.name, params.total_q);
    if (params.total_k < 0)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: total_k %d must not be negative", self.name, params.total_k);
    return has_queries ? check_fwd_strides(params, self.name) : KGEN_SUCCESS;
}

// True if pointer and strides (in elements of `bytes` bytes) allow every row to be moved in 16-byte pieces.
inline bool rows_are_aligned(const void* pointer, int64_t batch_stride, int64_t row_stride, int64_t head_stride,
                             int bytes = 2) {
    return ((reinterpret_cast<uintptr_t>(pointer) |
             static_cast<uint64_t>(batch_stride | row_stride | head_stride) * bytes) & 15) == 0;
}

// True if Q, K, V and O do. `bytes`: size of an element of Q, `kv_bytes`: of K and V; elements of O have 2 bytes.
inline bool fwd_is_aligned(const kgen_fwd_params& p, int bytes, int kv_bytes) {
    return rows_are_aligned(p.q, p.cu_seqlens_q ? 0 : p.q_batch_stride, p.q_row_stride, p.q_head_stride, bytes) &&
           rows_are_aligned(p.k, p.cu_seqlens_k ? 0 : p.k_batch_stride, p.k_row_stride, p.k_head_stride, kv_bytes) &&
           rows_are_aligned(p.v, p.cu_seqlens_k ? 0 : p.v_batch_stride, p.v_row_stride, p.v_head_stride, kv_bytes) &&
           rows_are_aligned(p.o, p.cu_seqlens_q ? 0 : p.o_batch_stride, p.o_row_stride, p.o_head_stride);
}
inline bool fwd_is_aligned(const kgen_fwd_params& p, int bytes = 2) { return fwd_is_aligned(p, bytes, bytes); }

}  // namespace kgen
