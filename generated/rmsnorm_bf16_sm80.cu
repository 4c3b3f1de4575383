// rmsnorm_bf16_sm80
//
// RMS normalisation of rows of bf16, after a residual is added, for compute capability 8.0 and newer.
//
// A row of up to 1024 elements takes a warp, a longer one a block of 256 threads;
// each lane has 4 pieces of 16 bytes in flight, side by side across the row. Up to
// 8192 elements stay in registers between the sum of squares and the scaling; longer rows are read a
// second time, from L2 mostly. Each thread writes only what it alone has read, so in place is safe.
//
// Made by kgen 0.1.0 from templates/rmsnorm/rmsnorm.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode "arch=compute_80,code=[sm_80,compute_80]" -Iinclude -c rmsnorm_bf16_sm80.cu

#include "kgen.h"
#include "kgen/atomics.cuh"
#include "kgen/contiguous.cuh"
#include "kgen/elements.cuh"
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
constexpr int MIN_BLOCKS_PER_SM = 4;
constexpr int PIECES = 4;           // of 16 bytes, in flight per thread
constexpr uint64_t SHORT_ROW = 1024;  // elements, at most, of a row that a warp takes
constexpr uint64_t HELD_ROW = 8192;   // elements, at most, of a row that stays in registers
constexpr uint32_t SHARED_BYTES = 32;  // the sum of every warp

using element = uint16_t;  // the bits of bf16
using piece = words4;
constexpr int PIECE_ELEMENTS = 8;

KGEN_DEVICE uint32_t sum_pair(uint32_t a, uint32_t b) {
    float a_low, a_high, b_low, b_high;
    unpack<bf16>(a, a_low, a_high);
    unpack<bf16>(b, b_low, b_high);
    return pack<bf16>(a_low + b_low, a_high + b_high);
}

KGEN_DEVICE piece sum(piece a, piece b) {
    return {sum_pair(a.x, b.x), sum_pair(a.y, b.y), sum_pair(a.z, b.z), sum_pair(a.w, b.w)};
}

KGEN_DEVICE float add_squares(float sum, uint32_t pair) {
    float low, high;
    unpack<bf16>(pair, low, high);
    return fused_multiply_add(high, high, fused_multiply_add(low, low, sum));
}

KGEN_DEVICE float add_squares(float sum, piece h) {
    return add_squares(add_squares(add_squares(add_squares(sum, h.x), h.y), h.z), h.w);
}

KGEN_DEVICE uint32_t scaled_pair(uint32_t h, float scale, uint32_t weight) {
    float h_low, h_high, low, high;
    unpack<bf16>(h, h_low, h_high);
    unpack<bf16>(weight, low, high);
    return pack<bf16>(h_low * scale * low, h_high * scale * high);
}

KGEN_DEVICE piece scaled(piece h, float scale, piece w) {
    return {scaled_pair(h.x, scale, w.x), scaled_pair(h.y, scale, w.y), scaled_pair(h.z, scale, w.z),
            scaled_pair(h.w, scale, w.w)};
}

// ── Rows

// The piece of a row that begins at column `at`; columns from `end` on count as 0. Rows are WHOLE if they are
// multiples of 16 bytes at multiples of 16 bytes. Not load_global(): this launch may write what is read here.
template <bool WHOLE>
KGEN_DEVICE piece read(const element* row, uint64_t at, uint64_t end) {
    if constexpr (WHOLE) {
        return at < end ? load_written(reinterpret_cast<const piece*>(row + at)) : piece{};
    } else {
        uint32_t e[PIECE_ELEMENTS];
        KGEN_UNROLL
        for (int i = 0; i < PIECE_ELEMENTS; ++i) e[i] = at + i < end ? load_element(row + at + i) : 0;
        return {e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16};
    }
}

template <bool WHOLE>
KGEN_DEVICE void write(element* row, uint64_t at, uint64_t end, piece p) {
    if constexpr (WHOLE) {
        if (at < end) store_global(row + at, p);
    } else {
        const uint32_t pairs[] = {p.x, p.y, p.z, p.w};
        KGEN_UNROLL
        for (int i = 0; i < PIECE_ELEMENTS; ++i) {
            if (at + i < end) store_global(row + at + i, static_cast<element>(pairs[i / 2] >> i % 2 * 16));
        }
    }
}

