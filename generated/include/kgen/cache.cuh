// A cache of K and V with more entries than the batch, or with rows before a sequence's first key
// (kgen_fwd_params.cache_batch_idx and leftpad_k). Without either, the functions return the same as those of
// kgen/fwd_params.cuh.
#pragma once

#include "kgen.h"
#include "kgen/fwd_params.cuh"
#include "kgen/global.cuh"
#include "kgen/platform.cuh"

namespace kgen {

// The entry of K and V that holds a sequence; K and V must not be packed.
KGEN_DEVICE int cache_entry(const kgen_fwd_params& p, int batch) {
    return p.cache_batch_idx == nullptr ? batch : load_global(p.cache_batch_idx + batch);
}

// True if the sequence's entry exists in K and V. If the caller has not given their number of entries, any
// non-negative entry counts as existing.
KGEN_DEVICE bool entry_is_there(const kgen_fwd_params& p, int batch) {
    const int32_t entries = p.cache_entries > 0 ? p.cache_entries : INT32_MAX;
    return p.cache_batch_idx == nullptr ||
           static_cast<uint32_t>(load_global(p.cache_batch_idx + batch)) < static_cast<uint32_t>(entries);
}

// The keys of a sequence: none if its entry does not exist. Lengths given by the caller include the rows before its
// first key.
KGEN_DEVICE sequence cached_keys(const kgen_fwd_params& p, int batch) {
    sequence s = sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k);
    if (p.leftpad_k != nullptr) {
        s.first_row = max(0, load_global(p.leftpad_k + batch));
        s.rows = max(0, s.rows - s.first_row);
    }
    if (!entry_is_there(p, batch)) s.rows = 0;
    return s;
}

// Element offset of the first key of a sequence and head.
KGEN_DEVICE int64_t cached_offset(const kgen_fwd_params& p, sequence s, int batch, int head, int64_t batch_stride,
                                  int64_t row_stride, int64_t head_stride) {
    return (s.packed ? 0 : cache_entry(p, batch) * batch_stride) + s.first_row * row_stride + head * head_stride;
}

// True if rows of the tensors that do not belong to the sequence may precede its first key.
KGEN_DEVICE bool has_foreign_rows(const kgen_fwd_params& p) {
    return p.cu_seqlens_k != nullptr || p.leftpad_k != nullptr;
}

}  // namespace kgen
