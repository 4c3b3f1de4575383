// The ops of vLLM's _vllm_fa2_C: FlashAttention-2's signatures, on libkgen.
//
//   argument                                     use
//   -------------------------------------------  ---------------------------------------------------------------------
//   q, k, v, kcache, vcache, cu_seqlens_*, max_seqlen_*, block_table, leftpad_k, cache_batch_idx, softmax_scale,
//   is_causal, window_size_*, softcap, out       attention.h
//   seqused_k                                    seqused_k. cu_seqlens_k is then a dummy, and never read
//   alibi_slopes                                 features.alibi_slopes
//   num_splits                                   num_splits
//   zero_tensors                                 out and LSE are filled with 0 and -infinity first
//   k, v, seqlens_k, rotary_*, is_rotary_interleaved of fwd_kvcache   append.h
//   p_dropout, return_softmax, gen               refused unless 0, False and None
//
// All return out, and LSE in fp32. The ops for block-sparse attention exist but refuse every call.
#include <cmath>
#include <vector>

#include "append.h"
#include "aten.h"
#include "attention.h"
#include "errors.h"
#include "registration.h"

namespace kgen_torch {

namespace {

using optional_tensor = std::optional<Tensor>;

std::vector<Tensor> varlen_fwd(Tensor q_, const Tensor& k_, const Tensor& v_, const optional_tensor& out, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                               const optional_tensor& seqused_k, const optional_tensor& leftpad_k, const optional_tensor& block_table, const optional_tensor& alibi_slopes,
                               int64_t max_seqlen_q, int64_t max_seqlen_k, double p_dropout, double softmax_scale, bool zero_tensors, bool is_causal, int64_t window_size_left,
                               int64_t window_size_right, double softcap, bool return_softmax, int64_t num_splits, no_generator gen) {
    constexpr const char* op = "_vllm_fa2_C.varlen_fwd";
    require(p_dropout == 0, op, "`p_dropout` is ", p_dropout, ": dropout is not provided");
    require(!return_softmax, op, "`return_softmax` is True: probabilities are not provided");
    require(!gen, op, "`gen` is given: nothing is drawn at random");
    require(!seqused_k || block_table, op, "`seqused_k` needs `block_table`: `cu_seqlens_k` is not read beside it, so nothing says where packed keys begin");

    const view q(op, "q", q_), k(op, "k", k_), v(op, "v", v_);
    const device_scope device(q_);
    kgen_fwd_params p = no_params();
    p.softmax_scale = static_cast<float>(softmax_scale);
    p.num_splits = narrow(op, "num_splits", num_splits);
    enter_queries(p, q, cu_seqlens_q, std::nullopt, max_seqlen_q);
    require(!block_table || seqused_k, op, "`block_table` needs `seqused_k`, the keys of each sequence");
    enter_keys(p, {k, v, block_table ? optional_tensor() : cu_seqlens_k, block_table, std::nullopt, leftpad_k, max_seqlen_k, "block_table", ""}, q);
    p.seqused_k = entries(op, "seqused_k", seqused_k, p.batch, q);
    enter_masks(p, op, is_causal, window_size_left, window_size_right, softcap);
    enter_alibi(p, q, alibi_slopes);
    const results made = enter_results(p, q, out, device);
    if (zero_tensors) aten::fill(made.out, 0), aten::fill(made.lse, -INFINITY);
    require_success(attend(p, device), op);
    return {made.out, made.lse};
}

std::vector<Tensor> fwd_kvcache(Tensor q_, const Tensor& kcache, const Tensor& vcache, const optional_tensor& k_new, const optional_tensor& v_new,
                                const optional_tensor& seqlens_k, const optional_tensor& rotary_cos, const optional_tensor& rotary_sin,
                                const optional_tensor& cache_batch_idx, const optional_tensor& leftpad_k, const optional_tensor& block_table,
                                const optional_tensor& alibi_slopes, const optional_tensor& out, double softmax_scale, bool is_causal, int64_t window_size_left,
                                int64_t window_size_right, double softcap, bool is_rotary_interleaved, int64_t num_splits) {
    constexpr const char* op = "_vllm_fa2_C.fwd_kvcache";
    const view q(op, "q", q_), k(op, "kcache", kcache), v(op, "vcache", vcache);
    const device_scope device(q_);
    kgen_fwd_params p = no_params();
    p.softmax_scale = static_cast<float>(softmax_scale);
    p.num_splits = narrow(op, "num_splits", num_splits);
    enter_queries(p, q, std::nullopt, std::nullopt, 0);
    const key_tensors keys = {k, v, std::nullopt, block_table, cache_batch_idx, leftpad_k, std::nullopt, "block_table", "cache_batch_idx"};
    enter_keys(p, keys, q);
    p.seqused_k = entries(op, "seqlens_k", seqlens_k, p.batch, q);
    enter_masks(p, op, is_causal, window_size_left, window_size_right, softcap);
    enter_alibi(p, q, alibi_slopes);
    const results made = enter_results(p, q, out, device);
    const new_rows rows = {k_new, v_new, std::nullopt, seqlens_k, rotary_cos, rotary_sin, std::nullopt, is_rotary_interleaved, "k", "v", "", "seqlens_k"};
    const appended kept = append(p, rows, keys, q, device);
    require_success(attend(p, device, kept.call), op);
    return {made.out, made.lse};
}

[[noreturn]] void refuse_sparse(const char* op) { refuse(op, "`block_count`, `block_offset`, `column_count`, `column_index`: block-sparse attention is not provided"); }

std::vector<Tensor> fwd_sparse(Tensor, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const optional_tensor&, const optional_tensor&,
                               double, double, bool, double, bool, no_generator) {
    refuse_sparse("_vllm_fa2_C.fwd_sparse");
}

std::vector<Tensor> varlen_fwd_sparse(Tensor, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const optional_tensor&, const Tensor&,
                                      const Tensor&, const optional_tensor&, const optional_tensor&, int64_t, int64_t, double, double, bool, bool, double, bool, no_generator) {
    refuse_sparse("_vllm_fa2_C.varlen_fwd_sparse");
}

}  // namespace

}  // namespace kgen_torch

