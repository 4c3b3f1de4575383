// flash_fwd_split_hdim128_bf16_causal_paged_sm90
//
// Flash Attention, split-KV forward: for each split of the keys, O = softmax(scale * Q K^T + causal mask) V over that
// split alone and its log-sum-exp, into the workspace (kgen/split_params.cuh). flash_fwd_combine merges them, or the
// last block of each row tile to finish does. Without a workspace there is one split, and O and the log-sum-exp are
// written to the caller's tensors.
// Head dim 128, bf16, causal (aligned to the bottom right), with paged, compute capability 9.0 and newer.
//
// For long contexts with few queries, where reading K and V dominates. The queries of all heads that read one key head
// form the rows of a tile, so K and V are read once: row r is query r / group of head r % group. A block takes 16
// rows and one split, whose keys are divided among its 4 warps, 64 per step. Each
// warp has its own ring of 3 slices, which it fills by itself (cp.async), and its own softmax
// state, so no warp waits for another until the end, where they are merged.
// K and V are paged. If pages hold whole slices, as pages of 16 rows do, a slice takes one page lookup.
//
// Plan: 102976 bytes of shared memory; accumulators, fragments and addresses need about 156 registers per thread;
// 2 blocks (8 warps) per SM, limited by shared memory.
// Made by kgen 0.1.0 from templates/attention/fwd_split_sm80.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -c
//       flash_fwd_split_hdim128_bf16_causal_paged_sm90.cu

#include "kgen.h"
#include "kgen/atomics.cuh"
#include "kgen/blocks.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/device.cuh"
#include "kgen/divisor.cuh"
#include "kgen/features.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/global.cuh"
#include "kgen/grid_order.cuh"
#include "kgen/launch.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/math.cuh"
#include "kgen/mma.cuh"
#include "kgen/pages.cuh"
#include "kgen/params.cuh"
#include "kgen/platform.cuh"
#include "kgen/quad.cuh"
#include "kgen/shared.cuh"
#include "kgen/split_params.cuh"
#include "kgen/split_plan.cuh"
#include "kgen/split_sizes.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/types.cuh"
#include "kgen/warp_tile.cuh"

namespace {

using namespace kgen;
using element = bf16;

constexpr int HEAD_DIM = 128;
constexpr int HEAD_DIM_PADDED = 128;
constexpr int BLOCK_M = 16;  // rows per block
constexpr int BLOCK_N = 64;  // keys per step of all warps
constexpr int STAGES = 3;  // steps in shared memory
constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int BLOCKS_PER_SM = 2;  // registers are capped so that this many fit
constexpr int M_TILES = BLOCK_M / 16;   // 16-row MMA tiles
constexpr int SLICE = BLOCK_N / WARPS;  // keys that a warp takes at once
constexpr int O_TILES = HEAD_DIM / 8;  // 8-column MMA tiles of O

using query_tile = shared_tile<BLOCK_M, HEAD_DIM_PADDED>;
using key_tile = shared_tile<SLICE, HEAD_DIM_PADDED>;

// Shared memory:
//   Q at 0 (4096 bytes)
//   rings of K and V (then O) at 4096 (98304 bytes)
//   maxima at 102400 (256 bytes)
//   sums at 102656 (256 bytes)
//   reciprocals of sums at 102912 (64 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t RING_OFFSET = 4096;
constexpr uint32_t MAX_OFFSET = 102400;
constexpr uint32_t SUM_OFFSET = 102656;
constexpr uint32_t INVERSE_OFFSET = 102912;
constexpr uint32_t SHARED_BYTES = 102976;
constexpr uint32_t STAGE_BYTES = 2 * key_tile::bytes;  // K and V of one slice
constexpr uint32_t RING_BYTES = STAGES * STAGE_BYTES;    // of one warp

// At the end each warp's O replaces the rings. Rows are padded by 32 bytes to avoid bank conflicts.
constexpr int OUTPUT_ROW = HEAD_DIM + 8;
constexpr uint32_t WARP_OUTPUT_BYTES = BLOCK_M * OUTPUT_ROW * sizeof(float);
static_assert(WARPS * WARP_OUTPUT_BYTES <= WARPS * RING_BYTES, "the rings hold every warp's O");

struct parameters {
    kgen_fwd_params call;
    divisor page_size;
    uint32_t blocks;  // launched
};

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

// The state that a warp keeps from one key tile to the next. Index [t][h] is row t * 16 + h * 8 + lane / 4 of the warp.
struct row_state {
    float o[M_TILES][O_TILES][4];  // output, not yet divided by the sum
    float max[M_TILES][2];         // the maximum that exp2 is taken relative to, in units of Q K^T
    float sum[M_TILES][2];         // this lane's part of the sum of exponentials, in fp32 before they are rounded
    float headroom;                // scores may exceed `max` by this much before O is rescaled
};

using scores = float[M_TILES][key_tile::rows / 8][4];

using query_fragments = uint32_t[HEAD_DIM_PADDED / 16][M_TILES][4];

// S = Q K^T for one key tile, with Q in registers.
KGEN_DEVICE void multiply_q_k(scores& s, const query_fragments& q, uint32_t k, lane_offsets k_lanes) {
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int j = 0; j < key_tile::rows / 8; ++j) {
            KGEN_UNROLL
            for (int e = 0; e < 4; ++e) s[t][j][e] = 0.0f;
        }
    }
    KGEN_UNROLL
    for (int step = 0; step < HEAD_DIM_PADDED / 16; ++step) {
        KGEN_UNROLL
        for (int j = 0; j < key_tile::rows / 16; ++j) {
            uint32_t b[4];
            ldmatrix_x4(b, fragment_address<key_tile>(k, k_lanes, j * 16, step));
            KGEN_UNROLL
            for (int t = 0; t < M_TILES; ++t) {
                mma_m16n8k16<element>(s[t][2 * j], q[step][t], b[0], b[1]);
                mma_m16n8k16<element>(s[t][2 * j + 1], q[step][t], b[2], b[3]);
            }
        }
    }
}

