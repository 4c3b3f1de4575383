/* kgen.h - the C interface of every generated kernel.
 *
 * Plain C99. Link with libkgen.so, or compile any generated .cu into your own program and call its launcher.
 * Nothing here allocates, throws or synchronises; every launch can be captured in a CUDA graph.
 */
#ifndef KGEN_H
#define KGEN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The type CUDA's own headers declare, for programs that include none of them. C99 allows one declaration only. */
#ifndef __DRIVER_TYPES_H__
typedef struct CUstream_st* cudaStream_t;
#endif

/* Version of this interface. A parameter structure only ever grows at its end. The caller sets `struct_size` to the
 * size of the structure it was compiled with. Fields that an older caller lacks are taken as zero. If the caller is
 * newer than the library, the fields that the library does not know must be zero; otherwise the call fails with
 * KGEN_ERROR_UNSUPPORTED, as it does for unknown flags. */
#define KGEN_ABI_VERSION 11

/* Results of every call. */
enum {
    KGEN_SUCCESS = 0,
    KGEN_ERROR_INVALID_VALUE = 1,  /* a parameter is outside its documented range */
    KGEN_ERROR_MISMATCH = 2,       /* the launcher was built for another head dim, dtype, mask or without a feature */
    KGEN_ERROR_NO_VARIANT = 3,     /* the library holds no variant for this request on this device */
    KGEN_ERROR_LAUNCH = 4,         /* CUDA refused the launch; kgen_last_error() holds its message */
    KGEN_ERROR_UNSUPPORTED = 5     /* this kernel cannot read tensors with this memory layout, though another kernel
                                    * may; or the request uses something this version of the library does not know */
};

/* Element types. */
enum { KGEN_DTYPE_FP16 = 0, KGEN_DTYPE_BF16 = 1, KGEN_DTYPE_FP8_E4M3 = 2, KGEN_DTYPE_FP32 = 3, KGEN_DTYPE_FP8_E5M2 = 4 };

/* Kinds of kernel. */
enum { KGEN_KIND_FWD = 0, KGEN_KIND_FWD_SPLIT = 1, KGEN_KIND_FWD_COMBINE = 2, KGEN_KIND_PREPARE_SCHEDULER = 3, KGEN_KIND_BWD = 4, KGEN_KIND_FWD_SHORT = 5 };

/* Optional masks and changes of the scores. Zero or NULL leaves a feature unused. A launcher whose kernel lacks a
 * requested feature fails with KGEN_ERROR_MISMATCH; features that a kernel has but the request does not use have no
 * effect.
 *
 * Kernels with windows, chunks, slopes or a bias take sequences of up to 2^30 rows. Positions are counted in keys: row
 * i of a sequence is at position r = i + seqlen_k - seqlen_q, with the sequence's own lengths. Key j is at position j.
 * A key is visible if every requested mask allows it. Scores are changed in this order, before the mask:
 *   s = softmax_scale * q k^T;  s = softcap * tanh(s / softcap);  s = s - slope * |r - j|;  s = s + bias
 * A slope below 0 raises the scores of far keys.
 */
typedef struct kgen_attention_features {
    /* Read with KGEN_FLAG_WINDOW: key j is visible if r - window_left <= j <= r + window_right; -1: no limit on that
     * side. KGEN_FLAG_CAUSAL limits the right side to 0. */
    int32_t window_left, window_right;
    int32_t attention_chunk; /* key j is visible if r / chunk == j / chunk, rounded down; 0: no chunks */
    float softcap;           /* finite; 0: scores are not capped */
    const float* alibi_slopes;  /* one per query head, or per batch entry and query head; finite, of either sign;
                                 * device memory; NULL: none */
    int64_t alibi_batch_stride; /* in floats; 0 repeats one row for all batch entries */
    const void* sinks;          /* one logit per query head, device memory: added to the softmax denominator of each of
                                 * the head's rows, without a row of V; LSE includes it. NULL: none */
    int32_t sinks_dtype;        /* KGEN_DTYPE_FP32 or KGEN_DTYPE_BF16; ignored if sinks is NULL */
    int32_t reserved;           /* 0 */
} kgen_attention_features;

/* A user-defined score or mask, declared as `[score.NAME]` when the kernels were generated. A kernel with a declared
 * score serves only calls that request it. The expression is applied to the scores that the features above produce, and
 * its mask is combined with theirs: a key must be visible to all. Sequence lengths are at most 2^28 - 1024. */
typedef struct kgen_declared_score {
    uint64_t id;            /* kgen_variant.score of a kernel with this score; 0: no declared score */
    float scalars[8];       /* in the order of declaration; finite, unused entries 0 */
    int32_t integers[8];    /* likewise; magnitudes of at most 2^28, at least 1 if the expression divides by them */
    const float* tables[4]; /* likewise; each one float per query head, device memory; unused entries NULL */
} kgen_declared_score;

