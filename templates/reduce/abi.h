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
