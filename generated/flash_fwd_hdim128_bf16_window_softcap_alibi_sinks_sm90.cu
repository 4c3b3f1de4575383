// flash_fwd_hdim128_bf16_window_softcap_alibi_sinks_sm90
//
// Flash Attention, forward: O = softmax(scale * Q K^T) V, and the log-sum-exp of each row.
// Head dim 128, bf16, every key visible to every query unless a call requests window, softcap, alibi, sinks, compute
// capability 9.0.
//
// A block has 3 consumer warpgroups (wgmma), of 64 query rows each, and a producer warpgroup,
// whose first thread fetches (TMA). It takes 192 queries of one head and iterates over the keys in tiles of 80, from
// the last visible one to the first. K and V go through 2 stages each; one mbarrier signals that a stage is full,
// another that all warps have finished with it.
// While the softmax of one key tile runs, the tensor cores compute P V of the previous tile.
// Warpgroups alternate: when one has issued its products to the tensor cores, it signals the next.
// One persistent block per multiprocessor: the next tiles are in flight while the last O is written.
//
// Tiles are counted from the end. The last query tile ends at the last query, and the first key tile processed ends at
// the last key that the block sees, so the diagonal of the mask is at the same place in every block, and a partial tile
// of a sequence lacks its front: TMA never reads past the end of a sequence, and rows before its start are filled with
// zeros or, in a packed tensor, hold rows of the previous sequence.
//
// Plan: 181408 bytes of shared memory; O, S and P need about 148 of 160 registers.
// Made by kgen 0.1.0 from templates/attention/fwd_sm90.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -c
//       flash_fwd_hdim128_bf16_window_softcap_alibi_sinks_sm90.cu

#include "kgen.h"
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
constexpr int BLOCK_M = 192;  // queries per block
constexpr int BLOCK_N = 80;  // keys per step
constexpr int STAGES = 2;
constexpr int Q_SLOTS = 6;  // buffers for the Q of one warpgroup
constexpr int CONSUMERS = 3;  // warpgroups that multiply
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int WARPGROUP_ROWS = BLOCK_M / CONSUMERS;
constexpr int O_TILES = HEAD_DIM / 8;  // 8-column pieces of O

using query_tile = shared_tile<WARPGROUP_ROWS, HEAD_DIM_PADDED>;
using key_tile = shared_tile<BLOCK_N, HEAD_DIM_PADDED>;

// Shared memory:
//   slots of Q at 0 (98304 bytes)
//   stages of K at 98304 (40960 bytes)
//   stages of V at 139264 (40960 bytes)
//   work at 180224 (192 bytes)
//   mbarriers at 181248 (160 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t K_OFFSET = 98304;
constexpr uint32_t V_OFFSET = 139264;
constexpr uint32_t WORK_OFFSET = 180224;
constexpr uint32_t BARRIERS_OFFSET = 181248;
constexpr uint32_t SHARED_BYTES = 181408;
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

// A row's position is its place among the keys: row i of sq queries is at i + sk - sq, possibly below 0. It sees keys
// [first_seen, end_seen), none if the end is not above the first.
KGEN_DEVICE int first_seen(const kgen_fwd_params& p, int position) {
    return position > p.features.window_left ? position - p.features.window_left : 0;
}

KGEN_DEVICE int end_seen(const kgen_fwd_params& p, int position, int keys) {
    int end = keys - 1 - position <= p.features.window_right ? keys : position + 1 + p.features.window_right;
    return max(0, end);
}

KGEN_DEVICE uint32_t query_tiles(const kgen_fwd_params& p) { return (p.seqlen_q + BLOCK_M - 1) / BLOCK_M; }

// A work item: a query tile of one head.
struct assignment {
    int batch, head;
    int first_query;  // of the tile; below 0 if the first tile of a sequence is partial
    int begin;  // the first key that a row sees
    int end;  // keys up to the last one that the tile's last row sees

    KGEN_DEVICE int span() const { return end - begin; }
    KGEN_DEVICE int tiles() const { return (span() + BLOCK_N - 1) / BLOCK_N; }
    sequence queries, keys;

    KGEN_DEVICE bool is_empty() const { return first_query <= -BLOCK_M; }
};

