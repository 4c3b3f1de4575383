// transpose_b16_sm80
//
// Transposition of a matrix of 16-bit elements, out of place or in place, for compute capability 8.0 and newer.
//
// A block of 256 threads moves a tile of 128 x 128 elements through shared memory, so that rows are read and written in
// runs of 256 bytes. Shared memory holds 32-bit words of 2 elements of one column: each thread reads 2 rows and transposes
// blocks of 2 x 2 elements in its registers. The 16-byte chunks of a column are permuted (`place`), so that neither the
// words of a store nor the pieces of a load share a bank.
//
// In place a block takes two tiles that change places, or one on the diagonal.
//
// Made by kgen 0.1.0 from templates/transpose/transpose.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode "arch=compute_80,code=[sm_80,compute_80]" -Iinclude -c transpose_b16_sm80.cu

#include "kgen.h"
#include "kgen/atomics.cuh"
#include "kgen/bytes.cuh"
#include "kgen/contiguous.cuh"
#include "kgen/elements.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"

namespace {

using namespace kgen;

using element = uint16_t;

constexpr int THREADS = 256;
constexpr int MIN_BLOCKS_PER_SM = 3;
constexpr int SIDE = 128;                          // elements of a tile's row and column
constexpr int WORD_ELEMENTS = 4 / sizeof(element);        // of one column in a word
constexpr int PIECE_ELEMENTS = 16 / sizeof(element);      // of one row in a piece
constexpr int ROW_PIECES = SIDE / PIECE_ELEMENTS;         // of a tile's row
constexpr int GROUPS = SIDE / WORD_ELEMENTS;              // of rows that share words
constexpr int CHUNKS = GROUPS / 4;                        // of 16 bytes, of a tile's column
constexpr int UNITS = ROW_PIECES * GROUPS / THREADS;      // per thread: a piece of each row of a group
constexpr int OUT_PIECES = SIDE * CHUNKS / THREADS;       // per thread
constexpr uint32_t TILE_BYTES = 32768;
static_assert(TILE_BYTES == SIDE * GROUPS * 4 && ROW_PIECES % 8 == 0 && UNITS * THREADS == ROW_PIECES * GROUPS, "units fill a tile");

struct work {
    const element* in;
    element* out;
    uint64_t rows, columns;
    uint64_t column_tiles;
};

// First row and column of a tile of the input.
struct tile {
    uint64_t row, column;
};

// Byte offset in a tile's shared memory of word `group` of column `column`: the chunks of a column are permuted by the piece that
// the column is in.
KGEN_DEVICE uint32_t place(uint32_t column, uint32_t group) {
    const uint32_t chunk = group / 4 ^ column / PIECE_ELEMENTS % 8;
    return (column * GROUPS + chunk * 4 + group % 4) * 4;
}

// Turns a block of elements around: word r of `words` holds WORD_ELEMENTS elements of row r, and then of column r.
KGEN_DEVICE void turn(uint32_t (&words)[WORD_ELEMENTS]) {
    const uint32_t a = words[0], b = words[1];
    words[0] = choose_bytes<0x5410>(a, b);
    words[1] = choose_bytes<0x7632>(a, b);
}

// A piece of a row, element by element; those beyond the row are zeros.
KGEN_DEVICE void load_elements(const element* row, uint64_t column, uint64_t columns, uint32_t (&piece)[4]) {
    KGEN_UNROLL
    for (int word = 0; word < 4; ++word) {
        piece[word] = 0;
        KGEN_UNROLL
        for (int e = 0; e < WORD_ELEMENTS; ++e) {
            const uint64_t at = column + word * WORD_ELEMENTS + e;
            if (at < columns) piece[word] |= static_cast<uint32_t>(load_written(row + at)) << e * 8 * static_cast<int>(sizeof(element));
        }
    }
}

// Brings a tile to shared memory, in words of a column.
template <bool VECTOR>
KGEN_DEVICE void fetch(const work& w, tile t, uint32_t shared) {
    // A warp reads eight pieces side by side in each row of four groups.
    const uint32_t warp = thread_index() / 32, lane = lane_index();
    uint32_t read[UNITS][WORD_ELEMENTS][4];
    KGEN_UNROLL
    for (int unit = 0; unit < UNITS; ++unit) {
        const uint32_t part = warp + unit * (THREADS / 32);
        const uint32_t piece = part % (ROW_PIECES / 8) * 8 + lane % 8, group = part / (ROW_PIECES / 8) * 4 + lane / 8;
        const uint64_t column = t.column + piece * PIECE_ELEMENTS;
        KGEN_UNROLL
        for (int r = 0; r < WORD_ELEMENTS; ++r) {
            const uint64_t row = t.row + group * WORD_ELEMENTS + r;
            words4 value = {0, 0, 0, 0};
            uint32_t(&to)[4] = read[unit][r];
            if (row < w.rows && column < w.columns) {
                const element* from = w.in + row * w.columns;
                if constexpr (VECTOR) {
                    value = load_written(reinterpret_cast<const words4*>(from + column));
                } else {
                    load_elements(from, column, w.columns, to);
                    continue;
                }
            }
            to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
        }
    }
    KGEN_UNROLL
    for (int unit = 0; unit < UNITS; ++unit) {
        const uint32_t part = warp + unit * (THREADS / 32);
        const uint32_t piece = part % (ROW_PIECES / 8) * 8 + lane % 8, group = part / (ROW_PIECES / 8) * 4 + lane / 8;
        KGEN_UNROLL
        for (int word = 0; word < 4; ++word) {
            uint32_t block[WORD_ELEMENTS];
            KGEN_UNROLL
            for (int r = 0; r < WORD_ELEMENTS; ++r) block[r] = read[unit][r][word];
            turn(block);
            KGEN_UNROLL
            for (int e = 0; e < WORD_ELEMENTS; ++e) {
                store_shared(shared + place(piece * PIECE_ELEMENTS + word * WORD_ELEMENTS + e, group), block[e]);
            }
        }
    }
}

// Writes a tile, which lies transposed in shared memory.
template <bool VECTOR>
KGEN_DEVICE void write(const work& w, tile t, uint32_t shared) {
    KGEN_UNROLL
    for (int i = 0; i < OUT_PIECES; ++i) {
        const uint32_t index = thread_index() + i * THREADS;
        const uint32_t column = index / CHUNKS, chunk = index % CHUNKS;
        const uint64_t out_row = t.column + column, out_column = t.row + chunk * PIECE_ELEMENTS;
        if (out_row >= w.columns || out_column >= w.rows) continue;
        const words4 piece = load_shared(shared + place(column, chunk * 4));
        element* to = w.out + out_row * w.rows + out_column;
        if constexpr (VECTOR) {
            store_global(static_cast<void*>(to), piece);
        } else {
            const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
            KGEN_UNROLL
            for (int e = 0; e < PIECE_ELEMENTS; ++e) {
                if (out_column + e >= w.rows) continue;
                store_element(to + e, static_cast<element>(words[e / WORD_ELEMENTS] >> e % WORD_ELEMENTS * 8 * static_cast<int>(sizeof(element))));
            }
        }
    }
}

template <bool VECTOR_IN, bool VECTOR_OUT>
KGEN_KERNEL(THREADS, MIN_BLOCKS_PER_SM) transpose(KGEN_PARAMETER work w) {
    const tile t = {block_index() / w.column_tiles * SIDE, block_index() % w.column_tiles * SIDE};
    fetch<VECTOR_IN>(w, t, shared_base());
    block_sync();  // the tile is there
    write<VECTOR_OUT>(w, t, shared_base());
}

// The blocks below the diagonal have nothing to do: those above it take their tiles too.
template <bool VECTOR>
KGEN_KERNEL(THREADS, 1) transpose_in_place(KGEN_PARAMETER work w) {
    const uint64_t row = block_index() / w.column_tiles, column = block_index() % w.column_tiles;
    if (column < row) return;
    const bool on_diagonal = column == row;
    const tile upper = {row * SIDE, column * SIDE}, lower = {upper.column, upper.row};
    fetch<VECTOR>(w, upper, shared_base());
    if (!on_diagonal) fetch<VECTOR>(w, lower, shared_base() + TILE_BYTES);
    block_sync();  // both tiles have been read
    write<VECTOR>(w, upper, shared_base());
    if (!on_diagonal) write<VECTOR>(w, lower, shared_base() + TILE_BYTES);
}

}  // namespace

