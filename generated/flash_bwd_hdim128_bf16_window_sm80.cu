// flash_bwd_hdim128_bf16_window_sm80
//
// Flash Attention, backward: dQ, dK and dV from dO, with S = Q K^T and P recomputed from the forward pass's LSE:
//   P = exp(scale S - LSE),  dV = P^T dO,  dP = dO V^T,  dS = P (dP - delta),
//   dK = scale dS^T Q,  dQ = scale dS K
// where delta is the row sum of O dO, minus dLSE if LSE has a gradient. dK and dV of a key head are summed over the
// query heads that read it.
// Head dim 128, bf16, every key visible to every query unless a call requests window, compute capability 8.0 and newer.
//
// Three kernels, in sequence:
//   prepare    computes delta of every row, and zeroes the sums of dQ
//   gradients  one block of 8 warps takes 128 keys and iterates over the queries in tiles of 64,
//              with dK and dV in registers
//   finish     converts dQ from fp32 sums to its own type
// With KGEN_FLAG_DETERMINISTIC the second omits dQ, whose parts arrive in no fixed order, and the last is replaced by
//   query_gradients  computes dQ on its own, one block per 64 queries
//
// Warps of the second kernel form pairs that own the same 32 keys. The value warp of a pair computes S^T and P^T and
// holds dV, the key warp computes dP^T and dS^T and holds dK: half the registers each, every operand in shared memory
// is read once per 32 keys, and while one of them computes exponentials the other uses the tensor cores. Both execute
// the same steps, sum += f(A B^T) X, on different tiles.
// P^T goes from one to the other through shared memory, dS^T through the same bytes to all warps, which share
// dQ += dS K of the previous step.
//
// Plan: 164864 bytes of shared memory, 1 block (8 warps) per SM, limited by registers.
// Made by kgen 0.1.0 from templates/attention/bwd_sm80.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode "arch=compute_80,code=[sm_80,compute_80]" -Iinclude -c
//       flash_bwd_hdim128_bf16_window_sm80.cu

#include "kgen.h"
#include "kgen/blocks.cuh"
#include "kgen/bwd_params.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/math.cuh"
#include "kgen/mma.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/types.cuh"