// O += P V for one key tile. The accumulator layout of S is the A-operand layout of P: no data moves between lanes.
KGEN_DEVICE void multiply_p_v(row_state& state, const scores& p, uint32_t v, lane_offsets v_lanes) {
    KGEN_UNROLL
    for (int step = 0; step < key_tile::rows / 16; ++step) {
        uint32_t a[M_TILES][4];
        KGEN_UNROLL
        for (int t = 0; t < M_TILES; ++t) {
            a[t][0] = pack<element>(p[t][2 * step][0], p[t][2 * step][1]);
            a[t][1] = pack<element>(p[t][2 * step][2], p[t][2 * step][3]);
            a[t][2] = pack<element>(p[t][2 * step + 1][0], p[t][2 * step + 1][1]);
            a[t][3] = pack<element>(p[t][2 * step + 1][2], p[t][2 * step + 1][3]);
        }
        KGEN_UNROLL
        for (int j = 0; j < HEAD_DIM_PADDED / 16; ++j) {
            uint32_t b[4];
            ldmatrix_x4_transposed(b, fragment_address<key_tile>(v, v_lanes, step * 16, j));
            KGEN_UNROLL
            for (int t = 0; t < M_TILES; ++t) {
                mma_m16n8k16<element>(state.o[t][2 * j], a[t], b[0], b[1]);
                if (2 * j + 1 < O_TILES) mma_m16n8k16<element>(state.o[t][2 * j + 1], a[t], b[2], b[3]);
            }
        }
    }
}

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

// The keys of a tile that a block's rows see. Keys are counted from the tensor's first.
struct view {
    int first, end;  // the tile's first key; keys from `end` on belong to another split or to none
    const int (&diagonal)[M_TILES][2];  // keys that the lane's row [t][h] sees

    // The columns that row t * 16 + h * 8 sees, counted from the lane's first row.
    KGEN_DEVICE interval of_row(int t, int h) const { return {0, min(end, diagonal[t][h]) - first}; }
};

KGEN_DEVICE void mask(scores& s, const view& seen) {
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) mask_row(s[t], h, seen.of_row(t, h));
    }
}

// One step of the online softmax: turns S into P = exp2(log2_scale * (S - max)), adds P's rows to the sums, and
// rescales O and the sums to a new maximum if the old one has been exceeded.
KGEN_DEVICE void softmax(scores& s, row_state& state, float log2_scale) {
    float seen[M_TILES][2];  // of this lane's columns
    bool outgrown = false;
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            float m = maximum(s[t][0][2 * h], s[t][0][2 * h + 1]);
            KGEN_UNROLL
            for (int j = 1; j < key_tile::rows / 8; ++j) m = maximum(m, maximum(s[t][j][2 * h], s[t][j][2 * h + 1]));
            seen[t][h] = m;
            outgrown |= m > state.max[t][h] + state.headroom;
        }
    }
    // The first tile always takes this branch: the maximum starts at -infinity. Later tiles seldom do, so lanes
    // exchange their maxima only here.
    if (warp_any(outgrown)) {
        KGEN_UNROLL
        for (int t = 0; t < M_TILES; ++t) {
            KGEN_UNROLL
            for (int h = 0; h < 2; ++h) {
                float m = maximum(seen[t][h], shuffle_xor(seen[t][h], 1));
                m = maximum(m, shuffle_xor(m, 2));
                // Before the first visible key, O and the sum are 0; this avoids -infinity - -infinity.
                const float old_max = state.max[t][h];
                m = maximum(m, old_max);
                const float factor = old_max == -infinity() ? 0.0f : exp2_fast(log2_scale * (old_max - m));
                state.max[t][h] = m;
                state.sum[t][h] *= factor;
                KGEN_UNROLL
                for (int j = 0; j < O_TILES; ++j) {
                    state.o[t][j][2 * h] *= factor;
                    state.o[t][j][2 * h + 1] *= factor;
                }
            }
        }
        float least = minimum(state.sum[0][0], state.sum[0][1]);  // without this tile
        KGEN_UNROLL
        for (int t = 1; t < M_TILES; ++t) least = minimum(least, minimum(state.sum[t][0], state.sum[t][1]));
        state.headroom = tolerated_growth(least) / log2_scale;
    }
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            // A row that has seen no key keeps -infinity; 0 instead makes every exponential exp2(-infinity) = 0.
            const float shift = state.max[t][h] == -infinity() ? 0.0f : -log2_scale * state.max[t][h];
            KGEN_UNROLL
            for (int j = 0; j < key_tile::rows / 8; ++j) {
                s[t][j][2 * h] = exp2_fast(fused_multiply_add(s[t][j][2 * h], log2_scale, shift));
                s[t][j][2 * h + 1] = exp2_fast(fused_multiply_add(s[t][j][2 * h + 1], log2_scale, shift));
                state.sum[t][h] += s[t][j][2 * h] + s[t][j][2 * h + 1];
            }
        }
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

