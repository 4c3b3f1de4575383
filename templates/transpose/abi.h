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
