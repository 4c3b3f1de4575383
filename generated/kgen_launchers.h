/* Declares the launcher of every kernel in this folder, for programs that compile some of them directly.
 * Made by kgen 0.1.0 from templates/bindings/kgen_launchers.h.tera; edit that, not this. */
#ifndef KGEN_LAUNCHERS_H
#define KGEN_LAUNCHERS_H

#include "kgen.h"

#ifdef __cplusplus
extern "C" {
#endif

int flash_bwd_hdim112_bf16_causal_dropout_sm80(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim112_bf16_causal_dropout_sm80_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim112_bf16_causal_dropout_sm90(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim112_bf16_causal_dropout_sm90_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim112_fp16_causal_dropout_sm80(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim112_fp16_causal_dropout_sm80_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim112_fp16_causal_dropout_sm90(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim112_fp16_causal_dropout_sm90_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim128_bf16_causal_dropout_sm80(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim128_bf16_causal_dropout_sm80_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim128_bf16_causal_dropout_sm90(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim128_bf16_causal_dropout_sm90_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim128_fp16_causal_dropout_sm80(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim128_fp16_causal_dropout_sm80_workspace(const kgen_bwd_params* params);
int flash_bwd_hdim128_fp16_causal_dropout_sm90(const kgen_bwd_params* params, cudaStream_t stream);
size_t flash_bwd_hdim128_fp16_causal_dropout_sm90_workspace(const kgen_bwd_params* params);

#ifdef __cplusplus
}
#endif

#endif /* KGEN_LAUNCHERS_H */
