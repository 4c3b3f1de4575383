// FP8 queries where the library has FP8 kernels for K and V alone: kernels for pages read E4M3 keys beside 16-bit
// queries. Every E4M3 number is a bf16 number, so the queries are converted without loss, and their factor goes to K's:
//   softmax_scale (q q_descale) (k k_descale) = softmax_scale q (k (q_descale k_descale))
// Two small launches more; vLLM avoids them where it does not quantise queries.
#pragma once

#include <optional>

#include "attention.h"

namespace kgen_torch {

// Memory that a widened request refers to.
struct widened {
    Tensor q;
    std::optional<Tensor> k_descale;
};

// Changes a request with E4M3 queries, keys and values (pointers and strides of all entered) into one with bf16
// queries.
widened widen_queries(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& q_descale, const std::optional<Tensor>& k_descale, const device_scope& device);

}  // namespace kgen_torch
