// Conversion of tensors to kgen_fwd_params, and the call. The entry points of both schemas use it.
//
//   tensors of the schema                        kgen_fwd_params
//   -------------------------------------------  ------------------------------------------------------------------
//   q (total_q, H, D) with cu_seqlens_q          q, strides, cu_seqlens_q, total_q, num_heads, head_dim
//   q (B, S, H, D)                               q, strides, seqlen_q = S
//   k, v (pages, page, Hk, D) with a page table  k, v, batch stride = page stride, page_size, num_pages, page_table and
//                                                its row stride
//   k, v (total_k, Hk, D) with cu_seqlens_k      k, v, cu_seqlens_k, total_k
//   k, v (entries, S, Hk, D)                     k, v, seqlen_k = S; with a batch_idx cache_entries
//   seqused_q, seqused_k                         the same
//   k, v FP8 and q not                           kv_dtype, k_descale, v_descale
//   q, k, v E4M3                                 dtype, all three descales; where the library has no such kernel, see
//                                                widen.h
//   out, LSE (H, total_q) or (B, H, S)           o, lse
//   is_causal, window_size_left, _right          KGEN_FLAG_CAUSAL; KGEN_FLAG_WINDOW where one of them is not -1
//
// The host reads nothing from device memory. Launches and workspace depend only on shapes.
#pragma once

#include <optional>

#include "device.h"
#include "kgen.h"
#include "view.h"

namespace kgen_torch {

// KGEN_DTYPE_* of an element type; refuses those that attention does not have.
int32_t dtype_of(const view& tensor);

// Zeros, with the structure's size.
kgen_fwd_params no_params();

// Q. `longest`: the most queries that a sequence may have, only with cu_seqlens_q. Sets batch, too.
void enter_queries(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& cu_seqlens_q, const std::optional<Tensor>& seqused_q, int64_t longest);

// K and V of one of three forms. Without `longest`, a sequence may have as many keys as its pages or its entry have
// rows; packed keys need it. After enter_queries().
struct key_tensors {
    const view& k;
    const view& v;
    const std::optional<Tensor>& cu_seqlens_k;
    const std::optional<Tensor>& page_table;
    const std::optional<Tensor>& batch_idx;  // entry of K and V of each sequence; neither packed nor paged
    const std::optional<Tensor>& leftpad_k;  // rows of K and V before each sequence's first key
    std::optional<int64_t> longest;
    const char* table_name;      // of the arguments `page_table` and `batch_idx`
    const char* batch_idx_name;
};
void enter_keys(kgen_fwd_params& p, const key_tensors& keys, const view& q);

// Factors of FP8 tensors, (B, Hk) fp32 with any strides. Those of other tensors are not read: vLLM always passes them.
void enter_descales(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& q_descale, const std::optional<Tensor>& k_descale, const std::optional<Tensor>& v_descale);

void enter_masks(kgen_fwd_params& p, const char* op, bool is_causal, int64_t window_left, int64_t window_right, double softcap);

// (H) or (B, H) fp32; the batch must be known.
void enter_alibi(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& alibi_slopes);

// (H) fp32 or bf16.
void enter_sinks(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& s_aux);

// The results: `out` if it is given, otherwise a new tensor, and LSE.
struct results {
    Tensor out, lse;
};
results enter_results(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& out, const device_scope& device);

// Computes attention, after writing new rows into the cache if `append` is given. The workspace comes from Torch's
// allocator. Returns the code of kgen_fwd or kgen_fwd_kvcache.
int attend(kgen_fwd_params& p, const device_scope& device, const std::optional<kgen_append_kv_params>& append = std::nullopt);

}  // namespace kgen_torch
