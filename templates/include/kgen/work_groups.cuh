// How heads are grouped whose work is dealt out together. Host code.
#pragma once

#include "kgen.h"

namespace kgen {

// Bytes of K and V that a group may have: more than half of a Hopper GPU's 50 MB of L2 is kept for them.
constexpr uint64_t L2_FOR_KEYS = 28u << 20;

// Query heads (of all batch entries) a group: as many as L2 holds the K and V of, or a few less where their pieces of work,
// `pieces_a_head` each, then come out nearer to an even number of rounds of all `blocks`.
inline uint32_t heads_that_share_l2(const kgen_fwd_params& p, uint32_t blocks, uint32_t pieces_a_head) {
    const uint64_t heads = static_cast<uint64_t>(p.num_heads) * p.batch;
    const uint64_t bytes_a_head = 4ull * p.head_dim * (p.seqlen_k > 0 ? p.seqlen_k : 1) * p.num_heads_k / p.num_heads + 1;
    uint64_t most = L2_FOR_KEYS / bytes_a_head;
    if (most >= heads) return static_cast<uint32_t>(heads);
    if (most < 1) most = 1;
    uint64_t best = most, least_idle = ~0ull;
    for (uint64_t count = most; count >= 1 && 2 * count >= most; --count) {
        const uint64_t round = 2ull * blocks, pieces = count * pieces_a_head;
        const uint64_t idle = (round - pieces % round) % round * 1024 / pieces;  // in 1024ths of the work
        if (idle < least_idle) {
            least_idle = idle;
            best = count;
        }
    }
    return static_cast<uint32_t>(best);
}

}  // namespace kgen
