// flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90
//
// Flash Attention, split-KV forward, for queries in two parts (DeepSeek MLA with absorbed projections):
//   O = softmax(scale * (Q K^T + QV V^T) + causal mask) V
// for each split of the keys, and its log-sum-exp, into the workspace (kgen/split_params.cuh). flash_fwd_combine merges
// them, or the last block of each row tile to finish does. Without a workspace there is one split, and O and the
// log-sum-exp are written to the caller's tensors.
// Head dim 64 of Q and K, 512 of V and O, bf16, causal (aligned to the bottom right), with paged and qv, compute
// capability 9.0.
//
// The queries of all heads that read one key head form the rows of a tile: row r is query r / group of head r % group.
// A block takes 64 rows and one split, and iterates over its keys in tiles of 64, from the last to the first. A
// producer warpgroup, whose first warp fetches (TMA), and two consumer warpgroups share the tile of rows: each
// computes the scores of one half of the keys, and one half of the columns of O, for which it needs the weights of all
// keys. It has half of these in registers; the other half comes through shared memory, as the row maxima do.
//
// Tiles are counted from the end of the split, so that a partial tile lacks its front: TMA never reads past the end of
// a sequence, and rows before its start are filled with zeros.
//
// K and V are paged. Pages hold a multiple of 16 rows and TMA loads 16 rows at a time, so tiles end at a multiple of 16
// keys, and the first tile may hold up to 15 rows after the last key, with arbitrary contents.
//
// Plan: 230432 bytes of shared memory; O, S and P need about 192 of 224 registers.
// Made by kgen 0.1.0 from templates/attention/fwd_mla_sm90.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -c
//       flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90.cu

#include "kgen.h"
#include "kgen/atomics.cuh"
#include "kgen/blocks.cuh"
#include "kgen/byte_tile.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/divisor.cuh"
#include "kgen/features.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/fwd_tma.cuh"
#include "kgen/global.cuh"
#include "kgen/grid_order.cuh"
#include "kgen/launch.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/math.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/paged_tma.cuh"
#include "kgen/pages.cuh"
#include "kgen/params.cuh"
#include "kgen/platform.cuh"
#include "kgen/quad.cuh"
#include "kgen/registers.cuh"
#include "kgen/shared.cuh"
#include "kgen/split_params.cuh"
#include "kgen/split_plan.cuh"
#include "kgen/stmatrix.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/tma.cuh"
#include "kgen/tma_tile.cuh"
#include "kgen/types.cuh"
#include "kgen/wgmma.cuh"
#include "kgen/wgmma_tile.cuh"

KGEN_WGMMA_WIDTH(32)
KGEN_WGMMA_WIDTH(256)

