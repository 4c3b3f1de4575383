// Grouping of heads for the distribution of their work. Host code.
#pragma once

#include "kgen.h"

namespace kgen {

// Bytes of K and V per group of short sequences: the amount that L2 (50 MB on Hopper, in two halves that may hold
// copies of the same lines) keeps while Q and O stream through it. Measured on an H100: 33 MB was a seventh slower than
// 16 MB.
constexpr uint64_t L2_FOR_KEYS = 17u << 20;

// The imbalance between blocks caused by a group of `heads` heads, in 1024ths of the longest item. Its items are
// assigned longest first, alternately forwards and backwards, so two rounds cancel out; the imbalance comes from a last
// round without a counterpart, or one that ends early.
inline uint64_t imbalance(uint64_t heads, uint64_t pieces_a_head, uint64_t blocks) {
    const uint64_t pieces = heads * pieces_a_head;
    const uint64_t rounds = (pieces + blocks - 1) / blocks;
    const uint64_t in_last = pieces - (rounds - 1) * blocks;
    // a block without an item also saves the fixed cost of one
    if (rounds % 2 != 0) return in_last * 1024 / heads + 1024;
    if (in_last == blocks) return 0;
    const uint64_t longer = (blocks - in_last) * 1024 / heads;
    return longer > 1024 ? longer - 1024 : 1024 - longer;
}

// Query heads (of all batch entries) per group.
//
// All of them if each item has a block to itself: groups would wait for one another. Otherwise, for short sequences: as
// many heads as make two rounds, one forwards and one backwards, or one round if L2 cannot hold that many keys; the
// next group's round then goes the other way. For long sequences, whose blocks iterate over the keys of a head
// together, so that L2 need not keep them for long: the number with the least imbalance, while each head still has
// eight blocks.
inline uint32_t heads_per_group(const kgen_fwd_params& p, uint32_t blocks, uint32_t pieces_a_head) {
    const uint64_t heads = static_cast<uint64_t>(p.num_heads) * p.batch;
    if (heads * pieces_a_head <= blocks) return static_cast<uint32_t>(heads);
    if (pieces_a_head < blocks / 4) {
        const uint64_t bytes_a_head = 2ull * (p.head_dim + p.head_dim_v) * p.seqlen_k * p.num_heads_k / p.num_heads;
        const uint64_t two_rounds = 2 * blocks / pieces_a_head;
        const uint64_t count = two_rounds * bytes_a_head <= L2_FOR_KEYS ? two_rounds : blocks / pieces_a_head;
        return static_cast<uint32_t>(count < heads ? count : heads);
    }
    uint64_t most = blocks / 8 > 0 ? blocks / 8 : 1;
    if (most > heads) most = heads;
    uint64_t best = most, least = ~0ull;
    for (uint64_t count = most; 2 * count >= most && count >= 1; --count) {
        const uint64_t last = heads % count;
        const uint64_t all = imbalance(count, pieces_a_head, blocks) * (heads / count) +
                             (last > 0 ? imbalance(last, pieces_a_head, blocks) : 0);
        if (all < least) {
            least = all;
            best = count;
        }
    }
    return static_cast<uint32_t>(best);
}

}  // namespace kgen
