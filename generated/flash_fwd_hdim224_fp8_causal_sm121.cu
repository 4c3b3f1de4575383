// flash_fwd_hdim224_fp8_causal_sm121
//
// Flash Attention, forward: O = softmax(scale * Q K^T + causal mask) V, and the log-sum-exp of each row.
// Head dim 224, causal (aligned to the bottom right), compute capability 12.1.
// Q, K and V are FP8 (E4M3) with one factor per batch entry and key head, O is bf16.
//
// One block of 4 warps takes 64 queries of one head and iterates over the keys in tiles of 64, from the last to
// the first, with O and the softmax state in registers. Each warp owns 16 query rows, so softmax needs no other warp.
// K and V have one buffer each: V(j) is copied during Q K^T, K(j - 1) during the softmax and P V (cp.async).
//
// P V sums over keys, 32 per MMA, and its operands hold four bytes of consecutive k per register. A lane (t = lane % 4)
// holds the scores of keys 2t and 2t + 1 of every 8, so k is numbered
//   k = 4t, 4t + 1, 4t + 2, 4t + 3  <->  keys 2t, 2t + 1, 2t + 8, 2t + 9  of each 16,
// and a lane's four scores, rounded to E4M3, form a register of P as they are: no data moves between lanes. V must be
// transposed on loading, with its keys in the same order.
// Here ldmatrix transposes bytes, four stored rows to a register; the rows of V are stored in that order of keys.
//
// Plan: 43008 bytes of shared memory; accumulators, fragments and addresses need about 212 registers per thread;
// 2 blocks (8 warps) per SM, limited by registers.
// Made by kgen 0.1.0 from templates/attention/fwd_fp8.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode arch=compute_121f,code=sm_121f -Iinclude -c flash_fwd_hdim224_fp8_causal_sm121.cu

#include "kgen.h"
#include "kgen/blocks.cuh"
#include "kgen/byte_tile.cuh"
#include "kgen/bytes.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/ldmatrix_b8.cuh"
#include "kgen/math.cuh"
#include "kgen/mma_fp8.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"
#include "kgen/tile.cuh"
#include "kgen/types.cuh"

namespace {

using namespace kgen;

constexpr int HEAD_DIM = 224;
constexpr int HEAD_DIM_PADDED = 224;
constexpr int BLOCK_M = 64;  // queries per block
constexpr int BLOCK_N = 64;  // keys per step
constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int BLOCKS_PER_SM = 2;  // registers are capped so that this many fit
constexpr int WARP_ROWS = BLOCK_M / WARPS;
constexpr int M_TILES = WARP_ROWS / 16;  // 16-row MMA tiles per warp
constexpr int O_CHUNKS = (HEAD_DIM + 15) / 16;  // 16-column pieces of O and V, two MMAs each
constexpr int O_TILES = 2 * O_CHUNKS;           // 8-column MMA tiles of O

using query_tile = byte_tile<BLOCK_M, HEAD_DIM_PADDED>;
using key_tile = byte_tile<BLOCK_N, HEAD_DIM_PADDED>;
constexpr row_order V_ORDER = row_order::as_p;

// Shared memory:
//   Q at 0 (14336 bytes)
//   K at 14336 (14336 bytes)
//   V at 28672 (14336 bytes)
constexpr uint32_t Q_OFFSET = 0;
constexpr uint32_t K_OFFSET = 14336;
constexpr uint32_t V_OFFSET = 28672;
constexpr uint32_t SHARED_BYTES = 43008;

// P is stored times a power of two, so that it reaches 2^8 of E4M3's 448 and small values do not underflow below
// 2^-9. Row sums carry the same factor, and the division by them removes it.
constexpr float P_EXPONENT = 8.0f;

constexpr float LOG2_E = 1.44269504088896341f;
constexpr float LN_2 = 0.69314718055994531f;

// The state that a warp keeps from one key tile to the next. Index [t][h] is row t * 16 + h * 8 + lane / 4 of the warp.
struct row_state {
    float o[M_TILES][O_TILES][4];  // output, not yet divided by the sum
    float max[M_TILES][2];         // the maximum that exp2 is taken relative to, in units of Q K^T
    float sum[M_TILES][2];         // this lane's part of the sum of exponentials, in fp32 before they are rounded
};

using scores = float[M_TILES][key_tile::rows / 8][4];

// The MMA of both products.
KGEN_DEVICE void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    mma_m16n8k32_block_scaled(d, a, b0, b1, UNIT_SCALE, UNIT_SCALE);  // GeForce halves the rate of other fp32 sums
}

