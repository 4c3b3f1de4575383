// flash_fwd_hdim128_bf16_causal_packgqa_sm90
//
// Flash Attention, forward: O = softmax(scale * Q K^T + causal mask) V, and the log-sum-exp of each row.
// Head dim 128, bf16, causal (aligned to the bottom right), with packgqa, compute capability 9.0.
//
// A block has 3 consumer warpgroups (wgmma), of 64 query rows each, and a producer warpgroup,
// whose first warp fetches (TMA). It takes 192 rows, queries of a group of heads, and iterates over the keys in tiles
// of 80, from the last visible one to the first. K and V go through 3 stages each; one mbarrier signals that a stage is
// full, another that all warps have finished with it.
// While the softmax of one key tile runs, the tensor cores compute P V of the previous tile.
// Warpgroups alternate: when one has issued its products to the tensor cores, it signals the next.
// One persistent block per multiprocessor: the next tiles are in flight while the last O is written.
//
// Tiles are counted from the end. The last query tile ends at the last query, and the first key tile processed ends at
// the last key that the block sees, so the diagonal of the mask is at the same place in every block, and a partial tile
// of a sequence lacks its front: TMA never reads past the end of a sequence, and rows before its start are filled with
// zeros or, in a packed tensor, hold rows of the previous sequence.
//
// Plan: 222400 bytes of shared memory; O, S and P need about 148 of 152 registers.
// Made by kgen 0.1.0 from templates/attention/fwd_sm90.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -c
//       flash_fwd_hdim128_bf16_causal_packgqa_sm90.cu

#include "kgen.h"
#include "kgen/atomics.cuh"
#include "kgen/blocks.cuh"
#include "kgen/device.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/fwd_tma.cuh"
#include "kgen/global.cuh"
#include "kgen/grid_order.cuh"
#include "kgen/launch.cuh"
#include "kgen/math.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/packed_tma.cuh"
#include "kgen/platform.cuh"
#include "kgen/quad.cuh"
#include "kgen/registers.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma.cuh"
#include "kgen/tma_tile.cuh"
#include "kgen/types.cuh"
#include "kgen/wgmma.cuh"
#include "kgen/wgmma_tile.cuh"
#include "kgen/work_groups.cuh"

KGEN_WGMMA_WIDTH(80)
KGEN_WGMMA_WIDTH(128)

namespace {

using namespace kgen;
using element = bf16;

constexpr int HEAD_DIM = 128;
constexpr int HEAD_DIM_PADDED = 128;
constexpr int BLOCK_M = 192;  // rows per block
constexpr int BLOCK_N = 80;  // keys per step
constexpr int STAGES = 3;
constexpr int Q_SLOTS = 6;  // buffers for the Q of one warpgroup
constexpr int CONSUMERS = 3;  // warpgroups that multiply
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int WARPGROUP_ROWS = BLOCK_M / CONSUMERS;
constexpr int O_TILES = HEAD_DIM / 8;  // 8-column pieces of O

using query_tile = shared_tile<WARPGROUP_ROWS, HEAD_DIM_PADDED>;
using key_tile = shared_tile<BLOCK_N, HEAD_DIM_PADDED>;

// Shared memory:
//   slots of Q at 0 (98304 bytes)
//   stages of K at 98304 (61440 bytes)
//   stages of V at 159744 (61440 bytes)
//   work at 221184 (192 bytes)
//   mbarriers at 222208 (192 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t K_OFFSET = 98304;
constexpr uint32_t V_OFFSET = 159744;
constexpr uint32_t WORK_OFFSET = 221184;
constexpr uint32_t BARRIERS_OFFSET = 222208;
constexpr uint32_t SHARED_BYTES = 222400;
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
    int32_t keys_in_l2;  // keys of one head that L2 keeps
    int32_t sequences;       // 1 if groups of heads of all sequences are processed
    uint32_t heads;          // of a sequence, or of all of them
    uint32_t heads_a_group;  // 0: one sequence after another
    bool vector;  // O is written in 8-byte pieces
};

// The mbarriers. A full barrier counts the producer thread and its bytes, an empty one every warp that reads the data:
// those of one warpgroup for Q, those of all warpgroups for K and V.
struct barriers {
    uint32_t base;

