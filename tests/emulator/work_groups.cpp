// Tests of the grouping of heads (kgen/work_groups.cuh): the times that it estimates, and the size that it chooses
// beside every other size, by assigning each item of random calls to its block.
// Exit status 1 if a statement is false. tests/faults compiles it together with the runtime.

#include <algorithm>
#include <vector>

#include "kgen/work_groups.cuh"
#include "statements.hpp"

namespace {

constexpr uint32_t BLOCKS = 132;

uint64_t random_state = 7;

// A whole number in [least, most].
uint32_t draw(uint32_t least, uint32_t most) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return least + static_cast<uint32_t>(random_state >> 33) % (most - least + 1);
}

// Steps of every block, with the assignment of hopper/scheduler.tera.
std::vector<uint64_t> steps_of_blocks(const head_items& of, uint32_t heads, uint32_t count) {
    std::vector<uint64_t> steps(BLOCKS);
    for (uint32_t first = 0, group = 0; first < heads; first += count, ++group) {
        const uint32_t here = std::min(count, heads - first), pieces = here * of.count;
        for (uint32_t piece = 0; piece < pieces; ++piece) {
            const uint32_t round = piece / BLOCKS, place = piece % BLOCKS;
            steps[(round + group) % 2 != 0 ? BLOCKS - 1 - place : place] += of.steps(piece / here);
        }
    }
    return steps;
}

uint64_t slowest(const std::vector<uint64_t>& steps) { return *std::max_element(steps.begin(), steps.end()); }

struct call {
    kgen_fwd_params p;
    head_items items;
    uint32_t heads;
};

call drawn() {
    kgen_fwd_params p = {};
    p.batch = static_cast<int32_t>(draw(1, 16));
    p.num_heads_k = static_cast<int32_t>(draw(1, 16));
    p.num_heads = p.num_heads_k * static_cast<int32_t>(1u << draw(0, 3));
    p.head_dim = p.head_dim_v = 64 << draw(0, 2);
    p.seqlen_q = p.seqlen_k = static_cast<int32_t>(128u << draw(0, 6)) + static_cast<int32_t>(draw(0, 900));
    if (draw(0, 2) == 0) p.seqlen_k += static_cast<int32_t>(draw(0, 5000));
    const uint32_t rows = draw(0, 1) == 0 ? 128 : 192, keys = 16 * draw(4, 11);
    const uint32_t count = (p.seqlen_q + rows - 1) / rows;
    const bool window = draw(0, 3) == 0;
    p.features.window_left = static_cast<int32_t>(draw(0, 3000)), p.features.window_right = -1;
    return {p, items_of_head(p, true, window, count, rows, keys), static_cast<uint32_t>(p.batch * p.num_heads)};
}

void test_steps() {
    kgen_fwd_params p = {};
    p.seqlen_q = 300, p.seqlen_k = 500;
    const head_items causal = items_of_head(p, true, false, 3, 128, 64);
    expect(causal.steps(0) == 1 + 8 && causal.steps(1) == 1 + 6 && causal.steps(2) == 1 + 4, "an item has the keys up to its last row's own");
    p.features.window_left = 100, p.features.window_right = -1;
    const head_items window = items_of_head(p, true, true, 3, 128, 64);
    expect(window.steps(0) == 1 + 4 && window.steps(2) == 1 + 4, "a window bounds an item's keys");
    p.features.window_left = -1, p.features.window_right = 40;
    const head_items ahead = items_of_head(p, false, true, 3, 128, 64);
    expect(ahead.steps(0) == 1 + 8 && ahead.steps(2) == 1 + 5, "a window's right end sees keys after the row");
    p.seqlen_q = 900;
    expect(items_of_head(p, true, false, 8, 128, 64).steps(7) == 1, "an item without keys has its fixed cost");
}

// The time without the L2's part, relative to the blocks' mean.
void test_choices() {
    uint32_t uneven = 0, worse = 0, larger = 0, estimated_low = 0, calls = 0;
    double log_gain = 0;
    while (calls < 300) {
        const call of = drawn();
        if (static_cast<uint64_t>(of.heads) * of.items.count <= BLOCKS) {
            if (heads_per_group(of.p, of.p.num_heads, BLOCKS, of.items) != of.heads) ++worse;
            continue;
        }
        if (static_cast<uint64_t>(of.heads) * of.items.count > 30000) continue;
        ++calls;
        const uint32_t chosen = heads_per_group(of.p, of.p.num_heads, BLOCKS, of.items);
        const uint64_t own = slowest(steps_of_blocks(of.items, of.heads, chosen));
        const uint64_t mean = of.items.all_steps() * of.heads / BLOCKS;
        const double bytes = 2.0 * (of.p.head_dim + of.p.head_dim_v) * of.p.seqlen_k * of.p.num_heads_k / of.p.num_heads;
        const bool is_short = of.items.count < BLOCKS / 4;
        if (is_short && chosen * bytes > 2.0 * L2_FOR_KEYS && chosen > (BLOCKS + of.items.count - 1) / of.items.count) ++larger;
        if (slowest_block(of.items, of.heads, chosen, BLOCKS) < 0.94 * own) ++estimated_low;
        uint64_t best = own;
        for (uint32_t count = 1; count <= of.heads; ++count) {
            const bool allowed = is_short ? count * bytes <= L2_FOR_KEYS && count * of.items.count >= BLOCKS : count <= BLOCKS / 8 && 2 * count >= BLOCKS / 8;
            if (allowed) best = std::min(best, slowest(steps_of_blocks(of.items, of.heads, count)));
        }
        if (own > 1.10 * mean) ++uneven;
        if (own > 1.08 * best) ++worse;
        log_gain += static_cast<double>(own) / best - 1;
    }
    printf("of %u calls: %u more than a tenth above the mean, %u far from the best size, %u beyond L2, %u estimated low, mean excess %.3f\n", calls, uneven, worse, larger, estimated_low, log_gain / calls);
    expect(worse <= calls / 50, "of 50 calls at most one would take 8 % less time with another allowed size");
    expect(larger == 0, "no group of short sequences has more keys than twice what L2 keeps");
    expect(estimated_low <= calls / 50, "of 50 estimates at most one is 6 % below the slowest block's time");
    expect(log_gain / calls < 0.02, "on the average, the best allowed size would take less than 2 % off");
}

}  // namespace

int main() {
    test_steps();
    test_choices();
    return failures != 0;
}