/* Forward attention: O = softmax(softmax_scale * Q K^T + mask) V, and LSE, the log-sum-exp of the scores of every row.
 *
 * Shapes: Q (batch, seqlen_q, num_heads, head_dim), O (batch, seqlen_q, num_heads, head_dim_v),
 * K (batch, seqlen_k, num_heads_k, head_dim), V (batch, seqlen_k, num_heads_k, head_dim_v),
 * LSE (batch, num_heads, seqlen_q) in fp32. O has the dtype of Q, or bf16 if that is FP8. The head_dim axis is
 * contiguous; every other stride is arbitrary, in elements, and may be negative. Tensors whose pointers and strides are
 * multiples of 16 bytes are moved in 16-byte pieces; all others element by element, correct but slower.
 *
 * With KGEN_DTYPE_FP8_E4M3, Q, K and V are E4M3 and O is bf16. Attention is computed on q * q_descale, k * k_descale
 * and v * v_descale.
 *
 * Query head h reads key head h / (num_heads / num_heads_k). Causal masks are aligned to the bottom right: row i of
 * a sequence sees key j if j <= i + seqlen_k - seqlen_q. A row that sees no key has O = 0 and LSE = -infinity.
 */
typedef struct kgen_fwd_params {
    uint32_t struct_size; /* sizeof(kgen_fwd_params) */
    uint32_t flags;       /* KGEN_FLAG_* */

    const void* q;
    const void* k;
    const void* v;
    void* o;
    float* lse; /* may be NULL: not written */

    /* Element strides. With cu_seqlens the batch stride of that side is not read. */
    int64_t q_batch_stride, q_row_stride, q_head_stride;
    int64_t k_batch_stride, k_row_stride, k_head_stride;
    int64_t v_batch_stride, v_row_stride, v_head_stride;
    int64_t o_batch_stride, o_row_stride, o_head_stride;
    int64_t lse_batch_stride, lse_head_stride; /* rows of LSE are contiguous */

    /* Batches of unequal lengths. Device pointers; each is NULL if unused.
     * cu_seqlens_* (batch + 1 entries, the first 0): sequences are packed along the row axis; sequence b has rows
     * cu_seqlens[b] to cu_seqlens[b + 1] - 1. LSE is then (num_heads, total_q), and sequence b starts at row
     * cu_seqlens_q[b]. Entries must not decrease, must stay within the tensors, and must not change while a call runs;
     * none of this is checked.
     * seqused_* (batch entries): only the first seqused[b] rows of sequence b are used, at most its length (seqlen_q or
     * seqlen_k, or what cu_seqlens gives). O and LSE of further rows are left untouched, as are rows after the last
     * sequence of cu_seqlens_q. */
    const int32_t* cu_seqlens_q;
    const int32_t* cu_seqlens_k;
    const int32_t* seqused_q;
    const int32_t* seqused_k;

    int32_t batch;
    int32_t num_heads;   /* query heads; a multiple of num_heads_k */
    int32_t num_heads_k; /* key and value heads */
    int32_t seqlen_q;    /* rows of Q; with cu_seqlens_q or seqused_q at least the longest sequence: further rows are
                          * not computed. Pass total_q if any one sequence may have all rows, as in a CUDA graph that is
                          * replayed with other lengths */
    int32_t seqlen_k;    /* rows of K and V; with cu_seqlens_k or seqused_k the longest sequence */
    int32_t head_dim;
    int32_t dtype;       /* KGEN_DTYPE_* */
    float softmax_scale; /* finite and >= 0; usually 1 / sqrt(head_dim) */

    /* From version 2 on; zeros for a caller compiled with version 1. */

    /* Descale factors of FP8 tensors: of Q, K and V with dtype FP8, of K and V also with an FP8 cache (kv_dtype). One
     * per batch entry and key head, fp32 in device memory; NULL: 1. Finite; those of Q and K above 0. Strides are in
     * floats; 0 uses one value along that axis. */
    const float* q_descale;
    const float* k_descale;
    const float* v_descale;
    int64_t q_descale_batch_stride, q_descale_head_stride;
    int64_t k_descale_batch_stride, k_descale_head_stride;
    int64_t v_descale_batch_stride, v_descale_head_stride;

    /* Total rows of packed tensors: cu_seqlens_q[batch] and cu_seqlens_k[batch] if they are available to the caller,
     * otherwise 0. Used by kernels that copy by TMA, for the split path's workspace and for the choice of a path. With
     * seqused_k but no cu_seqlens_k, total_k may hold the sum of seqused_k; only the choice of a path uses it then. */
    int32_t total_q;
    int32_t total_k;

    /* Split-KV: the keys of a sequence are divided among up to this many blocks, whose partial results are then merged.
     * 0: the library chooses (1 without a workspace); 1: not split (one split if flags name the split path);
     * more: that many, if the library can split the request and the workspace has room. At most 256. Launchers of
     * fwd_short, and of fwd with KGEN_FEATURE_SPLITKV, write partial results for fwd_combine if it is more than 1;
     * those of other kernels of fwd compute O whatever it is. */
    int32_t num_splits;
    int32_t concurrent_blocks; /* prepare_scheduler only: concurrent blocks of fwd_split; 0: two per multiprocessor */
    int32_t* split_counts;   /* one per batch entry, device memory: the splits that each sequence uses, at most
                              * num_splits. prepare_scheduler writes them. fwd_split reads them and writes O and LSE of
                              * a sequence with one split itself; fwd_combine skips such sequences. NULL: num_splits for
                              * all sequences, except that kgen_fwd() has counts computed if lengths are unequal. Counts
                              * passed to kgen_fwd() are only read: one kgen_fwd_metadata() serves all layers of a
                              * model */
    void* workspace;         /* device memory, 16-byte aligned, need not be initialised and is not preserved; NULL: not
                              * split, and a launcher of fwd_split with one split writes O and LSE itself */
    size_t workspace_bytes;  /* bytes at `workspace`; kgen_fwd_workspace() gives the size for the path predicted to be
                              * the fastest. With less, kgen_fwd() picks among the paths that fit */

    /* From version 4 on. */
    kgen_attention_features features;

    /* From version 5 on. */
    kgen_declared_score score;
    int32_t head_dim_v; /* of V and O, if it differs from that of Q and K; 0: head_dim */
    int32_t reserved;   /* 0 */

    /* From version 6 on. */

    /* Paged K and V. With a page table, K is (num_pages, page_size, num_heads_k, head_dim), V is (num_pages, page_size,
     * num_heads_k, head_dim_v), each with its own strides: k_batch_stride and v_batch_stride lead from page to page.
     * Key j of sequence b is row j % page_size of page page_table[b * page_table_stride + j / page_size]. Sequences may
     * share pages. Entries after the one of a sequence's last key are not read, nor are the pages they name. All other
     * entries must be in 0 .. num_pages - 1; the kernels do not check this. (TMA reads zeros from pages that do not
     * exist.) Lengths are seqused_k, or seqlen_k for all sequences; cu_seqlens_k must be NULL. */
    const int32_t* page_table; /* device memory; NULL: K and V are not paged */
    int64_t page_table_stride; /* in entries, from sequence to sequence; 0: all sequences use one row */
    int32_t page_size;         /* rows of a page, at least 1 */
    int32_t num_pages;         /* pages of K and V, at least 1 if there are keys */

    /* For launchers of kernels that read pages: fwd skips sequences with fewer than least_queries queries, fwd_split
     * skips those with more than most_queries; O and LSE of skipped sequences are not written. 0: no limit. This lets
     * two kernels share a batch of prefill and decoding, as kgen_fwd() does by itself. Must be 0 for kgen_fwd() and for
     * all other launchers. */
    int32_t least_queries, most_queries;

    /* Element type of an FP8 KV cache, with queries in fp16 or bf16: KGEN_DTYPE_FP8_E4M3 or KGEN_DTYPE_FP8_E5M2;
     * 0: K and V have `dtype`. Strides of K and V are then in one-byte elements; k_descale and v_descale apply. */
    int32_t kv_dtype;
    int32_t reserved_2; /* 0 */

    /* A cache of K and V that holds more than the batch. Not with cu_seqlens_k or a page table. */
    const int32_t* cache_batch_idx; /* one per batch entry, device memory: the entry of K and V it reads; NULL: its
                                     * own */
    const int32_t* leftpad_k; /* one per batch entry, device memory: padding rows of K and V before its first key;
                               * seqlen_k and seqused_k include them. Below 0: none; NULL: none for any entry */

    /* A second part of the queries, with head_dim_v columns, which is multiplied with V: scores are
     * softmax_scale * (q k^T + qv v^T). This is DeepSeek MLA decoding with absorbed projections, V being the latent.
     * Strides are in elements.
     * kgen_fwd() and its companions also take head_dim 576 with head_dim_v 512 and qv NULL, if v == k with equal
     * strides: the first 512 columns of q and k then serve as qv and v, the last 64 as q and k. */
    const void* qv; /* NULL: scores are those of q and k */
    int64_t qv_batch_stride, qv_row_stride, qv_head_stride;

    /* Work queue: two words of device memory, which must be zero before the first call that uses them and are zero
     * again after each call. Blocks take tiles from it one after another, so that sequences of unequal lengths leave no
     * block idle. Calls that may run at the same time must not share it. NULL: tiles are assigned in a fixed order, as
     * they always are in kernels without a queue. */
    uint32_t* work_counter;

    /* From version 7 on. */

    /* Arrival counters: `arrivals_count` words of device memory, which must be zero before the first call that uses
     * them and are zero again after each call. With them, and num_splits of at most 255, the last block of fwd_split to
     * finish a row tile may merge the tile's partial results, in place of fwd_combine. Each row tile uses one byte;
     * batch * seqlen_q * num_heads / 4 words, rounded up, are always enough. Calls that may run at the same time must
     * not share them. NULL: kgen_fwd() uses counters in the workspace if prepare_scheduler runs, which clears them. A
     * launcher of fwd_split with counters and a workspace writes O and LSE. */
    uint32_t* arrivals;
    int64_t arrivals_count;

    /* Descale factors by page, of a paged FP8 cache (kv_dtype): one per page and key head, fp32 in device memory; NULL:
     * 1. They apply on top of k_descale and v_descale. Finite; those of K above 0. Factors of pages that no sequence
     * uses are not read. Strides are in floats; 0 uses one value along that axis. */
    const float* k_page_descale;
    const float* v_page_descale;
    int64_t k_page_descale_page_stride, k_page_descale_head_stride;
    int64_t v_page_descale_page_stride, v_page_descale_head_stride;

    /* From version 8 on. */

    /* New rows of K and V. Kernels with KGEN_FEATURE_APPEND write them into the cache (`k` and `v` are then outputs
     * too) before attending to them: kgen_append_kv() and attention in one launch. New rows of K are (batch,
     * seqlen_new, num_heads_k, head_dim) with `dtype`; those of V have head_dim_v columns. seqused_k is required and
     * counts the keys before the new rows: row i of sequence b becomes row seqused_k[b] + i of the sequence's cache, in
     * its pages or its entry (leftpad_k does not change this). Rows that would be at seqlen_k or beyond are not
     * written. If seqused_k[b] is negative, none of the sequence's rows is written and it has no keys. Every query tile
     * would append the rows again, so seqlen_q * num_heads / num_heads_k must be at most 16. All pointers and strides
     * must be multiples of 16 bytes, and pages must not have factors of their own. */
    const void* k_new; /* NULL: no new rows, and nothing below is read */
    const void* v_new;
    int64_t k_new_batch_stride, k_new_row_stride, k_new_head_stride;
    int64_t v_new_batch_stride, v_new_row_stride, v_new_head_stride;

    /* Rotary embedding of the first rotary_dim columns of the new K, and of Q as attention reads it (q itself is not
     * changed), by tables of shape (rotary_rows, rotary_dim / 2) with `dtype`; the formula is the one of
     * kgen_append_kv_params. New row i of K is at position s + i, where s is seqlens_rotary[b], or seqused_k[b] if that
     * is NULL. Query i is at s + i with KGEN_FLAG_CAUSAL, or with KGEN_FLAG_WINDOW and a limit on a side; otherwise all
     * queries are at s. A new row at a position outside the tables is not written; a query at such a position is not
     * rotated. */
    const void* rotary_cos; /* NULL: no rotary embedding */
    const void* rotary_sin;
    int64_t rotary_row_stride;     /* of both tables, in elements */
    const int32_t* seqlens_rotary; /* one per batch entry, device memory; NULL: seqused_k */
    int32_t seqlen_new;            /* new rows of each sequence */
    int32_t rotary_dim;            /* a multiple of 16, at most head_dim; 0 without tables */
    int32_t rotary_rows;           /* rows of the tables */
    int32_t rotary_interleaved;    /* nonzero: columns 2 j and 2 j + 1 form a pair; 0: j and j + rotary_dim / 2 */

    /* From version 9 on. */

    /* Entries of K and V that cache_batch_idx may name: a sequence whose index is negative, or this number or more, has
     * no keys. 0: unknown; then only negative indices are recognised. Must be 0 without cache_batch_idx. */
    int32_t cache_entries;
    int32_t reserved_3; /* 0 */

    /* From version 10 on. */

    /* An additive bias of the scores, of shape (batch, num_heads, seqlen_q, seqlen_k); row i and column j are query i
     * and key j of a sequence, with cu_seqlens and pages too. It is added last, in units of the score (softmax_scale
     * does not apply to it): s + bias, finite or -infinity, which hides the key. If a row's largest score is beyond
     * 2^20 in magnitude, its LSE has few digits left, and what is computed from it, merged splits and gradients, is as
     * inexact. Elements beyond a sequence's queries and keys, and those that a mask hides, do not matter. Strides are
     * in elements; 0 repeats along an axis. */
    const void* bias; /* device memory; NULL: none, and the fields below are not read */
    int64_t bias_batch_stride, bias_head_stride, bias_row_stride, bias_column_stride;
    int32_t bias_dtype; /* KGEN_DTYPE_FP32, or that of O */
    int32_t reserved_4; /* 0 */

    /* From version 11 on. */

    /* Dropout of attention weights, as in training: each weight is set to 0 with this probability before it is
     * multiplied with V, and O is multiplied by 1 / (1 - p_dropout). Row sums and LSE are those of all weights. Query i
     * and key j of a sequence, both counted from its first row, batch entry b and query head h belong to byte
     * j % 32 / 8 of word i % 32 / 8 of Philox4x32 with 7 rounds, whose key is the seed, low word first, and whose
     * counter is (i / 32 * 8 + i % 8, j / 32 * 8 + j % 8, b * num_heads + h, offset). The weight is kept if the byte is
     * at most floor((1 - p_dropout) * 255). */
    const uint64_t* rng_state; /* device memory: the seed, then the offset, of which the low 32 bits count; read by the
                                * kernel, and only if p_dropout is not 0 */
    float p_dropout;           /* at least 0 and below 1; 0: no dropout */
    int32_t reserved_5;        /* 0 */
} kgen_fwd_params;

