// New rows of K and V into the cache before attention, with rotary embedding of K and Q: the first structure of
// kgen_fwd_kvcache.
#pragma once

#include <optional>

#include "attention.h"

namespace kgen_torch {

struct new_rows {
    const std::optional<Tensor>& k;  // (B, rows, Hk, D), or (total, Hk, D) with cu_seqlens
    const std::optional<Tensor>& v;
    const std::optional<Tensor>& cu_seqlens;
    const std::optional<Tensor>& cached;  // one per sequence: rows already in the cache
    const std::optional<Tensor>& rotary_cos;  // (positions, rotary dim / 2)
    const std::optional<Tensor>& rotary_sin;
    const std::optional<Tensor>& seqlens_rotary;
    bool is_interleaved;
    // The arguments' names, in the order of the fields.
    const char *k_name, *v_name, *cu_seqlens_name, *cached_name;
};

// An append, if there is one, and the data passed from it to attention. Must live until both are launched.
struct appended {
    std::optional<kgen_append_kv_params> call;
    std::optional<Tensor> lengths, q;
};

// Describes the rows to write, if any, and changes `p` (queries, keys and masks already set) to attend to the cache
// that includes them: lengths, and rotated queries. attend() runs both. Without new rows, refuses arguments that matter
// only with them.
appended append(kgen_fwd_params& p, const new_rows& rows, const key_tensors& cache, const view& q, const device_scope& device);

// Per sequence: cached + rows, or cached + cu_seqlens[b + 1] - cu_seqlens[b] if cu_seqlens is given.
Tensor lengths_with(const Tensor& cached, const std::optional<Tensor>& cu_seqlens, int64_t rows, int64_t batch, const device_scope& device);

}  // namespace kgen_torch
