/* Calls vector_add, transpose, reduce and append_kv through the dispatcher. Prints whether results match values worked
 * out by hand, and the messages for invalid requests. */
#include <stdio.h>

#include "kgen.h"

void kgen_emulator_reset(uint64_t seed);
void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* element_map, size_t element_bytes, int writable);

enum { COUNT = 1001, ROWS = 37, COLUMNS = 65, LONG = 40000 };

static _Alignas(16) float a[LONG], b[COUNT], out[COUNT];
static _Alignas(16) uint16_t matrix[ROWS * COLUMNS], turned[COLUMNS * ROWS];
static _Alignas(16) float result[2], workspace[64];

static void answer(const char* what, int code, int right) {
    printf("%s: %d %s\n", what, code, code != KGEN_SUCCESS ? kgen_last_error() : right ? "right" : "wrong");
}

static void add(void) {
    kgen_vector_add_params p = {0};
    p.struct_size = sizeof p;
    p.a = a, p.b = b, p.out = out, p.count = COUNT, p.dtype = KGEN_DTYPE_FP32;
    kgen_emulator_reset(1);
    kgen_emulator_tensor("a", a, sizeof a, NULL, 4, 0);
    kgen_emulator_tensor("b", b, sizeof b, NULL, 4, 0);
    kgen_emulator_tensor("out", out, sizeof out, NULL, 4, 1);
    const int code = kgen_vector_add(&p, NULL);
    int right = 1;
    for (int i = 0; i < COUNT; ++i) right &= out[i] == a[i] + b[i];
    answer("sum", code, right);
    p.out = a + 1;
    answer("overlap", kgen_vector_add(&p, NULL), 0);
    p.out = out, p.dtype = KGEN_DTYPE_BF16;
    answer("no bf16", kgen_vector_add(&p, NULL), 0);
    p.dtype = KGEN_DTYPE_FP32, p.flags = 1;
    answer("flag", kgen_vector_add(&p, NULL), 0);
    answer("NULL", kgen_vector_add(NULL, NULL), 0);
}

static void turn(void) {
    kgen_transpose_params p = {0};
    p.struct_size = sizeof p;
    p.in = matrix, p.out = turned, p.rows = ROWS, p.columns = COLUMNS, p.element_bytes = 2;
    for (int i = 0; i < ROWS * COLUMNS; ++i) matrix[i] = (uint16_t)i;
    kgen_emulator_reset(1);
    kgen_emulator_tensor("in", matrix, sizeof matrix, NULL, 2, 0);
    kgen_emulator_tensor("out", turned, sizeof turned, NULL, 2, 1);
    const int code = kgen_transpose(&p, NULL);
    int right = 1;
    for (int i = 0; i < ROWS * COLUMNS; ++i) right &= turned[i % COLUMNS * ROWS + i / COLUMNS] == i;
    answer("transposition", code, right);
    p.out = matrix;
    answer("in place", kgen_transpose(&p, NULL), 0);
    p.element_bytes = 3;
    answer("3 bytes", kgen_transpose(&p, NULL), 0);
    p.element_bytes = 4;
    answer("no 4 bytes", kgen_transpose(&p, NULL), 0);
}

static void reduce(void) {
    kgen_reduce_params p = {0};
    p.struct_size = sizeof p;
    p.in = a, p.out = result, p.workspace = workspace, p.rows = 1, p.columns = LONG;
    p.dtype = KGEN_DTYPE_FP32, p.operation = KGEN_REDUCE_SUM;
    float sum = 0;
    for (int i = 0; i < LONG; ++i) sum += a[i];
    p.workspace_bytes = kgen_reduce_workspace(&p);
    printf("workspace: %zu bytes\n", p.workspace_bytes);
    kgen_emulator_reset(1);
    kgen_emulator_tensor("in", a, sizeof a, NULL, 4, 0);
    kgen_emulator_tensor("out", result, sizeof result, NULL, 4, 1);
    kgen_emulator_tensor("workspace", workspace, p.workspace_bytes, NULL, 4, 1);
    int code = kgen_reduce(&p, NULL);
    answer("all", code, result[0] == sum);
    p.workspace_bytes -= 1;
    answer("a byte too little", kgen_reduce(&p, NULL), 0);
    p.rows = 2, p.columns = LONG / 2, p.workspace_bytes = 0;
    printf("workspace of two rows: %zu bytes\n", kgen_reduce_workspace(&p));
    result[0] = result[1] = -1;
    code = kgen_reduce(&p, NULL);
    answer("two rows", code, result[0] + result[1] == sum);
    p.operation = KGEN_REDUCE_MAX;
    answer("no max", kgen_reduce(&p, NULL), 0);
    p.operation = 9;
    answer("operation 9", kgen_reduce(&p, NULL), 0);
    printf("workspace of operation 9: %zu bytes\n", kgen_reduce_workspace(&p));
    p.struct_size = 8;
    answer("short structure", kgen_reduce(&p, NULL), 0);
}

