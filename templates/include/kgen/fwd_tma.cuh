// K and V of a forward pass as TMA sees them. Host code.
#pragma once

#include "kgen.h"
#include "kgen/tma_tile.cuh"

namespace kgen {

// A packed tensor is one long batch entry. Where its rows have not been counted, the map knows no end; kernels copy by TMA
// only tiles that lie inside a sequence, so none is needed.
inline tma_tensor fwd_tensor(const kgen_fwd_params& p, const void* base, int64_t batch_stride, int64_t row_stride, int64_t head_stride) {
    const bool packed = p.cu_seqlens_k != nullptr;
    const int32_t rows = !packed ? p.seqlen_k : p.total_k > 0 ? p.total_k : INT32_MAX;
    const int32_t batches = packed ? 1 : p.batch;
    return {base,       static_cast<uint64_t>(p.head_dim), static_cast<uint64_t>(rows), static_cast<uint64_t>(p.num_heads_k), static_cast<uint64_t>(batches),
            row_stride, head_stride,                       batch_stride};
}

inline tma_tensor fwd_keys(const kgen_fwd_params& p) { return fwd_tensor(p, p.k, p.k_batch_stride, p.k_row_stride, p.k_head_stride); }

inline tma_tensor fwd_values(const kgen_fwd_params& p) { return fwd_tensor(p, p.v, p.v_batch_stride, p.v_row_stride, p.v_head_stride); }

// Whether TMA can bring tiles of K and V; others come by cp.async or by element.
template <class Tile>
bool fwd_tma_takes(const kgen_fwd_params& p) {
    char why[160];
    return tma_takes<Tile>(fwd_keys(p), why, sizeof why) && tma_takes<Tile>(fwd_values(p), why, sizeof why);
}

}  // namespace kgen
