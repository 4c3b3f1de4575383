// The number of blocks of a launch, computed without overflow, and the refusal of more than a grid allows. For the host
// compiler as well as nvcc.
#pragma once

#include "kgen.h"
#include "kgen/launch.cuh"

namespace kgen {

// Blocks allowed along a grid's x dimension (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability").
constexpr uint64_t MOST_BLOCKS = INT32_MAX;

// The product of counts, saturated. Sizes that a caller may pass make products of up to 89 bits.
inline uint64_t product(uint64_t a, uint64_t b) {
    uint64_t result;
    return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

template <class... Counts>
uint64_t product(uint64_t a, uint64_t b, Counts... others) {
    return product(product(a, b), others...);
}

// Tiles of `rows` rows that cover `seqlen` rows. The lengths of a request have been checked to be >= 0.
inline uint64_t tiles_of(uint64_t seqlen, uint64_t rows) { return (seqlen + rows - 1) / rows; }

// Refuses more blocks than a grid allows.
template <class Params>
int check_blocks(const char* name, uint64_t blocks, const Params& p) {
    if (blocks <= MOST_BLOCKS) return KGEN_SUCCESS;
    return fail(KGEN_ERROR_INVALID_VALUE,
                "%s: batch %d, seqlen_q %d, seqlen_k %d, %d heads and %d key heads take more blocks than a grid has, 2^31 - 1",
                name, p.batch,
                p.seqlen_q, p.seqlen_k, p.num_heads, p.num_heads_k);
}

}  // namespace kgen
