// Sizes of splits, which kernels, launchers and the dispatcher's cost model share. For the host compiler as well as
// nvcc; includes nothing, because kgen's own build compiles the cost model without CUDA.
#pragma once

namespace kgen {

constexpr int MOST_SPLITS = 256;

// Split boundaries are multiples of this many keys.
constexpr int SPLIT_KEYS = 16;

// The fewest units of a split (128 keys): a shorter split would take longer to start and to merge than to read.
constexpr int SPLIT_LEAST = 8;

// Rows of the tiles counted by the scheduler: query rows of all heads that read one key head.
constexpr int SPLIT_TILE_ROWS = 16;

}  // namespace kgen
