// Scheduler metadata, prepared once per step for all layers and read by `fwd`.
//
//   int32[0..1]      work_counter of kgen_fwd: zero between launches
//   int32[2..3]      zero
//   int32[4..4 + B)  split_counts of kgen_fwd: splits of each sequence, from its length at that time
//   up to a multiple of four: zero
//   to the end               arrivals of kgen_fwd: zero between launches. Enough for decoding with eight key heads;
//                            with more, fwd_combine is launched
//
// The length depends only on the batch, as replayed graphs require, and fits vLLM's buffer of 1 + 4 round_up(B, 4).
// vLLM copies it there at each step and zeroes the rest, so that a graph finds new counts at the captured address.
#pragma once

#include <optional>

#include "attention.h"

namespace kgen_torch {

// Entries of the metadata of a batch.
int64_t metadata_length(int64_t batch);

// Writes the metadata of a request in which only numbers, lengths and features are set. If the library cannot split it,
// each sequence gets one split.
Tensor make_metadata(kgen_fwd_params& p, const device_scope& device);

// Sets the metadata in `p`, if given. Refuses a tensor that is not metadata for this batch.
void enter_metadata(kgen_fwd_params& p, const view& q, const std::optional<Tensor>& metadata);

}  // namespace kgen_torch
