// flash_fwd_hdim96_bf16_causal_sm80
//
// Flash Attention, forward: O = softmax(scale * Q K^T + causal mask) V, and the log-sum-exp of each row.
// Head dim 96, bf16, causal (aligned to the bottom right), compute capability 8.0 and newer.
//
// One block of 4 warps takes 128 queries of one head and iterates over the keys in tiles of 64, from the last to
// the first, with O and the softmax state in registers. Each warp owns 32 query rows, so softmax needs no other warp.
// K and V have one buffer each: V(j) is copied during Q K^T, K(j - 1) during the softmax and P V (cp.async).
//
// Plan: 49152 bytes of shared memory; accumulators, fragments and addresses need about 200 registers per thread;
// 2 blocks (8 warps) per SM, limited by registers.
// Made by kgen 0.1.0 from templates/attention/fwd_sm80.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode "arch=compute_80,code=[sm_80,compute_80]" -Iinclude -c
//       flash_fwd_hdim96_bf16_causal_sm80.cu

#include "kgen.h"
#include "kgen/blocks.cuh"
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

constexpr int HEAD_DIM = 96;
constexpr int HEAD_DIM_PADDED = 96;
constexpr int BLOCK_M = 128;  // queries per block
constexpr int BLOCK_N = 64;  // keys per step
constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int BLOCKS_PER_SM = 2;  // registers are capped so that this many fit
constexpr int WARP_ROWS = BLOCK_M / WARPS;
constexpr int M_TILES = WARP_ROWS / 16;  // 16-row MMA tiles per warp
constexpr int O_TILES = HEAD_DIM / 8;  // 8-column MMA tiles of O

using query_tile = shared_tile<BLOCK_M, HEAD_DIM_PADDED>;
using key_tile = shared_tile<BLOCK_N, HEAD_DIM_PADDED>;

// Shared memory:
//   Q (then O) at 0 (24576 bytes)
//   K at 24576 (12288 bytes)
//   V at 36864 (12288 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t K_OFFSET = 24576;
constexpr uint32_t V_OFFSET = 36864;
constexpr uint32_t SHARED_BYTES = 49152;

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