#define KGEN_FLAG_CAUSAL 1u
/* Backward only: the same inputs give the same bits. Without it, partial sums of dQ are added in no fixed order. */
#define KGEN_FLAG_DETERMINISTIC 2u
/* features.window_left and features.window_right apply. */
#define KGEN_FLAG_WINDOW 4u
/* For kgen_fwd(), kgen_fwd_workspace() and kgen_explain_choice(): the paths that may be taken; if no flag is set, all
 * of them. A request that none of the named paths can serve is refused. Launchers refuse these flags. */
#define KGEN_FLAG_PATH_DENSE 0x100u
#define KGEN_FLAG_PATH_SHORT 0x200u
#define KGEN_FLAG_PATH_SPLIT 0x400u
#define KGEN_FLAG_PATH_SCHEDULED 0x800u
#define KGEN_FLAG_PATH_MIXED 0x1000u
#define KGEN_FLAG_PATH_PACKED 0x2000u
/* For the same functions: partial results are merged by a launch of fwd_combine, or by the last block of each row tile
 * (`arrivals`). Neither or both: the one predicted to be faster. A path that cannot merge this way is not taken. */
#define KGEN_FLAG_MERGE_BY_LAUNCH 0x4000u
#define KGEN_FLAG_MERGE_BY_LAST_BLOCK 0x8000u

