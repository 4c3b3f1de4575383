// Grouping of heads for the distribution of their work. Host code.
#pragma once

#include "kgen.h"

namespace kgen {

// Bytes of K and V per group of short sequences: the amount that L2 (50 MB on Hopper, in two halves that may hold
// copies of the same lines) keeps while Q and O stream through it. Measured on an H100: 33 MB was a seventh slower than
// 16 MB.
constexpr uint64_t L2_FOR_KEYS = 17u << 20;

// Packed heads of sequences whose longest causal items take fewer steps are better taken one sequence after another:
// their items are nearly alike, and groups leave gaps. On an H200, groups gave 0.90 of the rate with 3 steps, 1.20 with
// 6, and 1.37 to 1.45 with 9 and more.
constexpr uint32_t UNLIKE_STEPS = 6;

// The work items of a head: its query tiles, the one with the most keys first.
struct head_items {
    uint32_t count;
    uint32_t tile_rows, tile_keys;
    int32_t keys;  // of the sequence
    int32_t seen;  // by the first item's last row; every further item ends `tile_rows` earlier
    int32_t span;  // most keys of an item, which a window limits

    // Time of an item: its key tiles, and as much as one of them for its fixed cost.
    uint32_t steps(uint32_t item) const {
        const int64_t end = static_cast<int64_t>(seen) - static_cast<int64_t>(item) * tile_rows;
        const int64_t visible = end < keys ? end : keys;
        const uint32_t own = static_cast<uint32_t>(visible < 0 ? 0 : visible < span ? visible : span);
        return (own + tile_keys - 1) / tile_keys + 1;
    }

    // All items' time.
    uint64_t all_steps() const {
        uint64_t all = 0;
        for (uint32_t item = 0; item < count; ++item) all += steps(item);
        return all;
    }
};

// Items of a head for tiles of `tile_rows` queries and `tile_keys` keys, with a causal mask or a window.
inline head_items items_of_head(const kgen_fwd_params& p, bool causal, bool window, uint32_t count, uint32_t tile_rows,
                                uint32_t tile_keys) {
    const bool left = window && p.features.window_left >= 0, right = window && !causal && p.features.window_right >= 0;
    const int64_t after = right ? p.features.window_right : 0;
    const int64_t span = left && (causal || right) ? tile_rows + p.features.window_left + after : p.seqlen_k;
    const int64_t seen = causal || right ? p.seqlen_k + after : INT32_MAX;
    return {count, tile_rows, tile_keys, p.seqlen_k, static_cast<int32_t>(seen < INT32_MAX ? seen : INT32_MAX),
            static_cast<int32_t>(span < p.seqlen_k ? span : p.seqlen_k)};
}

// The items of a group of heads, which are assigned longest first, alternately forwards and backwards.
class head_group {
    static constexpr uint32_t MOST_ROUNDS = 12;

    const head_items& of;
    uint32_t heads, blocks, pieces, rounds;
    // Of many rounds, only the last ones are evaluated for each block: two full rounds, one forwards and one backwards,
    // take nearly the same time in all blocks.
    uint32_t alike;
    uint64_t steps_of_alike = 0;

public:
    head_group(const head_items& of, uint32_t heads, uint32_t blocks)
        : of(of), heads(heads), blocks(blocks), pieces(heads * of.count), rounds((pieces + blocks - 1) / blocks),
          alike(rounds > MOST_ROUNDS ? (rounds - 4) / 2 * 2 : 0) {
        for (uint32_t round = 0; round < alike; round += 2) {
            steps_of_alike += of.steps(round * blocks / heads) + of.steps(((round + 2) * blocks - 1) / heads);
        }
    }

    // The number of blocks with an item in the last round; 0 if all have one.
    uint32_t in_last_round() const { return pieces % blocks; }

