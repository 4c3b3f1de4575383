// The dispatcher of libkgen: which variants the library holds, and which of them answers a request.
// Made by kgen 0.1.0 from templates/bindings/kgen_dispatch.cpp.tera; edit that, not this.
//
// For the host compiler or nvcc. Define KGEN_NO_PTX when the kernels' objects were built with machine code alone.

#include <type_traits>

#include "kgen.h"
#include "kgen/blocks.cuh"
#include "kgen/device.cuh"
#include "kgen/launch.cuh"
#include "kgen/params.cuh"
#include "kgen/split_plan.cuh"

// Every kernel of this library, sorted by name. CMake's KGEN_KERNELS leaves some out: KGEN_TABLE then names a file with the others.
#ifdef KGEN_TABLE
#include KGEN_TABLE
#else
// name, structure of its parameters, whether <name>_workspace comes with it; kind, head dim, dtype, features; compute capability it was
// made for, the newest for its machine code, and with its PTX; shared memory of a block, and what a block may have on the GPUs that the
// plan was made for; tiles of 16 rows that a multiprocessor runs at once (split-KV only).
#define KGEN_KERNELS(KERNEL) \
    KERNEL(flash_bwd_hdim128_bf16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim128_bf16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 90368, 101376, 0) \
    KERNEL(flash_bwd_hdim128_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0) \
    KERNEL(flash_bwd_hdim128_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim128_bf16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_BF16, 0, 100, 103, 103, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim128_bf16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_BF16, 0, 120, 121, 121, 90368, 101376, 0) \
    KERNEL(flash_bwd_hdim128_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0) \
    KERNEL(flash_bwd_hdim128_bf16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_BF16, 0, 90, 90, 90, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim128_fp16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim128_fp16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 90368, 101376, 0) \
    KERNEL(flash_bwd_hdim128_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0) \
    KERNEL(flash_bwd_hdim128_fp16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim128_fp16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_FP16, 0, 100, 103, 103, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim128_fp16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_FP16, 0, 120, 121, 121, 90368, 101376, 0) \
    KERNEL(flash_bwd_hdim128_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0) \
    KERNEL(flash_bwd_hdim128_fp16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 128, KGEN_DTYPE_FP16, 0, 90, 90, 90, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim160_bf16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim160_bf16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 90624, 101376, 0) \
    KERNEL(flash_bwd_hdim160_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0) \
    KERNEL(flash_bwd_hdim160_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim160_bf16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_BF16, 0, 100, 103, 103, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim160_bf16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_BF16, 0, 120, 121, 121, 90624, 101376, 0) \
    KERNEL(flash_bwd_hdim160_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0) \
    KERNEL(flash_bwd_hdim160_bf16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_BF16, 0, 90, 90, 90, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim160_fp16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim160_fp16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 90624, 101376, 0) \
    KERNEL(flash_bwd_hdim160_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0) \
    KERNEL(flash_bwd_hdim160_fp16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim160_fp16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_FP16, 0, 100, 103, 103, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim160_fp16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_FP16, 0, 120, 121, 121, 90624, 101376, 0) \
    KERNEL(flash_bwd_hdim160_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0) \
    KERNEL(flash_bwd_hdim160_fp16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 160, KGEN_DTYPE_FP16, 0, 90, 90, 90, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim192_bf16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim192_bf16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 78080, 101376, 0) \
    KERNEL(flash_bwd_hdim192_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0) \
    KERNEL(flash_bwd_hdim192_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim192_bf16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_BF16, 0, 100, 103, 103, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim192_bf16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_BF16, 0, 120, 121, 121, 78080, 101376, 0) \
    KERNEL(flash_bwd_hdim192_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0) \
    KERNEL(flash_bwd_hdim192_bf16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_BF16, 0, 90, 90, 90, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim192_fp16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim192_fp16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 78080, 101376, 0) \
    KERNEL(flash_bwd_hdim192_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0) \
    KERNEL(flash_bwd_hdim192_fp16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim192_fp16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_FP16, 0, 100, 103, 103, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim192_fp16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_FP16, 0, 120, 121, 121, 78080, 101376, 0) \
    KERNEL(flash_bwd_hdim192_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 164864, 166912, 0) \
    KERNEL(flash_bwd_hdim192_fp16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 192, KGEN_DTYPE_FP16, 0, 90, 90, 90, 164864, 232448, 0) \
    KERNEL(flash_bwd_hdim224_bf16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 123392, 232448, 0) \
    KERNEL(flash_bwd_hdim224_bf16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 90368, 101376, 0) \
    KERNEL(flash_bwd_hdim224_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 123392, 166912, 0) \
    KERNEL(flash_bwd_hdim224_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 123392, 232448, 0) \
    KERNEL(flash_bwd_hdim224_bf16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_BF16, 0, 100, 103, 103, 123392, 232448, 0) \
    KERNEL(flash_bwd_hdim224_bf16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_BF16, 0, 120, 121, 121, 90368, 101376, 0) \
    KERNEL(flash_bwd_hdim224_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 123392, 166912, 0) \
    KERNEL(flash_bwd_hdim224_bf16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_BF16, 0, 90, 90, 90, 123392, 232448, 0) \
    KERNEL(flash_bwd_hdim224_fp16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 123392, 232448, 0) \
    KERNEL(flash_bwd_hdim224_fp16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 90368, 101376, 0) \
    KERNEL(flash_bwd_hdim224_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 123392, 166912, 0) \
    KERNEL(flash_bwd_hdim224_fp16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 123392, 232448, 0) \
    KERNEL(flash_bwd_hdim224_fp16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_FP16, 0, 100, 103, 103, 123392, 232448, 0) \
    KERNEL(flash_bwd_hdim224_fp16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_FP16, 0, 120, 121, 121, 90368, 101376, 0) \
    KERNEL(flash_bwd_hdim224_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 123392, 166912, 0) \
    KERNEL(flash_bwd_hdim224_fp16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 224, KGEN_DTYPE_FP16, 0, 90, 90, 90, 123392, 232448, 0) \
    KERNEL(flash_bwd_hdim256_bf16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim256_bf16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 67840, 101376, 0) \
    KERNEL(flash_bwd_hdim256_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0) \
    KERNEL(flash_bwd_hdim256_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim256_bf16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_BF16, 0, 100, 103, 103, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim256_bf16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_BF16, 0, 120, 121, 121, 67840, 101376, 0) \
    KERNEL(flash_bwd_hdim256_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0) \
    KERNEL(flash_bwd_hdim256_bf16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_BF16, 0, 90, 90, 90, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim256_fp16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim256_fp16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 67840, 101376, 0) \
    KERNEL(flash_bwd_hdim256_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0) \
    KERNEL(flash_bwd_hdim256_fp16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim256_fp16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_FP16, 0, 100, 103, 103, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim256_fp16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_FP16, 0, 120, 121, 121, 67840, 101376, 0) \
    KERNEL(flash_bwd_hdim256_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 139776, 166912, 0) \
    KERNEL(flash_bwd_hdim256_fp16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 256, KGEN_DTYPE_FP16, 0, 90, 90, 90, 139776, 232448, 0) \
    KERNEL(flash_bwd_hdim32_bf16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 66560, 232448, 0) \
    KERNEL(flash_bwd_hdim32_bf16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 66560, 101376, 0) \
    KERNEL(flash_bwd_hdim32_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 66560, 166912, 0) \
    KERNEL(flash_bwd_hdim32_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 66560, 232448, 0) \
    KERNEL(flash_bwd_hdim32_bf16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_BF16, 0, 100, 103, 103, 66560, 232448, 0) \
    KERNEL(flash_bwd_hdim32_bf16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_BF16, 0, 120, 121, 121, 66560, 101376, 0) \
    KERNEL(flash_bwd_hdim32_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 66560, 166912, 0) \
    KERNEL(flash_bwd_hdim32_bf16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_BF16, 0, 90, 90, 90, 66560, 232448, 0) \
    KERNEL(flash_bwd_hdim32_fp16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 66560, 232448, 0) \
    KERNEL(flash_bwd_hdim32_fp16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 66560, 101376, 0) \
    KERNEL(flash_bwd_hdim32_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 66560, 166912, 0) \
    KERNEL(flash_bwd_hdim32_fp16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 66560, 232448, 0) \
    KERNEL(flash_bwd_hdim32_fp16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_FP16, 0, 100, 103, 103, 66560, 232448, 0) \
    KERNEL(flash_bwd_hdim32_fp16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_FP16, 0, 120, 121, 121, 66560, 101376, 0) \
    KERNEL(flash_bwd_hdim32_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 66560, 166912, 0) \
    KERNEL(flash_bwd_hdim32_fp16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 32, KGEN_DTYPE_FP16, 0, 90, 90, 90, 66560, 232448, 0) \
    KERNEL(flash_bwd_hdim64_bf16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 99328, 232448, 0) \
    KERNEL(flash_bwd_hdim64_bf16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 99328, 101376, 0) \
    KERNEL(flash_bwd_hdim64_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 99328, 166912, 0) \
    KERNEL(flash_bwd_hdim64_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 99328, 232448, 0) \
    KERNEL(flash_bwd_hdim64_bf16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_BF16, 0, 100, 103, 103, 99328, 232448, 0) \
    KERNEL(flash_bwd_hdim64_bf16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_BF16, 0, 120, 121, 121, 99328, 101376, 0) \
    KERNEL(flash_bwd_hdim64_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 99328, 166912, 0) \
    KERNEL(flash_bwd_hdim64_bf16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_BF16, 0, 90, 90, 90, 99328, 232448, 0) \
    KERNEL(flash_bwd_hdim64_fp16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 99328, 232448, 0) \
    KERNEL(flash_bwd_hdim64_fp16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 99328, 101376, 0) \
    KERNEL(flash_bwd_hdim64_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 99328, 166912, 0) \
    KERNEL(flash_bwd_hdim64_fp16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 99328, 232448, 0) \
    KERNEL(flash_bwd_hdim64_fp16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_FP16, 0, 100, 103, 103, 99328, 232448, 0) \
    KERNEL(flash_bwd_hdim64_fp16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_FP16, 0, 120, 121, 121, 99328, 101376, 0) \
    KERNEL(flash_bwd_hdim64_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 99328, 166912, 0) \
    KERNEL(flash_bwd_hdim64_fp16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 64, KGEN_DTYPE_FP16, 0, 90, 90, 90, 99328, 232448, 0) \
    KERNEL(flash_bwd_hdim96_bf16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 132096, 232448, 0) \
    KERNEL(flash_bwd_hdim96_bf16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 90624, 101376, 0) \
    KERNEL(flash_bwd_hdim96_bf16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 132096, 166912, 0) \
    KERNEL(flash_bwd_hdim96_bf16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 132096, 232448, 0) \
    KERNEL(flash_bwd_hdim96_bf16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_BF16, 0, 100, 103, 103, 132096, 232448, 0) \
    KERNEL(flash_bwd_hdim96_bf16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_BF16, 0, 120, 121, 121, 90624, 101376, 0) \
    KERNEL(flash_bwd_hdim96_bf16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 132096, 166912, 0) \
    KERNEL(flash_bwd_hdim96_bf16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_BF16, 0, 90, 90, 90, 132096, 232448, 0) \
    KERNEL(flash_bwd_hdim96_fp16_causal_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 132096, 232448, 0) \
    KERNEL(flash_bwd_hdim96_fp16_causal_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 90624, 101376, 0) \
    KERNEL(flash_bwd_hdim96_fp16_causal_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 132096, 166912, 0) \
    KERNEL(flash_bwd_hdim96_fp16_causal_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 132096, 232448, 0) \
    KERNEL(flash_bwd_hdim96_fp16_sm100, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_FP16, 0, 100, 103, 103, 132096, 232448, 0) \
    KERNEL(flash_bwd_hdim96_fp16_sm120, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_FP16, 0, 120, 121, 121, 90624, 101376, 0) \
    KERNEL(flash_bwd_hdim96_fp16_sm80, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 132096, 166912, 0) \
    KERNEL(flash_bwd_hdim96_fp16_sm90, kgen_bwd_params, 1, KGEN_KIND_BWD, 96, KGEN_DTYPE_FP16, 0, 90, 90, 90, 132096, 232448, 0) \
    KERNEL(flash_fwd_combine_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_COMBINE, 0, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 4096, 166912, 0) \
    KERNEL(flash_fwd_hdim128_bf16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 57344, 232448, 0) \
    KERNEL(flash_fwd_hdim128_bf16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_bf16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 65536, 166912, 0) \
    KERNEL(flash_fwd_hdim128_bf16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 198784, 232448, 0) \
    KERNEL(flash_fwd_hdim128_bf16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, 0, 100, 103, 103, 57344, 232448, 0) \
    KERNEL(flash_fwd_hdim128_bf16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, 0, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_bf16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, 0, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 65536, 166912, 0) \
    KERNEL(flash_fwd_hdim128_bf16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, 0, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, 0, 90, 90, 90, 181408, 232448, 0) \
    KERNEL(flash_fwd_hdim128_fp16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 57344, 232448, 0) \
    KERNEL(flash_fwd_hdim128_fp16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp16_causal_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 75, 79, EVERY_NEWER_GPU, 65536, 65536, 0) \
    KERNEL(flash_fwd_hdim128_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 65536, 166912, 0) \
    KERNEL(flash_fwd_hdim128_fp16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 198784, 232448, 0) \
    KERNEL(flash_fwd_hdim128_fp16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, 0, 100, 103, 103, 57344, 232448, 0) \
    KERNEL(flash_fwd_hdim128_fp16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, 0, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, 0, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp16_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, 0, 75, 79, EVERY_NEWER_GPU, 65536, 65536, 0) \
    KERNEL(flash_fwd_hdim128_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 65536, 166912, 0) \
    KERNEL(flash_fwd_hdim128_fp16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, 0, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, 0, 90, 90, 90, 181408, 232448, 0) \
    KERNEL(flash_fwd_hdim128_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 120, 121, 121, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 121, 121, 121, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 90, 90, 90, 149696, 232448, 0) \
    KERNEL(flash_fwd_hdim128_fp8_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP8_E4M3, 0, 120, 121, 121, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp8_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP8_E4M3, 0, 121, 121, 121, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp8_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP8_E4M3, 0, 89, 89, EVERY_NEWER_GPU, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim128_fp8_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 128, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 149696, 232448, 0) \
    KERNEL(flash_fwd_hdim160_bf16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 61440, 232448, 0) \
    KERNEL(flash_fwd_hdim160_bf16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_bf16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 61440, 166912, 0) \
    KERNEL(flash_fwd_hdim160_bf16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 226416, 232448, 0) \
    KERNEL(flash_fwd_hdim160_bf16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, 0, 100, 103, 103, 61440, 232448, 0) \
    KERNEL(flash_fwd_hdim160_bf16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, 0, 120, 121, 121, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_bf16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, 0, 121, 121, 121, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 61440, 166912, 0) \
    KERNEL(flash_fwd_hdim160_bf16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, 0, 89, 89, EVERY_NEWER_GPU, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, 0, 90, 90, 90, 226416, 232448, 0) \
    KERNEL(flash_fwd_hdim160_fp16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 61440, 232448, 0) \
    KERNEL(flash_fwd_hdim160_fp16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 61440, 166912, 0) \
    KERNEL(flash_fwd_hdim160_fp16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 226416, 232448, 0) \
    KERNEL(flash_fwd_hdim160_fp16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, 0, 100, 103, 103, 61440, 232448, 0) \
    KERNEL(flash_fwd_hdim160_fp16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, 0, 120, 121, 121, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, 0, 121, 121, 121, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 61440, 166912, 0) \
    KERNEL(flash_fwd_hdim160_fp16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, 0, 89, 89, EVERY_NEWER_GPU, 40960, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, 0, 90, 90, 90, 226416, 232448, 0) \
    KERNEL(flash_fwd_hdim160_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 120, 121, 121, 30720, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 121, 121, 121, 30720, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 30720, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 90, 90, 90, 155840, 232448, 0) \
    KERNEL(flash_fwd_hdim160_fp8_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP8_E4M3, 0, 120, 121, 121, 30720, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp8_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP8_E4M3, 0, 121, 121, 121, 30720, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp8_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP8_E4M3, 0, 89, 89, EVERY_NEWER_GPU, 30720, 101376, 0) \
    KERNEL(flash_fwd_hdim160_fp8_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 160, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 155840, 232448, 0) \
    KERNEL(flash_fwd_hdim192_bf16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 73728, 232448, 0) \
    KERNEL(flash_fwd_hdim192_bf16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_bf16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 73728, 166912, 0) \
    KERNEL(flash_fwd_hdim192_bf16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 197760, 232448, 0) \
    KERNEL(flash_fwd_hdim192_bf16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, 0, 100, 103, 103, 73728, 232448, 0) \
    KERNEL(flash_fwd_hdim192_bf16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, 0, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_bf16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, 0, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 73728, 166912, 0) \
    KERNEL(flash_fwd_hdim192_bf16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, 0, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, 0, 90, 90, 90, 222304, 232448, 0) \
    KERNEL(flash_fwd_hdim192_fp16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 73728, 232448, 0) \
    KERNEL(flash_fwd_hdim192_fp16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 73728, 166912, 0) \
    KERNEL(flash_fwd_hdim192_fp16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 197760, 232448, 0) \
    KERNEL(flash_fwd_hdim192_fp16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, 0, 100, 103, 103, 73728, 232448, 0) \
    KERNEL(flash_fwd_hdim192_fp16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, 0, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, 0, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 73728, 166912, 0) \
    KERNEL(flash_fwd_hdim192_fp16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, 0, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, 0, 90, 90, 90, 222304, 232448, 0) \
    KERNEL(flash_fwd_hdim192_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 120, 121, 121, 36864, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 121, 121, 121, 36864, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 36864, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 90, 90, 90, 222336, 232448, 0) \
    KERNEL(flash_fwd_hdim192_fp8_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP8_E4M3, 0, 120, 121, 121, 36864, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp8_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP8_E4M3, 0, 121, 121, 121, 36864, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp8_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP8_E4M3, 0, 89, 89, EVERY_NEWER_GPU, 36864, 101376, 0) \
    KERNEL(flash_fwd_hdim192_fp8_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 192, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 222336, 232448, 0) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 86016, 232448, 0) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 86016, 166912, 0) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 231536, 232448, 0) \
    KERNEL(flash_fwd_hdim224_bf16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, 0, 100, 103, 103, 100352, 232448, 0) \
    KERNEL(flash_fwd_hdim224_bf16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, 0, 120, 121, 121, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_bf16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, 0, 121, 121, 121, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 100352, 166912, 0) \
    KERNEL(flash_fwd_hdim224_bf16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, 0, 89, 89, EVERY_NEWER_GPU, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, 0, 90, 90, 90, 231536, 232448, 0) \
    KERNEL(flash_fwd_hdim224_fp16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 86016, 232448, 0) \
    KERNEL(flash_fwd_hdim224_fp16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 86016, 166912, 0) \
    KERNEL(flash_fwd_hdim224_fp16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 231536, 232448, 0) \
    KERNEL(flash_fwd_hdim224_fp16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, 0, 100, 103, 103, 100352, 232448, 0) \
    KERNEL(flash_fwd_hdim224_fp16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, 0, 120, 121, 121, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, 0, 121, 121, 121, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 100352, 166912, 0) \
    KERNEL(flash_fwd_hdim224_fp16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, 0, 89, 89, EVERY_NEWER_GPU, 86016, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, 0, 90, 90, 90, 231536, 232448, 0) \
    KERNEL(flash_fwd_hdim224_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 120, 121, 121, 43008, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 121, 121, 121, 43008, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 43008, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 90, 90, 90, 231552, 232448, 0) \
    KERNEL(flash_fwd_hdim224_fp8_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP8_E4M3, 0, 120, 121, 121, 43008, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp8_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP8_E4M3, 0, 121, 121, 121, 43008, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp8_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP8_E4M3, 0, 89, 89, EVERY_NEWER_GPU, 43008, 101376, 0) \
    KERNEL(flash_fwd_hdim224_fp8_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 224, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 231552, 232448, 0) \
    KERNEL(flash_fwd_hdim256_bf16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 98304, 232448, 0) \
    KERNEL(flash_fwd_hdim256_bf16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_bf16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 98304, 166912, 0) \
    KERNEL(flash_fwd_hdim256_bf16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 230512, 232448, 0) \
    KERNEL(flash_fwd_hdim256_bf16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, 0, 100, 103, 103, 98304, 232448, 0) \
    KERNEL(flash_fwd_hdim256_bf16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, 0, 120, 121, 121, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_bf16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, 0, 121, 121, 121, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 98304, 166912, 0) \
    KERNEL(flash_fwd_hdim256_bf16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, 0, 89, 89, EVERY_NEWER_GPU, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, 0, 90, 90, 90, 231536, 232448, 0) \
    KERNEL(flash_fwd_hdim256_fp16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 98304, 232448, 0) \
    KERNEL(flash_fwd_hdim256_fp16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 98304, 166912, 0) \
    KERNEL(flash_fwd_hdim256_fp16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 230512, 232448, 0) \
    KERNEL(flash_fwd_hdim256_fp16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, 0, 100, 103, 103, 98304, 232448, 0) \
    KERNEL(flash_fwd_hdim256_fp16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, 0, 120, 121, 121, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, 0, 121, 121, 121, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 98304, 166912, 0) \
    KERNEL(flash_fwd_hdim256_fp16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, 0, 89, 89, EVERY_NEWER_GPU, 98304, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, 0, 90, 90, 90, 231536, 232448, 0) \
    KERNEL(flash_fwd_hdim256_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 90, 90, 90, 231552, 232448, 0) \
    KERNEL(flash_fwd_hdim256_fp8_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP8_E4M3, 0, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp8_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP8_E4M3, 0, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp8_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP8_E4M3, 0, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim256_fp8_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 256, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 231552, 232448, 0) \
    KERNEL(flash_fwd_hdim32_bf16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 24576, 232448, 0) \
    KERNEL(flash_fwd_hdim32_bf16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_bf16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 24576, 166912, 0) \
    KERNEL(flash_fwd_hdim32_bf16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 58528, 232448, 0) \
    KERNEL(flash_fwd_hdim32_bf16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, 0, 100, 103, 103, 24576, 232448, 0) \
    KERNEL(flash_fwd_hdim32_bf16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, 0, 120, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_bf16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, 0, 121, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 24576, 166912, 0) \
    KERNEL(flash_fwd_hdim32_bf16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, 0, 89, 89, EVERY_NEWER_GPU, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, 0, 90, 90, 90, 58528, 232448, 0) \
    KERNEL(flash_fwd_hdim32_fp16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 24576, 232448, 0) \
    KERNEL(flash_fwd_hdim32_fp16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp16_causal_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 75, 79, EVERY_NEWER_GPU, 14336, 65536, 0) \
    KERNEL(flash_fwd_hdim32_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 24576, 166912, 0) \
    KERNEL(flash_fwd_hdim32_fp16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 58528, 232448, 0) \
    KERNEL(flash_fwd_hdim32_fp16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, 0, 100, 103, 103, 24576, 232448, 0) \
    KERNEL(flash_fwd_hdim32_fp16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, 0, 120, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, 0, 121, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp16_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, 0, 75, 79, EVERY_NEWER_GPU, 14336, 65536, 0) \
    KERNEL(flash_fwd_hdim32_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 24576, 166912, 0) \
    KERNEL(flash_fwd_hdim32_fp16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, 0, 89, 89, EVERY_NEWER_GPU, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, 0, 90, 90, 90, 58528, 232448, 0) \
    KERNEL(flash_fwd_hdim32_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 120, 121, 121, 12288, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 121, 121, 121, 12288, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 12288, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 90, 90, 90, 39104, 232448, 0) \
    KERNEL(flash_fwd_hdim32_fp8_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP8_E4M3, 0, 120, 121, 121, 12288, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp8_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP8_E4M3, 0, 121, 121, 121, 12288, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp8_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP8_E4M3, 0, 89, 89, EVERY_NEWER_GPU, 12288, 101376, 0) \
    KERNEL(flash_fwd_hdim32_fp8_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 32, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 39104, 232448, 0) \
    KERNEL(flash_fwd_hdim64_bf16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 49152, 232448, 0) \
    KERNEL(flash_fwd_hdim64_bf16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim64_bf16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim64_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0) \
    KERNEL(flash_fwd_hdim64_bf16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim64_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 83104, 232448, 0) \
    KERNEL(flash_fwd_hdim64_bf16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, 0, 100, 103, 103, 45056, 232448, 0) \
    KERNEL(flash_fwd_hdim64_bf16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, 0, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim64_bf16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, 0, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim64_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0) \
    KERNEL(flash_fwd_hdim64_bf16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, 0, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim64_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, 0, 90, 90, 90, 115872, 232448, 0) \
    KERNEL(flash_fwd_hdim64_fp16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 49152, 232448, 0) \
    KERNEL(flash_fwd_hdim64_fp16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp16_causal_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 75, 79, EVERY_NEWER_GPU, 32768, 65536, 0) \
    KERNEL(flash_fwd_hdim64_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0) \
    KERNEL(flash_fwd_hdim64_fp16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 32768, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 83104, 232448, 0) \
    KERNEL(flash_fwd_hdim64_fp16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, 0, 100, 103, 103, 45056, 232448, 0) \
    KERNEL(flash_fwd_hdim64_fp16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, 0, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, 0, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp16_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, 0, 75, 79, EVERY_NEWER_GPU, 32768, 65536, 0) \
    KERNEL(flash_fwd_hdim64_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0) \
    KERNEL(flash_fwd_hdim64_fp16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, 0, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, 0, 90, 90, 90, 115872, 232448, 0) \
    KERNEL(flash_fwd_hdim64_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 120, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 121, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 90, 90, 90, 75968, 232448, 0) \
    KERNEL(flash_fwd_hdim64_fp8_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP8_E4M3, 0, 120, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp8_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP8_E4M3, 0, 121, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp8_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP8_E4M3, 0, 89, 89, EVERY_NEWER_GPU, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim64_fp8_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 64, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 75968, 232448, 0) \
    KERNEL(flash_fwd_hdim80_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 80, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 136352, 232448, 0) \
    KERNEL(flash_fwd_hdim80_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 80, KGEN_DTYPE_BF16, 0, 90, 90, 90, 136352, 232448, 0) \
    KERNEL(flash_fwd_hdim80_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 80, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 136352, 232448, 0) \
    KERNEL(flash_fwd_hdim80_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 80, KGEN_DTYPE_FP16, 0, 90, 90, 90, 136352, 232448, 0) \
    KERNEL(flash_fwd_hdim80_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 80, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 90, 90, 90, 108736, 232448, 0) \
    KERNEL(flash_fwd_hdim80_fp8_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 80, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 108736, 232448, 0) \
    KERNEL(flash_fwd_hdim96_bf16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 49152, 232448, 0) \
    KERNEL(flash_fwd_hdim96_bf16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_bf16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0) \
    KERNEL(flash_fwd_hdim96_bf16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 160928, 232448, 0) \
    KERNEL(flash_fwd_hdim96_bf16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, 0, 100, 103, 103, 49152, 232448, 0) \
    KERNEL(flash_fwd_hdim96_bf16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, 0, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_bf16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, 0, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 55296, 166912, 0) \
    KERNEL(flash_fwd_hdim96_bf16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, 0, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, 0, 90, 90, 90, 160928, 232448, 0) \
    KERNEL(flash_fwd_hdim96_fp16_causal_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 100, 103, 103, 49152, 232448, 0) \
    KERNEL(flash_fwd_hdim96_fp16_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp16_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp16_causal_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 75, 79, EVERY_NEWER_GPU, 49152, 65536, 0) \
    KERNEL(flash_fwd_hdim96_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 49152, 166912, 0) \
    KERNEL(flash_fwd_hdim96_fp16_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 160928, 232448, 0) \
    KERNEL(flash_fwd_hdim96_fp16_sm100, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, 0, 100, 103, 103, 49152, 232448, 0) \
    KERNEL(flash_fwd_hdim96_fp16_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, 0, 120, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp16_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, 0, 121, 121, 121, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp16_sm75, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, 0, 75, 79, EVERY_NEWER_GPU, 49152, 65536, 0) \
    KERNEL(flash_fwd_hdim96_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 55296, 166912, 0) \
    KERNEL(flash_fwd_hdim96_fp16_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, 0, 89, 89, EVERY_NEWER_GPU, 49152, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, 0, 90, 90, 90, 160928, 232448, 0) \
    KERNEL(flash_fwd_hdim96_fp8_causal_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 120, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp8_causal_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 121, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp8_causal_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 89, 89, EVERY_NEWER_GPU, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp8_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP8_E4M3, KGEN_FEATURE_CAUSAL, 90, 90, 90, 112832, 232448, 0) \
    KERNEL(flash_fwd_hdim96_fp8_sm120, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP8_E4M3, 0, 120, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp8_sm121, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP8_E4M3, 0, 121, 121, 121, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp8_sm89, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP8_E4M3, 0, 89, 89, EVERY_NEWER_GPU, 24576, 101376, 0) \
    KERNEL(flash_fwd_hdim96_fp8_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD, 96, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 112832, 232448, 0) \
    KERNEL(flash_fwd_short_hdim128_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 215240, 232448, 0) \
    KERNEL(flash_fwd_short_hdim128_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 128, KGEN_DTYPE_BF16, 0, 90, 90, 90, 215240, 232448, 0) \
    KERNEL(flash_fwd_short_hdim128_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 215240, 232448, 0) \
    KERNEL(flash_fwd_short_hdim128_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 128, KGEN_DTYPE_FP16, 0, 90, 90, 90, 215240, 232448, 0) \
    KERNEL(flash_fwd_short_hdim160_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 186504, 232448, 0) \
    KERNEL(flash_fwd_short_hdim160_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 160, KGEN_DTYPE_BF16, 0, 90, 90, 90, 186504, 232448, 0) \
    KERNEL(flash_fwd_short_hdim160_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 186504, 232448, 0) \
    KERNEL(flash_fwd_short_hdim160_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 160, KGEN_DTYPE_FP16, 0, 90, 90, 90, 186504, 232448, 0) \
    KERNEL(flash_fwd_short_hdim192_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 223368, 232448, 0) \
    KERNEL(flash_fwd_short_hdim192_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 192, KGEN_DTYPE_BF16, 0, 90, 90, 90, 223368, 232448, 0) \
    KERNEL(flash_fwd_short_hdim192_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 223368, 232448, 0) \
    KERNEL(flash_fwd_short_hdim192_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 192, KGEN_DTYPE_FP16, 0, 90, 90, 90, 223368, 232448, 0) \
    KERNEL(flash_fwd_short_hdim224_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 202888, 232448, 0) \
    KERNEL(flash_fwd_short_hdim224_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 224, KGEN_DTYPE_BF16, 0, 90, 90, 90, 202888, 232448, 0) \
    KERNEL(flash_fwd_short_hdim224_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 202888, 232448, 0) \
    KERNEL(flash_fwd_short_hdim224_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 224, KGEN_DTYPE_FP16, 0, 90, 90, 90, 202888, 232448, 0) \
    KERNEL(flash_fwd_short_hdim256_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 231560, 232448, 0) \
    KERNEL(flash_fwd_short_hdim256_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 256, KGEN_DTYPE_BF16, 0, 90, 90, 90, 231560, 232448, 0) \
    KERNEL(flash_fwd_short_hdim256_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 231560, 232448, 0) \
    KERNEL(flash_fwd_short_hdim256_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 256, KGEN_DTYPE_FP16, 0, 90, 90, 90, 231560, 232448, 0) \
    KERNEL(flash_fwd_short_hdim32_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 71944, 232448, 0) \
    KERNEL(flash_fwd_short_hdim32_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 32, KGEN_DTYPE_BF16, 0, 90, 90, 90, 71944, 232448, 0) \
    KERNEL(flash_fwd_short_hdim32_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 71944, 232448, 0) \
    KERNEL(flash_fwd_short_hdim32_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 32, KGEN_DTYPE_FP16, 0, 90, 90, 90, 71944, 232448, 0) \
    KERNEL(flash_fwd_short_hdim64_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 141576, 232448, 0) \
    KERNEL(flash_fwd_short_hdim64_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 64, KGEN_DTYPE_BF16, 0, 90, 90, 90, 141576, 232448, 0) \
    KERNEL(flash_fwd_short_hdim64_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 141576, 232448, 0) \
    KERNEL(flash_fwd_short_hdim64_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 64, KGEN_DTYPE_FP16, 0, 90, 90, 90, 141576, 232448, 0) \
    KERNEL(flash_fwd_short_hdim80_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 80, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 176392, 232448, 0) \
    KERNEL(flash_fwd_short_hdim80_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 80, KGEN_DTYPE_BF16, 0, 90, 90, 90, 176392, 232448, 0) \
    KERNEL(flash_fwd_short_hdim80_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 80, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 176392, 232448, 0) \
    KERNEL(flash_fwd_short_hdim80_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 80, KGEN_DTYPE_FP16, 0, 90, 90, 90, 176392, 232448, 0) \
    KERNEL(flash_fwd_short_hdim96_bf16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 211208, 232448, 0) \
    KERNEL(flash_fwd_short_hdim96_bf16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 96, KGEN_DTYPE_BF16, 0, 90, 90, 90, 211208, 232448, 0) \
    KERNEL(flash_fwd_short_hdim96_fp16_causal_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 90, 90, 90, 211208, 232448, 0) \
    KERNEL(flash_fwd_short_hdim96_fp16_sm90, kgen_fwd_params, 0, KGEN_KIND_FWD_SHORT, 96, KGEN_DTYPE_FP16, 0, 90, 90, 90, 211208, 232448, 0) \
    KERNEL(flash_fwd_split_hdim128_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 128, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1) \
    KERNEL(flash_fwd_split_hdim128_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 128, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1) \
    KERNEL(flash_fwd_split_hdim128_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 128, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1) \
    KERNEL(flash_fwd_split_hdim128_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 128, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 102976, 166912, 1) \
    KERNEL(flash_fwd_split_hdim160_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 160, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 87616, 166912, 1) \
    KERNEL(flash_fwd_split_hdim160_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 160, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 87616, 166912, 1) \
    KERNEL(flash_fwd_split_hdim160_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 160, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 87616, 166912, 1) \
    KERNEL(flash_fwd_split_hdim160_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 160, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 87616, 166912, 1) \
    KERNEL(flash_fwd_split_hdim192_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 192, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 105024, 166912, 1) \
    KERNEL(flash_fwd_split_hdim192_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 192, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 105024, 166912, 1) \
    KERNEL(flash_fwd_split_hdim192_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 192, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 105024, 166912, 1) \
    KERNEL(flash_fwd_split_hdim192_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 192, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 105024, 166912, 1) \
    KERNEL(flash_fwd_split_hdim224_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 224, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 122432, 166912, 1) \
    KERNEL(flash_fwd_split_hdim224_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 224, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 122432, 166912, 1) \
    KERNEL(flash_fwd_split_hdim224_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 224, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 122432, 166912, 1) \
    KERNEL(flash_fwd_split_hdim224_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 224, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 122432, 166912, 1) \
    KERNEL(flash_fwd_split_hdim256_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 256, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 139840, 166912, 1) \
    KERNEL(flash_fwd_split_hdim256_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 256, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 139840, 166912, 1) \
    KERNEL(flash_fwd_split_hdim256_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 256, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 139840, 166912, 1) \
    KERNEL(flash_fwd_split_hdim256_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 256, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 139840, 166912, 1) \
    KERNEL(flash_fwd_split_hdim32_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 32, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 50752, 166912, 3) \
    KERNEL(flash_fwd_split_hdim32_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 32, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 50752, 166912, 3) \
    KERNEL(flash_fwd_split_hdim32_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 32, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 50752, 166912, 3) \
    KERNEL(flash_fwd_split_hdim32_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 32, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 50752, 166912, 3) \
    KERNEL(flash_fwd_split_hdim64_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 64, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 35392, 166912, 2) \
    KERNEL(flash_fwd_split_hdim64_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 64, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 35392, 166912, 2) \
    KERNEL(flash_fwd_split_hdim64_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 64, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 35392, 166912, 2) \
    KERNEL(flash_fwd_split_hdim64_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 64, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 35392, 166912, 2) \
    KERNEL(flash_fwd_split_hdim96_bf16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 96, KGEN_DTYPE_BF16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 77376, 166912, 1) \
    KERNEL(flash_fwd_split_hdim96_bf16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 96, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 77376, 166912, 1) \
    KERNEL(flash_fwd_split_hdim96_fp16_causal_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 96, KGEN_DTYPE_FP16, KGEN_FEATURE_CAUSAL, 80, 89, EVERY_NEWER_GPU, 77376, 166912, 1) \
    KERNEL(flash_fwd_split_hdim96_fp16_sm80, kgen_fwd_params, 0, KGEN_KIND_FWD_SPLIT, 96, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 77376, 166912, 1) \
    KERNEL(flash_prepare_scheduler_sm80, kgen_fwd_params, 0, KGEN_KIND_PREPARE_SCHEDULER, 0, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_logsumexp_bf16_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_LOGSUMEXP, 0, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_logsumexp_bf16_sm90, kgen_reduce_params, 1, KGEN_KIND_REDUCE_LOGSUMEXP, 0, KGEN_DTYPE_BF16, 0, 90, 90, 90, 64, 232448, 0) \
    KERNEL(reduce_logsumexp_fp16_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_LOGSUMEXP, 0, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_logsumexp_fp16_sm90, kgen_reduce_params, 1, KGEN_KIND_REDUCE_LOGSUMEXP, 0, KGEN_DTYPE_FP16, 0, 90, 90, 90, 64, 232448, 0) \
    KERNEL(reduce_logsumexp_fp32_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_LOGSUMEXP, 0, KGEN_DTYPE_FP32, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_logsumexp_fp32_sm90, kgen_reduce_params, 1, KGEN_KIND_REDUCE_LOGSUMEXP, 0, KGEN_DTYPE_FP32, 0, 90, 90, 90, 64, 232448, 0) \
    KERNEL(reduce_max_bf16_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_MAX, 0, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_max_bf16_sm90, kgen_reduce_params, 1, KGEN_KIND_REDUCE_MAX, 0, KGEN_DTYPE_BF16, 0, 90, 90, 90, 64, 232448, 0) \
    KERNEL(reduce_max_fp16_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_MAX, 0, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_max_fp16_sm90, kgen_reduce_params, 1, KGEN_KIND_REDUCE_MAX, 0, KGEN_DTYPE_FP16, 0, 90, 90, 90, 64, 232448, 0) \
    KERNEL(reduce_max_fp32_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_MAX, 0, KGEN_DTYPE_FP32, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_max_fp32_sm90, kgen_reduce_params, 1, KGEN_KIND_REDUCE_MAX, 0, KGEN_DTYPE_FP32, 0, 90, 90, 90, 64, 232448, 0) \
    KERNEL(reduce_sum_bf16_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_SUM, 0, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_sum_bf16_sm90, kgen_reduce_params, 1, KGEN_KIND_REDUCE_SUM, 0, KGEN_DTYPE_BF16, 0, 90, 90, 90, 64, 232448, 0) \
    KERNEL(reduce_sum_fp16_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_SUM, 0, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_sum_fp16_sm90, kgen_reduce_params, 1, KGEN_KIND_REDUCE_SUM, 0, KGEN_DTYPE_FP16, 0, 90, 90, 90, 64, 232448, 0) \
    KERNEL(reduce_sum_fp32_sm80, kgen_reduce_params, 1, KGEN_KIND_REDUCE_SUM, 0, KGEN_DTYPE_FP32, 0, 80, 89, EVERY_NEWER_GPU, 64, 166912, 0) \
    KERNEL(reduce_sum_fp32_sm90, kgen_reduce_params, 1, KGEN_KIND_REDUCE_SUM, 0, KGEN_DTYPE_FP32, 0, 90, 90, 90, 64, 232448, 0) \
    KERNEL(transpose_b16_sm80, kgen_transpose_params, 0, KGEN_KIND_TRANSPOSE, 0, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 32768, 166912, 0) \
    KERNEL(transpose_b16_sm90, kgen_transpose_params, 0, KGEN_KIND_TRANSPOSE, 0, KGEN_DTYPE_FP16, 0, 90, 90, 90, 32768, 232448, 0) \
    KERNEL(transpose_b32_sm80, kgen_transpose_params, 0, KGEN_KIND_TRANSPOSE, 0, KGEN_DTYPE_FP32, 0, 80, 89, EVERY_NEWER_GPU, 16384, 166912, 0) \
    KERNEL(transpose_b32_sm90, kgen_transpose_params, 0, KGEN_KIND_TRANSPOSE, 0, KGEN_DTYPE_FP32, 0, 90, 90, 90, 16384, 232448, 0) \
    KERNEL(transpose_b8_sm80, kgen_transpose_params, 0, KGEN_KIND_TRANSPOSE, 0, KGEN_DTYPE_FP8_E4M3, 0, 80, 89, EVERY_NEWER_GPU, 16384, 166912, 0) \
    KERNEL(transpose_b8_sm90, kgen_transpose_params, 0, KGEN_KIND_TRANSPOSE, 0, KGEN_DTYPE_FP8_E4M3, 0, 90, 90, 90, 16384, 232448, 0) \
    KERNEL(vector_add_bf16_sm80, kgen_vector_add_params, 0, KGEN_KIND_VECTOR_ADD, 0, KGEN_DTYPE_BF16, 0, 80, 89, EVERY_NEWER_GPU, 0, 166912, 0) \
    KERNEL(vector_add_bf16_sm90, kgen_vector_add_params, 0, KGEN_KIND_VECTOR_ADD, 0, KGEN_DTYPE_BF16, 0, 90, 90, 90, 0, 232448, 0) \
    KERNEL(vector_add_fp16_sm80, kgen_vector_add_params, 0, KGEN_KIND_VECTOR_ADD, 0, KGEN_DTYPE_FP16, 0, 80, 89, EVERY_NEWER_GPU, 0, 166912, 0) \
    KERNEL(vector_add_fp16_sm90, kgen_vector_add_params, 0, KGEN_KIND_VECTOR_ADD, 0, KGEN_DTYPE_FP16, 0, 90, 90, 90, 0, 232448, 0) \
    KERNEL(vector_add_fp32_sm80, kgen_vector_add_params, 0, KGEN_KIND_VECTOR_ADD, 0, KGEN_DTYPE_FP32, 0, 80, 89, EVERY_NEWER_GPU, 0, 166912, 0) \
    KERNEL(vector_add_fp32_sm90, kgen_vector_add_params, 0, KGEN_KIND_VECTOR_ADD, 0, KGEN_DTYPE_FP32, 0, 90, 90, 90, 0, 232448, 0) \

