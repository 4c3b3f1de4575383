// flash_fwd_short_hdim128_bf16_causal_paged_sm90
//
// Flash Attention, forward, for small problems:
//   O = softmax(scale * Q K^T + causal mask) V, and the log-sum-exp of each row.
// Head dim 128, bf16, causal (aligned to the bottom right), with paged, compute capability 9.0.
//
// With too few query tiles to fill the GPU, the latency of one tile dominates. A block has one tile of 64
// queries of one head and 2 warpgroups, which all multiply (wgmma) for the same rows and divide the keys: warpgroup
// w takes the key tiles w, w + 2, w + 4, ... of 64 keys each. Each has its own maxima, sums and O; at the end
// they are merged in shared memory, and each writes its share of the columns.
//
// There is no producer warp: the first warp of a warpgroup fetches its key tiles by TMA, 3 of K and 3 of V at
// first, and further ones as stages are released. Up to 384 keys are in flight before the first product.
//
// With num_splits above 1 that many blocks share the key tiles of a query tile, and fwd_combine merges what they write
// to the workspace (kgen/split_plan.cuh).
//
// Tiles are counted from the end. The last query tile ends at the last query, and the first key tile processed ends at
// the last key that the block sees, so the diagonal of the mask is at the same place in every block, and a partial tile
// of a sequence lacks its front: TMA never reads past the end of a sequence, and rows before its start are filled with
// zeros or, in a packed tensor, hold rows of the previous sequence.
//
// K and V are paged. Pages hold a multiple of 16 rows and TMA loads 16 rows at a time, so tiles end at a multiple of 16
// keys, and the first tile may hold up to 15 rows after the last key, with arbitrary contents.
//
// Plan: 215240 bytes of shared memory; O, S and P need about 136 of 255 registers.
// Made by kgen 0.1.0 from templates/attention/fwd_short_sm90.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -c
//       flash_fwd_short_hdim128_bf16_causal_paged_sm90.cu

#include "kgen.h"
#include "kgen/blocks.cuh"
#include "kgen/divisor.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/fwd_tma.cuh"
#include "kgen/global.cuh"
#include "kgen/grid_order.cuh"
#include "kgen/launch.cuh"
#include "kgen/math.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/paged_tma.cuh"
#include "kgen/pages.cuh"
#include "kgen/platform.cuh"
#include "kgen/quad.cuh"
#include "kgen/shared.cuh"
#include "kgen/split_params.cuh"
#include "kgen/split_plan.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma.cuh"
#include "kgen/tma_tile.cuh"
#include "kgen/types.cuh"
#include "kgen/wgmma.cuh"
#include "kgen/wgmma_tile.cuh"

KGEN_WGMMA_WIDTH(64)
KGEN_WGMMA_WIDTH(128)

