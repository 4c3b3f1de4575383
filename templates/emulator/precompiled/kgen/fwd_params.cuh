// Leaves the checks of forward launchers to launchers.cpp.
#pragma once

#include_next "kgen/fwd_params.cuh"

namespace kgen {

extern template int check_fwd_params(const kgen_fwd_params*, const fwd_identity&, kgen_fwd_params&);

}  // namespace kgen