#endif

#define KGEN_WORKSPACE_0(name, params)
#define KGEN_WORKSPACE_1(name, params) size_t name##_workspace(const params*);
#define KGEN_DECLARE(name, params, workspace, ...) int name(const params*, cudaStream_t); KGEN_WORKSPACE_##workspace(name, params)
extern "C" {
KGEN_KERNELS(KGEN_DECLARE)
}

namespace {

using namespace kgen;

// An object runs on GPUs up to the newest its machine code knows; with PTX, where its target can carry it, on all
// newer ones, which EVERY_NEWER_GPU stands for.
constexpr int32_t EVERY_NEWER_GPU = 999;
#ifdef KGEN_NO_PTX
constexpr int32_t newest(int32_t for_machine_code, int32_t) { return for_machine_code; }
#else
constexpr int32_t newest(int32_t, int32_t with_ptx) { return with_ptx; }
#endif

// `function` where it is of type `Wanted`, else NULL.
template <class Wanted, class Function>
constexpr Wanted only_as(Function function) {
    if constexpr (std::is_same_v<Wanted, Function>) return function;
    else return nullptr;
}

#define KGEN_ROW(name, params, workspace, kind, head_dim, dtype, features, target, machine_code, ptx, ...) \
    {#name, kind, head_dim, dtype, features, target, newest(machine_code, ptx), only_as<kgen_fwd_launcher>(name), only_as<kgen_bwd_launcher>(name)},
constexpr kgen_variant VARIANTS[] = {KGEN_KERNELS(KGEN_ROW)};

// What choosing among variants needs to know of each beside its row above, at the same place.
struct origin {
    int32_t newest_for_machine_code;  // compute capability; newer GPUs run what the driver compiles from PTX
    int32_t shared_bytes;             // shared memory of a block
    int32_t made_for_shared_bytes;    // what a block may have on the GPUs that the plan was made for
    int32_t split_tiles_per_sm;       // tiles of 16 rows that one multiprocessor runs at once; split-KV only
    size_t (*bwd_workspace)(const kgen_bwd_params*);  // NULL for other kinds
};
#define KGEN_WORKSPACE_OF_0(name) nullptr
#define KGEN_WORKSPACE_OF_1(name) name##_workspace
#define KGEN_ORIGIN(name, params, workspace, kind, head_dim, dtype, features, target, machine_code, ptx, shared, made_for, tiles) \
    {machine_code, shared, made_for, tiles, only_as<size_t (*)(const kgen_bwd_params*)>(KGEN_WORKSPACE_OF_##workspace(name))},
constexpr origin ORIGINS[] = {KGEN_KERNELS(KGEN_ORIGIN)};

// What a request asks of a variant.
struct wanted {
    int32_t kind, head_dim, dtype;
    uint32_t features;  // KGEN_FEATURE_*
};

// The features that parameters ask for.
template <class Params>
uint32_t features_of(const Params& p) { return (p.flags & KGEN_FLAG_CAUSAL) != 0 ? KGEN_FEATURE_CAUSAL : 0; }

bool has_dtype_and_features(const kgen_variant& v, const wanted& w) {
    return v.kind == w.kind && v.dtype == w.dtype && v.features == w.features;
}

const origin& origin_of(const kgen_variant& v) { return ORIGINS[&v - VARIANTS]; }

bool runs_on(const kgen_variant& v, int capability) { return v.target <= capability && capability <= v.target_max; }

// Whether `a` serves a device better than `b`, where both run on it:
//   1. machine code before PTX: it is what was tuned, and it loads at once;
//   2. machine code made for the newer GPU;
//   3. PTX made for the newer generation (the major of its compute capability), which has the better instructions;
//   4. of one generation, PTX whose plan was made for as much shared memory a block as the device has, or the most
//      below that; if all were made for more, for the least. So sm80's plans serve 9.x and 10.x, and sm89's 12.x.
bool is_better(const kgen_variant& a, const kgen_variant& b, int capability, int32_t shared_bytes) {
    const bool native_a = capability <= origin_of(a).newest_for_machine_code;
    const bool native_b = capability <= origin_of(b).newest_for_machine_code;
    if (native_a != native_b) return native_a;
    if (native_a || a.target / 10 != b.target / 10) return a.target > b.target;
    const int32_t shared_a = origin_of(a).made_for_shared_bytes;
    const int32_t shared_b = origin_of(b).made_for_shared_bytes;
    if ((shared_a <= shared_bytes) != (shared_b <= shared_bytes)) return shared_a <= shared_bytes;
    return shared_a <= shared_bytes ? shared_a > shared_b : shared_a < shared_b;
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

// Says what was asked for and the nearest thing the library holds.
int no_variant(const char* caller, const wanted& p, int capability) {
    const char* dtype = dtype_name(p.dtype);
    const char* mask = (p.features & KGEN_FEATURE_CAUSAL) != 0 ? "causal" : "not causal";
    const kgen_variant* elsewhere = nullptr;  // the right kernel, for other devices
    int32_t below = 0, above = 0;             // nearest head dims held
    for (const kgen_variant& v : VARIANTS) {
        if (!has_dtype_and_features(v, p)) continue;
        if (v.head_dim == p.head_dim) {
            if (elsewhere == nullptr || v.target < elsewhere->target) elsewhere = &v;
        } else if (runs_on(v, capability)) {
            if (v.head_dim < p.head_dim && v.head_dim > below) below = v.head_dim;
            if (v.head_dim > p.head_dim && (above == 0 || v.head_dim < above)) above = v.head_dim;
        }
    }
    if (elsewhere != nullptr && elsewhere->target_max == EVERY_NEWER_GPU) {
        return fail(KGEN_ERROR_NO_VARIANT, "%s: %s needs compute capability %d.%d or newer; this device has %d.%d", caller, elsewhere->name,
                    elsewhere->target / 10, elsewhere->target % 10, capability / 10, capability % 10);
    }
    if (elsewhere != nullptr) {
        return fail(KGEN_ERROR_NO_VARIANT, "%s: %s runs on compute capability %d.%d to %d.%d; this device has %d.%d",
                    caller, elsewhere->name, elsewhere->target / 10, elsewhere->target % 10, elsewhere->target_max / 10,
                    elsewhere->target_max % 10, capability / 10, capability % 10);
    }
    if (below != 0 && above != 0) {
        return fail(KGEN_ERROR_NO_VARIANT, "%s: no variant for head_dim %d, %s, %s; the nearest head dims held are %d and %d",
                    caller, p.head_dim, dtype, mask, below, above);
    }
    if (below != 0 || above != 0) {
        return fail(KGEN_ERROR_NO_VARIANT, "%s: no variant for head_dim %d, %s, %s; the nearest head dim held is %d", caller, p.head_dim,
                    dtype, mask, below != 0 ? below : above);
    }
    if (p.head_dim == 0) {
        return fail(KGEN_ERROR_NO_VARIANT, "%s: no variant that is %s for compute capability %d.%d; kgen_variants() lists what is held", caller, dtype,
                    capability / 10, capability % 10);
    }
    return fail(KGEN_ERROR_NO_VARIANT, "%s: no variant that is %s and %s for compute capability %d.%d; kgen_variants() lists what is held",
                caller, dtype, mask, capability / 10, capability % 10);
}

// The variants that answer a request on a device.
struct answer {
    const kgen_variant* best;       // the one that serves it best (`is_better`); NULL if none runs there
    const kgen_variant* too_large;  // one whose blocks the device has not enough shared memory for
};

// `refused`: only variants that serve the device less well than this one, unless it is NULL.
answer find(const wanted& w, int capability, const kgen_variant* refused = nullptr) {
    const int32_t shared_bytes = device_shared_memory();
    answer found = {};
    for (const kgen_variant& v : VARIANTS) {
        if (!has_dtype_and_features(v, w) || v.head_dim != w.head_dim || !runs_on(v, capability)) continue;
        if (refused != nullptr && !is_better(*refused, v, capability, shared_bytes)) continue;
        if (origin_of(v).shared_bytes > shared_bytes) {
            found.too_large = &v;
        } else if (found.best == nullptr || is_better(v, *found.best, capability, shared_bytes)) {
            found.best = &v;
        }
    }
    return found;
}

// The variant that serves the current device best; NULL, with a reason, if none runs there.
const kgen_variant* choose(const char* caller, const wanted& w, int& code) {
    const int capability = device_capability();
    if (capability == 0) {
        code = KGEN_ERROR_LAUNCH;  // the reason is in last_error
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

// A request that is to be split: the kernels in their order, what they are given, and the workspace that takes.
struct split_path {
    const kgen_variant* prepare;  // NULL: lengths are equal, or the caller has the counts
    const kgen_variant* split;
    const kgen_variant* combine;
    kgen_fwd_params params;
    size_t counts_offset;  // of split_counts in the workspace, where `prepare` is to write them
    size_t bytes;
};

// True if the library can split the request and that is asked for or gains something. Looks at no tensor.
bool plan_split(const kgen_fwd_params& request, split_path& path) {
    kgen_fwd_params& p = path.params = request;
    if (p.num_splits == 1 || p.num_splits < 0 || p.batch <= 0 || p.seqlen_q <= 0 || p.seqlen_k <= 0 || p.num_heads_k <= 0 ||
        p.num_heads <= 0 || p.num_heads % p.num_heads_k != 0) {
        return false;
    }
    if (!query_rows_are_bounded(p)) return false;  // nobody can say how large the workspace must be
    const int capability = device_capability();
    const int32_t multiprocessors = capability == 0 ? 0 : multiprocessor_count();
    if (multiprocessors == 0 || (p.num_splits == 0 && !splitting_gains(p, multiprocessors))) return false;
    path.split = find({KGEN_KIND_FWD_SPLIT, p.head_dim, p.dtype, features_of(p)}, capability).best;
    path.combine = find({KGEN_KIND_FWD_COMBINE, 0, KGEN_DTYPE_FP16, 0}, capability).best;
    if (path.split == nullptr || path.combine == nullptr) return false;

    p.concurrent_blocks = multiprocessors * origin_of(*path.split).split_tiles_per_sm;
    const bool unequal = p.cu_seqlens_k != nullptr || p.seqused_k != nullptr;
    if (p.num_splits == 0) p.num_splits = unequal ? most_split_count(p, p.concurrent_blocks) : even_split_count(p, p.concurrent_blocks);
    const bool counts_wanted = unequal && p.split_counts == nullptr && p.num_splits > 1;
    path.prepare = counts_wanted ? find({KGEN_KIND_PREPARE_SCHEDULER, 0, KGEN_DTYPE_FP16, 0}, capability).best : nullptr;
    const uint64_t partial_bytes = split_workspace_bytes(p);
    if (partial_bytes > SIZE_MAX / 2) return false;  // no caller has so much
    path.counts_offset = static_cast<size_t>(partial_bytes + 15) / 16 * 16;
    path.bytes = path.counts_offset + (path.prepare != nullptr ? p.batch * sizeof(int32_t) : 0);
    return true;
}

int launch_split(split_path& path, cudaStream_t stream) {
    kgen_fwd_params& p = path.params;
    if (path.prepare != nullptr) {
        p.split_counts = reinterpret_cast<int32_t*>(static_cast<char*>(p.workspace) + path.counts_offset);
        if (const int code = path.prepare->launch(&p, stream)) return code;
    }
    if (const int code = path.split->launch(&p, stream)) return code;
    return path.combine->launch(&p, stream);
}

// Queries a block of fwd_short.
constexpr uint64_t SHORT_ROWS = 64;

// The variant for little work, if the library holds one that runs on the device and its blocks all run at once, one a multiprocessor.
// Looks at no tensor.
const kgen_variant* find_short(const kgen_fwd_params& p) {
    if (p.batch <= 0 || p.num_heads <= 0 || p.seqlen_q <= 0) return nullptr;
    const int capability = device_capability();
    const int64_t multiprocessors = capability == 0 ? 0 : multiprocessor_count();
    if (product(tiles_of(p.seqlen_q, SHORT_ROWS), p.num_heads, p.batch) > static_cast<uint64_t>(multiprocessors)) return nullptr;
    // Wide heads have so little room that few keys are on their way at once; measured on an H100.
    if (p.head_dim > 192 && p.seqlen_k < 512) return nullptr;
    return find({KGEN_KIND_FWD_SHORT, p.head_dim, p.dtype, features_of(p)}, capability).best;
}

// Reads a forward request.
int read_fwd(const char* caller, const kgen_fwd_params* given, kgen_fwd_params& params) {
    if (const int code = copy_fwd_params(given, caller, params)) return code;
    return check_flags(params.flags, KGEN_FLAG_CAUSAL, caller);
}

const kgen_variant* choose_bwd(const char* caller, const kgen_bwd_params* given, kgen_bwd_params& params, int& code) {
    code = copy_bwd_params(given, caller, params);
    if (code == KGEN_SUCCESS) code = check_flags(params.flags, KGEN_FLAG_CAUSAL | KGEN_FLAG_DETERMINISTIC, caller);
    if (code != KGEN_SUCCESS) return nullptr;
    return choose(caller, {KGEN_KIND_BWD, params.head_dim, params.dtype, features_of(params)}, code);
}

}  // namespace

extern "C" int kgen_fwd(const kgen_fwd_params* given, cudaStream_t stream) {
    kgen_fwd_params params;
    if (const int code = read_fwd("kgen_fwd", given, params)) return code;
    split_path path;
    if (params.workspace != nullptr && plan_split(params, path) && params.workspace_bytes >= path.bytes) return launch_split(path, stream);
    int code = KGEN_ERROR_UNSUPPORTED;
    if (const kgen_variant* variant = find_short(params)) code = variant->launch(&params, stream);
    if (code != KGEN_ERROR_UNSUPPORTED) return code;
    const wanted w = {KGEN_KIND_FWD, params.head_dim, params.dtype, features_of(params)};
    const kgen_variant* variant = choose("kgen_fwd", w, code);
    if (variant == nullptr) return code;
    code = variant->launch(&params, stream);
    // A kernel that reads by TMA alone leaves unaligned tensors to the next best one, whose words then count.
    while (code == KGEN_ERROR_UNSUPPORTED && (variant = find(w, device_capability(), variant).best) != nullptr) code = variant->launch(&params, stream);
    return code;
}

extern "C" size_t kgen_fwd_workspace(const kgen_fwd_params* given) {
    kgen_fwd_params params;
    split_path path;
    return read_fwd("kgen_fwd_workspace", given, params) == KGEN_SUCCESS && plan_split(params, path) ? path.bytes : 0;
}

extern "C" int kgen_bwd(const kgen_bwd_params* given, cudaStream_t stream) {
    kgen_bwd_params params;
    int code;
    const kgen_variant* variant = choose_bwd("kgen_bwd", given, params, code);
    return variant != nullptr ? variant->launch_bwd(&params, stream) : code;
}

extern "C" size_t kgen_bwd_workspace(const kgen_bwd_params* given) {
    kgen_bwd_params params;
    int code;
    const kgen_variant* variant = choose_bwd("kgen_bwd_workspace", given, params, code);
    return variant != nullptr ? origin_of(*variant).bwd_workspace(&params) : 0;
}

extern "C" const kgen_variant* kgen_variants(size_t* count) {
    if (count != nullptr) *count = sizeof VARIANTS / sizeof VARIANTS[0];
    return VARIANTS;
}


// ── vector_add ──────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    const kgen_variant* variant = choose("kgen_vector_add", {KGEN_KIND_VECTOR_ADD, 0, params.dtype, 0}, code);
    return variant != nullptr ? VECTOR_ADD[variant - VARIANTS](&params, stream) : code;
}


// ── transpose ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#include "kgen/contiguous.cuh"

namespace {

// The launcher of each variant, at its place in the table.
#define KGEN_TRANSPOSE(name, ...) only_as<kgen_transpose_launcher>(name),
constexpr kgen_transpose_launcher TRANSPOSE[] = {KGEN_KERNELS(KGEN_TRANSPOSE)};

}  // namespace

extern "C" int kgen_transpose(const kgen_transpose_params* given, cudaStream_t stream) {
    kgen_transpose_params params;
    if (const int code = copy_params(given, "kgen_transpose", "kgen_transpose_params", params)) return code;
    // Which type the elements have makes no difference; variants are listed by one of each size.
    int32_t dtype;
    switch (params.element_bytes) {
        case 1: dtype = KGEN_DTYPE_FP8_E4M3; break;
        case 2: dtype = KGEN_DTYPE_FP16; break;
        case 4: dtype = KGEN_DTYPE_FP32; break;
        default: return fail(KGEN_ERROR_NO_VARIANT, "kgen_transpose: params.element_bytes is %d; elements have 1, 2 or 4 bytes", params.element_bytes);
    }
    int code;
    const kgen_variant* variant = choose("kgen_transpose", {KGEN_KIND_TRANSPOSE, 0, dtype, 0}, code);
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

const kgen_variant* choose_reduce(const char* caller, const kgen_reduce_params* given, kgen_reduce_params& params, int& code) {
    code = copy_params(given, caller, "kgen_reduce_params", params);
    if (code != KGEN_SUCCESS) return nullptr;
    int32_t kind;
    switch (params.operation) {
        case KGEN_REDUCE_SUM: kind = KGEN_KIND_REDUCE_SUM; break;
        case KGEN_REDUCE_MAX: kind = KGEN_KIND_REDUCE_MAX; break;
        case KGEN_REDUCE_LOGSUMEXP: kind = KGEN_KIND_REDUCE_LOGSUMEXP; break;
        default:
            code = fail(KGEN_ERROR_INVALID_VALUE, "%s: params.operation is %d, none of KGEN_REDUCE_*", caller, params.operation);
            return nullptr;
    }
    return choose(caller, {kind, 0, params.dtype, 0}, code);
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