/* A launcher checks the parameters, starts its kernel on `stream` and returns one of the codes above. The kinds fwd,
 * fwd_short, fwd_split, fwd_combine and prepare_scheduler all take this structure. */
typedef int (*kgen_fwd_launcher)(const kgen_fwd_params* params, cudaStream_t stream);

/* Backward attention: dQ, dK and dV from dO = `dout`, from dLSE = `dlse` if the log-sum-exp has a gradient too, and
 * from the forward pass's inputs and results.
 *
 * Shapes, strides, lengths and masks are those of kgen_fwd_params; dO has the shape of O, dQ of Q, dK of K, dV of V,
 * and all have the dtype of Q. dK and dV are sums over the query heads that read the key head. A row that sees no key
 * has dQ = 0; a key that no row sees has dK = dV = 0. Rows beyond seqused are left untouched.
 *
 * Every variant comes with `size_t <name>_workspace(const kgen_bwd_params*)`, which returns the bytes of device memory
 * needed at `workspace` during the launch. The size depends on the flags and the fields after `workspace_bytes`; of the
 * pointers, only cu_seqlens_q matters, and only by being NULL or not. 0 if the parameters are invalid
 * (kgen_last_error() gives the reason).
 */
typedef struct kgen_bwd_params {
    uint32_t struct_size; /* sizeof(kgen_bwd_params) */
    uint32_t flags;       /* KGEN_FLAG_* */

    const void* q;
    const void* k;
    const void* v;
    const void* o;
    const void* dout;
    const float* lse;
    void* dq;
    void* dk;
    void* dv;
    void* workspace; /* 16-byte aligned; need not be initialised and is not preserved */
    size_t workspace_bytes;

    /* Element strides. With cu_seqlens the batch stride of that side is not read. */
    int64_t q_batch_stride, q_row_stride, q_head_stride;
    int64_t k_batch_stride, k_row_stride, k_head_stride;
    int64_t v_batch_stride, v_row_stride, v_head_stride;
    int64_t o_batch_stride, o_row_stride, o_head_stride;
    int64_t dout_batch_stride, dout_row_stride, dout_head_stride;
    int64_t dq_batch_stride, dq_row_stride, dq_head_stride;
    int64_t dk_batch_stride, dk_row_stride, dk_head_stride;
    int64_t dv_batch_stride, dv_row_stride, dv_head_stride;
    int64_t lse_batch_stride, lse_head_stride; /* rows of LSE are contiguous */

    const int32_t* cu_seqlens_q;
    const int32_t* cu_seqlens_k;
    const int32_t* seqused_q;
    const int32_t* seqused_k;

    int32_t batch;
    int32_t num_heads;   /* query heads; a multiple of num_heads_k */
    int32_t num_heads_k; /* key and value heads */
    int32_t seqlen_q;    /* rows of Q; with cu_seqlens_q or seqused_q the longest sequence */
    int32_t seqlen_k;    /* rows of K and V; with cu_seqlens_k or seqused_k the longest sequence */
    int32_t total_q;     /* with cu_seqlens_q: its last entry or more, rows of Q and dO in memory; 0 stands for
                            batch * seqlen_q, is refused if seqused_q is given too, and excludes kernels that fetch by
                            TMA. Not read without cu_seqlens_q */
    int32_t head_dim;
    int32_t dtype;       /* KGEN_DTYPE_* */
    float softmax_scale; /* as in the forward pass */

    /* From version 4 on; zeros for a caller compiled with version 2. */
    kgen_attention_features features; /* as in the forward pass */
    float* dsinks; /* gradient of the sinks, one fp32 per query head; NULL: not written. Requires features.sinks */

    /* From version 5 on. */
    kgen_declared_score score; /* as in the forward pass */
    int32_t head_dim_v; /* of V, O, dO and dV, if it differs from that of Q and K; 0: head_dim */
    int32_t total_k;    /* with cu_seqlens_k: its last entry or more, the rows of K and V in memory; 0: unknown, which
                           excludes kernels that fetch by TMA. Not read without cu_seqlens_k */

    /* From version 9 on. */

    /* The gradient of LSE, with LSE's shape and its own strides in floats; rows are contiguous. It adds P dLSE to the
     * gradient of the scores, and exp(sink - LSE) dLSE to dsinks. Values for rows whose LSE is -infinity (rows that see
     * no key and have no sink) are ignored, even NaN, and rows beyond seqused are not read. With cu_seqlens_q the batch
     * stride is not read. NULL: 0 for all rows. */
    const float* dlse;
    int64_t dlse_batch_stride, dlse_head_stride;

    /* From version 10 on. */

    const void* bias; /* as in the forward pass (kgen_fwd_params) */
    int64_t bias_batch_stride, bias_head_stride, bias_row_stride, bias_column_stride;
    int32_t bias_dtype; /* KGEN_DTYPE_FP32, or that of Q */
    int32_t reserved_4; /* 0 */

    /* The gradient of the bias in fp32, of its shape: dS, which is 0 for hidden keys. The launch first zeroes the
     * elements (b, h, i, j) with i < seqlen_q and j < seqlen_k of each axis that is not repeated. A stride of 0 sums
     * over batch entries, heads or rows, in no fixed order, so that KGEN_FLAG_DETERMINISTIC refuses it; the column
     * stride is not 0. NULL: not written. Requires bias. */
    float* dbias;
    int64_t dbias_batch_stride, dbias_head_stride, dbias_row_stride, dbias_column_stride;

    /* From version 11 on. */

    const uint64_t* rng_state; /* with the same two words as in the forward pass, which give the same mask */
    float p_dropout;           /* as in the forward pass */
    int32_t reserved_5;        /* 0 */
} kgen_bwd_params;

