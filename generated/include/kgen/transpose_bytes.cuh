// V with its keys side by side: wgmma reads 1-byte operands no other way.
#pragma once

#include "kgen/byte_tile.cuh"
#include "kgen/bytes.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/stmatrix.cuh"

namespace kgen {

// Writes `From` (a row a key) transposed into `To` (a row a column of V). Of each 16 keys the lane that holds P's keys 2q,
// 2q + 1, 2q + 8 and 2q + 9 wants those side by side, so they are stored as 4q to 4q + 3. The keys before `first` become
// zeros. For WARPS warps, of which this one is number `warp`.
//
// ldmatrix transposes pairs of bytes: a lane then has two keys of two columns. prmt parts the columns, and stmatrix stores each
// as it stands. Columns of `From` beyond a multiple of 16 that it does not have are zeros.
template <class From, class To, int WARPS>
KGEN_DEVICE void transpose_bytes(uint32_t from, uint32_t to, int warp, int first) {
    constexpr int key_groups = From::rows / 32;
    constexpr int column_groups = To::rows / 16;
    const lane_offsets lanes = lanes_by_key();
    const int lane = lane_index();
    KGEN_ROLLED
    for (int unit = warp; unit < key_groups * column_groups; unit += WARPS) {
        const int group = unit % key_groups, column_group = unit / key_groups;
        uint32_t words[4];
        ldmatrix_x4_transposed(words, chunk_address<From>(from, lanes, group * 32, column_group));
        if (group * 32 < first) {
            KGEN_UNROLL
            for (int i = 0; i < 4; ++i) {
                const int key = group * 32 + i * 8 + lane % 4 * 2;
                if (key < first) words[i] &= 0xffff0000u;
                if (key + 1 < first) words[i] &= 0x0000ffffu;
            }
        }
        const uint32_t columns[4] = {choose_bytes<0x6420>(words[0], words[1]), choose_bytes<0x7531>(words[0], words[1]),
                                     choose_bytes<0x6420>(words[2], words[3]), choose_bytes<0x7531>(words[2], words[3])};
        const int row = column_group * 16 + lane % 8 * 2 + lane / 8 % 2;
        stmatrix_x4(to + chunk_offset<To>(row, (group * 2 + lane / 16) * 8), columns);
    }
}

}  // namespace kgen
