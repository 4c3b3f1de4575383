/* Few queries over long contexts through kgen_fwd: with a workspace (split and merged), without one, and with an
 * explicit num_splits. Prints one line per request: the workspace bytes, the number of splits they correspond to, and
 * the largest difference of O and LSE from the unsplit result. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kgen.h"

void kgen_emulator_reset(uint64_t seed);
void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* element_map, size_t element_bytes, int writable);
void kgen_emulator_multiprocessors(int count);
const char* kgen_emulator_report(void);

enum { BATCH = 3, HEADS = 8, HEADS_K = 2, SEQLEN_Q = 2, SEQLEN_K = 1500, DIM = 64, ROWS = BATCH * HEADS * SEQLEN_Q };

static uint16_t q[ROWS * DIM], k[BATCH * SEQLEN_K * HEADS_K * DIM], v[BATCH * SEQLEN_K * HEADS_K * DIM], o[ROWS * DIM], plain_o[ROWS * DIM];
static float lse[ROWS], plain_lse[ROWS];
static int32_t seqused_k[BATCH] = {1500, 37, 700}, counts[BATCH];
static uint32_t arrivals[ROWS];

static float decode(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* bf16 bit patterns of numbers near 1 and -1. */
static void fill(uint16_t* tensor, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        tensor[i] = (uint16_t)((seed >> 31) << 15 | (0x3f00 + (seed >> 22 & 0x17f)));
    }
}

static void declare(void* workspace, size_t bytes) {
    kgen_emulator_reset(1);
    kgen_emulator_tensor("q", q, sizeof q, NULL, 2, 0);
    kgen_emulator_tensor("k", k, sizeof k, NULL, 2, 0);
    kgen_emulator_tensor("v", v, sizeof v, NULL, 2, 0);
    kgen_emulator_tensor("o", o, sizeof o, NULL, 2, 1);
    kgen_emulator_tensor("lse", lse, sizeof lse, NULL, 4, 1);
    kgen_emulator_tensor("seqused_k", seqused_k, sizeof seqused_k, NULL, 4, 0);
    kgen_emulator_tensor("split_counts", counts, sizeof counts, NULL, 4, 0);
    kgen_emulator_tensor("arrivals", arrivals, sizeof arrivals, NULL, 4, 1);
    if (workspace != NULL) kgen_emulator_tensor("workspace", workspace, bytes, NULL, 4, 1);
}

static void run(const char* what, kgen_fwd_params p, int workspace_is_short) {
    const size_t bytes = kgen_fwd_workspace(&p);
    void* workspace = malloc(bytes + 16);
    memset(workspace, 0xff, bytes + 16);
    memset(o, 0xff, sizeof o);
    memset(lse, 0xff, sizeof lse);
    p.workspace = bytes == 0 ? NULL : (char*)workspace + (16 - (uintptr_t)workspace % 16) % 16;
    p.workspace_bytes = workspace_is_short ? bytes - 1 : bytes;
    declare(p.workspace, bytes);
    const int code = kgen_fwd(&p, NULL);
    if (code != KGEN_SUCCESS) {
        printf("%s: %d %s\n%s", what, code, kgen_last_error(), kgen_emulator_report());
        exit(1);
    }
    const unsigned char* first = p.workspace;
    double o_error = 0, lse_error = 0;
    for (int i = 0; i < ROWS * DIM; ++i) {
        const double difference = fabs(decode(o[i]) - decode(plain_o[i]));
        if (!(difference <= o_error)) o_error = difference;
    }
    for (int i = 0; i < ROWS; ++i) {
        const double difference = fabs(lse[i] - plain_lse[i]);
        if (!(difference <= lse_error)) lse_error = difference;
    }
    const int used = first != NULL && memcmp(first, "\xff\xff\xff\xff", 4) != 0;
    const int right = o_error <= 0.02 && lse_error <= 1e-5;
    printf("%s: %zu bytes, %s, %s\n", what, bytes, used ? "split" : "not split", right ? "equal" : "different");
    free(workspace);
}

/* The same, merged by the last block of each row tile, twice: the counters are not cleared in between. */
static void run_merged(const char* what, kgen_fwd_params p, uint32_t path, int counted) {
    p.flags |= path | KGEN_FLAG_MERGE_BY_LAST_BLOCK;
    p.arrivals = counted ? arrivals : NULL;
    p.arrivals_count = counted ? ROWS : 0;
    run(what, p, 0);
    run(what, p, 0);
    for (int i = 0; i < ROWS; ++i) {
        if (arrivals[i] != 0) printf("counter %d is %u\n", i, (unsigned)arrivals[i]);
    }
}

