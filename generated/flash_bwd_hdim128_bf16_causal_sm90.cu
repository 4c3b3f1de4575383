// flash_bwd_hdim128_bf16_causal_sm90
//
// Flash Attention, backward: dQ, dK and dV from dO, with S = Q K^T and P recomputed from the forward pass's LSE:
//   P = exp(scale S - LSE) below the mask,  dV = P^T dO,  dP = dO V^T,  dS = P (dP - delta),
//   dK = scale dS^T Q,  dQ = scale dS K
// where delta is the row sum of O dO, minus dLSE if LSE has a gradient. dK and dV of a key head are summed over the
// query heads that read it.
// Head dim 128, bf16, causal (aligned to the bottom right), compute capability 9.0.
//
// Three kernels, in sequence:
//   prepare    computes delta of every row, and zeroes the sums of dQ
//   gradients  one block takes 128 keys and iterates over the queries in tiles of 64
//   finish     converts dQ from fp32 sums to its own type
// With KGEN_FLAG_DETERMINISTIC the second omits dQ, whose parts arrive in no fixed order, and the last is replaced by
//   query_gradients  computes dQ on its own, one block per 64 queries
//
// A block of the second kernel has 2 consumer warpgroups (wgmma), of 64 keys each, and a producer warpgroup,
// of which one thread fetches (TMA): K and V once, Q and dO of each step into 3 stages each. One mbarrier
// signals that a stage is full, another that all warps have finished with it. S^T = K Q^T and dP^T = V dO^T leave P^T
// and dS^T in the registers from which dV += P^T dO and dK += dS^T Q take them.
// dS goes through shared memory to both warpgroups, which share dQ = dS K one step later, when neither waits for the
// other: each has a range of columns. Steps go from the last queries to the first.
//
// TMA fetches whole tiles. Rows behind the last of a sequence are zeros or, in a packed tensor or one with unused rows,
// those of others, which the consumers clear.
//
// Plan: 198800 bytes of shared memory; dK, dV, S and dP need about 224 of 240 registers.
// Made by kgen 0.1.0 from templates/attention/bwd_sm90.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Iinclude -c flash_bwd_hdim128_bf16_causal_sm90.cu

#include "kgen.h"
#include "kgen/blocks.cuh"
#include "kgen/bwd_params.cuh"
#include "kgen/bwd_tma.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/math.cuh"
#include "kgen/mbarrier.cuh"
#include "kgen/mma.cuh"
#include "kgen/platform.cuh"
#include "kgen/registers.cuh"
#include "kgen/shared.cuh"
#include "kgen/stmatrix.cuh"
#include "kgen/sync.cuh"
#include "kgen/tensor_map.cuh"
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
constexpr int BLOCK_N = 128;  // keys per block
constexpr int BLOCK_M = 64;  // queries per step, the rows of a product
constexpr int STAGES = 3;
constexpr int CONSUMERS = 2;  // warpgroups that multiply
constexpr int KEY_TILES = CONSUMERS;    // of K and of V, one per warpgroup
constexpr int TILE_KEYS = BLOCK_N / KEY_TILES;
constexpr int GRADIENT_THREADS = 128 * (1 + CONSUMERS);
constexpr int CONSUMER_THREADS = 128 * CONSUMERS;
constexpr int THREADS = 256;  // of the first and last kernel
constexpr int N_TILES = 1;    // 16-key tiles of a warp

using query_tile = shared_tile<BLOCK_M, HEAD_DIM_PADDED>;        // Q, dO
using key_tile = shared_tile<TILE_KEYS, HEAD_DIM_PADDED>;   // K, V of a warpgroup
using gradient_tile = shared_tile<BLOCK_M, TILE_KEYS>;      // dS of a warpgroup's keys

// A step takes its queries in parts of 64: dP, P and dS of one part at a time have registers.
constexpr int PARTS = BLOCK_M / 64;
constexpr int PART_BYTES = 64 * TILE_KEYS * 2;  // of a tile of dS

// dQ of a step is divided among the warpgroups: a part of the queries each, if there are two. Otherwise each has a
// range of columns: halves if they are alike, else the first panel and the others.
constexpr bool ALIKE = HEAD_DIM % 64 == 0;  // both warpgroups run the same code
constexpr int DQ_COLUMNS = PARTS == CONSUMERS ? HEAD_DIM : ALIKE ? HEAD_DIM / 2 : 64;  // of the first warpgroup

// Shared memory:
//   stages of Q at 0 (49152 bytes)
//   stages of dO at 49152 (49152 bytes)
//   K (then dK) at 98304 (32768 bytes)
//   V (then dV) at 131072 (32768 bytes)
//   two tiles of dS at 163840 (32768 bytes)
//   stages of shifts and deltas at 196608 (1536 bytes)
//   mbarriers at 198656 (144 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t DOUT_OFFSET = 49152;
constexpr uint32_t K_OFFSET = 98304;
constexpr uint32_t V_OFFSET = 131072;
constexpr uint32_t GRADIENTS_OFFSET = 163840;
constexpr uint32_t SHIFTS_OFFSET = 196608;
constexpr uint32_t BARRIERS_OFFSET = 198656;
constexpr uint32_t SHARED_BYTES = 198800;
constexpr uint32_t STAGE_BYTES = 16384;  // a stage of Q or of dO
constexpr uint32_t GRADIENT_BYTES = CONSUMERS * gradient_tile::bytes;
constexpr uint32_t ROW_BYTES = 2 * BLOCK_M * sizeof(float);  // shifts and deltas of a step

constexpr float LOG2_E = 1.44269504088896341f;

constexpr bwd_tiling TILING = {BLOCK_M, BLOCK_M * HEAD_DIM_PADDED};

using scores = float[N_TILES][BLOCK_M / 8][4];     // S^T of a warp's keys
using part_scores = float[8][4];                   // dP^T of a warp's keys and 64 queries
using weights = uint32_t[4][4];                    // P^T or dS^T of these, as A operands
using key_sums = float[N_TILES][HEAD_DIM / 8][4];  // dV or dK of a warp's keys

template <class Array>
KGEN_DEVICE void clear(Array& values) {
    float* all = reinterpret_cast<float*>(&values);
    KGEN_UNROLL
    for (int i = 0; i < static_cast<int>(sizeof(Array) / sizeof(float)); ++i) all[i] = 0.0f;
}

// Lane offsets are computed where they are used, from a lane index that is opaque to the compiler: otherwise it would
// keep all of them in registers throughout the loop, and there are none to spare.
KGEN_DEVICE uint32_t fresh_lane() { return opaque(lane_index()); }