// Loads a lane's pieces of a row in a round: a piece at column `at` and at every `stride`-th one after it.
template <bool WHOLE>
KGEN_DEVICE void read_round(const element* row, uint64_t at, uint64_t end, uint32_t stride, piece (&pieces)[PIECES]) {
    KGEN_UNROLL
    for (int i = 0; i < PIECES; ++i) pieces[i] = read<WHOLE>(row, at + i * stride, end);
}

// The sum of all lanes of a row, with the same bits in each: butterflies add the same two numbers on both sides.
template <bool BY_WARP>
KGEN_DEVICE float sum_of_row(float sum) {
    KGEN_UNROLL
    for (int step = 16; step > 0; step /= 2) sum += shuffle_xor(sum, step);
    if constexpr (BY_WARP) return sum;
    if (lane_index() == 0) store_shared(shared_base() + thread_index() / 32 * 4, sum);
    block_sync();  // the sum of every warp is there
    sum = lane_index() < WARPS ? load_shared_float(shared_base() + lane_index() * 4) : 0.0f;
    KGEN_UNROLL
    for (int step = 16; step > 0; step /= 2) sum += shuffle_xor(sum, step);
    return sum;
}

struct work {
    kgen_rmsnorm_params p;
    float share;  // of a column in the mean
};

// Rows that are moved element by element take more registers, for addresses.
template <bool BY_WARP, bool HELD, bool WHOLE>
KGEN_KERNEL(THREADS, WHOLE ? MIN_BLOCKS_PER_SM : 2) normalise(KGEN_PARAMETER work w) {
    constexpr uint32_t LANES = BY_WARP ? 32 : THREADS, STRIDE = LANES * PIECE_ELEMENTS;
    const uint64_t row = static_cast<uint64_t>(block_index()) * (THREADS / LANES) + thread_index() / LANES;
    if (row >= w.p.rows) return;  // a whole warp, of a block whose warps do not meet
    const uint64_t first = thread_index() % LANES * PIECE_ELEMENTS, end = w.p.columns;
    const element* in = static_cast<const element*>(w.p.in) + row * w.p.in_row_stride;
    const element* residual = static_cast<const element*>(w.p.residual) + row * w.p.residual_row_stride;
    const auto* weight = static_cast<const element*>(w.p.weight);
    element* residual_out = static_cast<element*>(w.p.residual_out) + row * w.p.residual_out_row_stride;
    element* out = static_cast<element*>(w.p.out) + row * w.p.out_row_stride;

    piece h[PIECES], weights[PIECES];
    float squares = 0.0f;
    for (uint64_t at = first; HELD ? at == first : at < end; at += PIECES * STRIDE) {
        read_round<WHOLE>(in, at, end, STRIDE, h);
        if (w.p.residual != nullptr) {
            piece other[PIECES];
            read_round<WHOLE>(residual, at, end, STRIDE, other);
            KGEN_UNROLL
            for (int i = 0; i < PIECES; ++i) {
                h[i] = sum(h[i], other[i]);
                write<WHOLE>(residual_out, at + i * STRIDE, end, h[i]);
            }
        }
        KGEN_UNROLL
        for (int i = 0; i < PIECES; ++i) squares = add_squares(squares, h[i]);
    }
    if constexpr (HELD) read_round<WHOLE>(weight, first, end, STRIDE, weights);  // on its way while lanes add
    const float scale = reciprocal_root(fused_multiply_add(sum_of_row<BY_WARP>(squares), w.share, w.p.eps));
    for (uint64_t at = first; HELD ? at == first : at < end; at += PIECES * STRIDE) {
        if constexpr (!HELD) {
            read_round<WHOLE>(w.p.residual != nullptr ? residual_out : in, at, end, STRIDE, h);
            read_round<WHOLE>(weight, at, end, STRIDE, weights);
        }
        KGEN_UNROLL
        for (int i = 0; i < PIECES; ++i) write<WHOLE>(out, at + i * STRIDE, end, scaled(h[i], scale, weights[i]));
    }
}

// ── The launcher