    // Time of a block.
    uint64_t steps(uint32_t block, uint32_t first_back) const {
        uint64_t all = steps_of_alike;
        for (uint32_t round = alike; round < rounds; ++round) {
            const uint32_t piece = round * blocks + ((round + first_back) % 2 != 0 ? blocks - 1 - block : block);
            if (piece < pieces) all += of.steps(piece / heads);
        }
        return all;
    }
};

// Time of the block that finishes last if `heads` heads are divided into groups of `count`. A block's time changes
// abruptly only where a last round ends, so that the blocks there and the first and last block are looked at.
inline uint64_t slowest_block(const head_items& of, uint32_t heads, uint32_t count, uint32_t blocks) {
    const head_group whole(of, count, blocks), last(of, heads % count, blocks);
    const uint32_t groups = heads / count, end = whole.in_last_round(), last_end = last.in_last_round();
    const uint32_t ends[] = {0, end, blocks - end, last_end, blocks - last_end};
    uint64_t slowest = 0;
    for (int i = 0; i < 10; ++i) {
        const uint32_t block = (ends[i / 2] + (i % 2 != 0 ? blocks - 1 : 0)) % blocks;
        const uint64_t all =
            (groups + 1) / 2 * whole.steps(block, 0) + groups / 2 * whole.steps(block, 1) +
            last.steps(block, groups % 2);
        slowest = all > slowest ? all : slowest;
    }
    return slowest;
}

// Heads (of all batch entries) per group, where a sequence has `own_heads`: its query heads, its key heads if their
// query heads are packed, or each head once for every split of its keys, which changes no ratio of items' times.
//
// All of them if each item has a block to itself: groups would wait for one another. Otherwise, for short sequences: as
// many heads as make two rounds, one forwards and one backwards, or one round if L2 cannot hold that many keys. For
// long sequences, whose blocks iterate over the keys of a head together, so that L2 need not keep them for long: an
// eighth of the number of blocks. If then some blocks would get more work than others, another number of groups, or
// of heads per group, with less uneven work, where a group whose keys exceed L2_FOR_KEYS counts as slower.
inline uint32_t heads_per_group(const kgen_fwd_params& p, uint32_t own_heads, uint32_t blocks, const head_items& of) {
    constexpr double EVEN = 1.035;  // times the mean is good enough
    constexpr double GAIN = 0.97;   // less is within the error of these steps
    constexpr uint32_t MOST_GROUPS = 8;  // numbers of groups that are considered, from the fewest on
    const uint32_t heads = own_heads * p.batch;
    if (heads * static_cast<uint64_t>(of.count) <= blocks) return heads;
    const double bytes_a_head = 2.0 * (p.head_dim + p.head_dim_v) * p.seqlen_k * p.num_heads_k / own_heads;
    const bool is_short = of.count < blocks / 4;
    const auto at_most_all = [&](uint32_t count) { return count < 1 ? 1 : count < heads ? count : heads; };
    // Larger groups than twice L2_FOR_KEYS were not measured.
    const double in_l2 = 2 * L2_FOR_KEYS / (bytes_a_head > 1 ? bytes_a_head : 1);
    const uint32_t two_rounds = 2 * blocks / of.count;
    const uint32_t usual = at_most_all(!is_short ? blocks / 8
                                                 : two_rounds <= in_l2 / 2 ? two_rounds : blocks / of.count);
    const uint32_t most = is_short ? (in_l2 < heads ? static_cast<uint32_t>(in_l2) : heads) : usual;
    const uint32_t least = at_most_all(is_short ? (blocks + of.count - 1) / of.count : (usual + 1) / 2);
    const auto time = [&](uint32_t count) {
        const double beyond = is_short ? count * bytes_a_head / L2_FOR_KEYS - 1 : 0;
        return slowest_block(of, heads, count, blocks) * (1 + (beyond > 0 ? beyond / 7 : 0));
    };
    const double usual_time = time(usual);
    if (usual_time * blocks <= EVEN * of.all_steps() * heads) return usual;
    uint32_t best = usual, earlier = usual;
    double best_time = GAIN * usual_time;
    const uint32_t fewest = most > 0 ? (heads + most - 1) / most : heads;
    for (uint32_t groups = fewest; groups < fewest + MOST_GROUPS && groups <= heads; ++groups) {
        const uint32_t count = (heads + groups - 1) / groups;
        if (count < least) break;
        if (count == earlier) continue;
        earlier = count;
        const double own = time(count);
        if (own < best_time) best = count, best_time = own;
    }
    return best;
}

}  // namespace kgen
