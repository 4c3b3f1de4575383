/* Tests the dispatcher's cache of choices. Sends requests that differ in one number or in whether one pointer is NULL,
 * many times in random order on changing devices: kgen_fwd must launch what kgen_explain_choice, which has no cache,
 * reports. The launchers of this library succeed. Prints "wrong|..." per mismatch, then "done|" and the number of
 * calls. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kgen.h"

void kgen_emulator_device(int capability);
void kgen_emulator_multiprocessors(int count);

extern int launchers_succeed, launches;
extern char first_launched[128];

static char memory[64];

enum { REQUESTS = 17 };

/* A request of one query over a long context, with one field changed. */
static kgen_fwd_params request(int number, int* capability, int* multiprocessors) {
    kgen_fwd_params p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    p.batch = 4, p.num_heads = 32, p.num_heads_k = 8, p.seqlen_q = 1, p.seqlen_k = 16384, p.head_dim = 64, p.dtype = KGEN_DTYPE_FP16;
    p.workspace = memory, p.workspace_bytes = (size_t)1 << 40;
    *capability = 90, *multiprocessors = 132;
    switch (number) {
        case 1: p.cu_seqlens_k = (const int32_t*)memory; break;
        case 2: p.workspace = NULL; break;
        case 3: p.workspace_bytes = 4096; break;
        case 4: p.num_splits = 3; break;
        case 5: p.flags = KGEN_FLAG_CAUSAL, p.seqlen_q = 4096; break;
        case 6: p.seqlen_k = 64; break;
        case 7: *capability = 80, *multiprocessors = 108; break;
        case 8: p.seqlen_q = 4096; break;
        case 9: p.seqlen_q = 4096, *capability = 80; break;
        case 10: p.flags = KGEN_FLAG_PATH_DENSE; break;
        case 11: p.seqused_k = (const int32_t*)memory, p.num_splits = 7; break;
        case 12: p.split_counts = (int32_t*)memory, p.seqused_k = (const int32_t*)memory, p.num_splits = 7; break;
        case 13: p.head_dim = 128; break;
        case 14: *multiprocessors = 16; break;
        case 15: p.seqused_k = (const int32_t*)memory; /* fallthrough */
        case 16: p.batch = 32, p.head_dim = 128, p.seqlen_k = 65536, p.total_k = 120000; break;
        default: break;
    }
    return p;
}

int main(void) {
    size_t bytes[REQUESTS];
    uint32_t random = 1;
    int calls = 0, last = 0;
    launchers_succeed = 1;
    for (int turn = 0; turn < 4000; ++turn) {
        random = random * 1664525u + 1013904223u;
        const int number = turn < REQUESTS ? turn : random % 4 == 0 ? last : (int)(random >> 8) % REQUESTS;
        last = number;
        int capability, multiprocessors;
        kgen_fwd_params p = request(number, &capability, &multiprocessors);
        p.q = memory + random % 16, p.o = memory + random % 32; /* choices do not depend on addresses */
        kgen_emulator_device(capability);
        kgen_emulator_multiprocessors(multiprocessors);
        const size_t asked = kgen_fwd_workspace(&p);
        if (turn < REQUESTS) bytes[number] = asked;
        if (asked != bytes[number]) printf("wrong|%d: workspace %zu, before %zu\n", number, asked, bytes[number]);

        kgen_candidate list[KGEN_MOST_CANDIDATES];
        kgen_choice choice = {sizeof choice, sizeof list[0], list, KGEN_MOST_CANDIDATES, 0, 0, 0};
        if (kgen_explain_choice(&p, &choice) != KGEN_SUCCESS) {
            printf("wrong|%d: %s\n", number, kgen_last_error());
            continue;
        }
        const kgen_candidate* chosen = list + choice.chosen;
        const char* expected = chosen->path == KGEN_PATH_SCHEDULED ? "flash_prepare_scheduler_sm80" : chosen->variant;
        launches = 0;
        if (kgen_fwd(&p, NULL) != KGEN_SUCCESS) printf("wrong|%d: %s\n", number, kgen_last_error());
        else if (strcmp(first_launched, expected) != 0) printf("wrong|%d: %s, not %s\n", number, first_launched, expected);
        ++calls;
    }
    printf("done|%d\n", calls);
    return 0;
}