    KGEN_DEVICE uint32_t q_full(uint32_t slot) const { return base + slot * 8; }
    KGEN_DEVICE uint32_t q_empty(uint32_t slot) const { return base + (Q_SLOTS + slot) * 8; }
    KGEN_DEVICE uint32_t k_full(uint32_t stage) const { return base + (2 * Q_SLOTS + stage) * 8; }
    KGEN_DEVICE uint32_t k_empty(uint32_t stage) const { return base + (2 * Q_SLOTS + STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t v_full(uint32_t stage) const { return base + (2 * Q_SLOTS + 2 * STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t v_empty(uint32_t stage) const { return base + (2 * Q_SLOTS + 3 * STAGES + stage) * 8; }
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

// A warpgroup takes as many queries as it has rows for, over all heads of a group: row r is query r % queries of head
// r / queries. Leftover rows are idle.
KGEN_DEVICE int warpgroup_queries(const kgen_fwd_params& p) { return WARPGROUP_ROWS / (p.num_heads / p.num_heads_k); }

KGEN_DEVICE int tile_queries(const kgen_fwd_params& p) { return CONSUMERS * warpgroup_queries(p); }

// The query and head of a row: the query counted from the first of the tile, the head from the first of its group.
struct packed_row {
    int query, head;
    bool idle;

    KGEN_DEVICE packed_row(const kgen_fwd_params& p, int warpgroup, int row) {
        const int group = p.num_heads / p.num_heads_k, queries = WARPGROUP_ROWS / group;
        query = warpgroup * queries + row % queries;
        head = min(row / queries, group - 1);  // valid even if the row is idle, for values read per head
        idle = row >= queries * group;
    }
};

// A row's position is its place among the keys: row i of sq queries is at i + sk - sq, possibly below 0. It sees keys
// [first_seen, end_seen), none if the end is not above the first.
KGEN_DEVICE int first_seen(const kgen_fwd_params& p, int position) {
    return 0;
}

KGEN_DEVICE int end_seen(const kgen_fwd_params& p, int position, int keys) {
    int end = min(keys, position + 1);
    return max(0, end);
}

// A work item: a tile of the queries of all heads that read one key head.
struct assignment {
    int batch, head;  // the key head
    int first_query;  // of the tile; below 0 if the first tile of a sequence is partial
    int begin;  // the first key that a row sees
    int end;  // keys up to the last one that the tile's last row sees

    KGEN_DEVICE int span() const { return end - begin; }
    KGEN_DEVICE int tiles() const { return (span() + BLOCK_N - 1) / BLOCK_N; }
    sequence queries, keys;
};

KGEN_DEVICE assignment work_of(const kgen_fwd_params& p, int batch, int head, int tile) {
    const int from_end = tile * tile_queries(p);
    const sequence queries = sequence_of(batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const sequence keys = sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k);
    const int end_position = keys.rows - from_end;
    const int first_position = max(end_position - tile_queries(p), keys.rows - queries.rows);
    return {batch, head, queries.rows - from_end - tile_queries(p), first_seen(p, first_position),
            end_seen(p, end_position - 1, keys.rows), queries, keys};
}

// The current work item of a block. The list contains the sequences one after another. Within a sequence, as many heads
// are processed together as fit L2 with their keys, starting with the last tiles, which have the most keys. Sequences
// without rows have no items. All lanes of the warp hold the same state, except that each counts the items of one
// sequence.
//
// Long causal sequences of equal lengths are one, with the heads of all batch entries. In a fixed order, blocks then
// take the items of one group of heads after another.
struct work_place {
    uint32_t round = 0;
    int first_sequence = 0;  // lane l counts the items of sequence first_sequence + l
    uint32_t before = 0;     // items of the sequences before it
    uint32_t tiles, heads;   // of the lane's sequence: query tiles, heads processed together
    uint32_t items, up_to;   // of the lane's sequence; of the sequences of all lanes up to this one

    KGEN_DEVICE void count(const parameters& given) {
        const kgen_fwd_params& p = given.call;
        const int batch = first_sequence + static_cast<int>(lane_index());
        tiles = 0, heads = 1;
        if (batch < given.sequences) {
            const int rows = sequence_of(batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q).rows;
            const int keys = sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k).rows;
            const uint32_t heads_k = given.heads_a_group != 0 ? given.heads_a_group
                                                              : max(1, given.keys_in_l2 / max(1, keys));
            tiles = (rows + tile_queries(p) - 1) / tile_queries(p);
            heads = heads_k < given.heads ? heads_k : given.heads;
        }
        items = up_to = tiles * given.heads;
        KGEN_UNROLL
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            const uint32_t sum = shuffle(up_to, (lane_index() - distance) % 32);
            if (lane_index() >= distance) up_to += sum;
        }
    }

    // The number of the next item in the list, possibly beyond its end: the next item that no block has taken or, in a
    // fixed order, assigned alternately forwards and backwards, so that a block that got a long item in one round gets
    // a short one in the next.
    KGEN_DEVICE uint32_t take(const parameters& given) {
        uint32_t item = block_index();
        if (given.call.work_counter == nullptr) {
            item = round * given.blocks + (round % 2 != 0 ? given.blocks - 1 - item : item);
        } else if (round > 0) {
            if (lane_index() == 0) item = given.blocks + atomic_add(given.call.work_counter, 1u);
            item = shuffle(item, 0);
        }
        ++round;
        return item;
    }

    // The next item of the block in a fixed order of equal sequences.
    KGEN_DEVICE bool next_of_group(const parameters& given, uint32_t& head, uint32_t& tile) {
        for (;; ++first_sequence, round = 0) {  // of groups
            const uint32_t first_head = first_sequence * given.heads_a_group;
            if (first_head >= given.heads) return false;
            const uint32_t left = given.heads - first_head,
                heads_here = left < given.heads_a_group ? left : given.heads_a_group;
            const uint32_t pieces = heads_here * shuffle(tiles, 0);
            while (round * given.blocks < pieces) {
                const uint32_t back = (round + first_sequence) % 2, first = round++ * given.blocks;
                const uint32_t place = first + (back != 0 ? given.blocks - 1 - block_index() : block_index());
                if (place >= pieces) continue;
                head = first_head + place % heads_here;
                tile = place / heads_here;
                return true;
            }
        }
    }

    // Advances to the block's next item and returns its head and tile, or returns false if there is none.
    KGEN_DEVICE bool next(const parameters& given, uint32_t& head, uint32_t& tile) {
        if (given.heads_a_group != 0 && given.call.work_counter == nullptr) return next_of_group(given, head, tile);
        const uint32_t item = take(given);
        for (;;) {
            const uint32_t counted = shuffle(up_to, 31);
            if (item - before < counted) break;
            before += counted;
            first_sequence += 32;
            if (first_sequence >= given.sequences) return false;
            count(given);
        }
        const int lane = lowest_bit(warp_ballot(item - before < up_to));
        const uint32_t own = item - before - shuffle(up_to - items, lane);
        const uint32_t own_tiles = shuffle(tiles, lane), together = shuffle(heads, lane);
        const uint32_t first_head = own / (together * own_tiles) * together;
        const uint32_t left = given.heads - first_head, heads_here = left < together ? left : together;
        const uint32_t place = own - first_head * own_tiles;
        head = (first_sequence + lane) * given.heads + first_head + place % heads_here;
        tile = place / heads_here;
        return true;
    }

    // Ends the block's work: the last block to do so resets the counter to zero for the next call.
    KGEN_DEVICE void end(const parameters& given) const {
        uint32_t* counter = given.call.work_counter;
        if (counter == nullptr || lane_index() != 0) return;
        if (atomic_add<memory_order::acquire_release>(counter + 1, 1u) != given.blocks - 1) return;
        atomic_exchange(counter, 0u);
        atomic_exchange(counter + 1, 0u);
    }
};
KGEN_DEVICE assignment assigned_work(const kgen_fwd_params& p, uint32_t place_head, uint32_t tile) {
    return work_of(p, place_head / p.num_heads_k, place_head % p.num_heads_k, tile);
}

// A key tile of a work item, as the consumers see it.
struct tile_of_piece {
    uint32_t head, tile;  // the indices of the item
    int first_key;        // of the tile, below 0 if it begins before the sequence
    int begin, keys;      // the first key of the item, and those of the sequence
    int position;         // of the first row of the query tile

    KGEN_DEVICE bool is_last() const { return first_key <= begin; }
    KGEN_DEVICE void next() { first_key -= BLOCK_N; }
};

constexpr uint32_t NO_WORK = ~0u;  // instead of a head: there is none left
constexpr uint32_t WORK_BYTES = 2 * sizeof(words4);  // of the description of a work item

// The producer warp: fetches Q, K and V for all of the block's work, in the order of their use. All lanes search for
// work; the first lane fetches.
KGEN_DEVICE void fetch(const parameters& given, uint32_t shared, barriers barrier) {
    const kgen_fwd_params& p = given.call;
    const bool leads = lane_index() == 0;
    q_slot_place q_places[CONSUMERS] = {q_slot_place(0), q_slot_place(1), q_slot_place(2)};
    ring_place<STAGES> k_place;
    ring_place<STAGES> v_place;
    work_place place;
    // Writes the work item to a warpgroup's next slot. The warpgroup's Q must follow, or just an arrival.
    const auto announce = [&](const q_slot_place& q_place, uint32_t head, uint32_t tile, uint32_t span,
                              uint32_t first_query, uint32_t end, uint32_t keys) {
        if (!leads) return;
        mbarrier_wait(barrier.q_empty(q_place.stage), q_place.parity ^ 1);
        store_shared(shared + WORK_OFFSET + q_place.stage * WORK_BYTES, words4{head, tile, span, first_query});
        store_shared(shared + WORK_OFFSET + q_place.stage * WORK_BYTES + sizeof(words4), words4{end, keys, 0, 0});
    };
    place.count(given);
    for (uint32_t place_head, place_tile; place.next(given, place_head, place_tile);) {
        const assignment work = assigned_work(p, place_head, place_tile);
        const int head_k = work.head;
        const int tiles = work.tiles();
        const int q_batch = work.queries.packed ? 0 : work.batch;
        const int k_batch = work.keys.packed ? 0 : work.batch;
        const int k_end = work.keys.first_row + work.end;
        const auto fetch_k = [&](int tile) {
            if (leads) {
                mbarrier_wait(barrier.k_empty(k_place.stage), k_place.parity ^ 1);
                fetch_tile(shared + K_OFFSET + k_place.stage * STAGE_BYTES, given.k, barrier.k_full(k_place.stage),
                           k_end - (tile + 1) * BLOCK_N, head_k, k_batch);
            }
            k_place.next();
        };
        const auto fetch_v = [&](int tile) {
            if (leads) {
                mbarrier_wait(barrier.v_empty(v_place.stage), v_place.parity ^ 1);
                fetch_tile(shared + V_OFFSET + v_place.stage * STAGE_BYTES, given.v, barrier.v_full(v_place.stage),
                           k_end - (tile + 1) * BLOCK_N, head_k, k_batch);
            }
            v_place.next();
        };
        if (tiles > 0) fetch_k(0);
        const int first_row = work.queries.first_row + work.first_query;
        KGEN_UNROLL
        for (int w = 0; w < CONSUMERS; ++w) {
            q_slot_place& q_place = q_places[w];
            announce(q_place, place_head, place_tile, work.span(), work.first_query, work.end, work.keys.rows);
            const uint32_t full = barrier.q_full(q_place.stage);
            if (leads && tiles > 0) {
                fetch_packed_tile(shared + Q_OFFSET + q_place.stage * query_tile::bytes, given.q, full,
                                  first_row + w * warpgroup_queries(p), work.head, p.num_heads / p.num_heads_k,
                                  q_batch);
            } else if (leads) {
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
        announce(q_places[w], NO_WORK, 0, 0, 0, 0, 0);
        if (leads) mbarrier_arrive(barrier.q_full(q_places[w].stage));
    }
    place.end(given);
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

// The keys of a tile that a lane's rows see.
struct view {
    const kgen_fwd_params& p;
    int position[2];  // of the lane's rows
    int first_key;  // of the tile, possibly below 0
    int keys;       // of the sequence

    // The columns that row r sees, counted from the lane's first row.
    KGEN_DEVICE interval of_row(int r) const {
        return {max(first_seen(p, position[r / 8]), 0) - first_key, end_seen(p, position[r / 8], keys) - first_key};
    }
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
KGEN_DEVICE void exponentiate(weights& p, const scores& s, row_state& state, float log2_scale) {
    float shift[2];
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        // A row that has seen no key keeps -infinity; 0 instead makes every exponential exp2(-infinity) = 0.
        shift[h] = state.max[h] == -infinity() ? 0.0f : -log2_scale * state.max[h];
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

// Finishes the rows of a work item: returns the factor for O and writes the log-sum-exp.
KGEN_DEVICE void close_rows(float (&factor)[2], const row_state& state, const parameters& given, const assignment& work,
                            const packed_row (&rows)[2], float log2_scale) {
    const kgen_fwd_params& p = given.call;
    const int first_head = work.head * (p.num_heads / p.num_heads_k);
    const int64_t first = work.queries.packed ? work.queries.first_row : work.batch * p.lse_batch_stride;
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        const int query = work.first_query + rows[h].query, head = first_head + rows[h].head;
        const float sum = sum_of_row(state.sum[h]);
        factor[h] = inverse_of_sum(sum);
        if (p.lse != nullptr && lane_index() % 4 == 0 && query >= 0 && !rows[h].idle) {
            store_global(p.lse + first + head * p.lse_head_stride + query, log_sum_exp(sum, state.max[h], log2_scale));
        }
    }
}

// The address of O for the first query and head of a work item, which may be before the sequence's first query.
KGEN_DEVICE uint16_t* output_of(const kgen_fwd_params& p, const assignment& work) {
    const int first_head = work.head * (p.num_heads / p.num_heads_k);
    return static_cast<uint16_t*>(p.o) +
           sequence_offset(work.queries, work.batch, first_head, p.o_batch_stride, p.o_row_stride, p.o_head_stride);
}

// Writes O times `factor`.
KGEN_DEVICE void write_output(const output& o, const float (&factor)[2], const parameters& given,
                              const assignment& work, const packed_row (&rows)[2]) {
    const kgen_fwd_params& p = given.call;
    uint16_t* to = output_of(p, work);
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        const int query = work.first_query + rows[h].query;
        uint32_t words[HEAD_DIM / 8];
        KGEN_UNROLL
        for (int j = 0; j < HEAD_DIM / 8; ++j)
            words[j] = pack<element>(o[j][2 * h] * factor[h], o[j][2 * h + 1] * factor[h]);
        store_quad_row(to + query * p.o_row_stride + rows[h].head * p.o_head_stride, words, query >= 0 && !rows[h].idle,
                       given.vector);
    }
}

// Writes a warpgroup's rows of a work item without keys: O = 0, LSE = -infinity.
// Neighbouring lanes write neighbouring columns: each partial write of a sector costs as much as writing the whole
// sector. Rows are counted on rather than divided: a division takes as long as writing a row.
KGEN_DEVICE void write_nothing(const parameters& given, const assignment& work, int warpgroup) {
    constexpr int PIECES = HEAD_DIM / 8, TOGETHER = 32 / PIECES;  // 16-byte pieces of a row, rows at once
    static_assert(TOGETHER > 0, "a row is at most a piece for each lane");
    const kgen_fwd_params& p = given.call;
    const int lane = lane_index(), warp_row = static_cast<int>(warp_index() % 4 * 16);
    const int group = p.num_heads / p.num_heads_k, queries = WARPGROUP_ROWS / group;
    const int first_query = work.first_query + warpgroup * queries;
    const int end = min(warp_row + 16, queries * group);
    uint16_t* to = output_of(p, work) + lane % PIECES * 8;
    int row = warp_row + lane / PIECES, head = row / queries, query = row % queries;
    KGEN_ROLLED
    for (; row < end && lane < PIECES * TOGETHER; row += TOGETHER) {
        uint16_t* columns = to + (first_query + query) * p.o_row_stride + head * p.o_head_stride;
        if (first_query + query >= 0 && given.vector) {
            store_global(static_cast<void*>(columns), words4{0, 0, 0, 0});
        } else if (first_query + query >= 0) {
            KGEN_ROLLED
            for (int column = 0; column < 8; ++column) store_global(columns + column, uint16_t(0));
        }
        for (query += TOGETHER; query >= queries; query -= queries) ++head;
    }
    const packed_row lse_row(p, warpgroup, warp_row + lane % 16);
    const int lse_query = work.first_query + lse_row.query, lse_head = work.head * group + lse_row.head;
    if (p.lse != nullptr && lane < 16 && !lse_row.idle && lse_query >= 0) {
        const int64_t first = work.queries.packed ? work.queries.first_row : work.batch * p.lse_batch_stride;
        store_global(p.lse + first + lse_head * p.lse_head_stride + lse_query, -infinity());
    }
}

// A consumer warpgroup: processes its 64 rows of every work item of the block.
KGEN_DEVICE void attend(const parameters& given, uint32_t shared, barriers barrier, int warpgroup) {
    const kgen_fwd_params& p = given.call;
    const int own_queries = warpgroup_queries(p), warpgroup_query = warpgroup * own_queries;
    const int lane_row = static_cast<int>(warp_index() % 4 * 16 + lane_index() / 4);
    const packed_row lane_rows[2] = {packed_row(p, warpgroup, lane_row), packed_row(p, warpgroup, lane_row + 8)};
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
        if (-at.first_key > 0 && p.cu_seqlens_k != nullptr) {
            await_v();
            clear_rows<key_tile>(shared + V_OFFSET + v_place.stage * STAGE_BYTES, -at.first_key, thread_index() - 128,
                                 128 * CONSUMERS);
            fence_proxy_async();
            const int cleared = 8 + static_cast<int>(v_place.stage);
            multiplies ? barrier_wait(cleared, 128 * CONSUMERS) : barrier_arrive(cleared, 128 * CONSUMERS);
        }
    };

    // Advances to the first tile of the next work item in which this warpgroup has rows with keys. Returns false if
    // none is left.
    const auto next_piece = [&](tile_of_piece& at) {
        for (;;) {
            mbarrier_wait(barrier.q_full(q_place.stage), q_place.parity);
            const words4 said = load_shared(shared + WORK_OFFSET + q_place.stage * WORK_BYTES);
            const words4 of_keys = load_shared(shared + WORK_OFFSET + q_place.stage * WORK_BYTES + sizeof(words4));
            warp_sync();  // one lane will signal that the warp is done with it
            if (said.x == NO_WORK) return false;
            const int span = said.z;
            const int first_query = said.w;
            const int end = of_keys.x, keys = of_keys.y;
            at = {said.x, said.y, end - BLOCK_N, end - span, keys,
                  keys - static_cast<int>(said.y + 1) * CONSUMERS * own_queries};
            const bool has_rows = first_query + warpgroup_query + own_queries > 0;
            if (span > 0 && has_rows) return true;
            done_with_q();
            if (span <= 0) {write_nothing(given, assigned_work(p, said.x, said.y), warpgroup);
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
        const int positions[2] = {at.position + lane_rows[0].query, at.position + lane_rows[1].query};
        const int row = at.position + warpgroup_query;  // position of the warpgroup's first row
        if (at.first_key < first_seen(p, row + own_queries - 1) || at.first_key + BLOCK_N > end_seen(p, row, at.keys)) {
            mask(s, {p, {positions[0], positions[1]}, at.first_key, at.keys});
        }
    };
    // The first tiles of an item may be beyond the diagonal of all rows of this warpgroup, though not of the others'.
    // They are skipped, K and V separately.
    const auto is_hidden = [&](const tile_of_piece& at) {
        return at.first_key >= end_seen(p, at.position + warpgroup_query + own_queries - 1, at.keys) && !at.is_last();
    };
    int hidden = 0;  // tiles whose K has been skipped
    const auto pass_over_k = [&](tile_of_piece& at) {
        hidden = 0;
        while (is_hidden(at)) {
            pass_on_k();
            await_turn();
            pass_turn();
            at.next();
            ++hidden;
        }
    };
    const auto pass_over_v = [&](const tile_of_piece&) {
        for (int tile = 0; tile < hidden; ++tile) pass_on_v();
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
        exponentiate(weight, s, state, log2_scale);
    };

    while (next_piece(at)) {
        pass_over_k(at);
        pass_over_v(at);
        clear(o);
        state = {{-infinity(), -infinity()}, {0.0f, 0.0f}};
        {
            scores s;
            await_k();
            await_turn();
            multiply_q_k(s);
            pass_turn();
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
            await_turn();
            multiply_q_k(s);
            if (outgrown) rescale(o, factor);  // to the maximum of `weight`, while Q K^T runs
            await_v();
            multiply_p_v(o, weight);
            pass_turn();
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
        close_rows(factor, state, given, done, lane_rows, log2_scale);
        write_output(o, factor, given, done, lane_rows);
    }
    if (warpgroup == 0) await_turn();  // the last turn passed on, which no warpgroup has taken yet
}

KGEN_KERNEL(THREADS, 1) attention(KGEN_PARAMETER parameters given) {
    const uint32_t shared = shared_base();
    const barriers barrier = {shared + BARRIERS_OFFSET};
    if (thread_index() == 0) {
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
        fence_mbarrier_init();
    }
    // Clear the leftover rows of Q: products read them, and no copy ever writes them.
    for (int slot = 0; slot < Q_SLOTS; ++slot) {
        const int group = given.call.num_heads / given.call.num_heads_k;
        clear_rows_from<query_tile>(shared + Q_OFFSET + slot * query_tile::bytes, WARPGROUP_ROWS / group * group,
                                    thread_index(), THREADS);
    }
    fence_proxy_async();
    block_sync();
    await_earlier_kernels();  // from here on this kernel accesses memory that earlier kernels may have written
    let_later_kernels_start();
    const int warpgroup = static_cast<int>(warp_index() / 4);
    if (warpgroup == 0) {
        release_registers<56>();
        if (warp_index() == 0) fetch(given, shared, barrier);
    } else {
        claim_registers<152>();
        attend(given, shared, barrier, warpgroup - 1);
    }
}

}  // namespace

extern "C" int flash_fwd_hdim128_bf16_causal_packgqa_sm90(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr fwd_identity self = {"flash_fwd_hdim128_bf16_causal_packgqa_sm90", HEAD_DIM, KGEN_DTYPE_BF16,
                                   KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PACKGQA};
    parameters params = {};
    kgen_fwd_params& p = params.call;
    if (const int code = check_fwd_params(given, self, p)) return code;
    const int group = p.num_heads / p.num_heads_k;
    if (group > WARPGROUP_ROWS) {
        return fail(KGEN_ERROR_UNSUPPORTED,
                    "%s: %d query heads read one key head; the limit is %d, the rows of a warpgroup", self.name, group,
                    WARPGROUP_ROWS);
    }
    const uint64_t m_blocks = tiles_of(p.seqlen_q, CONSUMERS * (WARPGROUP_ROWS / group));
    const uint64_t items = product(m_blocks, p.num_heads_k, p.batch);
    // Counted as if each item had its own blocks, so that item numbers fit 31 bits on every device.
    if (const int code = check_blocks(self.name, items, p)) return code;
    if (items == 0) return KGEN_SUCCESS;
    if (const int code = require_tile_maps(params.q, fwd_queries(p), self.name, "Q", tile_box{
        static_cast<uint32_t>(WARPGROUP_ROWS / group), static_cast<uint32_t>(group)}))
        return code;
    if (p.seqlen_k > 0) {
        if (const int code = require_tile_maps(params.k, fwd_keys(p), self.name, "K")) return code;
        if (const int code = require_tile_maps(params.v, fwd_values(p), self.name, "V")) return code;
    }
    // A third of L2: on Hopper it has two halves that may hold copies of the same lines, and Q and O stream through it.
    params.keys_in_l2 = l2_cache_bytes() / 3 / (2 * (HEAD_DIM + HEAD_DIM));
    params.sequences = p.batch;
    params.heads = static_cast<uint32_t>(p.num_heads_k);
    params.heads_a_group = 0;
    params.vector = rows_are_aligned(p.o, p.cu_seqlens_q ? 0 : p.o_batch_stride, p.o_row_stride, p.o_head_stride);
    const int multiprocessors = multiprocessor_count();
    if (multiprocessors == 0) return KGEN_ERROR_LAUNCH;
    params.blocks = static_cast<uint32_t>(items < static_cast<uint64_t>(multiprocessors) ? items : multiprocessors);
    const head_items items_a_head = items_of_head(p, true, false, static_cast<uint32_t>(m_blocks),
                                                  CONSUMERS * (WARPGROUP_ROWS / group), BLOCK_N);
    if (lengths_are_equal(p) && items_a_head.steps(0) >= UNLIKE_STEPS) {
        params.heads_a_group = heads_per_group(p, params.heads, params.blocks, items_a_head);
        params.sequences = 1;
        params.heads *= p.batch;
    }
    return launch_early(attention, self.name, params.blocks, THREADS, SHARED_BYTES, params, stream);
}
