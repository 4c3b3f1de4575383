#include "attention.h"

#include "errors.h"
#include "workspace.h"

namespace kgen_torch {

namespace {

// Strides of a tensor of rank 4 (batch, row, head, column) or, packed, of rank 3 (row, head, column).
struct strides_of {
    int64_t batch, row, head;

    explicit strides_of(const view& v) : batch(v.rank == 4 ? v.stride(0) : 0), row(v.stride(-3)), head(v.stride(-2)) {}
};

const int32_t* starts(const char* name, const std::optional<Tensor>& given, int64_t batch, const view& q) { return entries(q.op, name, given, batch + 1, q); }

// Pages: (pages, page size, Hk, D), and for each sequence a row of their numbers.
void enter_pages(kgen_fwd_params& p, const key_tensors& keys, const view& q) {
    const view& k = keys.k;
    const view pages(q.op, keys.table_name, *keys.page_table);
    pages.require_shape({p.batch, ANY});
    pages.require_dtype({ScalarType::Int});
    pages.require_rows();
    pages.require_device_of(q);
    p.page_table = pages.data_as<const int32_t>();
    p.page_table_stride = pages.stride(0);
    p.page_size = narrow(q.op, "page size", k.size(1));
    p.num_pages = narrow(q.op, "pages", k.size(0));
    p.seqlen_k = narrow(q.op, "max_seqlen_k", keys.longest ? *keys.longest : pages.size(1) * k.size(1));
}

// Limit of bytes of partial results for a call that leaves the number of splits to the library. An engine plans its
// memory without them: vLLM's profiling run calls no attention. FlashAttention-3 took up to 84 MB in the same place.
constexpr size_t MOST_UNASKED = size_t{128} << 20;

// The most splits whose partial results fit, at least 1, computed from the size of two.
int32_t splits_within(kgen_fwd_params p, size_t bytes, int32_t device) {
    p.num_splits = 2;
    const size_t of_split = workspace_of(p, device) / 2;
    return of_split > 0 && of_split < bytes ? static_cast<int32_t>(bytes / of_split) : 1;
}

}  // namespace

int32_t dtype_of(const view& tensor) {
    tensor.require_dtype({ScalarType::Half, ScalarType::BFloat16, ScalarType::Float8_e4m3fn, ScalarType::Float8_e5m2});
    switch (tensor.dtype) {
        case ScalarType::Half: return KGEN_DTYPE_FP16;
        case ScalarType::BFloat16: return KGEN_DTYPE_BF16;
        case ScalarType::Float8_e4m3fn: return KGEN_DTYPE_FP8_E4M3;
        default: return KGEN_DTYPE_FP8_E5M2;
    }
}

kgen_fwd_params no_params() {
    kgen_fwd_params p = {};
    p.struct_size = sizeof p;
    return p;
}

void enter_queries(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& cu_seqlens_q, const std::optional<Tensor>& seqused_q, int64_t longest) {
    q.require_dtype({ScalarType::Half, ScalarType::BFloat16, ScalarType::Float8_e4m3fn});
    if (cu_seqlens_q) q.require_shape({ANY, ANY, ANY});
    else q.require_shape({ANY, ANY, ANY, ANY});
    q.require_rows();
    const strides_of strides(q);
    p.q = q.data();
    p.q_batch_stride = strides.batch, p.q_row_stride = strides.row, p.q_head_stride = strides.head;
    p.dtype = dtype_of(q);
    p.num_heads = narrow(q.op, "heads of q", q.size(-2));
    p.head_dim = narrow(q.op, "head dim of q", q.size(-1));
    if (cu_seqlens_q) {
        const view bounds(q.op, "cu_seqlens_q", *cu_seqlens_q);
        require(bounds.rank == 1 && bounds.size(0) >= 1, q.op, "`cu_seqlens_q` must be a vector of batch + 1 entries");
        p.batch = narrow(q.op, "batch", bounds.size(0) - 1);
        p.cu_seqlens_q = starts("cu_seqlens_q", cu_seqlens_q, p.batch, q);
        p.total_q = narrow(q.op, "total_q", q.size(0));
        p.seqlen_q = narrow(q.op, "max_seqlen_q", longest < q.size(0) ? longest : q.size(0));
    } else {
        p.batch = narrow(q.op, "batch", q.size(0));
        p.seqlen_q = narrow(q.op, "rows of q", q.size(1));
    }
    p.seqused_q = entries(q.op, "seqused_q", seqused_q, p.batch, q);
}

void enter_keys(kgen_fwd_params& p, const key_tensors& keys, const view& q) {
    const view &k = keys.k, &v = keys.v;
    const bool packed = keys.cu_seqlens_k && !keys.page_table;
    require(!(keys.cu_seqlens_k && keys.page_table), q.op, "`cu_seqlens_k` and `", keys.table_name, "` cannot both say where keys are");
    const int64_t head_dim = q.size(-1);
    if (packed) k.require_shape({ANY, ANY, head_dim}), v.require_shape({k.size(0), k.size(1), ANY});
    else k.require_shape({ANY, ANY, ANY, head_dim}), v.require_shape({k.size(0), k.size(1), k.size(2), ANY});
    for (const view* tensor : {&k, &v}) {
        tensor->require_rows();
        tensor->require_device_of(q);
        require(tensor->dtype == k.dtype, q.op, "`", v.name, "` has another dtype than `", k.name, "`");
    }
    const int32_t dtype = dtype_of(k);
    if (dtype != p.dtype) {
        const bool is_fp8 = dtype == KGEN_DTYPE_FP8_E4M3 || dtype == KGEN_DTYPE_FP8_E5M2;
        require(is_fp8 && p.dtype != KGEN_DTYPE_FP8_E4M3, q.op, "`", k.name, "` has another dtype than `q`; it may be FP8 where `q` is fp16 or bf16, and nothing else");
        p.kv_dtype = dtype;
    }
    const strides_of of_k(k), of_v(v);
    p.k = k.data(), p.v = v.data();
    p.k_batch_stride = of_k.batch, p.k_row_stride = of_k.row, p.k_head_stride = of_k.head;
    p.v_batch_stride = of_v.batch, p.v_row_stride = of_v.row, p.v_head_stride = of_v.head;
    p.num_heads_k = narrow(q.op, "heads of k", k.size(-2));
    p.head_dim_v = narrow(q.op, "head dim of v", v.size(-1));
    p.cache_batch_idx = entries(q.op, keys.batch_idx_name, keys.batch_idx, p.batch, q);
    p.leftpad_k = entries(q.op, "leftpad_k", keys.leftpad_k, p.batch, q);
    if (keys.page_table) {
        enter_pages(p, keys, q);
    } else if (packed) {
        require(keys.longest.has_value(), q.op, "`max_seqlen_k` must be given with cu_seqlens_k");
        p.cu_seqlens_k = starts("cu_seqlens_k", keys.cu_seqlens_k, p.batch, q);
        p.total_k = narrow(q.op, "total_k", k.size(0));
        p.seqlen_k = narrow(q.op, "max_seqlen_k", *keys.longest < k.size(0) ? *keys.longest : k.size(0));
    } else {
        require(keys.batch_idx || k.size(0) >= p.batch, q.op, "`", k.name, "` has ", k.size(0), " entries for a batch of ", p.batch);
        if (keys.batch_idx) {
            require(k.size(0) > 0, q.op, "`", k.name, "` has no entries, of which `", keys.batch_idx_name, "` could name one");
            p.cache_entries = narrow(q.op, "entries of k", k.size(0));
        }
        p.seqlen_k = narrow(q.op, "rows of k", k.size(1));
    }
}

void enter_descales(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& q_descale, const std::optional<Tensor>& k_descale, const std::optional<Tensor>& v_descale) {
    const auto read = [&](const char* name, const std::optional<Tensor>& given, const float*& data, int64_t& of_batch, int64_t& of_head) {
        if (!given) return;
        const view descale(q.op, name, *given);
        descale.require_shape({p.batch, p.num_heads_k});
        descale.require_dtype({ScalarType::Float});
        descale.require_device_of(q);
        data = descale.data_as<const float>();
        of_batch = descale.stride(0), of_head = descale.stride(1);
    };
    const bool queries = p.dtype == KGEN_DTYPE_FP8_E4M3;
    if (queries) read("q_descale", q_descale, p.q_descale, p.q_descale_batch_stride, p.q_descale_head_stride);
    if (!queries && p.kv_dtype == 0) return;
    read("k_descale", k_descale, p.k_descale, p.k_descale_batch_stride, p.k_descale_head_stride);
    read("v_descale", v_descale, p.v_descale, p.v_descale_batch_stride, p.v_descale_head_stride);
}

void enter_masks(kgen_fwd_params& p, const char* op, bool is_causal, int64_t window_left, int64_t window_right, double softcap) {
    require(window_left >= -1, op, "`window_size_left` is ", window_left, "; expected -1, for no limit, or more");
    require(window_right >= -1, op, "`window_size_right` is ", window_right, "; expected -1, for no limit, or more");
    require(softcap >= 0, op, "`softcap` is ", softcap, "; expected 0, for none, or more");
    if (is_causal) p.flags |= KGEN_FLAG_CAUSAL;
    if (window_left >= 0 || window_right >= 0) {
        p.flags |= KGEN_FLAG_WINDOW;
        p.features.window_left = narrow(op, "window_size_left", window_left);
        p.features.window_right = narrow(op, "window_size_right", window_right);
    }
    p.features.softcap = static_cast<float>(softcap);
}

void enter_alibi(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& alibi_slopes) {
    if (!alibi_slopes) return;
    const view slopes(q.op, "alibi_slopes", *alibi_slopes);
    slopes.require_dtype({ScalarType::Float});
    slopes.require_rows();
    slopes.require_device_of(q);
    if (slopes.rank == 2) slopes.require_shape({p.batch, p.num_heads});
    else slopes.require_shape({p.num_heads});
    p.features.alibi_slopes = slopes.data_as<const float>();
    p.features.alibi_batch_stride = slopes.rank == 2 ? slopes.stride(0) : 0;
}

void enter_sinks(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& s_aux) {
    if (!s_aux) return;
    const view sinks(q.op, "s_aux", *s_aux);
    sinks.require_shape({p.num_heads});
    sinks.require_dtype({ScalarType::Float, ScalarType::BFloat16});
    sinks.require_rows();
    sinks.require_device_of(q);
    p.features.sinks = sinks.data();
    p.features.sinks_dtype = sinks.dtype == ScalarType::Float ? KGEN_DTYPE_FP32 : KGEN_DTYPE_BF16;
}

results enter_results(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& out, const device_scope& device) {
    const bool packed = p.cu_seqlens_q != nullptr;
    const int64_t rows = packed ? p.total_q : p.seqlen_q;
    const ScalarType dtype = q.dtype == ScalarType::Float8_e4m3fn ? ScalarType::BFloat16 : q.dtype;
    const auto made = [&] { return packed ? device.allocate({rows, p.num_heads, p.head_dim_v}, dtype) : device.allocate({p.batch, rows, p.num_heads, p.head_dim_v}, dtype); };
    results r = {out ? *out : made(), packed ? device.allocate({p.num_heads, rows}, ScalarType::Float) : device.allocate({p.batch, p.num_heads, rows}, ScalarType::Float)};
    const view o(q.op, "out", r.out);
    o.require_dtype({dtype});
    if (packed) o.require_shape({rows, p.num_heads, p.head_dim_v});
    else o.require_shape({p.batch, rows, p.num_heads, p.head_dim_v});
    o.require_rows();
    o.require_device_of(q);
    const strides_of strides(o);
    p.o = o.data();
    p.o_batch_stride = strides.batch, p.o_row_stride = strides.row, p.o_head_stride = strides.head;
    p.lse = static_cast<float*>(r.lse.data_ptr());
    p.lse_batch_stride = packed ? 0 : p.num_heads * rows;
    p.lse_head_stride = rows;
    return r;
}

int attend(kgen_fwd_params& p, const device_scope& device, const std::optional<kgen_append_kv_params>& append) {
    const auto launch = [&] { return append ? kgen_fwd_kvcache(&*append, &p, device.stream()) : kgen_fwd(&p, device.stream()); };
    size_t bytes = workspace_of(p, device.index());
    if (bytes > MOST_UNASKED && p.num_splits == 0) {
        p.num_splits = splits_within(p, MOST_UNASKED, device.index());
        bytes = workspace_of(p, device.index());
    }
    if (bytes == 0) return launch();
    const Tensor workspace = device.allocate({static_cast<int64_t>(bytes)}, ScalarType::Byte);
    p.workspace = workspace.data_ptr();
    p.workspace_bytes = bytes;
    const int code = launch();
    p.workspace = nullptr, p.workspace_bytes = 0;
    return code;
}

}  // namespace kgen_torch
