// Part of wgmma_primitives.cpp: stmatrix, descriptors, transposed bytes and stored rows.
#pragma once

// Value of an element of matrix `matrix`, and the permuted position of its row in a tile of 32 rows of 32
// bytes.
uint32_t element_of(uint32_t matrix, uint32_t row, uint32_t column) { return matrix * 1000 + row * 10 + column; }
uint32_t row_place(uint32_t matrix, uint32_t row) { return emulator::SHARED_BASE + (row * 4 + (matrix ^ row % 4)) * 32; }

// Loads the lane's fragments of the four matrices, or of the four transposed ones.
void load_fragment(uint32_t (&fragment)[4], bool transposed) {
    const uint32_t row = lane_index() / 4, column = lane_index() % 4 * 2;
    for (uint32_t i = 0; i < 4; ++i) {
        fragment[i] = transposed ? element_of(i, column, row) | element_of(i, column + 1, row) << 16 : element_of(i, row, column) | element_of(i, row, column + 1) << 16;
    }
}

uint32_t place_of_lane() { return row_place(lane_index() / 8, lane_index() % 8); }

template <bool TRANSPOSED>
void store_matrices(int) {
    uint32_t fragment[4], plain[4], transposed[4];
    load_fragment(fragment, TRANSPOSED);
    if (TRANSPOSED) {
        stmatrix_x4_transposed(place_of_lane(), fragment);
    } else {
        stmatrix_x4(place_of_lane(), fragment);
    }
    warp_sync();
    bool right = true;
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
        const words4 row = load_shared(row_place(matrix, lane_index() % 8));
        const uint32_t words[4] = {row.x, row.y, row.z, row.w};
        for (uint32_t i = 0; i < 8; ++i) right = right && (words[i / 2] >> i % 2 * 16 & 0xffff) == element_of(matrix, lane_index() % 8, i);
    }
    ldmatrix_x4(plain, place_of_lane());
    ldmatrix_x4_transposed(transposed, place_of_lane());
    load_fragment(fragment, false);
    right = right && memcmp(plain, fragment, sizeof plain) == 0;
    load_fragment(fragment, true);
    right = right && memcmp(transposed, fragment, sizeof transposed) == 0;
    store_global(output + lane_index(), right ? 1.0f : 0.0f);
}

// Transposes matrices in place; another warp reads them.
bool others_wait;
void transpose_in_place(int) {
    uint32_t fragment[4];
    if (warp_index() == 0) {
        store_shared(place_of_lane(), words4{lane_index(), 0, 0, 0});
        warp_sync();
        ldmatrix_x4(fragment, place_of_lane());
        stmatrix_x4_transposed(place_of_lane(), fragment);
    }
    if (others_wait) block_sync();
    if (warp_index() == 1) ldmatrix_x4_transposed(fragment, place_of_lane());
    if (!others_wait) block_sync();
    store_global(output + thread_index(), fragment[0] == (lane_index() % 4 == 0 ? lane_index() / 4 : 0) ? 1.0f : 0.0f);
}

// B was written by stmatrix: 16 rows of 32 bytes.
bool proxy_is_told;
void multiply_stored_matrices(int) {
    uint32_t fragment[4];
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t column = i / 2 * 8 + lane_index() / 4, k = (i % 2 * 4 + lane_index() % 4) * 4;
        fragment[i] = word_of<e4m3>([](uint32_t row, uint32_t first) { return element_b(first, row); }, column, k);
    }
    const uint32_t row = lane_index() / 16 * 8 + lane_index() % 8, half = lane_index() / 8 % 2;
    if (warp_index() == 2) stmatrix_x4(B_TILE + swizzled<16>(row, half), fragment);
    if (proxy_is_told) fence_proxy_async();
    block_sync();
    tile_of_d d;
    uint32_t a[1][4];
    load_a<e4m3>(a);
    wgmma_fence();
    wgmma_registers<e4m3, N>(d, a[0], matrix_descriptor_by_bytes<32>(B_TILE, 0, 256), false);
    wgmma_commit();
    wgmma_wait<0>(d);
    judge<N>(d, 32, false);
}