namespace {

using namespace kgen;
using element = bf16;

constexpr int HEAD_DIM = 64;
constexpr int HEAD_DIM_V = 512;  // of V and O
constexpr int BLOCK_M = 64;  // rows per block
constexpr int CONSUMERS = 2;  // warpgroups that multiply, all for the same rows
constexpr int STEP_KEYS = 64;  // keys per step
constexpr int BLOCK_N = STEP_KEYS / CONSUMERS;        // keys per step whose scores one warpgroup computes
constexpr int COLUMNS = HEAD_DIM_V / CONSUMERS;       // columns of O per warpgroup
constexpr int STAGES = 2;
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int O_TILES = COLUMNS / 8;  // 8-column pieces of a warpgroup's O

using query_tile = shared_tile<BLOCK_M, HEAD_DIM>;
using query_v_tile = shared_tile<BLOCK_M, HEAD_DIM_V>;
using key_tile = shared_tile<STEP_KEYS, HEAD_DIM>;
using v_tile = shared_tile<STEP_KEYS, HEAD_DIM_V>;
using columns_tile = shared_tile<STEP_KEYS, COLUMNS>;  // the columns of V that one warpgroup multiplies
using weights_tile = shared_tile<BLOCK_M, BLOCK_N>;    // the weights of one warpgroup's keys
static_assert(CONSUMERS == 2 && BLOCK_M == 64, "two warpgroups share the rows of one product");
static_assert(HEAD_DIM == 64 && COLUMNS % 64 == 0, "all panels are 64 columns wide");

// Shared memory:
//   Q at 0 (8192 bytes)
//   QV at 8192 (65536 bytes)
//   stages of K and V at 73728 (147456 bytes)
//   P at 221184 (8192 bytes)
//   maxima and sums at 229376 (1024 bytes)
//   mbarriers at 230400 (32 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t QV_OFFSET = 8192;
constexpr uint32_t STAGES_OFFSET = 73728;
constexpr uint32_t WEIGHTS_OFFSET = 221184;
constexpr uint32_t STATE_OFFSET = 229376;
constexpr uint32_t BARRIERS_OFFSET = 230400;
constexpr uint32_t SHARED_BYTES = 230432;
constexpr uint32_t STAGE_BYTES = key_tile::bytes + v_tile::bytes;  // K, then V

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
    tile_maps<granule_of<key_tile>> k;
    tile_maps<granule_of<v_tile>> v;
    divisor page_size;
    bool q_in_pieces;  // Q and QV can be read in pieces of 16 bytes
    bool vector;       // O is written in 8-byte pieces
};

// The mbarriers. A full barrier counts the producer thread and its bytes, an empty one the warps of both warpgroups.
struct barriers {
    uint32_t base;