// S += A B^T over STEPS 16-column steps of both, starting at `a_tile` and `b_tile`.
template <class A, class B, int STEPS, int TILES>
KGEN_DEVICE void multiply_steps(float (&s)[TILES][B::rows / 8][4], uint32_t a_tile, lane_offsets a_lanes,
                                uint32_t b_tile, lane_offsets b_lanes) {
    KGEN_UNROLL
    for (int step = 0; step < STEPS; ++step) {
        uint32_t a[TILES][4];
        KGEN_UNROLL
        for (int t = 0; t < TILES; ++t) ldmatrix_x4(a[t], fragment_address<A>(a_tile, a_lanes, t * 16, step));
        KGEN_UNROLL
        for (int j = 0; j < B::rows / 16; ++j) {
            uint32_t b[4];
            ldmatrix_x4(b, fragment_address<B>(b_tile, b_lanes, j * 16, step));
            KGEN_UNROLL
            for (int t = 0; t < TILES; ++t) {
                mma_m16n8k16<element>(s[t][2 * j], a[t], b[0], b[1]);
                mma_m16n8k16<element>(s[t][2 * j + 1], a[t], b[2], b[3]);
            }
        }
    }
}

// A B^T for TILES 16-row tiles of A from `row` on: S^T = K Q^T, dP^T = V dO^T.
template <class A, class B, int TILES>
KGEN_DEVICE void multiply(float (&s)[TILES][B::rows / 8][4], uint32_t a_tile, int row, uint32_t b_tile) {
    const lane_offsets a_lanes = lanes_by_row(row, fresh_lane());
    const lane_offsets b_lanes = lanes_by_chunk(fresh_lane());
    clear(s);
    // Panel by panel: if this were unrolled, ptxas would fetch operands so far ahead that the registers run out.
    KGEN_ROLLED
    for (int panel = 0; panel < HEAD_DIM_PADDED / 64; ++panel) {
        multiply_steps<A, B, 4>(s, a_tile, a_lanes, b_tile, b_lanes);
        a_tile += A::panel_offset(64);
        b_tile += B::panel_offset(64);
    }
}

