// The ops of vLLM's _vllm_fa3_C: FlashAttention-3's signatures, on libkgen.
//
//   argument of fwd                              use
//   -------------------------------------------  ---------------------------------------------------------------------
//   q, k, v, cu_seqlens_*, seqused_*, max_seqlen_*, page_table, kv_batch_idx, leftpad_k, q_descale, k_descale,
//   v_descale, softmax_scale, is_causal, window_size_*, softcap, out            attention.h
//   k_new, v_new, cu_seqlens_k_new, rotary_*, seqlens_rotary, is_rotary_interleaved   append.h; seqused_k then is the
//                                                length of the cache before
//   q_v                                          qv
//   scheduler_metadata                           split_counts and work_counter: metadata.h
//   num_splits                                   num_splits. Above 1 an upper bound for each sequence, see most_queries
//   pack_gqa                                     a hint that changes no result: ignored, the dispatcher decides
//   s_aux                                        features.sinks
//   sm_margin, cp_world_size, cp_rank, cp_tot_seqused_k   refused unless 0, 1, 0 and None
//
// fwd returns out, LSE in fp32, and two undefined tensors in place of FlashAttention's partial results, if any.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "append.h"
#include "attention.h"
#include "errors.h"
#include "metadata.h"
#include "registration.h"
#include "widen.h"

