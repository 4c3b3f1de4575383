/* New rows of K and V written into a KV cache, with rotary embedding of the new K and of Q, in one launch.
 *
 * Element (b, row, head, column) of K is at k[b * k_batch_stride + row * k_row_stride + head * k_head_stride +
 * column], those of V and Q likewise. K is (batch, seqlen_new, num_heads_k, head_dim), V has head_dim_v columns, Q is
 * (batch, seqlen_q, num_heads, head_dim). With cu_seqlens_new (batch + 1 entries, starting at 0) the sequences of K
 * and V are packed along the row axis, total_new rows, and batch strides are not read; rows from cu_seqlens_new[batch]
 * on are skipped. cu_seqlens_q and total_q are the same for Q, whose lengths may be others.
 *
 * The cache is (num_pages, page_size, num_heads_k, head_dim), V's with head_dim_v columns, each with strides of its
 * own: both may be views of one tensor. Row i of sequence b goes to row r = cache_seqlens[b] + i of the sequence's
 * cache:
 *   page_table:  row r % page_size of page page_table[b * page_table_stride + r / page_size]. Only entries of rows that
 *                are written are read, and none at pages_per_sequence or after.
 *   otherwise:   row r of page cache_batch_idx[b], b where that is NULL: a dense cache, page_size rows a batch entry.
 *   slot_mapping: one slot per row of K (b * seqlen_new + i, or the packed row), in place of all that: row
 *                slot % page_size of page slot / page_size. A negative slot skips its row, as vLLM has it.
 * A row for which the cache has no place is not written, neither K nor V: where cache_seqlens[b] is negative, r is
 * page_size (with a table page_size * pages_per_sequence) or more, or there is no such page or slot. No two rows may
 * have one place.
 *
 * Rotary embedding turns the first rotary_dim columns of K, and of Q into q_out, by the row of `rotary_cos` and
 * `rotary_sin` at the position p of a row; columns after those are copied. Pairs of columns are (2 j, 2 j + 1) with
 * KGEN_FLAG_ROTARY_INTERLEAVED, otherwise (j, j + rotary_dim / 2):
 *   x' = x cos[p][j] - y sin[p][j];  y' = y cos[p][j] + x sin[p][j], in fp32, rounded once
 * Positions: row i of K has s + i, where s is seqlens_rotary[b], or cache_seqlens[b] if that is NULL. Row i of Q has
 * s + i with KGEN_FLAG_CAUSAL or KGEN_FLAG_WINDOW (those of the attention call that follows), otherwise all have s.
 * `positions` gives one per row of K in place of that, and Q then has the same rows. A row at a position outside 0 ..
 * rotary_rows - 1 is not written: K's with V's, and Q's. (FlashAttention's leftpad_k is not needed here: it hides the
 * first rows of a cache, which cache_seqlens counts, and so changes neither where a row goes nor its position.)
 *
 * Where the cache is FP8, x * (1 / descale) is stored in place of x, rounded to nearest even; what is larger than the
 * largest number becomes that. If all tensors are aligned to 16 bytes (FP8 caches to 8) with all their strides, rows
 * are moved in pieces of 8 elements, otherwise element by element. */
