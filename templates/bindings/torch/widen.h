// Conversion of FP8 queries for kernels that read E4M3 keys with 16-bit queries. Every E4M3 number is a bf16 number, so
// it is exact, and the factor of the queries is multiplied into K's:
//   softmax_scale (q q_descale) (k k_descale) = softmax_scale q (k (q_descale k_descale))
// It takes two more small launches; vLLM avoids them if it does not quantise queries. It is worthwhile if the library
// has no kernels for FP8 queries, or none that split keys for few queries over many keys.
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

// True if the call, as the library predicts, takes less time with bf16 queries, including their conversion. The answer
// is cached for calls that differ only in pointers, such as those of a model's layers.
bool is_faster_widened(const kgen_fwd_params& p, int32_t device);

// Changes a request with E4M3 queries, keys and values (pointers and strides of all are set) into one with bf16
// queries.
widened widen_queries(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& q_descale, const std::optional<Tensor>& k_descale, const device_scope& device);

}  // namespace kgen_torch