// Compares the operand encodings for a panel width: all addresses, advanced operands, panels with few and many rows.
template <int ROW_BYTES>
bool descriptors_are_alike() {
    bool alike = true;
    for (uint32_t address = A_TILE; address < A_TILE + BYTES; address += 16) {
        for (const uint32_t leading : {16u, 128u * ROW_BYTES, 256u * ROW_BYTES}) {
            const uint32_t stride = 8 * ROW_BYTES;
            const uint64_t here = matrix_descriptor_by_bytes<ROW_BYTES>(address, leading, stride);
            alike = alike && kgen_on_gpu::matrix_descriptor_by_bytes<ROW_BYTES>(address, leading, stride) == here;
            for (const uint32_t bytes : {0u, 32u, 2048u, A_TILE + BYTES - address}) {
                const uint64_t there = matrix_descriptor_by_bytes<ROW_BYTES>(address + bytes, leading, stride);
                alike = alike && advance(here, bytes) == there && kgen_on_gpu::advance(here, bytes) == there;
            }
        }
    }
    return alike;
}

// The emulator decodes its own header's encoding, so the GPU header must produce the same encoding.
void descriptors() {
    expect(runs([](int) {
               if (lane_index() != 0) return;
               store_global(output, descriptors_are_alike<128>() && descriptors_are_alike<64>() && descriptors_are_alike<32>() ? 1.0f : 0.0f);
           }) && all_ones(1),
           "both headers encode operands alike, and an advanced operand like one that starts at that address");
}

// V: KEYS rows of COLUMNS bytes; the last 16 columns are padding.
constexpr uint32_t KEYS = 160, COLUMNS = 64, TRANSPOSERS = 3;
using rows_of_keys = byte_tile<KEYS, COLUMNS>;
using rows_of_columns = byte_tile<COLUMNS - 16, KEYS>;
uint32_t byte_of_v(uint32_t key, uint32_t column) { return (key * 37 + column * 11 + key * column) % 255 + 1; }