STABLE_TORCH_LIBRARY(_vllm_fa2_C, ops) {
    ops.def(
        "varlen_fwd(Tensor! q, Tensor k, Tensor v, Tensor!? out, Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor? seqused_k, Tensor? leftpad_k, "
        "Tensor? block_table, Tensor? alibi_slopes, int max_seqlen_q, int max_seqlen_k, float p_dropout, float softmax_scale, bool zero_tensors, bool is_causal, "
        "int window_size_left, int window_size_right, float softcap, bool return_softmax, int num_splits, Generator? gen) -> Tensor[]");
    ops.def(
        "fwd_kvcache(Tensor! q, Tensor kcache, Tensor vcache, Tensor? k, Tensor? v, Tensor? seqlens_k, Tensor? rotary_cos, Tensor? rotary_sin, "
        "Tensor? cache_batch_idx, Tensor? leftpad_k, Tensor? block_table, Tensor? alibi_slopes, Tensor!? out, float softmax_scale, bool is_causal, "
        "int window_size_left, int window_size_right, float softcap, bool is_rotary_interleaved, int num_splits) -> Tensor[]");
    ops.def(
        "fwd_sparse(Tensor! q, Tensor k, Tensor v, Tensor block_count, Tensor block_offset, Tensor column_count, Tensor column_index, Tensor!? out, "
        "Tensor? alibi_slopes, float p_dropout, float softmax_scale, bool is_causal, float softcap, bool return_softmax, Generator? gen) -> Tensor[]");
    ops.def(
        "varlen_fwd_sparse(Tensor! q, Tensor k, Tensor v, Tensor block_count, Tensor block_offset, Tensor column_count, Tensor column_index, Tensor!? out, "
        "Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor? seqused_k, Tensor? alibi_slopes, int max_seqlen_q, int max_seqlen_k, float p_dropout, "
        "float softmax_scale, bool zero_tensors, bool is_causal, float softcap, bool return_softmax, Generator? gen) -> Tensor[]");
}

STABLE_TORCH_LIBRARY_IMPL(_vllm_fa2_C, KGEN_TORCH_KEY, ops) {
    ops.impl("varlen_fwd", TORCH_BOX(&kgen_torch::varlen_fwd));
    ops.impl("fwd_kvcache", TORCH_BOX(&kgen_torch::fwd_kvcache));
    ops.impl("fwd_sparse", TORCH_BOX(&kgen_torch::fwd_sparse));
    ops.impl("varlen_fwd_sparse", TORCH_BOX(&kgen_torch::varlen_fwd_sparse));
}
