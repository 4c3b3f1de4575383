#include "numbers.h"

#include <cstdint>
#include <cstring>

namespace kgen_torch {

namespace {

// Reduces a pointer to NULL or not NULL: its presence is what requests a feature.
template <class Pointer>
void reduce(Pointer*& pointer) { pointer = reinterpret_cast<Pointer*>(static_cast<uintptr_t>(pointer != nullptr)); }

}  // namespace

kgen_fwd_params numbers_of(const kgen_fwd_params& given) {
    kgen_fwd_params p;
    std::memcpy(&p, &given, sizeof p);  // padding too: requests are compared as bytes
    reduce(p.q), reduce(p.k), reduce(p.v), reduce(p.o), reduce(p.lse);
    reduce(p.cu_seqlens_q), reduce(p.cu_seqlens_k), reduce(p.seqused_q), reduce(p.seqused_k);
    reduce(p.q_descale), reduce(p.k_descale), reduce(p.v_descale);
    reduce(p.split_counts), reduce(p.workspace), reduce(p.features.alibi_slopes), reduce(p.features.sinks);
    reduce(p.page_table), reduce(p.cache_batch_idx), reduce(p.leftpad_k), reduce(p.qv), reduce(p.work_counter), reduce(p.arrivals);
    return p;
}

}  // namespace kgen_torch
