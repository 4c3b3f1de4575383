// A request without its addresses, as the key of cached answers.
#pragma once

#include "kgen.h"

namespace kgen_torch {

// All numbers of a request, and 1 for each pointer that is not NULL: paths, workspace and predicted times depend on
// nothing else. Compared as bytes.
kgen_fwd_params numbers_of(const kgen_fwd_params& given);

}  // namespace kgen_torch