namespace {

using namespace kgen;
using element = bf16;

constexpr int HEAD_DIM = 128;
constexpr int HEAD_DIM_PADDED = 128;
constexpr int BLOCK_M = 64;  // queries per block, and rows of one product
constexpr int BLOCK_N = 64;  // keys per step of one warpgroup
constexpr int STAGES = 3;  // of K, and of V, for each warpgroup
constexpr int WARPGROUPS = 2;
constexpr int THREADS = 128 * WARPGROUPS;

using query_tile = shared_tile<BLOCK_M, HEAD_DIM_PADDED>;
using key_tile = shared_tile<BLOCK_N, HEAD_DIM_PADDED>;

// Shared memory:
//   Q at 0 (16384 bytes)
//   stages of K and V (then O) at 16384 (196608 bytes)
//   maxima and sums at 212992 (1024 bytes)
//   place at 214016 (16 bytes)
//   mbarriers at 215040 (200 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t STAGES_OFFSET = 16384;
constexpr uint32_t STATES_OFFSET = 212992;
constexpr uint32_t PLACE_OFFSET = 214016;
constexpr uint32_t BARRIERS_OFFSET = 215040;
constexpr uint32_t SHARED_BYTES = 215240;
// a warpgroup's stages of K, then those of V
constexpr uint32_t WARPGROUP_BYTES = (STATES_OFFSET - STAGES_OFFSET) / WARPGROUPS;
constexpr uint32_t STAGE_BYTES = WARPGROUP_BYTES / (2 * STAGES);
static_assert(STAGE_BYTES % TMA_TILE_ALIGNMENT == 0, "swizzles go by addresses");
static_assert(STAGE_BYTES >= key_tile::bytes, "a stage holds a tile");

// Chunks of 8 columns of O that a warpgroup finishes: an even number, since chunks are written in pairs.
constexpr int O_TILES = HEAD_DIM / 8;
constexpr int SHARE = (O_TILES + 2 * WARPGROUPS - 1) / (2 * WARPGROUPS) * 2;
static_assert(WARPGROUP_BYTES >= BLOCK_M * HEAD_DIM * sizeof(float), "its O lies where its stages were");

constexpr float LOG2_E = 1.44269504088896341f;
constexpr float LN_2 = 0.69314718055994531f;

// The growth of a row's maximum that is tolerated before O is rescaled, in powers of two, given a lane's part of the
// row's sum. Under a stale maximum the largest weight is not exactly 1, and its rounding error shows in O if it
// dominates
// the row. So growth is tolerated while the new weight stays below eight times the lane's part, about twice the row's
// sum: a weight of more than eight ninths of its row is always exact. (Less would have O rescaled more often in a row's
// first tiles, whose sums are small; a short row has few others.) Growth beyond 2^8 is not tolerated at all, so that
// P stays in the range of its type.
constexpr float RESCALE_THRESHOLD = 8.0f;
KGEN_DEVICE float tolerated_growth(float sum) {
    return minimum(maximum(log2_fast(sum) + 3.0f, 0.0f), RESCALE_THRESHOLD);
}

struct parameters {
    kgen_fwd_params call;
    tile_maps<query_tile> q;
    tile_maps<granule_of<key_tile>> k;
    tile_maps<granule_of<key_tile>> v;
    divisor page_size;
    bool vector;      // O is written in 8-byte pieces
    uint32_t tiles;   // query tiles of all heads and sequences: the blocks of one split
    int splits;       // blocks that share the keys of a query tile; more than 1: they write partial results
};

// The mbarriers: the block's, for Q, and those of one warpgroup. A full barrier counts the fetching thread and its
// bytes, an empty one the four warps that read the data.
struct barriers {
    uint32_t q_full, own;
    int meeting;  // the warpgroup's named barrier

