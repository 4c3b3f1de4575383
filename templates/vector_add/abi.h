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