// The factor for O and the log-sum-exp of a row.
struct closed_row {
    float inverse, lse;
};

// `max` is the row's maximum before scaling, `sum` its sum relative to that, `sink` a logit, -infinity for none.
KGEN_DEVICE closed_row close_row(float sum, float max, float log2_scale, float sink) {
    if (max == -infinity()) return {0.0f, sink};
    const float row = log2_scale * max;  // in powers of two, like `top`
    const float top = maximum(row, LOG2_E * sink);
    const float factor = exp2_fast(row - top);
    const float total = fused_multiply_add(sum, factor, exp2_fast(fused_multiply_add(LOG2_E, sink, -top)));
    return {factor * reciprocal(total), LN_2 * (top + log2_fast(total))};
}

// Writes four columns of a row of O.
KGEN_DEVICE void store_whole_piece(uint16_t* to, floats4 o) {
    store_four(to, pack<element>(o.x, o.y), pack<element>(o.z, o.w), reinterpret_cast<uintptr_t>(to) % 8 == 0);
}

// A split of a row tile.
struct assignment {
    int first_row, head_k, batch, split;
};

KGEN_DEVICE uint32_t tiles_of_sequence(const kgen_fwd_params& p) {
    return (p.seqlen_q * (p.num_heads / p.num_heads_k) + BLOCK_M - 1) / BLOCK_M;
}

// The number of a block's row tile, the same for all splits: less than the number of blocks per split.
KGEN_DEVICE uint32_t tile_number(const kgen_fwd_params& p, assignment work) {
    return (work.batch * p.num_heads_k + work.head_k) * tiles_of_sequence(p) + work.first_row / BLOCK_M;
}

// The row of the workspace for a row of the block's tile.
KGEN_DEVICE int64_t partial_row(const kgen_fwd_params& p, assignment work, sequence queries, int row) {
    const int group = p.num_heads / p.num_heads_k;
    const int packed = work.first_row + row;
    return split_workspace_row(p, work.split, queries, work.batch, packed / group,
                               work.head_k * group + packed % group);
}

// The work of a block: blocks are ordered by split, batch, key head, then row tile. The heads of a split run next to
// each other, since their keys are adjacent. Splits that a short sequence does not have come late and cost little.
KGEN_DEVICE assignment assigned_work(const kgen_fwd_params& p) {
    const uint32_t m_blocks = tiles_of_sequence(p);
    const uint32_t block = block_index();
    const uint32_t tile = block % m_blocks, head = block / m_blocks;
    const uint32_t batch = head / p.num_heads_k;
    return {static_cast<int>(tile * BLOCK_M), static_cast<int>(head % p.num_heads_k), static_cast<int>(batch % p.batch),
            static_cast<int>(batch / p.batch)};
}

// The number of work items, the same in all lanes. Called by all lanes.
KGEN_DEVICE uint32_t count_items(const kgen_fwd_params& p) {
    constexpr int at_once = 4;  // loads in flight per lane
    uint32_t further = 0;
    KGEN_ROLLED
    for (int first = lane_index(); first < p.batch; first += 32 * at_once) {
        int counts[at_once];
        KGEN_UNROLL
        for (int i = 0; i < at_once; ++i) counts[i] = first + 32 * i < p.batch ? split_count(p, first + 32 * i) : 0;
        KGEN_UNROLL
        for (int i = 0; i < at_once; ++i) further += max(0, counts[i] - 1);
    }
    KGEN_UNROLL
    for (int step = 16; step > 0; step /= 2) further += shuffle_xor(further, step);
    return (p.batch + further) * p.num_heads_k * tiles_of_sequence(p);
}

// Finds a work item. The first splits of all sequences come first, since every sequence has one, then the further
// splits of one sequence after another. Within a split, items are ordered by key head, since the keys of these are
// adjacent, then by row tile. Called by all lanes, which get the same result.
KGEN_DEVICE assignment find_work(const kgen_fwd_params& p, uint32_t item) {
    const uint32_t m_blocks = tiles_of_sequence(p), by_head = item / m_blocks, pair = by_head / p.num_heads_k;
    assignment work;
    work.first_row = static_cast<int>(item % m_blocks * BLOCK_M);
    work.head_k = static_cast<int>(by_head % p.num_heads_k);
    work.batch = static_cast<int>(pair % p.batch);
    work.split = static_cast<int>(pair / p.batch);
    if (work.split == 0) return work;
    uint32_t further = pair - p.batch;
    const uint32_t lane = lane_index();
    KGEN_ROLLED
    for (int first = 0; first < p.batch; first += 32) {
        const int sequence = first + static_cast<int>(lane);
        const uint32_t own = sequence < p.batch ? max(0, split_count(p, sequence) - 1) : 0;
        uint32_t up_to = own;  // sum over the lanes up to this one
        KGEN_UNROLL
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            const uint32_t sum = shuffle(up_to, (lane - distance) % 32);
            if (lane >= distance) up_to += sum;
        }
        const uint32_t counted = shuffle(up_to, 31);
        if (further < counted) {
            const int holder = lowest_bit(warp_ballot(further < up_to));
            work.batch = first + holder;
            work.split = static_cast<int>(further - shuffle(up_to - own, holder)) + 1;
            break;
        }
        further -= counted;
    }
    return work;
}