    KGEN_DEVICE barriers(uint32_t base, int warpgroup) : q_full(base), own(base + 8 + warpgroup * 4 * STAGES * 8),
        meeting(1 + warpgroup) {}
    KGEN_DEVICE uint32_t k_full(uint32_t stage) const { return own + stage * 8; }
    KGEN_DEVICE uint32_t k_empty(uint32_t stage) const { return own + (STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t v_full(uint32_t stage) const { return own + (2 * STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t v_empty(uint32_t stage) const { return own + (3 * STAGES + stage) * 8; }
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

// A row's position is its place among the keys: row i of sq queries is at i + sk - sq, possibly below 0. It sees keys
// [first_seen, end_seen), none if the end is not above the first.
KGEN_DEVICE int first_seen(const kgen_fwd_params& p, int position) {
    return 0;
}

KGEN_DEVICE int end_seen(const kgen_fwd_params& p, int position, int keys) {
    int end = min(keys, position + 1);
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
            whole_granules(end_seen(p, end_position - 1, keys.rows)), queries, keys};
}

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

// A warpgroup's share of the block's key tiles, numbered from 0: its tile t is the block's tile t * WARPGROUPS +
// warpgroup.
struct own_tiles {
    int count;
    int head;
    sequence_pages pages;
    int first_key;         // of tile 0, below 0 if the tile begins before the sequence
    int keys;              // of the sequence
    int position;          // of the first query row
    uint32_t k, v;         // the stages, in shared memory

    KGEN_DEVICE uint32_t k_stage(uint32_t stage) const { return k + stage * STAGE_BYTES; }
    KGEN_DEVICE uint32_t v_stage(uint32_t stage) const { return v + stage * STAGE_BYTES; }
};

constexpr int STRIDE = WARPGROUPS * BLOCK_N;  // keys from one tile of a warpgroup to its next

KGEN_DEVICE own_tiles share_of(const parameters& given, const assignment& work, tile_range tiles, int head_k,
                               uint32_t shared, int warpgroup) {
    const int passed = (tiles.first + warpgroup) * BLOCK_N;  // keys of later splits and of the preceding warpgroups
    const uint32_t stages = shared + STAGES_OFFSET + warpgroup * WARPGROUP_BYTES;
    return {(tiles.count - warpgroup + WARPGROUPS - 1) / WARPGROUPS,
            head_k,
            pages_of(given.call, given.page_size, work.batch),
            work.end - passed - BLOCK_N,
            work.keys.rows,
            work.first_query + work.keys.rows - work.queries.rows,
            stages,
            stages + STAGES * STAGE_BYTES};
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

// Fetches a warpgroup's first tiles, one per stage. Called by its fetching warp; thread 0 of the block also fetches Q.
// Pages are looked up together, so that their latencies overlap.
KGEN_DEVICE void fetch_first(const parameters& given, const assignment& work, const own_tiles& keys, uint32_t shared,
                             barriers barrier) {
    int page[STAGES];
    KGEN_UNROLL
    for (int tile = 0; tile < STAGES; ++tile)
        page[tile] = page_of_granule<BLOCK_N>(keys.pages, keys.first_key - tile * STRIDE, tile < keys.count);
    KGEN_UNROLL
    for (int tile = 0; tile < STAGES; ++tile) {
        if (tile >= keys.count) break;
        fetch_paged_tile<key_tile>(keys.k_stage(tile), given.k, barrier.k_full(tile), keys.pages,
                                   keys.first_key - tile * STRIDE, page[tile], keys.head);
        if (tile == 0 && thread_index() == 0) {
            const int row = work.queries.first_row + work.first_query;
            fetch_tile(shared + Q_OFFSET, given.q, barrier.q_full, row, work.head,
                       work.queries.packed ? 0 : work.batch);
        }
        fetch_paged_tile<key_tile>(keys.v_stage(tile), given.v, barrier.v_full(tile), keys.pages,
                                   keys.first_key - tile * STRIDE, page[tile], keys.head);
    }
}

// A warpgroup iterates over its own key tiles and computes O, maxima and sums only over these. While the softmax of one
// tile runs, the tensor cores compute P V of the previous tile.
KGEN_DEVICE void attend(output& o, row_state& state, const parameters& given, const own_tiles& keys, uint32_t shared,
                        barriers barrier, float log2_scale) {
    const int warpgroup_thread = static_cast<int>(thread_index() % 128);
    const int lane_row = warpgroup_thread / 32 * 16 + static_cast<int>(lane_index() / 4);
    ring_place<STAGES> k_place, v_place;
    scores s;
    weights p;
    const auto multiply_q_k = [&] {
        mbarrier_wait(barrier.k_full(k_place.stage), k_place.parity);
        wgmma_fence();
        multiply_by_rows<element, query_tile, key_tile, HEAD_DIM_PADDED>(s, shared + Q_OFFSET,
                                                                         keys.k_stage(k_place.stage));
        wgmma_commit();
    };
    const auto multiply_p_v = [&] {
        mbarrier_wait(barrier.v_full(v_place.stage), v_place.parity);
        wgmma_fence();
        multiply_by_columns<element, key_tile, HEAD_DIM>(o, p, keys.v_stage(v_place.stage));
        wgmma_commit();
    };
    // Refills a stage that has been read with tile `next`, if there is one; `page` is the page of the lane's granule.
    // All warps signal that they are done, and the fetching warp, which is one of them, starts the copy.
    const bool fetches = warpgroup_thread < 32;
    const auto done_with_k = [&](int tile, int page) {
        const int next = tile + STAGES;
        if (next < keys.count) {
            if (lane_index() == 0) mbarrier_arrive(barrier.k_empty(k_place.stage));
            if (fetches) {
                mbarrier_wait(barrier.k_empty(k_place.stage), k_place.parity);
                fetch_paged_tile<key_tile>(keys.k_stage(k_place.stage), given.k, barrier.k_full(k_place.stage),
                                           keys.pages, keys.first_key - next * STRIDE, page, keys.head);
            }
            warp_sync();
        }
        k_place.next();
    };
    const auto done_with_v = [&](int tile, int page) {
        const int next = tile + STAGES;
        if (next < keys.count) {
            if (lane_index() == 0) mbarrier_arrive(barrier.v_empty(v_place.stage));
            if (fetches) {
                mbarrier_wait(barrier.v_empty(v_place.stage), v_place.parity);
                fetch_paged_tile<key_tile>(keys.v_stage(v_place.stage), given.v, barrier.v_full(v_place.stage),
                                           keys.pages, keys.first_key - next * STRIDE, page, keys.head);
            }
            warp_sync();
        }
        v_place.next();
    };
    // Looked up one tile ahead, to hide the latency of the page table behind the products of the previous tile.
    const auto page_of = [&](int tile) {
        return page_of_granule<BLOCK_N>(keys.pages, keys.first_key - tile * STRIDE, fetches && tile < keys.count);
    };
    int page = 0, next_page = page_of(STAGES);  // of the next tiles of V and of K

    mbarrier_wait(barrier.q_full, 0);
    multiply_q_k();
    // Rows of V after the last key must be zeros: 0 * NaN is NaN. Only the block's first tile can hold such rows.
    if (keys.keys < keys.first_key + BLOCK_N) {
        mbarrier_wait(barrier.v_full(0), 0);
        clear_rows_from<key_tile>(keys.v_stage(0), keys.keys - keys.first_key, warpgroup_thread, 128);
        fence_proxy_async();
        barrier_wait(barrier.meeting, 128);
    }
    wgmma_wait<0>(s);
    for (int tile = 0;; ++tile) {
        done_with_k(tile, next_page);
        const int first_key = keys.first_key - tile * STRIDE;
        if (first_key < first_seen(given.call, keys.position + BLOCK_M - 1) ||
            first_key + BLOCK_N > end_seen(given.call, keys.position, keys.keys)) {
            mask(s, {given.call, keys.position + lane_row, first_key, keys.keys});
        }
        float factor[2];
        const bool outgrown = raise_maximum(s, state, factor, log2_scale);
        if (tile > 0) {
            wgmma_wait<0>(o);
            done_with_v(tile - 1, page);
            if (outgrown) rescale(o, factor);
        }
        page = next_page, next_page = page_of(tile + 1 + STAGES);
        exponentiate(p, s, state, log2_scale);
        if (tile + 1 == keys.count) break;
        multiply_q_k();
        multiply_p_v();
        update_headroom(state, log2_scale);
        wgmma_wait<1>(s);
    }
    multiply_p_v();
    wgmma_wait<0>(o);
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

// Writes a lane's share of 8 columns of partial results, two in each of two rows. Neighbouring lanes exchange two
// columns: the even one writes four of its upper row, the odd one of the lower. `to`: of the row that the lane writes.
KGEN_DEVICE void store_part(floats4* to, const float (&own)[4], bool odd, bool has_row) {
    const float first = shuffle_xor(odd ? own[0] : own[2], 1), second = shuffle_xor(odd ? own[1] : own[3], 1);
    if (has_row)
        store_global(to, odd ? floats4{first, second, own[2], own[3]} : floats4{own[0], own[1], first, second});
}

// Merges O and the sums of all warpgroups, relative to the largest of their maxima. A warpgroup finishes and writes
// SHARE chunks of columns, of all rows. `with_keys`: the first warpgroups, which have any tiles.
//
// Every thread holds the same elements of O as the threads with its number in other warpgroups, so adjacent threads
// read adjacent 16-byte pieces: chunk j of thread t is at piece j * 128 + t.
KGEN_DEVICE void merge(const output& o, row_state& state, const parameters& given, const assignment& work, int split,
                       int with_keys, uint32_t shared, barriers barrier, int warpgroup, float log2_scale) {
    const kgen_fwd_params& p = given.call;
    const int thread = static_cast<int>(thread_index() % 128);
    const auto part_of = [&](int w, int chunk) {
        return shared + STAGES_OFFSET + w * WARPGROUP_BYTES + (chunk * 128 + thread) * 16;
    };
    const auto state_of = [&](int w, int row) { return shared + STATES_OFFSET + (w * BLOCK_M + row) * 8; };
    const int lane_row = thread / 32 * 16 + static_cast<int>(lane_index() / 4);
    float mine[SHARE][4] = {};
    if (warpgroup < with_keys) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            state.sum[h] = sum_of_row(state.sum[h]);
            if (lane_index() % 4 == 0) store_shared(state_of(warpgroup, lane_row + h * 8), state.max[h], state.sum[h]);
        }
        barrier_wait(barrier.meeting, 128);  // products of other warps may still read the stages where O goes now
        KGEN_UNROLL
        for (int j = 0; j < O_TILES; ++j) {
            if (j / SHARE == warpgroup) {
                KGEN_UNROLL
                for (int e = 0; e < 4; ++e) mine[j % SHARE][e] = o[j][e];
            } else {
                store_shared(part_of(warpgroup, j), floats4{o[j][0], o[j][1], o[j][2], o[j][3]});
            }
        }
    }
    block_sync();

    float factor[WARPGROUPS][2], most[2], sum[2];
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        float part_max[WARPGROUPS], part_sum[WARPGROUPS];
        most[h] = -infinity();
        sum[h] = 0.0f;
        KGEN_UNROLL
        for (int w = 0; w < WARPGROUPS; ++w) {
            part_max[w] = -infinity();
            part_sum[w] = 0.0f;
            if (w < with_keys) load_shared_pair(state_of(w, lane_row + h * 8), part_max[w], part_sum[w]);
            most[h] = maximum(most[h], part_max[w]);
        }
        KGEN_UNROLL
        for (int w = 0; w < WARPGROUPS; ++w) {
            // A part that has seen no key has O = 0 and sum 0; this avoids -infinity - -infinity.
            factor[w][h] = part_max[w] == -infinity() ? 0.0f : exp2_fast(log2_scale * (part_max[w] - most[h]));
            sum[h] = fused_multiply_add(part_sum[w], factor[w][h], sum[h]);
        }
        const float inverse = inverse_of_sum(sum[h]);
        KGEN_UNROLL
        for (int w = 0; w < WARPGROUPS; ++w) factor[w][h] *= inverse;
    }
    float own[2] = {0.0f, 0.0f};
    KGEN_UNROLL
    for (int w = 0; w < WARPGROUPS; ++w) {
        if (w != warpgroup) continue;
        own[0] = factor[w][0];
        own[1] = factor[w][1];
    }
    KGEN_UNROLL
    for (int c = 0; c < SHARE; ++c) {
        KGEN_UNROLL
        for (int e = 0; e < 4; ++e) mine[c][e] *= own[e / 2];
    }
    const int first_chunk = warpgroup * SHARE;
    const auto has_chunk = [&](int c) { return O_TILES == WARPGROUPS * SHARE || first_chunk + c < O_TILES; };
    KGEN_UNROLL
    for (int w = 0; w < WARPGROUPS; ++w) {
        const bool has_part = w < with_keys && w != warpgroup;
        KGEN_UNROLL
        for (int c = 0; c < SHARE; ++c) {
            floats4 part = {0.0f, 0.0f, 0.0f, 0.0f};
            if (has_part && has_chunk(c)) part = load_shared_floats(part_of(w, first_chunk + c));
            mine[c][0] = fused_multiply_add(part.x, factor[w][0], mine[c][0]);
            mine[c][1] = fused_multiply_add(part.y, factor[w][0], mine[c][1]);
            mine[c][2] = fused_multiply_add(part.z, factor[w][1], mine[c][2]);
            mine[c][3] = fused_multiply_add(part.w, factor[w][1], mine[c][3]);
        }
    }

    if (given.splits > 1) {
        const bool odd = lane_index() % 2 != 0;
        const int row = work.first_query + lane_row + (odd ? 8 : 0);
        const int64_t place = split_workspace_row(p, split, work.queries, work.batch, max(0, row), work.head);
        auto* part = reinterpret_cast<floats4*>(split_output(p, place)) + first_chunk * 2 + lane_index() % 4 / 2;
        KGEN_UNROLL
        for (int c = 0; c < SHARE; ++c) store_part(part + c * 2, mine[c], odd, row >= 0 && has_chunk(c));
        if (row >= 0 && warpgroup == 0 && lane_index() % 4 < 2)
            store_global(split_lse(p, place), log_sum_exp(odd ? sum[1] : sum[0], odd ? most[1] : most[0], log2_scale));
        return;
    }
    uint16_t* to = static_cast<uint16_t*>(p.o) + sequence_offset(work.queries, work.batch, work.head, p.o_batch_stride,
                                                                 p.o_row_stride, p.o_head_stride);
    float* lse = p.lse;
    if (lse != nullptr)
        lse += (work.queries.packed ? work.queries.first_row : work.batch * p.lse_batch_stride) +
               work.head * p.lse_head_stride;
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        const int row = work.first_query + lane_row + h * 8;
        KGEN_UNROLL
        for (int c = 0; c < SHARE; c += 2) {
            const int column = (first_chunk + c) * 8;
            uint32_t words[2] = {pack<element>(mine[c][2 * h], mine[c][2 * h + 1]),
                                 pack<element>(mine[c + 1][2 * h], mine[c + 1][2 * h + 1])};
            if (has_chunk(c + 1)) store_quad_row(to + row * p.o_row_stride + column, words, row >= 0, given.vector);
        }
        if (lse != nullptr && warpgroup == 0 && lane_index() % 4 == 0 && row >= 0) {
            store_global(lse + row, log_sum_exp(sum[h], most[h], log2_scale));
        }
    }
}

KGEN_KERNEL(THREADS, 1) attention(KGEN_PARAMETER parameters given) {
    const kgen_fwd_params& p = given.call;
    const uint32_t shared = shared_base();
    const int warpgroup = static_cast<int>(warp_index() / 4);
    const bool fetches = warp_index() % 4 == 0;
    const barriers barrier(shared + BARRIERS_OFFSET, warpgroup);
    if (thread_index() % 128 == 0) {
        if (warpgroup == 0) mbarrier_init(barrier.q_full, 1);
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier.k_full(stage), 1);
            mbarrier_init(barrier.k_empty(stage), 4);
            mbarrier_init(barrier.v_full(stage), 1);
            mbarrier_init(barrier.v_empty(stage), 4);
        }
        fence_mbarrier_init();
        if (warpgroup == 0 && p.seqlen_k > 0) {  // without keys there are no maps
            prefetch_tile_maps(given.q);
            prefetch_tile_maps(given.k);
            prefetch_tile_maps(given.v);
        }
    }
    if (thread_index() == 32) {
        // The block's query tile, batch and head, computed by a warp that is idle here: four divisions, which would
        // take each warp longer than reading the results from shared memory. The splits of a tile lie as far apart as
        // can be: blocks that run at once read the same keys.
        const uint32_t index = given.splits > 1 ? block_index() % given.tiles : block_index();
        const uint32_t place = index / query_tiles(p), head = place % p.num_heads;
        store_shared(shared + PLACE_OFFSET,
                     words4{index % query_tiles(p), place / p.num_heads, head, head / (p.num_heads / p.num_heads_k)});
    }
    block_sync();
    const words4 place = load_shared(shared + PLACE_OFFSET);
    const int split = given.splits > 1 ? static_cast<int>(block_index() / given.tiles) : 0;
    let_later_kernels_start();  // as early as possible: the next one's blocks begin where this one's end
    await_earlier_kernels();    // from here on this kernel accesses memory that earlier kernels may have written
    const assignment work = work_of(p, place.y, place.z, place.x);
    if (work.is_empty() || work.queries.rows < p.least_queries) return;
    const tile_range tiles = tiles_of_split(work.tiles(), split, given.splits);
    const own_tiles keys = share_of(given, work, tiles, place.w, shared, warpgroup);
    if (fetches) fetch_first(given, work, keys, shared, barrier);
    warp_sync();
    // A scale of 0 is replaced by one too small to change any exponential, so that a masked key stays at -infinity.
    const float log2_scale = maximum(p.softmax_scale * LOG2_E, 1e-30f);
    output o;
    row_state state = {{-infinity(), -infinity()}, {0.0f, 0.0f}};
    clear(o);
    if (keys.count > 0) attend(o, state, given, keys, shared, barrier, log2_scale);
    merge(o, state, given, work, split, min(tiles.count, WARPGROUPS), shared, barrier, warpgroup, log2_scale);
}

}  // namespace