// sums += W X, with W in registers: dV += P^T dO, dK += dS^T Q.
template <class X, int TILES>
KGEN_DEVICE void accumulate(float (&sums)[TILES][HEAD_DIM / 8][4], const uint32_t (&w)[TILES][X::rows / 16][4],
                            uint32_t x_tile) {
    const lane_offsets x_lanes = lanes_by_row(0, fresh_lane());
    KGEN_UNROLL
    for (int step = 0; step < X::rows / 16; ++step) {
        KGEN_UNROLL
        for (int j = 0; j < HEAD_DIM_PADDED / 16; ++j) {
            uint32_t b[4];
            ldmatrix_x4_transposed(b, fragment_address<X>(x_tile, x_lanes, step * 16, j));
            KGEN_UNROLL
            for (int t = 0; t < TILES; ++t) {
                mma_m16n8k16<element>(sums[t][2 * j], w[t][step], b[0], b[1]);
                if (2 * j + 1 < HEAD_DIM / 8) mma_m16n8k16<element>(sums[t][2 * j + 1], w[t][step], b[2], b[3]);
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

// The queries of a tile that see a warp's rows of S^T, which are keys. Columns are counted from the tile's first query.
struct view {
    int diagonal;  // the first query that sees the lane's first key; no query sees rows after the last key

    // The queries that see key r, counted from the lane's first.
    KGEN_DEVICE interval of_row(int r) const { return {diagonal + r, INT32_MAX}; }
};

KGEN_DEVICE void mask(scores& s, view seen) {
    KGEN_UNROLL
    for (int t = 0; t < N_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) mask_row(s[t], h, seen.of_row(t * 16 + h * 8));
    }
}

struct parameters {
    bwd_arguments call;
    tile_maps<query_tile> q, dout;
    tile_maps<key_tile> k, v;
    tensor_map rows;  // the shifts and deltas of the query tiles
    bool vector;      // dK and dV are written in 16-byte pieces
};

inline int make_maps(parameters& given, const char* name) {
    const bwd_arguments& p = given.call;
    if (const int code = require_totals(p, name)) return code;
    if (const int code = require_tile_maps(given.q, bwd_queries(p), name, "Q")) return code;
    if (const int code = require_tile_maps(given.k, bwd_keys(p), name, "K")) return code;
    if (const int code = require_tile_maps(given.v, bwd_values(p), name, "V")) return code;
    if (const int code = require_tile_maps(given.dout, bwd_output_gradients(p), name, "dO")) return code;
    return make_tensor_map(given.rows, bwd_row_statistics(p, BLOCK_M), name, "the shifts and deltas");
}

// The mbarriers. A full barrier counts the producer thread's arrivals, one per copy, and their bytes, or the warps that
// have written dS; an empty one counts the warps that have read the stage or the tile of dS.
struct barriers {
    uint32_t base;

    KGEN_DEVICE uint32_t q_full(uint32_t stage) const { return base + stage * 8; }
    KGEN_DEVICE uint32_t q_empty(uint32_t stage) const { return base + (STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t dout_full(uint32_t stage) const { return base + (2 * STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t dout_empty(uint32_t stage) const { return base + (3 * STAGES + stage) * 8; }
    KGEN_DEVICE uint32_t ds_full(uint32_t tile) const { return base + (4 * STAGES + tile) * 8; }
    KGEN_DEVICE uint32_t ds_empty(uint32_t tile) const { return base + (4 * STAGES + 2 + tile) * 8; }
    KGEN_DEVICE uint32_t keys() const { return base + (4 * STAGES + 4) * 8; }
    KGEN_DEVICE uint32_t values() const { return base + (4 * STAGES + 5) * 8; }
};

KGEN_DEVICE void init_barriers(barriers barrier) {
    for (int stage = 0; stage < STAGES; ++stage) {
        mbarrier_init(barrier.q_full(stage), 2);  // Q, and the shifts and deltas
        mbarrier_init(barrier.q_empty(stage), CONSUMER_THREADS / 32);
        mbarrier_init(barrier.dout_full(stage), 1);
        mbarrier_init(barrier.dout_empty(stage), CONSUMER_THREADS / 32);
    }
    for (int tile = 0; tile < 2; ++tile) {
        mbarrier_init(barrier.ds_full(tile), CONSUMER_THREADS / 32);
        mbarrier_init(barrier.ds_empty(tile), CONSUMER_THREADS / 32);
    }
    mbarrier_init(barrier.keys(), CONSUMERS);    // K of each warpgroup
    mbarrier_init(barrier.values(), CONSUMERS);  // V
    fence_mbarrier_init();
}

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

// The keys of a block: blocks are ordered by batch, key head, then key tile, the longest columns first.
struct assignment {
    int batch, head_k, first_key;
    sequence keys;
};

KGEN_DEVICE assignment assigned_keys(const bwd_arguments& p) {
    const uint32_t block = block_index();
    const uint32_t n_blocks = (p.seqlen_k + BLOCK_N - 1) / BLOCK_N;
    const int batch = block / n_blocks / p.num_heads_k;
    const int head_k = block / n_blocks % p.num_heads_k;
    const int first_key = block % n_blocks * BLOCK_N;
    return {batch, head_k, first_key, sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k)};
}

// Eight elements to device memory.
template <bool VECTOR>
KGEN_DEVICE void store_elements(uint16_t* to, words4 elements) {
    if constexpr (VECTOR) {
        store_global(static_cast<void*>(to), elements);
    } else {
        const uint32_t words[4] = {elements.x, elements.y, elements.z, elements.w};
        KGEN_UNROLL
        for (int i = 0; i < 8; ++i) store_global(to + i, static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
    }
}

// Stores a warp's 16 rows of a tile. Unlike store_warp_rows() it does not wait for a piece before it loads the next
// one: nothing else runs on the multiprocessor meanwhile.
template <class Tile, bool VECTOR, int START = 0>
KGEN_DEVICE void store_rows(uint16_t* to, int64_t row_stride, uint32_t tile, int first_row, int valid_rows) {
    if constexpr (START < Tile::columns) {
        constexpr int width = Tile::panel_columns(START), chunks = width / 8, pass_rows = 32 / chunks,
            passes = 16 / pass_rows;
        const int row = first_row + lane_index() / chunks, chunk = lane_index() % chunks, column = START + chunk * 8;
        words4 pieces[passes];
        KGEN_UNROLL
        for (int pass = 0; pass < passes; ++pass)
            pieces[pass] = load_shared(tile + Tile::panel_offset(START) +
                                       swizzled<width>(row + pass * pass_rows, chunk));
        KGEN_UNROLL
        for (int pass = 0; pass < passes; ++pass) {
            const int pass_row = row + pass * pass_rows;
            if (pass_row < valid_rows && (START + width <= HEAD_DIM || column < HEAD_DIM))
                store_elements<VECTOR>(to + pass_row * row_stride + column, pieces[pass]);
        }
        store_rows<Tile, VECTOR, START + width>(to, row_stride, tile, first_row, valid_rows);
    }
}

// Writes a warp's 16 rows of a gradient, starting at `row`, through its rows of a tile in 16-byte pieces.
template <class Tile, bool VECTOR>
KGEN_DEVICE void write_rows(const float (&sums)[1][HEAD_DIM / 8][4], float factor, uint32_t tile, int row, uint16_t* to,
                            int64_t row_stride, int valid_rows) {
    const lane_offsets lanes = lanes_by_row(row);
    KGEN_UNROLL
    for (int step = 0; step < HEAD_DIM_PADDED / 16; ++step) {
        uint32_t fragment[4];
        KGEN_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int j = 2 * step + i / 2, h = i % 2;
            fragment[i] = j < HEAD_DIM / 8 ? pack<element>(sums[0][j][2 * h] * factor, sums[0][j][2 * h + 1] * factor)
                                           : 0u;
        }
        stmatrix_x4(fragment_address<Tile>(tile, lanes, 0, step), fragment);
    }
    warp_sync();
    store_rows<Tile, VECTOR>(to, row_stride, tile, row, valid_rows);
}

// Writes dK or dV of a warp's keys through a tile; `first` is the first key of the warpgroup.
KGEN_DEVICE void write_key_gradient(const float (&sums)[1][HEAD_DIM / 8][4], float factor, const assignment& work,
                                    int first, bool vector, uint32_t tile, void* gradient, int64_t batch_stride,
                                    int64_t row_stride, int64_t head_stride) {
    uint16_t* to = static_cast<uint16_t*>(gradient) +
                   sequence_offset(work.keys, work.batch, work.head_k, batch_stride, row_stride, head_stride);
    to += first * row_stride;
    const int warp_key = warp_index() % 4 * 16, rows = work.keys.rows - first;
    if (vector) {
        write_rows<key_tile, true>(sums, factor, tile, warp_key, to, row_stride, rows);
    } else {
        write_rows<key_tile, false>(sums, factor, tile, warp_key, to, row_stride, rows);
    }
}

// What a block does: its keys, and the tiles of queries that see them.
struct block_work {
    assignment keys;
    sequence queries;
    int first_tile, end_query;
    int first_seeing;  // the first query, possibly below 0, that sees the block's first key

    KGEN_DEVICE int key_rows() const { return keys.keys.rows - keys.first_key; }
    KGEN_DEVICE bool has_queries() const { return first_tile * BLOCK_M < end_query; }
    KGEN_DEVICE int last_tile() const { return (end_query + BLOCK_M - 1) / BLOCK_M - 1; }
};

KGEN_DEVICE block_work work_of_block(const bwd_arguments& p) {
    const assignment work = assigned_keys(p);
    const sequence queries = sequence_of(work.batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const int key_rows = work.keys.rows - work.first_key;

    // The queries to iterate over: from tile `first_tile` to the last, for each query head of the group.
    const int end_query = queries.rows;
    // the first query, possibly below 0, that sees the block's first key
    const int first_seeing = queries.rows - key_rows;
    const int first_tile = max(0, first_seeing) / BLOCK_M;
    return {work, queries, first_tile, end_query, first_seeing};
}

// Prefetches the tensor maps, ahead of the first copies.
KGEN_DEVICE void prefetch_maps(const parameters& given) {
    if (given.call.seqlen_q == 0) return;  // there are none
    prefetch_tile_maps(given.k);
    prefetch_tile_maps(given.q);
    prefetch_tile_maps(given.v);
    prefetch_tile_maps(given.dout);
    tma_prefetch_map(given.rows);
}

// The producer thread: fetches K of the block, the first Q, V, then dO and Q of each step: the block's first product
// takes K and Q.
KGEN_DEVICE void fetch(const parameters& given, const block_work& work, uint32_t shared, barriers barrier) {
    const bwd_arguments& p = given.call;
    const auto [batch, head_k, first_key, keys] = work.keys;
    const int k_batch = keys.packed ? 0 : batch, k_row = keys.first_row + first_key;
    KGEN_UNROLL
    for (int t = 0; t < KEY_TILES; ++t) {
        fetch_tile(shared + K_OFFSET + t * key_tile::bytes, given.k, barrier.keys(), k_row + t * TILE_KEYS, head_k,
                   k_batch);
    }
    bool lacks_values = true;
    const int group = p.num_heads / p.num_heads_k;
    const int q_batch = work.queries.packed ? 0 : batch;
    ring_place<STAGES> place;
    for (int head = head_k * group; head < (head_k + 1) * group; ++head) {
        const int head_place = first_tile_of<BLOCK_M>(p, work.queries, batch, head);
        // The last tile first: blocks of a head that run at the same time then begin with the same queries under a
        // causal mask too, read them and add to their sums together, and L2 has less to do.
        for (int tile = work.last_tile(); tile >= work.first_tile; --tile, place.next()) {
            const int row = work.queries.first_row + tile * BLOCK_M;
            mbarrier_wait(barrier.q_empty(place.stage), place.parity ^ 1);
            fetch_tile(shared + Q_OFFSET + place.stage * STAGE_BYTES, given.q, barrier.q_full(place.stage), row, head,
                       q_batch);
            mbarrier_arrive_expect_tx(barrier.q_full(place.stage), ROW_BYTES);
            tma_load(shared + SHIFTS_OFFSET + place.stage * ROW_BYTES, given.rows, barrier.q_full(place.stage), 0,
                     head_place + tile);
            if (lacks_values) {
                lacks_values = false;
                KGEN_UNROLL
                for (int t = 0; t < KEY_TILES; ++t) {
                    fetch_tile(shared + V_OFFSET + t * key_tile::bytes, given.v, barrier.values(),
                               k_row + t * TILE_KEYS, head_k, k_batch);
                }
            }
            mbarrier_wait(barrier.dout_empty(place.stage), place.parity ^ 1);
            fetch_tile(shared + DOUT_OFFSET + place.stage * STAGE_BYTES, given.dout, barrier.dout_full(place.stage),
                       row, head, q_batch);
        }
    }
}

// The shifts or deltas of the lane's two of eight queries, the j-th of those whose values begin at `from`.
KGEN_DEVICE void load_row_values(float (&values)[2], uint32_t from, int j, int lane) {
    load_shared_pair(from + (j * 8 + lane % 4 * 2) * 4, values[0], values[1]);
}

// P^T = exp2(log2_scale S^T + shift), with one shift per query, of eight queries, the j-th of the tile, in place of S^T
// and as A operands: the accumulator layout of S is the A-operand layout of P.
KGEN_DEVICE void take_exponentials(scores& s, weights& w, int j, float log2_scale, const float (&shift)[2]) {
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        float &low = s[0][j][2 * h], &high = s[0][j][2 * h + 1];
        low = exp2_fast(fused_multiply_add(low, log2_scale, shift[0]));
        high = exp2_fast(fused_multiply_add(high, log2_scale, shift[1]));
        w[j % 8 / 2][j % 2 * 2 + h] = pack<element>(low, high);
    }
}

// dS^T = P^T (dP^T - delta), with one delta per query, of eight queries, the j-th of 64.
KGEN_DEVICE void score_gradients_of(weights& ds, int j, const float (&p)[4], const float (&dp)[4],
                                    const float (&delta)[2]) {
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h)
        ds[j / 2][j % 2 * 2 + h] = pack<element>(p[2 * h] * (dp[2 * h] - delta[0]),
                                                 p[2 * h + 1] * (dp[2 * h + 1] - delta[1]));
}

// Writes dS of 64 queries and a warp's 16 keys, starting at column `warp_key` of the tile.
KGEN_DEVICE void store_gradients(const weights& ds, uint32_t tile, int warp_key, int lane) {
    const uint32_t row = lane % 8 + lane / 16 * 8, chunk = warp_key / 8 + lane / 8 % 2;
    const uint32_t to = tile + swizzled<TILE_KEYS>(row, chunk);
    KGEN_UNROLL
    for (int step = 0; step < 4; ++step) stmatrix_x4_transposed(to + step * (16 * TILE_KEYS * 2), ds[step]);
}

// Sums of dQ are stored in the order in which threads hold them, so that every addition of a warp is four full lines:
// for each 64 queries and 8 columns, four floats per thread of a warpgroup. The thread's first of those of 64 queries:
constexpr int PART_FLOATS = 64 * HEAD_DIM_PADDED;
template <class Float>
KGEN_DEVICE Float* first_sum_of(Float* tile, int column_block, int thread) {
    return tile + (column_block * 128 + thread) * 4;
}

using query_sums = float[DQ_COLUMNS / 8][4];

// Starts dQ = dS K of the warpgroup's queries and columns. WARPGROUP is the warpgroup's number, or 0 if both have the
// same code.
template <int WARPGROUP>
KGEN_DEVICE void multiply_gradients(query_sums& dq, uint32_t gradients, uint32_t k, int warpgroup) {
    constexpr int columns = WARPGROUP == 0 ? DQ_COLUMNS : HEAD_DIM - DQ_COLUMNS;
    if (ALIKE) k += warpgroup * key_tile::panel_offset(DQ_COLUMNS);
    wgmma_fence();
    KGEN_UNROLL
    for (int w = 0; w < CONSUMERS; ++w)
        multiply_panel_by_columns<element, key_tile, WARPGROUP * DQ_COLUMNS, columns>(
            dq, gradients + w * gradient_tile::bytes, k + w * key_tile::bytes, w > 0);
    wgmma_commit();
}

// Adds them to the sums of the step's queries; `thread` of the warpgroup.
template <int WARPGROUP>
KGEN_DEVICE void add_query_gradients(float* tile, const query_sums& dq, int warpgroup, int thread) {
    float* sums = first_sum_of(tile, warpgroup * (DQ_COLUMNS / 8), thread);
    constexpr int columns = WARPGROUP == 0 ? DQ_COLUMNS : HEAD_DIM - DQ_COLUMNS;
    KGEN_UNROLL
    for (int j = 0; j < DQ_COLUMNS / 8; ++j) {
        if (j * 8 < columns) add_global(sums + j * 512, floats4{dq[j][0], dq[j][1], dq[j][2], dq[j][3]});
    }
}

// A consumer warpgroup: dK and dV of its 64 keys, and its share of dQ of each step.
template <bool SUMS_DQ, int WARPGROUP>
KGEN_DEVICE void multiply_steps(const parameters& given, const block_work& work, uint32_t shared, barriers barrier,
                                int warpgroup) {
    const bwd_arguments& p = given.call;
    const uint32_t k_tiles = shared + K_OFFSET, k = k_tiles + warpgroup * key_tile::bytes,
        v = shared + V_OFFSET + warpgroup * key_tile::bytes;
    const int warp_key = warp_index() % 4 * 16;  // of the warpgroup's keys
    // Of the warpgroup. Through a shuffle: ptxas would read the thread index anew in each step, behind all loads from
    // shared memory, which takes up to 1.2 times the time.
    const int thread = static_cast<int>(shuffle(thread_index() % 128, static_cast<int>(lane_index()))),
        lane = thread % 32;
    const auto lane_key = [&] {
        return warpgroup * TILE_KEYS + static_cast<int>(warp_index() % 4 * 16 + lane_index() / 4);
    };
    // What lies behind a sequence may be NaN, which no weight of zero removes.
    const auto clear_behind = [&](uint32_t tile, int rows) {
        clear_rows_from<query_tile>(tile, rows, warpgroup * 128 + thread, CONSUMER_THREADS);
        fence_proxy_async();
        barrier_wait(1, CONSUMER_THREADS);
    };
    const auto release = [&](uint32_t empty) {
        if (lane == 0) mbarrier_arrive(empty);
    };

    // The first step multiplies the second tile of dS as if it were that of a step before; nothing is added.
    if (SUMS_DQ && work.has_queries()) {
        clear_rows_from<gradient_tile>(shared + GRADIENTS_OFFSET + GRADIENT_BYTES + warpgroup * gradient_tile::bytes, 0,
                                       thread, 128);
        fence_proxy_async();
        barrier_wait(1, CONSUMER_THREADS);
    }
    key_sums dk, dv;
    clear(dk[0]);
    clear(dv[0]);
    if (work.has_queries()) {
        mbarrier_wait(barrier.keys(), 0);
        const int own_rows = max(0, work.key_rows() - warpgroup * TILE_KEYS);
        if (own_rows < TILE_KEYS) {
            clear_rows_from<key_tile>(k, own_rows, thread, 128);
            mbarrier_wait(barrier.values(), 0);
            clear_rows_from<key_tile>(v, own_rows, thread, 128);
            fence_proxy_async();
        }
        if (work.key_rows() < BLOCK_N) barrier_wait(1, CONSUMER_THREADS);
    }

    const int group = p.num_heads / p.num_heads_k;
    int heads_left = work.has_queries() ? group : 0;
    const int last_tile = work.last_tile();
    int tile = last_tile;
    // tile 0 of the head, in the workspace
    int head_place = first_tile_of<BLOCK_M>(p, work.queries, work.keys.batch, work.keys.head_k * group);
    ring_place<STAGES> place;
    ring_place<2> ds_place;  // of the tile of dS of this step
    int last_place = -1;     // of the queries of the previous step, in the workspace
    scores s;
    float shift[8][2];  // of the first part's queries
    // Waits for the queries of a step.
    const auto await_queries = [&] {
        mbarrier_wait(barrier.q_full(place.stage), place.parity);
        const int rows = work.queries.rows - tile * BLOCK_M;
        if (rows < BLOCK_M) clear_behind(shared + Q_OFFSET + place.stage * STAGE_BYTES, rows);
    };
    // Shifts or deltas of 64 queries.
    const auto load_values = [&](float (&values)[8][2], uint32_t from) {
        KGEN_UNROLL
        for (int j = 0; j < 8; ++j) load_row_values(values[j], from, j, lane);
    };
    // Starts S^T of the queries in a stage, and loads the first shifts meanwhile.
    const auto start_scores = [&](uint32_t stage) {
        wgmma_fence();
        multiply_by_rows<element, key_tile, query_tile, HEAD_DIM_PADDED>(s[0], k,
                                                                         shared + Q_OFFSET + stage * STAGE_BYTES);
        wgmma_commit();
        load_values(shift, shared + SHIFTS_OFFSET + stage * ROW_BYTES);
    };
    if (heads_left > 0) {
        await_queries();
        start_scores(place.stage);
        wgmma_wait<0>(s[0]);
        mbarrier_wait(barrier.values(), 0);  // V comes after the first Q
    }
    while (heads_left > 0) {
        const uint32_t stage = place.stage;
        const uint32_t q = shared + Q_OFFSET + stage * STAGE_BYTES, dout = shared + DOUT_OFFSET + stage * STAGE_BYTES;
        const uint32_t shifts = shared + SHIFTS_OFFSET + stage * ROW_BYTES, deltas = shifts + BLOCK_M * 4;
        const int first_query = tile * BLOCK_M, this_place = head_place + tile;
        mbarrier_wait(barrier.dout_full(stage), place.parity);
        if (work.queries.rows - first_query < BLOCK_M) clear_behind(dout, work.queries.rows - first_query);
        part_scores dp;
        wgmma_fence();
        multiply_by_rows<element, key_tile, query_tile, HEAD_DIM_PADDED>(dp, v, dout);
        wgmma_commit();

        // the first query of the tile that sees the block's first key
        const int diagonal = work.first_seeing - first_query;
        if (diagonal > 1 - BLOCK_N) mask(s, {diagonal + lane_key()});
        KGEN_UNROLL
        for (int part = 0; part < PARTS; ++part) {
            float delta[8][2];
            weights w, ds;
            KGEN_UNROLL
            for (int j = part * 8; j < part * 8 + 8; ++j) {
                take_exponentials(s, w, j, p.log2_scale, shift[j % 8]);
            }
            wgmma_fence();
            multiply_part_by_columns<element, query_tile, 64, HEAD_DIM>(dv[0], w, dout, part * 64);
            wgmma_commit();
            load_values(delta, deltas);
            wgmma_wait<1>(dp);
            KGEN_UNROLL
            for (int j = 0; j < 8; ++j) {
                score_gradients_of(ds, j, s[0][part * 8 + j], dp[j], delta[j]);
            }
            if constexpr (SUMS_DQ) {
                // The tile has been read for dQ two steps ago; the second one once more, before the first step. dS is
                // stored before dK starts, and published after that: the stores end meanwhile.
                if (part == 0) mbarrier_wait(barrier.ds_empty(ds_place.stage), ds_place.parity ^ 1 ^ ds_place.stage);
                store_gradients(ds, shared + GRADIENTS_OFFSET + ds_place.stage * GRADIENT_BYTES +
                                    warpgroup * gradient_tile::bytes + part * PART_BYTES, warp_key, lane);
            }
            wgmma_fence();
            multiply_part_by_columns<element, query_tile, 64, HEAD_DIM>(dk[0], ds, q, part * 64);
            wgmma_commit();
        }

        place.next();
        if (--tile < work.first_tile) {
            tile = last_tile;
            head_place += p.query_tiles;
            --heads_left;
        }
        query_sums dq;
        if constexpr (SUMS_DQ) {
            const uint32_t last_ds = ds_place.stage ^ 1;
            fence_proxy_async();
            warp_sync();
            release(barrier.ds_full(ds_place.stage));
            // dQ of the previous step, whose dS the other warpgroup has long written: neither waits for the other.
            mbarrier_wait(barrier.ds_full(last_ds), ds_place.parity ^ last_ds);
            multiply_gradients<WARPGROUP>(dq, shared + GRADIENTS_OFFSET + last_ds * GRADIENT_BYTES, k_tiles, warpgroup);
            wgmma_wait<1>(dk[0]);
            hold(dv[0]);
            release(barrier.dout_empty(stage));
        }
        if (heads_left > 0) await_queries();
        // After the last step those of any queries, unused: products under a condition would be serialised.
        start_scores(heads_left > 0 ? place.stage : stage);
        if constexpr (SUMS_DQ) {
            wgmma_wait<1>(dq);
            release(barrier.ds_empty(ds_place.stage ^ 1));
            if (last_place >= 0)
                add_query_gradients<WARPGROUP>(p.dq_sums + static_cast<int64_t>(last_place) * TILING.dq_floats, dq,
                                               warpgroup, thread);
            last_place = this_place;
            ds_place.next();
        } else {
            wgmma_wait<1>(dk[0]);
            hold(dv[0]);
            release(barrier.dout_empty(stage));
            warp_sync();  // all lanes have read the shifts and deltas
        }
        wgmma_wait<0>(s[0]);
        release(barrier.q_empty(stage));
    }

    const int first = work.keys.first_key + warpgroup * TILE_KEYS;
    const auto write_dv = [&] {
        write_key_gradient(dv, 1.0f, work.keys, first, given.vector, v, p.dv, p.dv_batch_stride, p.dv_row_stride,
                           p.dv_head_stride);
    };
    if (SUMS_DQ && last_place >= 0) {
        query_sums dq;
        mbarrier_wait(barrier.ds_full(ds_place.stage ^ 1), ds_place.parity ^ ds_place.stage ^ 1);
        multiply_gradients<WARPGROUP>(dq, shared + GRADIENTS_OFFSET + (ds_place.stage ^ 1) * GRADIENT_BYTES, k_tiles,
                                      warpgroup);
        write_dv();  // while the product runs
        wgmma_wait<0>(dq);
        add_query_gradients<WARPGROUP>(p.dq_sums + static_cast<int64_t>(last_place) * TILING.dq_floats, dq, warpgroup,
                                       thread);
    } else {
        barrier_wait(1, CONSUMER_THREADS);  // no warp still reads V; otherwise it has been read for the last dS
        write_dv();
    }
    warp_sync();
    // Through the tile of V too: the other warpgroup may still read K.
    write_key_gradient(dk, p.softmax_scale, work.keys, first, given.vector, v, p.dk, p.dk_batch_stride, p.dk_row_stride,
                       p.dk_head_stride);
}

KGEN_KERNEL(GRADIENT_THREADS, 1) gradients(KGEN_PARAMETER parameters given) {
    const uint32_t shared = shared_base();
    const barriers barrier = {shared + BARRIERS_OFFSET};
    if (thread_index() == 0) init_barriers(barrier);
    if (thread_index() == 32) prefetch_maps(given);
    const block_work work = work_of_block(given.call);
    if (work.key_rows() <= 0) return;
    block_sync();
    const int warpgroup = static_cast<int>(warp_index() / 4);
    if (warpgroup == 0) {
        release_registers<24>();
        if (thread_index() == 0 && work.has_queries()) fetch(given, work, shared, barrier);
    } else {
        claim_registers<240>();
        if (given.call.dq_sums == nullptr) {
            multiply_steps<false, 0>(given, work, shared, barrier, warpgroup - 1);
        } else if (ALIKE || warpgroup == 1) {
            multiply_steps<true, 0>(given, work, shared, barrier, warpgroup - 1);
        } else if constexpr (!ALIKE) {
            multiply_steps<true, 1>(given, work, shared, barrier, warpgroup - 1);
        }
    }
}

// The queries of a block in the other kernels: blocks are ordered by batch, head, then tile of ROWS queries.
struct query_assignment {
    int batch, head, tile;
    sequence queries;
};

template <int ROWS>
KGEN_DEVICE query_assignment assigned_queries(const bwd_arguments& p) {
    const uint32_t block = block_index();
    const uint32_t m_blocks = (p.seqlen_q + ROWS - 1) / ROWS;
    const int batch = block / m_blocks / p.num_heads;
    return {batch, static_cast<int>(block / m_blocks % p.num_heads), static_cast<int>(block % m_blocks),
            sequence_of(batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q)};
}

// Eight elements from device memory.
template <bool VECTOR>
KGEN_DEVICE words4 load_elements(const uint16_t* from) {
    if constexpr (VECTOR) {
        return load_global(reinterpret_cast<const words4*>(from));
    } else {
        uint32_t words[4];
        KGEN_UNROLL
        for (int i = 0; i < 4; ++i) {
            const uint32_t low = load_global(from + 2 * i);
            const uint32_t high = load_global(from + 2 * i + 1);
            words[i] = low | high << 16;
        }
        return {words[0], words[1], words[2], words[3]};
    }
}

// For the rows of one query tile: the shift added to S before exp2, which is -LSE in powers of two, and delta = sum of
// O dO - dLSE. Rows out of range, and rows that see no key, get a shift that makes P zero. Also zeroes the sums of dQ.
template <bool VECTOR>
KGEN_KERNEL(THREADS, 1) prepare(KGEN_PARAMETER bwd_arguments p) {
    const auto [batch, head, tile, queries] = assigned_queries<BLOCK_M>(p);
    if (tile * BLOCK_M >= queries.rows) return;
    const size_t place = first_tile_of<BLOCK_M>(p, queries, batch, head) + tile;

    if (p.dq_sums != nullptr) {
        float* sums = p.dq_sums + place * TILING.dq_floats;
        KGEN_UNROLL
        for (int i = 0; i < static_cast<int>(TILING.dq_floats / THREADS / 4); ++i) {
            store_global(static_cast<void*>(sums + (i * THREADS + thread_index()) * 4), words4{0, 0, 0, 0});
        }
    }

    constexpr int ROW_CHUNKS = HEAD_DIM / 8;
    // lanes that share a row
    constexpr int ROW_LANES = ROW_CHUNKS > 16 ? 32 : ROW_CHUNKS > 8 ? 16 : ROW_CHUNKS > 4 ? 8 : 4;
    const int chunk = thread_index() % ROW_LANES;
    const uint16_t* o = static_cast<const uint16_t*>(p.o) +
                        sequence_offset(queries, batch, head, p.o_batch_stride, p.o_row_stride, p.o_head_stride);
    const uint16_t* dout =
        static_cast<const uint16_t*>(p.dout) +
        sequence_offset(queries, batch, head, p.dout_batch_stride, p.dout_row_stride, p.dout_head_stride);
    const float* lse = p.lse + (queries.packed ? queries.first_row : batch * p.lse_batch_stride) +
                       head * p.lse_head_stride;
    float* shifts = p.row_shifts + place * (2 * BLOCK_M);
    constexpr int PASS_ROWS = THREADS / ROW_LANES;
    constexpr int PASSES = (BLOCK_M + PASS_ROWS - 1) / PASS_ROWS;
    constexpr int AT_ONCE = PASSES < 4 ? PASSES : 4;  // whose loads run together
    for (int first = 0; first < BLOCK_M; first += AT_ONCE * PASS_ROWS) {
        words4 of_o[AT_ONCE], of_dout[AT_ONCE];
        KGEN_UNROLL
        for (int pass = 0; pass < AT_ONCE; ++pass) {
            const int row_in_tile = first + pass * PASS_ROWS + thread_index() / ROW_LANES,
                row = tile * BLOCK_M + row_in_tile;
            of_o[pass] = of_dout[pass] = words4{0, 0, 0, 0};
            if (row_in_tile < BLOCK_M && row < queries.rows && chunk < ROW_CHUNKS) {
                of_o[pass] = load_elements<VECTOR>(o + row * p.o_row_stride + chunk * 8);
                of_dout[pass] = load_elements<VECTOR>(dout + row * p.dout_row_stride + chunk * 8);
            }
        }
        KGEN_UNROLL
        for (int pass = 0; pass < AT_ONCE; ++pass) {
            const int row_in_tile = first + pass * PASS_ROWS + thread_index() / ROW_LANES,
                row = tile * BLOCK_M + row_in_tile;
            const uint32_t left[4] = {of_o[pass].x, of_o[pass].y, of_o[pass].z, of_o[pass].w};
            const uint32_t right[4] = {of_dout[pass].x, of_dout[pass].y, of_dout[pass].z, of_dout[pass].w};
            float delta = 0.0f;
            KGEN_UNROLL
            for (int i = 0; i < 4; ++i) {
                float a_low, a_high, b_low, b_high;
                unpack<element>(left[i], a_low, a_high);
                unpack<element>(right[i], b_low, b_high);
                delta = fused_multiply_add(a_low, b_low, fused_multiply_add(a_high, b_high, delta));
            }
            KGEN_UNROLL
            for (int lanes = 1; lanes < ROW_LANES; lanes *= 2) delta += shuffle_xor(delta, lanes);
            if (row_in_tile < BLOCK_M && chunk == 0) {
                const float row_lse = row < queries.rows ? load_global(lse + row) : -infinity();
                store_global(shifts + row_in_tile, row_lse == -infinity() ? -infinity() : -LOG2_E * row_lse);
                // (dLSE of a row that sees no key may be anything: merging by LSE gives 0/0 there.)
                if (p.dlse != nullptr && row_lse != -infinity()) {
                    const int64_t first_row = queries.packed ? queries.first_row : batch * p.dlse_batch_stride;
                    delta -= load_global(p.dlse + first_row + head * p.dlse_head_stride + row);
                }
                store_global(shifts + BLOCK_M + row_in_tile, delta);
            }
        }
    }
}

// Rounds one tile of dQ and writes it through shared memory in 16-byte pieces.
template <bool VECTOR>
KGEN_KERNEL(THREADS, 1) finish(KGEN_PARAMETER bwd_arguments p) {
    const auto [batch, head, tile, queries] = assigned_queries<BLOCK_M>(p);
    if (tile * BLOCK_M >= queries.rows) return;
    const float* sums = p.dq_sums + (first_tile_of<BLOCK_M>(p, queries, batch, head) + tile) * TILING.dq_floats;
    const uint32_t shared = shared_base();
    constexpr int row_groups = BLOCK_M / 16, column_step = THREADS / 32 / row_groups;
    constexpr int column_blocks = (HEAD_DIM / 8 + column_step - 1) / column_step;  // of a warp
    const int warp = warp_index(), group = warp % row_groups;
    const int row = group * 16 + lane_index() / 4;
    const auto column_block = [&](int i) { return i * column_step + warp / row_groups; };
    const auto has_column = [&](int i) { return HEAD_DIM / 8 % column_step == 0 || column_block(i) < HEAD_DIM / 8; };
    floats4 x[column_blocks];  // all loads run at once
    KGEN_UNROLL
    for (int i = 0; i < column_blocks; ++i) {
        const float* at = first_sum_of(sums + group / 4 * PART_FLOATS, column_block(i), group % 4 * 32 + lane_index());
        if (has_column(i)) x[i] = load_global(reinterpret_cast<const floats4*>(at));
    }
    KGEN_UNROLL
    for (int i = 0; i < column_blocks; ++i) {
        if (!has_column(i)) continue;
        const uint32_t to = shared + chunk_offset<query_tile>(row, column_block(i) * 8) + lane_index() % 4 * 4;
        const uint32_t to_next = shared + chunk_offset<query_tile>(row + 8, column_block(i) * 8) + lane_index() % 4 * 4;
        store_shared(to, pack<element>(x[i].x * p.softmax_scale, x[i].y * p.softmax_scale));
        store_shared(to_next, pack<element>(x[i].z * p.softmax_scale, x[i].w * p.softmax_scale));
    }
    block_sync();
    uint16_t* dq = static_cast<uint16_t*>(p.dq) + tile * BLOCK_M * p.dq_row_stride +
                   sequence_offset(queries, batch, head, p.dq_batch_stride, p.dq_row_stride, p.dq_head_stride);
    if (warp < BLOCK_M / 16)
        store_warp_rows<query_tile, HEAD_DIM, 16, VECTOR>(dq, p.dq_row_stride, shared, warp * 16,
                                                          queries.rows - tile * BLOCK_M);
}

// The deterministic dQ: a block of 4 warps takes 64 queries of one head and iterates over the keys in tiles of
// 64, like the forward pass, recomputing P and dS. Each warp owns 16 queries, and no other thread adds to them.
constexpr int DQ_M = 64;
constexpr int DQ_N = 64;
constexpr int DQ_THREADS = DQ_M / 16 * 32;
using dq_query_tile = shared_tile<DQ_M, HEAD_DIM_PADDED>;
using dq_key_tile = shared_tile<DQ_N, HEAD_DIM_PADDED>;
constexpr uint32_t DQ_SHARED_BYTES = 2 * dq_query_tile::bytes + 2 * dq_key_tile::bytes;  // Q, dO, K, V

template <bool VECTOR>
KGEN_KERNEL(DQ_THREADS, 1) query_gradients(KGEN_PARAMETER bwd_arguments p) {
    const auto [batch, head, tile, queries] = assigned_queries<DQ_M>(p);
    const int first_query = tile * DQ_M;
    if (first_query >= queries.rows) return;
    const int head_k = head / (p.num_heads / p.num_heads_k);
    const sequence keys = sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k);
    constexpr int begin_key = 0;
    const int diagonal = first_query + keys.rows - queries.rows + 1;  // keys that the block's first query sees
    const int end_key = max(0, min(keys.rows, diagonal + DQ_M - 1));

    const uint32_t q_tile = shared_base();
    const uint32_t dout_tile = q_tile + dq_query_tile::bytes;
    const uint32_t k_tile = dout_tile + dq_query_tile::bytes;
    const uint32_t v_tile = k_tile + dq_key_tile::bytes;
    const uint16_t* q = static_cast<const uint16_t*>(p.q) +
                        sequence_offset(queries, batch, head, p.q_batch_stride, p.q_row_stride, p.q_head_stride);
    const uint16_t* dout =
        static_cast<const uint16_t*>(p.dout) +
        sequence_offset(queries, batch, head, p.dout_batch_stride, p.dout_row_stride, p.dout_head_stride);
    const uint16_t* k = static_cast<const uint16_t*>(p.k) +
                        sequence_offset(keys, batch, head_k, p.k_batch_stride, p.k_row_stride, p.k_head_stride);
    const uint16_t* v = static_cast<const uint16_t*>(p.v) +
                        sequence_offset(keys, batch, head_k, p.v_batch_stride, p.v_row_stride, p.v_head_stride);
    copy_tile<dq_query_tile, HEAD_DIM, DQ_THREADS, VECTOR>(q_tile, q, p.q_row_stride, first_query, queries.rows);
    copy_tile<dq_query_tile, HEAD_DIM, DQ_THREADS, VECTOR>(dout_tile, dout, p.dout_row_stride, first_query,
                                                           queries.rows);
    cp_async_commit();

    const int warp_row = warp_index() * 16;
    float shift[2], delta[2];  // of the lane's rows g and g + 8
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        const int row = first_query + warp_row + h * 8 + lane_index() / 4;
        const float* shifts = p.row_shifts +
                              static_cast<int64_t>(first_tile_of<BLOCK_M>(p, queries, batch, head) + row / BLOCK_M) *
                              (2 * BLOCK_M) + row % BLOCK_M;
        shift[h] = row < queries.rows ? load_global(shifts) : -infinity();
        delta[h] = row < queries.rows ? load_global(shifts + BLOCK_M) : 0.0f;
    }

    float dq[1][HEAD_DIM / 8][4];
    clear(dq);
    for (int first_key = begin_key; first_key < end_key; first_key += DQ_N) {
        block_sync();  // no warp still reads the last keys
        copy_tile<dq_key_tile, HEAD_DIM, DQ_THREADS, VECTOR>(k_tile, k, p.k_row_stride, first_key, keys.rows);
        copy_tile<dq_key_tile, HEAD_DIM, DQ_THREADS, VECTOR>(v_tile, v, p.v_row_stride, first_key, keys.rows);
        cp_async_commit();
        cp_async_wait<0>();
        block_sync();
        float s[1][DQ_N / 8][4], dp[1][DQ_N / 8][4];
        multiply<dq_query_tile, dq_key_tile>(s, q_tile, warp_row, k_tile);
        multiply<dq_query_tile, dq_key_tile>(dp, dout_tile, warp_row, v_tile);
        uint32_t ds[1][DQ_N / 16][4];
        KGEN_UNROLL
        for (int j = 0; j < DQ_N / 8; ++j) {
            KGEN_UNROLL
            for (int h = 0; h < 2; ++h) {
                // (Masking them before the exponential, like scores, takes more registers.)
                const int key = first_key + j * 8 + lane_index() % 4 * 2;
                const int end = min(keys.rows, diagonal + warp_row + h * 8 + static_cast<int>(lane_index() / 4));
                const float low = key < end ? exp2_fast(fused_multiply_add(s[0][j][2 * h], p.log2_scale, shift[h]))
                                            : 0.0f;
                const float high = key + 1 < end
                                       ? exp2_fast(fused_multiply_add(s[0][j][2 * h + 1], p.log2_scale, shift[h]))
                                       : 0.0f;
                ds[0][j / 2][j % 2 * 2 + h] = pack<element>(low * (dp[0][j][2 * h] - delta[h]),
                                                            high * (dp[0][j][2 * h + 1] - delta[h]));
            }
        }
        accumulate<dq_key_tile>(dq, ds, k_tile);
    }
    cp_async_wait<0>();
    block_sync();
    uint16_t* to = static_cast<uint16_t*>(p.dq) + first_query * p.dq_row_stride +
                   sequence_offset(queries, batch, head, p.dq_batch_stride, p.dq_row_stride, p.dq_head_stride);
    write_rows<dq_query_tile, VECTOR>(dq, p.softmax_scale, q_tile, warp_row, to, p.dq_row_stride,
                                      queries.rows - first_query);
}

constexpr fwd_identity SELF = {"flash_bwd_hdim128_bf16_causal_sm90", HEAD_DIM, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL};

}  // namespace

extern "C" size_t flash_bwd_hdim128_bf16_causal_sm90_workspace(const kgen_bwd_params* given) {
    return bwd_workspace(given, SELF, TILING);
}

extern "C" int flash_bwd_hdim128_bf16_causal_sm90(const kgen_bwd_params* given, cudaStream_t stream) {
    parameters params = {};
    bwd_arguments& p = params.call;
    if (const int code = check_bwd_params(given, SELF, TILING, p)) return code;
    const uint64_t query_blocks = product(tiles_of(p.seqlen_q, BLOCK_M), p.num_heads, p.batch);
    const uint64_t key_blocks = product(tiles_of(p.seqlen_k, BLOCK_N), p.num_heads_k, p.batch);
    const uint64_t dq_blocks = product(tiles_of(p.seqlen_q, DQ_M), p.num_heads, p.batch);
    const uint64_t grids[] = {query_blocks, key_blocks, dq_blocks};
    for (const uint64_t blocks : grids) {
        if (const int code = check_blocks(SELF.name, blocks, p)) return code;
    }
    if (query_blocks > 0 && key_blocks > 0) {
        if (const int code = make_maps(params, SELF.name)) return code;
    }
    const bool vector = params.vector = bwd_is_aligned(p);
    int code = launch(vector ? prepare<true> : prepare<false>, SELF.name, static_cast<uint32_t>(query_blocks), THREADS,
                      0, p, stream);
    if (code == KGEN_SUCCESS) {
        code = launch(gradients, SELF.name, static_cast<uint32_t>(key_blocks), GRADIENT_THREADS, SHARED_BYTES, params,
                      stream);
    }
    if (code != KGEN_SUCCESS) return code;
    if (p.dq_sums == nullptr) {
        return launch(vector ? query_gradients<true> : query_gradients<false>, SELF.name,
                      static_cast<uint32_t>(dq_blocks), DQ_THREADS, DQ_SHARED_BYTES, p, stream);
    }
    return launch(vector ? finish<true> : finish<false>, SELF.name, static_cast<uint32_t>(query_blocks), THREADS,
                  query_tile::bytes, p, stream);
}