/* A launcher checks the parameters, starts the kernels of one backward pass on `stream` and returns one of the
 * codes. */
typedef int (*kgen_bwd_launcher)(const kgen_bwd_params* params, cudaStream_t stream);

/* Other families of kernels. */

/* Sum of two vectors: out[i] = a[i] + b[i], rounded once to the dtype. Dtypes: fp32, fp16, bf16.
 *
 * Contiguous vectors of any length, each aligned to its element size. If all three start at the same offset from a
 * multiple of 16 bytes, they are moved in 16-byte pieces; otherwise element by element. `out` must not overlap `a` or
 * `b`. */
typedef struct kgen_vector_add_params {
    uint32_t struct_size; /* sizeof(kgen_vector_add_params) */
    uint32_t flags;       /* 0 */

    const void* a;
    const void* b;
    void* out;
    uint64_t count; /* elements */
    int32_t dtype;  /* KGEN_DTYPE_* */
    int32_t reserved; /* 0 */
} kgen_vector_add_params;

enum { KGEN_KIND_VECTOR_ADD = 16 };

/* A launcher checks the parameters, starts its kernel on `stream` and returns one of the codes above. */
typedef int (*kgen_vector_add_launcher)(const kgen_vector_add_params* params, cudaStream_t stream);

/* Picks the best vector_add variant for the current device and the dtype, and launches it. */
int kgen_vector_add(const kgen_vector_add_params* params, cudaStream_t stream);

