// Leaves the checks of backward launchers to launchers.cpp.
#pragma once

#include_next "kgen/bwd_params.cuh"

namespace kgen {

extern template int check_bwd_numbers(const kgen_bwd_params*, const fwd_identity&, const bwd_tiling&, bwd_arguments&,
                                      size_t&);
extern template int check_bwd_params(const kgen_bwd_params*, const fwd_identity&, const bwd_tiling&, bwd_arguments&);

}  // namespace kgen