// The factors and the log-sum-exp that merge the partial results of a row.
struct merged_row {
    float reference;  // weights are relative to this: the largest log-sum-exp, or 0 if all are -infinity
    float inverse;    // of the sum of weights; 0 if the sum is 0
    float lse;

    KGEN_DEVICE float weight(float of_split) const { return exp2_fast((of_split - reference) * LOG2_E); }

    // The factor for the O of a split.
    KGEN_DEVICE float factor(float of_split) const { return weight(of_split) * inverse; }
};

// `lse_of(split)` is -infinity, and the weight 0, for a split that saw no key. A sink is a logit that is added to the
// merged denominator and has no O. The result is the same in all lanes.
template <class Lse>
KGEN_DEVICE merged_row merge_row(int splits, float sink, const Lse& lse_of) {
    float largest = -infinity();
    for (int split = lane_index(); split < splits; split += 32) largest = maximum(largest, lse_of(split));
    KGEN_UNROLL
    for (int step = 16; step > 0; step /= 2) largest = maximum(largest, shuffle_xor(largest, step));
    largest = maximum(largest, sink);
    merged_row row;
    row.reference = largest == -infinity() ? 0.0f : largest;  // avoids -infinity - -infinity
    float sum = 0.0f;
    for (int split = lane_index(); split < splits; split += 32) sum += row.weight(lse_of(split));
    KGEN_UNROLL
    for (int step = 16; step > 0; step /= 2) sum += shuffle_xor(sum, step);
    sum += row.weight(sink);
    row.inverse = sum == 0.0f ? 0.0f : reciprocal(sum);
    row.lse = sum == 0.0f ? -infinity() : fused_multiply_add(LN_2, log2_fast(sum), largest);
    return row;
}

// True in the last block of the row tile to arrive; all threads of that block then see the partial results of all
// blocks. Called by all threads that have written partial results. They `meet` in a barrier, and one of them `counts`.
// `flag` is a word of shared memory that is unused by then.
template <class Meet>
KGEN_DEVICE bool ends_last(const kgen_fwd_params& p, assignment work, int splits, uint32_t flag, bool counts,
                           const Meet& meet) {
    meet();  // all partial results of the block are written
    if (counts) {
        const uint32_t tile = tile_number(p, work), shift = tile % TILES_A_WORD * 8;
        uint32_t* arrived = p.arrivals + tile / TILES_A_WORD;
        const uint32_t before = atomic_add<memory_order::acquire_release>(arrived, 1u << shift) >> shift & 255u;
        const bool last = before + 1 == static_cast<uint32_t>(splits);
        if (last) reduce_add(arrived, 0u - ((before + 1) << shift));  // zero for the next launch
        store_shared(flag, last ? 1.0f : 0.0f);
    }
    meet();  // the answer is visible
    return load_shared_float(flag) != 0.0f;
}

