// Launchers of kgen.h for tests/bench.rs: scalar bf16 forward attention on the host, one launcher correct and the
// others faulty.
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <vector>

#include "kgen.h"

static float widen(uint16_t bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

static uint16_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Time that a product of a query and a key claims on the driver's clock (`mock_gpu.c`).
#ifndef MOCK_NANOSECONDS
#define MOCK_NANOSECONDS 0
#endif

static void claim_time(double products) {
    void* const driver = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD);
    auto* const clock = driver ? static_cast<double*>(dlsym(driver, "mock_device_ms")) : nullptr;
    if (clock) *clock += products * MOCK_NANOSECONDS / 1e6;
}

static int attend(const kgen_fwd_params* p, float scale) {
    claim_time(double(p->batch) * p->num_heads * p->seqlen_q * p->seqlen_k);
    const auto* q = static_cast<const uint16_t*>(p->q);
    const auto* k = static_cast<const uint16_t*>(p->k);
    const auto* v = static_cast<const uint16_t*>(p->v);
    std::vector<float> scores(p->seqlen_k), out(p->head_dim);
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->num_heads; h++)
            for (int i = 0; i < p->seqlen_q; i++) {
                const int hk = h / (p->num_heads / p->num_heads_k);
                float sum = 0;
                out.assign(p->head_dim, 0);
                for (int j = 0; j < p->seqlen_k; j++) {
                    float score = 0;
                    for (int d = 0; d < p->head_dim; d++)
                        score += widen(q[b * p->q_batch_stride + i * p->q_row_stride + h * p->q_head_stride + d]) *
                                 widen(k[b * p->k_batch_stride + j * p->k_row_stride + hk * p->k_head_stride + d]);
                    sum += scores[j] = expf(scale * score);
                }
                for (int j = 0; j < p->seqlen_k; j++)
                    for (int d = 0; d < p->head_dim; d++)
                        out[d] += scores[j] / sum * widen(v[b * p->v_batch_stride + j * p->v_row_stride + hk * p->v_head_stride + d]);
                for (int d = 0; d < p->head_dim; d++)
                    static_cast<uint16_t*>(p->o)[b * p->o_batch_stride + i * p->o_row_stride + h * p->o_head_stride + d] = narrow(out[d]);
                p->lse[b * p->lse_batch_stride + h * p->lse_head_stride + i] = logf(sum);
            }
    return KGEN_SUCCESS;
}

extern "C" const char* kgen_last_error(void) { return "the mock's last words"; }

extern "C" int flash_fwd_hdim16_bf16_sm80(const kgen_fwd_params* p, cudaStream_t) {
    printf("a kernel may print\n");
    return attend(p, p->softmax_scale);
}

// Ignores softmax_scale.
extern "C" int flash_fwd_hdim24_bf16_sm80(const kgen_fwd_params* p, cudaStream_t) { return attend(p, 1); }

extern "C" int flash_fwd_hdim32_bf16_sm80(const kgen_fwd_params*, cudaStream_t) { __builtin_trap(); }

extern "C" int flash_fwd_hdim40_bf16_sm80(const kgen_fwd_params*, cudaStream_t) { return KGEN_ERROR_INVALID_VALUE; }

// Correct in the first call, then a no-op: its measured speed exceeds that of any GPU.
extern "C" int flash_fwd_hdim48_bf16_sm80(const kgen_fwd_params* p, cudaStream_t) {
    static int launches = 0;
    return launches++ == 0 ? attend(p, p->softmax_scale) : KGEN_SUCCESS;
}
