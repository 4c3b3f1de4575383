/* A backward pass small enough to check by hand: one query of zeros gives two keys equal weight. Prints the gradients
 * from kgen_bwd with and without KGEN_FLAG_DETERMINISTIC, and its messages for invalid requests. */
#include <math.h>
#include <stdio.h>

#include "kgen.h"

void kgen_emulator_reset(uint64_t seed);
void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* element_map, size_t element_bytes, int writable);

enum { DIM = 16, HALF = 0x3800, ONE = 0x3c00, THREE = 0x4200, MINUS = 0x8000 };

static _Alignas(16) uint16_t q[DIM], k[2 * DIM], v[2 * DIM], o[DIM], dout[DIM], dq[DIM], dk[2 * DIM], dv[2 * DIM];
static _Alignas(16) float workspace[4096];
static float lse;

static void fill(uint16_t* row, int value) {
    for (int i = 0; i < DIM; ++i) row[i] = (uint16_t)value;
}

static int is(const uint16_t* row, int value) {
    for (int i = 0; i < DIM; ++i) {
        if (row[i] != value) return 0;
    }
    return 1;
}

static void declare(void) {
    kgen_emulator_reset(1);
    kgen_emulator_tensor("q", q, sizeof q, NULL, 2, 0);
    kgen_emulator_tensor("k", k, sizeof k, NULL, 2, 0);
    kgen_emulator_tensor("v", v, sizeof v, NULL, 2, 0);
    kgen_emulator_tensor("o", o, sizeof o, NULL, 2, 0);
    kgen_emulator_tensor("dout", dout, sizeof dout, NULL, 2, 0);
    kgen_emulator_tensor("lse", &lse, sizeof lse, NULL, 4, 0);
    kgen_emulator_tensor("dq", dq, sizeof dq, NULL, 2, 1);
    kgen_emulator_tensor("dk", dk, sizeof dk, NULL, 2, 1);
    kgen_emulator_tensor("dv", dv, sizeof dv, NULL, 2, 1);
    kgen_emulator_tensor("workspace", workspace, sizeof workspace, NULL, 4, 1);
}

int main(void) {
    lse = logf(2.0f);
    fill(k, ONE), fill(k + DIM, THREE);
    fill(v, ONE), fill(v + DIM, ONE | MINUS);
    fill(dout, ONE);
    kgen_bwd_params p = {0};
    p.struct_size = sizeof p;
    p.q = q, p.k = k, p.v = v, p.o = o, p.dout = dout, p.lse = &lse, p.dq = dq, p.dk = dk, p.dv = dv;
    p.k_row_stride = p.v_row_stride = p.dk_row_stride = p.dv_row_stride = DIM;
    p.batch = p.num_heads = p.num_heads_k = p.seqlen_q = 1;
    p.seqlen_k = 2;
    p.head_dim = DIM;
    p.softmax_scale = 0.25f;
    for (int deterministic = 0; deterministic < 2; ++deterministic) {
        fill(dq, 0xffff), fill(dk, 0xffff), fill(dk + DIM, 0xffff), fill(dv, 0xffff), fill(dv + DIM, 0xffff);
        p.flags = deterministic ? KGEN_FLAG_DETERMINISTIC : 0;
        p.workspace = workspace;
        p.workspace_bytes = kgen_bwd_workspace(&p);
        declare();
        const int code = kgen_bwd(&p, NULL);
        /* dP = {16, -16}, dS = {8, -8}, dQ = (8 - 3 * 8) / 4. */
        const int right = is(dq, 0xc400) && is(dk, 0) && is(dk + DIM, 0) && is(dv, HALF) && is(dv + DIM, HALF);
        printf("%s: %zu bytes, %d, %s\n", deterministic ? "deterministic" : "usual", p.workspace_bytes, code, right ? "right" : "wrong");
    }
    p.workspace_bytes -= 1;
    printf("%d %s\n", kgen_bwd(&p, NULL), kgen_last_error());
    p.dtype = KGEN_DTYPE_BF16;
    printf("%d %s\n", kgen_bwd(&p, NULL), kgen_last_error());
    printf("%zu %s\n", kgen_bwd_workspace(&p), kgen_last_error());
    p.struct_size = 8;
    printf("%d %s\n", kgen_bwd(&p, NULL), kgen_last_error());
    printf("%d %s\n", kgen_bwd(NULL, NULL), kgen_last_error());
    return 0;
}