    KGEN_DEVICE uint32_t full(uint32_t stage) const { return base + stage * 8; }
    KGEN_DEVICE uint32_t empty(uint32_t stage) const { return base + (STAGES + stage) * 8; }
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
    constexpr int pieces = HEAD_DIM_V / 4;  // pieces of four columns in a row
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
        for (int column = piece * 4; column - piece * 4 < HEAD_DIM_V; column += width * 4) {
            const bool has_columns = column < HEAD_DIM_V;
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

// The keys of a block: those of its split, and the tiles that hold them. Tile t begins at key first_key(t); the last
// tile may begin before the split.
struct block_keys {
    key_range range;
    KGEN_DEVICE int end() const { return whole_granules(range.end); }
    KGEN_DEVICE int tiles() const { return (end() - range.first + STEP_KEYS - 1) / STEP_KEYS; }
    KGEN_DEVICE int first_key(int tile) const { return end() - (tile + 1) * STEP_KEYS; }
};

// Fetches K and V of all tiles, in the order of their use. Called by one warp.
KGEN_DEVICE void fetch(const parameters& given, assignment work, block_keys keys, uint32_t shared, barriers barrier) {
    const kgen_fwd_params& p = given.call;
    const int tiles = keys.tiles();
    ring_place<STAGES> place;
    const sequence_pages pages = pages_of(p, given.page_size, work.batch);
    const int tile_row = static_cast<int>(lane_index()) * GRANULE;
    // The page of the lane's granule of a tile, if the granule is in the split. Looked up two tiles ahead, so that the
    // latency of the page table is hidden behind waits for earlier tiles.
    const auto is_read = [&](int tile) {
        return tile_row < STEP_KEYS && keys.first_key(tile) + tile_row >= keys.range.first;
    };
    const auto page_of = [&](int tile) { return is_read(tile) ? pages.of_row(keys.first_key(tile) + tile_row) : 0; };
    int page = page_of(0), next_page = page_of(1);
    for (int tile = 0; tile < tiles; ++tile) {
        const uint32_t stage = shared + STAGES_OFFSET + place.stage * STAGE_BYTES;
        const uint32_t full = barrier.full(place.stage);
        mbarrier_wait(barrier.empty(place.stage), place.parity ^ 1);
        if (lane_index() == 0) mbarrier_arrive_expect_tx(full, STAGE_BYTES);
        warp_sync();  // the phase waits for the bytes before the first ones can arrive
        if (tile_row < STEP_KEYS) {
            // TMA reads zeros from the end of a page on.
            const int row = is_read(tile) ? pages.row_in_page(keys.first_key(tile) + tile_row)
                                          : static_cast<int>(pages.size.number);
            fetch_granule_panels<key_tile>(stage, given.k, full, tile_row, row, work.head_k, page);
            fetch_granule_panels<v_tile>(stage + key_tile::bytes, given.v, full, tile_row, row, work.head_k, page);
        }
        page = next_page;
        next_page = page_of(tile + 2);
        place.next();
    }
}

// Loads the block's rows of Q or QV into shared memory; rows from `rows` on are zeros. Called by all consumers. Eight
// adjacent threads copy 128 bytes of a row.
template <class Tile, bool PIECES>
KGEN_DEVICE void copy_rows(uint32_t tile, const uint16_t* from, int64_t row_stride, int64_t head_stride, int group,
                           int first_row, int rows) {
    constexpr int at_once = 128 * CONSUMERS / 8;
    const int thread = thread_index() - 128, column = thread % 8 * 8;
    KGEN_ROLLED
    for (int row = thread / 8; row < BLOCK_M; row += at_once) {
        const int packed = first_row + row;
        const uint16_t* source = from + packed / group * row_stride + packed % group * head_stride + column;
        KGEN_UNROLL
        for (int start = 0; start < Tile::columns; start += 64) {
            copy_piece<PIECES>(tile + chunk_offset<Tile>(row, start + column), source + start, packed < rows);
        }
    }
}

template <bool PIECES>
KGEN_DEVICE void copy_queries(uint32_t shared, const kgen_fwd_params& p, assignment work, sequence queries, int rows) {
    const int group = p.num_heads / p.num_heads_k, head = work.head_k * group;
    const uint16_t* q = static_cast<const uint16_t*>(p.q) +
                        sequence_offset(queries, work.batch, head, p.q_batch_stride, p.q_row_stride, p.q_head_stride);
    const uint16_t* qv = static_cast<const uint16_t*>(p.qv) +
                         sequence_offset(queries, work.batch, head, p.qv_batch_stride, p.qv_row_stride,
                                         p.qv_head_stride);
    copy_rows<query_tile, PIECES>(shared + Q_OFFSET, q, p.q_row_stride, p.q_head_stride, group, work.first_row, rows);
    copy_rows<query_v_tile, PIECES>(shared + QV_OFFSET, qv, p.qv_row_stride, p.qv_head_stride, group, work.first_row,
                                    rows);
}

// Named barriers 1 to 4 each join the two warps, one per consumer warpgroup, that hold the same 16 rows. All consumers
// synchronize at barrier 5, those of warpgroup w at barrier 6 + w.
KGEN_DEVICE void await_other_half() { barrier_wait(1 + static_cast<int>(warp_index() % 4), 64); }
constexpr int OF_CONSUMERS = 5, OF_WARPGROUP = 6;

// The lane's rows, `row` and `row` + 8 of the tile, and the addresses where each warpgroup leaves the maximum and a sum
// of `row` for the other one.
struct lane_rows {
    int row;
    uint32_t own, others;

    KGEN_DEVICE lane_rows(uint32_t shared,
                          int warpgroup) : row(static_cast<int>(warp_index() % 4 * 16 + lane_index() / 4)) {
        own = shared + STATE_OFFSET + (warpgroup * BLOCK_M + row) * 8;
        others = shared + STATE_OFFSET + ((1 - warpgroup) * BLOCK_M + row) * 8;
    }
};

// Passes two numbers per row to the other warpgroup, taken from the quad's first lane.
KGEN_DEVICE void show(const lane_rows& lane, const float (&first)[2], const float (&second)[2]) {
    if (lane_index() % 4 == 0) {
        store_shared_pair(lane.own, first[0], second[0]);
        store_shared_pair(lane.own + 64, first[1], second[1]);
    }
}

// If the scores of a row, over all keys of the step, have outgrown the maximum that exponentials are taken relative to,
// all rows of the warp take new maxima: this then returns true, and O must be multiplied by `factor`, as the sums have
// been. The two warps that share rows see the same maxima and sums (of the first lanes), so they decide alike.
KGEN_DEVICE bool raise_maximum(const scores& s, row_state& state, float (&factor)[2], const lane_rows& lane,
                               float log2_scale) {
    float seen[2];
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        float part[2];  // two independent maxima shorten the dependency chain
        KGEN_UNROLL
        for (int j = 0; j < BLOCK_N / 8; ++j) {
            const float pair = maximum(s[j][2 * h], s[j][2 * h + 1]);
            part[j % 2] = j < 2 ? pair : maximum(part[j % 2], pair);
        }
        seen[h] = maximum(part[0], part[1]);
        seen[h] = maximum(seen[h], shuffle_xor(seen[h], 1));
        seen[h] = maximum(seen[h], shuffle_xor(seen[h], 2));
    }
    show(lane, seen, state.sum);
    await_other_half();
    float sum[2];
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        float seen_there, sum_there;
        load_shared_pair(lane.others + h * 64, seen_there, sum_there);
        seen[h] = maximum(seen[h], seen_there);
        sum[h] = state.sum[h] + sum_there;
    }
    const bool decides = lane_index() % 4 == 0;
    if (!warp_any(decides && (seen[0] > state.max[0] + state.headroom || seen[1] > state.max[1] + state.headroom)))
        return false;
    // The tolerated growth rises with the sums, but the headroom is only updated here, when lanes compare their maxima.
    const float tolerated[2] = {tolerated_growth(sum[0]), tolerated_growth(sum[1])};
    state.headroom = minimum(tolerated[0], tolerated[1]) * reciprocal(log2_scale);
    const bool outgrown = warp_any(decides && (log2_scale * (seen[0] - state.max[0]) > tolerated[0] ||
                                               log2_scale * (seen[1] - state.max[1]) > tolerated[1]));
    if (outgrown) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            const float most = maximum(seen[h], state.max[h]);
            // Before the first visible key, O and the sum are 0; this avoids -infinity - -infinity.
            factor[h] = state.max[h] == -infinity() ? 0.0f : exp2_fast(log2_scale * (state.max[h] - most));
            state.max[h] = most;
            state.sum[h] *= factor[h];
        }
    }
    return outgrown;
}

