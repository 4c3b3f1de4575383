// A request without its addresses, by which answers about it are remembered.
#pragma once

#include "kgen.h"

namespace kgen_torch {

// All numbers of a request, and which pointers it has (1 for each that is there): what paths, workspace and predicted
// times depend on. Compared as bytes.
kgen_fwd_params numbers_of(const kgen_fwd_params& given);

}  // namespace kgen_torch