namespace {

using namespace kgen;
using element = bf16;

constexpr int HEAD_DIM = 128;
constexpr int HEAD_DIM_PADDED = 128;
constexpr int BLOCK_N = 128;  // keys per block
constexpr int BLOCK_M = 64;  // queries per step
constexpr int WARPS = 8;
constexpr int THREADS = 32 * WARPS;
constexpr int BLOCKS_PER_SM = 1;
constexpr int PAIRS = WARPS / 2;
constexpr int WARP_KEYS = BLOCK_N / PAIRS;
constexpr int N_TILES = WARP_KEYS / 16;  // 16-key MMA tiles per warp

// dQ of a step is divided among 2 x 4 warps (queries x columns), in 16x16 blocks.
constexpr int DQ_WARPS_M = 2;
constexpr int DQ_WARPS_D = 4;
constexpr int DQ_ROWS = BLOCK_M / 16 / DQ_WARPS_M;
constexpr int DQ_COLUMNS = (HEAD_DIM_PADDED / 16 + DQ_WARPS_D - 1) / DQ_WARPS_D;
constexpr bool DQ_IS_EVEN = HEAD_DIM_PADDED / 16 % DQ_WARPS_D == 0;  // otherwise the last warps have one block less

using query_tile = shared_tile<BLOCK_M, HEAD_DIM_PADDED>;
using key_tile = shared_tile<BLOCK_N, HEAD_DIM_PADDED>;
using weight_tile = shared_tile<BLOCK_N, BLOCK_M>;  // P^T, then dS^T
static_assert(DQ_WARPS_M * DQ_WARPS_D == WARPS && DQ_ROWS * DQ_WARPS_M * 16 == BLOCK_M, "dQ is shared by all warps");

// Shared memory:
//   Q at 0 (16384 bytes)
//   dO at 16384 (16384 bytes)
//   shifts at 32768 (256 bytes)
//   deltas at 33024 (256 bytes)
//   the same of the second stage at 33280 (33280 bytes)
//   K (then dK) at 66560 (32768 bytes)
//   V (then dV) at 99328 (32768 bytes)
//   P^T and dS^T at 132096 (32768 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t DOUT_OFFSET = 16384;
constexpr uint32_t SHIFTS_OFFSET = 32768;
constexpr uint32_t DELTAS_OFFSET = 33024;
constexpr uint32_t K_OFFSET = 66560;
constexpr uint32_t V_OFFSET = 99328;
constexpr uint32_t WEIGHTS_OFFSET = 132096;
constexpr uint32_t SHARED_BYTES = 164864;
constexpr uint32_t STAGE_BYTES = 33280;  // Q, dO, shifts and deltas of one step

constexpr float LOG2_E = 1.44269504088896341f;

constexpr bwd_tiling TILING = {BLOCK_M, DQ_ROWS * DQ_COLUMNS * 8 * THREADS};

using scores = float[N_TILES][BLOCK_M / 8][4];       // S^T or dP^T of a warp's keys
using weights = uint32_t[N_TILES][BLOCK_M / 16][4];  // P^T or dS^T of a warp's keys, as A operands
using key_sums = float[N_TILES][HEAD_DIM / 8][4];    // dV or dK of a warp's keys
using query_sums = float[DQ_ROWS][DQ_COLUMNS][2][4];

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

// A row's position is its place among the keys: row i of sq queries is at i + sk - sq, possibly below 0. It sees keys
// [first_seen, end_seen), none if the end is not above the first.
KGEN_DEVICE int first_seen(const bwd_arguments& p, int position) {
    return position > p.features.window_left ? position - p.features.window_left : 0;
}

KGEN_DEVICE int end_seen(const bwd_arguments& p, int position, int keys) {
    int end = keys - 1 - position <= p.features.window_right ? keys : position + 1 + p.features.window_right;
    return max(0, end);
}

// A query's position is its place among the keys: query i of sq is at i + sk - sq, possibly below 0. Of the positions
// [begin, end), those in [first_seeing, end_seeing) see a key, none if the end is not above the first.
KGEN_DEVICE int first_seeing(const bwd_arguments& p, int key, int begin) {
    int first = key - begin > p.features.window_right ? key - p.features.window_right : begin;
    return first;
}

KGEN_DEVICE int end_seeing(const bwd_arguments& p, int key, int end) {
    if (end - 1 - key > p.features.window_left) end = key + 1 + p.features.window_left;
    return end;
}

// The queries of a tile that see a warp's rows of S^T, which are keys. Columns are counted from the tile's first query.
struct view {
    const bwd_arguments& p;
    int key;       // the lane's first
    int position;  // of the tile's first query
    int keys;      // of the sequence

    // The queries that see key r, counted from the lane's first.
    KGEN_DEVICE interval of_row(int r) const {
        if (key + r >= keys) return {BLOCK_M, BLOCK_M};
        return {first_seeing(p, key + r, position) - position, end_seeing(p, key + r, keys) - position};
    }
};

KGEN_DEVICE void mask(scores& s, const view& seen) {
    KGEN_UNROLL
    for (int t = 0; t < N_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) mask_row(s[t], h, seen.of_row(t * 16 + h * 8));
    }
}

// P^T = exp2(log2_scale S^T + shift), with one shift per query. The accumulator layout of S is the A-operand layout of
// P.
KGEN_DEVICE void probabilities(weights& w, const scores& s, float log2_scale, uint32_t shifts) {
    KGEN_UNROLL
    for (int j = 0; j < BLOCK_M / 8; ++j) {
        float shift[2];
        load_shared_pair(shifts + (j * 8 + lane_index() % 4 * 2) * 4, shift[0], shift[1]);
        KGEN_UNROLL
        for (int t = 0; t < N_TILES; ++t) {
            KGEN_UNROLL
            for (int h = 0; h < 2; ++h) {
                w[t][j / 2][j % 2 * 2 + h] =
                    pack<element>(exp2_fast(fused_multiply_add(s[t][j][2 * h], log2_scale, shift[0])),
                                  exp2_fast(fused_multiply_add(s[t][j][2 * h + 1], log2_scale, shift[1])));
            }
        }
    }
}