// Writes a warpgroup's columns of O, and from one warpgroup LSE: final results to the caller's tensors, or partial ones
// to the workspace.
KGEN_DEVICE void write_rows(const output& o, const row_state& state, const parameters& given, assignment work,
                            sequence queries, int rows, const lane_rows& lane, int warpgroup, float log2_scale) {
    const kgen_fwd_params& p = given.call;
    const int group = p.num_heads / p.num_heads_k;
    const bool whole = writes_whole(p, split_count(p, work.batch));
    const bool writes_lse = warpgroup == 0 && lane_index() % 4 == 0;
    float sum[2] = {sum_of_row(state.sum[0]), sum_of_row(state.sum[1])};
    show(lane, state.max, sum);
    await_other_half();
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        float max_there, sum_there;
        load_shared_pair(lane.others + h * 64, max_there, sum_there);
        sum[h] += sum_there;
    }
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        const int row = lane.row + h * 8;
        const int packed = work.first_row + row;
        const bool valid = packed < rows;
        if (whole) {
            const int query = packed / group, head = work.head_k * group + packed % group;
            const closed_row closed = close_row(sum[h], state.max[h], log2_scale, read_sink(p, valid ? head : 0));
            if (writes_lse && valid && p.lse != nullptr) {
                const int64_t first = queries.packed ? queries.first_row : work.batch * p.lse_batch_stride;
                store_global(p.lse + first + head * p.lse_head_stride + query, closed.lse);
            }
            uint16_t* to = static_cast<uint16_t*>(p.o) + sequence_offset(queries, work.batch, head, p.o_batch_stride,
                                                                         p.o_row_stride, p.o_head_stride) +
                           query * p.o_row_stride + warpgroup * COLUMNS;
            uint32_t words[O_TILES];
            KGEN_UNROLL
            for (int j = 0; j < O_TILES; ++j)
                words[j] = pack<element>(o[j][2 * h] * closed.inverse, o[j][2 * h + 1] * closed.inverse);
            store_quad_row(to, words, valid, given.vector);
        } else {
            const int64_t partial = partial_row(p, work, queries, row);
            const float inverse = inverse_of_sum(sum[h]);
            if (writes_lse && valid) store_global(split_lse(p, partial), log_sum_exp(sum[h], state.max[h], log2_scale));
            float* to = split_output(p, partial) + warpgroup * COLUMNS;
            KGEN_UNROLL
            for (int j = 0; j < O_TILES; j += 2) {
                store_quad_floats(to + j * 8, o[j][2 * h] * inverse, o[j][2 * h + 1] * inverse,
                                  o[j + 1][2 * h] * inverse, o[j + 1][2 * h + 1] * inverse, valid);
            }
        }
    }
}

