// A tensor in device memory as TMA sees it, and TMA's requirements. Host code, the same on a GPU and on the emulator.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

namespace kgen {

// The permutation of 16-byte chunks in shared memory, by its span; the values are the CUDA driver's. kgen/tma.cuh has
// the formula.
enum class tma_swizzle : int { none = 0, span_32 = 1, span_64 = 2, span_128 = 3 };

constexpr uint32_t TMA_MAX_RANK = 5;

// Bytes of a swizzle's span; 0 without one.
constexpr uint32_t span_of(tma_swizzle swizzle) {
    return swizzle == tma_swizzle::none ? 0 : 16u << static_cast<int>(swizzle);
}

// Dimensions are ordered from the innermost, whose elements are contiguous, outwards.
struct tensor_view {
    const void* base;
    uint32_t element_bytes;                 // 1, 2 or 4
    uint32_t rank;                          // 2 .. 5
    uint64_t extents[TMA_MAX_RANK];         // elements
    int64_t strides[TMA_MAX_RANK];          // bytes; not read for the innermost dimension and for those of extent 1
    uint32_t box[TMA_MAX_RANK];             // elements per copy
    tma_swizzle swizzle;
};

// Q, K, V or another tensor of their kind; strides in elements.
struct attention_tensor {
    const void* base;
    uint64_t columns, rows, heads, batches;
    int64_t row_stride, head_stride, batch_stride;
};

// True if TMA can copy boxes of the tensor. Otherwise `why` receives the first rule it violates, with the number. (CUDA
// driver API, cuTensorMapEncodeTiled; two rules are kgen's own: a swizzled box is as wide as the swizzle's span, so
// that its layout is the one described in kgen/tma.cuh, and no stride is 0, which the driver's documentation leaves
// open.)
inline bool tma_takes(const tensor_view& view, char* why, size_t why_bytes) {
    const auto refuse = [&](const char* what, uint32_t dimension, long long value, const char* rule) {
        snprintf(why, why_bytes, "the %s of dimension %u is %lld; TMA takes %s", what, dimension, value, rule);
        return false;
    };
    if (reinterpret_cast<uintptr_t>(view.base) % 16 != 0 || view.base == nullptr) {
        snprintf(why, why_bytes, "the tensor starts at %p; TMA takes multiples of 16 bytes", view.base);
        return false;
    }
    if (view.rank < 2 || view.rank > TMA_MAX_RANK) {
        snprintf(why, why_bytes, "the tensor has %u dimensions; TMA takes 2 to %u", view.rank, TMA_MAX_RANK);
        return false;
    }
    const uint32_t row_bytes = view.box[0] * view.element_bytes;
    const uint32_t span = span_of(view.swizzle);
    if (row_bytes % 16 != 0 || (span != 0 && row_bytes != span)) {
        snprintf(why, why_bytes,
                 "a row of the box has %u bytes; kgen takes multiples of 16, and with a swizzle its span, here %u",
                 row_bytes, span);
        return false;
    }
    for (uint32_t i = 0; i < view.rank; ++i) {
        const auto extent = static_cast<long long>(view.extents[i]);
        if (extent < 1 || extent > 1ll << 32) return refuse("extent", i, extent, "1 to 2^32 elements");
        if (view.box[i] < 1 || view.box[i] > 256) return refuse("box", i, view.box[i], "1 to 256 elements");
        if (i == 0 || extent == 1) continue;
        const auto stride = static_cast<long long>(view.strides[i]);
        if (stride <= 0 || stride % 16 != 0 || stride >= 1ll << 40)
            return refuse("stride", i, stride, "multiples of 16 bytes above 0 and below 2^40");
    }
    return true;
}

// The strides to encode: unused ones are replaced by values that every rule allows.
inline void tma_strides(const tensor_view& view, uint64_t (&strides)[TMA_MAX_RANK]) {
    for (uint32_t i = 1; i < view.rank; ++i)
        strides[i] = view.extents[i] == 1 ? 16 : static_cast<uint64_t>(view.strides[i]);
}

}  // namespace kgen