// The address where the lane passes fragment [t][step] of P^T to the other warp of its pair: in the pair's rows of the
// weight tile, in lane order.
KGEN_DEVICE uint32_t fragment_place(uint32_t tile, int warp_key, int t, int step) {
    const int start = weight_tile::panel_start(step * 16);
    const int width = weight_tile::panel_columns(start);
    const int fragment = t * (width / 16) + (step * 16 - start) / 16;
    return tile + weight_tile::panel_offset(start) + warp_key * width * 2 + fragment * 512 + lane_index() * 16;
}

KGEN_DEVICE void hand_over(const weights& p, uint32_t tile, int warp_key) {
    KGEN_UNROLL
    for (int t = 0; t < N_TILES; ++t) {
        KGEN_UNROLL
        for (int step = 0; step < BLOCK_M / 16; ++step) {
            store_shared(fragment_place(tile, warp_key, t, step),
                         words4{p[t][step][0], p[t][step][1], p[t][step][2], p[t][step][3]});
        }
    }
}

// dS^T = P^T (dP^T - delta), with one delta per query; P^T as passed on by the value warp.
KGEN_DEVICE void score_gradients(weights& ds, const scores& dp, uint32_t tile, int warp_key, uint32_t deltas) {
    KGEN_UNROLL
    for (int step = 0; step < BLOCK_M / 16; ++step) {
        float delta[2][2];
        KGEN_UNROLL
        for (int i = 0; i < 2; ++i)
            load_shared_pair(deltas + (step * 16 + i * 8 + lane_index() % 4 * 2) * 4, delta[i][0], delta[i][1]);
        KGEN_UNROLL
        for (int t = 0; t < N_TILES; ++t) {
            const words4 fragment = load_shared(fragment_place(tile, warp_key, t, step));
            const uint32_t p[4] = {fragment.x, fragment.y, fragment.z, fragment.w};
            KGEN_UNROLL
            for (int i = 0; i < 4; ++i) {
                const float(&d)[4] = dp[t][2 * step + i / 2];
                float low, high;
                unpack<element>(p[i], low, high);
                ds[t][step][i] = pack<element>(low * (d[i % 2 * 2] - delta[i / 2][0]),
                                               high * (d[i % 2 * 2 + 1] - delta[i / 2][1]));
            }
        }
    }
}

// Writes dS^T to its tile, over the P^T that the warp has already read.
KGEN_DEVICE void store_weights(const weights& ds, uint32_t tile, int warp_key) {
    warp_sync();
    KGEN_UNROLL
    for (int t = 0; t < N_TILES; ++t) {
        KGEN_UNROLL
        for (int step = 0; step < BLOCK_M / 16; ++step) {
            KGEN_UNROLL
            for (int i = 0; i < 4; ++i) {
                const int key = warp_key + t * 16 + i % 2 * 8 + lane_index() / 4;
                store_shared(tile + chunk_offset<weight_tile>(key, step * 16 + i / 2 * 8) + lane_index() % 4 * 4,
                             ds[t][step][i]);
            }
        }
    }
}

// The warp's blocks of dQ: every DQ_WARPS_M-th row of blocks and every DQ_WARPS_D-th column, starting at these.
KGEN_DEVICE int dq_row(int warp) { return warp / DQ_WARPS_D; }
KGEN_DEVICE int dq_column(int warp) { return warp % DQ_WARPS_D; }
KGEN_DEVICE bool dq_has_column(int warp, int j) {
    return DQ_IS_EVEN || j * DQ_WARPS_D + dq_column(warp) < HEAD_DIM_PADDED / 16;
}

