// transpose_b16_sm80
//
// Transposition of a matrix of 16-bit elements, out of place or in place, for compute capability 8.0 and newer.
//
// A block of 256 threads moves a tile of 128 x 128 elements through shared memory, so that rows are read and written
// in runs of 256 bytes. Shared memory holds 32-bit words of 2 elements of one column: each thread reads 2 rows
// and transposes blocks of 2 x 2 elements in its registers. The 16-byte chunks of a column are permuted
// (`place`), so that neither the words of a store nor the pieces of a load share a bank. Blocks go down 16 tiles
// before they go on to the next column of tiles: concurrent blocks then cover a region that is about square, and so
// access long runs of device memory for both reads and writes.
//
// A matrix whose rows or columns are not multiples of 16 bytes is moved in aligned words, regardless of row boundaries:
// a warp takes 128 bytes of a row and shifts them into place in its registers. Elements at the ends of such a part,
// which share a word with elements of other parts, are moved one by one, those of 16.0 rows at once; so are tiles
// that the matrix does not fill.
//
// In place, a block takes two tiles that trade places, or one on the diagonal.
//
// Made by kgen 0.1.0 from templates/transpose/transpose.cu.tera; edit that, not this. To compile this file alone:
//   nvcc -O3 -std=c++17 -gencode "arch=compute_80,code=[sm_80,compute_80]" -Iinclude -c transpose_b16_sm80.cu

#include "kgen.h"
#include "kgen/atomics.cuh"
#include "kgen/bytes.cuh"
#include "kgen/contiguous.cuh"
#include "kgen/elements.cuh"
#include "kgen/floats.cuh"
#include "kgen/global.cuh"
#include "kgen/launch.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/sync.cuh"
#include "kgen/types.cuh"

