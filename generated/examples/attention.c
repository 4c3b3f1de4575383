/* Runs one attention through libkgen and checks a row of it. C99.
 *
 *   cc -std=c99 -Iinclude -I$CUDA_HOME/include examples/attention.c -L. -lkgen -L$CUDA_HOME/lib64 -lcudart -lm -o
 *   attention ./attention [variant name]
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kgen.h"

enum { HEADS = 4, HEADS_K = 2, SEQLEN_Q = 100, SEQLEN_K = 130 };

static void require(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

/* 16-bit patterns of the few values used here: multiples of 1/64 in [-1, 1], exact in both fp16 and bf16. */
static uint16_t encode(float value, int dtype) {
    if (dtype == KGEN_DTYPE_BF16) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return (uint16_t)(bits >> 16);
    }
    int exponent;
    const float fraction = frexpf(fabsf(value), &exponent); /* value = fraction * 2^exponent, 0.5 <= fraction < 1 */
    const uint16_t sign = value < 0 ? 0x8000 : 0;
    if (value == 0) return sign;
    return (uint16_t)(sign | (exponent + 14) << 10 | (int)ldexpf(fraction * 2 - 1, 10));
}

static float decode(uint16_t bits, int dtype) {
    if (dtype == KGEN_DTYPE_BF16) {
        const uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        return value;
    }
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float magnitude = exponent == 0 ? ldexpf((float)fraction, -24) : ldexpf((float)(1024 + fraction), exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* A device tensor of `count` elements and the host values it was filled with. */
typedef struct tensor {
    float* host;
    uint16_t* device;
} tensor;

static tensor filled(size_t count, int dtype, uint32_t seed) {
    tensor t = {malloc(count * sizeof(float)), NULL};
    uint16_t* bits = malloc(count * sizeof(uint16_t));
    if (t.host == NULL || bits == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (size_t i = 0; i < count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        t.host[i] = (float)((int)(seed >> 24) - 128) / 128.0f;
        t.host[i] = floorf(t.host[i] * 64.0f) / 64.0f;
        bits[i] = encode(t.host[i], dtype);
    }
    require(cudaMalloc((void**)&t.device, count * sizeof(uint16_t)), "cudaMalloc");
    require(cudaMemcpy(t.device, bits, count * sizeof(uint16_t), cudaMemcpyHostToDevice), "cudaMemcpy");
    free(bits);
    return t;
}

/* The forward variant named on the command line, or the library's first. */
static const kgen_variant* choose(const char* name) {
    size_t count;
    const kgen_variant* variants = kgen_variants(&count);
    for (size_t i = 0; i < count; ++i) {
        if (variants[i].kind == KGEN_KIND_FWD && (name == NULL || strcmp(variants[i].name, name) == 0)) return &variants[i];
    }
    fprintf(stderr, "the library has no forward variant `%s`; it holds:\n", name == NULL ? "" : name);
    for (size_t i = 0; i < count; ++i) {
        if (variants[i].kind == KGEN_KIND_FWD) fprintf(stderr, "  %s\n", variants[i].name);
    }
    exit(2);
}

int main(int argc, char** argv) {
    if (kgen_abi_version() != KGEN_ABI_VERSION) {
        fprintf(stderr, "kgen.h is version %d and the library is version %u\n", KGEN_ABI_VERSION, (unsigned)kgen_abi_version());
        return 1;
    }
    const kgen_variant* variant = choose(argc > 1 ? argv[1] : NULL);
    const int d = variant->head_dim, d_v = variant->head_dim_v, dtype = variant->dtype;
    const size_t q_rows = (size_t)SEQLEN_Q * HEADS, k_rows = (size_t)SEQLEN_K * HEADS_K;
    const tensor q = filled(q_rows * d, dtype, 1), k = filled(k_rows * d, dtype, 2);
    const tensor v = filled(k_rows * d_v, dtype, 3), o = filled(q_rows * d_v, dtype, 4);
    float* lse;
    require(cudaMalloc((void**)&lse, (size_t)HEADS * SEQLEN_Q * sizeof(float)), "cudaMalloc");

    /* Shapes (batch, seqlen, heads, head_dim), for V and O with head_dim_v, contiguous. Fields not set here are zero:
     * no
       flags, no cu_seqlens. */
    const int64_t q_row = HEADS * d, k_row = HEADS_K * d, v_row = HEADS_K * d_v, o_row = HEADS * d_v;
    kgen_fwd_params p = {0};
    p.struct_size = sizeof p;
    p.flags = (variant->features & KGEN_FEATURE_CAUSAL) != 0 ? KGEN_FLAG_CAUSAL : 0;
    p.q = q.device, p.k = k.device, p.v = v.device, p.o = o.device, p.lse = lse;
    p.q_batch_stride = SEQLEN_Q * q_row, p.q_row_stride = q_row, p.q_head_stride = d;
    p.k_batch_stride = SEQLEN_K * k_row, p.k_row_stride = k_row, p.k_head_stride = d;
    p.v_batch_stride = SEQLEN_K * v_row, p.v_row_stride = v_row, p.v_head_stride = d_v;
    p.o_batch_stride = SEQLEN_Q * o_row, p.o_row_stride = o_row, p.o_head_stride = d_v;
    p.lse_batch_stride = HEADS * SEQLEN_Q, p.lse_head_stride = SEQLEN_Q;
    p.batch = 1, p.num_heads = HEADS, p.num_heads_k = HEADS_K, p.seqlen_q = SEQLEN_Q, p.seqlen_k = SEQLEN_K;
    p.head_dim = d, p.head_dim_v = d_v, p.dtype = dtype, p.softmax_scale = 1.0f / sqrtf((float)d);

    if (kgen_fwd(&p, NULL) != KGEN_SUCCESS) {
        fprintf(stderr, "%s\n", kgen_last_error());
        return 1;
    }
    require(cudaDeviceSynchronize(), "the kernel");

    /* Row 57 of head 3 on the host: softmax over the keys it sees, times V. */
    const int row = 57, head = 3, head_k = head / (HEADS / HEADS_K);
    const int keys = (variant->features & KGEN_FEATURE_CAUSAL) != 0 ? row + SEQLEN_K - SEQLEN_Q + 1 : SEQLEN_K;
    const float* q_host = q.host + row * q_row + head * d;
    double score[SEQLEN_K], largest = -INFINITY, sum = 0;
    for (int j = 0; j < keys; ++j) {
        score[j] = 0;
        for (int c = 0; c < d; ++c) score[j] += (double)q_host[c] * k.host[j * k_row + head_k * d + c];
        score[j] *= p.softmax_scale;
        if (score[j] > largest) largest = score[j];
    }
    for (int j = 0; j < keys; ++j) sum += score[j] = exp(score[j] - largest);

    uint16_t* found = malloc(q_rows * d_v * sizeof(uint16_t));
    float found_lse;
    if (found == NULL) return 1;
    require(cudaMemcpy(found, o.device, q_rows * d_v * sizeof(uint16_t), cudaMemcpyDeviceToHost), "cudaMemcpy");
    require(cudaMemcpy(&found_lse, lse + head * SEQLEN_Q + row, sizeof found_lse, cudaMemcpyDeviceToHost), "cudaMemcpy");

    double error = 0;
    for (int c = 0; c < d_v; ++c) {
        double expected = 0;
        for (int j = 0; j < keys; ++j) expected += score[j] / sum * v.host[j * v_row + head_k * d_v + c];
        const double off = fabs(expected - decode(found[row * o_row + head * d_v + c], dtype));
        if (off > error || isnan(off)) error = off; /* once NaN it stays NaN */
    }
    const double lse_error = fabs(largest + log(sum) - found_lse);
    const int passed = error <= 1e-2 && lse_error <= 1e-3;
    printf("%s: row %d of head %d: O is off by %.2g at most, log-sum-exp by %.2g: %s\n", variant->name, row, head, error, lse_error,
           passed ? "correct" : "WRONG");

    free(found);
    const tensor* tensors[] = {&q, &k, &v, &o};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; ++i) {
        free(tensors[i]->host);
        require(cudaFree(tensors[i]->device), "cudaFree");
    }
    require(cudaFree(lse), "cudaFree");
    return passed ? 0 : 1;
}
