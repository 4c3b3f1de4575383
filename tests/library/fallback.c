/* One query and one key, so that O = V, on a device of compute capability 9.0. The tensors first satisfy TMA's
 * alignment, then start 2 bytes later, which TMA rejects. Prints the result code and whether O is correct. */
#include <stdio.h>
#include <string.h>

#include "kgen.h"

void kgen_emulator_device(int capability);
void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* element_map, size_t element_bytes, int writable);

enum { HEAD_DIM = 64 };
static _Alignas(16) uint16_t q[HEAD_DIM + 1], k[HEAD_DIM + 1], v[HEAD_DIM + 1], o[HEAD_DIM + 1];

int main(void) {
    kgen_emulator_device(90);
    kgen_emulator_tensor("q", q, sizeof q, NULL, 2, 0);
    kgen_emulator_tensor("k", k, sizeof k, NULL, 2, 0);
    kgen_emulator_tensor("v", v, sizeof v, NULL, 2, 0);
    kgen_emulator_tensor("o", o, sizeof o, NULL, 2, 1);
    for (int shift = 0; shift < 2; ++shift) {
        for (int i = 0; i < HEAD_DIM; ++i) {
            q[shift + i] = k[shift + i] = 0x3f80; /* 1.0 as bf16 */
            v[shift + i] = (uint16_t)(0x3f80 + i);
        }
        memset(o, 0xff, sizeof o);
        kgen_fwd_params p = {0};
        p.struct_size = sizeof p;
        p.flags = KGEN_FLAG_CAUSAL;
        p.head_dim = HEAD_DIM;
        p.dtype = KGEN_DTYPE_BF16;
        p.batch = p.num_heads = p.num_heads_k = p.seqlen_q = p.seqlen_k = 1;
        p.q = q + shift;
        p.k = k + shift;
        p.v = v + shift;
        p.o = o + shift;
        p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = HEAD_DIM;
        p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = HEAD_DIM;
        p.q_batch_stride = p.k_batch_stride = p.v_batch_stride = p.o_batch_stride = HEAD_DIM;
        p.softmax_scale = 0.125f;
        const int code = kgen_fwd(&p, NULL);
        printf("%d %s\n", code, code != KGEN_SUCCESS ? kgen_last_error() : memcmp(o + shift, v + shift, HEAD_DIM * 2) == 0 ? "right" : "wrong");
    }
    return 0;
}
