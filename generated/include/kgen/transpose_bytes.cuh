// V with adjacent keys: the only layout in which wgmma reads 1-byte operands.
#pragma once

#include "kgen/byte_tile.cuh"
#include "kgen/bytes.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/stmatrix.cuh"

namespace kgen {

// Zeroes the keys before `first`. `key` is the lane's first key in words[0]; each further word starts 8 keys later.
KGEN_DEVICE void clear_keys(uint32_t (&words)[4], int key, int first) {
    KGEN_UNROLL
    for (int i = 0; i < 4; ++i) {
        if (key + i * 8 < first) words[i] &= 0xffff0000u;
        if (key + i * 8 + 1 < first) words[i] &= 0x0000ffffu;
    }
}

// Transposes 16 columns of `From` (a row per key), number `group` of its panel at PANEL, to 16 rows of `To`, from key
// 32 * START on.
template <class From, class To, int AT_ONCE, int PANEL, bool CLEAR, int START = 0>
KGEN_DEVICE void transpose_columns(uint32_t from, uint32_t to, lane_offsets keys, lane_offsets columns, int group,
                                   int first) {
    if constexpr (START < From::rows / 32) {
        constexpr int width = From::panel_columns(PANEL);
        constexpr int left = From::rows / 32 - START;
        constexpr int count = left < AT_ONCE ? left : AT_ONCE;
        const uint32_t lane = (width == 64 ? keys.in_64 : width == 32 ? keys.in_32 : keys.in_16) ^ group * 16;
        uint32_t words[count][4];
        KGEN_UNROLL
        for (int i = 0; i < count; ++i)
            ldmatrix_x4_transposed(words[i], from + lane + (From::panel_offset(PANEL) + (START + i) * 32 * width * 2));
        KGEN_UNROLL
        for (int i = 0; i < count; ++i) {
            if constexpr (CLEAR) clear_keys(words[i], (START + i) * 32 + lane_index() % 4 * 2, first);
            const uint32_t parted[4] =
                {choose_bytes<0x6420>(words[i][0], words[i][1]), choose_bytes<0x7531>(words[i][0], words[i][1]),
                 choose_bytes<0x6420>(words[i][2], words[i][3]), choose_bytes<0x7531>(words[i][2], words[i][3])};
            stmatrix_x4(fragment_address<To>(to, columns, PANEL * 2 + group * 16, START + i), parted);
        }
        transpose_columns<From, To, AT_ONCE, PANEL, CLEAR, START + count>(from, to, keys, columns, group, first);
    }
}

// Transposes the columns of `From` from its panel at PANEL on that belong to `warp`: one loop per panel, in which an
// address is a single XOR of the lane's own. (In a single loop over all panels most instructions would compute
// addresses.)
template <class From, class To, int WARPS, int AT_ONCE, bool CLEAR, int PANEL = 0>
KGEN_DEVICE void transpose_panels(uint32_t from, uint32_t to, lane_offsets keys, lane_offsets columns, int warp,
                                  int first) {
    constexpr int left = To::rows / 16 - PANEL / 8;  // groups of 16 columns
    if constexpr (left > 0) {
        constexpr int width = From::panel_columns(PANEL);
        constexpr int groups = left < width / 8 ? left : width / 8;
        KGEN_ROLLED
        for (int group = warp; group < groups; group += WARPS)
            transpose_columns<From, To, AT_ONCE, PANEL, CLEAR>(from, to, keys, columns, group, first);
        // The next warp in order begins with the next panel.
        transpose_panels<From, To, WARPS, AT_ONCE, CLEAR, PANEL + width>(from, to, keys, columns,
                                                                         (warp + WARPS - groups % WARPS) % WARPS,
                                                                         first);
    }
}

// Writes `From` (a row per key) transposed into `To` (a row per column of V), by WARPS warps; this one is number
// `warp`. Each has AT_ONCE pieces of 32 keys and 16 columns in flight. The keys before `first` become zeros;
// columns that `From` does not have, up to a multiple of 16, are zeros there already.
//
// ldmatrix transposes pairs of bytes: a lane then has two adjacent keys of two columns. prmt separates the columns, and
// stmatrix stores each as it is. Both sides keep the resulting order:
// - In each 16 keys, the lane that holds P's keys 2q, 2q + 1, 2q + 8 and 2q + 9 needs those adjacent: they are stored
// as
//   4q to 4q + 3.
// - In each 16 columns, the even ones are rows 0 to 7 and the odd ones rows 8 to 15, so that eight rows that are stored
//   together are in different banks. A lane of P V then holds columns 4q to 4q + 3: 2q and 2q + 1 of the first eight,
//   and of the second.
template <class From, class To, int WARPS, int AT_ONCE>
KGEN_DEVICE void transpose_bytes(uint32_t from, uint32_t to, int warp, int first) {
    const lane_offsets keys = lanes_by_key();
    const lane_offsets columns = lanes_by_row(0);
    if (first > 0) {
        transpose_panels<From, To, WARPS, AT_ONCE, true>(from, to, keys, columns, warp, first);
    } else {
        transpose_panels<From, To, WARPS, AT_ONCE, false>(from, to, keys, columns, warp, first);
    }
}

}  // namespace kgen