namespace {

using namespace kgen;

using element = uint16_t;

constexpr int THREADS = 256;
constexpr int MIN_BLOCKS_PER_SM = 3;
constexpr int MIN_BLOCKS_IN_PLACE = (MIN_BLOCKS_PER_SM + 1) / 2;  // each has two tiles
// Words in flight and their destinations take more registers than pieces.
constexpr int MIN_BLOCKS_IN_WORDS = MIN_BLOCKS_PER_SM < 3 ? MIN_BLOCKS_PER_SM : 3;
constexpr int SIDE = 128;                          // elements of a tile's row and column
constexpr int WORD_ELEMENTS = 4 / sizeof(element);        // of one column in a word
constexpr int PIECE_ELEMENTS = 16 / sizeof(element);      // of one row in a piece
constexpr int ROW_PIECES = SIDE / PIECE_ELEMENTS;         // of a tile's row
constexpr int GROUPS = SIDE / WORD_ELEMENTS;              // of rows that share words
constexpr int CHUNKS = GROUPS / 4;                        // of 16 bytes, of a tile's column
constexpr int UNITS = ROW_PIECES * GROUPS / THREADS;      // per thread: a piece of each row of a group
constexpr int OUT_PIECES = SIDE * CHUNKS / THREADS;       // per thread
constexpr int WARPS = THREADS / 32;
constexpr int LOADS = 16;                                 // elements in flight per thread, if they are moved one by one
constexpr uint32_t GROUP_ROWS = 16;                    // of tiles
constexpr uint32_t TILE_BYTES = 32768;
static_assert(TILE_BYTES == SIDE * GROUPS * 4 && GROUPS % 32 == 0, "a tile as the plan knows it");
static_assert(ROW_PIECES % 8 == 0 && UNITS * THREADS == ROW_PIECES * GROUPS, "units fill a tile");

struct work {
    const element* in;
    element* out;
    uint64_t rows, columns;
    uint32_t row_tiles, column_tiles;
    uint32_t group_rows;  // of tiles: GROUP_ROWS, or all if there are fewer
};

// First row and column of a tile of the input.
struct tile {
    uint64_t row, column;
};

// Byte offset in a tile's shared memory of word `group` of column `column`: the chunks of a column are permuted by the
// piece that the column is in.
KGEN_DEVICE uint32_t place(uint32_t column, uint32_t group) {
    const uint32_t chunk = group / 4 ^ column / PIECE_ELEMENTS % 8;
    return (column * GROUPS + chunk * 4 + group % 4) * 4;
}

// Transposes a block of elements: word r of `words` holds WORD_ELEMENTS elements of row r, and afterwards of column r.
KGEN_DEVICE void turn(uint32_t (&words)[WORD_ELEMENTS]) {
    const uint32_t a = words[0], b = words[1];
    words[0] = choose_bytes<0x5410>(a, b);
    words[1] = choose_bytes<0x7632>(a, b);
}

// Loads a tile into shared memory, in words of a column.
KGEN_DEVICE void fetch_pieces(const work& w, tile t, uint32_t shared) {
    // A warp reads eight adjacent pieces in each row of four groups.
    const uint32_t warp = thread_index() / 32, lane = lane_index();
    uint32_t read[UNITS][WORD_ELEMENTS][4];
    KGEN_UNROLL
    for (int unit = 0; unit < UNITS; ++unit) {
        const uint32_t part = warp + unit * WARPS;
        const uint32_t piece = part % (ROW_PIECES / 8) * 8 + lane % 8, group = part / (ROW_PIECES / 8) * 4 + lane / 8;
        const uint64_t column = t.column + piece * PIECE_ELEMENTS;
        KGEN_UNROLL
        for (int r = 0; r < WORD_ELEMENTS; ++r) {
            const uint64_t row = t.row + group * WORD_ELEMENTS + r;
            words4 value = {0, 0, 0, 0};
            if (row < w.rows && column < w.columns)
                value = load_written(reinterpret_cast<const words4*>(w.in + row * w.columns + column));
            uint32_t(&to)[4] = read[unit][r];
            to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
        }
    }
    KGEN_UNROLL
    for (int unit = 0; unit < UNITS; ++unit) {
        const uint32_t part = warp + unit * WARPS;
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

// Writes a tile from shared memory, where it is transposed.
KGEN_DEVICE void write_pieces(const work& w, tile t, uint32_t shared) {
    KGEN_UNROLL
    for (int i = 0; i < OUT_PIECES; ++i) {
        const uint32_t index = thread_index() + i * THREADS;
        const uint32_t column = index / CHUNKS, chunk = index % CHUNKS;
        const uint64_t out_row = t.column + column, out_column = t.row + chunk * PIECE_ELEMENTS;
        if (out_row >= w.columns || out_column >= w.rows) continue;
        store_global(static_cast<void*>(w.out + out_row * w.rows + out_column),
                     load_shared(shared + place(column, chunk * 4)));
    }
}

// Byte offset of the same words if a warp moves 32 words or elements of a row: 32 words of a column are rotated by the
// column's number, so that no two words share a bank within a column, within 32 adjacent columns, or within every
// WORD_ELEMENTS-th column.
KGEN_DEVICE uint32_t place_turned(uint32_t column, uint32_t group) {
    const uint32_t turned = (group + column / WORD_ELEMENTS + column % WORD_ELEMENTS * (32 / WORD_ELEMENTS)) % 32;
    return (column * GROUPS + group / 32 * 32 + turned) * 4;
}

// fetch_pieces(), element by element. A warp reads 32 adjacent elements in each row of a group.
KGEN_DEVICE void fetch_elements(const work& w, tile t, uint32_t shared) {
    constexpr int AT_ONCE = LOADS / WORD_ELEMENTS;  // groups
    constexpr uint32_t PARTS = SIDE / 32;           // of a row
    for (uint32_t first = thread_index() / 32; first < PARTS * GROUPS; first += AT_ONCE * WARPS) {
        uint32_t words[AT_ONCE];
        KGEN_UNROLL
        for (int i = 0; i < AT_ONCE; ++i) {
            const uint32_t part = first + i * WARPS;
            if (part >= PARTS * GROUPS) break;
            const uint64_t column = t.column + part % PARTS * 32 + lane_index(),
                row = t.row + part / PARTS * WORD_ELEMENTS;
            words[i] = 0;
            KGEN_UNROLL
            for (int e = 0; e < WORD_ELEMENTS; ++e) {
                if (column >= w.columns || row + e >= w.rows) continue;
                words[i] |= static_cast<uint32_t>(load_element(w.in + (row + e) * w.columns + column)) <<
                            e * 8 * static_cast<int>(sizeof(element));
            }
        }
        KGEN_UNROLL
        for (int i = 0; i < AT_ONCE; ++i) {
            const uint32_t part = first + i * WARPS;
            if (part >= PARTS * GROUPS) break;
            store_shared(shared + place_turned(part % PARTS * 32 + lane_index(), part / PARTS), words[i]);
        }
    }
}

// write_pieces(), element by element. A warp writes 32 adjacent elements.
KGEN_DEVICE void write_elements(const work& w, tile t, uint32_t shared) {
    constexpr uint32_t PARTS = SIDE / 32;  // of a row
    for (uint32_t first = thread_index() / 32; first < PARTS * SIDE; first += LOADS * WARPS) {
        KGEN_UNROLL
        for (int i = 0; i < LOADS; ++i) {
            const uint32_t part = first + i * WARPS;
            const uint32_t column = part / PARTS, row = part % PARTS * 32 + lane_index();
            const uint64_t out_row = t.column + column, out_column = t.row + row;
            if (part >= PARTS * SIDE || out_row >= w.columns || out_column >= w.rows) continue;
            const uint32_t word = load_shared_word(shared + place_turned(column, row / WORD_ELEMENTS));
            store_element(w.out + out_row * w.rows + out_column,
                          static_cast<element>(word >> row % WORD_ELEMENTS * 8 * static_cast<int>(sizeof(element))));
        }
    }
}

constexpr int ELEMENT_BITS = 8 * sizeof(element);
constexpr int PART_ELEMENTS = 32 * WORD_ELEMENTS;     // of a row: a word per lane
constexpr uint32_t PARTS = SIDE / PART_ELEMENTS;      // of a tile's row
constexpr int UNIT_ROWS = 16;                         // rows whose parts a warp moves at a time
constexpr int END_ROWS = 32 / WORD_ELEMENTS;          // rows whose ends it moves at a time, an element per lane
constexpr int END_ROUNDS = UNIT_ROWS / END_ROWS;
constexpr uint32_t UNITS_OF_WORDS = PARTS * (SIDE / UNIT_ROWS);  // of a tile
static_assert(PARTS * PART_ELEMENTS == SIDE && UNITS_OF_WORDS * UNIT_ROWS == PARTS * SIDE, "units fill a tile");

// A part of a row begins `skip` elements after a multiple of 4 bytes and contains 31 whole aligned words. The part's
// first elements are the rest of the word before these, and its last `skip` elements are the start of the word after
// them: WORD_ELEMENTS together, the part's ends. They are numbered as if they formed a word 0 that follows word 31.
KGEN_DEVICE uint32_t elements_skipped(const element* part) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(part) % 4 / sizeof(element));
}

// The place in the part of its end number `end`.
KGEN_DEVICE uint32_t place_of_end(uint32_t end, uint32_t skip) {
    return end < skip ? end + PART_ELEMENTS - skip : end - skip;
}

// The word that begins `elements` elements after the start of `low`, which `high` follows.
KGEN_DEVICE uint32_t word_between(uint32_t low, uint32_t high, uint32_t elements) {
    return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> elements * ELEMENT_BITS);
}

