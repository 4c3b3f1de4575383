// What launchers of attention check, the same in every kernel and a fifth of its compile time. `kgen check` compiles it
// once: the headers in precompiled/kgen come first on the include path and leave it to this file. A kernel whose text
// holds a header, such as a planted fault's, has its own copy, which the linker finds before this one.
#include "kgen/bwd_params.cuh"
#include "kgen/fwd_params.cuh"

namespace kgen {

template int check_fwd_params(const kgen_fwd_params*, const fwd_identity&, kgen_fwd_params&);
template int check_bwd_numbers(const kgen_bwd_params*, const fwd_identity&, const bwd_tiling&, bwd_arguments&, size_t&);
template int check_bwd_params(const kgen_bwd_params*, const fwd_identity&, const bwd_tiling&, bwd_arguments&);

}  // namespace kgen
