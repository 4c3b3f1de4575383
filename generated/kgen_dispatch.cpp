// The dispatcher of libkgen: which variants the library holds, and which of them answers a request.
// Made by kgen 0.1.0 from templates/bindings/kgen_dispatch.cpp.tera; edit that, not this.
//
// For the host compiler or nvcc. Define KGEN_NO_PTX when the kernels' objects were built with machine code alone.

#include "kgen.h"
#include "kgen/device.cuh"
#include "kgen/launch.cuh"

extern "C" {
int flash_fwd_hdim128_bf16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim128_bf16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim128_fp16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim128_fp16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim160_bf16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim160_bf16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim160_fp16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim160_fp16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim192_bf16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim192_bf16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim192_fp16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim192_fp16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim224_bf16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim224_bf16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim224_fp16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim224_fp16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim256_bf16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim256_bf16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim256_fp16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim256_fp16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim32_bf16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim32_bf16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim32_fp16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim32_fp16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim64_bf16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim64_bf16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim64_fp16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim64_fp16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim96_bf16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim96_bf16_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim96_fp16_causal_sm80(const kgen_fwd_params*, cudaStream_t);
int flash_fwd_hdim96_fp16_sm80(const kgen_fwd_params*, cudaStream_t);
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

// Sorted by name.
constexpr kgen_variant VARIANTS[] = {
    {"flash_fwd_hdim128_bf16_causal_sm80", KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim128_bf16_causal_sm80},
    {"flash_fwd_hdim128_bf16_sm80", KGEN_KIND_FWD, 128, KGEN_DTYPE_BF16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim128_bf16_sm80},
    {"flash_fwd_hdim128_fp16_causal_sm80", KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim128_fp16_causal_sm80},
    {"flash_fwd_hdim128_fp16_sm80", KGEN_KIND_FWD, 128, KGEN_DTYPE_FP16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim128_fp16_sm80},
    {"flash_fwd_hdim160_bf16_causal_sm80", KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim160_bf16_causal_sm80},
    {"flash_fwd_hdim160_bf16_sm80", KGEN_KIND_FWD, 160, KGEN_DTYPE_BF16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim160_bf16_sm80},
    {"flash_fwd_hdim160_fp16_causal_sm80", KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim160_fp16_causal_sm80},
    {"flash_fwd_hdim160_fp16_sm80", KGEN_KIND_FWD, 160, KGEN_DTYPE_FP16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim160_fp16_sm80},
    {"flash_fwd_hdim192_bf16_causal_sm80", KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim192_bf16_causal_sm80},
    {"flash_fwd_hdim192_bf16_sm80", KGEN_KIND_FWD, 192, KGEN_DTYPE_BF16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim192_bf16_sm80},
    {"flash_fwd_hdim192_fp16_causal_sm80", KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim192_fp16_causal_sm80},
    {"flash_fwd_hdim192_fp16_sm80", KGEN_KIND_FWD, 192, KGEN_DTYPE_FP16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim192_fp16_sm80},
    {"flash_fwd_hdim224_bf16_causal_sm80", KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim224_bf16_causal_sm80},
    {"flash_fwd_hdim224_bf16_sm80", KGEN_KIND_FWD, 224, KGEN_DTYPE_BF16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim224_bf16_sm80},
    {"flash_fwd_hdim224_fp16_causal_sm80", KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim224_fp16_causal_sm80},
    {"flash_fwd_hdim224_fp16_sm80", KGEN_KIND_FWD, 224, KGEN_DTYPE_FP16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim224_fp16_sm80},
    {"flash_fwd_hdim256_bf16_causal_sm80", KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim256_bf16_causal_sm80},
    {"flash_fwd_hdim256_bf16_sm80", KGEN_KIND_FWD, 256, KGEN_DTYPE_BF16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim256_bf16_sm80},
    {"flash_fwd_hdim256_fp16_causal_sm80", KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim256_fp16_causal_sm80},
    {"flash_fwd_hdim256_fp16_sm80", KGEN_KIND_FWD, 256, KGEN_DTYPE_FP16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim256_fp16_sm80},
    {"flash_fwd_hdim32_bf16_causal_sm80", KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim32_bf16_causal_sm80},
    {"flash_fwd_hdim32_bf16_sm80", KGEN_KIND_FWD, 32, KGEN_DTYPE_BF16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim32_bf16_sm80},
    {"flash_fwd_hdim32_fp16_causal_sm80", KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim32_fp16_causal_sm80},
    {"flash_fwd_hdim32_fp16_sm80", KGEN_KIND_FWD, 32, KGEN_DTYPE_FP16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim32_fp16_sm80},
    {"flash_fwd_hdim64_bf16_causal_sm80", KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim64_bf16_causal_sm80},
    {"flash_fwd_hdim64_bf16_sm80", KGEN_KIND_FWD, 64, KGEN_DTYPE_BF16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim64_bf16_sm80},
    {"flash_fwd_hdim64_fp16_causal_sm80", KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim64_fp16_causal_sm80},
    {"flash_fwd_hdim64_fp16_sm80", KGEN_KIND_FWD, 64, KGEN_DTYPE_FP16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim64_fp16_sm80},
    {"flash_fwd_hdim96_bf16_causal_sm80", KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim96_bf16_causal_sm80},
    {"flash_fwd_hdim96_bf16_sm80", KGEN_KIND_FWD, 96, KGEN_DTYPE_BF16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim96_bf16_sm80},
    {"flash_fwd_hdim96_fp16_causal_sm80", KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, 1, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim96_fp16_causal_sm80},
    {"flash_fwd_hdim96_fp16_sm80", KGEN_KIND_FWD, 96, KGEN_DTYPE_FP16, 0, 80, newest(89, EVERY_NEWER_GPU), flash_fwd_hdim96_fp16_sm80},
};

bool is_causal(const kgen_fwd_params& p) { return (p.flags & KGEN_FLAG_CAUSAL) != 0; }

bool has_dtype_and_mask(const kgen_variant& v, const kgen_fwd_params& p) {
    return v.kind == KGEN_KIND_FWD && v.dtype == p.dtype && (v.causal != 0) == is_causal(p);
}

bool runs_on(const kgen_variant& v, int capability) { return v.target <= capability && capability <= v.target_max; }

const char* dtype_name(int32_t dtype) {
    switch (dtype) {
        case KGEN_DTYPE_FP16: return "fp16";
        case KGEN_DTYPE_BF16: return "bf16";
        case KGEN_DTYPE_FP8_E4M3: return "fp8";
        default: return "of an unknown dtype";
    }
}

// Says what was asked for and the nearest thing the library holds.
int no_variant(const kgen_fwd_params& p, int capability) {
    const char* dtype = dtype_name(p.dtype);
    const char* mask = is_causal(p) ? "causal" : "not causal";
    const kgen_variant* elsewhere = nullptr;  // the right kernel, for other devices
    int32_t below = 0, above = 0;             // nearest head dims held
    for (const kgen_variant& v : VARIANTS) {
        if (!has_dtype_and_mask(v, p)) continue;
        if (v.head_dim == p.head_dim) {
            if (elsewhere == nullptr || v.target < elsewhere->target) elsewhere = &v;
        } else if (runs_on(v, capability)) {
            if (v.head_dim < p.head_dim && v.head_dim > below) below = v.head_dim;
            if (v.head_dim > p.head_dim && (above == 0 || v.head_dim < above)) above = v.head_dim;
        }
    }
    if (elsewhere != nullptr && elsewhere->target_max == EVERY_NEWER_GPU) {
        return fail(KGEN_ERROR_NO_VARIANT, "kgen_fwd: %s needs compute capability %d.%d or newer; this device has %d.%d", elsewhere->name,
                    elsewhere->target / 10, elsewhere->target % 10, capability / 10, capability % 10);
    }
    if (elsewhere != nullptr) {
        return fail(KGEN_ERROR_NO_VARIANT, "kgen_fwd: %s runs on compute capability %d.%d to %d.%d; this device has %d.%d",
                    elsewhere->name, elsewhere->target / 10, elsewhere->target % 10, elsewhere->target_max / 10,
                    elsewhere->target_max % 10, capability / 10, capability % 10);
    }
    if (below != 0 && above != 0) {
        return fail(KGEN_ERROR_NO_VARIANT, "kgen_fwd: no variant for head_dim %d, %s, %s; the nearest head dims held are %d and %d",
                    p.head_dim, dtype, mask, below, above);
    }
    if (below != 0 || above != 0) {
        return fail(KGEN_ERROR_NO_VARIANT, "kgen_fwd: no variant for head_dim %d, %s, %s; the nearest head dim held is %d", p.head_dim,
                    dtype, mask, below != 0 ? below : above);
    }
    return fail(KGEN_ERROR_NO_VARIANT, "kgen_fwd: no variant that is %s and %s for compute capability %d.%d; kgen_variants() lists what is held",
                dtype, mask, capability / 10, capability % 10);
}

}  // namespace

