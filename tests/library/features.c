/* Prints the kernel that the dispatcher chooses for each input line. The fields of a line: version of the caller's
 * structure, head dim, flags, left and right window, chunk, softcap, whether slopes, sinks, a page table (2: with
 * descale factors per page for K, 3: for V), qv, a cache, new rows, a bias and dropout are passed, kv_dtype, and
 * num_splits. Members that the structure's version lacks contain garbage. Prints the code and message of kgen_fwd (this library's launchers
 * fail with their own names) and the workspace bytes. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kgen.h"

void kgen_emulator_device(int capability);
void kgen_emulator_multiprocessors(int count);

int main(void) {
    static _Alignas(16) float somewhere[4];
    kgen_emulator_device(80);
    kgen_emulator_multiprocessors(10);
    const size_t sizes[] = {0, offsetof(kgen_fwd_params, q_descale), offsetof(kgen_fwd_params, features), offsetof(kgen_fwd_params, features),
                            offsetof(kgen_fwd_params, score), offsetof(kgen_fwd_params, page_table), offsetof(kgen_fwd_params, arrivals),
                            offsetof(kgen_fwd_params, k_new), sizeof(kgen_fwd_params)};
    kgen_attention_features f;
    int version, slopes, sinks, paged, qv, cached, fresh, biased, dropped;
    int32_t head_dim, kv_dtype, num_splits;
    uint32_t flags;
    while (scanf("%d %" SCNd32 " %" SCNx32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %f %d %d %d %d %d %d %d %d %" SCNd32 " %" SCNd32, &version, &head_dim, &flags, &f.window_left,
                 &f.window_right, &f.attention_chunk, &f.softcap, &slopes, &sinks, &paged, &qv, &cached, &fresh, &biased, &dropped, &kv_dtype, &num_splits) == 17) {
        f.alibi_slopes = slopes ? somewhere : NULL;
        f.alibi_batch_stride = 0;
        f.sinks = sinks ? somewhere : NULL;
        f.sinks_dtype = KGEN_DTYPE_BF16;
        f.reserved = 0;
        kgen_fwd_params p;
        memset(&p, 0, sizeof p);
        p.struct_size = (uint32_t)sizes[version];
        p.flags = flags;
        p.batch = p.num_heads = p.num_heads_k = p.seqlen_q = 1;
        p.seqlen_k = 4096;
        p.head_dim = head_dim;
        p.softmax_scale = 1.0f;
        p.num_splits = num_splits;
        p.features = f;
        p.page_table = paged ? &num_splits : NULL;
        p.k_page_descale = paged == 2 ? somewhere : NULL;
        p.v_page_descale = paged == 3 ? somewhere : NULL;
        p.cache_batch_idx = cached ? &num_splits : NULL;
        p.page_size = p.num_pages = 1;
        p.qv = qv ? somewhere : NULL;
        p.kv_dtype = kv_dtype;
        p.bias = biased ? somewhere : NULL;
        p.bias_dtype = KGEN_DTYPE_FP32;
        p.p_dropout = dropped ? 0.25f : 0.0f;
        p.rng_state = dropped ? (const uint64_t*)somewhere : NULL;
        if (fresh) {
            p.k_new = p.v_new = somewhere;
            p.seqused_k = &num_splits;
            p.seqlen_new = 1;
        }
        memset((char*)&p + sizes[version], 0x5a, sizeof p - sizes[version]);
        const size_t bytes = kgen_fwd_workspace(&p);
        if (version > 1 && bytes > 0) {
            p.workspace = somewhere;
            p.workspace_bytes = bytes;
        }
        const int code = kgen_fwd(&p, NULL);
        printf("%d|%s|%zu\n", code, kgen_last_error(), bytes);
    }
    return 0;
}
