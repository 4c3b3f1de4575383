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