// Merges the partial results of the block's rows, each row in the order of the splits, and writes O and LSE. Rows are
// divided among `warps` warps; this one is number `warp`.
KGEN_DEVICE void merge_rows(const kgen_fwd_params& p, assignment work, int splits, int warp, int warps) {
    constexpr int pieces = HEAD_DIM / 4;  // pieces of four columns in a row
    constexpr int width = pieces > 16 ? 32 : pieces > 8 ? 16 : pieces > 4 ? 8 : 4;  // lanes that share a split's row
    constexpr int teams = 32 / width;    // splits read at the same time
    constexpr int at_once = 8;           // of a team
    const sequence queries = sequence_of(work.batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const int group = p.num_heads / p.num_heads_k;
    const int rows = min(queries.rows, p.seqlen_q) * group;
    const int piece = lane_index() % width, team = lane_index() / width;
    const int64_t split_stride = split_total_rows(p) * p.num_heads;
    KGEN_ROLLED
    for (int row = warp; row < BLOCK_M && work.first_row + row < rows; row += warps) {
        const int packed = work.first_row + row, query = packed / group, head = work.head_k * group + packed % group;
        const int64_t first = split_workspace_row(p, 0, queries, work.batch, query, head);
        const auto lse_of = [&](int split) { return load_written(split_lse(p, first + split * split_stride)); };
        const merged_row merged = merge_row(splits, read_sink(p, head), lse_of);
        if (p.lse != nullptr && lane_index() == 0) {
            const int64_t sequence_start = queries.packed ? queries.first_row : work.batch * p.lse_batch_stride;
            store_global(p.lse + sequence_start + head * p.lse_head_stride + query, merged.lse);
        }
        uint16_t* to = static_cast<uint16_t*>(p.o) +
                       sequence_offset(queries, work.batch, head, p.o_batch_stride, p.o_row_stride, p.o_head_stride) +
                       query * p.o_row_stride;
        KGEN_ROLLED
        for (int column = piece * 4; column - piece * 4 < HEAD_DIM; column += width * 4) {
            const bool has_columns = column < HEAD_DIM;
            floats4 o = {0.0f, 0.0f, 0.0f, 0.0f};
            KGEN_ROLLED
            for (int split = team; has_columns && split < splits; split += teams * at_once) {
                floats4 part[at_once];
                float factor[at_once];
                KGEN_UNROLL
                for (int i = 0; i < at_once; ++i) {
                    const int other = split + i * teams;
                    const float lse = other < splits ? lse_of(other) : -infinity();
                    factor[i] = merged.factor(lse);
                    part[i] = {0.0f, 0.0f, 0.0f, 0.0f};
                    if (lse == -infinity()) continue;  // its O is undefined
                    part[i] = load_written(
                        reinterpret_cast<const floats4*>(split_output(p, first + other * split_stride) + column));
                }
                KGEN_UNROLL
                for (int i = 0; i < at_once; ++i) {
                    o = {fused_multiply_add(factor[i], part[i].x, o.x), fused_multiply_add(factor[i], part[i].y, o.y),
                         fused_multiply_add(factor[i], part[i].z, o.z), fused_multiply_add(factor[i], part[i].w, o.w)};
                }
            }
            KGEN_UNROLL
            for (int step = width; step < 32; step *= 2) {
                o = {o.x + shuffle_xor(o.x, step), o.y + shuffle_xor(o.y, step), o.z + shuffle_xor(o.z, step),
                     o.w + shuffle_xor(o.w, step)};
            }
            if (team == 0 && has_columns) store_whole_piece(to + column, o);
        }
    }
}

// Loads the block's rows of Q into shared memory; rows from `rows` on are zeros.
template <bool VECTOR>
KGEN_DEVICE void copy_queries(uint32_t tile, const kgen_fwd_params& p, assignment work, sequence queries, int rows) {
    constexpr int chunks = HEAD_DIM_PADDED / 8;  // 16-byte pieces per row
    const int group = p.num_heads / p.num_heads_k;
    const uint16_t* q = static_cast<const uint16_t*>(p.q) +
                        sequence_offset(queries, work.batch, work.head_k * group, p.q_batch_stride, p.q_row_stride,
                                        p.q_head_stride);
    KGEN_ROLLED
    for (int i = thread_index(); i < BLOCK_M * chunks; i += THREADS) {
        const int row = i / chunks, column = i % chunks * 8;
        const int packed = work.first_row + row;
        const uint16_t* from = q + packed / group * p.q_row_stride + packed % group * p.q_head_stride + column;
        const uint32_t destination = tile + chunk_offset<query_tile>(row, column);
        const bool valid = packed < rows && (HEAD_DIM == HEAD_DIM_PADDED || column < HEAD_DIM);
        if constexpr (VECTOR) {
            cp_async(destination, from, valid);
        } else {
            uint32_t words[4] = {0, 0, 0, 0};
            if (valid) {
                KGEN_UNROLL
                for (int e = 0; e < 8; ++e)
                    words[e / 2] |= static_cast<uint32_t>(load_global(from + e)) << (e % 2 * 16);
            }
            store_shared(destination, words4{words[0], words[1], words[2], words[3]});
        }
    }
}

// Merges the warps' states and writes the block's O and LSE: final results to the caller's tensors, partial ones to the
// workspace. Returns true if they are final. No warp may use its ring any more.
KGEN_DEVICE bool write_rows(row_state& state, const kgen_fwd_params& p, const assignment& work, bool whole,
                            uint32_t shared, float log2_scale) {
    const uint32_t warp = warp_index();
    const int lane_row = lane_index() / 4;
    const auto max_address = [&](uint32_t of_warp, int row) {
        return shared + MAX_OFFSET + (of_warp * BLOCK_M + row) * 4;
    };
    const auto sum_address = [&](uint32_t of_warp, int row) {
        return shared + SUM_OFFSET + (of_warp * BLOCK_M + row) * 4;
    };
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            const float sum = sum_of_row(state.sum[t][h]);
            if (lane_index() % 4 == 0) {
                store_shared(max_address(warp, t * 16 + h * 8 + lane_row), state.max[t][h]);
                store_shared(sum_address(warp, t * 16 + h * 8 + lane_row), sum);
            }
        }
    }
    block_sync();  // maxima and sums are visible to all threads, and no warp still reads Q or its ring

    // The factor that rescales a warp's O and sums from its own maximum to the largest.
    const auto factor = [&](uint32_t of_warp, int row, float largest) {
        const float own = load_shared_float(max_address(of_warp, row));
        return own == -infinity() ? 0.0f : exp2_fast(log2_scale * (own - largest));
    };
    const auto largest_maximum = [&](int row) {
        float largest = -infinity();
        KGEN_UNROLL
        for (int w = 0; w < WARPS; ++w) largest = maximum(largest, load_shared_float(max_address(w, row)));
        return largest;
    };

    const uint32_t outputs = shared + RING_OFFSET;
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            const int row = t * 16 + h * 8 + lane_row;
            const float scale = factor(warp, row, largest_maximum(row));
            const uint32_t to = outputs + warp * WARP_OUTPUT_BYTES + (row * OUTPUT_ROW + lane_index() % 4 * 2) * 4;
            KGEN_UNROLL
            for (int j = 0; j < O_TILES; ++j)
                store_shared(to + j * 32, state.o[t][j][2 * h] * scale, state.o[t][j][2 * h + 1] * scale);
        }
    }

    const sequence queries = sequence_of(work.batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const int group = p.num_heads / p.num_heads_k;
    const int valid_rows = min(queries.rows, p.seqlen_q) * group - work.first_row;
    if (thread_index() < BLOCK_M) {
        const int row = thread_index();
        const float largest = largest_maximum(row);
        float sum = 0.0f;
        KGEN_UNROLL
        for (int w = 0; w < WARPS; ++w) sum += factor(w, row, largest) * load_shared_float(sum_address(w, row));
        if (whole) {
            const int packed = work.first_row + row, head = work.head_k * group + packed % group;
            const closed_row closed = close_row(sum, largest, log2_scale, read_sink(p, row < valid_rows ? head : 0));
            store_shared(shared + INVERSE_OFFSET + row * 4, closed.inverse);
            if (row < valid_rows && p.lse != nullptr) {
                const int64_t first = queries.packed ? queries.first_row : work.batch * p.lse_batch_stride;
                store_global(p.lse + first + head * p.lse_head_stride + packed / group, closed.lse);
            }
        } else {
            store_shared(shared + INVERSE_OFFSET + row * 4, inverse_of_sum(sum));
            if (row < valid_rows) {
                store_global(split_lse(p, partial_row(p, work, queries, row)), log_sum_exp(sum, largest, log2_scale));
            }
        }
    }
    block_sync();  // every warp's O is visible to all threads

    constexpr int pieces = HEAD_DIM / 4;
    KGEN_ROLLED
    for (int i = thread_index(); i < BLOCK_M * pieces; i += THREADS) {
        const int row = i / pieces, column = i % pieces * 4;
        if (row >= valid_rows) break;
        const float inverse = load_shared_float(shared + INVERSE_OFFSET + row * 4);
        floats4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
        KGEN_UNROLL
        for (int w = 0; w < WARPS; ++w) {
            const floats4 part = load_shared_floats(outputs + w * WARP_OUTPUT_BYTES + (row * OUTPUT_ROW + column) * 4);
            sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
        }
        sum = {sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse};
        if (whole) {
            const int packed = work.first_row + row;
            uint16_t* to = static_cast<uint16_t*>(p.o) +
                           sequence_offset(queries, work.batch, work.head_k * group + packed % group, p.o_batch_stride,
                                           p.o_row_stride, p.o_head_stride);
            store_whole_piece(to + packed / group * p.o_row_stride + column, sum);
        } else {
            store_global(reinterpret_cast<floats4*>(split_output(p, partial_row(p, work, queries, row)) + column), sum);
        }
    }
    return whole;
}

