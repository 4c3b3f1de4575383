/* Decoding as an inference engine replays it from a CUDA graph: paged K and V, split counts from kgen_fwd_metadata,
 * kgen_fwd with the sizes of the largest call, and lengths in device memory that change between replays.
 *
 *     graph SEQLEN_Q NUM_SPLITS    one line per set of lengths: the launches and blocks of both functions, the
 *                                  workspace, the split counts, and whether O and LSE match a plain attention in double
 *     graph explain                the path chosen for 64 sequences of 128 tokens, and why others are excluded */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kgen.h"

void kgen_emulator_reset(uint64_t seed);
void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* element_map, size_t element_bytes, int writable);
void kgen_emulator_multiprocessors(int count);
const char* kgen_emulator_report(void);

enum { BATCH = 6, HEADS = 4, HEADS_K = 2, TOKENS = 24, DIM = 64, PAGE = 16, PAGES = 140, MOST_KEYS = 512, WIDTH = MOST_KEYS / PAGE };

static uint16_t q[TOKENS * HEADS * DIM], o[TOKENS * HEADS * DIM], cache[PAGES * PAGE * HEADS_K * 2 * DIM];
static float lse[HEADS * TOKENS];
static int32_t starts[BATCH + 1], used[BATCH], table[BATCH * WIDTH], counts[BATCH];

/* Same layout as kgen::emulator::launch_options. */
struct launch_options {
    bool early;
    uint32_t cluster;
};

static char launches[256];

const char* START(const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, struct launch_options options,
                  void (*enter)(const void*), const void* call);

/* Wraps kgen::emulator::run (linker option --wrap). */
const char* COUNT_LAUNCHES(const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, struct launch_options options,
                           void (*enter)(const void*), const void* call) {
    const size_t length = strlen(launches);
    const char* kind = strstr(name, "prepare") ? "prepare" : strstr(name, "combine") ? "combine" : strstr(name, "split") ? "split" : "fwd";
    snprintf(launches + length, sizeof launches - length, "%s%s:%u", length > 0 ? " " : "", kind, (unsigned)blocks);
    return START(name, blocks, threads, shared_bytes, options, enter, call);
}

static float decode(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static void fill(uint16_t* tensor, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        tensor[i] = (uint16_t)((seed >> 31) << 15 | (0x3f00 + (seed >> 22 & 0x17f)));
    }
}

static const uint16_t* key(int sequence, int row, int head) {
    const int page = table[sequence * WIDTH + row / PAGE];
    return cache + ((page * PAGE + row % PAGE) * HEADS_K + head) * 2 * DIM;
}

/* Largest difference of valid rows from attention in double, and whether rows beyond the sequences were written. */
static bool is_right(void) {
    for (int b = 0; b < BATCH; ++b) {
        const int queries = starts[b + 1] - starts[b];
        for (int row = 0; row < queries; ++row) {
            for (int h = 0; h < HEADS; ++h) {
                const int token = starts[b] + row, seen = row + used[b] - queries + 1;
                double scores[MOST_KEYS], largest = -INFINITY, sum = 0, value[DIM] = {0};
                for (int j = 0; j < seen; ++j) {
                    double s = 0;
                    for (int d = 0; d < DIM; ++d) s += (double)decode(q[(token * HEADS + h) * DIM + d]) * decode(key(b, j, h / 2)[d]);
                    scores[j] = s * 0.125;
                    if (scores[j] > largest) largest = scores[j];
                }
                for (int j = 0; j < seen; ++j) {
                    const double weight = exp(scores[j] - largest);
                    sum += weight;
                    for (int d = 0; d < DIM; ++d) value[d] += weight * decode(key(b, j, h / 2)[DIM + d]);
                }
                for (int d = 0; d < DIM; ++d) {
                    const double expected = seen > 0 ? value[d] / sum : 0;
                    if (!(fabs(decode(o[(token * HEADS + h) * DIM + d]) - expected) <= 0.02)) return false;
                }
                const float got = lse[h * TOKENS + token];
                if (seen > 0 ? !(fabs(got - (largest + log(sum))) <= 1e-4) : got != -INFINITY) return false;
            }
        }
    }
    for (int token = starts[BATCH]; token < TOKENS; ++token) {
        if (o[token * HEADS * DIM] != 0xffff) return false;
    }
    return true;
}

static void refresh(uint64_t seed) {
    kgen_emulator_reset(seed);
    kgen_emulator_tensor("q", q, sizeof q, NULL, 2, 0);
    kgen_emulator_tensor("cache", cache, sizeof cache, NULL, 2, 0);
    kgen_emulator_tensor("o", o, sizeof o, NULL, 2, 1);
    kgen_emulator_tensor("lse", lse, sizeof lse, NULL, 4, 1);
    kgen_emulator_tensor("cu_seqlens_q", starts, sizeof starts, NULL, 4, 0);
    kgen_emulator_tensor("seqused_k", used, sizeof used, NULL, 4, 0);
    kgen_emulator_tensor("page_table", table, sizeof table, NULL, 4, 0);
    kgen_emulator_tensor("split_counts", counts, sizeof counts, NULL, 4, 1);
}

static int fail_with(const char* what, int code) {
    printf("%s: %d %s\n%s", what, code, kgen_last_error(), kgen_emulator_report());
    return 1;
}