// Computes one work item on a consumer warpgroup.
KGEN_DEVICE void attend(const parameters& given, assignment work, sequence queries, sequence sequence_keys, int rows,
                        block_keys keys, int clear_end, int diagonal, uint32_t shared, barriers barrier,
                        int warpgroup) {
    const kgen_fwd_params& p = given.call;
    given.q_in_pieces ? copy_queries<true>(shared, p, work, queries, rows)
                      : copy_queries<false>(shared, p, work, queries, rows);
    cp_async_commit();
    cp_async_wait<0>();
    fence_proxy_async();
    barrier_wait(OF_CONSUMERS, 128 * CONSUMERS);  // the products read all rows
    const lane_rows lane(shared, warpgroup);
    // A scale of 0 is replaced by one too small to change any exponential, so that a masked key stays at -infinity.
    const float log2_scale = maximum(p.softmax_scale * LOG2_E, 1e-30f);
    int diagonals[2];  // keys that the lane's rows see
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        diagonals[h] = (work.first_row + lane.row + h * 8) / (p.num_heads / p.num_heads_k) + diagonal;
    }
    const uint32_t own_weights = shared + WEIGHTS_OFFSET + warpgroup * weights_tile::bytes;
    const uint32_t other_weights = shared + WEIGHTS_OFFSET + (1 - warpgroup) * weights_tile::bytes;
    // The first row of each half of a tile: the keys whose scores this warpgroup computes, and the other warpgroup's.
    const int own_keys = warpgroup * BLOCK_N, other_keys = (1 - warpgroup) * BLOCK_N;
    const lane_offsets lanes = lanes_by_row(warp_index() % 4 * 16);
    const int tiles = keys.tiles();

    ring_place<STAGES> place;
    row_state state = {{-infinity(), -infinity()}, {0.0f, 0.0f}};
    output o;
    clear(o);
    KGEN_ROLLED
    for (int tile = 0; tile < tiles; ++tile) {
        const int first_key = keys.first_key(tile);
        const uint32_t k = shared + STAGES_OFFSET + place.stage * STAGE_BYTES, v = k + key_tile::bytes;
        mbarrier_wait(barrier.full(place.stage), place.parity);
        // Rows of V that are not keys of the sequence must be zeros: 0 * NaN is NaN. Each warpgroup clears those among
        // the keys whose scores it computes; the other one waits for its weights before it multiplies by these rows.
        // Only the first tile ends after the last key.
        const int end = keys.range.end - first_key;
        if (end < own_keys + BLOCK_N) {
            clear_rows_between<v_tile>(v, max(own_keys, end), own_keys + BLOCK_N, thread_index() % 128, 128);
            fence_proxy_async();
            barrier_wait(OF_WARPGROUP + warpgroup, 128);
        }

        scores s;
        wgmma_fence();
        multiply_by_some_rows<element, query_tile, key_tile, BLOCK_N>(s, shared + Q_OFFSET, k, own_keys, false);
        multiply_by_some_rows<element, query_v_tile, v_tile, BLOCK_N>(s, shared + QV_OFFSET, v, own_keys, true);
        wgmma_commit();
        wgmma_wait<0>(s);
        if (first_key < keys.range.first || first_key + STEP_KEYS > clear_end) {
            const int first_column = first_key + own_keys;
            KGEN_UNROLL
            for (int h = 0; h < 2; ++h) {
                mask_row(s, h, {keys.range.first - first_column, min(keys.range.end, diagonals[h]) - first_column});
            }
        }
        float factor[2];
        if (raise_maximum(s, state, factor, lane, log2_scale)) rescale(o, factor);
        weights own;
        exponentiate(own, s, state, log2_scale);
        KGEN_UNROLL
        for (int step = 0; step < BLOCK_N / 16; ++step)
            stmatrix_x4(fragment_address<weights_tile>(own_weights, lanes, 0, step), own[step]);

        wgmma_fence();
        multiply_part_by_columns<element, columns_tile, BLOCK_N>(o, own, v + columns_tile::bytes * warpgroup, own_keys);
        wgmma_commit();
        await_other_half();  // the other warpgroup's weights are written, and its rows of V are cleared
        weights other;
        KGEN_UNROLL
        for (int step = 0; step < BLOCK_N / 16; ++step)
            ldmatrix_x4(other[step], fragment_address<weights_tile>(other_weights, lanes, 0, step));
        wgmma_fence();
        multiply_part_by_columns<element, columns_tile, BLOCK_N>(o, other, v + columns_tile::bytes * warpgroup,
                                                                 other_keys);
        wgmma_commit();
        wgmma_wait<0>(o);
        if (lane_index() == 0) mbarrier_arrive(barrier.empty(place.stage));
        place.next();
    }
    write_rows(o, state, given, work, queries, rows, lane, warpgroup, log2_scale);
    const auto meet = [] { barrier_wait(OF_CONSUMERS, 128 * CONSUMERS); };
    if (!merges_by_last_block(p)) return;
    const assignment ended = assigned_work(p);
    const int splits = split_count(p, ended.batch);
    if (writes_whole(p, splits)) return;
    if (ends_last(p, ended, splits, shared + STATE_OFFSET, thread_index() == 128, meet)) {
        merge_rows(p, ended, splits, static_cast<int>(warp_index()) - 4, 4 * CONSUMERS);
    }
}

