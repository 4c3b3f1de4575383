/* Shows how the dispatcher passes on calls with qv. The fields of each input line: head dim, head dim of V and O,
 * dtype, whether V is inside K, whether V has the row stride of K, whether qv is passed, sequences, heads, queries,
 * keys, num_splits, whether the requested workspace is passed, and the device. Prints the code and message of kgen_fwd
 * (this library's launchers fail with their own names), the workspace bytes, and the call that the launcher received:
 * head dim, offsets of q, k and qv from the caller's pointers, row strides of q and qv, num_splits, and whether a
 * workspace is passed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kgen.h"

void kgen_emulator_device(int capability);
void kgen_emulator_multiprocessors(int count);
extern kgen_fwd_params given_to_launcher;

int main(void) {
    static _Alignas(16) char q[16], k[16], v[16], qv[16];
    static int32_t table[1];
    kgen_fwd_params p;
    int inside, as_far, two_parts, workspace, capability;
    kgen_emulator_multiprocessors(132);
    memset(&p, 0, sizeof p);
    while (scanf("%" SCNd32 " %" SCNd32 " %" SCNd32 " %d %d %d %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %d %d", &p.head_dim,
                 &p.head_dim_v, &p.dtype, &inside, &as_far, &two_parts, &p.batch, &p.num_heads, &p.seqlen_q, &p.seqlen_k, &p.num_splits, &workspace,
                 &capability) == 13) {
        kgen_emulator_device(capability);
        p.struct_size = sizeof p;
        p.flags = KGEN_FLAG_CAUSAL;
        p.num_heads_k = 1;
        p.softmax_scale = 1.0f;
        p.page_table = table;
        p.page_size = 64;
        p.num_pages = 1;
        p.q_row_stride = 576 * 128, p.q_head_stride = 576;
        p.qv_row_stride = two_parts ? 512 * 128 : 0, p.qv_head_stride = two_parts ? 512 : 0;
        p.k_row_stride = 576, p.v_row_stride = as_far ? 576 : 512;
        p.k_batch_stride = p.v_batch_stride = 64 * 576;
        p.workspace = NULL, p.workspace_bytes = 0;
        /* The workspace size does not depend on addresses. */
        p.q = p.k = p.v = p.o = NULL;
        p.qv = two_parts ? qv : NULL;
        if (!inside) p.v = v;
        const size_t before = kgen_fwd_workspace(&p);
        p.q = q, p.k = k, p.v = inside ? k : v, p.o = q;
        const size_t bytes = kgen_fwd_workspace(&p);
        if (workspace) p.workspace = table, p.workspace_bytes = bytes;
        memset(&given_to_launcher, 0, sizeof given_to_launcher);
        const int code = kgen_fwd(&p, NULL);
        const kgen_fwd_params g = given_to_launcher;
        printf("%d|%s|%zu|%s|%d %d %d %s %d %d %d %s\n", code, kgen_last_error(), bytes, before == bytes ? "same" : "other", (int)g.head_dim,
               (int)((const char*)g.q - q), (int)((const char*)g.k - k), g.qv == qv ? "qv" : g.qv == q ? "q" : "none", (int)g.q_row_stride,
               (int)g.qv_row_stride, (int)g.num_splits, g.workspace != NULL ? "workspace" : "whole");
    }
    return 0;
}
