// The workspace size of a call: kgen_fwd_workspace, called once for a run of calls that differ only in pointers, such
// as those of a model's layers. It evaluates all paths, which costs as much host time as kgen_fwd itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kgen.h"

namespace kgen_torch {

// Bytes for the request on the current device, whose number is `device`.
size_t workspace_of(const kgen_fwd_params& p, int32_t device);

}  // namespace kgen_torch
