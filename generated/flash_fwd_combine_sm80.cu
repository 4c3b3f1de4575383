// flash_fwd_combine_sm80
//
// Flash Attention, split-KV forward, second half: merges the partial results that fwd_split kernels have written to the
// workspace (kgen/split_params.cuh) into O and LSE. Any head dim and dtype, compute capability 8.0 and newer.
//
// If split counts are given, rows of sequences with one split are complete already.
//
// The weight of a split is exp(LSE of the split - total LSE); the head's sink, if the call has sinks, is part of the
// total.
//
// Few rows (queries of a head), as in decoding: one block of 128 threads for each.
// Threads read 8 columns each; if a row has fewer than 128 such pieces, several splits are read at once.
// More rows than blocks that run at once, as of prompts, of up to 256 columns: one warp for each.
//
// Made by kgen 0.1.0 from templates/attention/fwd_combine.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode "arch=compute_80,code=[sm_80,compute_80]" -Iinclude -c flash_fwd_combine_sm80.cu

#include "kgen.h"
#include "kgen/blocks.cuh"
#include "kgen/device.cuh"
#include "kgen/features.cuh"
#include "kgen/floats.cuh"
#include "kgen/fwd_params.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/math.cuh"
#include "kgen/params.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/split_params.cuh"
#include "kgen/split_plan.cuh"
#include "kgen/strides.cuh"
#include "kgen/sync.cuh"
#include "kgen/types.cuh"

