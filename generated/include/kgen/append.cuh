// New rows of K and V that attention itself writes into the cache (kgen_fwd_params.k_new): the keys of a sequence that
// they become, and their positions.
#pragma once

#include "kgen.h"
#include "kgen/append_params.cuh"
#include "kgen/cache.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/global.cuh"
#include "kgen/platform.cuh"

namespace kgen {

// The new rows of a sequence that its cache has room for.
struct new_rows {
    int before;  // rows of the cache before them
    int first;   // the key that the first one becomes: below 0 if leftpad_k hides it
    int count;
};

// The new rows of a sequence, and its keys with them.
KGEN_DEVICE sequence keys_with_new_rows(const kgen_fwd_params& p, int batch, new_rows& fresh) {
    // Limited to the room in the cache; none if the sequence's entry does not exist.
    const int before = entry_is_there(p, batch) ? min(load_global(p.seqused_k + batch), p.seqlen_k) : -1;
    const int hidden = p.leftpad_k == nullptr ? 0 : max(0, load_global(p.leftpad_k + batch));
    fresh.before = before;
    fresh.first = before - hidden;
    fresh.count = before < 0 ? 0 : max(0, min(p.seqlen_new, p.seqlen_k - before));
    return {hidden, max(0, fresh.first + fresh.count), false};
}

KGEN_DEVICE sequence keys_with_new_rows(const kgen_fwd_params& p, int batch) {
    new_rows unused;
    return keys_with_new_rows(p, batch, unused);
}

// The position of a row for the rotation; `row` counts rows of Q or new rows of K. -1: outside the tables.
KGEN_DEVICE int rotary_position(const kgen_fwd_params& p, int batch, int before, int row) {
    const int64_t position = static_cast<int64_t>(p.seqlens_rotary == nullptr
                                                      ? before : load_global(p.seqlens_rotary + batch)) + row;
    return 0 <= position && position < p.rotary_rows ? static_cast<int>(position) : -1;
}

// The row that determines a query's position: its own with a mask, otherwise the first for all queries.
KGEN_DEVICE int rotary_row(const kgen_fwd_params& p, int query) {
    return (p.flags & (KGEN_FLAG_CAUSAL | KGEN_FLAG_WINDOW)) != 0 ? query : 0;
}

// True if new rows and the tables of the rotation can be moved in pieces of 8 elements.
inline bool new_rows_are_aligned(const kgen_fwd_params& p) {
    return rows_are_aligned(p.k_new, p.k_new_batch_stride, p.k_new_row_stride, p.k_new_head_stride) &&
           rows_are_aligned(p.v_new, p.v_new_batch_stride, p.v_new_row_stride, p.v_new_head_stride) &&
           rows_are_aligned(p.rotary_cos, 0, p.rotary_row_stride, 0) &&
           rows_are_aligned(p.rotary_sin, 0, p.rotary_row_stride, 0);
}

}  // namespace kgen