extern "C" int flash_fwd_short_hdim128_bf16_causal_paged_sm90(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr fwd_identity self = {"flash_fwd_short_hdim128_bf16_causal_paged_sm90", HEAD_DIM, KGEN_DTYPE_BF16,
                                   KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED};
    parameters params = {};
    kgen_fwd_params& p = params.call;
    if (const int code = check_fwd_params(given, self, p)) return code;
    params.splits = p.num_splits > 1 ? p.num_splits : 1;
    const uint64_t tiles = product(tiles_of(p.seqlen_q, BLOCK_M), p.num_heads, p.batch),
        items = product(tiles, params.splits);
    if (const int code = check_blocks(self.name, items, p)) return code;
    if (items == 0) return KGEN_SUCCESS;
    if (params.splits > 1) {
        if (const int code = check_shared_tiles(p, self.name)) return code;
        if (const int code = refuse_query_limits(p, self.name)) return code;
    }
    params.tiles = static_cast<uint32_t>(tiles);
    if (const int code = require_tile_maps(params.q, fwd_queries(p), self.name, "Q")) return code;
    if (const int code = check_granules(p, self.name)) return code;
    params.page_size = make_divisor(p.page_size);
    if (p.seqlen_k > 0) {
        if (const int code = require_tile_maps(params.k, fwd_keys(p), self.name, "K")) return code;
        if (const int code = require_tile_maps(params.v, fwd_values(p), self.name, "V")) return code;
    }
    params.vector = rows_are_aligned(p.o, p.cu_seqlens_q ? 0 : p.o_batch_stride, p.o_row_stride, p.o_head_stride);
    return launch_early(attention, self.name, static_cast<uint32_t>(items), THREADS, SHARED_BYTES, params, stream);
}