/* Transposition: out[j][i] = in[i][j], for elements of 1, 2 or 4 bytes of any type.
 *
 * `in` is a contiguous row-major matrix of rows x columns, `out` one of columns x rows. in == out transposes in
 * place and requires rows == columns; the two must not overlap in any other way. Each is aligned to its element size.
 * If the start address and row size of both are multiples of 16 bytes, they are moved in 16-byte pieces; otherwise
 * element by element, which is slower. */
typedef struct kgen_transpose_params {
    uint32_t struct_size; /* sizeof(kgen_transpose_params) */
    uint32_t flags;       /* 0 */

    const void* in;
    void* out;
    uint64_t rows;
    uint64_t columns;
    int32_t element_bytes; /* 1, 2 or 4 */
    int32_t reserved;      /* 0 */
} kgen_transpose_params;

enum { KGEN_KIND_TRANSPOSE = 17 };

/* A launcher checks the parameters, starts its kernel on `stream` and returns one of the codes above. */
typedef int (*kgen_transpose_launcher)(const kgen_transpose_params* params, cudaStream_t stream);

/* Picks the best transpose variant for the current device and the size of an element, and launches it. */
int kgen_transpose(const kgen_transpose_params* params, cudaStream_t stream);

/* Row reduction: sum, max or logsumexp of each row of a matrix, as one fp32 number per row. With rows = 1 it reduces a
 * whole tensor.
 *
 * `in` is a contiguous row-major matrix of rows x columns, in fp32, fp16 or bf16; `out` has `rows` numbers. The
 * order in which a row is summed depends only on its length, so the same row gives the same bits in every run. An
 * empty row gives 0 for sum, and -infinity for max and logsumexp. max ignores NaN; a row of nothing but NaN gives
 * -infinity.
 *
 * Matrices whose start address and row size are multiples of 16 bytes are read in 16-byte pieces; all others element
 * by element. `out` must not overlap `in`. `workspace` holds kgen_reduce_workspace() bytes, for the partial results of
 * rows that several blocks read. */
typedef struct kgen_reduce_params {
    uint32_t struct_size; /* sizeof(kgen_reduce_params) */
    uint32_t flags;       /* 0 */

    const void* in;
    float* out;
    void* workspace; /* 16-byte aligned, need not be initialised and is not preserved; may be NULL if none is needed */
    size_t workspace_bytes;
    uint64_t rows;
    uint64_t columns;
    int32_t dtype;     /* KGEN_DTYPE_* of `in` */
    int32_t operation; /* KGEN_REDUCE_* */
} kgen_reduce_params;

enum { KGEN_KIND_REDUCE_SUM = 18, KGEN_KIND_REDUCE_MAX = 19, KGEN_KIND_REDUCE_LOGSUMEXP = 20 };
enum { KGEN_REDUCE_SUM = 0, KGEN_REDUCE_MAX = 1, KGEN_REDUCE_LOGSUMEXP = 2 };

/* A launcher checks the parameters, starts its kernels on `stream` and returns one of the codes above. It comes with
 * `size_t <name>_workspace(const kgen_reduce_params*)`: the bytes needed at `workspace`, computed from rows, columns
 * and dtype. */
typedef int (*kgen_reduce_launcher)(const kgen_reduce_params* params, cudaStream_t stream);

