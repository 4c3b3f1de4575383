// An additive bias of the scores, read from device memory as it is needed: element (b, h, i, j) belongs to batch entry
// b, query head h, query i and key j of the sequence. Its type is fp32 or that of O.
#pragma once

#include "kgen.h"
#include "kgen/floats.cuh"
#include "kgen/global.cuh"
#include "kgen/math.cuh"
#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// The bias of one query head of one sequence.
struct head_bias {
    const uint8_t* start;  // element (0, 0); NULL: there is no bias
    int queries, keys;     // of the sequence; queries and keys beyond have no bias

    // The query at `position`. Rows of a tile that are no queries read the first or the last query's bias, which does
    // not matter.
    KGEN_DEVICE int row(int position) const { return min(max(position - (keys - queries), 0), queries - 1); }
};

template <class Params>
KGEN_DEVICE head_bias read_bias(const Params& p, int batch, int head, int queries, int keys) {
    const int64_t offset = batch * p.bias_batch_stride + head * p.bias_head_stride;
    const int shift = p.bias_dtype == KGEN_DTYPE_FP32 ? 2 : 1;
    const uint8_t* start = p.bias == nullptr ? nullptr : static_cast<const uint8_t*>(p.bias) + (offset << shift);
    return {start, queries, keys};
}

// An element of the bias as fp32. T: the 16-bit type.
template <class T>
KGEN_DEVICE float bias_value(float element) { return element; }

template <class T>
KGEN_DEVICE float bias_value(uint16_t element) {
    float low, high;
    unpack<T>(element, low, high);
    return low;
}

// The elements of two keys; 0 for a key that the sequence does not have. ADJACENT: they are at a multiple of their
// size.
template <class T, bool ADJACENT>
KGEN_DEVICE void load_bias(const float* row, int64_t stride, int key, int keys, float& low, float& high) {
    const bool has_low = static_cast<uint32_t>(key) < static_cast<uint32_t>(keys);
    const bool has_high = static_cast<uint32_t>(key + 1) < static_cast<uint32_t>(keys);
    low = high = 0.0f;
    if (ADJACENT && has_low && has_high) {
        load_global_pair(row + key, low, high);
    } else {
        if (has_low) low = load_global(row + key * stride);
        if (has_high) high = load_global(row + (key + 1) * stride);
    }
}

template <class T, bool ADJACENT>
KGEN_DEVICE void load_bias(const uint16_t* row, int64_t stride, int key, int keys, float& low, float& high) {
    const bool has_low = static_cast<uint32_t>(key) < static_cast<uint32_t>(keys);
    const bool has_high = static_cast<uint32_t>(key + 1) < static_cast<uint32_t>(keys);
    uint32_t both = 0;
    if (ADJACENT && has_low && has_high) {
        both = load_global(reinterpret_cast<const uint32_t*>(row + key));
    } else {
        if (has_low) both = load_global(row + key * stride);
        if (has_high) both |= static_cast<uint32_t>(load_global(row + (key + 1) * stride)) << 16;
    }
    unpack<T>(both, low, high);
}

// s = s * `scale` + the bias of the row, for a lane's part of the row: columns `key` + j * 8 and the next.
template <class T, bool ADJACENT, class Element, int CHUNKS>
KGEN_DEVICE void add_row(float (&s)[CHUNKS][4], int h, float scale, const Element* row, int64_t stride, int key,
                         int keys) {
    KGEN_UNROLL
    for (int j = 0; j < CHUNKS; ++j) {
        float low, high;
        load_bias<T, ADJACENT>(row, stride, key + j * 8, keys, low, high);
        s[j][2 * h] = fused_multiply_add(s[j][2 * h], scale, low);
        s[j][2 * h + 1] = fused_multiply_add(s[j][2 * h + 1], scale, high);
        if (j % 2 == 1) row = opaque_after(row, s[j][2 * h + 1]);  // few loads at a time: registers are scarce
    }
}

template <class T, bool BY_PAIRS, class Element, int CHUNKS>
KGEN_DEVICE void add_row_from(float (&s)[CHUNKS][4], int h, float scale, const Element* row, int64_t stride, int key,
                              int keys) {
    if (BY_PAIRS && stride == 1 && reinterpret_cast<uintptr_t>(row + key) % (2 * sizeof(Element)) == 0)
        add_row<T, true>(s, h, scale, row, stride, key, keys);
    else add_row<T, false>(s, h, scale, row, stride, key, keys);
}

// Returns the maximum that the exponentials of a row subtract: 0 if the row has seen no key, so that all of them are 0.
// If |max| exceeds 1024, the rounding error of max * log2(e) would change weights by more than 2^-14: then max is
// subtracted from the lane's part of the row here, and 0 is returned.
template <int CHUNKS>
KGEN_DEVICE float subtract_far_maximum(float (&s)[CHUNKS][4], int h, float max) {
    if (max == -infinity()) return 0.0f;
    if (absolute(max) <= 1024.0f) return max;
    KGEN_UNROLL
    for (int j = 0; j < CHUNKS; ++j) {
        s[j][2 * h] -= max;
        s[j][2 * h + 1] -= max;
    }
    return 0.0f;
}

// s = s * `scale` + bias, for a lane's part of the row at `position`; `first_key`: the key of column 0. T: the 16-bit
// type. BY_PAIRS: adjacent elements are loaded together where they are aligned, which takes registers.
template <class T, bool BY_PAIRS = true, class Params, int CHUNKS>
KGEN_DEVICE void add_bias(float (&s)[CHUNKS][4], int h, float scale, const Params& p, const head_bias& bias,
                          int position, int first_key) {
    if (bias.start == nullptr) {
        KGEN_UNROLL
        for (int j = 0; j < CHUNKS; ++j) {
            s[j][2 * h] *= scale;
            s[j][2 * h + 1] *= scale;
        }
        return;
    }
    const int64_t offset = bias.row(position) * p.bias_row_stride, stride = p.bias_column_stride;
    const int key = first_key + static_cast<int>(lane_index() % 4 * 2);
    if (p.bias_dtype == KGEN_DTYPE_FP32) {
        const float* row = reinterpret_cast<const float*>(bias.start) + offset;
        add_row_from<T, BY_PAIRS>(s, h, scale, row, stride, key, bias.keys);
    } else {
        const uint16_t* row = reinterpret_cast<const uint16_t*>(bias.start) + offset;
        add_row_from<T, BY_PAIRS>(s, h, scale, row, stride, key, bias.keys);
    }
}

}  // namespace kgen
