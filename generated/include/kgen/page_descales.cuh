// Per-page factors of K and V (kgen_fwd_params.k_page_descale): their addresses, and their path through shared memory
// to the columns of S and P. S is multiplied by K's factors after the product, P by V's before it is rounded:
// multiplying K and V themselves would round them once more.
#pragma once

#include "kgen.h"
#include "kgen/floats.cuh"
#include "kgen/global.cuh"
#include "kgen/pages.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"

namespace kgen {

// The factors of one tensor at one key head.
struct page_descales {
    const float* base;  // NULL: all are 1
    int64_t page_stride;

    KGEN_DEVICE float of_page(int page) const {
        return base == nullptr ? 1.0f : load_global(base + page * page_stride);
    }
};

KGEN_DEVICE page_descales page_descales_of(const float* descales, int64_t page_stride, int64_t head_stride,
                                           int head_k) {
    return {descales == nullptr ? nullptr : descales + head_k * head_stride, page_stride};
}

// Factors of K and V for some rows of a tile, in registers: thread t of THREADS has those of rows t, t + THREADS and so
// on.
template <int ROWS, int THREADS>
struct staged_descales {
    static constexpr int count = (ROWS + THREADS - 1) / THREADS;

    float k[count], v[count];
};

// Starts loading the factors of rows `first_row` .. `first_row + ROWS` of a sequence; for rows from `rows` on they are
// 1, without any read.
template <int ROWS, int THREADS>
KGEN_DEVICE void stage_descales(staged_descales<ROWS, THREADS>& staged, const kgen_fwd_params& p, int head_k,
                                const sequence_pages& pages, int thread, int first_row, int rows) {
    const page_descales k = page_descales_of(p.k_page_descale, p.k_page_descale_page_stride,
                                             p.k_page_descale_head_stride, head_k);
    const page_descales v = page_descales_of(p.v_page_descale, p.v_page_descale_page_stride,
                                             p.v_page_descale_head_stride, head_k);
    KGEN_UNROLL
    for (int i = 0; i < staged.count; ++i) {
        const int row = thread + i * THREADS;
        staged.k[i] = staged.v[i] = 1.0f;
        if (row < ROWS && first_row + row < rows) {
            const int page = pages.of_row(first_row + row);
            staged.k[i] = k.of_page(page);
            staged.v[i] = v.of_page(page);
        }
    }
}

// Stores one tensor's factors, that of row r at `to` + 4 r.
template <int ROWS, int THREADS, int COUNT>
KGEN_DEVICE void put_descales(uint32_t to, const float (&staged)[COUNT], int thread) {
    KGEN_UNROLL
    for (int i = 0; i < COUNT; ++i) {
        const int row = thread + i * THREADS;
        if (row < ROWS) store_shared(to + row * 4, staged[i]);
    }
}

// Multiplies each column of S or P, in the accumulators' layout, by its factor at `descales`.
template <int PIECES, int TILES>
KGEN_DEVICE void multiply_columns(float (&s)[PIECES][TILES][4], uint32_t descales) {
    const uint32_t own = descales + lane_index() % 4 * 8;
    KGEN_UNROLL
    for (int j = 0; j < TILES; ++j) {
        float even, odd;
        load_shared_pair(own + j * 32, even, odd);
        KGEN_UNROLL
        for (int t = 0; t < PIECES; ++t) {
            s[t][j][0] *= even;
            s[t][j][1] *= odd;
            s[t][j][2] *= even;
            s[t][j][3] *= odd;
        }
    }
}

}  // namespace kgen