// Called after the block has written its partial results: merges those of its row tile if it is the last to finish, or
// if no split has any.
KGEN_DEVICE void merge_if_last(const kgen_fwd_params& p, const assignment& work) {
    const int splits = split_count(p, work.batch);
    if (splits <= 0 ||
        ends_last(p, work, splits, shared_base() + MAX_OFFSET, thread_index() == 0, [] { block_sync(); })) {
        merge_rows(p, work, splits, warp_index(), WARPS);
    }
}

// Computes a split of a row tile. Returns true if partial results must be merged, or if the rows of a tile without
// splits must still be written.
// WHOLE_SLICES: no slice spans two pages.
template <bool VECTOR, bool WHOLE_SLICES>
KGEN_DEVICE bool compute_split(const parameters& given, const assignment& work) {
    const kgen_fwd_params& p = given.call;
    const int splits = is_whole(p) ? 1 : split_count(p, work.batch);
    if (work.split >= max(splits, 1)) return false;
    const bool whole = writes_whole(p, splits);
    const int group = p.num_heads / p.num_heads_k;
    const sequence queries = sequence_of(work.batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const sequence keys = sequence_of(work.batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k);
    const int rows = min(queries.rows, p.seqlen_q) * group;
    if (work.first_row >= rows || (p.most_queries > 0 && queries.rows > p.most_queries)) return false;
    if (splits <= 0) return true;

    // Row r sees the keys below r / group + diagonal. The keys that the tile's last row sees are divided among the
    // splits.
    const int diagonal = keys.rows - queries.rows + 1;
    const int last_row = min(work.first_row + BLOCK_M, rows) - 1;
    const key_range range = split_keys(max(0, min(keys.rows, last_row / group + diagonal)), work.split, splits);
    const int clear_end = min(range.end, work.first_row / group + diagonal);  // every row sees the keys up to here
    if (range.first >= range.end && !whole) {
        const int row = thread_index();
        if (row < BLOCK_M && work.first_row + row < rows)
            store_global(split_lse(p, partial_row(p, work, queries, row)), -infinity());
        return true;
    }

    const sequence_pages pages = pages_of(p, given.page_size, work.batch);
    const paged_rows k = {static_cast<const uint16_t*>(p.k) + work.head_k * p.k_head_stride, p.k_batch_stride,
                          p.k_row_stride};
    const paged_rows v = {static_cast<const uint16_t*>(p.v) + work.head_k * p.v_head_stride, p.v_batch_stride,
                          p.v_row_stride};
    const uint32_t shared = shared_base();
    const uint32_t ring = shared + RING_OFFSET + warp_index() * RING_BYTES;

    row_state state;
    state.headroom = 0.0f;
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            state.max[t][h] = -infinity();
            state.sum[t][h] = 0.0f;
        }
        KGEN_UNROLL
        for (int j = 0; j < O_TILES; ++j) {
            KGEN_UNROLL
            for (int e = 0; e < 4; ++e) state.o[t][j][e] = 0.0f;
        }
    }
    int diagonals[M_TILES][2];
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h)
            diagonals[t][h] = (work.first_row + t * 16 + h * 8 + static_cast<int>(lane_index() / 4)) / group + diagonal;
    }

    // K and V of a slice are two groups of copies. A slice beyond the split's end leaves its groups empty, so that the
    // number of groups in flight is always the same. If pages hold whole slices, the page of a slice is looked up
    // ahead of its copies; otherwise each row's page is looked up as the row is copied.
    const auto page_of = [&](int first) { return WHOLE_SLICES && first < range.end ? pages.of_row(first) : 0; };
    const auto copy_k = [&](int first, uint32_t stage, int page) {
        if (first < range.end) {
            if constexpr (WHOLE_SLICES) {
                copy_warp_tile<key_tile, HEAD_DIM, VECTOR>(stage, k.row(page, pages.row_in_page(first)), k.row_stride,
                                                           0, range.end - first);
            } else {
                copy_paged_warp_tile<key_tile, HEAD_DIM, VECTOR>(stage, k, pages, first, range.end);
            }
        }
        cp_async_commit();
    };
    const auto copy_v = [&](int first, uint32_t stage, int page) {
        if (first < range.end) {
            if constexpr (WHOLE_SLICES) {
                copy_warp_tile<key_tile, HEAD_DIM, VECTOR>(stage + key_tile::bytes,
                                                           v.row(page, pages.row_in_page(first)), v.row_stride, 0,
                                                           range.end - first);
            } else {
                copy_paged_warp_tile<key_tile, HEAD_DIM, VECTOR>(stage + key_tile::bytes, v, pages, first, range.end);
            }
        }
        cp_async_commit();
    };

    copy_queries<VECTOR>(shared + Q_OFFSET, p, work, queries, rows);
    cp_async_commit();
    int slice = range.first + warp_index() * SLICE;
    int first_pages[STAGES];
    KGEN_UNROLL
    for (int s = 0; s < STAGES; ++s) first_pages[s] = page_of(slice + s * BLOCK_N);
    KGEN_UNROLL
    for (int s = 0; s < STAGES; ++s) {
        copy_k(slice + s * BLOCK_N, ring + s * STAGE_BYTES, first_pages[s]);
        copy_v(slice + s * BLOCK_N, ring + s * STAGE_BYTES, first_pages[s]);
    }
    int next_page = page_of(slice + STAGES * BLOCK_N);  // of the next slice to copy

    // A scale of 0 is replaced by one too small to change any exponential, so that a masked key stays at -infinity.
    const float log2_scale = maximum(p.softmax_scale * LOG2_E, 1e-30f);
    const lane_offsets row_lanes = lanes_by_row(0);
    const lane_offsets chunk_lanes = lanes_by_chunk();

    cp_async_wait<2 * STAGES>();  // Q has arrived; K and V are still in flight
    block_sync();
    query_fragments q_fragments;
    KGEN_UNROLL
    for (int step = 0; step < HEAD_DIM_PADDED / 16; ++step) {
        KGEN_UNROLL
        for (int t = 0; t < M_TILES; ++t)
            ldmatrix_x4(q_fragments[step][t], fragment_address<query_tile>(shared + Q_OFFSET, row_lanes, t * 16, step));
    }

    uint32_t stage = ring;
    KGEN_ROLLED
    for (; slice < range.end; slice += BLOCK_N) {
        cp_async_wait<2 * STAGES - 1>();
        warp_sync();  // K of the slice is visible to the whole warp
        scores s;
        multiply_q_k(s, q_fragments, stage, chunk_lanes);
        warp_sync();  // no lane still reads K of the slice
        const int page = next_page;
        copy_k(slice + STAGES * BLOCK_N, stage, page);
        next_page = page_of(slice + (STAGES + 1) * BLOCK_N);
        if (slice + SLICE > clear_end) mask(s, {slice, range.end, diagonals});
        softmax(s, state, log2_scale);
        cp_async_wait<2 * STAGES - 1>();
        warp_sync();  // V of the slice is visible to the whole warp
        multiply_p_v(state, s, stage + key_tile::bytes, row_lanes);
        warp_sync();  // no lane still reads V of the slice
        copy_v(slice + STAGES * BLOCK_N, stage, page);
        stage = stage + STAGE_BYTES == ring + RING_BYTES ? ring : stage + STAGE_BYTES;
    }

    return !write_rows(state, p, work, whole, shared, log2_scale);
}

