// reduce_logsumexp_bf16_sm80
//
// Logarithm of the sum of exponentials of each row of a matrix of bf16, in fp32, for compute capability 8.0 and newer.
//
// A block of 256 threads reads a row of up to 65536 elements, or a chunk of 32768 elements of a longer one: each thread
// takes every 256th piece of 16 bytes, 4 of them in a round, and folds each piece as a tree while the next round is
// in flight. Then lanes fold by butterflies, and so do warps. If rows have several chunks, a second kernel folds the
// chunks' results. Rows of up to 4096 elements take a
// warp each, or as few of its lanes as leave each 4 pieces in flight. All of this depends only on the length of
// a row, so its result has the same bits in every run.
//
// Made by kgen 0.1.0 from templates/reduce/reduce.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode "arch=compute_80,code=[sm_80,compute_80]" -Iinclude -c reduce_logsumexp_bf16_sm80.cu

#include "kgen.h"
#include "kgen/atomics.cuh"
#include "kgen/contiguous.cuh"
#include "kgen/floats.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/math.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"
#include "kgen/types.cuh"

namespace {

using namespace kgen;

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr uint32_t WARPS_TO_FOLD = 8;                 // WARPS, or the next power of two
constexpr int MIN_BLOCKS_PER_SM = 4;
constexpr int MIN_BLOCKS_OF_ONE_ROUND = 5;       // one round takes fewer registers, and only occupancy hides latency
constexpr int PIECES = 4;                       // of 16 bytes, in flight per thread
constexpr uint64_t CHUNK = 32768;                 // elements of a row that a block reads, if several read it
constexpr uint64_t WHOLE_ROW = 65536;             // elements of a row, at most, that one block reads
constexpr uint64_t SHORT_ROW = 4096;              // elements of a row, at most, that a warp reads
constexpr int PARTIAL = 16;                      // chunks' results in flight per thread
constexpr uint32_t SHARED_BYTES = 64;            // the state of every warp

using element = uint16_t;  // the bits of bf16
using piece = words4;
constexpr int PIECE_ELEMENTS = 8;

KGEN_DEVICE void widen(piece from, float (&values)[PIECE_ELEMENTS]) {
    unpack<bf16>(from.x, values[0], values[1]);
    unpack<bf16>(from.y, values[2], values[3]);
    unpack<bf16>(from.z, values[4], values[5]);
    unpack<bf16>(from.w, values[6], values[7]);
}

KGEN_DEVICE uint32_t pair_of(element low, element high) { return low | static_cast<uint32_t>(high) << 16; }

KGEN_DEVICE piece piece_of(const element (&e)[PIECE_ELEMENTS]) {
    return {pair_of(e[0], e[1]), pair_of(e[2], e[3]), pair_of(e[4], e[5]), pair_of(e[6], e[7])};
}

// The value of an absent element: the bits of -infinity.
KGEN_DEVICE element absent() { return 0xff80; }

constexpr float LOG2_E = 1.44269504088896341f;
constexpr float LN_2 = 0.69314718055994531f;

// The largest element, and the sum of exp(element - largest).
struct state {
    float largest, sum;
};

KGEN_DEVICE state nothing() { return {-infinity(), 0.0f}; }

// The reference of exponents: the largest element; 0 if that is infinite or there is none, so that no infinity is
// subtracted from itself.
KGEN_DEVICE float reference(float largest) { return largest == infinity() || largest == -infinity() ? 0.0f : largest; }

// exp(x - reference): 0 for -infinity.
KGEN_DEVICE float weight(float x, float reference) { return exp2_fast((x - reference) * LOG2_E); }

KGEN_DEVICE state fold(state a, state b) {
    const float largest = maximum(a.largest, b.largest), base = reference(largest);
    return {largest, a.sum * weight(a.largest, base) + b.sum * weight(b.largest, base)};
}

KGEN_DEVICE uint32_t again(uint32_t word) { return static_cast<uint32_t>(opaque(static_cast<int>(word))); }

// Makes the compiler widen a piece a second time: otherwise it would keep all wide elements in registers.
KGEN_DEVICE piece again(piece p) { return {again(p.x), again(p.y), again(p.z), again(p.w)}; }

// All pieces share one maximum, so that the previous sum is rescaled once. Piece i begins
// i * PIECE_ELEMENTS * stride elements after `at`; those that begin at `end` or beyond cost no exponentials.
KGEN_DEVICE state fold(state s, const piece (&pieces)[PIECES], uint32_t at, uint32_t end, uint32_t stride) {
    int there = 0;
    KGEN_UNROLL
    for (int i = 0; i < PIECES; ++i) there += at + i * PIECE_ELEMENTS * stride < end;
    float largest = s.largest;
    KGEN_UNROLL
    for (int i = 0; i < PIECES; ++i) {
        float values[PIECE_ELEMENTS];
        widen(pieces[i], values);
        KGEN_UNROLL
        for (int step = 1; step < PIECE_ELEMENTS; step *= 2) {
            KGEN_UNROLL
            for (int e = 0; e + step < PIECE_ELEMENTS; e += 2 * step) values[e] = maximum(values[e], values[e + step]);
        }
        largest = maximum(largest, values[0]);
    }
    const float base = reference(largest);
    float sum = s.sum * weight(s.largest, base);
    KGEN_UNROLL
    for (int i = 0; i < PIECES; ++i) {
        if (i >= there) break;
        float weights[PIECE_ELEMENTS];
        widen(again(pieces[i]), weights);
        KGEN_UNROLL
        for (int e = 0; e < PIECE_ELEMENTS; ++e) weights[e] = weight(weights[e], base);
        KGEN_UNROLL
        for (int step = 1; step < PIECE_ELEMENTS; step *= 2) {
            KGEN_UNROLL
            for (int e = 0; e + step < PIECE_ELEMENTS; e += 2 * step) weights[e] += weights[e + step];
        }
        sum += weights[0];
    }
    return {largest, sum};
}

KGEN_DEVICE float result(state s) {
    return s.sum == 0.0f ? -infinity() : fused_multiply_add(LN_2, log2_fast(s.sum), s.largest);
}

struct work {
    const element* in;
    float* out;
    state* partial;  // by row and chunk
    uint64_t rows, columns;
    uint64_t chunks;     // of a row
    uint32_t lane_bits;  // a short row is reduced by 1 << lane_bits lanes
};

// Alignment of a row: `whole` pieces at multiples of 16 bytes; `ragged`, the same but with a last piece that may not be
// whole; or `anyhow`, any other.
enum class lying { whole, ragged, anyhow };

// The piece of a row that begins at `at`; elements at `end` or beyond are absent.
template <lying ROW>
KGEN_DEVICE piece read(const element* row, uint32_t at, uint32_t end) {
    if (ROW != lying::anyhow && at + PIECE_ELEMENTS <= end)
        return load_global(reinterpret_cast<const piece*>(row + at));
    element elements[PIECE_ELEMENTS];
    KGEN_UNROLL
    for (int e = 0; e < PIECE_ELEMENTS; ++e)
        elements[e] = ROW != lying::whole && at + e < end ? load_global(row + at + e) : absent();
    return piece_of(elements);
}

template <lying ROW>
KGEN_DEVICE void read_round(const element* row, uint32_t at, uint32_t end, uint32_t stride, piece (&pieces)[PIECES]) {
    KGEN_UNROLL
    for (int i = 0; i < PIECES; ++i) pieces[i] = read<ROW>(row, at + i * PIECE_ELEMENTS * stride, end);
}

// The amount of a row that is read at a time: all of it in one round; a round; or two, the later of which is in flight
// while the earlier one is folded.
enum class rounds { one, each, ahead };

// Folds the first `end` elements of a row: every `stride`-th piece, from piece `first` on.
template <lying ROW, rounds READ>
KGEN_DEVICE state fold_row(const element* row, uint32_t end, uint32_t first, uint32_t stride) {
    state s = nothing();
    const uint32_t round = PIECES * PIECE_ELEMENTS * stride;
    uint32_t at = first * PIECE_ELEMENTS;
    if constexpr (READ == rounds::each) {
        for (; at < end; at += round) {
            piece pieces[PIECES];
            read_round<ROW>(row, at, end, stride, pieces);
            s = fold(s, pieces, at, end, stride);
        }
        return s;
    }
    if (at >= end) return s;
    piece pieces[PIECES];
    read_round<ROW>(row, at, end, stride, pieces);
    if constexpr (READ == rounds::ahead) {
        for (uint32_t next = at + round; next < end; at = next, next += round) {
            piece later[PIECES];
            read_round<ROW>(row, next, end, stride, later);
            s = fold(s, pieces, at, end, stride);
            KGEN_UNROLL
            for (int i = 0; i < PIECES; ++i) pieces[i] = later[i];
        }
    }
    return fold(s, pieces, at, end, stride);
}

// Combines the states of `lanes` neighbouring lanes, in each of them. The lower lane's state comes first, so that all
// get the same bits.
KGEN_DEVICE state fold_lanes(state s, uint32_t lanes) {
    KGEN_UNROLL
    for (uint32_t step = 1; step < 32; step *= 2) {
        if (step >= lanes) break;
        state other;
        other.largest = shuffle_xor(s.largest, static_cast<int>(step));
        other.sum = shuffle_xor(s.sum, static_cast<int>(step));
        s = (lane_index() & step) == 0 ? fold(s, other) : fold(other, s);
    }
    return s;
}

// Combines the states of all threads of the block; the result is valid in thread 0.
KGEN_DEVICE state fold_block(state s) {
    s = fold_lanes(s, 32);
    const uint32_t mine = shared_base() + thread_index() / 32 * static_cast<uint32_t>(sizeof(state));
    if (lane_index() == 0) {
        store_shared(mine, s.largest, s.sum);
    }
    block_sync();  // the state of every warp is visible
    if (thread_index() >= 32) return s;
    state other = nothing();
    if (lane_index() < WARPS) {
        const uint32_t theirs = shared_base() + lane_index() * static_cast<uint32_t>(sizeof(state));
        load_shared_pair(theirs, other.largest, other.sum);
    }
    return fold_lanes(other, WARPS_TO_FOLD);
}

template <lying ROW, bool ONE_ROUND>
KGEN_KERNEL(THREADS, ONE_ROUND ? MIN_BLOCKS_OF_ONE_ROUND : MIN_BLOCKS_PER_SM) reduce_short_rows(KGEN_PARAMETER work w) {
    const uint64_t row = (static_cast<uint64_t>(block_index()) * THREADS + thread_index()) >> w.lane_bits;
    const uint32_t lanes = 1u << w.lane_bits, lane = lane_index() & (lanes - 1);
    // Lanes beyond the last row have nothing to fold and take part in the shuffles.
    const uint32_t end = row < w.rows ? static_cast<uint32_t>(w.columns) : 0;
    const element* from = w.in + row * w.columns;
    const state s = fold_lanes(fold_row<ROW, ONE_ROUND ? rounds::one : rounds::each>(from, end, lane, lanes), lanes);
    if (lane == 0 && row < w.rows) store_global(w.out + row, result(s));
}

template <lying ROW>
KGEN_KERNEL(THREADS, MIN_BLOCKS_PER_SM) reduce_chunks(KGEN_PARAMETER work w) {
    const uint64_t row = block_index() / w.chunks, chunk = block_index() % w.chunks;
    const uint64_t begin = chunk * CHUNK, left = w.columns - begin;
    const auto end = static_cast<uint32_t>(w.chunks == 1 || left < CHUNK ? left : CHUNK);
    // Addresses of single elements take the registers that a second round would need.
    constexpr rounds READ = ROW == lying::whole ? rounds::ahead : rounds::each;
    const state s = fold_block(fold_row<ROW, READ>(w.in + row * w.columns + begin, end, thread_index(), THREADS));
    if (thread_index() != 0) return;
    if (w.chunks == 1) {
        store_global(w.out + block_index(), result(s));  // `row` would take registers until here
    } else {
        auto* to = reinterpret_cast<float*>(w.partial + block_index());
        store_global(to, s.largest);
        store_global(to + 1, s.sum);
    }
}

KGEN_KERNEL(THREADS, MIN_BLOCKS_PER_SM) reduce_partial(KGEN_PARAMETER work w) {
    const state* row = w.partial + static_cast<uint64_t>(block_index()) * w.chunks;
    state s = nothing();
    for (uint64_t chunk = thread_index(); chunk < w.chunks; chunk += THREADS * PARTIAL) {
        state read[PARTIAL];
        KGEN_UNROLL
        for (int i = 0; i < PARTIAL; ++i) {
            const uint64_t at = chunk + i * THREADS;
            read[i] = nothing();
            if (at >= w.chunks) continue;
            const auto* from = reinterpret_cast<const float*>(row + at);
            read[i] = state{load_written(from), load_written(from + 1)};
        }
        KGEN_UNROLL
        for (int i = 0; i < PARTIAL; ++i) s = fold(s, read[i]);
    }
    s = fold_block(s);
    if (thread_index() == 0) store_global(w.out + block_index(), result(s));
}

// The checks common to the two functions below.
int check_shapes(const kgen_reduce_params& p, const char* self) {
    if (const int code = check_dtype(p.dtype, KGEN_DTYPE_BF16, "bf16", self)) return code;
    constexpr int32_t OPERATION = KGEN_REDUCE_LOGSUMEXP;
    if (p.operation != OPERATION)
        return fail(KGEN_ERROR_MISMATCH, "%s: params.operation is %d; this kernel computes %d", self, p.operation,
                    OPERATION);
    if (p.columns != 0 && p.rows > INT64_MAX / sizeof(element) / p.columns) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: rows x columns is more than any memory holds", self);
    }
    return KGEN_SUCCESS;
}