namespace kgen_torch {

namespace {

using optional_tensor = std::optional<Tensor>;

// KGEN_VLLM_UNIFORM_GRAPHS=1: no graph is replayed with sequences longer than at its capture.
bool graphs_are_uniform() {
    static const bool uniform = [] {
        const char* value = std::getenv("KGEN_VLLM_UNIFORM_GRAPHS");
        if (value == nullptr || std::strcmp(value, "0") == 0) return false;
        require(std::strcmp(value, "1") == 0, "_vllm_fa3_C", "KGEN_VLLM_UNIFORM_GRAPHS is `", value, "`; expected 0 or 1");
        return true;
    }();
    return uniform;
}

// The most queries of a sequence. vLLM passes num_splits > 1 if a call may be captured in a graph. With
// cudagraph_mode=FULL it replays that graph with the same number of tokens divided differently, so that a sequence may
// be longer than max_seqlen_q was. FlashAttention-3 reads lengths on the device, so its callers may do that.
int64_t most_queries(int64_t num_splits, int64_t max_seqlen_q, int64_t total_q) { return num_splits > 1 && !graphs_are_uniform() ? total_q : max_seqlen_q; }

// q_v is (total_q, H, Dv) or (B, S, H, Dv), like q.
void enter_second_part(kgen_fwd_params& p, const view& q, const optional_tensor& q_v) {
    if (!q_v) return;
    const view qv(q.op, "q_v", *q_v);
    if (q.rank == 3) qv.require_shape({q.size(0), q.size(1), p.head_dim_v});
    else qv.require_shape({q.size(0), q.size(1), q.size(2), p.head_dim_v});
    qv.require_dtype({q.dtype});
    qv.require_rows();
    qv.require_device_of(q);
    p.qv = qv.data();
    p.qv_batch_stride = q.rank == 3 ? 0 : qv.stride(0);
    p.qv_row_stride = qv.stride(-3), p.qv_head_stride = qv.stride(-2);
}

std::vector<Tensor> fwd(Tensor q_, const Tensor& k_, const Tensor& v_, const optional_tensor& k_new, const optional_tensor& v_new, const optional_tensor& q_v,
                        const optional_tensor& out, const optional_tensor& cu_seqlens_q, const optional_tensor& cu_seqlens_k, const optional_tensor& cu_seqlens_k_new,
                        const optional_tensor& seqused_q, const optional_tensor& seqused_k, std::optional<int64_t> max_seqlen_q, std::optional<int64_t> max_seqlen_k,
                        const optional_tensor& page_table, const optional_tensor& kv_batch_idx, const optional_tensor& leftpad_k, const optional_tensor& rotary_cos,
                        const optional_tensor& rotary_sin, const optional_tensor& seqlens_rotary, const optional_tensor& q_descale, const optional_tensor& k_descale,
                        const optional_tensor& v_descale, double softmax_scale, bool is_causal, int64_t window_size_left, int64_t window_size_right, double softcap,
                        bool is_rotary_interleaved, const optional_tensor& scheduler_metadata, int64_t num_splits, [[maybe_unused]] std::optional<bool> pack_gqa,
                        int64_t sm_margin, const optional_tensor& s_aux, int64_t cp_world_size, int64_t cp_rank, const optional_tensor& cp_tot_seqused_k) {
    constexpr const char* op = "_vllm_fa3_C.fwd";
    require(sm_margin == 0, op, "`sm_margin` is ", sm_margin, ": multiprocessors cannot be left to others");
    require(cp_world_size == 1, op, "`cp_world_size` is ", cp_world_size, ": context parallelism is not provided");
    require(cp_rank == 0, op, "`cp_rank` is ", cp_rank, ": context parallelism is not provided");
    require(!cp_tot_seqused_k, op, "`cp_tot_seqused_k` is given: context parallelism is not provided");
    require(!cu_seqlens_q || max_seqlen_q, op, "`max_seqlen_q` must be given with cu_seqlens_q");

    const view q(op, "q", q_), k(op, "k", k_), v(op, "v", v_);
    const device_scope device(q_);
    kgen_fwd_params p = no_params();
    p.softmax_scale = static_cast<float>(softmax_scale);
    p.num_splits = narrow(op, "num_splits", num_splits);
    enter_queries(p, q, cu_seqlens_q, seqused_q, cu_seqlens_q ? most_queries(num_splits, *max_seqlen_q, q.size(0)) : 0);
    // With new keys, max_seqlen_k may not include them: assume as many keys as the cache has room for.
    const key_tensors keys = {k, v, cu_seqlens_k, page_table, kv_batch_idx, leftpad_k, k_new ? std::nullopt : max_seqlen_k, "page_table", "kv_batch_idx"};
    enter_keys(p, keys, q);
    p.seqused_k = entries(op, "seqused_k", seqused_k, p.batch, q);
    enter_descales(p, q, q_descale, k_descale, v_descale);
    enter_masks(p, op, is_causal, window_size_left, window_size_right, softcap);
    enter_sinks(p, q, s_aux);
    enter_second_part(p, q, q_v);
    enter_metadata(p, q, scheduler_metadata);
    const results made = enter_results(p, q, out, device);
    const new_rows rows = {k_new, v_new, cu_seqlens_k_new, seqused_k, rotary_cos, rotary_sin, seqlens_rotary, is_rotary_interleaved, "k_new", "v_new", "cu_seqlens_k_new", "seqused_k"};
    const appended kept = append(p, rows, keys, q, device);

    std::optional<widened> queries;  // lives until the launch
    if (p.dtype == KGEN_DTYPE_FP8_E4M3 && is_faster_widened(p, device.index())) queries = widen_queries(p, q, q_descale, k_descale, device);
    int code = attend(p, device, kept.call);
    if (code != KGEN_SUCCESS && code != KGEN_ERROR_LAUNCH && p.dtype == KGEN_DTYPE_FP8_E4M3) {  // tensors that TMA does not take
        queries = widen_queries(p, q, q_descale, k_descale, device);
        code = attend(p, device, kept.call);
    }
    require_success(code, op);
    return {made.out, made.lse, Tensor(), Tensor()};
}

Tensor get_scheduler_metadata(int64_t batch_size, int64_t max_seqlen_q, int64_t max_seqlen_k, int64_t num_heads, int64_t num_heads_k, int64_t headdim, int64_t headdim_v,
                              ScalarType qkv_dtype, const Tensor& seqused_k_, const optional_tensor& cu_seqlens_q, const optional_tensor& cu_seqlens_k,
                              const optional_tensor& cu_seqlens_k_new, const optional_tensor& seqused_q, const optional_tensor& leftpad_k, std::optional<int64_t> page_size,
                              int64_t max_seqlen_k_new, bool is_causal, int64_t window_size_left, int64_t window_size_right, bool has_softcap, int64_t num_splits,
                              [[maybe_unused]] std::optional<bool> pack_gqa, int64_t sm_margin) {
    constexpr const char* op = "_vllm_fa3_C.get_scheduler_metadata";
    require(sm_margin == 0, op, "`sm_margin` is ", sm_margin, ": multiprocessors cannot be left to others");
    require(batch_size >= 0, op, "`batch_size` is ", batch_size);
    const view lengths(op, "seqused_k", seqused_k_);
    const device_scope device(seqused_k_);
    kgen_fwd_params p = no_params();
    p.batch = narrow(op, "batch_size", batch_size);
    p.seqlen_q = narrow(op, "max_seqlen_q", max_seqlen_q), p.seqlen_k = narrow(op, "max_seqlen_k", max_seqlen_k + max_seqlen_k_new);
    p.num_heads = narrow(op, "num_heads", num_heads), p.num_heads_k = narrow(op, "num_heads_k", num_heads_k);
    p.head_dim = narrow(op, "headdim", headdim), p.head_dim_v = narrow(op, "headdim_v", headdim_v);
    p.num_splits = narrow(op, "num_splits", num_splits);
    switch (qkv_dtype) {
        case ScalarType::Half: p.dtype = KGEN_DTYPE_FP16; break;
        case ScalarType::BFloat16: p.dtype = KGEN_DTYPE_BF16; break;
        case ScalarType::Float8_e4m3fn: p.dtype = KGEN_DTYPE_FP8_E4M3; break;
        default: refuse(op, "`qkv_dtype` is ", torch::headeronly::toString(qkv_dtype), "; expected Half, BFloat16 or Float8_e4m3fn");
    }
    enter_masks(p, op, is_causal, window_size_left, window_size_right, has_softcap ? 1.0 : 0.0);
    p.seqused_k = entries(op, "seqused_k", seqused_k_, batch_size, lengths);
    p.cu_seqlens_q = entries(op, "cu_seqlens_q", cu_seqlens_q, batch_size + 1, lengths);
    p.cu_seqlens_k = entries(op, "cu_seqlens_k", cu_seqlens_k, batch_size + 1, lengths);
    p.seqused_q = entries(op, "seqused_q", seqused_q, batch_size, lengths);
    p.leftpad_k = entries(op, "leftpad_k", leftpad_k, batch_size, lengths);
    if (seqused_q) p.total_q = narrow(op, "batch_size * max_seqlen_q", batch_size * max_seqlen_q);
    if (page_size) {
        // The presence of pages selects the kernel; no page is looked up.
        p.page_table = p.seqused_k;
        p.page_size = narrow(op, "page_size", *page_size);
        p.num_pages = 1;
    }
    optional_tensor later;  // lengths with the rows that will have been appended
    if (cu_seqlens_k_new || max_seqlen_k_new > 0) {
        entries(op, "cu_seqlens_k_new", cu_seqlens_k_new, batch_size + 1, lengths);
        later = lengths_with(seqused_k_, cu_seqlens_k_new, max_seqlen_k_new, batch_size, device);
        p.seqused_k = static_cast<const int32_t*>(later->data_ptr());
    }
    return make_metadata(p, device);
}

}  // namespace

}  // namespace kgen_torch