// COUNTED: split counts come from the device, so the number of work items is unknown at launch and a block loops over
// items, which costs registers.
template <bool VECTOR, bool WHOLE_SLICES, bool COUNTED>
KGEN_KERNEL(THREADS, BLOCKS_PER_SM) attention_split(KGEN_PARAMETER parameters given) {
    await_earlier_kernels();
    // Only now: if kernels of several calls waited at once, they would fill the multiprocessors, and the blocks of a
    // small launch would share the few places that become free while other multiprocessors stay idle.
    let_later_kernels_start();
    const kgen_fwd_params& p = given.call;
    if constexpr (COUNTED) {
        const uint32_t items = count_items(p);
        KGEN_ROLLED
        for (uint32_t item = block_index(); item < items; item += given.blocks) {
            if (item != block_index()) block_sync();  // no thread still uses shared memory for the previous item
            const assignment work = find_work(p, item);
            if (compute_split<VECTOR, WHOLE_SLICES>(given, work) && merges_by_last_block(p)) merge_if_last(p, work);
        }
        return;
    }
    const assignment work = assigned_work(p);
    if (compute_split<VECTOR, WHOLE_SLICES>(given, work) && merges_by_last_block(p)) merge_if_last(p, work);
}

}  // namespace

extern "C" size_t flash_fwd_split_hdim128_bf16_causal_paged_sm90_workspace(const kgen_fwd_params* given) {
    constexpr const char* self = "flash_fwd_split_hdim128_bf16_causal_paged_sm90_workspace";
    kgen_fwd_params params;
    if (copy_fwd_params(given, self, params) || check_shapes(params, FEATURE_FLAGS, self) ||
        check_split_numbers(params, self))
        return 0;
    return split_workspace_bytes(params);
}

