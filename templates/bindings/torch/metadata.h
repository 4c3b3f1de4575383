// Scheduler metadata: what one call a step prepares for all layers, and `fwd` reads.
//
//   int32[0..1]      work_counter of kgen_fwd: zero between launches
//   int32[2..3]      zero
//   int32[4..4 + B)  split_counts of kgen_fwd: splits of each sequence, by its length at that time
//   up to a multiple of four: zero
//   to the end               arrivals of kgen_fwd: zero between launches. Enough for decoding with eight key heads;
//                            with more, fwd_combine is launched
//
// The length depends on the batch alone, as replayed graphs need, and fits vLLM's buffer of 1 + 4 round_up(B, 4). vLLM
// copies it there at each step and zeroes the rest, so that a graph finds new counts where it was captured.
#pragma once

#include <optional>

#include "attention.h"

namespace kgen_torch {

// Entries of the metadata of a batch.
int64_t metadata_length(int64_t batch);

// Writes the metadata of a request of which only numbers, lengths and features are entered. Where the library cannot
// split it, one split for each sequence.
Tensor make_metadata(kgen_fwd_params& p, const device_scope& device);

// Refers `p` to metadata, if there is some. Refuses what is none for this batch.
void enter_metadata(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& metadata);

}  // namespace kgen_torch