KGEN_DEVICE assignment work_of(const kgen_fwd_params& p, int batch, int head, int tile) {
    const int from_end = tile * BLOCK_M;
    const sequence queries = sequence_of(batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const sequence keys = sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k);
    const int end_position = keys.rows - from_end;
    const int first_position = max(end_position - BLOCK_M, keys.rows - queries.rows);
    return {batch, head, queries.rows - from_end - BLOCK_M, first_seen(p, first_position),
            end_seen(p, end_position - 1, keys.rows), queries, keys};
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
KGEN_DEVICE assignment assigned_work(const kgen_fwd_params& p, uint32_t place_head, uint32_t tile) {
    return work_of(p, place_head / p.num_heads, place_head % p.num_heads, tile);
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

// The producer thread: fetches Q, K and V for all of the block's work, in the order of their use.
KGEN_DEVICE void fetch(const parameters& given, uint32_t shared, barriers barrier) {
    const kgen_fwd_params& p = given.call;
    q_slot_place q_places[CONSUMERS] = {q_slot_place(0), q_slot_place(1), q_slot_place(2)};
    ring_place<STAGES> k_place;
    ring_place<STAGES> v_place;
    work_place place;
    // Writes the work item to a warpgroup's next slot. The warpgroup's Q must follow, or just an arrival.
    const auto announce = [&](const q_slot_place& q_place, uint32_t head, uint32_t tile, uint32_t span,
                              uint32_t first_query, uint32_t end, uint32_t keys) {
        mbarrier_wait(barrier.q_empty(q_place.stage), q_place.parity ^ 1);
        store_shared(shared + WORK_OFFSET + q_place.stage * WORK_BYTES, words4{head, tile, span, first_query});
        store_shared(shared + WORK_OFFSET + q_place.stage * WORK_BYTES + sizeof(words4), words4{end, keys, 0, 0});
    };
    while (place.next(given)) {
        const uint32_t place_head = place.head(given), place_tile = place.tile(given);
        const assignment work = assigned_work(p, place_head, place_tile);
        if (work.is_empty()) continue;
        const int head_k = work.head / (p.num_heads / p.num_heads_k);
        const int tiles = work.tiles();
        const int q_batch = work.queries.packed ? 0 : work.batch;
        const int k_batch = work.keys.packed ? 0 : work.batch;
        const int k_end = work.keys.first_row + work.end;
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
            announce(q_place, place_head, place_tile, work.span(), work.first_query, work.end, work.keys.rows);
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
        announce(q_places[w], NO_WORK, 0, 0, 0, 0, 0);
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

// The keys of a tile that a lane's rows see.
struct view {
    const kgen_fwd_params& p;
    int position;   // of the lane's first row
    int first_key;  // of the tile, possibly below 0
    int keys;       // of the sequence

    // The columns that row r sees, counted from the lane's first row.
    KGEN_DEVICE interval of_row(int r) const {
        return {max(first_seen(p, position + r), 0) - first_key, end_seen(p, position + r, keys) - first_key};
    }
};

KGEN_DEVICE void mask(scores& s, const view& seen) {
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) mask_row(s, h, seen.of_row(h * 8));
}

// Factors that change scores. The result is in the units
// of the cap, if there is one, otherwise of Q K^T.
struct score_factors {
    float to_cap;  // scale / cap; below 0: there is no cap
    float slope;  // 0: scores do not depend on the distance; below 0: they rise with it
};

// `scale`: of Q K^T. Returns the scale of the scores that the factors leave, in powers of two.
KGEN_DEVICE float read_factors(score_factors& factors, const kgen_fwd_params& p, float scale) {
    factors.to_cap = p.features.softcap > 0.0f ? scale / p.features.softcap : -1.0f;
    if (p.features.softcap > 0.0f) scale = p.features.softcap;
    // A scale of 0 is replaced by one too small to change any exponential, so that a masked key stays at -infinity.
    return maximum(scale * LOG2_E, 1e-30f);
}

// Reads the slope of a head, after the other factors.
KGEN_DEVICE void read_slope(score_factors& factors, const kgen_fwd_params& p, int batch, int head, float log2_scale) {
    if (p.features.alibi_slopes == nullptr) {
        factors.slope = 0.0f;
    } else {
        factors.slope = load_global(p.features.alibi_slopes + batch * p.features.alibi_batch_stride + head) * LOG2_E /
                        log2_scale;
    }
}

// Adds `SIGN` times the slope's magnitude times the distance to a lane's part of a row. `from_first`: the slope times
// the distance of its first key.
template <int SIGN, int CHUNKS>
KGEN_DEVICE void add_distances(float (&s)[CHUNKS][4], int h, float slope, float from_first) {
    KGEN_UNROLL
    for (int j = 0; j < CHUNKS; ++j) {
        s[j][2 * h] += SIGN * absolute(fused_multiply_add(-slope, static_cast<float>(j * 8), from_first));
        s[j][2 * h + 1] += SIGN * absolute(fused_multiply_add(-slope, static_cast<float>(j * 8 + 1), from_first));
    }
}

// Changes a lane's part of row h * 8 + lane / 4 of 16 rows. With slopes `distance`: of the row's position from the
// tile's first key; with a bias `position`: of the row, `first_key`: of the tile.
template <int CHUNKS>
KGEN_DEVICE void adjust_row(float (&s)[CHUNKS][4], int h, const score_factors& factors, int distance) {
    if (factors.to_cap >= 0.0f) {
        KGEN_UNROLL
        for (int j = 0; j < CHUNKS; ++j) {
            s[j][2 * h] = tanh_fast(factors.to_cap * s[j][2 * h]);
            s[j][2 * h + 1] = tanh_fast(factors.to_cap * s[j][2 * h + 1]);
        }
    }
    if (factors.slope != 0.0f) {
        const float from_first = factors.slope * static_cast<float>(distance - static_cast<int>(lane_index() % 4 * 2));
        // Two copies of the loop, since applying a sign to each element would cost one more instruction.
        if (factors.slope > 0.0f) {
            add_distances<-1>(s, h, factors.slope, from_first);
        } else {
            add_distances<1>(s, h, factors.slope, from_first);
        }
    }
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

// The log-sum-exp of a row with its sink, -infinity if it has neither keys nor a sink. `max` is in powers of two.
KGEN_DEVICE float log_sum_exp(float sum, float max) {
    return sum == 0.0f ? -infinity() : LN_2 * (max + log2_fast(sum));
}

// A head's sink; -infinity if there is none.
template <class Params>
KGEN_DEVICE float read_sink(const Params& p, int head) {
    if (p.features.sinks == nullptr) return -infinity();
    if (p.features.sinks_dtype == KGEN_DTYPE_FP32)
        return load_global(static_cast<const float*>(p.features.sinks) + head);
    float sink, none;
    unpack<bf16>(load_global(static_cast<const uint16_t*>(p.features.sinks) + head), sink, none);
    return sink;
}

// The sink of a head, for exponentials to the base 2: times log2(e).
KGEN_DEVICE float sink_of(const kgen_fwd_params& p, int head) { return LOG2_E * read_sink(p, head); }

// Adds a sink to the denominator of a row. If it exceeds the row's maximum, the sum becomes relative to the sink.
// Returns the factor for O that goes with the new sum. `max` is then in powers of two, and the sum has a scale of 1.
KGEN_DEVICE float join_sink(float& sum, float& max, float log2_scale, float sink) {
    const float row = max == -infinity() ? -infinity() : log2_scale * max;
    const float top = maximum(row, sink);
    if (top == -infinity()) return 0.0f;
    const float factor = exp2_fast(row - top);
    sum = sum * factor + exp2_fast(sink - top);
    max = top;
    return factor;
}

// Finishes the rows of a work item: returns the factor for O and writes the log-sum-exp. `warp_row` is the warp's first
// row in the tile.
KGEN_DEVICE void close_rows(float (&factor)[2], const row_state& state, const parameters& given, const assignment& work,
                            int warp_row, float log2_scale) {
    const kgen_fwd_params& p = given.call;
    const float sink = sink_of(p, work.head);
    float* lse = p.lse;
    if (lse != nullptr)
        lse += (work.queries.packed ? work.queries.first_row : work.batch * p.lse_batch_stride) +
               work.head * p.lse_head_stride;
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        float sum = sum_of_row(state.sum[h]), max = state.max[h];
        const float share = join_sink(sum, max, log2_scale, sink);
        factor[h] = share * inverse_of_sum(sum);
        const int row = work.first_query + warp_row + h * 8 + static_cast<int>(lane_index() / 4);
        if (lse != nullptr && lane_index() % 4 == 0 && row >= 0) {
            store_global(lse + row, log_sum_exp(sum, max));
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

// Writes a warp's rows of a work item without keys: O = 0, LSE = the sink, if there is one, or -infinity. Neighbouring
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
        store_global(p.lse + first + work.head * p.lse_head_stride + row, LN_2 * sink_of(p, work.head));
    }
}

// A consumer warpgroup: processes its 64 rows of every work item of the block.
KGEN_DEVICE void attend(const parameters& given, uint32_t shared, barriers barrier, int warpgroup) {
    const kgen_fwd_params& p = given.call;
    const int warpgroup_row = warpgroup * WARPGROUP_ROWS;
    const int warp_row = warpgroup_row + warp_index() % 4 * 16;
    const int lane_row = warp_row + static_cast<int>(lane_index() / 4);
    score_factors factors;
    const float log2_scale = read_factors(factors, p, p.softmax_scale);

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
            at = {said.x, said.y, end - BLOCK_N, end - span, keys, keys - static_cast<int>(said.y + 1) * BLOCK_M};
            const bool has_rows = first_query + warpgroup_row + WARPGROUP_ROWS > 0;
            if (span > 0 && has_rows) return true;
            done_with_q();
            if (span <= 0) {write_nothing(given, assigned_work(p, said.x, said.y), warp_row);
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
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) adjust_row(s, h, factors, at.position + lane_row + h * 8 - (at.first_key));
        const int row = at.position + warpgroup_row;  // position of the warpgroup's first row
        if (at.first_key < first_seen(p, row + WARPGROUP_ROWS - 1) ||
            at.first_key + BLOCK_N > end_seen(p, row, at.keys)) {
            mask(s, {p, at.position + lane_row, at.first_key, at.keys});
        }
    };
    // The first tiles of an item may be beyond the diagonal of all rows of this warpgroup, though not of the others'.
    // They are skipped, K and V separately.
    const auto is_hidden = [&](const tile_of_piece& at) {
        return at.first_key >= end_seen(p, at.position + warpgroup_row + WARPGROUP_ROWS - 1, at.keys) && !at.is_last();
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
        read_slope(factors, p, at.head / p.num_heads, at.head % p.num_heads, log2_scale);
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
        close_rows(factor, state, given, done, warp_row, log2_scale);
        write_output(o, factor, given, done, warp_row);
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
    block_sync();
    await_earlier_kernels();  // from here on this kernel accesses memory that earlier kernels may have written
    let_later_kernels_start();
    const int warpgroup = static_cast<int>(warp_index() / 4);
    if (warpgroup == 0) {
        release_registers<32>();
        if (thread_index() == 0) fetch(given, shared, barrier);
    } else {
        claim_registers<160>();
        attend(given, shared, barrier, warpgroup - 1);
    }
}

}  // namespace

extern "C" int flash_fwd_hdim128_bf16_window_softcap_alibi_sinks_sm90(const kgen_fwd_params* given,
                                                                      cudaStream_t stream) {
    constexpr fwd_identity self = {"flash_fwd_hdim128_bf16_window_softcap_alibi_sinks_sm90", HEAD_DIM, KGEN_DTYPE_BF16,
                                   KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI |
                                   KGEN_FEATURE_SINKS};
    parameters params = {};
    kgen_fwd_params& p = params.call;
    if (const int code = check_fwd_params(given, self, p)) return code;
    const uint64_t m_blocks = tiles_of(p.seqlen_q, BLOCK_M);
    const uint64_t items = product(m_blocks, p.num_heads, p.batch);
    // Counted as if each item had its own blocks, so that item numbers fit 31 bits on every device.
    if (const int code = check_blocks(self.name, items, p)) return code;
    if (items == 0) return KGEN_SUCCESS;
    if (const int code = require_tile_maps(params.q, fwd_queries(p), self.name, "Q")) return code;
    if (p.seqlen_k > 0) {
        if (const int code = require_tile_maps(params.k, fwd_keys(p), self.name, "K")) return code;
        if (const int code = require_tile_maps(params.v, fwd_values(p), self.name, "V")) return code;
    }
    params.heads = static_cast<uint32_t>(p.num_heads * p.batch);
    params.vector = rows_are_aligned(p.o, p.cu_seqlens_q ? 0 : p.o_batch_stride, p.o_row_stride, p.o_head_stride);
    const int multiprocessors = multiprocessor_count();
    if (multiprocessors == 0) return KGEN_ERROR_LAUNCH;
    params.blocks = static_cast<uint32_t>(items < static_cast<uint64_t>(multiprocessors) ? items : multiprocessors);
    const head_items items_a_head = items_of_head(p, false, true, static_cast<uint32_t>(m_blocks), BLOCK_M, BLOCK_N);
    params.heads_a_group = heads_per_group(p, p.num_heads, params.blocks, items_a_head);
    return launch_early(attention, self.name, params.blocks, THREADS, SHARED_BYTES, params, stream);
}
