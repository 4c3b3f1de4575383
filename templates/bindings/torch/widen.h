// FP8 queries, converted for kernels that read E4M3 keys beside 16-bit queries. Every E4M3 number is a bf16 number, so
// nothing is lost, and the queries' factor goes to K's:
//   softmax_scale (q q_descale) (k k_descale) = softmax_scale q (k (q_descale k_descale))
// Two small launches more; vLLM avoids them where it does not quantise queries. Worth it where the library has no
// kernels for FP8 queries, or none that split keys where few queries meet many.
#pragma once

#include <cstdint>
#include <optional>

#include "attention.h"

namespace kgen_torch {

// Memory that a widened request refers to.
struct widened {
    Tensor q;
    std::optional<Tensor> k_descale;
};

// Whether the call, as the library predicts it, takes less time with bf16 queries, their conversion included. The
// answer is remembered for calls that differ in pointers alone, such as those of a model's layers.
bool is_faster_widened(const kgen_fwd_params& p, int32_t device);

// Changes a request with E4M3 queries, keys and values (pointers and strides of all entered) into one with bf16
// queries.
widened widen_queries(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& q_descale, const std::optional<Tensor>& k_descale, const device_scope& device);

}  // namespace kgen_torch
