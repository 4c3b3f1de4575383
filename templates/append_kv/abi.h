/* Append to a KV cache: writes new rows of K and V into the cache, with rotary embedding of the new K and of Q, in one
 * launch.
 *
 * Element (b, row, head, column) of K is at k[b * k_batch_stride + row * k_row_stride + head * k_head_stride +
 * column]; V and Q likewise. K is (batch, seqlen_new, num_heads_k, head_dim), V has head_dim_v columns, Q is
 * (batch, seqlen_q, num_heads, head_dim). With cu_seqlens_new (batch + 1 entries, the first 0) the sequences of K
 * and V are packed along the row axis, in total_new rows, and batch strides are not read; rows from
 * cu_seqlens_new[batch] on are skipped. cu_seqlens_q and total_q do the same for Q, whose lengths may differ.
 *
 * The cache of K is (num_pages, page_size, num_heads_k, head_dim), that of V has head_dim_v columns. Each has its own
 * strides: both may be views of one tensor. Row i of sequence b goes to row r = cache_seqlens[b] + i of the sequence's
 * cache, which is one of:
 *   page_table:  row r % page_size of page page_table[b * page_table_stride + r / page_size]. Only the entries of rows
 *                that are written are read, and none at index pages_per_sequence or above.
 *   neither:     row r of page cache_batch_idx[b], or of page b if that is NULL: a dense cache with page_size rows per
 *                batch entry.
 *   slot_mapping: one slot per row of K (at b * seqlen_new + i, or at the packed row), which replaces all of the above:
 *                row slot % page_size of page slot / page_size. A negative slot skips its row, as in vLLM.
 * A row without a place in the cache is written neither to K nor to V: if cache_seqlens[b] is negative, if r is
 * page_size (with a page table page_size * pages_per_sequence) or more, or if the page or slot does not exist. No two
 * rows may have the same place.
 *
 * Rotary embedding rotates the first rotary_dim columns of K, and those of Q into q_out, by the row of `rotary_cos` and
 * `rotary_sin` at the row's position p; further columns are copied. Pairs of columns are (2 j, 2 j + 1) with
 * KGEN_FLAG_ROTARY_INTERLEAVED, otherwise (j, j + rotary_dim / 2):
 *   x' = x cos[p][j] - y sin[p][j];  y' = y cos[p][j] + x sin[p][j], in fp32, rounded once
 * Positions: row i of K is at s + i, where s is seqlens_rotary[b], or cache_seqlens[b] if that is NULL. Row i of Q is
 * at s + i with KGEN_FLAG_CAUSAL or KGEN_FLAG_WINDOW (the flags of the attention call that follows); otherwise all rows
 * of Q are at s. `positions`, one per row of K, replaces this; Q must then have the same rows as K. A row at a position
 * outside 0 .. rotary_rows - 1 is not written: the row of K together with that of V, or the row of Q.
 * (FlashAttention's leftpad_k is not needed here: it hides the first rows of a cache, which cache_seqlens includes, and
 * so changes neither the place of a row nor its position.)
 *
 * An FP8 cache stores x * (1 / descale) in place of x, rounded to nearest even and saturated to the largest finite
 * number. If all pointers and strides are multiples of 16 bytes (of 8 for FP8 caches), rows are moved in pieces of 8
 * elements, otherwise element by element. */
