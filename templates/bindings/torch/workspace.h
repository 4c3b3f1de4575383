// How much workspace a call wants: kgen_fwd_workspace, asked once for a run of calls that differ in pointers alone,
// such as those of a model's layers. It weighs all paths, which costs as much of the host's time as kgen_fwd itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kgen.h"

namespace kgen_torch {

// Bytes for the request on the current device, which has the number `device`.
size_t workspace_of(const kgen_fwd_params& p, int32_t device);

}  // namespace kgen_torch
