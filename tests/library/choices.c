/* Prints the answer of kgen_explain_choice to each input line. The fields of a line: compute capability,
 * multiprocessors, batch, heads, key heads, maximum seqlen_q and seqlen_k, head dim, dtype, flags, num_splits, for Q
 * and for K whether lengths differ, total rows of Q and of K, workspace bytes, left and right window, row-tile
 * counters, and rows per page (0: not paged; otherwise unequal key lengths are passed as seqused_k). Prints one line
 * per candidate, then the choice, the result of kgen_fwd_workspace, and the message of kgen_fwd: this library's
 * launchers fail with their own names. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kgen.h"

void kgen_emulator_device(int capability);
void kgen_emulator_multiprocessors(int count);

int main(void) {
    int capability, multiprocessors, unequal_q, unequal_k;
    kgen_fwd_params p;
    static _Alignas(16) int32_t somewhere[4];
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    uint64_t room;
    while (scanf("%d %d %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNx32 " %" SCNd32 " %d %d %" SCNd32 " %" SCNd32 " %" SCNu64 " %" SCNd32 " %" SCNd32 " %" SCNd64 " %" SCNd32,
                 &capability, &multiprocessors, &p.batch, &p.num_heads, &p.num_heads_k, &p.seqlen_q, &p.seqlen_k, &p.head_dim, &p.dtype, &p.flags,
                 &p.num_splits, &unequal_q, &unequal_k, &p.total_q, &p.total_k, &room, &p.features.window_left,
                 &p.features.window_right, &p.arrivals_count, &p.page_size) == 20) {
        kgen_emulator_device(capability);
        kgen_emulator_multiprocessors(multiprocessors);
        p.cu_seqlens_q = unequal_q ? somewhere : NULL;
        p.page_table = p.page_size > 0 ? somewhere : NULL;
        p.num_pages = p.page_size;
        p.cu_seqlens_k = unequal_k && p.page_table == NULL ? somewhere : NULL;
        p.seqused_k = unequal_k && p.page_table != NULL ? somewhere : NULL;
        p.workspace = room > 0 ? somewhere : NULL;
        p.workspace_bytes = (size_t)room;
        p.arrivals = p.arrivals_count > 0 ? (uint32_t*)somewhere : NULL;
        kgen_candidate list[KGEN_MOST_CANDIDATES];
        kgen_choice choice = {sizeof choice, sizeof list[0], list, KGEN_MOST_CANDIDATES, 0, 0, 0};
        const int code = kgen_explain_choice(&p, &choice);
        for (int i = 0; i < choice.count; ++i) {
            const kgen_candidate* c = list + i;
            printf("candidate|%d|%d|%s|%s|%zu|%.17g|%.17g|%.17g|%.17g|%.17g|%.17g|%.17g|%.17g|%d\n", (int)c->path, (int)c->num_splits,
                   c->variant == NULL ? "-" : c->variant, c->excluded == NULL ? "-" : c->excluded, c->workspace_bytes, c->predicted_ns, c->launch_ns,
                   c->tile_ns, c->chain_ns, c->step_ns, c->memory_ns, c->combine_ns, c->scheduler_ns, (int)c->by_last_block);
        }
        printf("chosen|%d|%d|%s\n", code, (int)choice.chosen, code == KGEN_SUCCESS ? "-" : kgen_last_error());
        printf("workspace|%zu\n", kgen_fwd_workspace(&p));
        const int launched = kgen_fwd(&p, NULL);
        printf("launched|%d|%s\n", launched, kgen_last_error());
    }
    return 0;
}