extern "C" int flash_fwd_split_hdim128_bf16_causal_paged_sm90(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr fwd_identity self = {"flash_fwd_split_hdim128_bf16_causal_paged_sm90", HEAD_DIM, KGEN_DTYPE_BF16,
                                   KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_SINKS};
    kgen_fwd_params params;
    if (const int code = check_fwd_params(given, self, params)) return code;
    if (const int code = check_split_numbers(params, self.name)) return code;
    const uint64_t rows = static_cast<uint64_t>(params.seqlen_q) * (params.num_heads / params.num_heads_k);
    const uint64_t unsplit = product(tiles_of(rows, BLOCK_M), params.num_heads_k, params.batch),
        items = product(unsplit, params.num_splits);
    if (items == 0) return KGEN_SUCCESS;
    if (const int code = check_blocks(self.name, items, params)) return code;
    if (rows > INT32_MAX - BLOCK_M) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: %llu rows of queries and heads that read one key head; the limit is %d", self.name,
                    static_cast<unsigned long long>(rows), INT32_MAX - BLOCK_M);
    }
    if (!is_whole(params)) {
        if (const int code = check_arrivals(params, BLOCK_M, self.name)) return code;
        if (const int code = check_split_workspace(params, self.name)) return code;
    }
    const bool aligned = rows_are_aligned(params.q, params.cu_seqlens_q ? 0 : params.q_batch_stride,
                                          params.q_row_stride, params.q_head_stride) &&
                         rows_are_aligned(params.k, params.cu_seqlens_k ? 0 : params.k_batch_stride,
                                          params.k_row_stride, params.k_head_stride) &&
                         rows_are_aligned(params.v, params.cu_seqlens_k ? 0 : params.v_batch_stride,
                                          params.v_row_stride, params.v_head_stride);
    const bool whole_slices = params.page_size % SLICE == 0 && SPLIT_KEYS % SLICE == 0;
    // Counts use few of the possible splits: with a block for each, the empty blocks would take longer than the others.
    const bool counted = params.split_counts != nullptr && params.num_splits > 1 && aligned && whole_slices;
    uint64_t blocks = items;
    if (counted) {
        const int multiprocessors = multiprocessor_count();
        if (multiprocessors == 0) return KGEN_ERROR_LAUNCH;  // last_error holds the reason
        const uint64_t worthwhile = unsplit + static_cast<uint64_t>(multiprocessors) * BLOCKS_PER_SM;
        if (worthwhile < blocks) blocks = worthwhile;
    }
    const auto kernel = counted ? attention_split<true, true, true>
                                : aligned && whole_slices ? attention_split<true, true, false>
                                : aligned ? attention_split<true, false, false> : attention_split<false, false, false>;
    const parameters given_to_kernel = {params, make_divisor(params.page_size), static_cast<uint32_t>(blocks)};
    return launch_early(kernel, self.name, static_cast<uint32_t>(blocks), THREADS, SHARED_BYTES, given_to_kernel,
                        stream);
}