KGEN_DEVICE uint32_t from_lane(uint32_t value, uint32_t lane) {
    return shuffle_xor(value, static_cast<int>(lane_index() ^ lane));
}

// fetch_pieces() in aligned words, for a tile whose rows end inside the matrix. No byte outside the tile is read: in
// place, other blocks write there.
KGEN_DEVICE void fetch_words(const work& w, tile t, uint32_t shared) {
    const uint32_t lane = lane_index(), end = lane % WORD_ELEMENTS;
    for (uint32_t unit = thread_index() / 32; unit < UNITS_OF_WORDS; unit += WARPS) {
        const uint32_t part = unit % PARTS, first = unit / PARTS * UNIT_ROWS;
        const uint64_t row = t.row + first;
        const element* from = w.in + row * w.columns + t.column + part * PART_ELEMENTS;
        uint32_t words[UNIT_ROWS], ends[END_ROUNDS];
        KGEN_UNROLL
        for (int i = 0; i < UNIT_ROWS; ++i) {
            const element* of_row = from + i * w.columns;
            words[i] = 0;
            if (lane != 0 && row + i < w.rows)
                words[i] = load_written(reinterpret_cast<const uint32_t*>(of_row - elements_skipped(of_row)) + lane);
        }
        KGEN_UNROLL
        for (int round = 0; round < END_ROUNDS; ++round) {
            const uint32_t i = round * END_ROWS + lane / WORD_ELEMENTS;
            const element* of_row = from + i * w.columns;
            ends[round] = 0;
            if (row + i >= w.rows) continue;
            ends[round] = static_cast<uint32_t>(load_element(of_row + place_of_end(end, elements_skipped(of_row)))) <<
                          end * ELEMENT_BITS;
        }
        KGEN_UNROLL
        for (int round = 0; round < END_ROUNDS; ++round) {
            KGEN_UNROLL
            for (int step = 1; step < WORD_ELEMENTS; step *= 2) ends[round] |= shuffle_xor(ends[round], step);
        }
        KGEN_UNROLL
        for (int i = 0; i < UNIT_ROWS; ++i) {
            const uint32_t both_ends = from_lane(ends[i / END_ROWS], i % END_ROWS * WORD_ELEMENTS);
            if (lane == 0) words[i] = both_ends;
            words[i] = word_between(words[i], from_lane(words[i], (lane + 1) % 32),
                                    elements_skipped(from + i * w.columns));
        }
        KGEN_UNROLL
        for (int i = 0; i < UNIT_ROWS; i += WORD_ELEMENTS) {
            uint32_t block[WORD_ELEMENTS];
            KGEN_UNROLL
            for (int r = 0; r < WORD_ELEMENTS; ++r) block[r] = words[i + r];
            turn(block);
            KGEN_UNROLL
            for (int e = 0; e < WORD_ELEMENTS; ++e) {
                store_shared(shared + place_turned(part * PART_ELEMENTS + lane * WORD_ELEMENTS + e,
                                                   (first + i) / WORD_ELEMENTS), block[e]);
            }
        }
    }
}

