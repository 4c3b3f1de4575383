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
    const std::optional<Tensor>& cached;  // by sequence: rows in the cache before these
    const std::optional<Tensor>& rotary_cos;  // (positions, rotary dim / 2)
    const std::optional<Tensor>& rotary_sin;
    const std::optional<Tensor>& seqlens_rotary;
    bool is_interleaved;
    // The arguments' names, in the order of the fields.
    const char *k_name, *v_name, *cu_seqlens_name, *cached_name;
};

// An append, where there is one, and what passes from it to attention: to be kept until both are launched.
struct appended {
    std::optional<kgen_append_kv_params> call;
    std::optional<Tensor> lengths, q;
};

// Says which rows to write where there are some, and changes `p` (queries, keys and masks entered) to attend to the
// cache with them: lengths, and rotated queries. attend() does both. Refuses arguments that only matter with new rows
// where there are none.
appended append(kgen_fwd_params& p, const new_rows& rows, const key_tensors& cache, const view& q, const device_scope& device);

// By sequence: cached + rows, or cached + cu_seqlens[b + 1] - cu_seqlens[b] where cu_seqlens is given.
Tensor lengths_with(const Tensor& cached, const std::optional<Tensor>& cu_seqlens, int64_t rows, int64_t batch, const device_scope& device);

}  // namespace kgen_torch