/* Sets of lengths: queries and keys of each sequence. */
static const struct {
    const char* name;
    int queries[BATCH], keys[BATCH];
} CONTENTS[] = {
    {"captured", {1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}},
    {"decoding", {1, 1, 1, 1, 1, 1}, {500, 37, 160, 1, 512, 300}},
    {"longer", {1, 1, 1, 1, 1, 1}, {501, 38, 161, 2, 512, 301}},
    {"padded", {1, 1, 1, 0, 0, 0}, {502, 39, 162, 0, 0, 0}},
    {"no keys", {1, 1, 0, 1, 0, 1}, {0, 40, 0, 163, 0, 0}},
    {"a chunk", {1, 17, 1, 1, 0, 0}, {300, 60, 163, 5, 0, 0}},
    {"around one tile", {8, 9, 7, 0, 0, 0}, {300, 260, 40, 0, 0, 0}},
    {"one sequence has all", {0, 24, 0, 0, 0, 0}, {0, 400, 0, 0, 0, 0}},
    {"nothing", {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}},
};

static int explain(kgen_fwd_params p) {
    kgen_candidate list[KGEN_MOST_CANDIDATES];
    kgen_choice choice = {sizeof choice, sizeof list[0], list, KGEN_MOST_CANDIDATES, 0, 0, 0};
    p.batch = 64, p.seqlen_q = p.total_q = 128, p.num_splits = 32, p.workspace_bytes = SIZE_MAX, p.workspace = o;
    if (kgen_explain_choice(&p, &choice) != KGEN_SUCCESS) return fail_with("kgen_explain_choice", 1);
    for (int i = 0; i < choice.count; ++i) {
        printf("%d of %d splits: %s\n", (int)list[i].path, (int)list[i].num_splits, i == choice.chosen ? "chosen" : list[i].excluded);
    }
    return 0;
}

int main(int argc, char** argv) {
    if (argc < 2 || argc > 4) return 2;
    kgen_emulator_multiprocessors(4);
    fill(q, sizeof q / 2, 1);
    fill(cache, sizeof cache / 2, 2);
    kgen_fwd_params p = {0};
    p.struct_size = sizeof p, p.flags = KGEN_FLAG_CAUSAL;
    p.q = q, p.k = cache, p.v = cache + DIM, p.o = o, p.lse = lse;
    p.q_row_stride = p.o_row_stride = HEADS * DIM, p.q_head_stride = p.o_head_stride = DIM;
    p.k_batch_stride = p.v_batch_stride = PAGE * HEADS_K * 2 * DIM, p.k_row_stride = p.v_row_stride = HEADS_K * 2 * DIM;
    p.k_head_stride = p.v_head_stride = 2 * DIM, p.lse_head_stride = TOKENS;
    p.cu_seqlens_q = starts, p.seqused_k = used, p.page_table = table, p.page_table_stride = WIDTH;
    p.page_size = PAGE, p.num_pages = PAGES;
    p.batch = BATCH, p.num_heads = HEADS, p.num_heads_k = HEADS_K, p.seqlen_k = MOST_KEYS, p.total_q = TOKENS;
    p.seqlen_q = atoi(argv[1]), p.num_splits = argc > 2 ? atoi(argv[2]) : 0;
    p.head_dim = DIM, p.dtype = KGEN_DTYPE_BF16, p.softmax_scale = 0.125f;
    p.split_counts = counts;
    if (argc == 4) p.flags |= KGEN_FLAG_PATH_MIXED;
    if (argc == 2) return explain(p);
    const size_t bytes = kgen_fwd_workspace(&p);
    void* workspace = bytes > 0 ? malloc(bytes) : NULL; /* malloc aligns to 16 bytes */
    for (size_t c = 0; c < sizeof CONTENTS / sizeof CONTENTS[0]; ++c) {
        int page = 0;
        for (int b = 0; b < BATCH; ++b) {
            starts[b + 1] = starts[b] + CONTENTS[c].queries[b], used[b] = CONTENTS[c].keys[b];
            if (CONTENTS[c].queries[b] > p.seqlen_q) goto next; /* exceeds the caller's maximum */
            for (int i = 0; i < WIDTH; ++i) table[b * WIDTH + i] = i * PAGE < used[b] ? (page += 37) % PAGES : INT32_MAX;
        }
        memset(o, 0xff, sizeof o), memset(lse, 0xff, sizeof lse), memset(counts, 0x7f, sizeof counts);
        launches[0] = 0;
        refresh(c);
        int code = kgen_fwd_metadata(&p, NULL);
        if (code != KGEN_SUCCESS) return fail_with("kgen_fwd_metadata", code);
        refresh(c);
        if (workspace != NULL) memset(workspace, 0xff, bytes), kgen_emulator_tensor("workspace", workspace, bytes, NULL, 4, 1);
        p.workspace = workspace, p.workspace_bytes = bytes;
        const size_t asked = kgen_fwd_workspace(&p);
        code = kgen_fwd(&p, NULL);
        if (code != KGEN_SUCCESS) return fail_with("kgen_fwd", code);
        printf("%s: %s, %zu bytes, counts", CONTENTS[c].name, launches, asked);
        for (int b = 0; b < BATCH; ++b) printf(" %d", (int)counts[b]);
        printf(", %s\n", is_right() ? "right" : "wrong");
    next:;
    }
    free(workspace);
    return 0;
}
