// vector_add_bf16_sm80
//
// Sum of two vectors of bf16, for compute capability 8.0 and newer.
//
// A block of 256 threads adds 2 pieces of 16 bytes per thread, side by side across the block. Each thread starts
// all of its loads before its first sum: the kernel moves 12 bytes per addition at most, and only loads in flight hide
// the latency of memory.
// Elements before the first 16-byte boundary of `out` and after the last one are added one by one, by the first block.
//
// Made by kgen 0.1.0 from templates/vector_add/vector_add.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode "arch=compute_80,code=[sm_80,compute_80]" -Iinclude -c vector_add_bf16_sm80.cu

#include "kgen.h"
#include "kgen/contiguous.cuh"
#include "kgen/floats.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/math.cuh"
#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace {

using namespace kgen;

constexpr int THREADS = 256;
constexpr int MIN_BLOCKS_PER_SM = 5;
constexpr int PIECES = 2;  // of 16 bytes, per thread

using element = uint16_t;  // the bits of bf16
using piece = words4;

// The sums of a pair of elements: in fp32, rounded once.
KGEN_DEVICE uint32_t sum_pair(uint32_t a, uint32_t b) {
    float a_low, a_high, b_low, b_high;
    unpack<bf16>(a, a_low, a_high);
    unpack<bf16>(b, b_low, b_high);
    return pack<bf16>(a_low + b_low, a_high + b_high);
}

KGEN_DEVICE element sum(element a, element b) { return static_cast<element>(sum_pair(a, b)); }

KGEN_DEVICE piece sum(piece a, piece b) {
    return {sum_pair(a.x, b.x), sum_pair(a.y, b.y), sum_pair(a.z, b.z), sum_pair(a.w, b.w)};
}

constexpr int PIECE_ELEMENTS = sizeof(piece) / sizeof(element);

struct work {
    const element* a;
    const element* b;
    element* out;
    uint64_t count;
    uint64_t head;    // elements before the first piece
    uint64_t pieces;  // whole ones
};

KGEN_KERNEL(THREADS, MIN_BLOCKS_PER_SM) add_pieces(KGEN_PARAMETER work w) {
    const uint64_t first = static_cast<uint64_t>(block_index()) * (THREADS * PIECES) + thread_index();
    const auto* a = reinterpret_cast<const piece*>(w.a + w.head);
    const auto* b = reinterpret_cast<const piece*>(w.b + w.head);
    auto* out = reinterpret_cast<piece*>(w.out + w.head);
    piece of_a[PIECES], of_b[PIECES];
    KGEN_UNROLL
    for (int i = 0; i < PIECES; ++i) {
        const uint64_t at = first + i * THREADS;
        if (at >= w.pieces) continue;
        of_a[i] = load_global(a + at);
        of_b[i] = load_global(b + at);
    }
    KGEN_UNROLL
    for (int i = 0; i < PIECES; ++i) {
        const uint64_t at = first + i * THREADS;
        if (at < w.pieces) store_global(out + at, sum(of_a[i], of_b[i]));
    }
    if (block_index() != 0) return;
    // The elements before the pieces, then those after them: fewer than two pieces together.
    const uint64_t inside = w.pieces * PIECE_ELEMENTS;
    const uint64_t edge = thread_index();
    if (edge >= w.count - inside) return;
    const uint64_t at = edge < w.head ? edge : edge + inside;
    store_global(w.out + at, sum(load_global(w.a + at), load_global(w.b + at)));
}

// For vectors that start at different offsets from a multiple of 16 bytes.
KGEN_KERNEL(THREADS, MIN_BLOCKS_PER_SM) add_elements(KGEN_PARAMETER work w) {
    constexpr int EACH = PIECES * PIECE_ELEMENTS;
    const uint64_t first = static_cast<uint64_t>(block_index()) * (THREADS * EACH) + thread_index();
    KGEN_UNROLL
    for (int i = 0; i < EACH; ++i) {
        const uint64_t at = first + i * THREADS;
        if (at < w.count) store_global(w.out + at, sum(load_global(w.a + at), load_global(w.b + at)));
    }
}

}  // namespace

extern "C" int vector_add_bf16_sm80(const kgen_vector_add_params* given, cudaStream_t stream) {
    constexpr const char* self = "vector_add_bf16_sm80";
    kgen_vector_add_params params;
    if (const int code = copy_params(given, self, "kgen_vector_add_params", params)) return code;
    if (const int code = check_dtype(params.dtype, KGEN_DTYPE_BF16, "bf16", self)) return code;
    if (params.count == 0) return KGEN_SUCCESS;
    constexpr uint64_t MOST = INT64_MAX / sizeof(element);
    if (params.count > MOST) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: %llu elements are more than any memory holds", self,
                    static_cast<unsigned long long>(params.count));
    }
    const uint64_t bytes = params.count * sizeof(element);
    const span out = {"out", params.out, bytes}, inputs[] = { {"a", params.a, bytes}, {"b", params.b, bytes} };
    if (const int code = check_span(out, sizeof(element), self)) return code;
    for (const span& input : inputs) {
        if (const int code = check_span(input, sizeof(element), self)) return code;
        if (const int code = check_apart(input, out, self)) return code;
    }
    work w = {static_cast<const element*>(params.a), static_cast<const element*>(params.b),
              static_cast<element*>(params.out), params.count, 0, 0};
    const bool alike = offset_in_piece(params.a) == offset_in_piece(params.out) &&
                       offset_in_piece(params.b) == offset_in_piece(params.out);
    constexpr uint64_t EACH = THREADS * PIECES * PIECE_ELEMENTS;
    const uint64_t blocks = (params.count + EACH - 1) / EACH;
    if (const int code = check_grid(blocks, self)) return code;
    if (!alike) return launch(add_elements, self, static_cast<uint32_t>(blocks), THREADS, 0, w, stream);
    w.head = elements_to_piece(params.out, sizeof(element), params.count);
    w.pieces = (params.count - w.head) / PIECE_ELEMENTS;
    return launch(add_pieces, self, static_cast<uint32_t>(blocks), THREADS, 0, w, stream);
}
