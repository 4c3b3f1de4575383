// How heads are grouped whose work is dealt out together. Host code.
#pragma once

#include "kgen.h"

namespace kgen {

// Bytes of K and V that a group of short sequences may have: what L2 (50 MB on Hopper, in two halves that may hold copies of the
// same lines) keeps beside the Q and O that stream through it. Measured on an H100: 33 MB cost a seventh at 16 MB's speed.
constexpr uint64_t L2_FOR_KEYS = 17u << 20;

// By how much a group of `heads` heads leaves some blocks with more than others, in the longest piece's 1024ths. Its pieces, the
// longest first, are dealt out there and back, so two rounds cancel out; what is left is a last round without a fellow, or one
// that ends early.
inline uint64_t imbalance(uint64_t heads, uint64_t pieces_a_head, uint64_t blocks) {
    const uint64_t pieces = heads * pieces_a_head;
    const uint64_t rounds = (pieces + blocks - 1) / blocks;
    const uint64_t in_last = pieces - (rounds - 1) * blocks;
    if (rounds % 2 != 0) return in_last * 1024 / heads + 1024;  // who has no piece also saves what each piece costs besides
    if (in_last == blocks) return 0;
    const uint64_t longer = (blocks - in_last) * 1024 / heads;
    return longer > 1024 ? longer - 1024 : 1024 - longer;
}

// Query heads (of all batch entries) a group.
//
// Short sequences: as many as make two rounds, one there and one back, or, where L2 does not hold so many keys, one; the next
// group's then goes the other way. Long ones, whose blocks walk over the keys of a head together and so share what L2 need not
// keep for long: the number that leaves the least imbalance, while each head still has eight blocks.
inline uint32_t heads_a_group(const kgen_fwd_params& p, uint32_t blocks, uint32_t pieces_a_head) {
    const uint64_t heads = static_cast<uint64_t>(p.num_heads) * p.batch;
    if (pieces_a_head < blocks / 4) {
        const uint64_t bytes_a_head = 4ull * p.head_dim * p.seqlen_k * p.num_heads_k / p.num_heads;
        const uint64_t two_rounds = 2 * blocks / pieces_a_head;
        const uint64_t count = two_rounds * bytes_a_head <= L2_FOR_KEYS ? two_rounds : blocks / pieces_a_head;
        return static_cast<uint32_t>(count < heads ? count : heads);
    }
    uint64_t most = blocks / 8 > 0 ? blocks / 8 : 1;
    if (most > heads) most = heads;
    uint64_t best = most, least = ~0ull;
    for (uint64_t count = most; 2 * count >= most && count >= 1; --count) {
        const uint64_t last = heads % count;
        const uint64_t all = imbalance(count, pieces_a_head, blocks) * (heads / count) + (last > 0 ? imbalance(last, pieces_a_head, blocks) : 0);
        if (all < least) {
            least = all;
            best = count;
        }
    }
    return static_cast<uint32_t>(best);
}

}  // namespace kgen