/* Appends one row to each of two sequences that have 0 and 3 rows in a cache of 4 rows; K is rotated by 90 degrees. */
static void append(void) {
    enum { DIM = 16, CACHE = 4 };
    static _Alignas(16) uint16_t k[2][DIM], v[2][DIM], k_cache[2][CACHE][DIM], v_cache[2][CACHE][DIM], cos_table[CACHE][DIM / 2], sin_table[CACHE][DIM / 2];
    static const int32_t lengths[2] = {0, 3};
    for (int i = 0; i < 2 * DIM; ++i) k[i / DIM][i % DIM] = (uint16_t)(0x3c00 + i), v[i / DIM][i % DIM] = (uint16_t)(0x4000 + i);
    for (int i = 0; i < CACHE * DIM / 2; ++i) sin_table[i / (DIM / 2)][i % (DIM / 2)] = 0x3c00;
    kgen_append_kv_params p = {0};
    p.struct_size = sizeof p;
    p.k = k, p.v = v, p.k_cache = k_cache, p.v_cache = v_cache, p.rotary_cos = cos_table, p.rotary_sin = sin_table;
    p.k_batch_stride = p.v_batch_stride = p.k_row_stride = p.v_row_stride = DIM;
    p.k_cache_page_stride = p.v_cache_page_stride = CACHE * DIM;
    p.k_cache_row_stride = p.v_cache_row_stride = DIM;
    p.rotary_row_stride = DIM / 2;
    p.cache_seqlens = lengths;
    p.batch = 2, p.seqlen_new = 1, p.num_heads_k = 1, p.head_dim = DIM, p.rotary_dim = DIM, p.rotary_rows = CACHE;
    p.page_size = CACHE, p.num_pages = 2;
    p.dtype = p.cache_dtype = KGEN_DTYPE_FP16;
    kgen_emulator_reset(1);
    kgen_emulator_tensor("k", k, sizeof k, NULL, 2, 0);
    kgen_emulator_tensor("v", v, sizeof v, NULL, 2, 0);
    kgen_emulator_tensor("k_cache", k_cache, sizeof k_cache, NULL, 2, 1);
    kgen_emulator_tensor("v_cache", v_cache, sizeof v_cache, NULL, 2, 1);
    kgen_emulator_tensor("rotary_cos", cos_table, sizeof cos_table, NULL, 2, 0);
    kgen_emulator_tensor("rotary_sin", sin_table, sizeof sin_table, NULL, 2, 0);
    kgen_emulator_tensor("cache_seqlens", (void*)lengths, sizeof lengths, NULL, 4, 0);
    const int code = kgen_append_kv(&p, NULL);
    int right = 1;
    for (int b = 0; b < 2; ++b) {
        for (int i = 0; i < DIM; ++i) {
            /* (x, y) becomes (-y, x); earlier rows are unchanged. */
            const uint16_t turned_k = i < DIM / 2 ? k[b][i + DIM / 2] | 0x8000 : k[b][i - DIM / 2];
            right &= k_cache[b][lengths[b]][i] == turned_k && v_cache[b][lengths[b]][i] == v[b][i];
            right &= k_cache[b][1][i] == 0 && v_cache[b][1][i] == 0;
        }
    }
    answer("appended", code, right);
    p.rotary_dim = 8;
    answer("8 columns", kgen_append_kv(&p, NULL), 0);
    p.rotary_dim = DIM, p.dtype = KGEN_DTYPE_FP32;
    answer("no fp32", kgen_append_kv(&p, NULL), 0);
    p.flags = 2;
    answer("flag 2", kgen_append_kv(&p, NULL), 0);
    answer("no request", kgen_append_kv(NULL, NULL), 0);
}

int main(void) {
    for (int i = 0; i < LONG; ++i) a[i] = (float)(i % 7);
    for (int i = 0; i < COUNT; ++i) b[i] = (float)(i % 5) / 4;
    add();
    turn();
    reduce();
    append();
    return 0;
}