// Adds dS K of one step to the sums of its queries; `sums` is the thread's first. They are stored in the order in which
// threads hold them, so that every addition of a warp is one full line.
KGEN_DEVICE void add_query_gradients(float* sums, uint32_t ds, uint32_t k) {
    const int warp = warp_index();
    const lane_offsets ds_lanes = lanes_at_step(lanes_by_chunk(fresh_lane()), dq_row(warp));
    const lane_offsets k_lanes = lanes_at_step(lanes_by_row(0, fresh_lane()), dq_column(warp));
    query_sums dq;
    clear(dq);
    KGEN_UNROLL
    for (int step = 0; step < BLOCK_N / 16; ++step) {
        uint32_t a[DQ_ROWS][4];
        KGEN_UNROLL
        for (int i = 0; i < DQ_ROWS; ++i)
            ldmatrix_x4_transposed(a[i], fragment_address<weight_tile>(ds, ds_lanes, step * 16, i * DQ_WARPS_M));
        KGEN_UNROLL
        for (int j = 0; j < DQ_COLUMNS; ++j) {
            if (!dq_has_column(warp, j)) continue;
            uint32_t b[4];
            ldmatrix_x4_transposed(b, fragment_address<key_tile>(k, k_lanes, step * 16, j * DQ_WARPS_D));
            KGEN_UNROLL
            for (int i = 0; i < DQ_ROWS; ++i) {
                mma_m16n8k16<element>(dq[i][j][0], a[i], b[0], b[1]);
                mma_m16n8k16<element>(dq[i][j][1], a[i], b[2], b[3]);
            }
        }
    }
    KGEN_UNROLL
    for (int i = 0; i < DQ_ROWS; ++i) {
        KGEN_UNROLL
        for (int j = 0; j < DQ_COLUMNS; ++j) {
            if (!dq_has_column(warp, j)) continue;
            KGEN_UNROLL
            for (int e = 0; e < 8; ++e)
                add_global(sums + ((i * DQ_COLUMNS + j) * 8 + e) * THREADS, dq[i][j][e / 4][e % 4]);
        }
    }
}

// Writes a warp's rows of a gradient, starting at `row`, through its rows of a tile in 16-byte pieces.
template <class Tile, bool VECTOR, int TILES>
KGEN_DEVICE void write_rows(const float (&sums)[TILES][HEAD_DIM / 8][4], float factor, uint32_t tile, int row,
                            uint16_t* to, int64_t row_stride, int valid_rows) {
    KGEN_UNROLL
    for (int t = 0; t < TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            KGEN_UNROLL
            for (int j = 0; j < HEAD_DIM / 8; ++j) {
                store_shared(tile + chunk_offset<Tile>(row + t * 16 + h * 8 + lane_index() / 4, j * 8) + lane_index() %
                             4 * 4, pack<element>(sums[t][j][2 * h] * factor, sums[t][j][2 * h + 1] * factor));
            }
        }
    }
    warp_sync();
    store_warp_rows<Tile, HEAD_DIM, TILES * 16, VECTOR>(to, row_stride, tile, row, valid_rows);
}

// The keys of a block: blocks are ordered by batch, key head, then key tile.
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