extern "C" int transpose_b16_sm80(const kgen_transpose_params* given, cudaStream_t stream) {
    constexpr const char* self = "transpose_b16_sm80";
    kgen_transpose_params params;
    if (const int code = copy_params(given, self, "kgen_transpose_params", params)) return code;
    if (params.element_bytes != sizeof(element)) {
        return fail(KGEN_ERROR_MISMATCH, "%s: params.element_bytes is %d; this kernel moves elements of %zu", self, params.element_bytes, sizeof(element));
    }
    const uint64_t rows = params.rows, columns = params.columns;
    if (rows == 0 || columns == 0) return KGEN_SUCCESS;
    if (rows > INT64_MAX / sizeof(element) / columns) return fail(KGEN_ERROR_INVALID_VALUE, "%s: rows x columns is more than any memory holds", self);
    const uint64_t bytes = rows * columns * sizeof(element);
    const span in = {"in", params.in, bytes}, out = {"out", params.out, bytes};
    if (const int code = check_span(in, sizeof(element), self)) return code;
    if (const int code = check_span(out, sizeof(element), self)) return code;
    work w = {static_cast<const element*>(params.in), static_cast<element*>(params.out), rows, columns, (columns + SIDE - 1) / SIDE};
    const uint64_t row_tiles = (rows + SIDE - 1) / SIDE;
    const bool vector_in = offset_in_piece(params.in) == 0 && columns % PIECE_ELEMENTS == 0;
    const bool vector_out = offset_in_piece(params.out) == 0 && rows % PIECE_ELEMENTS == 0;
    if (params.in == params.out) {
        if (rows != columns) {
            return fail(KGEN_ERROR_INVALID_VALUE, "%s: out overlaps in; in place only a square matrix is transposed, this one has more %s", self,
                        rows > columns ? "rows" : "columns");
        }
        const uint64_t blocks = row_tiles * row_tiles;
        if (const int code = check_grid(blocks, self)) return code;
        const auto kernel = vector_in ? transpose_in_place<true> : transpose_in_place<false>;
        return launch(kernel, self, static_cast<uint32_t>(blocks), THREADS, 2 * TILE_BYTES, w, stream);
    }
    if (const int code = check_apart(in, out, self)) return code;
    const uint64_t blocks = row_tiles * w.column_tiles;
    if (const int code = check_grid(blocks, self)) return code;
    const auto kernel = vector_in ? (vector_out ? transpose<true, true> : transpose<true, false>) : (vector_out ? transpose<false, true> : transpose<false, false>);
    return launch(kernel, self, static_cast<uint32_t>(blocks), THREADS, TILE_BYTES, w, stream);
}