typedef struct kgen_append_kv_params {
    uint32_t struct_size; /* sizeof(kgen_append_kv_params) */
    uint32_t flags;       /* KGEN_FLAG_CAUSAL, _WINDOW, _ROTARY_INTERLEAVED, _DESCALE_BY_PAGE */

    const void* k; /* new rows */
    const void* v;
    void* k_cache;
    void* v_cache;
    const void* q;          /* NULL: nothing to do for Q. Needs rotary_cos */
    void* q_out;            /* q itself, with the same strides, or memory of its own */
    const void* rotary_cos; /* (rotary_rows, rotary_dim / 2), of the dtype of Q; NULL: no rotary embedding */
    const void* rotary_sin;

    /* In elements. */
    int64_t k_batch_stride, k_row_stride, k_head_stride;
    int64_t v_batch_stride, v_row_stride, v_head_stride;
    int64_t k_cache_page_stride, k_cache_row_stride, k_cache_head_stride;
    int64_t v_cache_page_stride, v_cache_row_stride, v_cache_head_stride;
    int64_t q_batch_stride, q_row_stride, q_head_stride;
    int64_t q_out_batch_stride, q_out_row_stride, q_out_head_stride;
    int64_t rotary_row_stride; /* of rotary_cos and rotary_sin */

    /* Device memory, each NULL unless used. */
    const int32_t* cache_seqlens;   /* by batch entry: rows in the cache, before these. Not needed with slot_mapping */
    const int32_t* cu_seqlens_new;
    const int32_t* cu_seqlens_q;
    const int32_t* seqlens_rotary;  /* by batch entry */
    const int32_t* cache_batch_idx; /* by batch entry; dense caches alone */
    const int32_t* page_table;
    int64_t page_table_stride;      /* in entries, from sequence to sequence */
    const int64_t* slot_mapping;    /* by row of K */
    const int64_t* positions;       /* by row of K */

    /* FP8 caches only, not read for others: factors of K and V by batch entry and key head, fp32 in device memory,
     * finite and above 0; NULL stands for 1. Strides in floats; 0 repeats one. With KGEN_FLAG_DESCALE_BY_PAGE they are
     * by page of the cache and key head (num_pages entries; those of pages that no row goes to are not read), and the
     * batch strides are from page to page: what attention reads as k_page_descale and v_page_descale. */
    const float* k_descale;
    const float* v_descale;
    int64_t k_descale_batch_stride, k_descale_head_stride;
    int64_t v_descale_batch_stride, v_descale_head_stride;

    int32_t batch;
    int32_t seqlen_new;  /* rows of K and V; not read with cu_seqlens_new */
    int32_t total_new;   /* with cu_seqlens_new: all rows of K and V, cu_seqlens_new[batch] or more */
    int32_t seqlen_q;    /* rows of Q; not read with cu_seqlens_q */
    int32_t total_q;     /* with cu_seqlens_q: all rows of Q */
    int32_t num_heads;   /* of Q */
    int32_t num_heads_k; /* of K and V */
    int32_t head_dim;    /* of Q and K: a multiple of 8, at most 256 */
    int32_t head_dim_v;  /* of V, likewise; 0: head_dim */
    int32_t rotary_dim;  /* a multiple of 16, at most head_dim; 0 without rotary_cos */
    int32_t rotary_rows; /* of rotary_cos and rotary_sin */
    int32_t page_size;   /* rows of a page; of a dense cache, of a batch entry */
    int32_t num_pages;   /* pages of the cache; of a dense cache, batch entries */
    int32_t pages_per_sequence; /* entries of a row of page_table */
    int32_t dtype;       /* of Q, K, V, cos and sin: KGEN_DTYPE_FP16 or KGEN_DTYPE_BF16 */
    int32_t cache_dtype; /* the same, or KGEN_DTYPE_FP8_E4M3 or KGEN_DTYPE_FP8_E5M2 */

    /* From version 8 on. By batch entry, device memory of its own: receives the rows of each sequence's cache after
     * these, cache_seqlens[b] and the new rows, at most as many as the cache has places for; 0 where cache_seqlens[b]
     * is negative. What attention takes as seqused_k. NULL: not written. Not with slot_mapping. */
    int32_t* seqlens_after;
} kgen_append_kv_params;

/* Pairs of columns that are rotated lie side by side. */
#define KGEN_FLAG_ROTARY_INTERLEAVED 0x10u
/* Factors of an FP8 cache are by page, not by batch entry. */
#define KGEN_FLAG_DESCALE_BY_PAGE 0x20u

enum { KGEN_KIND_APPEND_KV = 21 };

/* A launcher: checks the parameters, starts its kernel on `stream`, returns one of the codes above. */
typedef int (*kgen_append_kv_launcher)(const kgen_append_kv_params* params, cudaStream_t stream);

/* Picks the best append_kv variant for the current device and the dtype, and launches it. Reads nothing in device
 * memory: the grid depends on batch, seqlen_new, total_new, seqlen_q, total_q, heads and head dims alone, so that a
 * CUDA graph serves changing lengths. */
int kgen_append_kv(const kgen_append_kv_params* params, cudaStream_t stream);

/* What kgen_append_kv(append) and then kgen_fwd(attention) do, or the same in one launch, where that is predicted to be
 * faster and both say the same: k_cache and v_cache are attention's k and v, q_out is its q, seqlens_after its
 * seqused_k, with the same strides, tables and factors. Of what is only passed on from the one to the other, q_out and
 * seqlens_after, nothing is defined afterwards. One launch also needs a kernel with KGEN_FEATURE_APPEND, and what
 * k_new of kgen_fwd_params says. A workspace is attention's, of kgen_fwd_workspace(attention) bytes. */
int kgen_fwd_kvcache(const kgen_append_kv_params* append, const kgen_fwd_params* attention, cudaStream_t stream);
