/* Calls with hostile parameters. No kernel runs: the linker's --wrap replaces the emulator's launch of a grid with a
 * function that checks the number of blocks.
 *
 *     hostile blocks                 for every launcher, sizes around 2^31 - 1 blocks; prints one line each
 *     hostile fuzz SEED ITERATIONS   random structures; prints the results of the calls
 *
 * A call may return any error code with a message. It must not crash or launch a grid of an invalid size. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kgen.h"

void kgen_emulator_device(int capability);
void kgen_emulator_multiprocessors(int count);

static uint64_t launches, wrong_launches, last_blocks;

/* Same layout as kgen::emulator::launch_options. */
struct launch_options {
    bool early;
    uint32_t cluster;
};

/* Replaces kgen::emulator::run(name, blocks, threads, shared_bytes, options, enter, call). */
const char* COUNT_BLOCKS(const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, struct launch_options options,
                         void (*enter)(const void*), const void* call) {
    (void)name, (void)threads, (void)shared_bytes, (void)enter, (void)call;
    ++launches;
    last_blocks = blocks;
    if (blocks == 0 || blocks > INT32_MAX || (options.cluster > 1 && blocks % options.cluster != 0)) ++wrong_launches;
    return NULL;
}

static uint64_t state;

static uint64_t draw(void) { /* splitmix64 */
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int one_in(int n) { return draw() % (uint64_t)n == 0; }

/* Random sizes: typical ones, limits of the types, and powers of two plus or minus one. */
static int32_t draw_size(void) {
    static const int32_t borders[] = {0, 1, 2, 8, 16, 63, 64, 65, 128, -1, INT32_MAX, INT32_MIN, INT32_MAX - 1024, INT32_MAX - 1023, 1 << 23, 1 << 30};
    switch (draw() % 4) {
        case 0: return (int32_t)(draw() % 300);
        case 1: return borders[draw() % (sizeof borders / sizeof borders[0])];
        case 2: return (int32_t)((UINT32_C(1) << draw() % 31) + draw() % 3 - 1);
        default: return (int32_t)draw();
    }
}

/* Whether a tensor with these strides fits into an address space; the launchers reject others before a launch. */
static bool strides_fit;

static int64_t draw_stride(void) {
    if (strides_fit) return (int64_t)(draw() % 4096) * 8;
    switch (draw() % 4) {
        case 0: return (int64_t)(draw() % 4096) * 8;
        case 1: return draw_size();
        case 2: return (int64_t)(UINT64_C(1) << draw() % 64);
        default: return (int64_t)draw();
    }
}

static void* draw_pointer(void) {
    static _Alignas(16) char memory[64];
    if (one_in(5)) return NULL;
    return one_in(4) ? memory + draw() % 16 : memory;
}

static float draw_scale(void) {
    static const float scales[] = {0.125f, 0.0f, 1.0f, -1.0f, 3e38f, 1e-40f};
    const uint32_t bits = (uint32_t)draw();
    float any;
    memcpy(&any, &bits, sizeof any);
    return one_in(3) ? any : scales[draw() % 6];
}

/* Initialises a structure: half of the time with noise, so that members not set below are hostile too. */
static void noise(void* structure, size_t bytes) {
    if (one_in(2)) {
        memset(structure, 0, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; ++i) ((unsigned char*)structure)[i] = one_in(2) ? 0 : (unsigned char)draw();
}

static size_t draw_struct_size(size_t right) {
    if (!one_in(6)) return right;
    return one_in(2) ? draw() % (right + 1) : right + draw() % 64; /* never past the end of the allocation */
}

static uint32_t draw_flags(void) { return one_in(8) ? (uint32_t)draw() : (uint32_t)(draw() % 4) | (one_in(6) ? (uint32_t)(draw() % 16) << 8 : 0); }

struct shape {
    int32_t head_dim, dtype;
};

/* Usually a variant of the library. */
static struct shape draw_shape(void) {
    size_t count;
    const kgen_variant* variants = kgen_variants(&count);
    const kgen_variant* v = variants + draw() % count;
    struct shape s = {v->head_dim, v->dtype};
    if (one_in(6)) s.head_dim = draw_size();
    if (one_in(8)) s.dtype = draw_size();
    return s;
}

/* Structures are inside larger buffers, so that a struct_size beyond the newest version stays readable. */
union fwd {
    kgen_fwd_params p;
    char room[sizeof(kgen_fwd_params) + 64];
};
union bwd {
    kgen_bwd_params p;
    char room[sizeof(kgen_bwd_params) + 64];
};
union append {
    kgen_append_kv_params p;
    char room[sizeof(kgen_append_kv_params) + 64];
};

static void draw_strides(int64_t* first, int count) {
    for (int i = 0; i < count; ++i) first[i] = draw_stride();
}

/* Optional parts of a request: pages, caches, new rows, counters. Mostly valid, so that the size checks are reached. */
static void draw_more(kgen_fwd_params* p) {
    memset(&p->features, 0, sizeof p->features), memset(&p->score, 0, sizeof p->score);
    p->flags &= ~UINT32_C(2);
    p->head_dim_v = p->reserved = p->reserved_2 = p->reserved_3 = p->kv_dtype = 0;
    p->least_queries = p->most_queries = p->cache_entries = 0;
    p->page_table = NULL, p->cache_batch_idx = p->leftpad_k = NULL, p->qv = NULL, p->k_new = NULL;
    p->work_counter = NULL, p->k_page_descale = p->v_page_descale = NULL;
    if (one_in(2)) p->flags |= UINT32_C(1) << (12 + draw() % 4);
    if (one_in(3)) p->page_table = draw_pointer(), p->page_table_stride = draw_stride(), p->page_size = draw_size(), p->num_pages = draw_size();
    if (one_in(6)) p->cache_batch_idx = draw_pointer(), p->cache_entries = draw_size();
    if (one_in(6)) p->qv = draw_pointer(), draw_strides(&p->qv_batch_stride, 3);
    if (one_in(6)) p->flags |= KGEN_FLAG_WINDOW, p->features.window_left = draw_size(), p->features.window_right = draw_size();
    if (one_in(3)) p->arrivals = draw_pointer(), p->arrivals_count = draw_stride();
    if (!one_in(6)) return;
    p->k_new = draw_pointer(), p->v_new = draw_pointer(), draw_strides(&p->k_new_batch_stride, 6);
    p->seqlen_new = draw_size(), p->rotary_cos = draw_pointer(), p->rotary_sin = draw_pointer(), p->rotary_row_stride = draw_stride();
    p->rotary_dim = one_in(2) ? 16 : draw_size(), p->rotary_rows = draw_size();
}

static void draw_fwd(union fwd* u) {
    noise(u, sizeof *u);
    kgen_fwd_params* p = &u->p;
    const struct shape s = draw_shape();
    p->struct_size = draw_struct_size(sizeof *p);
    p->flags = draw_flags();
    p->q = draw_pointer(), p->k = draw_pointer(), p->v = draw_pointer(), p->o = draw_pointer();
    p->lse = draw_pointer();
    p->cu_seqlens_q = one_in(3) ? draw_pointer() : NULL, p->cu_seqlens_k = one_in(3) ? draw_pointer() : NULL;
    p->seqused_q = one_in(3) ? draw_pointer() : NULL, p->seqused_k = one_in(3) ? draw_pointer() : NULL;
    p->q_batch_stride = draw_stride(), p->q_row_stride = draw_stride(), p->q_head_stride = draw_stride();
    p->k_batch_stride = draw_stride(), p->k_row_stride = draw_stride(), p->k_head_stride = draw_stride();
    p->v_batch_stride = draw_stride(), p->v_row_stride = draw_stride(), p->v_head_stride = draw_stride();
    p->o_batch_stride = draw_stride(), p->o_row_stride = draw_stride(), p->o_head_stride = draw_stride();
    p->lse_batch_stride = draw_stride(), p->lse_head_stride = draw_stride();
    p->batch = draw_size(), p->seqlen_q = draw_size(), p->seqlen_k = draw_size();
    p->num_heads_k = draw_size(), p->num_heads = one_in(2) ? p->num_heads_k : draw_size();
    p->head_dim = s.head_dim, p->dtype = s.dtype;
    p->softmax_scale = draw_scale();
    p->total_q = draw_size(), p->total_k = draw_size();
    p->num_splits = one_in(2) ? (int32_t)(draw() % 300) : draw_size();
    p->concurrent_blocks = draw_size();
    p->split_counts = one_in(2) ? draw_pointer() : NULL;
    p->workspace = draw_pointer();
    p->workspace_bytes = one_in(2) ? SIZE_MAX : (size_t)draw_stride();
    if (one_in(2)) draw_more(p);
}

static void draw_append(union append* u) {
    noise(u, sizeof *u);
    kgen_append_kv_params* p = &u->p;
    p->struct_size = draw_struct_size(sizeof *p);
    p->flags = one_in(8) ? (uint32_t)draw() : 0;
    p->k = draw_pointer(), p->v = draw_pointer(), p->k_cache = draw_pointer(), p->v_cache = draw_pointer();
    p->q = one_in(2) ? draw_pointer() : NULL, p->q_out = one_in(4) ? (void*)p->q : draw_pointer();
    p->rotary_cos = one_in(2) ? draw_pointer() : NULL, p->rotary_sin = one_in(6) ? draw_pointer() : (void*)p->rotary_cos;
    draw_strides(&p->k_batch_stride, 19);
    p->cache_seqlens = draw_pointer();
    p->cu_seqlens_new = one_in(3) ? draw_pointer() : NULL, p->cu_seqlens_q = one_in(3) ? draw_pointer() : NULL;
    p->seqlens_rotary = NULL, p->positions = one_in(4) ? draw_pointer() : NULL;
    p->cache_batch_idx = NULL, p->page_table = NULL, p->slot_mapping = NULL;
    if (one_in(3)) p->page_table = draw_pointer();
    else if (one_in(3)) p->slot_mapping = draw_pointer();
    else if (one_in(3)) p->cache_batch_idx = draw_pointer();
    p->page_table_stride = draw_stride();
    p->k_descale = p->v_descale = NULL, draw_strides(&p->k_descale_batch_stride, 4);
    p->batch = draw_size(), p->seqlen_new = draw_size(), p->total_new = draw_size(), p->seqlen_q = draw_size(), p->total_q = draw_size();
    p->num_heads = draw_size(), p->num_heads_k = draw_size();
    p->head_dim = one_in(4) ? draw_size() : 64, p->head_dim_v = one_in(4) ? draw_size() : 0;
    p->rotary_dim = p->rotary_cos == NULL ? 0 : one_in(4) ? draw_size() : 16, p->rotary_rows = draw_size();
    p->page_size = draw_size(), p->num_pages = draw_size(), p->pages_per_sequence = draw_size();
    p->dtype = one_in(8) ? draw_size() : KGEN_DTYPE_FP16, p->cache_dtype = one_in(4) ? KGEN_DTYPE_FP8_E4M3 : p->dtype;
    p->seqlens_after = one_in(2) ? draw_pointer() : NULL;
}

static void draw_bwd(union bwd* u) {
    noise(u, sizeof *u);
    kgen_bwd_params* p = &u->p;
    const struct shape s = draw_shape();
    p->struct_size = draw_struct_size(sizeof *p);
    p->flags = draw_flags();
    p->q = draw_pointer(), p->k = draw_pointer(), p->v = draw_pointer(), p->o = draw_pointer(), p->dout = draw_pointer();
    p->dlse = one_in(2) ? draw_pointer() : NULL;
    p->lse = draw_pointer(), p->dq = draw_pointer(), p->dk = draw_pointer(), p->dv = draw_pointer();
    p->cu_seqlens_q = one_in(3) ? draw_pointer() : NULL, p->cu_seqlens_k = one_in(3) ? draw_pointer() : NULL;
    p->batch = draw_size(), p->seqlen_q = draw_size(), p->seqlen_k = draw_size();
    p->num_heads_k = draw_size(), p->num_heads = one_in(2) ? p->num_heads_k : draw_size();
    p->head_dim = s.head_dim, p->dtype = s.dtype;
    p->softmax_scale = draw_scale();
    p->total_q = draw_size();
    p->workspace = draw_pointer();
    p->workspace_bytes = one_in(2) ? SIZE_MAX : (size_t)draw_stride();
}

static int fuzz(uint64_t seed, uint64_t iterations) {
    uint64_t ends[KGEN_ERROR_UNSUPPORTED + 1] = {0};
    state = seed;
    size_t count;
    const kgen_variant* variants = kgen_variants(&count);
    for (uint64_t i = 0; i < iterations; ++i) {
        static const int capabilities[] = {75, 80, 86, 89, 90, 100, 120, 121};
        kgen_emulator_device(capabilities[draw() % 8]);
        kgen_emulator_multiprocessors((int)(draw() % 200));
        union fwd f;
        union bwd b;
        union append a;
        strides_fit = one_in(2);
        draw_fwd(&f), draw_bwd(&b), draw_append(&a);
        const kgen_variant* v = variants + draw() % count;
        int code = 0;
        kgen_candidate list[4];
        kgen_choice choice = {draw_struct_size(sizeof choice), sizeof list[0], list, (int32_t)(draw() % 5), 0, 0, 0};
        if (choice.struct_size > sizeof choice) choice.struct_size = sizeof choice; /* the buffer ends here */
        if (one_in(20)) choice.candidate_size = (uint32_t)draw();
        if (choice.candidate_size > sizeof list[0]) choice.capacity = 0;
        if (one_in(20)) choice.candidates = NULL;
        switch (draw() % 8) {
            case 7: code = kgen_append_kv(one_in(50) ? NULL : &a.p, NULL); break;
            case 6: code = kgen_fwd_kvcache(one_in(50) ? NULL : &a.p, one_in(50) ? NULL : &f.p, NULL); break;
            case 5: code = kgen_fwd_metadata(one_in(50) ? NULL : &f.p, NULL); break;
            case 4: code = kgen_explain_choice(one_in(50) ? NULL : &f.p, one_in(50) ? NULL : &choice); break;
            case 0: code = kgen_fwd(one_in(50) ? NULL : &f.p, NULL); break;
            case 1: code = kgen_bwd(one_in(50) ? NULL : &b.p, NULL); break;
            case 2: kgen_fwd_workspace(one_in(50) ? NULL : &f.p), kgen_bwd_workspace(one_in(50) ? NULL : &b.p); break;
            default:
                f.p.head_dim = b.p.head_dim = one_in(10) ? f.p.head_dim : v->head_dim;
                f.p.dtype = b.p.dtype = one_in(10) ? f.p.dtype : v->dtype;
                if (v->launch != NULL) code = v->launch(&f.p, NULL);
                else if (v->launch_bwd != NULL) code = v->launch_bwd(&b.p, NULL);
        }
        if (code < 0 || code > KGEN_ERROR_UNSUPPORTED || (code != KGEN_SUCCESS && kgen_last_error()[0] == 0)) {
            printf("call %llu: code %d, `%s`\n", (unsigned long long)i, code, kgen_last_error());
            return 1;
        }
        ++ends[code];
    }
    printf("refused %s, launched %s, %llu wrong\n", ends[KGEN_ERROR_INVALID_VALUE] > 0 ? "some" : "none", launches > 0 ? "some" : "none",
           (unsigned long long)wrong_launches);
    return wrong_launches != 0;
}

/* A launcher with `heads` heads and sequences of whole tiles; all other parameters are valid. */
static int call(const kgen_variant* v, int32_t batch, int32_t heads, int32_t seqlen, int packed) {
    static _Alignas(16) char memory[64];
    launches = 0, last_blocks = 0;
    kgen_emulator_device(v->target);
    if (v->launch != NULL) {
        kgen_fwd_params p;
        memset(&p, 0, sizeof p);
        p.struct_size = sizeof p;
        p.flags = (v->features & KGEN_FEATURE_CAUSAL) != 0 ? KGEN_FLAG_CAUSAL : 0;
        p.q = memory, p.k = memory, p.v = memory, p.o = memory;
        p.head_dim = v->head_dim == 0 ? 64 : v->head_dim, p.dtype = v->dtype;
        p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = p.head_dim;
        p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = p.head_dim;
        p.q_batch_stride = p.k_batch_stride = p.v_batch_stride = p.o_batch_stride = p.head_dim;
        p.batch = batch, p.num_heads = p.num_heads_k = heads, p.seqlen_q = p.seqlen_k = seqlen;
        p.softmax_scale = 0.125f;
        p.num_splits = 1;
        p.workspace = memory, p.workspace_bytes = SIZE_MAX;
        p.split_counts = (int32_t*)memory;
        p.concurrent_blocks = 100;
        return v->launch(&p, NULL);
    }
    kgen_bwd_params p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    p.flags = (v->features & KGEN_FEATURE_CAUSAL) != 0 ? KGEN_FLAG_CAUSAL : 0;
    p.q = memory, p.k = memory, p.v = memory, p.o = memory, p.dout = memory, p.lse = (float*)memory;
    p.dq = memory, p.dk = memory, p.dv = memory;
    p.head_dim = v->head_dim, p.dtype = v->dtype;
    p.batch = batch, p.num_heads = p.num_heads_k = heads, p.seqlen_q = p.seqlen_k = seqlen;
    p.softmax_scale = 0.125f;
    p.workspace = memory, p.workspace_bytes = SIZE_MAX;
    if (packed) p.cu_seqlens_q = p.cu_seqlens_k = (const int32_t*)memory, p.total_q = 1;
    return v->launch_bwd(&p, NULL);
}

static const char* word(int code) {
    if (code == KGEN_SUCCESS) return launches > 0 ? "launched" : "nothing to do";
    /* A backward launcher may reject the workspace size before it counts blocks. */
    const int refused = strstr(kgen_last_error(), "2^31 - 1") != NULL || strstr(kgen_last_error(), "are too many") != NULL;
    return code == KGEN_ERROR_INVALID_VALUE && refused ? "refused" : kgen_last_error();
}

static int blocks(void) {
    size_t count;
    const kgen_variant* variants = kgen_variants(&count);
    kgen_emulator_multiprocessors(10);
    for (size_t i = 0; i < count; ++i) {
        const kgen_variant* v = variants + i;
        if (v->launch == NULL && v->launch_bwd == NULL) continue; /* append_kv */
        const int packed = v->launch == NULL; /* keeps the workspace of a backward pass small */
        printf("%s:", v->name);
        /* At least 2^69 blocks, which wrap to 0; a long maximum with few rows in total; 2^31, 2^31 - 1 and 2^29 of one
         * query. */
        printf(" %s,", word(call(v, 1 << 23, 1 << 23, 1 << 30, packed)));
        printf(" %s,", word(call(v, 1 << 30, 1 << 30, 1 << 30, packed)));
        printf(" %s,", word(call(v, 1 << 15, 1 << 14, 1 << 20, packed)));
        printf(" %s,", word(call(v, 1 << 16, 1 << 15, 1, packed)));
        printf(" %s,", word(call(v, INT32_MAX, 1, 1, packed)));
        printf(" %s\n", word(call(v, 1 << 15, 1 << 14, 1, packed)));
    }
    return wrong_launches != 0;
}

int main(int argc, char** argv) {
    if (argc == 2 && strcmp(argv[1], "blocks") == 0) return blocks();
    if (argc == 4 && strcmp(argv[1], "fuzz") == 0) return fuzz(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    return 2;
}