namespace {

using namespace kgen;

constexpr int THREADS = 128;
constexpr int PIECE = 8;                                            // columns per thread
constexpr int BLOCKS_AT_ONCE = 8;                                 // of a multiprocessor, with a block for each row
constexpr uint32_t SHARED_BYTES = 4096;  // one fp32 piece per thread
static_assert(SHARED_BYTES == THREADS * PIECE * sizeof(float), "a piece of fp32 a thread");

constexpr float LOG2_E = 1.44269504088896341f;
constexpr float LN_2 = 0.69314718055994531f;

// Threads per row of a split: the pieces of a row, rounded up to a power of two (64 at most: head dim 512).
KGEN_DEVICE int threads_a_row(int head_dim_v) {
    int threads = 1;
    while (threads * PIECE < head_dim_v) threads *= 2;
    return threads;
}

KGEN_DEVICE uint32_t pack_as(int dtype, float low, float high) {
    return dtype == KGEN_DTYPE_FP16 ? pack<fp16>(low, high) : pack<bf16>(low, high);
}

// Writes 8 columns of a row of O; with `VECTOR` in one piece of 16 bytes.
template <bool VECTOR>
KGEN_DEVICE void store_columns(uint16_t* to, const float (&o)[PIECE], int dtype) {
    uint32_t words[4];
    KGEN_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = pack_as(dtype, o[2 * i], o[2 * i + 1]);
    if constexpr (VECTOR) {
        store_global(static_cast<void*>(to), words4{words[0], words[1], words[2], words[3]});
    } else {
        KGEN_UNROLL
        for (int i = 0; i < PIECE; ++i) store_global(to + i, static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
    }
}

// A row of the launch, which a block or a warp merges: a query of a head.
struct output_row {
    int head, query, batch, splits;
    sequence queries;
    int64_t first_part, split_stride;  // the workspace's rows of its first split, and between two splits

    KGEN_DEVICE output_row(const kgen_fwd_params& p, uint32_t index)
        : head(index % p.num_heads), query(index / p.num_heads % p.seqlen_q), batch(index / p.num_heads / p.seqlen_q),
          splits(split_count(p, batch)),
          queries(sequence_of(batch, p.cu_seqlens_q, p.seqused_q, p.seqlen_q)),
          first_part(split_workspace_row(p, 0, queries, batch, query, head)),
          split_stride(split_total_rows(p) * p.num_heads) {}

    // The row is beyond its sequence, or complete.
    KGEN_DEVICE bool needs_nothing(const kgen_fwd_params& p) const {
        return query >= queries.rows || writes_whole(p, splits);
    }

    KGEN_DEVICE float lse_of(const kgen_fwd_params& p, int split) const {
        return load_global(split_lse(p, first_part + split * split_stride));
    }

    KGEN_DEVICE const floats4* part_of(const kgen_fwd_params& p, int split, int column) const {
        return reinterpret_cast<const floats4*>(split_output(p, first_part + split * split_stride) + column);
    }

    KGEN_DEVICE uint16_t* output(const kgen_fwd_params& p, int column) const {
        return static_cast<uint16_t*>(p.o) +
               sequence_offset(queries, batch, head, p.o_batch_stride, p.o_row_stride, p.o_head_stride) +
               query * p.o_row_stride + column;
    }

    KGEN_DEVICE void store_lse(const kgen_fwd_params& p, float lse) const {
        const int64_t sequence_start = queries.packed ? queries.first_row : batch * p.lse_batch_stride;
        store_global(p.lse + sequence_start + head * p.lse_head_stride + query, lse);
    }
};

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

struct many_rows {
    kgen_fwd_params call;
    uint32_t rows;   // query rows of all heads and sequences
    uint32_t warps;  // of the launch
};

constexpr int WARPS = THREADS / 32;

constexpr int MOST_COLUMNS = 32 * PIECE;  // of a row that a warp reads at once

// A warp merges one row after another: with a block each, starting blocks would take longer than merging. Lanes read 8
// columns each, and a warp several splits at once if a row has fewer than 32 such pieces.
template <bool VECTOR>
KGEN_KERNEL(THREADS, BLOCKS_AT_ONCE) combine_many(KGEN_PARAMETER many_rows given) {
    constexpr int AT_ONCE = 2;  // splits whose loads a lane has in flight
    const kgen_fwd_params& p = given.call;
    const int width = threads_a_row(p.head_dim_v), team = lane_index() / width, teams = 32 / width;
    KGEN_ROLLED
    for (uint32_t index = block_index() * WARPS + warp_index(); index < given.rows; index += given.warps) {
        const output_row row(p, index);
        if (row.needs_nothing(p)) continue;
        const auto lse_of = [&](int split) { return row.lse_of(p, split); };
        const merged_row merged = merge_row(row.splits, read_sink(p, row.head), lse_of);
        if (p.lse != nullptr && lane_index() == 0) row.store_lse(p, merged.lse);
        const int column = lane_index() % width * PIECE;
        const bool has_columns = column < p.head_dim_v;
        float o[PIECE] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        KGEN_ROLLED
        for (int split = team; has_columns && split < row.splits; split += teams * AT_ONCE) {
            floats4 low[AT_ONCE], high[AT_ONCE];
            float factor[AT_ONCE];
            KGEN_UNROLL
            for (int i = 0; i < AT_ONCE; ++i) {
                const int other = split + i * teams;
                const float lse = other < row.splits ? lse_of(other) : -infinity();
                factor[i] = merged.factor(lse);
                low[i] = {0.0f, 0.0f, 0.0f, 0.0f}, high[i] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (lse == -infinity()) continue;  // its O is undefined
                const floats4* from = row.part_of(p, other, column);
                low[i] = load_global(from), high[i] = load_global(from + 1);
            }
            KGEN_UNROLL
            for (int i = 0; i < AT_ONCE; ++i) {
                const float part[PIECE] = {low[i].x, low[i].y, low[i].z, low[i].w, high[i].x, high[i].y, high[i].z,
                                           high[i].w};
                KGEN_UNROLL
                for (int c = 0; c < PIECE; ++c) o[c] = fused_multiply_add(factor[i], part[c], o[c]);
            }
        }
        KGEN_ROLLED
        for (int step = width; step < 32; step *= 2) {
            KGEN_UNROLL
            for (int c = 0; c < PIECE; ++c) o[c] += shuffle_xor(o[c], step);
        }
        if (team == 0 && has_columns) store_columns<VECTOR>(row.output(p, column), o, p.dtype);
    }
}

template <bool VECTOR>
KGEN_KERNEL(THREADS, 1) combine(KGEN_PARAMETER kgen_fwd_params p) {
    const output_row row(p, block_index());
    if (row.needs_nothing(p)) return;
    const auto lse_of = [&](int split) { return row.lse_of(p, split); };
    // each warp computes it for itself
    const merged_row merged = merge_row(row.splits, read_sink(p, row.head), lse_of);

    const int width = threads_a_row(p.head_dim_v);
    const int piece = thread_index() % width, team = thread_index() / width, teams = THREADS / width;
    const bool has_columns = piece * PIECE < p.head_dim_v;
    float o[PIECE] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (has_columns) {
        for (int split = team; split < row.splits; split += teams) {
            const float lse = lse_of(split);
            if (lse == -infinity()) continue;  // its O is undefined
            const float w = merged.factor(lse);
            const floats4* from = row.part_of(p, split, piece * PIECE);
            const floats4 low = load_global(from), high = load_global(from + 1);
            const float part[PIECE] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            KGEN_UNROLL
            for (int i = 0; i < PIECE; ++i) o[i] = fused_multiply_add(w, part[i], o[i]);
        }
    }
    const uint32_t mine = shared_base() + thread_index() * (PIECE * sizeof(float));
    store_shared(mine, floats4{o[0], o[1], o[2], o[3]});
    store_shared(mine + 16, floats4{o[4], o[5], o[6], o[7]});
    block_sync();  // every team's part is visible

    if (p.lse != nullptr && thread_index() == 0) row.store_lse(p, merged.lse);
    if (team != 0 || !has_columns) return;
    for (int other = 1; other < teams; ++other) {
        const uint32_t theirs = mine + other * width * (PIECE * sizeof(float));
        const floats4 low = load_shared_floats(theirs), high = load_shared_floats(theirs + 16);
        const float part[PIECE] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        KGEN_UNROLL
        for (int i = 0; i < PIECE; ++i) o[i] += part[i];
    }
    store_columns<VECTOR>(row.output(p, piece * PIECE), o, p.dtype);
}

}  // namespace

extern "C" int flash_fwd_combine_sm80(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr const char* self = "flash_fwd_combine_sm80";
    kgen_fwd_params params;
    if (const int code = copy_fwd_params(given, self, params)) return code;
    if (const int code = check_shapes(params, FEATURE_FLAGS, self)) return code;
    if (const int code = check_split_numbers(params, self)) return code;
    if (const int code = refuse_query_limits(params, self)) return code;
    if (params.head_dim < 8 || params.head_dim > 256 || params.head_dim % 8 != 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: head_dim %d must be a multiple of 8 from 8 to 256", self,
                    params.head_dim);
    }
    if (params.head_dim_v < 8 || params.head_dim_v > 512 || params.head_dim_v % 8 != 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: head_dim_v %d must be a multiple of 8 from 8 to 512", self,
                    params.head_dim_v);
    }
    if (params.dtype < KGEN_DTYPE_FP16 || params.dtype > KGEN_DTYPE_FP8_E4M3) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: unknown dtype %d", self, params.dtype);
    }
    const uint64_t blocks = product(params.batch, params.seqlen_q, params.num_heads);
    if (blocks == 0) return KGEN_SUCCESS;
    if (const int code = check_blocks(self, blocks, params)) return code;
    if (params.o == nullptr) return fail(KGEN_ERROR_INVALID_VALUE, "%s: o must not be NULL", self);
    if (const int code = check_merged_strides(params, self)) return code;
    if (const int code = check_split_workspace(params, self)) return code;
    const bool aligned = rows_are_aligned(params.o, params.cu_seqlens_q ? 0 : params.o_batch_stride,
                                          params.o_row_stride, params.o_head_stride);
    const int multiprocessors = multiprocessor_count();
    if (multiprocessors == 0) return KGEN_ERROR_LAUNCH;  // last_error holds the reason
    const uint64_t at_once = static_cast<uint64_t>(multiprocessors) * BLOCKS_AT_ONCE;
    if (blocks > at_once && params.head_dim_v <= MOST_COLUMNS) {
        const uint32_t launched = static_cast<uint32_t>(tiles_of(blocks, WARPS) < at_once ? tiles_of(blocks, WARPS)
                                                                                          : at_once);
        const many_rows given_to_kernel = {params, static_cast<uint32_t>(blocks), launched * WARPS};
        const auto of_many = aligned ? combine_many<true> : combine_many<false>;
        return launch(of_many, self, launched, THREADS, 0, given_to_kernel, stream);
    }
    const auto kernel = aligned ? combine<true> : combine<false>;
    return launch(kernel, self, static_cast<uint32_t>(blocks), THREADS, SHARED_BYTES, params, stream);
}