KGEN_KERNEL(THREADS, 1) attention_split(KGEN_PARAMETER parameters given) {
    const kgen_fwd_params& p = given.call;
    const uint32_t shared = shared_base();
    const barriers barrier = {shared + BARRIERS_OFFSET};
    if (thread_index() == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier.full(stage), 1);
            mbarrier_init(barrier.empty(stage), 4 * CONSUMERS);
        }
        fence_mbarrier_init();
    }
    block_sync();
    let_later_kernels_start();  // as early as possible: the next one's blocks begin where this one's end
    await_earlier_kernels();    // from here on this kernel accesses memory that earlier kernels may have written
    const assignment work = assigned_work(p);
    const int splits = is_whole(p) ? 1 : split_count(p, work.batch);
    // one block has to write the tile's rows
    const bool merges_nothing = merges_by_last_block(p) && splits <= 0 && work.split == 0;
    if (work.split >= splits && !merges_nothing) return;
    const int group = p.num_heads / p.num_heads_k;
    const sequence queries = sequence_of(work.batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const sequence keys = sequence_of(work.batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k);
    const int rows = min(queries.rows, p.seqlen_q) * group;
    if (work.first_row >= rows || (p.most_queries > 0 && queries.rows > p.most_queries)) return;
    if (merges_nothing) {
        merge_rows(p, work, 0, warp_index(), THREADS / 32);
        return;
    }

    // Row r sees the keys below r / group + diagonal. The keys that the tile's last row sees are divided among the
    // splits.
    const int diagonal = keys.rows - queries.rows + 1;
    const int last_row = min(work.first_row + BLOCK_M, rows) - 1;
    const key_range range = split_keys(max(0, min(keys.rows, last_row / group + diagonal)), work.split, splits);
    const int clear_end = min(range.end, work.first_row / group + diagonal);  // every row sees the keys up to here
    if (range.first >= range.end && !writes_whole(p, splits)) {
        const int row = thread_index();
        if (row < BLOCK_M && work.first_row + row < rows)
            store_global(split_lse(p, partial_row(p, work, queries, row)), -infinity());
        if (merges_by_last_block(p) &&
            ends_last(p, work, splits, shared + STATE_OFFSET, thread_index() == 0, [] { block_sync(); })) {
            merge_rows(p, work, splits, warp_index(), THREADS / 32);
        }
        return;
    }

    const block_keys of_block = {range};
    const int warpgroup = static_cast<int>(warp_index() / 4);
    if (warpgroup == 0) {
        release_registers<56>();
        if (warp_index() == 0) fetch(given, work, of_block, shared, barrier);
    } else {
        claim_registers<224>();
        attend(given, work, queries, keys, rows, of_block, clear_end, diagonal, shared, barrier, warpgroup - 1);
    }
}

}  // namespace