// S = Q K^T for one key tile.
KGEN_DEVICE void multiply_q_k(scores& s, uint32_t q, lane_offsets q_lanes, uint32_t k, lane_offsets k_lanes) {
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
        uint32_t a[M_TILES][4];
        KGEN_UNROLL
        for (int t = 0; t < M_TILES; ++t) ldmatrix_x4(a[t], fragment_address<query_tile>(q, q_lanes, t * 16, step));
        KGEN_UNROLL
        for (int j = 0; j < key_tile::rows / 16; ++j) {
            uint32_t b[4];
            ldmatrix_x4(b, fragment_address<key_tile>(k, k_lanes, j * 16, step));
            KGEN_UNROLL
            for (int t = 0; t < M_TILES; ++t) {
                mma_m16n8k16<element>(s[t][2 * j], a[t], b[0], b[1]);
                mma_m16n8k16<element>(s[t][2 * j + 1], a[t], b[2], b[3]);
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

// The keys of a tile that a warp's rows see. Columns are counted from the tile's first key.
struct view {
    int keys;  // columns from here on belong to no key
    int diagonal;  // columns that the lane's first row sees

    // The columns that row r sees, counted from the lane's first row.
    KGEN_DEVICE interval of_row(int r) const { return {0, min(keys, diagonal + r)}; }
};

KGEN_DEVICE void mask(scores& s, const view& seen) {
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) mask_row(s[t], h, seen.of_row(t * 16 + h * 8));
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

// The work of a block: blocks are ordered by batch, head, then query tile, the longest rows first.
struct assignment {
    int batch, head, first_query;
    sequence queries;
};

KGEN_DEVICE assignment assigned_work(const kgen_fwd_params& p) {
    const uint32_t block = block_index();
    const uint32_t m_blocks = (p.seqlen_q + BLOCK_M - 1) / BLOCK_M;
    const int batch = block / m_blocks / p.num_heads;
    const int head = block / m_blocks % p.num_heads;
    const int first_query = (m_blocks - 1 - block % m_blocks) * BLOCK_M;
    return {batch, head, first_query, sequence_of(batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q)};
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

// Divides O by the row sums, writes it through this warp's rows of shared memory (where Q was) in 16-byte pieces, and
// writes the log-sum-exp.
template <bool VECTOR>
KGEN_DEVICE void write_output(row_state& state, const kgen_fwd_params& p, uint32_t tile, float log2_scale) {
    const auto [batch, head, first_query, queries] = assigned_work(p);
    const int valid_rows = queries.rows - first_query;
    const int warp_row = warp_index() * WARP_ROWS;
    uint16_t* o = static_cast<uint16_t*>(p.o) + first_query * p.o_row_stride +
                  sequence_offset(queries, batch, head, p.o_batch_stride, p.o_row_stride, p.o_head_stride);
    float* lse = p.lse;
    if (lse != nullptr)
        lse += (queries.packed ? queries.first_row : batch * p.lse_batch_stride) + head * p.lse_head_stride +
               first_query;
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            const float sum = sum_of_row(state.sum[t][h]);
            const float factor = inverse_of_sum(sum);
            const int row = warp_row + t * 16 + h * 8 + lane_index() / 4;
            KGEN_UNROLL
            for (int j = 0; j < O_TILES; ++j) {
                store_shared(tile + chunk_offset<query_tile>(row, j * 8) + lane_index() % 4 * 4,
                             pack<element>(state.o[t][j][2 * h] * factor, state.o[t][j][2 * h + 1] * factor));
            }
            if (lse != nullptr && lane_index() % 4 == 0 && row < valid_rows) {
                store_global(lse + row, log_sum_exp(sum, state.max[t][h], log2_scale));
            }
        }
    }
    warp_sync();
    store_warp_rows<query_tile, HEAD_DIM, WARP_ROWS, VECTOR>(o, p.o_row_stride, tile, warp_row, valid_rows);
}

template <bool VECTOR>
KGEN_KERNEL(THREADS, BLOCKS_PER_SM) attention(KGEN_PARAMETER kgen_fwd_params p) {
    const auto [batch, head, first_query, queries] = assigned_work(p);
    if (first_query >= queries.rows) return;
    const int head_k = head / (p.num_heads / p.num_heads_k);
    const sequence keys = sequence_of(batch, p.cu_seqlens_k, p.seqused_k, p.seqlen_k);

    // Tile t holds the keys from t * BLOCK_N on. Some row of the block sees a key in each of the tiles
    // [first_tile, end_tile); of these, those before clear_end are entirely visible to every row, and the others need
    // the mask.
    constexpr int first_tile = 0;
    const int diagonal = first_query + keys.rows - queries.rows + 1;  // keys that the block's first row sees
    const int end_tile = (max(0, min(keys.rows, diagonal + BLOCK_M - 1)) + BLOCK_N - 1) / BLOCK_N;
    const int clear_end = max(0, min(keys.rows, diagonal)) / BLOCK_N;

    const uint16_t* q = static_cast<const uint16_t*>(p.q) +
                        sequence_offset(queries, batch, head, p.q_batch_stride, p.q_row_stride, p.q_head_stride);
    const uint16_t* k = static_cast<const uint16_t*>(p.k) +
                        sequence_offset(keys, batch, head_k, p.k_batch_stride, p.k_row_stride, p.k_head_stride);
    const uint16_t* v = static_cast<const uint16_t*>(p.v) +
                        sequence_offset(keys, batch, head_k, p.v_batch_stride, p.v_row_stride, p.v_head_stride);
    const uint32_t shared = shared_base();
    const int warp_row = warp_index() * WARP_ROWS;

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

    const auto copy_k = [&](int tile, uint32_t to) {
        copy_tile<key_tile, HEAD_DIM, THREADS, VECTOR>(to, k, p.k_row_stride, tile * BLOCK_N, keys.rows);
    };
    const auto copy_v = [&](int tile, uint32_t to) {
        copy_tile<key_tile, HEAD_DIM, THREADS, VECTOR>(to, v, p.v_row_stride, tile * BLOCK_N, keys.rows);
    };

    // A scale of 0 is replaced by one too small to change any exponential, so that a masked key stays at -infinity.
    const float log2_scale = maximum(p.softmax_scale * LOG2_E, 1e-30f);
    const lane_offsets q_lanes = lanes_by_row(warp_row);
    const lane_offsets row_lanes = lanes_by_row(0);
    const lane_offsets chunk_lanes = lanes_by_chunk();
    const auto prepare = [&](scores& s, int tile) {
        if (tile >= clear_end) {
            mask(s, {keys.rows - tile * BLOCK_N,
                     diagonal + warp_row + static_cast<int>(lane_index() / 4) - tile * BLOCK_N});
        }
        softmax(s, state, log2_scale);
    };

    if (end_tile > first_tile) {
        copy_tile<query_tile, HEAD_DIM, THREADS, VECTOR>(shared + Q_OFFSET, q, p.q_row_stride, first_query,
                                                         queries.rows);
        copy_k(end_tile - 1, shared + K_OFFSET);
        cp_async_commit();

        for (int tile = end_tile - 1; tile >= first_tile; --tile) {
            cp_async_wait<0>();
            block_sync();  // K(tile) is visible to all threads, and no warp still reads V(tile + 1)
            copy_v(tile, shared + V_OFFSET);
            cp_async_commit();
            scores s;
            multiply_q_k(s, shared + Q_OFFSET, q_lanes, shared + K_OFFSET, chunk_lanes);
            cp_async_wait<0>();
            block_sync();  // V(tile) is visible to all threads, and no warp still reads K(tile)
            if (tile > first_tile) {
                copy_k(tile - 1, shared + K_OFFSET);
                cp_async_commit();
            }
            prepare(s, tile);
            multiply_p_v(state, s, shared + V_OFFSET, row_lanes);
        }
    }

    write_output<VECTOR>(state, p, shared + Q_OFFSET, log2_scale);
}

}  // namespace

extern "C" int flash_fwd_hdim96_bf16_causal_sm80(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr fwd_identity self = {"flash_fwd_hdim96_bf16_causal_sm80", HEAD_DIM, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL};
    kgen_fwd_params params;
    if (const int code = check_fwd_params(given, self, params)) return code;
    const uint64_t blocks = product(tiles_of(params.seqlen_q, BLOCK_M), params.num_heads, params.batch);
    if (const int code = check_blocks(self.name, blocks, params)) return code;
    const auto kernel = fwd_is_aligned(params) ? attention<true> : attention<false>;
    return launch(kernel, self.name, static_cast<uint32_t>(blocks), THREADS, SHARED_BYTES, params, stream);
}