template <bool VECTOR>
KGEN_KERNEL(THREADS, BLOCKS_PER_SM) gradients(KGEN_PARAMETER bwd_arguments p) {
    const assignment work = assigned_keys(p);
    if (work.first_key >= work.keys.rows) return;
    const sequence queries = sequence_of(work.batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q);
    const int key_rows = work.keys.rows - work.first_key;

    // The queries to iterate over: from tile `first_tile` to the one before `end_query`, for each query head of the
    // group. Every key of the block is seen by the queries [clear_first, clear_end); tiles with others need the mask.
    const int begin = work.keys.rows - queries.rows;  // the position of query 0
    const int last_key = work.first_key + min(BLOCK_N, key_rows) - 1;
    const int first_tile = (first_seeing(p, work.first_key, begin) - begin) / BLOCK_M;
    const int end_query = end_seeing(p, last_key, work.keys.rows) - begin;
    const int clear_first = first_seeing(p, last_key, begin) - begin;
    const int seen_to = end_seeing(p, work.first_key, work.keys.rows);
    const int clear_end = key_rows < BLOCK_N ? 0 : seen_to == work.keys.rows ? INT32_MAX : seen_to - begin;
    int tile = first_tile;
    int heads_left = p.num_heads / p.num_heads_k;
    const int first_head = work.head_k * heads_left;
    const uint16_t* q = static_cast<const uint16_t*>(p.q) +
                        sequence_offset(queries, work.batch, first_head, p.q_batch_stride, p.q_row_stride,
                                        p.q_head_stride);
    const uint16_t* dout =
        static_cast<const uint16_t*>(p.dout) +
        sequence_offset(queries, work.batch, first_head, p.dout_batch_stride, p.dout_row_stride, p.dout_head_stride);
    // tile 0 of the head, in the workspace
    int head_place = first_tile_of<BLOCK_M>(p, queries, work.batch, first_head);

    const uint32_t shared = shared_base();
    const int warp = warp_index();
    const bool is_value_warp = warp < PAIRS;

    key_sums sums;
    clear(sums);

    const auto copy_queries = [&](uint32_t stage) {
        copy_tile<query_tile, HEAD_DIM, THREADS, VECTOR>(stage + Q_OFFSET, q, p.q_row_stride, tile * BLOCK_M,
                                                         queries.rows);
        copy_tile<query_tile, HEAD_DIM, THREADS, VECTOR>(stage + DOUT_OFFSET, dout, p.dout_row_stride, tile * BLOCK_M,
                                                         queries.rows);
        const float* shifts = p.row_shifts + static_cast<int64_t>(head_place + tile) * (2 * BLOCK_M);
        if (thread_index() < BLOCK_M / 2)
            cp_async(stage + SHIFTS_OFFSET + thread_index() * 16, shifts + thread_index() * 4, true);
        cp_async_commit();
    };
    // Advances to the next queries and starts copying them, or leaves no heads.
    const auto copy_next = [&](uint32_t stage) {
        if (++tile * BLOCK_M >= end_query) {
            tile = first_tile;
            if (--heads_left == 0) return;
            q += p.q_head_stride;
            dout += p.dout_head_stride;
            head_place += p.query_tiles;
        }
        copy_queries(stage);
    };
    // Adds dQ of the step whose queries have index `at` in the workspace.
    const auto add_dq = [&](int at, uint32_t ds) {
        if (p.dq_sums != nullptr)
            add_query_gradients(p.dq_sums + at * TILING.dq_floats + thread_index(), ds, shared + K_OFFSET);
    };

    // One step of a pair of warps: S^T, P^T and dV of one, dP^T, dS^T and dK of the other.
    const auto multiply_and_accumulate = [&](uint32_t stage, uint32_t weights_at, int first_query) {
        const int warp_key = opaque(warp) % PAIRS * WARP_KEYS;  // opaque, so that dependent values are recomputed
        scores s;
        weights w;
        multiply<key_tile, query_tile>(s, shared + (is_value_warp ? K_OFFSET : V_OFFSET), warp_key,
                                       stage + (is_value_warp ? Q_OFFSET : DOUT_OFFSET));
        if (is_value_warp) {
            const int lane_key = warp_key + lane_index() / 4;
            const int position = begin + first_query, key = work.first_key + lane_key;
            if (first_query < clear_first || first_query + BLOCK_M > clear_end)
                mask(s, {p, key, position, work.keys.rows});
            probabilities(w, s, p.log2_scale, stage + SHIFTS_OFFSET);
            hand_over(w, weights_at, warp_key);
            barrier_arrive(1 + warp, 64);
        } else {
            barrier_wait(1 + warp - PAIRS, 64);
            score_gradients(w, s, weights_at, warp_key, stage + DELTAS_OFFSET);
            store_weights(w, weights_at, warp_key);
        }
        accumulate<query_tile>(sums, w, stage + (is_value_warp ? DOUT_OFFSET : Q_OFFSET));
    };

    if (first_tile * BLOCK_M >= end_query) heads_left = 0;
    if (heads_left > 0) {
        const auto [batch, head_k, first_key, keys] = work;
        const uint16_t* k = static_cast<const uint16_t*>(p.k) +
                            sequence_offset(keys, batch, head_k, p.k_batch_stride, p.k_row_stride, p.k_head_stride);
        const uint16_t* v = static_cast<const uint16_t*>(p.v) +
                            sequence_offset(keys, batch, head_k, p.v_batch_stride, p.v_row_stride, p.v_head_stride);
        copy_tile<key_tile, HEAD_DIM, THREADS, VECTOR>(shared + K_OFFSET, k, p.k_row_stride, first_key, keys.rows);
        copy_tile<key_tile, HEAD_DIM, THREADS, VECTOR>(shared + V_OFFSET, v, p.v_row_stride, first_key, keys.rows);
        copy_queries(shared);
    }

    int phase = 0;  // index of the buffer, of two of each kind, that this step uses
    const auto stage_at = [&](int which) { return shared + opaque(which) * STAGE_BYTES; };
    const auto weights_at = [&](int which) { return shared + WEIGHTS_OFFSET + opaque(which) * weight_tile::bytes; };
    int last_place = -1;  // of the queries of the previous step
    while (heads_left > 0) {
        cp_async_wait<0>();
        // this step's queries and the last one's dS^T are visible to all threads; the buffers of two steps ago are free
        block_sync();
        const int this_place = head_place + tile;
        const int first_query = tile * BLOCK_M;
        copy_next(stage_at(1 - phase));
        // Value warps add to dQ after their own step, key warps before it, so that P^T is ready when they need it.
        if (!is_value_warp && last_place >= 0) add_dq(last_place, weights_at(1 - phase));
        multiply_and_accumulate(stage_at(phase), weights_at(phase), first_query);
        if (is_value_warp && last_place >= 0) add_dq(last_place, weights_at(1 - phase));
        last_place = this_place;
        phase = 1 - phase;
    }
    block_sync();  // the last step's dS^T is visible to all threads
    if (last_place >= 0) add_dq(last_place, weights_at(1 - phase));

    block_sync();  // no warp still reads K or V
    const auto [batch, head_k, first_key, keys] = assigned_keys(p);  // recomputed rather than kept in registers
    uint16_t* to;
    int64_t row_stride;
    if (is_value_warp) {
        row_stride = p.dv_row_stride;
        to = static_cast<uint16_t*>(p.dv) +
             sequence_offset(keys, batch, head_k, p.dv_batch_stride, row_stride, p.dv_head_stride);
    } else {
        row_stride = p.dk_row_stride;
        to = static_cast<uint16_t*>(p.dk) +
             sequence_offset(keys, batch, head_k, p.dk_batch_stride, row_stride, p.dk_head_stride);
    }
    write_rows<key_tile, VECTOR>(sums, is_value_warp ? 1.0f : p.softmax_scale,
                                 shared + (is_value_warp ? V_OFFSET : K_OFFSET), warp % PAIRS * WARP_KEYS,
                                 to + first_key * row_stride, row_stride, keys.rows - first_key);
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
    const float* sums = p.dq_sums + (first_tile_of<BLOCK_M>(p, queries, batch, head) + tile) * TILING.dq_floats +
                        thread_index();
    const uint32_t shared = shared_base();
    const int warp = warp_index();
    KGEN_UNROLL
    for (int i = 0; i < DQ_ROWS; ++i) {
        KGEN_UNROLL
        for (int j = 0; j < DQ_COLUMNS; ++j) {
            if (!dq_has_column(warp, j)) continue;
            KGEN_UNROLL
            for (int e = 0; e < 8; e += 2) {
                const float* at = sums + ((i * DQ_COLUMNS + j) * 8 + e) * THREADS;
                const int row = (i * DQ_WARPS_M + dq_row(warp)) * 16 + e / 2 % 2 * 8 + lane_index() / 4;
                const int column = (j * DQ_WARPS_D + dq_column(warp)) * 16 + e / 4 * 8;
                store_shared(shared + chunk_offset<query_tile>(row, column) + lane_index() % 4 * 4,
                             pack<element>(load_global(at) * p.softmax_scale,
                                           load_global(at + THREADS) * p.softmax_scale));
            }
        }
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
    const int position = first_query + keys.rows - queries.rows;  // of the block's first row
    const int begin_key = first_seen(p, position);
    const int end_key = end_seen(p, min(position + DQ_M, keys.rows) - 1, keys.rows);

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
    interval seen[2];  // the keys that the lane's rows see
    KGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
        const int at = position + warp_row + h * 8 + static_cast<int>(lane_index() / 4);
        seen[h] = {first_seen(p, at), end_seen(p, at, keys.rows)};
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
                float weight[2];
                KGEN_UNROLL
                for (int e = 0; e < 2; ++e) {
                    const float x = s[0][j][2 * h + e];
                    const bool visible = key + e >= seen[h].low && key + e < seen[h].high;
                    weight[e] = visible ? exp2_fast(fused_multiply_add(x, p.log2_scale, shift[h])) : 0.0f;
                }
                ds[0][j / 2][j % 2 * 2 + h] = pack<element>(weight[0] * (dp[0][j][2 * h] - delta[h]),
                                                            weight[1] * (dp[0][j][2 * h + 1] - delta[h]));
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

constexpr fwd_identity SELF = {"flash_bwd_hdim128_bf16_window_sm80", HEAD_DIM, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW};

}  // namespace

extern "C" size_t flash_bwd_hdim128_bf16_window_sm80_workspace(const kgen_bwd_params* given) {
    return bwd_workspace(given, SELF, TILING);
}

extern "C" int flash_bwd_hdim128_bf16_window_sm80(const kgen_bwd_params* given, cudaStream_t stream) {
    bwd_arguments p = {};
    if (const int code = check_bwd_params(given, SELF, TILING, p)) return code;
    const uint64_t query_blocks = product(tiles_of(p.seqlen_q, BLOCK_M), p.num_heads, p.batch);
    const uint64_t key_blocks = product(tiles_of(p.seqlen_k, BLOCK_N), p.num_heads_k, p.batch);
    const uint64_t dq_blocks = product(tiles_of(p.seqlen_q, DQ_M), p.num_heads, p.batch);
    const uint64_t grids[] = {query_blocks, key_blocks, dq_blocks};
    for (const uint64_t blocks : grids) {
        if (const int code = check_blocks(SELF.name, blocks, p)) return code;
    }
    const bool vector = bwd_is_aligned(p);
    int code = launch(vector ? prepare<true> : prepare<false>, SELF.name, static_cast<uint32_t>(query_blocks), THREADS,
                      0, p, stream);
    if (code == KGEN_SUCCESS) {
        code = launch(vector ? gradients<true> : gradients<false>, SELF.name, static_cast<uint32_t>(key_blocks),
                      THREADS, SHARED_BYTES, p, stream);
    }
    if (code != KGEN_SUCCESS) return code;
    if (p.dq_sums == nullptr) {
        return launch(vector ? query_gradients<true> : query_gradients<false>, SELF.name,
                      static_cast<uint32_t>(dq_blocks), DQ_THREADS, DQ_SHARED_BYTES, p, stream);
    }
    return launch(vector ? finish<true> : finish<false>, SELF.name, static_cast<uint32_t>(query_blocks), THREADS,
                  query_tile::bytes, p, stream);
}