// Permutation of the keys and of the columns within each group of 16.
constexpr uint32_t KEY_AT[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
constexpr uint32_t COLUMN_AT[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};

// Calls `use` with the address, row and first column of each 16 bytes of a tile; the chunks are distributed over
// the block's threads.
template <class Tile, class Use>
void each_chunk(uint32_t tile, Use use) {
    constexpr uint32_t chunks = Tile::columns / 8;
    for (uint32_t i = thread_index(); i < Tile::rows * chunks; i += TRANSPOSERS * 32) {
        use(tile + chunk_offset<Tile>(i / chunks, static_cast<int>(i % chunks * 8)), i / chunks, i % chunks * 16);
    }
}

uint32_t first_key;
void transpose_v(int) {
    each_chunk<rows_of_keys>(A_TILE, [](uint32_t address, uint32_t key, uint32_t column) {
        uint32_t words[4] = {};
        for (uint32_t i = 0; i < 16; ++i) words[i / 4] |= byte_of_v(key, column + i) << i % 4 * 8;
        store_shared(address, words4{words[0], words[1], words[2], words[3]});
    });
    block_sync();
    transpose_bytes<rows_of_keys, rows_of_columns, TRANSPOSERS, 2>(A_TILE, B_TILE, static_cast<int>(warp_index()), static_cast<int>(first_key));
    block_sync();
    bool right = true;
    each_chunk<rows_of_columns>(B_TILE, [&](uint32_t address, uint32_t row, uint32_t start) {
        const words4 value = load_shared(address);
        const uint32_t words[4] = {value.x, value.y, value.z, value.w};
        for (uint32_t i = 0; i < 16; ++i) {
            const uint32_t key = start + KEY_AT[i], column = row / 16 * 16 + COLUMN_AT[row % 16];
            right = right && (words[i / 4] >> i % 4 * 8 & 0xff) == (key < first_key ? 0 : byte_of_v(key, column));
        }
    });
    store_global(output + thread_index(), right ? 1.0f : 0.0f);
}

void transposed_bytes() {
    first_key = 0;
    expect(runs(transpose_v, TRANSPOSERS * 32, 1, BYTES) && all_ones(TRANSPOSERS * 32),
           "transpose_bytes puts the even columns of 16 before the odd ones, and groups keys by four as in P");
    bool right = true;
    for (first_key = 1; first_key <= KEYS; first_key += first_key % 16 == 1 ? 15 : 1) {
        right = right && runs(transpose_v, TRANSPOSERS * 32, 1, BYTES) && all_ones(TRANSPOSERS * 32);
    }
    expect(right, "... and writes zeros for exactly the keys before the first one");
}

// Each lane of a quad writes its four columns of a row; the row contains 1, 2, 3, ...
template <bool VECTOR, int SHIFT>
void store_row(int) {
    const uint32_t first = lane_index() * 4 + 1;
    store_four(reinterpret_cast<uint16_t*>(output) + SHIFT + lane_index() * 4, first | (first + 1) << 16, (first + 2) | (first + 3) << 16, VECTOR);
}

bool is_row(uint32_t shift) {
    uint16_t row[128];
    memcpy(row, reinterpret_cast<const char*>(output) + shift * 2, sizeof row);
    bool right = true;
    for (uint32_t i = 0; i < 128; ++i) right = right && row[i] == i + 1;
    return right;
}

void stored_rows() {
    expect(runs(store_row<true, 4>) && is_row(4), "store_four writes four adjacent columns");
    expect(runs(store_row<false, 1>) && is_row(1), "... one by one if they do not start at a multiple of 8 bytes");
    expect(is_faulted("misaligned", store_row<true, 2>), "... and not at once there");
}

void stored_matrices() {
    expect(runs(store_matrices<false>) && all_ones(32), "stmatrix is the inverse of ldmatrix, with row addresses from the lanes");
    expect(runs(store_matrices<true>) && all_ones(32), "transposing stmatrix is the inverse of transposing ldmatrix");
    others_wait = true;
    expect(runs(transpose_in_place, 64) && all_ones(64), "stmatrix may overwrite data that the warp's ldmatrix has read; other warps see it after a barrier");
    others_wait = false;
    expect(is_faulted("race", transpose_in_place, 64), "... and without one it is a race");
    expect(runs([](int) {
               store_shared(shared_base() + lane_index() * 16, words4{});
               warp_sync();
               const words4 value = load_shared(shared_base() + (lane_index() ^ 1) * 16);
               const uint32_t fragment[4] = {value.x, value.y, value.z, value.w};
               stmatrix_x4(shared_base() + lane_index() * 16, fragment);
           }),
           "stmatrix may overwrite data that a lane has loaded, because it synchronises all lanes");
    expect(is_faulted("race", [](int) {
               uint32_t fragment[4] = {};
               stmatrix_x4(place_of_lane(), fragment);
               ldmatrix_x4(fragment, place_of_lane());
           }),
           "the warp itself may read it only after a warp_sync");
    expect(is_faulted("race", [](int) {
               const uint32_t fragment[4] = {};
               stmatrix_x4(shared_base() + lane_index() / 2 * 16, fragment);
           }),
           "two rows at the same address are a race");
    expect(is_faulted("misaligned", [](int) {
               const uint32_t fragment[4] = {};
               stmatrix_x4(shared_base() + lane_index() * 16 + 8, fragment);
           }),
           "a row address that is not a multiple of 16 bytes is reported");
    expect(is_faulted("out of bounds", [](int) {
               const uint32_t fragment[4] = {};
               stmatrix_x4_transposed(shared_base() + SHARED_BYTES - 256 + lane_index() * 16, fragment);
           }),
           "a row outside shared memory is reported");
    proxy_is_told = true;
    expect(runs(multiply_stored_matrices, WARPGROUP, 1, BYTES) && all_ones(), "a product can read data written by stmatrix");
    proxy_is_told = false;
    expect(is_faulted("proxy", multiply_stored_matrices, WARPGROUP, BYTES), "... behind a fence_proxy_async");
}