// write_pieces() in aligned words, for a tile whose columns end inside the matrix.
KGEN_DEVICE void write_words(const work& w, tile t, uint32_t shared) {
    const uint32_t lane = lane_index(), end = lane % WORD_ELEMENTS;
    for (uint32_t unit = thread_index() / 32; unit < UNITS_OF_WORDS; unit += WARPS) {
        const uint32_t part = unit % PARTS, first = unit / PARTS * UNIT_ROWS;
        const uint64_t out_row = t.column + first;
        element* to = w.out + out_row * w.rows + t.row + part * PART_ELEMENTS;
        KGEN_UNROLL
        for (int i = 0; i < UNIT_ROWS; ++i) {
            if (out_row + i >= w.columns) break;
            element* of_row = to + i * w.rows;
            const uint32_t skip = elements_skipped(of_row),
                word = load_shared_word(shared + place_turned(first + i, part * 32 + lane));
            const uint32_t shifted = word_between(from_lane(word, (lane + 31) % 32), word, WORD_ELEMENTS - skip);
            if (lane != 0) store_element(reinterpret_cast<uint32_t*>(of_row - skip) + lane, shifted);
        }
        KGEN_UNROLL
        for (int round = 0; round < END_ROUNDS; ++round) {
            const uint32_t i = round * END_ROWS + lane / WORD_ELEMENTS;
            if (out_row + i >= w.columns) continue;
            element* of_row = to + i * w.rows;
            const uint32_t at = place_of_end(end, elements_skipped(of_row));
            const uint32_t word = load_shared_word(shared + place_turned(first + i, part * 32 + at / WORD_ELEMENTS));
            store_element(of_row + at, static_cast<element>(word >> at % WORD_ELEMENTS * ELEMENT_BITS));
        }
    }
}

template <bool PIECES>
KGEN_DEVICE void fetch(const work& w, tile t, uint32_t shared) {
    if constexpr (PIECES) {
        fetch_pieces(w, t, shared);
    } else {
        if (t.column + SIDE <= w.columns) return fetch_words(w, t, shared);
        fetch_elements(w, t, shared);
    }
}

template <bool PIECES>
KGEN_DEVICE void write(const work& w, tile t, uint32_t shared) {
    if constexpr (PIECES) {
        write_pieces(w, t, shared);
    } else {
        if (t.row + SIDE <= w.rows) return write_words(w, t, shared);
        write_elements(w, t, shared);
    }
}

template <bool PIECES>
KGEN_KERNEL(THREADS, PIECES ? MIN_BLOCKS_PER_SM : MIN_BLOCKS_IN_WORDS) transpose(KGEN_PARAMETER work w) {
    // The last group may have fewer rows of tiles.
    const uint32_t group = block_index() / (w.group_rows * w.column_tiles),
        in_group = block_index() % (w.group_rows * w.column_tiles);
    const uint32_t first_row = group * w.group_rows, left = w.row_tiles - first_row,
        height = left < w.group_rows ? left : w.group_rows;
    const tile t = {static_cast<uint64_t>(first_row + in_group % height) * SIDE,
                    static_cast<uint64_t>(in_group / height) * SIDE};
    fetch<PIECES>(w, t, shared_base());
    block_sync();  // the tile is visible
    write<PIECES>(w, t, shared_base());
}

