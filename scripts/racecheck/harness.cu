// Runs one kernel for small problems once, batch 1, and compares O with float64 on the host. For a sanitizer: no other
// kernel runs.
//   harness SEQLEN_Q SEQLEN_K
#include <cuda_bf16.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kgen.h"

extern "C" int LAUNCHER(const kgen_fwd_params*, cudaStream_t);

namespace {

constexpr int HEADS = 2, DIM = 64;

struct tensor {
    std::vector<float> values;
    __nv_bfloat16* device = nullptr;

    tensor(size_t count, uint32_t seed) : values(count) {
        std::vector<__nv_bfloat16> rounded(count);
        for (size_t i = 0; i < count; ++i) {
            seed = seed * 1664525u + 1013904223u;
            rounded[i] = __float2bfloat16(static_cast<float>(seed >> 8) / (1 << 23) - 1.0f);
            values[i] = __bfloat162float(rounded[i]);
        }
        cudaMalloc(&device, count * 2);
        cudaMemcpy(device, rounded.data(), count * 2, cudaMemcpyHostToDevice);
    }
};

}  // namespace

int main(int count, char** words) {
    if (count != 3) return 2;
    const int rows = std::atoi(words[1]), keys = std::atoi(words[2]);
    const int width = HEADS * DIM;
    tensor q(rows * width, 1), k(keys * width, 2), v(keys * width, 3), o(rows * width, 4);
    float* lse;
    cudaMalloc(&lse, rows * HEADS * 4);
    kgen_fwd_params p = {};
    p.struct_size = sizeof p;
    p.flags = KGEN_FLAG_CAUSAL;
    p.q = q.device, p.k = k.device, p.v = v.device, p.o = o.device, p.lse = lse;
    p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = width;
    p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = DIM;
    p.q_batch_stride = p.o_batch_stride = static_cast<int64_t>(rows) * width;
    p.k_batch_stride = p.v_batch_stride = static_cast<int64_t>(keys) * width;
    p.lse_batch_stride = rows * HEADS, p.lse_head_stride = rows;
    p.batch = 1, p.num_heads = p.num_heads_k = HEADS, p.seqlen_q = rows, p.seqlen_k = keys, p.head_dim = DIM, p.dtype = KGEN_DTYPE_BF16;
    p.softmax_scale = 0.125f;
    if (const int code = LAUNCHER(&p, nullptr)) return std::printf("launch: kgen error %d\n", code), 3;
    if (const cudaError_t error = cudaDeviceSynchronize()) return std::printf("launch: %s\n", cudaGetErrorString(error)), 3;
    std::vector<__nv_bfloat16> got(o.values.size());
    cudaMemcpy(got.data(), o.device, got.size() * 2, cudaMemcpyDeviceToHost);

    double worst = 0.0;
    std::vector<double> weights(keys);
    for (int i = 0; i < rows * HEADS; ++i) {
        const int row = i / HEADS, head = i % HEADS, seen = row + 1 + keys - rows;
        const float* query = &q.values[row * width + head * DIM];
        double most = -INFINITY, sum = 0.0, out[DIM] = {};
        for (int j = 0; j < seen; ++j) {
            double score = 0.0;
            for (int d = 0; d < DIM; ++d) score += static_cast<double>(query[d]) * k.values[j * width + head * DIM + d];
            weights[j] = score * 0.125;
            most = std::fmax(most, weights[j]);
        }
        for (int j = 0; j < seen; ++j) {
            const double weight = std::exp(weights[j] - most);
            sum += weight;
            for (int d = 0; d < DIM; ++d) out[d] += weight * v.values[j * width + head * DIM + d];
        }
        for (int d = 0; d < DIM; ++d) {
            const double error = std::fabs(__bfloat162float(got[row * width + head * DIM + d]) - (seen > 0 ? out[d] / sum : 0.0));
            worst = error <= worst ? worst : error;  // NaN stays
        }
    }
    std::printf("largest error %.5f\n", worst);
    return worst < 0.01 ? 0 : 4;
}