/* Picks the best variant for the current device, the operation and the dtype, and launches it. */
int kgen_reduce(const kgen_reduce_params* params, cudaStream_t stream);

/* Bytes of workspace that kgen_reduce() needs for this request on the current device; 0 if it would fail. */
size_t kgen_reduce_workspace(const kgen_reduce_params* params);

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

/* RMS normalisation of the rows of a matrix, after a residual is added. Dtypes: fp16, bf16.
 *   h = in + residual, rounded once to the dtype and written to `residual_out`; h = in where there is no residual
 *   out = h / sqrt(mean(h * h) + eps) * weight, in fp32, rounded once to the dtype
 * The mean is over the columns of a row. It is the rounded h that is squared and scaled: what `residual_out` holds, as
 * in vLLM's fused_add_rms_norm. The order of a sum depends only on `columns`, so a row has the same bits in every run.
 * Squares beyond fp32 make the mean infinite and `out` 0; a row of zeros gives NaN if eps is 0.
 *
 * Element (row, column) of `in` is in[row * in_row_stride + column], those of the other matrices likewise. `out` may be
 * `in` and `residual_out` may be `residual`, with the same stride; otherwise each shares no memory with anything else.
 * If columns, starts and strides are multiples of 16 bytes, rows are moved in 16-byte pieces, otherwise element by
 * element. */
typedef struct kgen_rmsnorm_params {
    uint32_t struct_size; /* sizeof(kgen_rmsnorm_params) */
    uint32_t flags;       /* 0 */

    const void* in;
    const void* residual; /* NULL: none */
    const void* weight;   /* `columns` elements */
    void* out;
    void* residual_out; /* NULL exactly if `residual` is */
    uint64_t rows;
    uint64_t columns;
    /* In elements, at least `columns`; not read of a single row. */
    int64_t in_row_stride, residual_row_stride, out_row_stride, residual_out_row_stride;
    float eps;     /* 0 or more */
    int32_t dtype; /* KGEN_DTYPE_* */
} kgen_rmsnorm_params;

enum { KGEN_KIND_RMSNORM = 22 };

/* A launcher: checks the parameters, starts its kernel on `stream`, returns one of the codes above. */
typedef int (*kgen_rmsnorm_launcher)(const kgen_rmsnorm_params* params, cudaStream_t stream);

/* Picks the best rmsnorm variant for the current device and the dtype, and launches it. */
int kgen_rmsnorm(const kgen_rmsnorm_params* params, cudaStream_t stream);

/* Features of a variant beyond kind, head dims and dtype. A request is served by a variant with all the features it
 * uses, and by one with exactly those if the library holds any. A causal variant serves only causal requests;
 * a non-causal variant with windows serves those too. A variant for paged K and V serves only requests with a page
 * table; likewise variants for an FP8 cache, for qv and for new rows. KGEN_FEATURE_PACKGQA does not change results: the
 * queries of all heads that read one key head share a tile, which is faster for few queries (KGEN_PATH_PACKED). Nor
 * do KGEN_FEATURE_LONG and KGEN_FEATURE_M128, second tiles of a kernel, which kgen_fwd() weighs beside the first: the
 * fastest for long sequences, and one of 128 queries. Blocks of a kernel with KGEN_FEATURE_SPLITKV may share the keys
 * of a query tile, num_splits of them, as those of fwd_short may. */
#define KGEN_FEATURE_CAUSAL 1u
#define KGEN_FEATURE_WINDOW 2u
#define KGEN_FEATURE_CHUNK 4u
#define KGEN_FEATURE_SOFTCAP 8u
#define KGEN_FEATURE_ALIBI 16u
#define KGEN_FEATURE_SINKS 32u
#define KGEN_FEATURE_PAGED 64u
#define KGEN_FEATURE_KV_E4M3 128u
#define KGEN_FEATURE_KV_E5M2 256u
#define KGEN_FEATURE_CACHE 512u
#define KGEN_FEATURE_QV 1024u
#define KGEN_FEATURE_PACKGQA 2048u
#define KGEN_FEATURE_PAGE_DESCALE 4096u
#define KGEN_FEATURE_APPEND 8192u
#define KGEN_FEATURE_BIAS 16384u
#define KGEN_FEATURE_DROPOUT 32768u
#define KGEN_FEATURE_LONG 65536u
#define KGEN_FEATURE_M128 131072u
#define KGEN_FEATURE_SPLITKV 262144u

/* One row of a library's table of kernels. Valid only if kgen_abi_version() is KGEN_ABI_VERSION. */
typedef struct kgen_variant {
    const char* name;   /* flash_fwd_hdim128_bf16_causal_sm80 */
    int32_t kind;       /* KGEN_KIND_* */
    int32_t head_dim;   /* of Q and K */
    int32_t head_dim_v; /* of V and O */
    int32_t dtype;      /* KGEN_DTYPE_* */
    uint32_t features;  /* KGEN_FEATURE_* that a request may use; version 2 called bit 0 `causal` */
    int32_t target;     /* compute capability it was generated for, major * 10 + minor */
    int32_t target_max; /* newest compute capability its object loads on */
    kgen_fwd_launcher launch;      /* NULL unless it takes kgen_fwd_params */
    kgen_bwd_launcher launch_bwd;  /* NULL unless it takes kgen_bwd_params; other families launch by name */
    uint64_t score;                /* from version 5 on: its declared score, as a hash of the score's text; 0: none */
    const char* score_name;        /* its name; NULL: none */
} kgen_variant;