// A block takes a tile with row <= column and the tile that it trades places with. Rows r and row_tiles - 1 - r of this
// triangle together have row_tiles + 1 tiles (row_tiles if that is odd; row r then goes with row_tiles - r): they are
// counted as one row of a rectangle.
template <bool PIECES>
KGEN_KERNEL(THREADS, PIECES ? MIN_BLOCKS_IN_PLACE : MIN_BLOCKS_IN_WORDS) transpose_in_place(KGEN_PARAMETER work w) {
    const uint32_t odd = w.row_tiles % 2, width = w.row_tiles + 1 - odd;
    const uint32_t r = block_index() / width, c = block_index() % width;
    const bool first = c + odd > r;
    const uint32_t row = first ? r : w.row_tiles - 1 + odd - r, column = first ? c - 1 + odd : w.row_tiles - 1 - c;
    const tile upper = {static_cast<uint64_t>(row) * SIDE, static_cast<uint64_t>(column) * SIDE},
        lower = {upper.column, upper.row};
    const bool on_diagonal = column == row;
    const uint32_t second = shared_base() + TILE_BYTES;
    fetch<PIECES>(w, upper, shared_base());
    if (!on_diagonal) fetch<PIECES>(w, lower, second);
    block_sync();  // both tiles have been read
    write<PIECES>(w, upper, shared_base());
    if (!on_diagonal) write<PIECES>(w, lower, second);
}

}  // namespace

extern "C" int transpose_b16_sm80(const kgen_transpose_params* given, cudaStream_t stream) {
    constexpr const char* self = "transpose_b16_sm80";
    kgen_transpose_params params;
    if (const int code = copy_params(given, self, "kgen_transpose_params", params)) return code;
    if (params.element_bytes != sizeof(element)) {
        return fail(KGEN_ERROR_MISMATCH, "%s: params.element_bytes is %d; this kernel moves elements of %zu", self,
                    params.element_bytes, sizeof(element));
    }
    const uint64_t rows = params.rows, columns = params.columns;
    if (rows == 0 || columns == 0) return KGEN_SUCCESS;
    if (rows > INT64_MAX / sizeof(element) / columns)
        return fail(KGEN_ERROR_INVALID_VALUE, "%s: rows x columns is more than any memory holds", self);
    const uint64_t bytes = rows * columns * sizeof(element);
    const span in = {"in", params.in, bytes}, out = {"out", params.out, bytes};
    if (const int code = check_span(in, sizeof(element), self)) return code;
    if (const int code = check_span(out, sizeof(element), self)) return code;
    const uint64_t row_tiles = (rows + SIDE - 1) / SIDE, column_tiles = (columns + SIDE - 1) / SIDE;
    const bool pieces_in = offset_in_piece(params.in) == 0 && columns % PIECE_ELEMENTS == 0;
    const bool pieces_out = offset_in_piece(params.out) == 0 && rows % PIECE_ELEMENTS == 0;
    const bool pieces = pieces_in && pieces_out;
    if (params.in == params.out) {
        if (rows != columns) {
            return fail(KGEN_ERROR_INVALID_VALUE,
                        "%s: out overlaps in; in place only a square matrix is transposed, this one has more %s", self,
                        rows > columns ? "rows" : "columns");
        }
        const uint64_t blocks = row_tiles * (row_tiles + 1) / 2;
        if (const int code = check_grid(blocks, self)) return code;
        const work w = {static_cast<const element*>(params.in), static_cast<element*>(params.out), rows, columns,
                        static_cast<uint32_t>(row_tiles), 0, 0};
        return launch(pieces ? transpose_in_place<true> : transpose_in_place<false>, self,
                      static_cast<uint32_t>(blocks), THREADS, 2 * TILE_BYTES, w, stream);
    }
    if (const int code = check_apart(in, out, self)) return code;
    // Each is below 2^63 / SIDE and their product, the tiles of what memory holds, below 2^64.
    const uint64_t blocks = row_tiles * column_tiles;
    if (const int code = check_grid(blocks, self)) return code;
    const work w = {static_cast<const element*>(params.in), static_cast<element*>(params.out), rows, columns,
                    static_cast<uint32_t>(row_tiles), static_cast<uint32_t>(column_tiles),
                    row_tiles < GROUP_ROWS ? static_cast<uint32_t>(row_tiles) : GROUP_ROWS};
    return launch(pieces ? transpose<true> : transpose<false>, self, static_cast<uint32_t>(blocks), THREADS, TILE_BYTES,
                  w, stream);
}
