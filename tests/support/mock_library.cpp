// Mock of a library with a dispatcher for tests/fuzz.rs: scalar bf16 attention of head dim 16 on the host, correct
// unless the variable MOCK_FAULT selects a fault. The tests make thousands of calls: loops over the head dim have a known
// length, so that compilers make vectors of them.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <vector>

#include "kgen.h"

static constexpr int HEAD_DIM = 16;

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

static bool fault(const char* name) {
    const char* asked = getenv("MOCK_FAULT");
    return asked != nullptr && strcmp(asked, name) == 0;
}

extern "C" const char* kgen_last_error(void) { return "the mock's last words"; }

extern "C" int flash_fwd_hdim16_bf16_sm80(const kgen_fwd_params*, cudaStream_t) { return KGEN_ERROR_LAUNCH; }
extern "C" int flash_fwd_hdim16_bf16_causal_sm80(const kgen_fwd_params*, cudaStream_t) { return KGEN_ERROR_LAUNCH; }

extern "C" size_t kgen_fwd_workspace(const kgen_fwd_params*) { return 0; }

extern "C" int kgen_explain_choice(const kgen_fwd_params*, kgen_choice* choice) {
    choice->count = 0;
    choice->chosen = -1;
    return KGEN_SUCCESS;
}

extern "C" int kgen_fwd(const kgen_fwd_params* p, cudaStream_t) {
    const bool causal = (p->flags & KGEN_FLAG_CAUSAL) != 0;
    if (p->batch >= 2 && p->num_heads >= 3) {
        if (fault("die")) __builtin_trap();
        if (fault("hang")) for (;;) sleep(1);
    }
    if (fault("refuse") && p->cu_seqlens_q != nullptr && p->cu_seqlens_k == nullptr) return KGEN_ERROR_UNSUPPORTED;
    std::vector<uint16_t*> row_starts;
    std::vector<float> scores;
    for (int b = 0; b < p->batch; b++) {
        const int first_q = p->cu_seqlens_q ? p->cu_seqlens_q[b] : 0, first_k = p->cu_seqlens_k ? p->cu_seqlens_k[b] : 0;
        const int rows = p->seqused_q ? p->seqused_q[b] : p->cu_seqlens_q ? p->cu_seqlens_q[b + 1] - first_q : p->seqlen_q;
        const int keys = p->seqused_k ? p->seqused_k[b] : p->cu_seqlens_k ? p->cu_seqlens_k[b + 1] - first_k : p->seqlen_k;
        const auto at = [b](const void* base, const int32_t* packed, int first, int row, int head, int64_t batch_stride, int64_t row_stride, int64_t head_stride) {
            const int64_t start = packed ? 0 : b * batch_stride;
            return const_cast<uint16_t*>(static_cast<const uint16_t*>(base)) + start + (first + row) * row_stride + head * head_stride;
        };
        for (int h = 0; h < p->num_heads; h++) {
            const int hk = h / (p->num_heads / p->num_heads_k);
            for (int i = 0; i < rows; i++) {
                int seen = causal ? i + 1 + keys - rows : keys;
                seen = seen < 0 ? 0 : seen;
                // For sequences longer than a tile, the last row skips the last key of the tile.
                const bool off = fault("border") && keys > 64 && i == rows - 1;
                const uint16_t* q = at(p->q, p->cu_seqlens_q, first_q, i, h, p->q_batch_stride, p->q_row_stride, p->q_head_stride);
                scores.assign(seen, 0);
                float max = -INFINITY, sum = 0;
                for (int j = 0; j < seen; j++) {
                    const uint16_t* k = at(p->k, p->cu_seqlens_k, first_k, j, hk, p->k_batch_stride, p->k_row_stride, p->k_head_stride);
                    float score = 0;
                    for (int d = 0; d < HEAD_DIM; d++) score += widen(q[d]) * widen(k[d]);
                    scores[j] = off && j == 64 ? -INFINITY : score * p->softmax_scale;
                    max = scores[j] > max ? scores[j] : max;
                }
                float out[HEAD_DIM] = {};
                for (int j = 0; j < seen; j++) {
                    const uint16_t* v = at(p->v, p->cu_seqlens_k, first_k, j, hk, p->v_batch_stride, p->v_row_stride, p->v_head_stride);
                    const float weight = expf(scores[j] - max);
                    sum += weight;
                    for (int d = 0; d < HEAD_DIM; d++) out[d] += weight * widen(v[d]);
                }
                uint16_t* o = at(p->o, p->cu_seqlens_q, first_q, i, h, p->o_batch_stride, p->o_row_stride, p->o_head_stride);
                for (int d = 0; d < HEAD_DIM; d++) o[d] = seen == 0 ? 0 : narrow(out[d] / sum);
                row_starts.push_back(o);
                if (fault("beyond") && b == p->batch - 1 && h == p->num_heads - 1 && i == rows - 1) o[p->head_dim] = 0;
                if (fault("input") && keys > 0) const_cast<uint16_t*>(q)[0] ^= 1;
                if (p->lse != nullptr) {
                    const int64_t start = p->cu_seqlens_q ? first_q : b * p->lse_batch_stride;
                    p->lse[start + h * p->lse_head_stride + i] = seen == 0 ? -INFINITY : max + logf(sum);
                }
            }
        }
    }
    // If the result equals the previous call's, this is the second run with the same inputs.
    static std::vector<uint16_t> before;
    std::vector<uint16_t> now;
    for (const uint16_t* o : row_starts) now.push_back(*o);
    const bool again = now == before && now != std::vector<uint16_t>(now.size());
    before = again ? std::vector<uint16_t>() : now;
    if (fault("race") && again) {
        for (uint16_t* o : row_starts) *o ^= 1;
    }
    return KGEN_SUCCESS;
}
