// flash_fwd_hdim128_bf16_causal_splitkv_sm90
//
// Flash Attention, forward: O = softmax(scale * Q K^T + causal mask) V, and the log-sum-exp of each row.
// Head dim 128, bf16, causal (aligned to the bottom right), with splitkv, compute capability 9.0.
//
// A block has 2 consumer warpgroups (wgmma), of 64 query rows each, and a producer warpgroup,
// whose first thread fetches (TMA). It takes 128 queries of one head and iterates over the keys in tiles of 128, from
// the last visible one to the first. K and V go through 2 stages each; one mbarrier signals that a stage is full,
// another that all warps have finished with it.
// While the softmax of one key tile runs, the tensor cores compute P V of the previous tile.
// Warpgroups take turns at the exponentials: when one has nearly finished its own, it signals the next.
// One persistent block per multiprocessor: the next tiles are in flight while the last O is written.
//
// Tiles are counted from the end. The last query tile ends at the last query, and the first key tile processed ends at
// the last key that the block sees, so the diagonal of the mask is at the same place in every block, and a partial tile
// of a sequence lacks its front: TMA never reads past the end of a sequence, and rows before its start are filled with
// zeros or, in a packed tensor, hold rows of the previous sequence.
//
// Plan: 198816 bytes of shared memory; O, S and P need about 184 of 240 registers.
// Made by kgen 0.1.0 from templates/attention/fwd_sm90.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -c
//       flash_fwd_hdim128_bf16_causal_splitkv_sm90.cu

#include "kgen.h"
#include "kgen/blocks.cuh"
#include "kgen/device.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/fwd_tma.cuh"
#include "kgen/global.cuh"
#include "kgen/grid_order.cuh"
#include "kgen/launch.cuh"
#include "kgen/length_order.cuh"
#include "kgen/math.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/platform.cuh"
#include "kgen/quad.cuh"
#include "kgen/registers.cuh"
#include "kgen/shared.cuh"
#include "kgen/split_params.cuh"
#include "kgen/split_plan.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma.cuh"
#include "kgen/tma_tile.cuh"
#include "kgen/turns.cuh"
#include "kgen/types.cuh"
#include "kgen/wgmma.cuh"
#include "kgen/wgmma_tile.cuh"
#include "kgen/work_groups.cuh"

KGEN_WGMMA_WIDTH(128)

namespace {

using namespace kgen;
using element = bf16;

constexpr int HEAD_DIM = 128;
constexpr int HEAD_DIM_PADDED = 128;
constexpr int BLOCK_M = 128;  // queries per block
constexpr int BLOCK_N = 128;  // keys per step
constexpr int STAGES = 2;
constexpr int Q_SLOTS = 4;  // buffers for the Q of one warpgroup
constexpr int ITEM_SLOTS = 2;  // for work items that the searching warp has found
constexpr int CONSUMERS = 2;  // warpgroups that multiply
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int WARPGROUP_ROWS = BLOCK_M / CONSUMERS;
constexpr int O_TILES = HEAD_DIM / 8;  // 8-column pieces of O

using query_tile = shared_tile<WARPGROUP_ROWS, HEAD_DIM_PADDED>;
using key_tile = shared_tile<BLOCK_N, HEAD_DIM_PADDED>;

// Shared memory:
//   slots of Q at 0 (65536 bytes)
//   stages of K at 65536 (65536 bytes)
//   stages of V at 131072 (65536 bytes)
//   work at 196608 (96 bytes)
//   zeros at 197632 (8 bytes)
//   mbarriers at 198656 (160 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t K_OFFSET = 65536;
constexpr uint32_t V_OFFSET = 131072;
constexpr uint32_t WORK_OFFSET = 196608;
constexpr uint32_t ZEROS_OFFSET = 197632;
constexpr uint32_t BARRIERS_OFFSET = 198656;
constexpr uint32_t SHARED_BYTES = 198816;
constexpr uint32_t STAGE_BYTES = (V_OFFSET - K_OFFSET) / STAGES;
static_assert(STAGE_BYTES % TMA_TILE_ALIGNMENT == 0, "swizzles go by addresses");

constexpr float LOG2_E = 1.44269504088896341f;
constexpr float LN_2 = 0.69314718055994531f;

// The growth of a row's maximum that is tolerated before O is rescaled, in powers of two, given a lane's part of the
// row's sum. Under a stale maximum the largest weight is not exactly 1, and its rounding error shows in O if it
// dominates
// the row. So growth is tolerated while the new weight stays below twice the lane's part, about half of the row's sum:
// a weight of more than two thirds of its row is always exact. Growth beyond 2^8 is not tolerated at all, so that P
// stays in the range of its type.
constexpr float RESCALE_THRESHOLD = 8.0f;
KGEN_DEVICE float tolerated_growth(float sum) {
    return minimum(maximum(log2_fast(sum) + 1.0f, 0.0f), RESCALE_THRESHOLD);
}

struct parameters {
    kgen_fwd_params call;
    tile_maps<query_tile> q;
    tile_maps<key_tile> k, v;
    uint32_t blocks;  // launched
    uint32_t heads;   // in all batch entries together
    uint32_t heads_a_group;
    int32_t keys_per_class;  // in length_order; 0 if lengths are equal
    uint32_t splits;  // blocks that share the keys of a query tile; more than 1: they write partial results
    bool vector;  // O is written in 8-byte pieces
};

// The mbarriers. A full barrier counts the producer thread and its bytes, an empty one every warp that reads the data:
// those of one warpgroup for Q, those of all warpgroups for K and V.
// Those of the items that the searching warp has found count its first lane, and the producer thread.
struct barriers {
    uint32_t base;