// The memory of a matrix of the call, from its first element to its last. Refuses impossible sizes and strides.
int check_matrix(const char* what, const void* start, int64_t stride, const kgen_rmsnorm_params& p, const char* self,
                 span& matrix) {
    constexpr uint64_t MOST = INT64_MAX / sizeof(element);
    if (p.columns > MOST) return fail(KGEN_ERROR_INVALID_VALUE, "%s: columns is more than any memory holds", self);
    if (p.rows > 1 && stride < static_cast<int64_t>(p.columns)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: %s_row_stride is %lld, less than columns", self, what,
                    static_cast<long long>(stride));
    }
    if (p.rows > 1 && p.rows - 1 > (MOST - p.columns) / stride) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: rows x %s_row_stride is more than any memory holds", self, what);
    }
    matrix = {what, start, ((p.rows - 1) * stride + p.columns) * sizeof(element)};
    return check_span(matrix, sizeof(element), self);
}

// Accepts an output that lies exactly where its input does, and refuses one that shares memory with it otherwise.
int check_in_place(const span& input, int64_t input_stride, const span& output, int64_t output_stride, uint64_t rows,
                   const char* self) {
    if (input.start == output.start && (input_stride == output_stride || rows == 1)) return KGEN_SUCCESS;
    return check_apart(input, output, self);
}

}  // namespace

extern "C" int rmsnorm_bf16_sm80(const kgen_rmsnorm_params* given, cudaStream_t stream) {
    constexpr const char* self = "rmsnorm_bf16_sm80";
    kgen_rmsnorm_params p;
    if (const int code = copy_params(given, self, "kgen_rmsnorm_params", p)) return code;
    if (const int code = check_dtype(p.dtype, KGEN_DTYPE_BF16, "bf16", self)) return code;
    const double eps = p.eps;
    if (!(eps >= 0.0)) return fail(KGEN_ERROR_INVALID_VALUE, "%s: eps is %g; it must be 0 or more", self, eps);
    if (p.rows == 0 || p.columns == 0) return KGEN_SUCCESS;
    if ((p.residual == nullptr) != (p.residual_out == nullptr)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: residual and residual_out must both be NULL, or neither", self);
    }
    span in, out, residual = {}, residual_out = {};
    const span weight = {"weight", p.weight, p.columns * sizeof(element)};
    if (const int code = check_matrix("in", p.in, p.in_row_stride, p, self, in)) return code;
    if (const int code = check_matrix("out", p.out, p.out_row_stride, p, self, out)) return code;
    if (const int code = check_span(weight, sizeof(element), self)) return code;
    if (p.residual != nullptr) {
        const int64_t from = p.residual_row_stride, to = p.residual_out_row_stride;
        if (const int code = check_matrix("residual", p.residual, from, p, self, residual)) return code;
        if (const int code = check_matrix("residual_out", p.residual_out, to, p, self, residual_out)) return code;
        if (const int code = check_in_place(residual, from, residual_out, to, p.rows, self)) return code;
    }
    if (const int code = check_in_place(in, p.in_row_stride, out, p.out_row_stride, p.rows, self)) return code;
    const span* apart[][2] = {
        {&weight, &out}, {&weight, &residual_out}, {&residual, &out}, {&in, &residual_out}, {&residual_out, &out}};
    for (const auto& [input, output] : apart) {
        if (const int code = check_apart(*input, *output, self)) return code;
    }
    const bool by_warp = p.columns <= SHORT_ROW, held = p.columns <= HELD_ROW;
    const uint64_t blocks = by_warp ? p.rows / WARPS + (p.rows % WARPS != 0) : p.rows;
    if (const int code = check_grid(blocks, self)) return code;
    bool whole = p.columns % PIECE_ELEMENTS == 0 && offset_in_piece(p.weight) == 0;
    const struct { const void* start; int64_t stride; } matrices[] = {
        {p.in, p.in_row_stride}, {p.out, p.out_row_stride},
        {p.residual, p.residual_row_stride}, {p.residual_out, p.residual_out_row_stride}};
    for (const auto& m : matrices) {
        if (m.start == nullptr) continue;
        whole = whole && offset_in_piece(m.start) == 0 && (p.rows == 1 || m.stride % PIECE_ELEMENTS == 0);
    }
    const auto of_pieces =
        by_warp ? normalise<true, true, true> : held ? normalise<false, true, true> : normalise<false, false, true>;
    const auto of_elements =
        by_warp ? normalise<true, true, false> : held ? normalise<false, true, false> : normalise<false, false, false>;
    const work w = {p, static_cast<float>(1.0 / static_cast<double>(p.columns))};
    return launch(whole ? of_pieces : of_elements, self, static_cast<uint32_t>(blocks), THREADS, SHARED_BYTES, w,
                        stream);
}