STABLE_TORCH_LIBRARY(_vllm_fa3_C, ops) {
    ops.def(
        "fwd(Tensor! q, Tensor k, Tensor v, Tensor? k_new, Tensor? v_new, Tensor? q_v, Tensor!? out, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
        "Tensor? cu_seqlens_k_new, Tensor? seqused_q, Tensor? seqused_k, int? max_seqlen_q, int? max_seqlen_k, Tensor? page_table, Tensor? kv_batch_idx, "
        "Tensor? leftpad_k, Tensor? rotary_cos, Tensor? rotary_sin, Tensor? seqlens_rotary, Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, "
        "float softmax_scale, bool is_causal, int window_size_left, int window_size_right, float softcap, bool is_rotary_interleaved, "
        "Tensor? scheduler_metadata, int num_splits, bool? pack_gqa, int sm_margin, Tensor? s_aux, int cp_world_size, int cp_rank, "
        "Tensor? cp_tot_seqused_k) -> Tensor[]");
    ops.def(
        "get_scheduler_metadata(int batch_size, int max_seqlen_q, int max_seqlen_k, int num_heads, int num_heads_k, int headdim, int headdim_v, "
        "ScalarType qkv_dtype, Tensor seqused_k, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_seqlens_k_new, Tensor? seqused_q, Tensor? leftpad_k, "
        "int? page_size, int max_seqlen_k_new, bool is_causal, int window_size_left, int window_size_right, bool has_softcap, int num_splits, "
        "bool? pack_gqa, int sm_margin) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(_vllm_fa3_C, KGEN_TORCH_KEY, ops) {
    ops.impl("fwd", TORCH_BOX(&kgen_torch::fwd));
    ops.impl("get_scheduler_metadata", TORCH_BOX(&kgen_torch::get_scheduler_metadata));
}