    KGEN_DEVICE uint32_t q_full(uint32_t slot) const { return base + slot * 8; }
    KGEN_DEVICE uint32_t q_empty(uint32_t slot) const { return base + (Q_SLOTS + slot) * 8; }
    KGEN_DEVICE uint32_t k_full(uint32_t stage) const { return base + (2 * Q_SLOTS + stage) * 8; }
    KGEN_DEVICE uint32_t k_empty(uint32_t stage) const { return base + (2 * Q_SLOTS + STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t v_full(uint32_t stage) const { return base + (2 * Q_SLOTS + 2 * STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t v_empty(uint32_t stage) const { return base + (2 * Q_SLOTS + 3 * STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t item_full(uint32_t slot) const { return base + (2 * Q_SLOTS + 4 * STAGES + slot) * 8; }
    KGEN_DEVICE uint32_t item_empty(uint32_t slot) const {
        return base + (2 * Q_SLOTS + 4 * STAGES + ITEM_SLOTS + slot) * 8;
    }
};

// A position in a ring of COUNT stages: the stage, and the parity of the phase in which the tile fills it.
template <int COUNT>
struct ring_place {
    uint32_t stage = 0, parity = 0;

    KGEN_DEVICE void next() {
        if (++stage == COUNT) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// A position among the slots for the Q of one warpgroup, w. Each warpgroup has slot w; the last MORE_Q ones also have
// slot w + MORE_Q (the first warpgroup needs a second slot least: it is the first to finish with its Q). A slot never
// changes owner: the parity of a phase is ambiguous to a warpgroup that has not seen the previous phase complete.
struct q_slot_place {
    static constexpr uint32_t MORE_Q = Q_SLOTS - CONSUMERS;
    static_assert(Q_SLOTS >= CONSUMERS && Q_SLOTS <= 2 * CONSUMERS, "a warpgroup has one slot or two");
    uint32_t stage, parity;

    KGEN_DEVICE explicit q_slot_place(uint32_t warpgroup) : stage(warpgroup), parity(0) {}
    KGEN_DEVICE void next() {
        if (stage >= CONSUMERS) {
            stage -= MORE_Q;
            parity ^= 1;
        } else {
            stage += MORE_Q;
        }
    }
};

KGEN_DEVICE uint32_t query_tiles(const kgen_fwd_params& p) { return (p.seqlen_q + BLOCK_M - 1) / BLOCK_M; }

// A work item: a query tile of one head.
struct assignment {
    int batch, head;
    int first_query;  // of the tile; below 0 if the first tile of a sequence is partial
    int end;  // keys up to the last one that the tile's last row sees

    KGEN_DEVICE int span() const { return end; }
    KGEN_DEVICE int tiles() const { return (span() + BLOCK_N - 1) / BLOCK_N; }
    sequence queries, keys;

    KGEN_DEVICE bool is_empty() const { return first_query <= -BLOCK_M; }
};

KGEN_DEVICE assignment work_of(const kgen_fwd_params& p, int batch, int head, int tile) {
    const int from_end = tile * BLOCK_M;
    const sequence queries = sequence_of(batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const sequence keys = sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k);
    return {batch, head, queries.rows - from_end - BLOCK_M, max(0, keys.rows - from_end), queries, keys};
}

// The current work item of a block; only the producer thread computes it, and passes it to the other threads.
struct work_place {
    // Heads are grouped so that their K and V stay in L2. The tiles of a group are assigned longest first, alternately
    // forwards and backwards: a block that got a long tile in one round gets a short one in the next.
    uint32_t group = 0;
    uint32_t round = ~0u;

    KGEN_DEVICE uint32_t first_head(const parameters& given) const { return group * given.heads_a_group; }
    KGEN_DEVICE uint32_t heads(const parameters& given) const {
        const uint32_t left = given.heads - first_head(given);
        return left < given.heads_a_group ? left : given.heads_a_group;
    }
    KGEN_DEVICE uint32_t piece(const parameters& given) const {
        const bool back = (round + group) % 2 != 0;
        return round * given.blocks + (back ? given.blocks - 1 - block_index() : block_index());
    }

    // Advances to the block's next item, or reports that there is none.
    KGEN_DEVICE bool next(const parameters& given) {
        for (; first_head(given) < given.heads; ++group, round = ~0u) {
            const uint32_t pieces = heads(given) * query_tiles(given.call);
            while (++round * given.blocks < pieces) {
                if (piece(given) < pieces) return true;
            }
        }
        return false;
    }

    KGEN_DEVICE uint32_t head(const parameters& given) const { return first_head(given) + piece(given) % heads(given); }
    KGEN_DEVICE uint32_t tile(const parameters& given) const { return piece(given) / heads(given); }
};
// Key tiles of a query tile, counted from the last key.
struct tile_range {
    int first, count;
};

// The tiles of one of `splits` blocks that share the `tiles` of a query tile, as evenly as possible: the first blocks
// may have one more. Blocks beyond the number of tiles have none.
KGEN_DEVICE tile_range tiles_of_split(int tiles, int split, int splits) {
    if (splits == 1) return {0, tiles};
    const int each = tiles / splits, more = tiles % splits;
    return {split * each + min(split, more), each + (split < more ? 1 : 0)};
}

// Splits come last: the heads of all sequences once for each. The word with the number of a query tile also holds the
// first key tile of a split.
constexpr uint32_t TILE_BITS = 16;

KGEN_DEVICE int split_of(const kgen_fwd_params& p, uint32_t place_head) { return place_head / (p.num_heads * p.batch); }

KGEN_DEVICE assignment assigned_work(const kgen_fwd_params& p, uint32_t place_head, uint32_t tile) {
    return work_of(p, place_head / p.num_heads % p.batch, place_head % p.num_heads, tile % (1u << TILE_BITS));
}

// A key tile of a work item, as the consumers see it.
struct tile_of_piece {
    uint32_t head, tile;  // the indices of the item
    int first;            // columns before this one belong to no key; >= 0 only in the item's last tile
    int diagonal;         // columns that the first row of the query tile sees

    KGEN_DEVICE bool is_last() const { return first >= 0; }
    KGEN_DEVICE void next() {
        first += BLOCK_N;
        diagonal += BLOCK_N;
    }
};

constexpr uint32_t NO_WORK = ~0u;  // instead of a head: there is none left

// The searching warp, for sequences of unequal lengths: finds the block's items, in an order in which every second
// round goes backwards, so that a block that got a long item in one round gets a short one in the next. It is up to two
// items ahead of the producer thread, which has neither the time nor the registers for it.
KGEN_DEVICE void search(const parameters& given, uint32_t shared, barriers barrier) {
    length_order<BLOCK_M, true> order;
    order.begin(given.call, given.keys_per_class);
    for (uint32_t round = 0;; ++round) {
        const uint32_t place = round % 2 != 0 ? given.blocks - 1 - block_index() : block_index();
        const bool found = order.find(given.call, given.keys_per_class, round * given.blocks + place);
        if (lane_index() == 0) {
            const uint32_t slot = round % ITEM_SLOTS;
            mbarrier_wait(barrier.item_empty(slot), round / ITEM_SLOTS % 2 ^ 1);
            store_shared(shared + WORK_OFFSET + (Q_SLOTS + slot) * sizeof(words4),
                         words4{found ? order.head : NO_WORK, order.tile, 0, 0});
            mbarrier_arrive(barrier.item_full(slot));
        }
        if (!found) return;
    }
}

// The producer thread's next item. Returns false if none is left.
KGEN_DEVICE bool take_item(const parameters& given, uint32_t shared, barriers barrier, work_place& place,
                           uint32_t& head, uint32_t& tile) {
    if (given.keys_per_class == 0) {
        if (!place.next(given)) return false;
        head = place.head(given), tile = place.tile(given);
        return true;
    }
    const uint32_t slot = ++place.round % ITEM_SLOTS;
    mbarrier_wait(barrier.item_full(slot), place.round / ITEM_SLOTS % 2);
    const words4 found = load_shared(shared + WORK_OFFSET + (Q_SLOTS + slot) * sizeof(words4));
    mbarrier_arrive(barrier.item_empty(slot));
    head = found.x, tile = found.y;
    return head != NO_WORK;
}

// The producer thread: fetches Q, K and V for all of the block's work, in the order of their use.
KGEN_DEVICE void fetch(const parameters& given, uint32_t shared, barriers barrier) {
    const kgen_fwd_params& p = given.call;
    q_slot_place q_places[CONSUMERS] = {q_slot_place(0), q_slot_place(1)};
    ring_place<STAGES> k_place;
    ring_place<STAGES> v_place;
    work_place place;
    // Writes the work item to a warpgroup's next slot. The warpgroup's Q must follow, or just an arrival.
    const auto announce = [&](const q_slot_place& q_place, uint32_t head, uint32_t tile, uint32_t span,
                              uint32_t first_query) {
        mbarrier_wait(barrier.q_empty(q_place.stage), q_place.parity ^ 1);
        store_shared(shared + WORK_OFFSET + q_place.stage * sizeof(words4), words4{head, tile, span, first_query});
    };
    for (uint32_t place_head, place_tile; take_item(given, shared, barrier, place, place_head, place_tile);) {
        const assignment work = assigned_work(p, place_head, place_tile);
        if (work.is_empty()) continue;
        const int head_k = work.head / (p.num_heads / p.num_heads_k);
        const tile_range range = tiles_of_split(work.tiles(), split_of(p, place_head), given.splits);
        const int tiles = range.count, passed = range.first * BLOCK_N;  // keys of later splits
        const int span = min(work.span() - passed, tiles * BLOCK_N);
        const int q_batch = work.queries.packed ? 0 : work.batch;
        const int k_batch = work.keys.packed ? 0 : work.batch;
        const int k_end = work.keys.first_row + work.end - passed;
        const auto fetch_k = [&](int tile) {
            mbarrier_wait(barrier.k_empty(k_place.stage), k_place.parity ^ 1);
            fetch_tile(shared + K_OFFSET + k_place.stage * STAGE_BYTES, given.k, barrier.k_full(k_place.stage),
                       k_end - (tile + 1) * BLOCK_N, head_k, k_batch);
            k_place.next();
        };
        const auto fetch_v = [&](int tile) {
            mbarrier_wait(barrier.v_empty(v_place.stage), v_place.parity ^ 1);
            fetch_tile(shared + V_OFFSET + v_place.stage * STAGE_BYTES, given.v, barrier.v_full(v_place.stage),
                       k_end - (tile + 1) * BLOCK_N, head_k, k_batch);
            v_place.next();
        };
        if (tiles > 0) fetch_k(0);
        const int first_row = work.queries.first_row + work.first_query;
        KGEN_UNROLL
        for (int w = 0; w < CONSUMERS; ++w) {
            q_slot_place& q_place = q_places[w];
            announce(q_place, place_head, place_tile | range.first << TILE_BITS, span, work.first_query);
            const uint32_t full = barrier.q_full(q_place.stage);
            if (tiles > 0) {
                fetch_tile(shared + Q_OFFSET + q_place.stage * query_tile::bytes, given.q, full,
                           first_row + w * WARPGROUP_ROWS, work.head, q_batch);
            } else {
                mbarrier_arrive(full);
            }
            q_place.next();
        }
        for (int tile = 0; tile < tiles; ++tile) {
            if (tile + 1 < tiles) fetch_k(tile + 1);
            fetch_v(tile);
        }
    }
    KGEN_UNROLL
    for (int w = 0; w < CONSUMERS; ++w) {
        announce(q_places[w], NO_WORK, 0, 0, 0);
        mbarrier_arrive(barrier.q_full(q_places[w].stage));
    }
}

using scores = float[BLOCK_N / 8][4];
using weights = uint32_t[BLOCK_N / 16][4];  // P, as A operands
using output = float[O_TILES][4];

// The state that a thread keeps from one key tile to the next, except O. Index h is row h * 8 + lane / 4 of the warp.
struct row_state {
    float max[2];  // the maximum that exp2 is taken relative to, in units of Q K^T
    float sum[2];  // this lane's part of the sum of exponentials
    float headroom = 0.0f;  // how far scores may exceed `max` before O is rescaled
};

// Columns [low, high) of a tile that a row sees.
struct interval {
    int low, high;
};

// Masks all but the columns `seen` in a lane's part of row h * 8 + lane / 4 of 16 rows. (With both rows at once, in an
// array, registers spill.)
template <int CHUNKS>
KGEN_DEVICE void mask_row(float (&s)[CHUNKS][4], int h, interval seen) {
    const int lane_column = lane_index() % 4 * 2;
    const int low = seen.low - lane_column, high = seen.high - lane_column;
    KGEN_UNROLL
    for (int j = 0; j < CHUNKS; ++j) {
        if (j * 8 < low || j * 8 >= high) s[j][2 * h] = -infinity();
        if (j * 8 + 1 < low || j * 8 + 1 >= high) s[j][2 * h + 1] = -infinity();
    }
}

// The keys of a tile that a warp's rows see. Tiles are counted from the last key, so a partial tile lacks its front.
struct view {
    int first;  // columns before it belong to no key, or to one that no row sees
    int diagonal;  // columns that the lane's first row sees

    // The columns that row r sees, counted from the lane's first row.
    KGEN_DEVICE interval of_row(int r) const { return {first, diagonal + r}; }
};

KGEN_DEVICE void mask(scores& s, const view& seen) {
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) mask_row(s, h, seen.of_row(h * 8));
}

// Updates the headroom: the tolerated growth rises with the sums. Call it while products run, which hides its latency.
KGEN_DEVICE void update_headroom(row_state& state, float log2_scale) {
    state.headroom = tolerated_growth(minimum(state.sum[0], state.sum[1])) * reciprocal(log2_scale);
}

// If a row's scores have outgrown the maximum that exponentials are taken relative to, all rows of the warp take new
// maxima: this then returns true, and O must be multiplied by `factor`, as the sums have been.
KGEN_DEVICE bool raise_maximum(const scores& s, row_state& state, float (&factor)[2], float log2_scale) {
    float seen[2];  // of this lane's columns
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        float part[2];  // two independent maxima shorten the dependency chain
        KGEN_UNROLL
        for (int j = 0; j < BLOCK_N / 8; ++j) {
            const float pair = maximum(s[j][2 * h], s[j][2 * h + 1]);
            part[j % 2] = j < 2 ? pair : maximum(part[j % 2], pair);
        }
        seen[h] = maximum(part[0], part[1]);
    }
    // The first tile always takes this branch: the maximum starts at -infinity. Later tiles seldom do, so lanes
    // exchange their maxima only here.
    const bool outgrown = warp_any(seen[0] > state.max[0] + state.headroom || seen[1] > state.max[1] + state.headroom);
    if (outgrown) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            seen[h] = maximum(seen[h], shuffle_xor(seen[h], 1));
            seen[h] = maximum(seen[h], shuffle_xor(seen[h], 2));
            seen[h] = maximum(seen[h], state.max[h]);
            // Before the first visible key, O and the sum are 0; this avoids -infinity - -infinity.
            factor[h] = state.max[h] == -infinity() ? 0.0f : exp2_fast(log2_scale * (state.max[h] - seen[h]));
            state.max[h] = seen[h];
            state.sum[h] *= factor[h];
        }
    }
    return outgrown;
}

// Computes P = exp2(log2_scale * (S - max)) and adds its rows to the sums. The accumulator layout of S is the A-operand
// layout of P: no data moves between lanes.
// `zeros` is added to the arguments of the exponentials. Shortly before the end, `nearly_done` is called with a
// register of P.
template <class Call>
KGEN_DEVICE void exponentiate(weights& p, const scores& s, row_state& state, float log2_scale, const float (&zeros)[2],
                              const Call& nearly_done) {
    float shift[2];
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        // A row that has seen no key keeps -infinity; 0 instead makes every exponential exp2(-infinity) = 0.
        shift[h] = zeros[h] - (state.max[h] == -infinity() ? 0.0f : log2_scale * state.max[h]);
    }
    constexpr int steps = BLOCK_N / 16;
    KGEN_UNROLL
    for (int step = 0; step < steps; ++step) {
        KGEN_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int j = 2 * step + i / 2, h = i % 2;
            const float low = exp2_fast(fused_multiply_add(s[j][2 * h], log2_scale, shift[h]));
            const float high = exp2_fast(fused_multiply_add(s[j][2 * h + 1], log2_scale, shift[h]));
            state.sum[h] += low + high;
            p[step][i] = pack<element>(low, high);
        }
        if (step == (steps - 1) * 3 / 4) nearly_done(p[step][3]);
    }
}

KGEN_DEVICE void rescale(output& o, const float (&factor)[2]) {
    KGEN_UNROLL
    for (int j = 0; j < O_TILES; ++j) {
        KGEN_UNROLL
        for (int e = 0; e < 4; ++e) o[j][e] *= factor[e / 2];
    }
}

// The sum of a row, from the partial sums of the four lanes of a quad.
KGEN_DEVICE float sum_of_row(float part) {
    part += shuffle_xor(part, 1);
    part += shuffle_xor(part, 2);
    return part;
}

// The factor for O: 0 for a row that has seen no key.
KGEN_DEVICE float inverse_of_sum(float sum) { return sum == 0.0f ? 0.0f : reciprocal(sum); }

// The log-sum-exp of a row, -infinity for one that has seen no key.
KGEN_DEVICE float log_sum_exp(float sum, float max, float log2_scale) {
    return sum == 0.0f ? -infinity() : LN_2 * fused_multiply_add(log2_scale, max, log2_fast(sum));
}

// Finishes the rows of a work item: returns the factor for O and writes the log-sum-exp. `warp_row` is the warp's first
// row in the tile.
KGEN_DEVICE void close_rows(float (&factor)[2], const row_state& state, const parameters& given, const assignment& work,
                            int warp_row, float log2_scale) {
    const kgen_fwd_params& p = given.call;
    float* lse = p.lse;
    if (lse != nullptr)
        lse += (work.queries.packed ? work.queries.first_row : work.batch * p.lse_batch_stride) +
               work.head * p.lse_head_stride;
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        const float sum = sum_of_row(state.sum[h]);
        factor[h] = inverse_of_sum(sum);
        const int row = work.first_query + warp_row + h * 8 + static_cast<int>(lane_index() / 4);
        if (lse != nullptr && lane_index() % 4 == 0 && row >= 0) {
            store_global(lse + row, log_sum_exp(sum, state.max[h], log2_scale));
        }
    }
}

// Writes O times `factor`.
KGEN_DEVICE void write_output(const output& o, const float (&factor)[2], const parameters& given,
                              const assignment& work, int warp_row) {
    const kgen_fwd_params& p = given.call;
    uint16_t* to = static_cast<uint16_t*>(p.o) + sequence_offset(work.queries, work.batch, work.head, p.o_batch_stride,
                                                                 p.o_row_stride, p.o_head_stride);
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        const int row = work.first_query + warp_row + h * 8 + static_cast<int>(lane_index() / 4);
        uint32_t words[HEAD_DIM / 8];
        KGEN_UNROLL
        for (int j = 0; j < HEAD_DIM / 8; ++j)
            words[j] = pack<element>(o[j][2 * h] * factor[h], o[j][2 * h + 1] * factor[h]);
        store_quad_row(to + row * p.o_row_stride, words, row >= 0, given.vector);
    }
}

// Writes a lane's share of 8 columns of partial results, two in each of two rows. Neighbouring lanes exchange two
// columns: the even one writes four of its upper row, the odd one of the lower. `to`: of the row that the lane writes.
KGEN_DEVICE void store_part(floats4* to, const float (&own)[4], bool odd, bool has_row) {
    const float first = shuffle_xor(odd ? own[0] : own[2], 1), second = shuffle_xor(odd ? own[1] : own[3], 1);
    if (has_row)
        store_global(to, odd ? floats4{first, second, own[2], own[3]} : floats4{own[0], own[1], first, second});
}

// Writes a warp's rows of a split: O in fp32, divided by the sum of its weights, and the log-sum-exp.
KGEN_DEVICE void write_part(const output& o, const row_state& state, const parameters& given, const assignment& work,
                            int split, int warp_row, float log2_scale) {
    const kgen_fwd_params& p = given.call;
    const float sums[2] = {sum_of_row(state.sum[0]), sum_of_row(state.sum[1])};
    const float factor[2] = {inverse_of_sum(sums[0]), inverse_of_sum(sums[1])};
    const bool odd = lane_index() % 2 != 0;
    const int row = work.first_query + warp_row + (odd ? 8 : 0) + static_cast<int>(lane_index() / 4);
    const int64_t place = split_workspace_row(p, split, work.queries, work.batch, max(0, row), work.head);
    auto* to = reinterpret_cast<floats4*>(split_output(p, place)) + lane_index() % 4 / 2;
    KGEN_UNROLL
    for (int j = 0; j < HEAD_DIM / 8; ++j) {
        const float own[4] = {o[j][0] * factor[0], o[j][1] * factor[0], o[j][2] * factor[1], o[j][3] * factor[1]};
        store_part(to + j * 2, own, odd, row >= 0);
    }
    if (row >= 0 && lane_index() % 4 < 2) {
        store_global(split_lse(p, place),
                     log_sum_exp(odd ? sums[1] : sums[0], odd ? state.max[1] : state.max[0], log2_scale));
    }
}

// The same for a split without keys: only the log-sum-exps, -infinity.
KGEN_DEVICE void write_empty_part(const kgen_fwd_params& p, const assignment& work, int split, int warp_row) {
    const int row = work.first_query + warp_row + static_cast<int>(lane_index());
    if (lane_index() < 16 && row >= 0)
        store_global(split_lse(p, split_workspace_row(p, split, work.queries, work.batch, row, work.head)),
                     -infinity());
}

// Writes a warp's rows of a work item without keys: O = 0, LSE = -infinity. Neighbouring
// lanes write neighbouring columns: each partial write of a sector costs as much as writing the whole sector.
KGEN_DEVICE void write_nothing(const parameters& given, const assignment& work, int warp_row) {
    static_assert(HEAD_DIM <= 8 * 32, "a row is at most a piece of 16 bytes for each lane");
    const kgen_fwd_params& p = given.call;
    const int lane = lane_index(), first_row = work.first_query + warp_row;
    uint16_t* to = static_cast<uint16_t*>(p.o) + sequence_offset(work.queries, work.batch, work.head, p.o_batch_stride,
                                                                 p.o_row_stride, p.o_head_stride);
    KGEN_ROLLED
    for (int row = max(0, first_row); row < first_row + 16; ++row) {
        uint16_t* columns = to + row * p.o_row_stride;
        if (!given.vector) {
            KGEN_ROLLED
            for (int column = lane; column < HEAD_DIM; column += 32) store_global(columns + column, uint16_t(0));
        } else if (lane < HEAD_DIM / 8) {
            store_global(static_cast<void*>(columns + lane * 8), words4{0, 0, 0, 0});
        }
    }
    const int row = first_row + lane;
    if (p.lse != nullptr && lane < 16 && row >= 0) {
        const int64_t first = work.queries.packed ? work.queries.first_row : work.batch * p.lse_batch_stride;
        store_global(p.lse + first + work.head * p.lse_head_stride + row, -infinity());
    }
}

// A consumer warpgroup: processes its 64 rows of every work item of the block.
KGEN_DEVICE void attend(const parameters& given, uint32_t shared, barriers barrier, int warpgroup) {
    const kgen_fwd_params& p = given.call;
    const int warpgroup_row = warpgroup * WARPGROUP_ROWS;
    const int warp_row = warpgroup_row + warp_index() % 4 * 16;
    const int lane_row = warp_row + static_cast<int>(lane_index() / 4);
    // A scale of 0 is replaced by one too small to change any exponential, so that a masked key stays at -infinity.
    const float log2_scale = maximum(p.softmax_scale * LOG2_E, 1e-30f);

    q_slot_place q_place(warpgroup);
    ring_place<STAGES> k_place, v_place;
    const auto release = [&](uint32_t empty) {
        if (lane_index() == 0) mbarrier_arrive(empty);
    };
    const auto done_with_q = [&] {
        release(barrier.q_empty(q_place.stage));
        q_place.next();
    };
    const auto await_k = [&] { mbarrier_wait(barrier.k_full(k_place.stage), k_place.parity); };
    const auto done_with_k = [&] {
        release(barrier.k_empty(k_place.stage));
        k_place.next();
    };
    const auto await_v = [&] { mbarrier_wait(barrier.v_full(v_place.stage), v_place.parity); };
    const auto done_with_v = [&] {
        release(barrier.v_empty(v_place.stage));
        v_place.next();
    };
    // Releases a tile that this warpgroup does not use. One lane does so for its warp, but only after all lanes have
    // seen the phase complete: to a lane that looks later, the phase after the next has the same parity.
    const auto pass_on_k = [&] {
        await_k();
        warp_meet();
        done_with_k();
    };
    const auto pass_on_v = [&] {
        await_v();
        warp_meet();
        done_with_v();
    };
    // Named barrier 1 + w: it is warpgroup w's turn.
    const auto await_turn = [&] { barrier_wait(1 + warpgroup, 256); };
    const auto pass_turn = [&] { barrier_arrive(1 + (warpgroup + 1) % CONSUMERS, 256); };
    if (warpgroup == CONSUMERS - 1) pass_turn();
    // Rows of V in the last tile that belong to the previous sequence rather than this one must be zeros: 0 * NaN is
    // NaN. All warpgroups clear them together, and those that multiply wait for the others. Named barrier 8 + s belongs
    // to stage s: a warpgroup that runs ahead reaches it again only when the stage is full again, and by then all
    // warpgroups have left it.
    const auto clear_foreign_v = [&](const tile_of_piece& at, bool multiplies) {
        if (at.first > 0 && p.cu_seqlens_k != nullptr) {
            await_v();
            clear_rows<key_tile>(shared + V_OFFSET + v_place.stage * STAGE_BYTES, at.first, thread_index() - 128,
                                 128 * CONSUMERS);
            fence_proxy_async();
            const int cleared = 8 + static_cast<int>(v_place.stage);
            multiplies ? barrier_wait(cleared, 128 * CONSUMERS) : barrier_arrive(cleared, 128 * CONSUMERS);
        }
    };
    const int first_diagonal = BLOCK_N - BLOCK_M + 1;

    // Advances to the first tile of the next work item in which this warpgroup has rows with keys. Returns false if
    // none is left.
    const auto next_piece = [&](tile_of_piece& at) {
        for (;;) {
            mbarrier_wait(barrier.q_full(q_place.stage), q_place.parity);
            const words4 said = load_shared(shared + WORK_OFFSET + q_place.stage * sizeof(words4));
            warp_sync();  // one lane will signal that the warp is done with it
            if (said.x == NO_WORK) return false;
            const int span = said.z;
            const int first_query = said.w;
            at = {said.x, said.y, BLOCK_N - span, first_diagonal + static_cast<int>(said.y >> TILE_BITS) * BLOCK_N};
            const bool has_rows = first_query + warpgroup_row + WARPGROUP_ROWS > 0;
            if (span > 0 && has_rows) return true;
            done_with_q();
            if (span <= 0) {
                if (given.splits > 1)
                    write_empty_part(p, assigned_work(p, said.x, said.y), split_of(p, said.x), warp_row);
                else write_nothing(given, assigned_work(p, said.x, said.y), warp_row);
                continue;
            }
            // All rows of this warpgroup precede the sequence: it releases the tiles, which other warpgroups need,
            // unused.
            for (bool last = false; !last; at.next()) {
                last = at.is_last();
                pass_on_k();
                await_turn();
                pass_turn();
                if (last) clear_foreign_v(at, false);
                pass_on_v();
            }
        }
    };
    const auto mask_tile = [&](scores& s, const tile_of_piece& at) {
        if (at.first > 0 || at.diagonal + warpgroup_row < BLOCK_N) mask(s, {at.first, at.diagonal + lane_row});
    };
    // The first tiles of an item may be beyond the diagonal of all rows of this warpgroup, though not of the others'.
    // They are skipped, K and V separately.
    const auto is_hidden = [&](const tile_of_piece& at) {
        return at.diagonal + warpgroup_row + WARPGROUP_ROWS <= 1 && !at.is_last();
    };
    const auto pass_over_k = [&](tile_of_piece& at) {
        while (is_hidden(at)) {
            pass_on_k();
            await_turn();
            pass_turn();
            at.next();
        }
    };
    const auto pass_over_v = [&](const tile_of_piece& to) {
        for (int diagonal = first_diagonal + static_cast<int>(to.tile >> TILE_BITS) * BLOCK_N; diagonal < to.diagonal;
             diagonal += BLOCK_N) {
            pass_on_v();
        }
    };
    const auto multiply_q_k = [&](scores& s) {
        wgmma_fence();
        multiply_by_rows<element, query_tile, key_tile, HEAD_DIM_PADDED>(
            s, shared + Q_OFFSET + q_place.stage * query_tile::bytes, shared + K_OFFSET + k_place.stage * STAGE_BYTES);
        wgmma_commit();
    };
    const auto multiply_p_v = [&](output& o, const weights& weight) {
        wgmma_fence();
        multiply_by_columns<element, key_tile, HEAD_DIM>(o, weight, shared + V_OFFSET + v_place.stage * STAGE_BYTES);
        wgmma_commit();
    };

    tile_of_piece at;
    output o;
    row_state state;
    weights weight;
    float factor[2];
    const auto take_exponentials = [&](const scores& s) {
        float zeros[2];
        await_turn_of(zeros, shared + ZEROS_OFFSET, 1 + warpgroup, 256);
        exponentiate(weight, s, state, log2_scale, zeros,
                     [&](uint32_t word) { pass_turn_behind(word, 1 + (warpgroup + 1) % CONSUMERS, 256); });
    };

    while (next_piece(at)) {
        pass_over_k(at);
        pass_over_v(at);
        clear(o);
        state = {{-infinity(), -infinity()}, {0.0f, 0.0f}};
        {
            scores s;
            await_k();
            multiply_q_k(s);
            wgmma_wait<0>(s);
            done_with_k();
            if (at.is_last()) done_with_q();
            mask_tile(s, at);
            raise_maximum(s, state, factor, log2_scale);
            take_exponentials(s);
        }
        bool outgrown = false;
        while (!at.is_last()) {
            at.next();
            scores s;
            await_k();
            multiply_q_k(s);
            if (outgrown) rescale(o, factor);  // to the maximum of `weight`, while Q K^T runs
            await_v();
            multiply_p_v(o, weight);
            update_headroom(state, log2_scale);
            wgmma_wait<1>(s);
            done_with_k();
            if (at.is_last()) done_with_q();
            mask_tile(s, at);
            outgrown = raise_maximum(s, state, factor, log2_scale);
            wgmma_wait<0>(o);
            done_with_v();
            take_exponentials(s);
        }
        if (outgrown) rescale(o, factor);
        clear_foreign_v(at, true);
        await_v();
        multiply_p_v(o, weight);
        wgmma_wait<0>(o);
        done_with_v();
        const assignment done = assigned_work(p, at.head, at.tile);
        if (given.splits > 1) {
            write_part(o, state, given, done, split_of(p, at.head), warp_row, log2_scale);
            continue;
        }
        close_rows(factor, state, given, done, warp_row, log2_scale);
        write_output(o, factor, given, done, warp_row);
    }
    if (warpgroup == 0) await_turn();  // the last turn passed on, which no warpgroup has taken yet
}

KGEN_KERNEL(THREADS, 1) attention(KGEN_PARAMETER parameters given) {
    const uint32_t shared = shared_base();
    const barriers barrier = {shared + BARRIERS_OFFSET};
    if (thread_index() == 0) {
        store_shared(shared + ZEROS_OFFSET, 0u);
        store_shared(shared + ZEROS_OFFSET + 4, 0u);
        for (int slot = 0; slot < Q_SLOTS; ++slot) {
            mbarrier_init(barrier.q_full(slot), 1);
            mbarrier_init(barrier.q_empty(slot), 4);
        }
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier.k_full(stage), 1);
            mbarrier_init(barrier.k_empty(stage), 4 * CONSUMERS);
            mbarrier_init(barrier.v_full(stage), 1);
            mbarrier_init(barrier.v_empty(stage), 4 * CONSUMERS);
        }
        for (int slot = 0; slot < ITEM_SLOTS; ++slot) {
            mbarrier_init(barrier.item_full(slot), 1);
            mbarrier_init(barrier.item_empty(slot), 1);
        }
        fence_mbarrier_init();
    }
    block_sync();
    await_earlier_kernels();  // from here on this kernel accesses memory that earlier kernels may have written
    let_later_kernels_start();
    const int warpgroup = static_cast<int>(warp_index() / 4);
    if (warpgroup == 0) {
        release_registers<24>();
        if (warp_index() == 1) {
            if (given.keys_per_class > 0) search(given, shared, barrier);
        } else if (thread_index() == 0) {
            fetch(given, shared, barrier);
        }
    } else {
        claim_registers<240>();
        attend(given, shared, barrier, warpgroup - 1);
    }
}

}  // namespace