extern "C" int kgen_fwd(const kgen_fwd_params* params, cudaStream_t stream) {
    if (params == nullptr) return fail(KGEN_ERROR_INVALID_VALUE, "kgen_fwd: params is NULL");
    if (params->struct_size < sizeof(kgen_fwd_params)) {
        return fail(KGEN_ERROR_INVALID_VALUE, "kgen_fwd: params.struct_size is %u; version %d of kgen_fwd_params has %zu bytes",
                    static_cast<unsigned>(params->struct_size), KGEN_ABI_VERSION, sizeof(kgen_fwd_params));
    }
    const int capability = device_capability();
    if (capability == 0) return KGEN_ERROR_LAUNCH;  // the reason is in last_error

    // The variant made for the newest architecture that is not newer than the device.
    const kgen_variant* best = nullptr;
    for (const kgen_variant& v : VARIANTS) {
        if (has_dtype_and_mask(v, *params) && v.head_dim == params->head_dim && runs_on(v, capability) &&
            (best == nullptr || v.target > best->target)) {
            best = &v;
        }
    }
    return best != nullptr ? best->launch(params, stream) : no_variant(*params, capability);
}

extern "C" const kgen_variant* kgen_variants(size_t* count) {
    if (count != nullptr) *count = sizeof VARIANTS / sizeof VARIANTS[0];
    return VARIANTS;
}

extern "C" const char* kgen_last_error(void) { return last_error; }

extern "C" uint32_t kgen_abi_version(void) { return KGEN_ABI_VERSION; }