extern "C" size_t flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90_workspace(const kgen_fwd_params* given) {
    constexpr const char* self = "flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90_workspace";
    kgen_fwd_params params;
    if (copy_fwd_params(given, self, params) || check_shapes(params, FEATURE_FLAGS, self) ||
        check_split_numbers(params, self))
        return 0;
    return split_workspace_bytes(params);
}

extern "C" int flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr fwd_identity self = {"flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90", HEAD_DIM, KGEN_DTYPE_BF16,
                                   KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_QV | KGEN_FEATURE_SINKS, {},
                                   HEAD_DIM_V};
    parameters params = {};
    kgen_fwd_params& p = params.call;
    if (const int code = check_fwd_params(given, self, p)) return code;
    if (const int code = check_split_numbers(p, self.name)) return code;
    const uint64_t rows = static_cast<uint64_t>(p.seqlen_q) * (p.num_heads / p.num_heads_k);
    const uint64_t blocks = product(tiles_of(rows, BLOCK_M), p.num_heads_k, p.batch, p.num_splits);
    if (blocks == 0) return KGEN_SUCCESS;
    if (const int code = check_blocks(self.name, blocks, p)) return code;
    if (rows > INT32_MAX - BLOCK_M) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: %llu rows of queries and heads that read one key head; the limit is %d", self.name,
                    static_cast<unsigned long long>(rows), INT32_MAX - BLOCK_M);
    }
    if (!is_whole(p)) {
        if (const int code = check_arrivals(p, BLOCK_M, self.name)) return code;
        if (const int code = check_split_workspace(p, self.name)) return code;
    }
    if (const int code = check_granules(p, self.name)) return code;
    params.page_size = make_divisor(p.page_size);
    if (p.seqlen_k > 0) {
        if (const int code = require_tile_maps(params.k, fwd_keys(p), self.name, "K")) return code;
        if (const int code = require_tile_maps(params.v, fwd_values(p), self.name, "V")) return code;
    }
    params.q_in_pieces =
        rows_are_aligned(p.q, p.cu_seqlens_q ? 0 : p.q_batch_stride, p.q_row_stride, p.q_head_stride) &&
        rows_are_aligned(p.qv, p.cu_seqlens_q ? 0 : p.qv_batch_stride, p.qv_row_stride, p.qv_head_stride);
    params.vector = rows_are_aligned(p.o, p.cu_seqlens_q ? 0 : p.o_batch_stride, p.o_row_stride, p.o_head_stride);
    return launch_early(attention_split, self.name, static_cast<uint32_t>(blocks), THREADS, SHARED_BYTES, params,
                        stream);
}
