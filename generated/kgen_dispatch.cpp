// The dispatcher of libkgen: the variants that the library holds, and the choice among them for a request.
// Made by kgen 0.1.0 from templates/bindings/kgen_dispatch.cpp.tera; edit that, not this.
//
// For the host compiler or nvcc. Define KGEN_NO_PTX if the kernels' objects were built with machine code only.

#include <stdlib.h>
#include <string.h>

#include <initializer_list>
#include <type_traits>

#include "kgen.h"
#include "kgen/append_params.cuh"
#include "kgen/blocks.cuh"
#include "kgen/device.cuh"
#include "kgen/features.cuh"
#include "kgen/launch.cuh"
#include "kgen/params.cuh"
#include "kgen/path_cost.cuh"
#include "kgen/split_plan.cuh"

// Every kernel of this library, sorted by name. CMake's options may omit some: KGEN_TABLE then names a file with the
// others.
#ifdef KGEN_TABLE
#include KGEN_TABLE
#else
// Name, parameter structure, 1 if it has <name>_workspace; kind, head dim, that of V and O, dtype, features; id and
// name of its declared score; compute capability that it was made for, the newest for its machine code, and the newest
// with its PTX; shared memory per block, and the limit per block on the GPUs that the plan was made for; tiles of 16
// rows that a multiprocessor runs at once (split-KV only); the inputs of the prediction of its time: `origin`.
#define KGEN_KERNELS(KERNEL) \
    KERNEL(append_kv_bf16_sm80, kgen_append_kv_params, 0, KGEN_KIND_APPEND_KV, 0, 0, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 0, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_bf16_causal_bias_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_BIAS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 125440, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_bf16_causal_dropout_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_DROPOUT, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 198800, 232448, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_bf16_window_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_bf16_window_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW, 0, nullptr, 90, 90, 90, 198800, 232448, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_bf16_window_softcap_alibi_sinks_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_bf16_window_softcap_alibi_sinks_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 198800, 232448, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim128_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, 128, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim192_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim192_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, 192, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim192_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim192_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, 192, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim224_bf16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 120, 121, 121, 90368, 101376, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim224_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 206008, 232448, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim256_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim256_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, 256, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim256_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim256_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, 256, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim32_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 66560, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim32_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, 32, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 66560, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim32_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 66560, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim32_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, 32, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 66560, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim64_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 99328, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim64_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, 64, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 99328, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim64_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 99328, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim64_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, 64, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 99328, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim96_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 132096, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim96_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, 96, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 132096, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim96_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 132096, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_bwd_hdim96_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, 96, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 132096, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(flash_fwd_combine_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_COMBINE, 0, 0, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 4096, 166912, 0, 1, 1, 128, 6, 860, 0, 3100, 480, 820, false, false) \
    KERNEL(flash_fwd_combine_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_COMBINE, 0, 0, KGEN_DTYPE_FP16, 0, 0, nullptr, 90, 90, 90, 4096, 232448, 0, 1, 1, 128, 6, 860, 0, 3100, 480, 820, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_bias_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_BIAS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 59392, 166912, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_bias_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_BIAS, 0, nullptr, 90, 90, 90, 217200, 232448, 0, 128, 64, 128, 1, 1870, 780, 2973, 1626, 2181, true, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_cache_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_CACHE, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_cache_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_CACHE, 0, nullptr, 90, 90, 90, 198816, 232448, 0, 128, 64, 128, 1, 1870, 780, 2973, 1626, 2181, true, true) \
    KERNEL(flash_fwd_hdim128_bf16_causal_dropout_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_DROPOUT, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_packgqa_paged_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PACKGQA | KGEN_FEATURE_PAGED, 0, nullptr, 90, 90, 90, 223424, 232448, 0, 192, 64, 80, 1, 3610, 750, 3490, 1087, 2045, true, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_packgqa_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PACKGQA, 0, nullptr, 90, 90, 90, 222400, 232448, 0, 192, 64, 80, 1, 3610, 750, 3490, 1087, 2352, true, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_paged_kv_e4m3_page_descale_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E4M3 | KGEN_FEATURE_PAGE_DESCALE, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 41472, 166912, 0, 128, 128, 32, 2, 2800, 0, 2268, 2853, 2253, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_paged_kv_e4m3_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E4M3, 0, nullptr, 120, 121, 121, 32768, 101376, 0, 64, 64, 64, 3, 2800, 0, 2268, 4804, 4204, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_paged_kv_e4m3_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E4M3, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 40960, 166912, 0, 128, 128, 32, 2, 2800, 0, 2268, 2853, 2253, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_paged_kv_e4m3_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E4M3, 0, nullptr, 90, 90, 90, 230720, 232448, 0, 192, 64, 64, 1, 1870, 780, 2973, 908, 1636, true, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_paged_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_paged_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED, 0, nullptr, 90, 90, 90, 222400, 232448, 0, 192, 64, 80, 1, 1870, 780, 2973, 1087, 2045, true, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 65536, 166912, 0, 128, 128, 64, 2, 2800, 0, 2268, 3314, 2714, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 198816, 232448, 0, 128, 64, 128, 1, 1870, 780, 2973, 1626, 2181, true, true) \
    KERNEL(flash_fwd_hdim128_bf16_causal_splitkv_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SPLITKV, 0, nullptr, 90, 90, 90, 198816, 232448, 0, 128, 64, 128, 1, 1870, 780, 2973, 1626, 2181, true, true) \
    KERNEL(flash_fwd_hdim128_bf16_m128_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_M128, 0, nullptr, 90, 90, 90, 230560, 232448, 0, 128, 64, 160, 1, 1870, 780, 2973, 1985, 2726, true, true) \
    KERNEL(flash_fwd_hdim128_bf16_paged_window_softcap_alibi_sinks_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_PAGED | KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 64, 64, 64, 3, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_paged_window_softcap_alibi_sinks_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_PAGED | KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 148608, 232448, 0, 128, 64, 80, 1, 1870, 780, 2973, 1087, 1363, true, false) \
    KERNEL(flash_fwd_hdim128_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 65536, 166912, 0, 128, 128, 64, 2, 2800, 0, 2268, 3314, 2714, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_window_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_window_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW, 0, nullptr, 90, 90, 90, 181408, 232448, 0, 192, 64, 80, 1, 1870, 780, 2973, 1087, 2045, true, false) \
    KERNEL(flash_fwd_hdim128_bf16_window_softcap_alibi_sinks_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_bf16_window_softcap_alibi_sinks_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 181408, 232448, 0, 192, 64, 80, 1, 1870, 780, 2973, 1087, 2045, true, false) \
    KERNEL(flash_fwd_hdim128_fp16_causal_paged_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED, 0, nullptr, 75, 79, EVERY_NEWER_GPU, 65536, 65536, 0, 128, 128, 64, 1, 2800, 0, 2268, 5423, 4823, false, false) \
    KERNEL(flash_fwd_hdim128_fp16_causal_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 75, 79, EVERY_NEWER_GPU, 65536, 65536, 0, 128, 128, 64, 1, 2800, 0, 2268, 5423, 4823, false, false) \
    KERNEL(flash_fwd_hdim128_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 65536, 166912, 0, 128, 128, 64, 2, 2800, 0, 2268, 3314, 2714, false, false) \
    KERNEL(flash_fwd_hdim128_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 65536, 166912, 0, 128, 128, 64, 2, 2800, 0, 2268, 3314, 2714, false, false) \
    KERNEL(flash_fwd_hdim128_fp8_causal_paged_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED, 0, nullptr, 121, 121, 121, 32768, 101376, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_fp8_causal_paged_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED, 0, nullptr, 90, 90, 90, 125120, 232448, 0, 192, 64, 96, 1, 1870, 780, 2973, 1267, 1705, true, false) \
    KERNEL(flash_fwd_hdim128_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 0, nullptr, 120, 121, 121, 32768, 101376, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 0, nullptr, 121, 121, 121, 32768, 101376, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 0, nullptr, 89, 89, EVERY_NEWER_GPU, 32768, 101376, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 149696, 232448, 0, 192, 64, 128, 1, 1870, 780, 2973, 1626, 2273, true, false) \
    KERNEL(flash_fwd_hdim128_fp8_window_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_WINDOW, 0, nullptr, 121, 121, 121, 32768, 101376, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_fp8_window_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_WINDOW, 0, nullptr, 90, 90, 90, 125120, 232448, 0, 192, 64, 96, 1, 1870, 780, 2973, 1267, 1705, true, false) \
    KERNEL(flash_fwd_hdim128_fp8_window_softcap_alibi_sinks_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 121, 121, 121, 32768, 101376, 0, 128, 128, 32, 2, 2800, 0, 2268, 1957, 1357, false, false) \
    KERNEL(flash_fwd_hdim128_fp8_window_softcap_alibi_sinks_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 125120, 232448, 0, 192, 64, 96, 1, 1870, 780, 2973, 1267, 1705, true, false) \
    KERNEL(flash_fwd_hdim160_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 226448, 232448, 0, 128, 64, 128, 1, 1870, 1780, 4224, 1818, 2514, true, true) \
    KERNEL(flash_fwd_hdim192_128_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 214144, 232448, 0, 128, 64, 128, 1, 1870, 780, 3194, 1818, 2514, true, true) \
    KERNEL(flash_fwd_hdim192_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 73728, 166912, 0, 64, 64, 64, 2, 2800, 0, 2652, 2484, 1884, false, false) \
    KERNEL(flash_fwd_hdim192_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, 192, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 73728, 166912, 0, 64, 64, 64, 2, 2800, 0, 2652, 2484, 1884, false, false) \
    KERNEL(flash_fwd_hdim192_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 73728, 166912, 0, 64, 64, 64, 2, 2800, 0, 2652, 2484, 1884, false, false) \
    KERNEL(flash_fwd_hdim192_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, 192, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 73728, 166912, 0, 64, 64, 64, 2, 2800, 0, 2652, 2484, 1884, false, false) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 100, 103, 103, 86016, 232448, 0, 64, 64, 64, 2, 2800, 0, 2844, 2748, 2148, false, false) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 120, 121, 121, 86016, 101376, 0, 128, 128, 32, 1, 2800, 0, 2844, 4594, 3994, false, false) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 121, 121, 121, 86016, 101376, 0, 128, 128, 32, 1, 2800, 0, 2844, 4594, 3994, false, false) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 86016, 166912, 0, 64, 64, 64, 2, 2800, 0, 2844, 2748, 2148, false, false) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 89, 89, EVERY_NEWER_GPU, 86016, 101376, 0, 128, 128, 32, 1, 2800, 0, 2844, 4594, 3994, false, false) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 231568, 232448, 0, 128, 64, 80, 1, 1870, 1780, 4666, 1448, 1987, true, true) \
    KERNEL(flash_fwd_hdim224_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 0, nullptr, 120, 121, 121, 43008, 101376, 0, 64, 64, 64, 2, 2800, 0, 2844, 2748, 2148, false, false) \
    KERNEL(flash_fwd_hdim224_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 0, nullptr, 121, 121, 121, 43008, 101376, 0, 64, 64, 64, 2, 2800, 0, 2844, 2748, 2148, false, false) \
    KERNEL(flash_fwd_hdim224_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 0, nullptr, 89, 89, EVERY_NEWER_GPU, 43008, 101376, 0, 64, 64, 64, 2, 2800, 0, 2844, 2748, 2148, false, false) \
    KERNEL(flash_fwd_hdim224_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, 224, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 231552, 232448, 0, 128, 64, 128, 1, 1870, 1780, 4666, 2203, 2015, true, false) \
    KERNEL(flash_fwd_hdim256_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 98304, 166912, 0, 64, 64, 64, 2, 2800, 0, 3036, 3012, 2412, false, false) \
    KERNEL(flash_fwd_hdim256_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, 256, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 98304, 166912, 0, 64, 64, 64, 2, 2800, 0, 3036, 3012, 2412, false, false) \
    KERNEL(flash_fwd_hdim256_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 98304, 166912, 0, 64, 64, 64, 2, 2800, 0, 3036, 3012, 2412, false, false) \
    KERNEL(flash_fwd_hdim256_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, 256, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 98304, 166912, 0, 64, 64, 64, 2, 2800, 0, 3036, 3012, 2412, false, false) \
    KERNEL(flash_fwd_hdim32_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 24576, 166912, 0, 128, 128, 64, 3, 2800, 0, 1692, 1732, 1132, false, false) \
    KERNEL(flash_fwd_hdim32_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, 32, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 24576, 166912, 0, 128, 128, 64, 3, 2800, 0, 1692, 1732, 1132, false, false) \
    KERNEL(flash_fwd_hdim32_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 24576, 166912, 0, 128, 128, 64, 3, 2800, 0, 1692, 1732, 1132, false, false) \
    KERNEL(flash_fwd_hdim32_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, 32, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 24576, 166912, 0, 128, 128, 64, 3, 2800, 0, 1692, 1732, 1132, false, false) \
    KERNEL(flash_fwd_hdim64_bf16_causal_long_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_LONG, 0, nullptr, 90, 90, 90, 115904, 232448, 0, 192, 64, 128, 1, 1870, 780, 3632, 1241, 2103, true, true) \
    KERNEL(flash_fwd_hdim64_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 64, 2, 2800, 0, 1884, 2259, 1659, false, false) \
    KERNEL(flash_fwd_hdim64_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, 64, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 128, 2, 2800, 0, 1884, 3918, 3318, false, false) \
    KERNEL(flash_fwd_hdim64_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 64, 2, 2800, 0, 1884, 2259, 1659, false, false) \
    KERNEL(flash_fwd_hdim64_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, 64, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 128, 2, 2800, 0, 1884, 3918, 3318, false, false) \
    KERNEL(flash_fwd_hdim80_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 80, 80, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 136384, 232448, 0, 192, 64, 112, 1, 1870, 1780, 4272, 1194, 2208, true, true) \
    KERNEL(flash_fwd_hdim96_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 64, 2, 2800, 0, 2076, 2786, 2186, false, false) \
    KERNEL(flash_fwd_hdim96_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, 96, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 55296, 166912, 0, 128, 128, 80, 2, 2800, 0, 2076, 3333, 2733, false, false) \
    KERNEL(flash_fwd_hdim96_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0, 128, 128, 64, 2, 2800, 0, 2076, 2786, 2186, false, false) \
    KERNEL(flash_fwd_hdim96_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, 96, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 55296, 166912, 0, 128, 128, 80, 2, 2800, 0, 2076, 3333, 2733, false, false) \
    KERNEL(flash_fwd_short_hdim128_bf16_causal_paged_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED, 0, nullptr, 90, 90, 90, 215240, 232448, 0, 64, 64, 128, 1, 590, 310, 4860, 1270, 1403, false, false) \
    KERNEL(flash_fwd_short_hdim128_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 0, nullptr, 90, 90, 90, 215240, 232448, 0, 64, 64, 128, 1, 590, 310, 4860, 1270, 1403, false, false) \
    KERNEL(flash_fwd_short_hdim128_bf16_window_softcap_alibi_sinks_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 215240, 232448, 0, 64, 64, 128, 1, 590, 310, 4860, 1270, 1403, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_cache_append_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_CACHE | KGEN_FEATURE_APPEND | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_cache_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_CACHE | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_append_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_APPEND | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_append_sm90, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_APPEND | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 102976, 232448, 2, 16, 16, 64, 3, 260, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_kv_e4m3_append_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E4M3 | KGEN_FEATURE_APPEND | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 128, 3, 1120, 800, 5178, 2042, 1690, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_kv_e4m3_append_sm90, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E4M3 | KGEN_FEATURE_APPEND | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 102976, 232448, 2, 16, 16, 128, 3, 260, 800, 5178, 2042, 1690, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_kv_e4m3_page_descale_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E4M3 | KGEN_FEATURE_PAGE_DESCALE | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 106048, 166912, 1, 16, 16, 128, 3, 1120, 800, 5178, 2042, 1690, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_kv_e4m3_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E4M3 | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 128, 3, 1120, 800, 5178, 2042, 1690, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_kv_e4m3_sm90, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E4M3 | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 102976, 232448, 2, 16, 16, 128, 3, 260, 800, 5178, 2042, 1690, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_kv_e5m2_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_KV_E5M2 | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 128, 3, 1120, 800, 5178, 2042, 1690, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_paged_sm90, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 102976, 232448, 2, 16, 16, 64, 3, 260, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_sm90, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 102976, 232448, 2, 16, 16, 64, 3, 260, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_paged_window_softcap_alibi_sinks_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_PAGED | KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_bf16_window_softcap_alibi_sinks_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_WINDOW | KGEN_FEATURE_SOFTCAP | KGEN_FEATURE_ALIBI | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_fp16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_fp16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1, 16, 16, 64, 3, 1120, 800, 5178, 683, 397, false, false) \
    KERNEL(flash_fwd_split_hdim128_fp8_causal_paged_sm90, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 128, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 102976, 232448, 2, 16, 16, 128, 3, 260, 800, 5178, 2042, 1690, false, false) \
    KERNEL(flash_fwd_split_hdim192_bf16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 192, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 105024, 166912, 1, 16, 16, 64, 2, 1120, 800, 5722, 973, 576, false, false) \
    KERNEL(flash_fwd_split_hdim192_bf16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 192, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 105024, 166912, 1, 16, 16, 64, 2, 1120, 800, 5722, 973, 576, false, false) \
    KERNEL(flash_fwd_split_hdim192_fp16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 192, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 105024, 166912, 1, 16, 16, 64, 2, 1120, 800, 5722, 973, 576, false, false) \
    KERNEL(flash_fwd_split_hdim192_fp16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 192, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 105024, 166912, 1, 16, 16, 64, 2, 1120, 800, 5722, 973, 576, false, false) \
    KERNEL(flash_fwd_split_hdim256_bf16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 256, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 139840, 166912, 1, 16, 16, 64, 2, 1120, 800, 6266, 1153, 755, false, false) \
    KERNEL(flash_fwd_split_hdim256_bf16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 256, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 139840, 166912, 1, 16, 16, 64, 2, 1120, 800, 6266, 1153, 755, false, false) \
    KERNEL(flash_fwd_split_hdim256_fp16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 256, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 139840, 166912, 1, 16, 16, 64, 2, 1120, 800, 6266, 1153, 755, false, false) \
    KERNEL(flash_fwd_split_hdim256_fp16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 256, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 139840, 166912, 1, 16, 16, 64, 2, 1120, 800, 6266, 1153, 755, false, false) \
    KERNEL(flash_fwd_split_hdim32_bf16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 32, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 50752, 166912, 3, 16, 16, 128, 5, 1120, 800, 4362, 605, 256, false, false) \
    KERNEL(flash_fwd_split_hdim32_bf16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 32, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 50752, 166912, 3, 16, 16, 128, 5, 1120, 800, 4362, 605, 256, false, false) \
    KERNEL(flash_fwd_split_hdim32_fp16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 32, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 50752, 166912, 3, 16, 16, 128, 5, 1120, 800, 4362, 605, 256, false, false) \
    KERNEL(flash_fwd_split_hdim32_fp16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 32, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 50752, 166912, 3, 16, 16, 128, 5, 1120, 800, 4362, 605, 256, false, false) \
    KERNEL(flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 64, 512, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_PAGED | KGEN_FEATURE_QV | KGEN_FEATURE_SINKS, 0, nullptr, 90, 90, 90, 230432, 232448, 4, 64, 64, 64, 1, 2020, 890, 5712, 3485, 3085, false, false) \
    KERNEL(flash_fwd_split_hdim64_bf16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 64, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 35392, 166912, 2, 16, 16, 64, 4, 1120, 800, 4634, 613, 218, false, false) \
    KERNEL(flash_fwd_split_hdim64_bf16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 64, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 35392, 166912, 2, 16, 16, 64, 4, 1120, 800, 4634, 613, 218, false, false) \
    KERNEL(flash_fwd_split_hdim64_fp16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 64, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 35392, 166912, 2, 16, 16, 64, 4, 1120, 800, 4634, 613, 218, false, false) \
    KERNEL(flash_fwd_split_hdim64_fp16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 64, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 35392, 166912, 2, 16, 16, 64, 4, 1120, 800, 4634, 613, 218, false, false) \
    KERNEL(flash_fwd_split_hdim96_bf16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 96, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 77376, 166912, 1, 16, 16, 64, 3, 1120, 800, 4906, 593, 307, false, false) \
    KERNEL(flash_fwd_split_hdim96_bf16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 96, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 77376, 166912, 1, 16, 16, 64, 3, 1120, 800, 4906, 593, 307, false, false) \
    KERNEL(flash_fwd_split_hdim96_fp16_causal_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 96, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL | KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 77376, 166912, 1, 16, 16, 64, 3, 1120, 800, 4906, 593, 307, false, false) \
    KERNEL(flash_fwd_split_hdim96_fp16_sm80, kgen_fwd_params, 1, KGEN_KIND_FWD_SPLIT, 96, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_SINKS, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 77376, 166912, 1, 16, 16, 64, 3, 1120, 800, 4906, 593, 307, false, false) \
    KERNEL(flash_prepare_scheduler_sm80, kgen_fwd_params, 0, KGEN_KIND_PREPARE_SCHEDULER, 0, 0, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0, 32, 32, 0, 1, 9420, 0, 700, 0, 0, false, false) \
    KERNEL(flash_prepare_scheduler_sm90, kgen_fwd_params, 0, KGEN_KIND_PREPARE_SCHEDULER, 0, 0, KGEN_DTYPE_FP16, 0, 0, nullptr, 90, 90, 90, 64, 232448, 0, 32, 32, 0, 1, 9420, 0, 700, 0, 0, false, false) \
    KERNEL(reduce_logsumexp_bf16_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_LOGSUMEXP, 0, 0, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(reduce_max_bf16_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_MAX, 0, 0, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(reduce_sum_fp32_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_SUM, 0, 0, KGEN_DTYPE_FP32, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(rmsnorm_bf16_sm80, kgen_rmsnorm_params, 0, KGEN_KIND_RMSNORM, 0, 0, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 32, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(transpose_b16_sm80, kgen_transpose_params, 0, KGEN_KIND_TRANSPOSE, 0, 0, KGEN_DTYPE_FP16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 32768, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \
    KERNEL(vector_add_bf16_sm80, kgen_vector_add_params, 0, KGEN_KIND_VECTOR_ADD, 0, 0, KGEN_DTYPE_BF16, 0, 0, nullptr, 80, 89, EVERY_NEWER_GPU, 0, 166912, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false) \

#endif

#define KGEN_WORKSPACE_0(name, params)
#define KGEN_WORKSPACE_1(name, params) size_t name##_workspace(const params*);
#define KGEN_DECLARE(name, params, workspace, ...) int name(const params*, cudaStream_t); KGEN_WORKSPACE_##workspace(name, params)
extern "C" {
KGEN_KERNELS(KGEN_DECLARE)
}

namespace {

using namespace kgen;

// An object runs on GPUs up to the newest that its machine code supports; with PTX, if its target can carry it, on all
// newer ones, which EVERY_NEWER_GPU stands for.
constexpr int32_t EVERY_NEWER_GPU = 999;
#ifdef KGEN_NO_PTX
constexpr int32_t newest(int32_t for_machine_code, int32_t) { return for_machine_code; }
#else
constexpr int32_t newest(int32_t, int32_t with_ptx) { return with_ptx; }
#endif

// `function` if it is of type `Wanted`, else NULL.
template <class Wanted, class Function>
constexpr Wanted only_as(Function function) {
    if constexpr (std::is_same_v<Wanted, Function>) return function;
    else return nullptr;
}

#define KGEN_ROW(name, params, workspace, kind, head_dim, head_dim_v, dtype, features, score, score_name, target, machine_code, ptx, ...) \
    {#name, kind, head_dim, head_dim_v, dtype, features, target, newest(machine_code, ptx), only_as<kgen_fwd_launcher>(name), only_as<kgen_bwd_launcher>(name), score, score_name},
constexpr kgen_variant VARIANTS[] = {KGEN_KERNELS(KGEN_ROW)};

// The data of each variant that the choice needs in addition to its row above, at the same index.
struct origin {
    int32_t newest_for_machine_code;  // compute capability; newer GPUs run what the driver compiles from PTX
    int32_t shared_bytes;             // shared memory per block
    int32_t made_for_shared_bytes;    // available to a block on the GPUs that the plan was made for
    int32_t split_tiles_per_sm;       // tiles of 16 rows that one multiprocessor runs at once; split-KV only
    // from its plan; `resident`, shared memory aside. Zeros except for kernels of the forward pass
    kernel_cost cost;
    size_t (*bwd_workspace)(const kgen_bwd_params*);  // NULL for other kinds
};
#define KGEN_WORKSPACE_OF_0(name) nullptr
#define KGEN_WORKSPACE_OF_1(name) name##_workspace
#define KGEN_ORIGIN(name, params, workspace, kind, head_dim, head_dim_v, dtype, features, score, score_name, target, machine_code, ptx, shared, made_for, tiles, rows, group_rows, \
                    keys, resident, launch_ns, crowded_ns, tile_cycles, chain_cycles, step_cycles, longest_first, orders_batch)                            \
    {machine_code, shared, made_for, tiles, {rows, group_rows, keys, resident, launch_ns, crowded_ns, tile_cycles, chain_cycles, step_cycles, longest_first, orders_batch}, only_as<size_t (*)(const kgen_bwd_params*)>(KGEN_WORKSPACE_OF_##workspace(name))},
constexpr origin ORIGINS[] = {KGEN_KERNELS(KGEN_ORIGIN)};

// The head dims of a request whose V is inside K (read_values_inside_keys).
constexpr int32_t LATENT_KEYS = 576, LATENT_VALUES = 512;

// The properties that a request requires of a variant.
struct wanted {
    int32_t kind, head_dim, head_dim_v, dtype;
    uint32_t features = 0;  // KGEN_FEATURE_*
    uint64_t score = 0;     // id of a declared score; 0: none
    uint32_t form = 0;      // KGEN_FEATURE_* of OTHER_FORMS, which the variant has exactly
};

// The features that give a kernel another tile than the dense path's first.
constexpr uint32_t SECOND_TILES = KGEN_FEATURE_LONG | KGEN_FEATURE_M128;

// The features that change no result, of which each kernel is a candidate of its own.
constexpr uint32_t DENSE_FORMS = SECOND_TILES | KGEN_FEATURE_SPLITKV;
constexpr uint32_t OTHER_FORMS = KGEN_FEATURE_PACKGQA | DENSE_FORMS;

// The properties that all variants of a group share and that a request specifies exactly.
struct group_key {
    int32_t kind, head_dim, head_dim_v, dtype;

    constexpr bool operator==(const group_key& other) const {
        return kind == other.kind && head_dim == other.head_dim && head_dim_v == other.head_dim_v &&
               dtype == other.dtype;
    }
    constexpr uint32_t hash() const {
        uint32_t h = 0;
        for (const int32_t part : {kind, head_dim, head_dim_v, dtype})
            h = (h ^ static_cast<uint32_t>(part)) * 0x9E3779B1u;
        return h ^ h >> 16;
    }
};

constexpr int32_t VARIANT_COUNT = sizeof VARIANTS / sizeof VARIANTS[0];

constexpr group_key key_of(const kgen_variant& v) { return {v.kind, v.head_dim, v.head_dim_v, v.dtype}; }

constexpr bool begins_group(int32_t i) { return i == 0 || !(key_of(VARIANTS[i]) == key_of(VARIANTS[i - 1])); }

constexpr int32_t count_groups() {
    int32_t count = 0;
    for (int32_t i = 0; i < VARIANT_COUNT; ++i) count += begins_group(i);
    return count;
}

constexpr uint32_t slots_for(int32_t groups) {
    uint32_t slots = 2;
    while (slots < 2u * static_cast<uint32_t>(groups)) slots *= 2;
    return slots;
}

// Groups of variants by key, so that a call does not search the whole library. The table is sorted by name, hence a
// group is contiguous; if it is not, its pieces are separate groups with the same key, and all of them are found.
struct group_table {
    struct group {
        int32_t first = 0, count = 0;  // no variants: the slot is free
    };
    static constexpr uint32_t SLOTS = slots_for(count_groups());  // at least half of them free
    group slots[SLOTS] = {};

    constexpr group_table() {
        for (int32_t i = 0; i < VARIANT_COUNT;) {
            const int32_t first = i++;
            while (i < VARIANT_COUNT && !begins_group(i)) ++i;
            uint32_t at = key_of(VARIANTS[first]).hash() % SLOTS;
            while (slots[at].count != 0) at = (at + 1) % SLOTS;
            slots[at].first = first, slots[at].count = i - first;
        }
    }

    // Calls `visit` with each variant of a key, in the order of the table.
    template <class Visit>
    void each(const group_key& key, Visit visit) const {
        for (uint32_t at = key.hash() % SLOTS; slots[at].count != 0; at = (at + 1) % SLOTS) {
            const kgen_variant* const begin = VARIANTS + slots[at].first;
            if (!(key_of(*begin) == key)) continue;
            for (const kgen_variant* v = begin; v != begin + slots[at].count; ++v) visit(*v);
        }
    }
};
constexpr group_table GROUPS;

bool has_dtype_and_features(const kgen_variant& v, const wanted& w) {
    return v.kind == w.kind && v.dtype == w.dtype && v.score == w.score && (v.features & OTHER_FORMS) == w.form &&
           serves_features(w.features, v.features);
}

bool has_head_dims(const kgen_variant& v, const wanted& w) {
    return v.head_dim == w.head_dim && v.head_dim_v == w.head_dim_v;
}

const origin& origin_of(const kgen_variant& v) { return ORIGINS[&v - VARIANTS]; }

bool runs_on(const kgen_variant& v, int capability) { return v.target <= capability && capability <= v.target_max; }

bool has_fewer_features(const kgen_variant& a, const kgen_variant& b) {
    const int count_a = __builtin_popcount(a.features & ~KGEN_FEATURE_CAUSAL),
        count_b = __builtin_popcount(b.features & ~KGEN_FEATURE_CAUSAL);
    return count_a != count_b ? count_a < count_b : a.features > b.features;  // among as many, the causal one
}

// True if `a` suits a device better than `b`, both of which must run on it:
//   1. machine code before PTX: it is the code that was tuned, and it loads at once;
//   2. machine code made for the newer GPU;
//   3. PTX made for the newer generation (the major of its compute capability), which has the better instructions;
//   4. within one generation, PTX whose plan was made for as much shared memory per block as the device has, or the
// most
//      below that; if all were made for more, the least. Plans of sm80 thus serve 9.x and 10.x, and those of sm89 12.x;
//   5. within one target, the kernel with the fewest features: further features are not requested and cost time.
bool is_better(const kgen_variant& a, const kgen_variant& b, int capability, int32_t shared_bytes) {
    const bool native_a = capability <= origin_of(a).newest_for_machine_code;
    const bool native_b = capability <= origin_of(b).newest_for_machine_code;
    if (native_a != native_b) return native_a;
    if (a.target == b.target) return has_fewer_features(a, b);
    if (native_a || a.target / 10 != b.target / 10) return a.target > b.target;
    const int32_t shared_a = origin_of(a).made_for_shared_bytes;
    const int32_t shared_b = origin_of(b).made_for_shared_bytes;
    if ((shared_a <= shared_bytes) != (shared_b <= shared_bytes)) return shared_a <= shared_bytes;
    return shared_a <= shared_bytes ? shared_a > shared_b : shared_a < shared_b;
}

// If a kernel of the device fits except for a feature, reports the feature and returns the error code; otherwise 0.
int lacks_feature(const char* caller, const wanted& w, int capability) {
    const kgen_variant* nearest = nullptr;
    for (const kgen_variant& v : VARIANTS) {
        if (v.kind != w.kind || v.dtype != w.dtype || !has_head_dims(v, w) || !runs_on(v, capability)) continue;
        if (v.score != w.score) continue;
        if ((v.features & ~w.features & KGEN_FEATURE_CAUSAL) != 0) continue;  // it masks more
        const uint32_t lacking = lacking_features(w.features, v.features);
        if ((lacking & ~KGEN_FEATURE_CAUSAL) != 0 &&
            (nearest == nullptr || lacking < lacking_features(w.features, nearest->features)))
            nearest = &v;
    }
    if (nearest == nullptr) return KGEN_SUCCESS;
    const uint32_t lacking = lacking_features(w.features, nearest->features) & ~KGEN_FEATURE_CAUSAL;
    return fail(
        KGEN_ERROR_NO_VARIANT,
        "%s: no variant with the feature `%s` for compute capability %d.%d: %s lacks it; `kgen generate --features` makes one that has it",
        caller, feature_name(lacking), capability / 10, capability % 10, nearest->name);
}

const char* dtype_name(int32_t dtype) {
    switch (dtype) {
        case KGEN_DTYPE_FP16: return "fp16";
        case KGEN_DTYPE_BF16: return "bf16";
        case KGEN_DTYPE_FP8_E4M3: return "fp8";
        case KGEN_DTYPE_FP32: return "fp32";
        default: return "of an unknown dtype";
    }
}

// If no kernel of the device has the requested declared score, reports that and returns the error code; otherwise 0.
int lacks_score(const char* caller, const wanted& w, int capability) {
    if (w.score == 0) return KGEN_SUCCESS;
    for (const kgen_variant& v : VARIANTS) {
        if (v.score == w.score && v.kind == w.kind && runs_on(v, capability)) return KGEN_SUCCESS;
    }
    return fail(
        KGEN_ERROR_NO_VARIANT,
        "%s: no variant with the declared score %016llx for compute capability %d.%d; kgen_variants() lists what is held",
        caller, static_cast<unsigned long long>(w.score), capability / 10, capability % 10);
}

// Reports the request and the nearest match in the library.
int no_variant(const char* caller, const wanted& p, int capability) {
    const char* dtype = dtype_name(p.dtype);
    const char* mask = (p.features & KGEN_FEATURE_CAUSAL) != 0 ? "causal" : "not causal";
    const kgen_variant* elsewhere = nullptr;  // the right kernel, for other devices
    const kgen_variant* nearest = nullptr;    // the pair of head dims that differs least
    int32_t below = 0, above = 0;             // nearest head dims held
    for (const kgen_variant& v : VARIANTS) {
        if (!has_dtype_and_features(v, p)) continue;
        if (has_head_dims(v, p)) {
            if (elsewhere == nullptr || v.target < elsewhere->target) elsewhere = &v;
        } else if (!runs_on(v, capability)) {
            continue;
        } else if (p.head_dim != p.head_dim_v) {
            const auto distance = [&](const kgen_variant& other) {
                return abs(other.head_dim - p.head_dim) + abs(other.head_dim_v - p.head_dim_v);
            };
            if (nearest == nullptr || distance(v) < distance(*nearest)) nearest = &v;
        } else if (v.head_dim == v.head_dim_v) {
            if (v.head_dim < p.head_dim && v.head_dim > below) below = v.head_dim;
            if (v.head_dim > p.head_dim && (above == 0 || v.head_dim < above)) above = v.head_dim;
        }
    }
    if (elsewhere != nullptr && elsewhere->target_max == EVERY_NEWER_GPU) {
        return fail(KGEN_ERROR_NO_VARIANT, "%s: %s needs compute capability %d.%d or newer; this device has %d.%d",
                    caller, elsewhere->name, elsewhere->target / 10, elsewhere->target % 10, capability / 10,
                    capability % 10);
    }
    if (elsewhere != nullptr) {
        return fail(KGEN_ERROR_NO_VARIANT, "%s: %s runs on compute capability %d.%d to %d.%d; this device has %d.%d",
                    caller, elsewhere->name, elsewhere->target / 10, elsewhere->target % 10, elsewhere->target_max / 10,
                    elsewhere->target_max % 10, capability / 10, capability % 10);
    }
    if (const int code = lacks_score(caller, p, capability)) return code;
    if (const int code = lacks_feature(caller, p, capability)) return code;
    if (p.head_dim == LATENT_KEYS && p.head_dim_v == LATENT_VALUES) {
        return fail(
            KGEN_ERROR_NO_VARIANT,
            "%s: no variant for head_dim %d with head_dim_v %d, except where V lies inside K: v == k with equal strides, fp16 or bf16",
            caller, p.head_dim, p.head_dim_v);
    }
    if (nearest != nullptr) {
        return fail(KGEN_ERROR_NO_VARIANT,
                    "%s: no variant for head_dim %d with head_dim_v %d, %s, %s; the nearest held is %s", caller,
                    p.head_dim, p.head_dim_v, dtype, mask, nearest->name);
    }
    if (below != 0 && above != 0) {
        return fail(KGEN_ERROR_NO_VARIANT,
                    "%s: no variant for head_dim %d, %s, %s; the nearest head dims held are %d and %d", caller,
                    p.head_dim, dtype, mask, below, above);
    }
    if (below != 0 || above != 0) {
        return fail(KGEN_ERROR_NO_VARIANT, "%s: no variant for head_dim %d, %s, %s; the nearest head dim held is %d",
                    caller, p.head_dim, dtype, mask, below != 0 ? below : above);
    }
    if (p.head_dim == 0) {
        return fail(KGEN_ERROR_NO_VARIANT,
                    "%s: no variant that is %s for compute capability %d.%d; kgen_variants() lists what is held",
                    caller, dtype, capability / 10, capability % 10);
    }
    return fail(KGEN_ERROR_NO_VARIANT,
                "%s: no variant that is %s and %s for compute capability %d.%d; kgen_variants() lists what is held",
                caller, dtype, mask, capability / 10, capability % 10);
}

// The variants that serve a request on a device.
struct answer {
    const kgen_variant* best;       // the one that suits the device best (`is_better`); NULL if none runs there
    const kgen_variant* too_large;  // one whose blocks need more shared memory than the device has
};

// `refused`: if not NULL, only variants that suit the device less well than this one are considered.
answer find(const wanted& w, int capability, const kgen_variant* refused = nullptr) {
    const int32_t shared_bytes = device_shared_memory();
    answer found = {};
    GROUPS.each({w.kind, w.head_dim, w.head_dim_v, w.dtype}, [&](const kgen_variant& v) {
        if (!runs_on(v, capability) || !has_dtype_and_features(v, w)) return;
        if (refused != nullptr && !is_better(*refused, v, capability, shared_bytes)) return;
        if (origin_of(v).shared_bytes > shared_bytes) {
            found.too_large = &v;
        } else if (found.best == nullptr || is_better(v, *found.best, capability, shared_bytes)) {
            found.best = &v;
        }
    });
    return found;
}

// The variant that suits the current device best; NULL, with a reason, if none runs there.
const kgen_variant* choose(const char* caller, const wanted& w, int& code) {
    const int capability = device_capability();
    if (capability == 0) {
        code = KGEN_ERROR_LAUNCH;  // last_error holds the reason
        return nullptr;
    }
    const answer found = find(w, capability);
    if (found.best != nullptr) {
        code = KGEN_SUCCESS;
    } else if (found.too_large != nullptr) {
        code = fail(KGEN_ERROR_NO_VARIANT, "%s: %s takes %d bytes of shared memory a block; this device has %d", caller,
                    found.too_large->name, origin_of(*found.too_large).shared_bytes, device_shared_memory());
    } else {
        code = no_variant(caller, w, capability);
    }
    return found.best;
}

// The model's data for each GPU, by compute capability: clock, rated bandwidth of device memory in case the driver does
// not report it, and bandwidth and size of L2.
struct device_row {
    int32_t capability, clock_mhz, dram_gbs, l2_gbs, l2_mb;
};
constexpr device_row DEVICES[] = {
    {75, 1590, 320, 3400, 4},
    {80, 1410, 2039, 8100, 40},
    {86, 1695, 600, 6500, 6},
    {87, 1300, 205, 1100, 4},
    {89, 2520, 864, 19200, 96},
    {90, 1755, 3350, 13650, 50},
    {100, 1850, 8000, 14600, 126},
    {103, 1850, 8000, 14600, 126},
    {110, 1570, 273, 1700, 32},
    {120, 2400, 1792, 24200, 128},
    {121, 2400, 273, 6100, 24},
};
constexpr double DRAM_PER_MILLE = 950;  // part of the rated bandwidth that a kernel reaches

device_cost cost_of_device(int capability, int32_t multiprocessors) {
    const device_row* row = DEVICES;
    for (const device_row& other : DEVICES) {
        if (other.capability <= capability) row = &other;
    }
    const double rated = device_memory_gbs();
    return {static_cast<double>(multiprocessors), row->clock_mhz / 1000.0,
            (rated > 0 ? rated : row->dram_gbs) * DRAM_PER_MILLE / 1000, static_cast<double>(row->l2_gbs),
            row->l2_mb * 1e6, row->l2_mb * 125000.0};
}

kernel_cost cost_of(const kgen_variant& v, int32_t shared_bytes) {
    constexpr int32_t RESERVED = 1024;  // bytes of shared memory per block
    kernel_cost cost = origin_of(v).cost;
    const int32_t fit = (shared_bytes + RESERVED) / (origin_of(v).shared_bytes + RESERVED);
    if (fit < cost.resident) cost.resident = fit;
    if (cost.resident < 1) cost.resident = 1;
    return cost;
}

// Flags that choose a path.
constexpr uint32_t SPLIT_PATHS = KGEN_FLAG_PATH_SPLIT | KGEN_FLAG_PATH_SCHEDULED;
constexpr uint32_t MERGING = KGEN_FLAG_MERGE_BY_LAUNCH | KGEN_FLAG_MERGE_BY_LAST_BLOCK;
constexpr uint32_t PATHS = KGEN_FLAG_PATH_DENSE | KGEN_FLAG_PATH_SHORT | SPLIT_PATHS | KGEN_FLAG_PATH_MIXED |
                           KGEN_FLAG_PATH_PACKED;

// A request of kgen_fwd or its companions, read and validated.
struct request {
    kgen_fwd_params params;  // without the flags that only choose a path
    uint32_t paths;          // KGEN_FLAG_PATH_*; 0: all
    uint32_t merging;        // KGEN_FLAG_MERGE_*; 0: both
    uint64_t room;           // bytes of workspace
};

// A path, and its kernels other than the one that computes attention.
struct candidate {
    kgen_candidate told;
    const kgen_variant* attention;  // NULL: the library holds none for this device
    const kgen_variant* combine;  // NULL if nothing is split; launched unless told.by_last_block
    const kgen_variant* prepare;
    const kgen_variant* few;      // of a mixed path: the kernel for sequences with few queries
    size_t counts_offset;       // of split_counts in the workspace, if `prepare` writes them
    int32_t concurrent_blocks;  // passed to `prepare`
    size_t arrivals_offset;     // of counters in the workspace, which `prepare` clears
    int64_t own_arrivals;       // words of these; 0: a merge by last blocks uses the caller's
};

constexpr int MOST_CANDIDATES = 10 + MOST_SPLIT_COUNTS + 2 * MOST_SHARERS;
static_assert(MOST_CANDIDATES <= KGEN_MOST_CANDIDATES, "kgen.h promises room for all");

constexpr const char* NOT_HELD = "the library holds no such kernel for this device";
constexpr const char* NOT_WORTH_SPLITTING = "no sequence is worth a second split";
constexpr const char* SPLITS_WANTED = "num_splits asks for splits";
constexpr const char* NOTHING_TO_PACK = "one query head reads each key head: the dense path has the same tiles";
constexpr const char* ROUNDS_UNKNOWN = "lengths are unequal: how many rounds its tiles take is unknown";
constexpr const char* ORDER_IS_LOST = "lengths are unequal: with splits the longest sequences would not come first";
constexpr const char* EMPTY_GRIDS = "seqlen_q makes most of its blocks empty";
constexpr const char* UNREADABLE = "its kernel cannot read tensors that lie so in memory";

// Every path of a request, in a fixed order.
struct candidates {
    int count;
    candidate list[MOST_CANDIDATES];
    int capability;
    int32_t multiprocessors;  // 0: nothing is predicted

    candidate& add(int32_t path, int32_t num_splits, const char* excluded) {
        candidate& c = list[count++];
        c = {};
        c.told.path = path;
        c.told.num_splits = num_splits;
        c.told.excluded = excluded;
        return c;
    }

    // The candidate predicted to be the fastest, the first among equals; NULL if no path can be taken.
    candidate* fastest() {
        candidate* best = nullptr;
        for (int i = 0; i < count; ++i) {
            if (list[i].told.excluded == nullptr &&
                (best == nullptr || list[i].told.predicted_ns < best->told.predicted_ns))
                best = &list[i];
        }
        return best;
    }
};

// The most queries with which a sequence fits one row tile of the split-KV kernel, whose rows are queries of all heads
// that read a key head.
int32_t few_queries(const kgen_fwd_params& p) {
    const int32_t group = p.num_heads / p.num_heads_k;
    return group < SPLIT_TILE_ROWS ? SPLIT_TILE_ROWS / group : 1;
}

// True if a request may mix sequences with many queries and sequences with few, and two kernels could share them.
bool may_mix(const kgen_fwd_params& p) {
    return p.page_table != nullptr && p.cu_seqlens_q != nullptr && p.total_q > 0 && p.seqlen_q > few_queries(p) &&
           p.seqlen_k > 0;
}

// The host's knowledge of a request, whose sizes must be valid.
request_cost cost_of_request(const kgen_fwd_params& p) {
    const bool unequal_q = p.cu_seqlens_q != nullptr || p.seqused_q != nullptr,
        unequal_k = p.cu_seqlens_k != nullptr || p.seqused_k != nullptr;
    request_cost r = {};
    r.batch = p.batch, r.heads = p.num_heads, r.heads_k = p.num_heads_k;
    r.queries = mean_length(p.seqlen_q, p.batch, p.cu_seqlens_q != nullptr ? p.total_q : 0, unequal_q);
    r.keys = mean_length(p.seqlen_k, p.batch, p.total_k, unequal_k);
    r.keys_unknown = unequal_k && p.batch > 1 && p.total_k <= 0;
    r.longest_queries = p.seqlen_q, r.longest_keys = p.seqlen_k;
    r.head_dim = p.head_dim, r.head_dim_v = p.head_dim_v;
    r.element_bytes = p.dtype == KGEN_DTYPE_FP8_E4M3 ? 1 : 2;
    r.kv_element_bytes = p.kv_dtype != 0 ? 1 : r.element_bytes;
    r.causal = (p.flags & KGEN_FLAG_CAUSAL) != 0;
    const int32_t most_seen = most_keys_seen(p.features);
    r.most_seen = most_seen == INT32_MAX ? HUGE_VAL : most_seen;
    r.unequal = unequal_q || unequal_k;
    r.unequal_queries = unequal_q && p.batch > 1, r.unequal_keys = unequal_k && p.batch > 1;
    r.keys_to_mean = keys_to_mean(r);
    r.spread = 1;
    if (may_mix(p)) {
        // The number of sequences of the longest length, possibly a fraction, if every other one has one query. A batch
        // of which more than half is long is not treated as mixed.
        const double beyond_one = static_cast<double>(p.total_q) - p.batch, longest = p.seqlen_q - 1.0,
            longer = fmax(1, beyond_one / longest);
        r.longer = 2 * longer > p.batch ? 0 : longer;
        // Weight of the guess that queries are spread evenly: 0 if all further queries fit into one sequence, 1 if they
        // fill half of the batch.
        r.spread = r.longer == 0 ? 1 : fmin(1, (longer - 1) / fmax(p.batch / 2.0 - 1, 1));
    }
    return r;
}

// The times of all kernels of a path.
struct path_time {
    kernel_time attention;
    double combine, scheduler;

    path_time beside(const path_time& other) const {
        return {attention.beside(other.attention), combine + other.combine, fmax(scheduler, other.scheduler)};
    }

    double total() const { return attention.total() + combine + scheduler; }
};

// True if the caller provides at least `words` words of counters.
bool has_arrivals(const kgen_fwd_params& p, uint64_t words) {
    return p.arrivals != nullptr && p.arrivals_count >= 0 && static_cast<uint64_t>(p.arrivals_count) >= words;
}

// Stores the time of a path: the mean of its times under each guess about unknown lengths. The parts that are reported
// are those of the likelier guess about queries. `spread(request)`: time if queries are spread evenly; `parted(parts)`:
// time if a few sequences are long and each other one has one query.
template <class Spread, class Parted>
void tell_times(kgen_candidate& told, const request_cost& r, const Spread& spread, const Parted& parted) {
    const auto total = [&](const request_cost& guess) {
        const double evenly = r.spread > 0 ? r.spread * spread(guess).total() : 0;
        return r.spread < 1 ? evenly + (1 - r.spread) * parted(kgen::parted(guess)).total() : evenly;
    };
    const path_time time = r.spread >= 0.5 ? spread(r) : parted(kgen::parted(r));
    told.launch_ns = time.attention.launch, told.tile_ns = time.attention.tile, told.chain_ns = time.attention.chain;
    told.step_ns = time.attention.step, told.memory_ns = time.attention.memory;
    told.combine_ns = time.combine, told.scheduler_ns = time.scheduler;
    told.predicted_ns = r.keys_unknown ? (total(r) + total(with_one_long_sequence(r))) / 2 : total(r);
}

// Stores the time of a path whose kernel computes both parts concurrently.
template <class Spread>
void tell_times(kgen_candidate& told, const request_cost& r, const Spread& spread) {
    tell_times(told, r, spread,
               [&](const parted_request& parts) { return spread(parts.many).beside(spread(parts.few)); });
}

// Stores the time of a path whose partial results are merged, by the fastest method that is allowed and that the path
// has. `tell(candidate, by_last_block)` stores the time of a method; `can_count`: the path's blocks can be counted.
template <class Tell>
void tell_merged_times(kgen_candidate& told, uint32_t merging, bool can_count, const Tell& tell) {
    const bool may_launch = merging != KGEN_FLAG_MERGE_BY_LAST_BLOCK,
        may_count = can_count && merging != KGEN_FLAG_MERGE_BY_LAUNCH;
    tell(told, false);
    kgen_candidate counted = told;
    counted.by_last_block = 1;
    tell(counted, true);
    if (may_count && (!may_launch || counted.predicted_ns < told.predicted_ns)) told = counted;
    else if (!may_launch)
        told.excluded =
            "nothing counts the blocks of its row tiles: arrivals_count is too small, or there are too many splits";
}

// True if a path divides the keys, or may do so, as num_splits requests.
bool splits_keys(int32_t path) {
    return path == KGEN_PATH_SPLIT || path == KGEN_PATH_SCHEDULED || path == KGEN_PATH_MIXED;
}

// The request to `find` for the kernel of a path that does not split, in the form `form`.
wanted wanted_whole(const kgen_fwd_params& p, int32_t path, uint32_t form = 0) {
    const int32_t kind = path == KGEN_PATH_SHORT ? KGEN_KIND_FWD_SHORT : KGEN_KIND_FWD;
    return {kind, p.head_dim, p.head_dim_v, p.dtype, asked_features(p), p.score.id,
            path == KGEN_PATH_PACKED ? KGEN_FEATURE_PACKGQA : form};
}

// Adds the kernel of a path that does not split, and its time.
void enter_whole(const candidates& all, const kgen_fwd_params& p, candidate& c, const kgen_variant* variant) {
    c.attention = variant;
    c.told.variant = variant != nullptr ? variant->name : nullptr;
    if (variant == nullptr) c.told.excluded = NOT_HELD;
    if (variant == nullptr || all.multiprocessors == 0) return;
    const kernel_cost kernel = cost_of(*variant, device_shared_memory());
    const device_cost device = cost_of_device(all.capability, all.multiprocessors);
    tell_times(c.told, cost_of_request(p), [&](const request_cost& r) { return path_time{
        time_of(r, kernel, device, {c.told.path == KGEN_PATH_PACKED, 1, false, 1}), 0, 0}; });
}

// Considers the other dense kernels that the library holds. Tiles of 128 queries pay by fewer or shorter rounds, which
// are not known of unequal lengths. A kernel whose blocks may share keys has the first tile, and is a little slower
// where they do not.
void weigh_other_forms(const request& asked, candidates& all) {
    const kgen_fwd_params& p = asked.params;
    const bool has_first = find(wanted_whole(p, KGEN_PATH_DENSE), all.capability).best != nullptr;
    for (const uint32_t form : {KGEN_FEATURE_LONG, KGEN_FEATURE_M128, KGEN_FEATURE_SPLITKV}) {
        const kgen_variant* held = find(wanted_whole(p, KGEN_PATH_DENSE, form), all.capability).best;
        if (held == nullptr) continue;
        if (form == KGEN_FEATURE_SPLITKV && has_first) continue;
        candidate& c = all.add(KGEN_PATH_DENSE, 1, nullptr);
        enter_whole(all, p, c, held);
        if (form != KGEN_FEATURE_M128 || !has_first || all.multiprocessors == 0) continue;
        const request_cost r = cost_of_request(p);
        if (r.unequal_queries || r.unequal_keys) c.told.excluded = ROUNDS_UNKNOWN;
    }
}

// Considers the kernel whose tiles hold the queries of all heads that read one key head. If there is one such head, the
// kernel has the tiles of the dense path, and stores O more slowly.
void weigh_packed(const request& asked, candidates& all) {
    const kgen_fwd_params& p = asked.params;
    const kgen_variant* held = find(wanted_whole(p, KGEN_PATH_PACKED), all.capability).best;
    if (held == nullptr) return;
    candidate& c = all.add(KGEN_PATH_PACKED, 1, nullptr);
    enter_whole(all, p, c, held);
    const bool has_dense = find(wanted_whole(p, KGEN_PATH_DENSE), all.capability).best != nullptr;
    if (p.num_heads == p.num_heads_k && has_dense && asked.paths == 0) c.told.excluded = NOTHING_TO_PACK;
}

// True if only split-KV kernels compute a request: there are no others for queries in two parts or for new rows.
bool only_split_kernels_serve(const kgen_fwd_params& p) { return p.qv != nullptr || p.k_new != nullptr; }

// Considers the split-KV kernel with one split, which needs no other kernel and no workspace.
void weigh_unsplit(const kgen_fwd_params& p, const kgen_variant& split, candidates& all) {
    candidate& c = all.add(KGEN_PATH_SPLIT, 1, nullptr);
    c.attention = &split;
    c.told.variant = split.name;
    const kernel_cost cost = cost_of(split, device_shared_memory());
    const device_cost device = cost_of_device(all.capability, all.multiprocessors);
    tell_times(c.told, cost_of_request(p), [&](
        const request_cost& r) { return path_time{time_of(r, cost, device, {true, 1, false, 1}), UNSPLIT_NS, 0}; });
}

// True if the sizes are possible and there is something to compute.
bool has_work(const kgen_fwd_params& p) {
    return p.batch > 0 && p.seqlen_q > 0 && p.seqlen_k >= 0 && p.num_heads_k > 0 && p.num_heads > 0 &&
           p.num_heads % p.num_heads_k == 0;
}

// Concurrent blocks of a split-KV kernel, as passed to prepare_scheduler.
int32_t split_blocks(int32_t multiprocessors, const kgen_variant& split) {
    return multiprocessors * origin_of(split).split_tiles_per_sm;
}

// The most splits of a sequence whose queries fill one row tile, or which has all `seqlen_q` queries if those are
// fewer.
int32_t split_limit(const kgen_fwd_params& p, int32_t blocks) {
    if (p.num_splits > 0) return p.num_splits;
    kgen_fwd_params one_tile = p;
    if (one_tile.seqlen_q > few_queries(p)) one_tile.seqlen_q = few_queries(p);
    const int32_t most = most_split_count(one_tile, blocks);
    return most > 1 ? most : 1;
}

// The parameters of the split-KV kernel of a mixed path.
kgen_fwd_params told_to_few(kgen_fwd_params p) {
    p.most_queries = p.seqlen_q = few_queries(p);
    return p;
}

// Words of counters for the blocks of a split-KV kernel's row tiles.
uint64_t counters_of(const kgen_fwd_params& p, const kgen_variant& split) {
    return split_counters(p, static_cast<uint64_t>(origin_of(split).cost.rows));
}

// True if a path may count its blocks, which takes `words` words of counters.
bool can_count(const kgen_fwd_params& p, const candidate& c, uint64_t words) {
    return c.told.num_splits <= MOST_COUNTED &&
           (has_arrivals(p, words) || (c.prepare != nullptr && words <= MOST_BLOCKS));
}

// Sets the workspace of a path that splits: partial results, the counts if the path writes them, and the counters if
// its last blocks merge and the caller provides none. `p`: the parameters of the split-KV kernel.
void need_workspace(const request& asked, const kgen_fwd_params& p, const kgen_variant& split, candidate& c) {
    kgen_fwd_params with = p;
    with.num_splits = c.told.num_splits;
    const uint64_t partial = split_workspace_bytes(with);
    if (partial > SIZE_MAX / 2) {
        c.told.excluded = "its partial results take more memory than there can be";
        return;
    }
    c.counts_offset = static_cast<size_t>(partial + 15) / 16 * 16;
    const bool writes_counts = c.told.path == KGEN_PATH_SCHEDULED || c.prepare != nullptr;
    c.arrivals_offset = c.counts_offset + (writes_counts ? with.batch * sizeof(int32_t) : 0);
    const uint64_t words = counters_of(p, split);
    c.own_arrivals = c.told.by_last_block && !has_arrivals(p, words) ? static_cast<int64_t>(words) : 0;
    c.told.workspace_bytes = c.arrivals_offset + c.own_arrivals * sizeof(uint32_t);
    if (c.told.workspace_bytes > asked.room) c.told.excluded = "the workspace has too few bytes";
}

// Considers splits: the same number for each sequence and, if lengths differ, those chosen by prepare_scheduler.
void weigh_splits(const request& asked, candidates& all) {
    const kgen_fwd_params& p = asked.params;
    const kgen_variant* split = find({KGEN_KIND_FWD_SPLIT, p.head_dim, p.head_dim_v, p.dtype, asked_features(p),
                                      p.score.id}, all.capability).best;
    const kgen_variant* combine = find({KGEN_KIND_FWD_COMBINE, 0, 0, KGEN_DTYPE_FP16}, all.capability).best;
    const kgen_variant* prepare = find({KGEN_KIND_PREPARE_SCHEDULER, 0, 0, KGEN_DTYPE_FP16}, all.capability).best;
    const bool unequal = p.cu_seqlens_k != nullptr || p.seqused_k != nullptr;
    const char* excluded = nullptr;
    // Considered even if splits are requested, unless by a path's flag: the kernels of a path that splits may be unable
    // to read the tensors, and the other such path may have too little workspace.
    const bool worth_one = (p.seqlen_k > 0 && (p.num_splits <= 1 || asked.paths == 0)) || only_split_kernels_serve(p);
    if (split != nullptr && worth_one) weigh_unsplit(p, *split, all);
    if (split == nullptr || combine == nullptr) excluded = NOT_HELD;
    else if (p.num_splits == 1) excluded = "num_splits is 1";
    else if (p.seqlen_k == 0) excluded = "there are no keys to split";
    if (excluded != nullptr) {
        for (const int32_t path : {KGEN_PATH_SPLIT, KGEN_PATH_SCHEDULED}) {
            candidate& c = all.add(path, p.num_splits > 0 ? p.num_splits : 1, excluded);
            c.told.variant = split != nullptr ? split->name : nullptr;
        }
        return;
    }

    const int32_t shared_bytes = device_shared_memory();
    const kernel_cost split_cost = cost_of(*split, shared_bytes), combine_cost = cost_of(*combine, shared_bytes);
    const device_cost device = cost_of_device(all.capability, all.multiprocessors);
    const request_cost r = cost_of_request(p);
    const int32_t blocks = split_blocks(all.multiprocessors, *split);
    const int32_t most = p.num_splits > 0 ? p.num_splits : most_split_count(p, blocks);
    const auto add = [&](int32_t path, int32_t num_splits, bool is_balanced) {
        candidate& c = all.add(path, num_splits, nullptr);
        c.attention = split, c.combine = combine;
        c.prepare = path == KGEN_PATH_SCHEDULED ? prepare : nullptr;
        c.concurrent_blocks = blocks;
        c.told.variant = split->name;
        tell_merged_times(c.told, asked.merging, can_count(p, c, counters_of(p, *split)),
                          [&](kgen_candidate& told, bool by_last_block) {
            tell_times(told, r, [&](const request_cost& guess) {
                const double average = is_balanced ? balanced_splits(guess, blocks, most) : num_splits;
                return path_time{
                    time_of(guess, split_cost, device, {true, average, is_balanced, static_cast<double>(num_splits)}),
                    (is_balanced ? COUNTED_NS : 0) +
                    (by_last_block ? last_block_ns(guess, split_cost, device, average, is_balanced)
                                   : combine_ns(guess, combine_cost, device, average)),
                    c.prepare != nullptr ? scheduler_ns(guess, cost_of(*prepare, shared_bytes), device) : 0};
            });
        });
        need_workspace(asked, p, *split, c);
    };
    if (p.split_counts != nullptr && most == 1) {
        all.add(KGEN_PATH_SPLIT, most, NOT_WORTH_SPLITTING).told.variant = split->name;
    } else if (p.split_counts != nullptr) {
        add(KGEN_PATH_SPLIT, most, true);
    } else if (p.num_splits > 0) {
        add(KGEN_PATH_SPLIT, p.num_splits, false);
    } else {
        int32_t counts[MOST_SPLIT_COUNTS];
        const int number = split_counts_to_weigh(r, split_cost, device, counts);
        for (int i = 0; i < number; ++i) add(KGEN_PATH_SPLIT, counts[i], false);
    }
    add(KGEN_PATH_SCHEDULED, most, true);
    const char*& scheduled = all.list[all.count - 1].told.excluded;
    if (prepare == nullptr) scheduled = NOT_HELD;
    else if (!unequal) scheduled = "all sequences have as many keys";
    else if (p.split_counts != nullptr) scheduled = "the caller has the counts";
    else if (most == 1) scheduled = NOT_WORTH_SPLITTING;
}

// Considers a kernel whose blocks may share the keys of a query tile, with several blocks for each tile: for few
// queries and many keys, where whole tiles are too few to fill the device, or fill it a little more than once.
void weigh_shared_tiles(const request& asked, candidates& all, int32_t path, uint32_t form) {
    const kgen_fwd_params& p = asked.params;
    const kgen_variant* held = find(wanted_whole(p, path, form), all.capability).best;
    const kgen_variant* combine = find({KGEN_KIND_FWD_COMBINE, 0, 0, KGEN_DTYPE_FP16}, all.capability).best;
    if (held == nullptr || combine == nullptr || p.num_splits == 1 || p.seqlen_k == 0 || p.split_counts != nullptr)
        return;
    const int32_t shared_bytes = device_shared_memory();
    const kernel_cost kernel = cost_of(*held, shared_bytes), combine_cost = cost_of(*combine, shared_bytes);
    const device_cost device = cost_of_device(all.capability, all.multiprocessors);
    const request_cost r = cost_of_request(p);
    const auto add = [&](int32_t num_splits) {
        candidate& c = all.add(path, num_splits, nullptr);
        c.attention = held, c.combine = combine;
        c.told.variant = held->name;
        tell_times(c.told, r, [&](const request_cost& guess) {
            const double splits = num_splits;
            return path_time{time_of(guess, kernel, device, {false, splits, false, splits}),
                             combine_ns(guess, combine_cost, device, splits), 0};
        });
        if (path == KGEN_PATH_DENSE && (r.unequal_queries || r.unequal_keys)) c.told.excluded = ORDER_IS_LOST;
        else if (asked.merging == KGEN_FLAG_MERGE_BY_LAST_BLOCK)
            c.told.excluded = "its partial results are merged by a launch";
        need_workspace(asked, p, *held, c);
    };
    if (p.num_splits > 0) {
        add(p.num_splits);
        return;
    }
    int32_t counts[MOST_SHARERS];
    const int number = sharers_to_weigh(r, kernel, device, counts);
    for (int i = 0; i < number; ++i) add(counts[i]);
}

// Considers two kernels for a batch in which some sequences have many queries and most have few, as when engines mix
// prefill and decoding; the keys of sequences with few queries may be split.
void weigh_mixed(const request& asked, candidates& all) {
    const kgen_fwd_params& p = asked.params;
    const request_cost r = cost_of_request(p);
    if (r.longer == 0) return;
    const wanted fwd = {KGEN_KIND_FWD, p.head_dim, p.head_dim_v, p.dtype, asked_features(p), p.score.id};
    wanted split = fwd;
    split.kind = KGEN_KIND_FWD_SPLIT;
    const kgen_variant* of_many = find(fwd, all.capability).best;
    const kgen_variant* of_few = find(split, all.capability).best;
    const kgen_variant* combine = find({KGEN_KIND_FWD_COMBINE, 0, 0, KGEN_DTYPE_FP16}, all.capability).best;
    const kgen_variant* prepare = find({KGEN_KIND_PREPARE_SCHEDULER, 0, 0, KGEN_DTYPE_FP16}, all.capability).best;
    const bool held = of_many != nullptr && of_few != nullptr,
        splits = held && combine != nullptr && (prepare != nullptr || p.split_counts != nullptr);
    const auto add = [&](int32_t num_splits, bool is_split) {
        candidate& c = all.add(KGEN_PATH_MIXED, num_splits, held ? nullptr : NOT_HELD);
        c.attention = of_many, c.few = of_few;
        c.told.variant = of_many != nullptr ? of_many->name : nullptr;
        if (!held) return;
        const int32_t shared_bytes = device_shared_memory(), blocks = split_blocks(all.multiprocessors, *of_few);
        const device_cost device = cost_of_device(all.capability, all.multiprocessors);
        if (is_split) {
            c.combine = combine, c.concurrent_blocks = blocks;
            c.prepare = p.split_counts == nullptr ? prepare : nullptr;
        }
        const kernel_cost cost_of_many = cost_of(*of_many, shared_bytes), cost_of_few = cost_of(*of_few, shared_bytes);
        const auto of_prompts = [&](const request_cost& many) {
            return time_of(many, cost_of_many, device, {false, 1, false, 1});
        };
        const auto of_scheduler = [&](const request_cost& few) {
            return c.prepare != nullptr ? scheduler_ns(few, cost_of(*prepare, shared_bytes), device) : 0;
        };
        const auto tell = [&](kgen_candidate& told, bool by_last_block) {
            // If queries are spread evenly, nearly all sequences are prompts, and the other kernel has nothing to do.
            const auto spread = [&](const request_cost& guess) {
                const double merging = is_split && !by_last_block ? cost_of(*combine, shared_bytes).launch_ns : 0;
                return path_time{of_prompts(guess), cost_of_few.launch_ns + (is_split ? COUNTED_NS : 0) + merging,
                                 of_scheduler(guess)};
            };
            const auto parted = [&](const parted_request& parts) {
                const request_cost& few = parts.few;
                const double average = is_split ? balanced_splits(few, blocks, num_splits) : 1;
                const double of_splits = time_of(few, cost_of_few, device,
                                                 {true, average, is_split, static_cast<double>(num_splits)}).total();
                const double merging = !is_split ? 0 : by_last_block
                                                           ? last_block_ns(few, cost_of_few, device, average, is_split)
                                                 : combine_ns(few, cost_of(*combine, shared_bytes), device, average);
                return path_time{of_prompts(parts.many), of_splits + merging + (is_split ? COUNTED_NS : 0),
                                 of_scheduler(few)};
            };
            tell_times(told, r, spread, parted);
        };
        if (!is_split) {
            tell(c.told, false);
            return;
        }
        const kgen_fwd_params told = told_to_few(p);
        tell_merged_times(c.told, asked.merging, can_count(told, c, counters_of(told, *of_few)), tell);
        need_workspace(asked, told, *of_few, c);
    };
    if (p.num_splits <= 1) add(1, false);
    if (p.num_splits == 1 || !splits) return;
    const int32_t most = split_limit(p, split_blocks(all.multiprocessors, *of_few));
    if (most > 1) add(most, true);
}

// If every sequence may have many queries but the total (`total_q`) is small, a grid with row tiles for the longest
// possible sequences would consist almost entirely of empty blocks. A path that sorts the sequences needs no such grid.
void leave_out_empty_grids(const kgen_fwd_params& p, candidates& all) {
    constexpr double EMPTY = 4;  // blocks per block that may have rows
    if (!may_mix(p)) return;
    bool sorted = false;
    for (int i = 0; i < all.count; ++i)
        sorted = sorted || (all.list[i].told.path == KGEN_PATH_MIXED && all.list[i].told.excluded == nullptr);
    const double group = static_cast<double>(p.num_heads) / p.num_heads_k;
    const double launched = p.batch * ceil(p.seqlen_q * group / SPLIT_TILE_ROWS),
        with_rows = p.total_q * group / SPLIT_TILE_ROWS + p.batch;
    if (!sorted || launched <= EMPTY * with_rows) return;
    for (int i = 0; i < all.count; ++i) {
        kgen_candidate& told = all.list[i].told;
        const bool by_rows = told.path == KGEN_PATH_SPLIT || told.path == KGEN_PATH_SCHEDULED;
        if (by_rows && told.excluded == nullptr) told.excluded = EMPTY_GRIDS;
    }
}

// Every path of a request and its time. Uses no pointer to a tensor and reads nothing in device memory.
void weigh(const request& asked, candidates& all) {
    const kgen_fwd_params& p = asked.params;
    all.count = 0;
    all.capability = device_capability();
    all.multiprocessors = has_work(p) && all.capability != 0 ? multiprocessor_count() : 0;
    if (all.capability == 0) return;
    enter_whole(all, p, all.add(KGEN_PATH_DENSE, 1, nullptr),
                find(wanted_whole(p, KGEN_PATH_DENSE), all.capability).best);
    if (all.multiprocessors == 0) {
        for (const int32_t path : {KGEN_PATH_SHORT, KGEN_PATH_SPLIT, KGEN_PATH_SCHEDULED})
            all.add(path, 1, "there is no work to compare paths by");
        if (only_split_kernels_serve(p)) {
            enter_whole(all, p, all.add(KGEN_PATH_SPLIT, 1, nullptr),
                        find({KGEN_KIND_FWD_SPLIT, p.head_dim, p.head_dim_v, p.dtype, asked_features(p), p.score.id},
                             all.capability).best);
        }
    } else {
        enter_whole(all, p, all.add(KGEN_PATH_SHORT, 1, nullptr),
                    find(wanted_whole(p, KGEN_PATH_SHORT), all.capability).best);
        weigh_splits(asked, all);
        weigh_shared_tiles(asked, all, KGEN_PATH_SHORT, 0);
        weigh_mixed(asked, all);
    }
    weigh_packed(asked, all);
    weigh_other_forms(asked, all);
    if (all.multiprocessors != 0) weigh_shared_tiles(asked, all, KGEN_PATH_DENSE, KGEN_FEATURE_SPLITKV);
    bool splits = false;
    for (int i = 0; i < all.count; ++i) {
        kgen_candidate& told = all.list[i].told;
        if (asked.paths != 0 && (asked.paths & KGEN_FLAG_PATH_DENSE << told.path) == 0)
            told.excluded = "the flags name other paths";
        splits = splits || (all.list[i].combine != nullptr && told.excluded == nullptr);
    }
    if (all.multiprocessors != 0) leave_out_empty_grids(p, all);
    const bool in_one_tile = static_cast<int64_t>(p.seqlen_q) * (p.num_heads_k > 0 ? p.num_heads / p.num_heads_k : 0) <=
                             SPLIT_TILE_ROWS;
    for (int i = 0; i < all.count && p.k_new != nullptr && !in_one_tile; ++i) {
        if (all.list[i].told.excluded == nullptr)
            all.list[i].told.excluded = "queries of several row tiles would write new rows several times";
    }
    // A caller that requests splits and provides the workspace gets them.
    for (int i = 0; i < all.count && p.num_splits > 1 && splits; ++i) {
        kgen_candidate& told = all.list[i].told;
        if (all.list[i].combine == nullptr && told.excluded == nullptr) told.excluded = SPLITS_WANTED;
    }
}

// Reports the reason why no path can be taken.
int no_path(const char* caller, const request& asked, const candidates& all) {
    if (all.capability == 0) return KGEN_ERROR_LAUNCH;  // last_error holds the reason
    if (asked.paths == 0) {
        int code = KGEN_SUCCESS;
        const int32_t kind = only_split_kernels_serve(asked.params) ? KGEN_KIND_FWD_SPLIT : KGEN_KIND_FWD;
        choose(caller, {kind, asked.params.head_dim, asked.params.head_dim_v, asked.params.dtype,
                        asked_features(asked.params), asked.params.score.id}, code);
        return code;
    }
    for (int i = 0; i < all.count; ++i) {
        const kgen_candidate& told = all.list[i].told;
        if ((asked.paths & KGEN_FLAG_PATH_DENSE << told.path) == 0) continue;
        const bool room = told.workspace_bytes <= asked.room;
        return fail(room ? KGEN_ERROR_NO_VARIANT : KGEN_ERROR_INVALID_VALUE,
                    "%s: no path that flags 0x%x name can be taken; path %d: %s", caller, asked.paths, told.path,
                    told.excluded);
    }
    return fail(KGEN_ERROR_NO_VARIANT, "%s: no path that flags 0x%x name can be taken", caller, asked.paths);
}

// The launches of a mixed path. `few`: parameters of the kernel for sequences with few queries, including its counts.
int launch_mixed(const candidate& c, kgen_fwd_params few, cudaStream_t stream) {
    kgen_fwd_params many = few;
    many.num_splits = 1, many.workspace = nullptr, many.workspace_bytes = 0;
    many.least_queries = few_queries(few) + 1;
    few = told_to_few(few);
    if (c.combine == nullptr) {
        few.workspace = nullptr, few.workspace_bytes = 0;
        const int code = c.attention->launch(&many, stream);
        return code != KGEN_SUCCESS ? code : c.few->launch(&few, stream);
    }
    if (const int code = c.few->launch(&few, stream)) return code;
    few.most_queries = 0;
    if (!c.told.by_last_block) {
        if (const int code = c.combine->launch(&few, stream)) return code;
    }
    // Last, because fwd_combine has merged unwritten partial results into the first rows of longer sequences. This
    // launch writes all rows of those.
    return c.attention->launch(&many, stream);
}

int launch(const request& asked, const candidate& c, cudaStream_t stream) {
    kgen_fwd_params p = asked.params;
    p.num_splits = c.told.num_splits;
    if (!splits_keys(c.told.path) && c.combine == nullptr) return c.attention->launch(&p, stream);
    p.concurrent_blocks = c.concurrent_blocks;
    uint32_t* const arrivals = p.arrivals;
    p.arrivals = nullptr;
    if (c.own_arrivals > 0) {
        p.arrivals = reinterpret_cast<uint32_t*>(static_cast<char*>(p.workspace) + c.arrivals_offset);
        p.arrivals_count = c.own_arrivals;
    }
    if (c.prepare != nullptr) {
        p.split_counts = reinterpret_cast<int32_t*>(static_cast<char*>(p.workspace) + c.counts_offset);
        if (const int code = c.prepare->launch(&p, stream)) return code;
    }
    if (c.told.by_last_block && c.own_arrivals == 0) p.arrivals = arrivals;  // `prepare` need not clear these
    if (c.told.path == KGEN_PATH_MIXED) return launch_mixed(c, p, stream);
    if (c.combine == nullptr) {
        p.workspace = nullptr, p.workspace_bytes = 0;
        return c.attention->launch(&p, stream);
    }
    if (const int code = c.attention->launch(&p, stream)) return code;
    return c.told.by_last_block ? KGEN_SUCCESS : c.combine->launch(&p, stream);
}

// Called after a kernel could not read the tensors: replaces it by another kernel of the same path, if the library
// holds one that reads them differently, or excludes the path. If that was the last path, others are admitted even
// though splits were requested (a mixed path may have requested less workspace than the others need), and even though
// most of their blocks will be empty.
void refuse(const request& asked, candidates& all, candidate& c) {
    const kgen_fwd_params& p = asked.params;
    const bool mixed = c.told.path == KGEN_PATH_MIXED,
        whole = (c.told.path == KGEN_PATH_DENSE || c.told.path == KGEN_PATH_PACKED) && c.combine == nullptr;
    const wanted same = wanted_whole(p, mixed ? KGEN_PATH_DENSE : c.told.path, c.attention->features & DENSE_FORMS);
    const kgen_variant* next = mixed || whole ? find(same, all.capability, c.attention).best : nullptr;
    if (next == nullptr) c.told.excluded = UNREADABLE;
    else if (whole) enter_whole(all, p, c, next);
    else c.attention = next, c.told.variant = next->name;
    const bool none_left = all.fastest() == nullptr;
    for (int i = 0; i < all.count && none_left; ++i) {
        kgen_candidate& told = all.list[i].told;
        if (told.excluded == SPLITS_WANTED || told.excluded == EMPTY_GRIDS) told.excluded = nullptr;
    }
}

constexpr char QUERIES_TO_COME = 0;  // its address stands for queries that the caller has not passed yet

// DeepSeek MLA decoding as engines call it: K is a cache of 576 columns, the first 512 of which are also V. This is a
// request with queries in two parts: the columns over V are multiplied with V, the others with the rest of K.
void read_values_inside_keys(kgen_fwd_params& p) {
    const bool inside = p.v == p.k && p.v_row_stride == p.k_row_stride && p.v_head_stride == p.k_head_stride &&
                        (p.cu_seqlens_k != nullptr || p.v_batch_stride == p.k_batch_stride);
    const bool of_16_bits = p.dtype == KGEN_DTYPE_FP16 || p.dtype == KGEN_DTYPE_BF16;
    if (p.head_dim != LATENT_KEYS || p.head_dim_v != LATENT_VALUES || p.qv != nullptr || !inside || !of_16_bits ||
        p.kv_dtype != 0)
        return;
    const auto behind_values = [](const void* base) {
        return base == nullptr ? nullptr : static_cast<const uint16_t*>(base) + LATENT_VALUES;
    };
    // Without queries, as when only the workspace size is requested, any address indicates that they have two parts.
    p.qv = p.q != nullptr ? p.q : static_cast<const void*>(&QUERIES_TO_COME);
    p.qv_batch_stride = p.q_batch_stride, p.qv_row_stride = p.q_row_stride, p.qv_head_stride = p.q_head_stride;
    p.q = behind_values(p.q);
    p.k = behind_values(p.k);
    p.head_dim = LATENT_KEYS - LATENT_VALUES;
}

// Reads a forward request.
int read_fwd(const char* caller, const kgen_fwd_params* given, request& asked) {
    kgen_fwd_params& p = asked.params;
    memset(static_cast<void*>(&asked), 0, sizeof asked);  // padding too: requests are compared as bytes
    if (const int code = copy_fwd_params(given, caller, p)) return code;
    if (const int code = check_flags(p.flags, FEATURE_FLAGS | PATHS | MERGING, caller)) return code;
    if (const int code = check_head_dims(p, caller)) return code;
    if (const int code = read_features(p, caller)) return code;
    if (const int code = refuse_two_places(p, caller)) return code;
    if (const int code = refuse_stray_page_descales(p, caller)) return code;
    if (const int code = check_new_rows(p, caller)) return code;
    if (p.least_queries != 0 || p.most_queries != 0) {
        return fail(KGEN_ERROR_UNSUPPORTED, "%s: least_queries %d and most_queries %d are for launchers and must be 0",
                    caller, p.least_queries, p.most_queries);
    }
    if (p.num_splits < 0 || p.num_splits > MOST_SPLITS) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: num_splits %d must lie in 0 .. %d", caller, p.num_splits,
                    MOST_SPLITS);
    }
    if (p.arrivals_count < 0) {
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: arrivals_count %lld must not be negative", caller,
                    static_cast<long long>(p.arrivals_count));
    }
    read_values_inside_keys(p);
    asked.paths = p.flags & PATHS;
    asked.merging = p.flags & MERGING;
    p.flags &= ~(PATHS | MERGING);
    asked.room = p.workspace != nullptr ? p.workspace_bytes : 0;
    return KGEN_SUCCESS;
}

wanted wanted_bwd(const kgen_bwd_params& p) {
    return {KGEN_KIND_BWD, p.head_dim, p.head_dim_v, p.dtype, asked_features(p), p.score.id};
}

// The variant after one that could not read the tensors: one that reads by TMA takes not all that others take.
const kgen_variant* next_bwd(const kgen_bwd_params& p, const kgen_variant* refused) {
    return find(wanted_bwd(p), device_capability(), refused).best;
}

const kgen_variant* choose_bwd(const char* caller, const kgen_bwd_params* given, kgen_bwd_params& params, int& code) {
    code = copy_bwd_params(given, caller, params);
    if (code == KGEN_SUCCESS) code = check_flags(params.flags, FEATURE_FLAGS | KGEN_FLAG_DETERMINISTIC, caller);
    if (code == KGEN_SUCCESS) code = check_head_dims(params, caller);
    if (code == KGEN_SUCCESS) code = read_features(params, caller);
    if (code != KGEN_SUCCESS) return nullptr;
    return choose(caller, wanted_bwd(params), code);
}

template <class T>
void keep_presence(T*& pointer) {
    pointer = reinterpret_cast<T*>(static_cast<uintptr_t>(pointer != nullptr));
}

// The parts of a request on which its choice depends: of pointers, only that they are NULL or not. A pointer that is
// not listed here is compared by value, which only makes more requests differ.
request without_addresses(const request& asked) {
    request key;
    memcpy(static_cast<void*>(&key), &asked, sizeof key);  // with its padding, which read_fwd() has cleared
    kgen_fwd_params& p = key.params;
    keep_presence(p.q), keep_presence(p.k), keep_presence(p.v), keep_presence(p.o), keep_presence(p.lse);
    keep_presence(p.cu_seqlens_q), keep_presence(p.cu_seqlens_k), keep_presence(p.seqused_q),
        keep_presence(p.seqused_k);
    keep_presence(p.q_descale), keep_presence(p.k_descale), keep_presence(p.v_descale), keep_presence(p.split_counts);
    keep_presence(p.workspace);
    each_feature_tensor(p, [](auto& tensor) { keep_presence(tensor); });
    keep_presence(p.page_table), keep_presence(p.cache_batch_idx), keep_presence(p.leftpad_k), keep_presence(p.qv);
    keep_presence(p.work_counter), keep_presence(p.arrivals), keep_presence(p.k_page_descale),
        keep_presence(p.v_page_descale);
    keep_presence(p.k_new), keep_presence(p.v_new), keep_presence(p.rotary_cos), keep_presence(p.rotary_sin),
        keep_presence(p.seqlens_rotary);
    for (auto& table : p.score.tables) keep_presence(table);
    return key;
}

// A thread's last choices; the oldest is replaced.
class choices {
public:
    // The choice for such a request on this device; NULL if it is not cached.
    const candidate* find(const request& key, int64_t device) const {
        for (const entry& e : entries) {
            if (e.used && e.device == device && memcmp(&e.key, &key, sizeof key) == 0) return &e.chosen;
        }
        return nullptr;
    }

    void remember(const request& key, int64_t device, const candidate& chosen) {
        entry& e = entries[next];
        next = (next + 1) % COUNT;
        memcpy(static_cast<void*>(&e.key), &key, sizeof key);
        e.device = device, e.chosen = chosen, e.used = true;
    }

private:
    static constexpr int COUNT = 8;  // shapes that a model's layers alternate among; each takes about 1 KB of a thread
    struct entry {
        request key;
        int64_t device;
        candidate chosen;
        bool used;
    };
    entry entries[COUNT];
    int next;
};
thread_local choices remembered;  // zeros: empty

}  // namespace

extern "C" int kgen_fwd(const kgen_fwd_params* given, cudaStream_t stream) {
    request asked;
    if (const int code = read_fwd("kgen_fwd", given, asked)) return code;
    const request key = without_addresses(asked);
    const int64_t device = device_identity();
    if (const candidate* before = remembered.find(key, device)) {
        const int code = launch(asked, *before, stream);
        if (code != KGEN_ERROR_UNSUPPORTED) return code;
    }
    candidates all;
    weigh(asked, all);
    candidate* best = all.fastest();
    if (best == nullptr) return no_path("kgen_fwd", asked, all);
    int code = launch(asked, *best, stream);
    if (code == KGEN_SUCCESS) remembered.remember(key, device, *best);
    while (code == KGEN_ERROR_UNSUPPORTED) {
        refuse(asked, all, *best);
        best = all.fastest();
        if (best == nullptr) break;
        code = launch(asked, *best, stream);
    }
    return code;
}

extern "C" size_t kgen_fwd_workspace(const kgen_fwd_params* given) {
    request asked;
    if (read_fwd("kgen_fwd_workspace", given, asked) != KGEN_SUCCESS) return 0;
    asked.room = SIZE_MAX;
    const request key = without_addresses(asked);
    const int64_t device = device_identity();
    if (const candidate* before = remembered.find(key, device)) return before->told.workspace_bytes;
    candidates all;
    weigh(asked, all);
    if (const candidate* best = all.fastest()) {
        remembered.remember(key, device, *best);
        return best->told.workspace_bytes;
    }
    no_path("kgen_fwd_workspace", asked, all);
    return 0;
}

extern "C" int kgen_fwd_metadata(const kgen_fwd_params* given, cudaStream_t stream) {
    constexpr const char* self = "kgen_fwd_metadata";
    request asked;
    if (const int code = read_fwd(self, given, asked)) return code;
    kgen_fwd_params& p = asked.params;
    if (p.batch == 0) return KGEN_SUCCESS;
    if (p.split_counts == nullptr) return fail(KGEN_ERROR_INVALID_VALUE, "%s: split_counts must not be NULL", self);
    int code;
    const kgen_variant* split =
        choose(self, {KGEN_KIND_FWD_SPLIT, p.head_dim, p.head_dim_v, p.dtype, asked_features(p), p.score.id}, code);
    if (split == nullptr) return code;
    const kgen_variant* prepare = choose(self, {KGEN_KIND_PREPARE_SCHEDULER, 0, 0, KGEN_DTYPE_FP16}, code);
    if (prepare == nullptr) return code;
    const int32_t multiprocessors = multiprocessor_count();
    if (multiprocessors == 0) return KGEN_ERROR_LAUNCH;  // last_error holds the reason
    p.concurrent_blocks = split_blocks(multiprocessors, *split);
    p.num_splits = has_work(p) ? split_limit(p, p.concurrent_blocks) : 1;
    p.arrivals = nullptr;  // the caller's are zero
    return prepare->launch(&p, stream);  // refuses impossible shapes
}

extern "C" int kgen_explain_choice(const kgen_fwd_params* given, kgen_choice* choice) {
    constexpr const char* self = "kgen_explain_choice";
    kgen_choice own;
    if (choice == nullptr) return fail(KGEN_ERROR_INVALID_VALUE, "%s: choice is NULL", self);
    if (const int code = copy_structure(choice, sizeof(kgen_choice), KGEN_ABI_VERSION, "kgen_choice", self, own))
        return code;
    if (own.candidate_size < sizeof(kgen_candidate) || own.candidate_size > LARGEST_PARAMS ||
        own.candidate_size % alignof(kgen_candidate) != 0) {
        return fail(KGEN_ERROR_INVALID_VALUE,
                    "%s: choice.candidate_size is %u; version %d of kgen_candidate has %zu bytes", self,
                    own.candidate_size, KGEN_ABI_VERSION, sizeof(kgen_candidate));
    }
    if (own.capacity < 0)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: choice.capacity %d must not be negative", self, own.capacity);
    if (own.capacity > 0 && own.candidates == nullptr)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: choice.candidates must not be NULL", self);
    choice->count = 0, choice->chosen = -1, choice->multiprocessors = 0;
    request asked;
    if (const int code = read_fwd(self, given, asked)) return code;
    candidates all;
    weigh(asked, all);
    const candidate* best = all.fastest();
    for (int i = 0; i < all.count && i < own.capacity; ++i) {
        char* row = reinterpret_cast<char*>(own.candidates) + i * static_cast<size_t>(own.candidate_size);
        memset(row, 0, own.candidate_size);  // fields of a newer caller's row
        memcpy(row, &all.list[i].told, sizeof(kgen_candidate));
    }
    choice->count = all.count;
    choice->chosen = best != nullptr ? static_cast<int32_t>(best - all.list) : -1;
    choice->multiprocessors = all.multiprocessors;
    return best != nullptr ? KGEN_SUCCESS : no_path(self, asked, all);
}

extern "C" int kgen_bwd(const kgen_bwd_params* given, cudaStream_t stream) {
    kgen_bwd_params params;
    int code;
    const kgen_variant* variant = choose_bwd("kgen_bwd", given, params, code);
    for (; variant != nullptr; variant = next_bwd(params, variant)) {
        code = variant->launch_bwd(&params, stream);
        if (code != KGEN_ERROR_UNSUPPORTED) break;
    }
    return code;
}

extern "C" size_t kgen_bwd_workspace(const kgen_bwd_params* given) {
    kgen_bwd_params params;
    int code;
    const kgen_variant* variant = choose_bwd("kgen_bwd_workspace", given, params, code);
    size_t bytes = 0;  // enough for each variant that the call may come to
    for (; variant != nullptr; variant = next_bwd(params, variant)) {
        const size_t its_bytes = origin_of(*variant).bwd_workspace(&params);
        bytes = its_bytes > bytes ? its_bytes : bytes;
    }
    return bytes;
}

extern "C" const kgen_variant* kgen_variants(size_t* count) {
    if (count != nullptr) *count = sizeof VARIANTS / sizeof VARIANTS[0];
    return VARIANTS;
}


// ── vector_add
// ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#include "kgen/contiguous.cuh"

namespace {

// The launcher of each variant, at its place in the table.
#define KGEN_VECTOR_ADD(name, ...) only_as<kgen_vector_add_launcher>(name),
constexpr kgen_vector_add_launcher VECTOR_ADD[] = {KGEN_KERNELS(KGEN_VECTOR_ADD)};

}  // namespace

extern "C" int kgen_vector_add(const kgen_vector_add_params* given, cudaStream_t stream) {
    kgen_vector_add_params params;
    if (const int code = copy_params(given, "kgen_vector_add", "kgen_vector_add_params", params)) return code;
    int code;
    const kgen_variant* variant = choose("kgen_vector_add", {KGEN_KIND_VECTOR_ADD, 0, 0, params.dtype}, code);
    return variant != nullptr ? VECTOR_ADD[variant - VARIANTS](&params, stream) : code;
}


// ── transpose
// ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#include "kgen/contiguous.cuh"

namespace {

// The launcher of each variant, at its place in the table.
#define KGEN_TRANSPOSE(name, ...) only_as<kgen_transpose_launcher>(name),
constexpr kgen_transpose_launcher TRANSPOSE[] = {KGEN_KERNELS(KGEN_TRANSPOSE)};

}  // namespace

extern "C" int kgen_transpose(const kgen_transpose_params* given, cudaStream_t stream) {
    kgen_transpose_params params;
    if (const int code = copy_params(given, "kgen_transpose", "kgen_transpose_params", params)) return code;
    // The type of the elements does not matter; variants are listed under one type of each size.
    int32_t dtype;
    switch (params.element_bytes) {
        case 1: dtype = KGEN_DTYPE_FP8_E4M3; break;
        case 2: dtype = KGEN_DTYPE_FP16; break;
        case 4: dtype = KGEN_DTYPE_FP32; break;
        default: return fail(KGEN_ERROR_NO_VARIANT,
                             "kgen_transpose: params.element_bytes is %d; elements have 1, 2 or 4 bytes",
                             params.element_bytes);
    }
    int code;
    const kgen_variant* variant = choose("kgen_transpose", {KGEN_KIND_TRANSPOSE, 0, 0, dtype}, code);
    return variant != nullptr ? TRANSPOSE[variant - VARIANTS](&params, stream) : code;
}


// ── reduce ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#include "kgen/contiguous.cuh"

namespace {

// The launcher of each variant, at its place in the table.
#define KGEN_REDUCE(name, ...) only_as<kgen_reduce_launcher>(name),
constexpr kgen_reduce_launcher REDUCE[] = {KGEN_KERNELS(KGEN_REDUCE)};

// And its workspace function.
#define KGEN_REDUCE_WORKSPACE(name, params, workspace, ...) only_as<size_t (*)(const kgen_reduce_params*)>(KGEN_WORKSPACE_OF_##workspace(name)),
constexpr size_t (*REDUCE_WORKSPACES[])(const kgen_reduce_params*) = {KGEN_KERNELS(KGEN_REDUCE_WORKSPACE)};

const kgen_variant* choose_reduce(const char* caller, const kgen_reduce_params* given, kgen_reduce_params& params,
                                  int& code) {
    code = copy_params(given, caller, "kgen_reduce_params", params);
    if (code != KGEN_SUCCESS) return nullptr;
    int32_t kind;
    switch (params.operation) {
        case KGEN_REDUCE_SUM: kind = KGEN_KIND_REDUCE_SUM; break;
        case KGEN_REDUCE_MAX: kind = KGEN_KIND_REDUCE_MAX; break;
        case KGEN_REDUCE_LOGSUMEXP: kind = KGEN_KIND_REDUCE_LOGSUMEXP; break;
        default:
            code = fail(KGEN_ERROR_INVALID_VALUE, "%s: params.operation is %d, none of KGEN_REDUCE_*", caller,
                        params.operation);
            return nullptr;
    }
    return choose(caller, {kind, 0, 0, params.dtype}, code);
}

}  // namespace

extern "C" int kgen_reduce(const kgen_reduce_params* given, cudaStream_t stream) {
    kgen_reduce_params params;
    int code;
    const kgen_variant* variant = choose_reduce("kgen_reduce", given, params, code);
    return variant != nullptr ? REDUCE[variant - VARIANTS](&params, stream) : code;
}

extern "C" size_t kgen_reduce_workspace(const kgen_reduce_params* given) {
    kgen_reduce_params params;
    int code;
    const kgen_variant* variant = choose_reduce("kgen_reduce_workspace", given, params, code);
    return variant != nullptr ? REDUCE_WORKSPACES[variant - VARIANTS](&params) : 0;
}


// ── append_kv
// ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#include "kgen/append_kv_params.cuh"

namespace {

// The launcher of each variant, at its place in the table.
#define KGEN_APPEND_KV(name, ...) only_as<kgen_append_kv_launcher>(name),
constexpr kgen_append_kv_launcher APPEND_KV[] = {KGEN_KERNELS(KGEN_APPEND_KV)};

// True if the cache of K or V is the tensor that attention reads.
bool is_one_tensor(const void* cache, const int64_t (&strides)[3], const void* read, const int64_t (&read_strides)[3]) {
    return cache == read && memcmp(strides, read_strides, sizeof strides) == 0;
}

// True if two descale factors are the same tensor.
bool are_one_factor(const float* one, int64_t one_batch, int64_t one_head, const float* other, int64_t other_batch,
                    int64_t other_head) {
    return one == other && (one == nullptr || (one_batch == other_batch && one_head == other_head));
}

// True if both calls describe the same cache and rows.
bool have_one_cache(const kgen_append_kv_params& a, const kgen_fwd_params& p) {
    const bool tensors = is_one_tensor(a.k_cache, {a.k_cache_page_stride, a.k_cache_row_stride, a.k_cache_head_stride},
                                       p.k, {p.k_batch_stride, p.k_row_stride, p.k_head_stride}) &&
                         is_one_tensor(a.v_cache, {a.v_cache_page_stride, a.v_cache_row_stride, a.v_cache_head_stride},
                                       p.v, {p.v_batch_stride, p.v_row_stride, p.v_head_stride});
    const bool shapes = a.batch == p.batch && a.num_heads_k == p.num_heads_k && a.head_dim == p.head_dim &&
                        a.head_dim_v == p.head_dim_v && a.dtype == p.dtype &&
                        a.cache_dtype == (p.kv_dtype != 0 ? p.kv_dtype : p.dtype);
    const bool places = a.page_table == p.page_table && a.cache_batch_idx == p.cache_batch_idx &&
                        p.seqlen_k <= append_capacity(a) &&
                        (p.page_table == nullptr || (a.page_table_stride == p.page_table_stride &&
                                                     a.page_size == p.page_size && a.num_pages == p.num_pages));
    const bool factors = p.kv_dtype == 0 ||
                         ((a.flags & KGEN_FLAG_DESCALE_BY_PAGE) == 0 && p.k_page_descale == nullptr &&
                          p.v_page_descale == nullptr &&
                          are_one_factor(a.k_descale, a.k_descale_batch_stride, a.k_descale_head_stride, p.k_descale,
                                         p.k_descale_batch_stride, p.k_descale_head_stride) &&
                          are_one_factor(a.v_descale, a.v_descale_batch_stride, a.v_descale_head_stride, p.v_descale,
                                         p.v_descale_batch_stride, p.v_descale_head_stride));
    return tensors && shapes && places && factors;
}

// True if attention reads the queries that the append rotates, at the same positions, or if there is no rotation.
bool have_one_query(const kgen_append_kv_params& a, const kgen_fwd_params& p) {
    if (a.rotary_cos == nullptr) return a.q == nullptr;
    constexpr uint32_t masks = KGEN_FLAG_CAUSAL | KGEN_FLAG_WINDOW;
    const bool strides = (p.cu_seqlens_q != nullptr || a.q_out_batch_stride == p.q_batch_stride) &&
                         a.q_out_row_stride == p.q_row_stride && a.q_out_head_stride == p.q_head_stride;
    const bool rows = a.cu_seqlens_q == p.cu_seqlens_q && (p.cu_seqlens_q != nullptr || a.seqlen_q == p.seqlen_q);
    return a.q != nullptr && a.q_out == p.q && strides && rows && a.num_heads == p.num_heads &&
           ((a.flags & masks) != 0) == ((p.flags & masks) != 0);
}

// True if one kernel could serve both calls, whose parameters must be valid; `p` then receives that kernel's
// parameters.
bool as_one_call(const kgen_append_kv_params& a, kgen_fwd_params& p) {
    const bool rows = a.k != nullptr && a.slot_mapping == nullptr && a.positions == nullptr &&
                      a.cu_seqlens_new == nullptr && p.qv == nullptr;
    const bool lengths = a.seqlens_after != nullptr && p.seqused_k == a.seqlens_after;
    if (!rows || !lengths || !have_one_cache(a, p) || !have_one_query(a, p)) return false;
    p.k_new = a.k, p.v_new = a.v, p.seqlen_new = a.seqlen_new, p.seqused_k = a.cache_seqlens;
    p.k_new_batch_stride = a.k_batch_stride, p.k_new_row_stride = a.k_row_stride, p.k_new_head_stride = a.k_head_stride;
    p.v_new_batch_stride = a.v_batch_stride, p.v_new_row_stride = a.v_row_stride, p.v_new_head_stride = a.v_head_stride;
    if (a.rotary_cos == nullptr) return true;
    p.rotary_cos = a.rotary_cos, p.rotary_sin = a.rotary_sin, p.rotary_row_stride = a.rotary_row_stride,
        p.seqlens_rotary = a.seqlens_rotary;
    p.rotary_dim = a.rotary_dim, p.rotary_rows = a.rotary_rows,
        p.rotary_interleaved = (a.flags & KGEN_FLAG_ROTARY_INTERLEAVED) != 0;
    p.q = a.q, p.q_batch_stride = a.q_batch_stride, p.q_row_stride = a.q_row_stride, p.q_head_stride = a.q_head_stride;
    return true;
}

// Cost of the single launch in addition to attention, and of a launch of append_kv before it: about the medians of ten
// shapes, on an H100 and on an H200 (docs/results/2026-11-25-h200.md).
constexpr double WRITING_NS = 1100, APPEND_NS = 3300;

// The kernel that serves both calls in one launch, or none.
candidate in_one_launch(const request& one, const request& two) {
    candidates with_rows, without;
    weigh(one, with_rows);
    const candidate* fused = with_rows.fastest();
    if (fused == nullptr) return {};
    weigh(two, without);
    const candidate* plain = without.fastest();
    return plain == nullptr || fused->told.predicted_ns + WRITING_NS < plain->told.predicted_ns + APPEND_NS
               ? *fused : candidate{};
}

thread_local choices remembered_for_kvcache;

}  // namespace

extern "C" int kgen_append_kv(const kgen_append_kv_params* given, cudaStream_t stream) {
    kgen_append_kv_params params;
    if (const int code = copy_append_kv_params(given, "kgen_append_kv", params)) return code;
    int code;
    const kgen_variant* variant = choose("kgen_append_kv", {KGEN_KIND_APPEND_KV, 0, 0, params.dtype}, code);
    return variant != nullptr ? APPEND_KV[variant - VARIANTS](&params, stream) : code;
}

extern "C" int kgen_fwd_kvcache(const kgen_append_kv_params* append, const kgen_fwd_params* attention,
                                cudaStream_t stream) {
    constexpr const char* self = "kgen_fwd_kvcache";
    kgen_append_kv_params rows;
    if (const int code = copy_append_kv_params(append, self, rows)) return code;
    request two;
    if (const int code = read_fwd(self, attention, two)) return code;
    if (two.params.k_new != nullptr)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: k_new must be NULL: new rows are those of `append`", self);
    request one = two;
    if (as_one_call(rows, one.params)) {
        const request key = without_addresses(one);
        const int64_t device = device_identity();
        const candidate* before = remembered_for_kvcache.find(key, device);
        const candidate chosen = before != nullptr ? *before : in_one_launch(one, two);
        if (before == nullptr) remembered_for_kvcache.remember(key, device, chosen);
        if (chosen.attention != nullptr) {
            const int code = launch(one, chosen, stream);
            if (code != KGEN_ERROR_UNSUPPORTED) return code;
        }
    }
    const int code = kgen_append_kv(append, stream);
    return code != KGEN_SUCCESS ? code : kgen_fwd(attention, stream);
}


// ── rmsnorm
// ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#include "kgen/contiguous.cuh"

namespace {

// The launcher of each variant, at its place in the table.
#define KGEN_RMSNORM(name, ...) only_as<kgen_rmsnorm_launcher>(name),
constexpr kgen_rmsnorm_launcher RMSNORM[] = {KGEN_KERNELS(KGEN_RMSNORM)};

}  // namespace

extern "C" int kgen_rmsnorm(const kgen_rmsnorm_params* given, cudaStream_t stream) {
    kgen_rmsnorm_params params;
    if (const int code = copy_params(given, "kgen_rmsnorm", "kgen_rmsnorm_params", params)) return code;
    int code;
    const kgen_variant* variant = choose("kgen_rmsnorm", {KGEN_KIND_RMSNORM, 0, 0, params.dtype}, code);
    return variant != nullptr ? RMSNORM[variant - VARIANTS](&params, stream) : code;
}