/* Picks the path that is predicted to be the fastest on the current device among those that the workspace permits, and
 * launches its kernels. The host reads nothing in device memory. If a kernel cannot read the tensors
 * (KGEN_ERROR_UNSUPPORTED), the next path is taken. */
int kgen_fwd(const kgen_fwd_params* params, cudaStream_t stream);

/* Bytes of workspace for the path that kgen_fwd() would pick with an unlimited workspace; 0 if that path needs none or
 * the request would fail. Pointers to tensors are not used. */
size_t kgen_fwd_workspace(const kgen_fwd_params* params);

/* Writes split_counts, `batch` numbers in device memory: the number of splits for each sequence, computed from
 * cu_seqlens and seqused when the launch runs. Call it once per forward pass of a model; each layer then calls
 * kgen_fwd() with these counts and otherwise the same parameters, and launches no scheduler. Tensors, strides and
 * workspace are not used. Always one launch, for any lengths. KGEN_ERROR_NO_VARIANT if the library could not split
 * the request; no kernel reads counts then. */
int kgen_fwd_metadata(const kgen_fwd_params* params, cudaStream_t stream);

/* Paths of kgen_fwd(). */
enum {
    KGEN_PATH_DENSE = 0,    /* fwd; a candidate for each tile */
    KGEN_PATH_SHORT = 1,    /* fwd_short; with several splits also fwd_combine */
    KGEN_PATH_SPLIT = 2,    /* fwd_split, fwd_combine; with one split, or merged by last blocks, fwd_split alone */
    KGEN_PATH_SCHEDULED = 3, /* prepare_scheduler, then the same: sequences get splits according to their lengths */
    KGEN_PATH_MIXED = 4,    /* fwd for sequences with many queries, fwd_split for the others; paged K and V only */
    KGEN_PATH_PACKED = 5    /* fwd with KGEN_FEATURE_PACKGQA */
};

/* A path that kgen_fwd() considers, with its predicted time: launch + tile + max(chain, step, memory) of the kernel
 * that computes attention, plus the time of its helpers. Times are 0 if the library holds no kernel for the path or
 * nothing can be predicted. */
typedef struct kgen_candidate {
    int32_t path;           /* KGEN_PATH_* */
    int32_t num_splits;     /* most splits of a sequence; 1: not split */
    const char* variant;    /* the kernel that computes attention; NULL: the library holds none for this device */
    const char* excluded;   /* the reason why the path cannot be taken; NULL if it can */
    size_t workspace_bytes; /* required by the path */
    double predicted_ns;    /* all kernels of the path */
    double launch_ns;       /* launching the kernel that computes attention */
    double tile_ns;         /* its query tiles, without their steps over the keys */
    double chain_ns;        /* latency bound: the steps of one resident block slot, in sequence */
    double step_ns;         /* throughput bound: a multiprocessor's units, with the steps of all its blocks */
    double memory_ns;       /* bandwidth bound: device memory or L2, with all bytes */
    double combine_ns;      /* merging partial results, by fwd_combine or by the last block of each row tile */
    double scheduler_ns;    /* prepare_scheduler */
    int32_t by_last_block;  /* 1: partial results are merged by the last block of each row tile; else 0 */
    int32_t reserved;       /* 0 */
} kgen_candidate;

/* Large enough for every candidate of this version. */
#define KGEN_MOST_CANDIDATES 48

/* The choice of kgen_fwd() and its candidates. The caller fills in the first four fields. */
typedef struct kgen_choice {
    uint32_t struct_size;       /* sizeof(kgen_choice) */
    uint32_t candidate_size;    /* sizeof(kgen_candidate) */
    kgen_candidate* candidates; /* receives the candidates; may be NULL if `capacity` is 0 */
    int32_t capacity;           /* number of candidates that fit there */
    int32_t count;              /* out: number of candidates; those beyond `capacity` are not written */
    int32_t chosen;             /* out: index of the candidate that kgen_fwd() takes, -1 if it fails */
    int32_t multiprocessors;    /* out: multiprocessors of the current device, as used for the prediction; 0: unknown */
} kgen_choice;

/* Writes to `choice` what kgen_fwd(params) would choose with the workspace given in `params`, without launching
 * anything. Returns KGEN_SUCCESS, or the error that kgen_fwd() would return before any launch; that a kernel cannot
 * read the tensors is only found at launch. */
int kgen_explain_choice(const kgen_fwd_params* params, kgen_choice* choice);

/* Picks the best backward variant for the current device and the request, and launches its kernels. */
int kgen_bwd(const kgen_bwd_params* params, cudaStream_t stream);

/* Bytes of workspace that kgen_bwd() needs for this request on the current device; 0 if it would fail. */
size_t kgen_bwd_workspace(const kgen_bwd_params* params);

/* The variants of this library; `*count` receives their number. Sorted by name, constant for the process. */
const kgen_variant* kgen_variants(size_t* count);

/* The message of the calling thread's last failed call: one line, valid until that thread's next failure. */
const char* kgen_last_error(void);

/* KGEN_ABI_VERSION of the library. */
uint32_t kgen_abi_version(void);

#ifdef __cplusplus
}
#endif

#endif /* KGEN_H */