uint64_t chunks_of(const kgen_reduce_params& p) { return p.columns <= WHOLE_ROW ? 1 : (p.columns + CHUNK - 1) / CHUNK; }

uint64_t partial_bytes(const kgen_reduce_params& p) {
    return chunks_of(p) == 1 ? 0 : p.rows * chunks_of(p) * sizeof(state);
}

}  // namespace

extern "C" size_t reduce_logsumexp_bf16_sm80_workspace(const kgen_reduce_params* given) {
    constexpr const char* self = "reduce_logsumexp_bf16_sm80_workspace";
    kgen_reduce_params params;
    if (copy_params(given, self, "kgen_reduce_params", params) != KGEN_SUCCESS ||
        check_shapes(params, self) != KGEN_SUCCESS)
        return 0;
    return partial_bytes(params);
}

extern "C" int reduce_logsumexp_bf16_sm80(const kgen_reduce_params* given, cudaStream_t stream) {
    constexpr const char* self = "reduce_logsumexp_bf16_sm80";
    kgen_reduce_params params;
    if (const int code = copy_params(given, self, "kgen_reduce_params", params)) return code;
    if (const int code = check_shapes(params, self)) return code;
    if (params.rows == 0) return KGEN_SUCCESS;
    if (params.rows > INT64_MAX / sizeof(float))
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: rows is more than any memory holds", self);
    const span in = {"in", params.in, params.rows * params.columns * sizeof(element)},
        out = {"out", params.out, params.rows * sizeof(float)};
    if (const int code = check_span(in, sizeof(element), self)) return code;
    if (const int code = check_span(out, sizeof(float), self)) return code;
    if (const int code = check_apart(in, out, self)) return code;
    work w = {static_cast<const element*>(params.in), params.out, nullptr, params.rows, params.columns,
              chunks_of(params), 0};
    const bool whole = params.columns % PIECE_ELEMENTS == 0,
        aligned = offset_in_piece(params.in) == 0 && (params.rows == 1 || whole);

    if (params.columns <= SHORT_ROW) {
        while (w.lane_bits < 5 && (PIECES * PIECE_ELEMENTS << w.lane_bits) < static_cast<int64_t>(params.columns))
            ++w.lane_bits;
        const uint64_t rows_of_block = THREADS >> w.lane_bits,
            blocks = (params.rows + rows_of_block - 1) / rows_of_block;
        if (const int code = check_grid(blocks, self)) return code;
        const bool one_round = params.columns <= static_cast<uint64_t>(PIECES * PIECE_ELEMENTS) << w.lane_bits;
        const auto of_pieces = one_round ? reduce_short_rows<lying::whole, true>
                                         : reduce_short_rows<lying::whole, false>;
        return launch(aligned && whole ? of_pieces : reduce_short_rows<lying::anyhow, false>, self,
                      static_cast<uint32_t>(blocks), THREADS, 0, w, stream);
    }
    const uint64_t blocks = params.rows * w.chunks;
    if (const int code = check_grid(blocks, self)) return code;
    const uint64_t needed = partial_bytes(params);
    if (needed != 0) {
        const span workspace = {"workspace", params.workspace, needed};
        if (const int code = check_span(workspace, 16, self)) return code;
        if (params.workspace_bytes < needed) {
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: workspace_bytes is %zu; this takes %llu", self,
                        params.workspace_bytes, static_cast<unsigned long long>(needed));
        }
        if (const int code = check_apart(in, workspace, self)) return code;
        if (const int code = check_apart(out, workspace, self)) return code;
        w.partial = static_cast<state*>(params.workspace);
    }
    const auto of_pieces = whole ? reduce_chunks<lying::whole> : reduce_chunks<lying::ragged>;
    const int code = launch(aligned ? of_pieces : reduce_chunks<lying::anyhow>, self, static_cast<uint32_t>(blocks),
                            THREADS, SHARED_BYTES, w, stream);
    if (code != KGEN_SUCCESS || needed == 0) return code;
    return launch(reduce_partial, self, static_cast<uint32_t>(params.rows), THREADS, SHARED_BYTES, w, stream);
}
