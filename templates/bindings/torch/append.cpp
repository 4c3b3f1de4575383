#include "append.h"

#include "aten.h"
#include "errors.h"

namespace kgen_torch {

namespace {

void enter_rows(kgen_append_kv_params& a, const kgen_fwd_params& p, const new_rows& rows, const view& k, const view& v, const view& q) {
    if (rows.cu_seqlens) k.require_shape({ANY, p.num_heads_k, p.head_dim}), v.require_shape({k.size(0), p.num_heads_k, p.head_dim_v});
    else k.require_shape({p.batch, ANY, p.num_heads_k, p.head_dim}), v.require_shape({p.batch, k.size(1), p.num_heads_k, p.head_dim_v});
    for (const view* tensor : {&k, &v}) {
        tensor->require_dtype({q.dtype});
        tensor->require_rows();
        tensor->require_device_of(q);
    }
    a.k = k.data(), a.v = v.data();
    a.k_batch_stride = k.rank == 4 ? k.stride(0) : 0, a.k_row_stride = k.stride(-3), a.k_head_stride = k.stride(-2);
    a.v_batch_stride = v.rank == 4 ? v.stride(0) : 0, a.v_row_stride = v.stride(-3), a.v_head_stride = v.stride(-2);
    a.cu_seqlens_new = entries(q.op, rows.cu_seqlens_name, rows.cu_seqlens, static_cast<int64_t>(p.batch) + 1, q);
    if (rows.cu_seqlens) a.total_new = narrow(q.op, rows.k_name, k.size(0));
    else a.seqlen_new = narrow(q.op, rows.k_name, k.size(1));
}

void enter_cache(kgen_append_kv_params& a, const kgen_fwd_params& p, const key_tensors& cache) {
    a.k_cache = cache.k.data(), a.v_cache = cache.v.data();
    a.k_cache_page_stride = p.k_batch_stride, a.k_cache_row_stride = p.k_row_stride, a.k_cache_head_stride = p.k_head_stride;
    a.v_cache_page_stride = p.v_batch_stride, a.v_cache_row_stride = p.v_row_stride, a.v_cache_head_stride = p.v_head_stride;
    a.cache_batch_idx = p.cache_batch_idx;
    a.page_table = p.page_table, a.page_table_stride = p.page_table_stride;
    a.page_size = static_cast<int32_t>(cache.k.size(1)), a.num_pages = static_cast<int32_t>(cache.k.size(0));
    a.pages_per_sequence = cache.page_table ? static_cast<int32_t>(cache.page_table->size(1)) : 0;
    a.k_descale = p.k_descale, a.v_descale = p.v_descale;
    a.k_descale_batch_stride = p.k_descale_batch_stride, a.k_descale_head_stride = p.k_descale_head_stride;
    a.v_descale_batch_stride = p.v_descale_batch_stride, a.v_descale_head_stride = p.v_descale_head_stride;
    a.cache_dtype = p.kv_dtype != 0 ? p.kv_dtype : p.dtype;
}

// Cosines and sines, and Q with its rotated copy.
void enter_rotation(kgen_append_kv_params& a, kgen_fwd_params& p, const new_rows& rows, const view& q, Tensor& rotated, const device_scope& device) {
    const view cosines(q.op, "rotary_cos", *rows.rotary_cos), sines(q.op, "rotary_sin", *rows.rotary_sin);
    cosines.require_shape({ANY, ANY});
    sines.require_shape({cosines.size(0), cosines.size(1)});
    for (const view* table : {&cosines, &sines}) {
        table->require_dtype({q.dtype});
        table->require_rows();
        table->require_device_of(q);
        require(table->stride(0) == cosines.stride(0), q.op, "`rotary_sin` has another row stride than `rotary_cos`");
    }
    a.rotary_cos = cosines.data(), a.rotary_sin = sines.data();
    a.rotary_row_stride = cosines.stride(0);
    a.rotary_rows = narrow(q.op, "rotary_cos", cosines.size(0));
    a.rotary_dim = narrow(q.op, "rotary_cos", 2 * cosines.size(1));
    a.seqlens_rotary = entries(q.op, "seqlens_rotary", rows.seqlens_rotary, p.batch, q);
    a.q = p.q;
    a.q_batch_stride = p.q_batch_stride, a.q_row_stride = p.q_row_stride, a.q_head_stride = p.q_head_stride;
    const bool packed = q.rank == 3;
    rotated = packed ? device.allocate({q.size(0), q.size(1), q.size(2)}, q.dtype) : device.allocate({q.size(0), q.size(1), q.size(2), q.size(3)}, q.dtype);
    p.q = a.q_out = rotated.data_ptr();
    p.q_head_stride = a.q_out_head_stride = q.size(-1);
    p.q_row_stride = a.q_out_row_stride = q.size(-2) * q.size(-1);
    p.q_batch_stride = a.q_out_batch_stride = packed ? 0 : q.size(1) * p.q_row_stride;
    a.cu_seqlens_q = p.cu_seqlens_q;
    a.seqlen_q = p.seqlen_q, a.total_q = p.total_q;
}

}  // namespace

Tensor lengths_with(const Tensor& cached, const std::optional<Tensor>& cu_seqlens, int64_t rows, int64_t batch, const device_scope& device) {
    const int64_t count = cu_seqlens ? 3 : 2;
    const Tensor terms = device.allocate({count, batch}, ScalarType::Int), lengths = device.allocate({batch}, ScalarType::Int);
    aten::copy(cached, aten::part(terms, 0, 1));
    if (cu_seqlens) {
        aten::copy(aten::part(*cu_seqlens, 1, batch), aten::part(terms, 1, 1));
        const Tensor last = device.allocate({batch}, ScalarType::Int);
        aten::negate(aten::part(*cu_seqlens, 0, batch), last);
        aten::copy(last, aten::part(terms, 2, 1));
    } else {
        aten::fill(aten::part(terms, 1, 1), static_cast<double>(rows));
    }
    aten::sum(terms, lengths);
    return lengths;
}

appended append(kgen_fwd_params& p, const new_rows& rows, const key_tensors& cache, const view& q, const device_scope& device) {
    appended made;
    require(rows.k.has_value() == rows.v.has_value(), q.op, "`", rows.k_name, "` and `", rows.v_name, "` come together or not at all");
    require(rows.rotary_cos.has_value() == rows.rotary_sin.has_value(), q.op, "`rotary_cos` and `rotary_sin` come together or not at all");
    require(rows.rotary_cos || !rows.seqlens_rotary, q.op, "`seqlens_rotary` needs `rotary_cos`");
    if (!rows.k) {
        require(!rows.cu_seqlens, q.op, "`", rows.cu_seqlens_name, "` needs `", rows.k_name, "`");
        require(!rows.rotary_cos, q.op, "`rotary_cos` needs `", rows.k_name, "`: queries are rotated as new keys are written");
        return made;
    }
    require(rows.cached.has_value(), q.op, "`", rows.k_name, "` needs `", rows.cached_name, "`, the rows before the new ones");
    require(p.dtype != KGEN_DTYPE_FP8_E4M3, q.op, "`", rows.k_name, "` with `q` in FP8: new rows are converted from fp16 or bf16");
    require(p.cu_seqlens_k == nullptr, q.op, "`", rows.k_name, "` cannot be written among packed keys; `cu_seqlens_k` must be None");
    const view k(q.op, rows.k_name, *rows.k), v(q.op, rows.v_name, *rows.v);
    kgen_append_kv_params& a = made.call.emplace();
    a.struct_size = sizeof a;
    a.flags = (p.flags & (KGEN_FLAG_CAUSAL | KGEN_FLAG_WINDOW)) | (rows.is_interleaved ? KGEN_FLAG_ROTARY_INTERLEAVED : 0);
    a.batch = p.batch, a.num_heads = p.num_heads, a.num_heads_k = p.num_heads_k;
    a.head_dim = p.head_dim, a.head_dim_v = p.head_dim_v, a.dtype = p.dtype;
    a.cache_seqlens = entries(q.op, rows.cached_name, rows.cached, p.batch, q);
    enter_rows(a, p, rows, k, v, q);
    enter_cache(a, p, cache);
    if (rows.rotary_cos) {
        made.q.emplace();
        enter_rotation(a, p, rows, q, *made.q, device);
    }
    made.lengths = device.allocate({p.batch}, ScalarType::Int);
    a.seqlens_after = static_cast<int32_t*>(made.lengths->data_ptr());
    p.seqused_k = a.seqlens_after;
    return made;
}

}  // namespace kgen_torch