typedef struct kgen_append_kv_params {
    uint32_t struct_size; /* sizeof(kgen_append_kv_params) */
    uint32_t flags;       /* KGEN_FLAG_CAUSAL, _WINDOW, _ROTARY_INTERLEAVED, _DESCALE_BY_PAGE */

    const void* k; /* new rows */
    const void* v;
    void* k_cache;
    void* v_cache;
    const void* q;          /* NULL: Q is not rotated. Requires rotary_cos */
    void* q_out;            /* q itself with the same strides, or memory that does not overlap q */
    const void* rotary_cos; /* (rotary_rows, rotary_dim / 2), with the dtype of Q; NULL: no rotary embedding */
    const void* rotary_sin;

    /* Strides in elements. */
    int64_t k_batch_stride, k_row_stride, k_head_stride;
    int64_t v_batch_stride, v_row_stride, v_head_stride;
    int64_t k_cache_page_stride, k_cache_row_stride, k_cache_head_stride;
    int64_t v_cache_page_stride, v_cache_row_stride, v_cache_head_stride;
    int64_t q_batch_stride, q_row_stride, q_head_stride;
    int64_t q_out_batch_stride, q_out_row_stride, q_out_head_stride;
    int64_t rotary_row_stride; /* of rotary_cos and rotary_sin */

    /* Device memory, each NULL unless used. */
    const int32_t* cache_seqlens;   /* one per batch entry: rows already in the cache. Not needed with slot_mapping */
    const int32_t* cu_seqlens_new;
    const int32_t* cu_seqlens_q;
    const int32_t* seqlens_rotary;  /* one per batch entry */
    const int32_t* cache_batch_idx; /* one per batch entry; dense caches only */
    const int32_t* page_table;
    int64_t page_table_stride;      /* in entries, from sequence to sequence */
    const int64_t* slot_mapping;    /* one per row of K */
    const int64_t* positions;       /* one per row of K */

    /* Descale factors of FP8 caches, not read for others: one per batch entry and key head, for K and V each, fp32 in
     * device memory, finite and above 0; NULL: 1. Strides are in floats; 0 uses one value along that axis. With
     * KGEN_FLAG_DESCALE_BY_PAGE there is one per page of the cache and key head (factors of pages that receive no row
     * are not read), and the batch strides lead from page to page: attention reads them as k_page_descale and
     * v_page_descale. */
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
    int32_t head_dim_v;  /* of V, with the same limits; 0: head_dim */
    int32_t rotary_dim;  /* a multiple of 16, at most head_dim; 0 without rotary_cos */
    int32_t rotary_rows; /* of rotary_cos and rotary_sin */
    int32_t page_size;   /* rows of a page; in a dense cache, rows of a batch entry */
    int32_t num_pages;   /* pages of the cache; in a dense cache, its batch entries */
    int32_t pages_per_sequence; /* entries in a row of page_table */
    int32_t dtype;       /* of Q, K, V, cos and sin: KGEN_DTYPE_FP16 or KGEN_DTYPE_BF16 */
    int32_t cache_dtype; /* the same, or KGEN_DTYPE_FP8_E4M3 or KGEN_DTYPE_FP8_E5M2 */

    /* From version 8 on. By batch entry, device memory of its own: receives the rows of each sequence's cache after
     * this call: cache_seqlens[b] plus the new rows, limited to the rows the cache can hold; 0 if cache_seqlens[b]
     * is negative. Attention takes it as seqused_k. NULL: not written. Not with slot_mapping. */
    int32_t* seqlens_after;
} kgen_append_kv_params;

/* The columns of a rotated pair are adjacent: 2 j and 2 j + 1. */
#define KGEN_FLAG_ROTARY_INTERLEAVED 0x10u
/* An FP8 cache has descale factors per page, not per batch entry. */
#define KGEN_FLAG_DESCALE_BY_PAGE 0x20u

enum { KGEN_KIND_APPEND_KV = 21 };

/* A launcher checks the parameters, starts its kernel on `stream` and returns one of the codes above. */
typedef int (*kgen_append_kv_launcher)(const kgen_append_kv_params* params, cudaStream_t stream);

/* Picks the best append_kv variant for the current device and the dtype, and launches it. The host reads nothing in
 * device memory: the grid depends only on batch, seqlen_new, total_new, seqlen_q, total_q, heads and head dims, so that
 * a CUDA graph can be replayed with other lengths. */
int kgen_append_kv(const kgen_append_kv_params* params, cudaStream_t stream);

/* Runs kgen_append_kv(append) and then kgen_fwd(attention); or does the same in one launch if that is predicted to be
 * faster and the two structures agree: k_cache and v_cache are attention's k and v, q_out is its q, seqlens_after its
 * seqused_k, with the same strides, tables and factors. The contents of q_out and seqlens_after, which only pass data
 * from one to the other, are undefined afterwards. A single launch also requires a kernel with KGEN_FEATURE_APPEND and
 * the conditions at k_new of kgen_fwd_params. The workspace is that of `attention`, with kgen_fwd_workspace(attention)
 * bytes. */
int kgen_fwd_kvcache(const kgen_append_kv_params* append, const kgen_fwd_params* attention, cudaStream_t stream);