extern "C" int flash_fwd_hdim128_bf16_causal_splitkv_sm90(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr fwd_identity self = {"flash_fwd_hdim128_bf16_causal_splitkv_sm90", HEAD_DIM, KGEN_DTYPE_BF16,
                                   KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SPLITKV};
    parameters params = {};
    kgen_fwd_params& p = params.call;
    if (const int code = check_fwd_params(given, self, p)) return code;
    const uint64_t m_blocks = tiles_of(p.seqlen_q, BLOCK_M);
    params.splits = p.num_splits > 1 ? p.num_splits : 1;
    const uint64_t items = product(m_blocks, p.num_heads, p.batch, params.splits);
    // Counted as if each item had its own blocks, so that item numbers fit 31 bits on every device.
    if (const int code = check_blocks(self.name, items, p)) return code;
    if (items == 0) return KGEN_SUCCESS;
    // A word holds the numbers of a query tile and of a key tile.
    if (m_blocks >> TILE_BITS != 0 || tiles_of(p.seqlen_k, BLOCK_N) >> (32 - TILE_BITS) != 0) {
        return fail(KGEN_ERROR_UNSUPPORTED, "%s: seqlen_q %d and seqlen_k %d; the limits are %d and %d", self.name,
                    p.seqlen_q, p.seqlen_k, BLOCK_M << TILE_BITS, BLOCK_N << (32 - TILE_BITS));
    }
    if (params.splits > 1) {
        if (const int code = check_shared_tiles(p, self.name)) return code;
    }
    if (const int code = require_tile_maps(params.q, fwd_queries(p), self.name, "Q")) return code;
    if (p.seqlen_k > 0) {
        if (const int code = require_tile_maps(params.k, fwd_keys(p), self.name, "K")) return code;
        if (const int code = require_tile_maps(params.v, fwd_values(p), self.name, "V")) return code;
    }
    params.heads = static_cast<uint32_t>(p.num_heads * p.batch * params.splits);
    params.vector = rows_are_aligned(p.o, p.cu_seqlens_q ? 0 : p.o_batch_stride, p.o_row_stride, p.o_head_stride);
    const int multiprocessors = multiprocessor_count();
    if (multiprocessors == 0) return KGEN_ERROR_LAUNCH;
    params.blocks = static_cast<uint32_t>(items < static_cast<uint64_t>(multiprocessors) ? items : multiprocessors);
    const head_items items_a_head = items_of_head(p, true, false, static_cast<uint32_t>(m_blocks), BLOCK_M, BLOCK_N);
    params.heads_a_group = heads_per_group(p, p.num_heads * params.splits, params.blocks, items_a_head);
    params.keys_per_class = params.splits > 1 ? 0 : keys_per_class(p, BLOCK_N);
    return launch_early(attention, self.name, params.blocks, THREADS, SHARED_BYTES, params, stream);
}
