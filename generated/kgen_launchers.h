/* Declares the launcher of every kernel in this folder, for programs that compile some of them directly.
 * Made by kgen 0.1.0 from templates/bindings/kgen_launchers.h.tera; edit that, not this. */
#ifndef KGEN_LAUNCHERS_H
#define KGEN_LAUNCHERS_H

#include "kgen.h"

#ifdef __cplusplus
extern "C" {
#endif

int flash_bwd_hdim128_bf16_bias_sm80(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim128_bf16_bias_sm80_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim128_bf16_causal_bias_sm80(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim128_bf16_causal_bias_sm80_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim64_bf16_bias_sm80(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim64_bf16_bias_sm80_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim64_bf16_causal_bias_sm80(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim64_bf16_causal_bias_sm80_workspace(const kgen_bwd_params* params);
int flash_fwd_hdim128_bf16_bias_sm80(const kgen_fwd_params* params, cudaStream_t stream);
int flash_fwd_hdim128_bf16_causal_bias_sm80(const kgen_fwd_params* params, cudaStream_t stream);
int flash_fwd_hdim64_bf16_bias_sm80(const kgen_fwd_params* params, cudaStream_t stream);
int flash_fwd_hdim64_bf16_causal_bias_sm80(const kgen_fwd_params* params, cudaStream_t stream);
int flash_fwd_split_hdim128_bf16_bias_sm80(const kgen_fwd_params* params, cudaStream_t stream);
size_t flash_fwd_split_hdim128_bf16_bias_sm80_workspace(const kgen_fwd_params* params);
int flash_fwd_split_hdim128_bf16_causal_bias_sm80(const kgen_fwd_params* params, cudaStream_t stream);
size_t flash_fwd_split_hdim128_bf16_causal_bias_sm80_workspace(const kgen_fwd_params* params);
int flash_fwd_split_hdim64_bf16_bias_sm80(const kgen_fwd_params* params, cudaStream_t stream);
size_t flash_fwd_split_hdim64_bf16_bias_sm80_workspace(const kgen_fwd_params* params);
int flash_fwd_split_hdim64_bf16_causal_bias_sm80(const kgen_fwd_params* params, cudaStream_t stream);
size_t flash_fwd_split_hdim64_bf16_causal_bias_sm80_workspace(const kgen_fwd_params* params);

#ifdef __cplusplus
}
#endif

#endif /* KGEN_LAUNCHERS_H */