using query_fragments = uint32_t[HEAD_DIM_PADDED / 32][M_TILES][4];

// S = Q K^T for one key tile, with Q in registers.
KGEN_DEVICE void multiply_q_k(scores& s, const query_fragments& q, uint32_t k, lane_offsets k_lanes) {
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int j = 0; j < BLOCK_N / 8; ++j) {
            KGEN_UNROLL
            for (int e = 0; e < 4; ++e) s[t][j][e] = 0.0f;
        }
    }
    KGEN_UNROLL
    for (int step = 0; step < HEAD_DIM_PADDED / 32; ++step) {
        KGEN_UNROLL
        for (int j = 0; j < BLOCK_N / 16; ++j) {
            uint32_t b[4];
            ldmatrix_x4(b, fragment_address<key_tile>(k, k_lanes, j * 16, step));
            KGEN_UNROLL
            for (int t = 0; t < M_TILES; ++t) {
                multiply_add(s[t][2 * j], q[step][t], b[0], b[1]);
                multiply_add(s[t][2 * j + 1], q[step][t], b[2], b[3]);
            }
        }
    }
}

// O += P V for one key tile.
KGEN_DEVICE void multiply_p_v(row_state& state, const scores& p, uint32_t v, lane_offsets v_lanes) {
    KGEN_UNROLL
    for (int step = 0; step < BLOCK_N / 32; ++step) {
        uint32_t a[M_TILES][4];
        KGEN_UNROLL
        for (int t = 0; t < M_TILES; ++t) {
            KGEN_UNROLL
            for (int i = 0; i < 4; ++i) {  // rows g and g + 8 of the first 16 keys, then of the second
                const int j = step * 4 + i / 2 * 2, h = i % 2;
                a[t][i] = pack_e4m3(p[t][j][2 * h], p[t][j][2 * h + 1], p[t][j + 1][2 * h], p[t][j + 1][2 * h + 1]);
            }
        }
        KGEN_UNROLL
        for (int chunk = 0; chunk < O_CHUNKS; ++chunk) {
            uint32_t words[4];
            ldmatrix_b8_x2_transposed(words, chunk_address<key_tile>(v, v_lanes, step * 32, chunk));
            // the first eight columns, the last eight
            const uint32_t b[2][2] = {{words[0], words[2]}, {words[1], words[3]}};
            KGEN_UNROLL
            for (int t = 0; t < M_TILES; ++t) {
                KGEN_UNROLL
                for (int half = 0; half < 2; ++half) {
                    multiply_add(state.o[t][2 * chunk + half], a[t], b[half][0], b[half][1]);
                }
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

// One step of the online softmax: turns S into P = 2^P_EXPONENT * exp2(log2_scale * (S - max)), adds P's rows to the
// sums, and rescales O and the sums to a new maximum if the old one has been exceeded.
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
            outgrown |= m > state.max[t][h];
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
    }
    KGEN_UNROLL
    for (int t = 0; t < M_TILES; ++t) {
        KGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
            // A row that has seen no key keeps -infinity; 0 instead makes every exponential exp2(-infinity) = 0.
            const float shift = state.max[t][h] == -infinity()
                                    ? 0.0f : fused_multiply_add(-log2_scale, state.max[t][h], P_EXPONENT);
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

// The factor for O, V's factor included: 0 for a row that has seen no key.
KGEN_DEVICE float inverse_of_sum(float sum, float v_descale) {
    return sum == 0.0f ? 0.0f : v_descale * reciprocal(sum);
}

// The log-sum-exp of a row, -infinity for one that has seen no key.
KGEN_DEVICE float log_sum_exp(float sum, float max, float log2_scale) {
    return sum == 0.0f ? -infinity() : LN_2 * fused_multiply_add(log2_scale, max, log2_fast(sum) - P_EXPONENT);
}

// Writes O = o / sum * V's factor from the registers, and the log-sum-exp. A lane holds four adjacent columns of each
// 16 once it has exchanged two with its neighbour, so four lanes fill a 32-byte sector and nothing is gained
// by going through shared memory.
template <bool VECTOR>
KGEN_DEVICE void write_output(row_state& state, const kgen_fwd_params& p, float log2_scale) {
    const auto [batch, head, first_query, queries] = assigned_work(p);
    const int valid_rows = queries.rows - first_query;
    const int first_row = warp_index() * WARP_ROWS + lane_index() / 4;
    const float v_descale = descale_of(p.v_descale, batch, head / (p.num_heads / p.num_heads_k),
                                       p.v_descale_batch_stride, p.v_descale_head_stride);
    const bool odd = lane_index() % 2 == 1;
    const int lane_column = lane_index() % 4 * 2 + (odd ? 6 : 0);
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
            const float factor = inverse_of_sum(sum, v_descale);
            const int row = first_row + t * 16 + h * 8;
            uint16_t* to = o + row * p.o_row_stride + lane_column;
            KGEN_UNROLL
            for (int chunk = 0; chunk < O_CHUNKS; ++chunk) {
                const float* first = &state.o[t][2 * chunk][2 * h];
                const float* second = &state.o[t][2 * chunk + 1][2 * h];
                // The lane has columns 2t and 2t + 1 of the first eight columns and of the second eight. An even lane
                // receives its neighbour's columns of the first eight, an odd lane its neighbour's of the second.
                const float received[2] = {shuffle_xor(odd ? first[0] : second[0], 1),
                                           shuffle_xor(odd ? first[1] : second[1], 1)};
                const uint32_t low = odd ? pack<bf16>(received[0] * factor, received[1] * factor)
                                         : pack<bf16>(first[0] * factor, first[1] * factor);
                const uint32_t high = odd ? pack<bf16>(second[0] * factor, second[1] * factor)
                                          : pack<bf16>(received[0] * factor, received[1] * factor);
                if (row < valid_rows && (chunk * 16 + 16 <= HEAD_DIM || chunk * 16 + lane_column < HEAD_DIM)) {
                    if constexpr (VECTOR) {
                        store_global(static_cast<void*>(to + chunk * 16), words2{low, high});
                    } else {
                        store_global(to + chunk * 16, static_cast<uint16_t>(low));
                        store_global(to + chunk * 16 + 1, static_cast<uint16_t>(low >> 16));
                        store_global(to + chunk * 16 + 2, static_cast<uint16_t>(high));
                        store_global(to + chunk * 16 + 3, static_cast<uint16_t>(high >> 16));
                    }
                }
            }
            if (lse != nullptr && lane_index() % 4 == 0 && row < valid_rows) {
                store_global(lse + row, log_sum_exp(sum, state.max[t][h], log2_scale));
            }
        }
    }
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

    const uint8_t* q = static_cast<const uint8_t*>(p.q) +
                       sequence_offset(queries, batch, head, p.q_batch_stride, p.q_row_stride, p.q_head_stride);
    const uint8_t* k = static_cast<const uint8_t*>(p.k) +
                       sequence_offset(keys, batch, head_k, p.k_batch_stride, p.k_row_stride, p.k_head_stride);
    const uint8_t* v = static_cast<const uint8_t*>(p.v) +
                       sequence_offset(keys, batch, head_k, p.v_batch_stride, p.v_row_stride, p.v_head_stride);
    const uint32_t shared = shared_base();
    const int warp_row = warp_index() * WARP_ROWS;

    row_state state;
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
        copy_bytes<key_tile, HEAD_DIM, THREADS, VECTOR, row_order::natural>(to, k, p.k_row_stride, tile * BLOCK_N,
                                                                            keys.rows);
    };
    const auto copy_v = [&](int tile, uint32_t to) {
        copy_bytes<key_tile, HEAD_DIM, THREADS, VECTOR, V_ORDER>(to, v, p.v_row_stride, tile * BLOCK_N, keys.rows);
    };

    // The factors of Q and K are part of the scores.
    const float descale = descale_of(p.q_descale, batch, head_k, p.q_descale_batch_stride, p.q_descale_head_stride) *
                          descale_of(p.k_descale, batch, head_k, p.k_descale_batch_stride, p.k_descale_head_stride);
    // A scale of 0 is replaced by one too small to change any exponential, so that a masked key stays at -infinity.
    const float log2_scale = maximum(p.softmax_scale * LOG2_E * descale, 1e-30f);
    const lane_offsets q_lanes = lanes_by_row(warp_row);
    const lane_offsets k_lanes = lanes_by_chunk();
    const lane_offsets v_lanes = lanes_by_key();
    const auto prepare = [&](scores& s, int tile) {
        if (tile >= clear_end) {
            mask(s, {keys.rows - tile * BLOCK_N,
                     diagonal + warp_row + static_cast<int>(lane_index() / 4) - tile * BLOCK_N});
        }
        softmax(s, state, log2_scale);
    };

    if (end_tile > first_tile) {
        copy_bytes<query_tile, HEAD_DIM, THREADS, VECTOR, row_order::natural>(shared + Q_OFFSET, q, p.q_row_stride,
                                                                              first_query, queries.rows);
        cp_async_commit();
        copy_k(end_tile - 1, shared + K_OFFSET);
        cp_async_commit();

        query_fragments q_fragments;
        cp_async_wait<1>();  // Q has arrived; K may still be in flight
        block_sync();
        KGEN_UNROLL
        for (int step = 0; step < HEAD_DIM_PADDED / 32; ++step) {
            KGEN_UNROLL
            for (int t = 0; t < M_TILES; ++t)
                ldmatrix_x4(q_fragments[step][t],
                            fragment_address<query_tile>(shared + Q_OFFSET, q_lanes, t * 16, step));
        }

        for (int tile = end_tile - 1; tile >= first_tile; --tile) {
            cp_async_wait<0>();
            block_sync();  // K(tile) is visible to all threads, and no warp still reads V(tile + 1)
            copy_v(tile, shared + V_OFFSET);
            cp_async_commit();
            scores s;
            multiply_q_k(s, q_fragments, shared + K_OFFSET, k_lanes);
            cp_async_wait<0>();
            block_sync();  // V(tile) is visible to all threads, and no warp still reads K(tile)
            if (tile > first_tile) {
                copy_k(tile - 1, shared + K_OFFSET);
                cp_async_commit();
            }
            prepare(s, tile);
            multiply_p_v(state, s, shared + V_OFFSET, v_lanes);
        }
    }

    write_output<VECTOR>(state, p, log2_scale);
}

}  // namespace

extern "C" int flash_fwd_hdim224_fp8_causal_sm121(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr fwd_identity self = {"flash_fwd_hdim224_fp8_causal_sm121", HEAD_DIM, KGEN_DTYPE_FP8_E4M3,
                                   KGEN_FEATURE_CAUSAL};
    kgen_fwd_params params;
    if (const int code = check_fwd_params(given, self, params)) return code;
    const uint64_t blocks = product(tiles_of(params.seqlen_q, BLOCK_M), params.num_heads, params.batch);
    if (const int code = check_blocks(self.name, blocks, params)) return code;
    const auto kernel = fwd_is_aligned(params, sizeof(e4m3)) ? attention<true> : attention<false>;
    return launch(kernel, self.name, static_cast<uint32_t>(blocks), THREADS, SHARED_BYTES, params, stream);
}