/* Sequences have more queries than seqlen_q: the excess rows are not computed and have no partial results. */
static void run_longer(kgen_fwd_params p) {
    static const int32_t starts[BATCH + 1] = {0, 3, 4, 6};
    static uint16_t expected[ROWS * DIM];
    kgen_emulator_reset(1);
    declare(NULL, 0);
    kgen_emulator_tensor("cu_seqlens_q", (void*)starts, sizeof starts, NULL, 4, 0);
    p.cu_seqlens_q = starts, p.seqlen_q = 3, p.total_q = p.lse_head_stride = 6, p.flags |= KGEN_FLAG_PATH_DENSE;
    if (kgen_fwd(&p, NULL) != KGEN_SUCCESS) printf("%s\n", kgen_last_error());
    memcpy(expected, o, sizeof o);
    for (int by_last_block = 0; by_last_block < 2; ++by_last_block) {
        p.flags = KGEN_FLAG_CAUSAL | KGEN_FLAG_PATH_SPLIT | (by_last_block ? KGEN_FLAG_MERGE_BY_LAST_BLOCK : KGEN_FLAG_MERGE_BY_LAUNCH);
        p.seqlen_q = 1, p.num_splits = 4, p.arrivals = arrivals, p.arrivals_count = ROWS, p.workspace = NULL;
        const size_t bytes = kgen_fwd_workspace(&p);
        void* workspace = malloc(bytes);
        memset(workspace, 0xff, bytes);
        memset(o, 0xff, sizeof o);
        p.workspace = workspace, p.workspace_bytes = bytes;
        declare(workspace, bytes);
        kgen_emulator_tensor("cu_seqlens_q", (void*)starts, sizeof starts, NULL, 4, 0);
        const int code = kgen_fwd(&p, NULL);
        int right = 1;
        for (int i = 0; i < 6 * HEADS * DIM; ++i) {
            const int row = i / (HEADS * DIM);
            if (row == 0 || row == 3 || row == 4 ? !(fabs(decode(o[i]) - decode(expected[i])) <= 0.02) : o[i] != 0xffff) right = 0;
        }
        printf("longer: %zu bytes, %d, %s%s\n", bytes, code, right ? "right" : "wrong", code == KGEN_SUCCESS ? "" : kgen_emulator_report());
        free(workspace);
    }
}

int main(void) {
    fill(q, sizeof q / 2, 1);
    fill(k, sizeof k / 2, 2);
    fill(v, sizeof v / 2, 3);
    kgen_fwd_params p = {0};
    p.struct_size = sizeof p;
    p.q = q, p.k = k, p.v = v, p.o = o, p.lse = lse;
    p.q_batch_stride = p.o_batch_stride = SEQLEN_Q * HEADS * DIM, p.q_row_stride = p.o_row_stride = HEADS * DIM;
    p.k_batch_stride = p.v_batch_stride = SEQLEN_K * HEADS_K * DIM, p.k_row_stride = p.v_row_stride = HEADS_K * DIM;
    p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = DIM;
    p.lse_batch_stride = HEADS * SEQLEN_Q, p.lse_head_stride = SEQLEN_Q;
    p.batch = BATCH, p.num_heads = HEADS, p.num_heads_k = HEADS_K, p.seqlen_q = SEQLEN_Q, p.seqlen_k = SEQLEN_K;
    p.head_dim = DIM, p.dtype = KGEN_DTYPE_BF16, p.softmax_scale = 0.125f;
    p.flags = KGEN_FLAG_CAUSAL;
    kgen_emulator_multiprocessors(10);

    for (int unequal = 0; unequal < 2; ++unequal) {
        p.seqused_k = unequal ? seqused_k : NULL;
        declare(NULL, 0);
        if (kgen_fwd(&p, NULL) != KGEN_SUCCESS) {
            printf("%s\n%s", kgen_last_error(), kgen_emulator_report());
            return 1;
        }
        memcpy(plain_o, o, sizeof o);
        memcpy(plain_lse, lse, sizeof lse);
        kgen_fwd_params asked = p;
        run(unequal ? "unequal" : "equal", p, 0);
        asked.num_splits = 4;
        run("four asked for", asked, 0);
        run("a byte too little", asked, 1);
        if (unequal) {
            counts[0] = 3, counts[1] = 1, counts[2] = 2;
            asked.split_counts = counts;
            run("counts given", asked, 0);
        }
        asked.num_splits = 1;
        run("one asked for", asked, 0);
        asked.num_splits = 4;
        run_merged("four, merged", asked, KGEN_FLAG_PATH_SPLIT, 1);
        asked.split_counts = NULL, asked.num_splits = 0;
        if (unequal) run_merged("scheduled, merged", asked, KGEN_FLAG_PATH_SCHEDULED, 0);
    }
    run_longer(p);
    {
        kgen_fwd_params asked = p;
        asked.seqused_k = NULL, asked.num_splits = 4, asked.workspace = o, asked.workspace_bytes = SIZE_MAX;
        asked.flags |= KGEN_FLAG_PATH_SPLIT | KGEN_FLAG_MERGE_BY_LAST_BLOCK;
        asked.arrivals = arrivals, asked.arrivals_count = 1;
        const int code = kgen_fwd(&asked, NULL);
        printf("%d %s\n", code, kgen_last_error());
    }
    p.seqused_k = NULL;
    p.batch = 1, p.seqlen_k = 100;
    printf("short: %zu bytes\n", kgen_fwd_workspace(&p));
    p.batch = BATCH, p.seqlen_k = SEQLEN_K;
    p.head_dim = 40, p.dtype = KGEN_DTYPE_FP16, p.flags = 0;
    printf("no split variant: %zu bytes\n", kgen_fwd_workspace(&p));
    return 0;
}
