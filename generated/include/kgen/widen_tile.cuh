// Widening of rows of an FP8 tile (byte_tile) to rows of a tile of 16-bit elements (shared_tile), which `wgmma` can
// read, with columns in the same order.
#pragma once

#include "kgen/byte_tile.cuh"
#include "kgen/bytes.cuh"
#include "kgen/fp8_to_half.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/tile.cuh"

namespace kgen {

// Four bytes as two pairs of elements, in their order.
template <class From, class To>
KGEN_DEVICE void widen_in_order(uint32_t bytes, uint32_t& low, uint32_t& high) {
    low = widen_pair<From, To>(choose_bytes<0x1404>(bytes, 0));
    high = widen_pair<From, To>(choose_bytes<0x3424>(bytes, 0));
}

// Widens rows `first_row` .. `first_row + 15` of `bytes` to `elements`. Rows that are not among `first_valid` ..
// `end_valid - 1`, counted from `first_row`, become zeros. Called by a warp.
//
// A lane takes 16 bytes and stores 32. Eight lanes load and store at once: where a row has 128 bytes, four of them take
// the left half of one row and four the right half of its neighbour, and then the other way round. So their chunks are
// in different banks, of the bytes and, as every other chunk of a row of 64 elements is another row's, of the elements.
// AT_ONCE: pieces that a lane loads before it stores the first, so that one's latencies pass under the others.
template <class From, class To, class Bytes, class Elements, int AT_ONCE, int START = 0>
KGEN_DEVICE void widen_rows(uint32_t elements, uint32_t bytes, int first_row, int first_valid = 0, int end_valid = 16) {
    if constexpr (START < Bytes::columns) {
        static_assert(Elements::columns <= 2 * Bytes::columns, "every element has a byte");
        constexpr int width = Bytes::panel_columns(START);  // in pairs of bytes
        constexpr int panels = width == 64 ? Bytes::columns / 64 : 1;  // of this width
        constexpr int chunks = width / 8;
        constexpr int passes = chunks / 2;  // of 32 lanes over 16 rows
        constexpr int at_once = passes < AT_ONCE ? passes : AT_ONCE;
        const int lane = static_cast<int>(lane_index()), chunk = lane % chunks;
        const bool all_valid = first_valid <= 0 && end_valid >= 16;
        const auto row_of = [&](int pass) {
            if constexpr (chunks == 8) return (pass / 2 * 4 + lane / 8) * 2 + (lane / 4 + pass) % 2;
            else return pass * (32 / chunks) + lane / chunks;
        };
        KGEN_ROLLED
        for (int panel = 0; panel < panels; ++panel) {
            const uint32_t from = bytes + Bytes::panel_offset(START) + panel * (Bytes::rows * 128);
            const int column = START * 2 + panel * 128 + chunk * 16;
            KGEN_UNROLL
            for (int begin = 0; begin < passes; begin += at_once) {
                words4 held[at_once];
                KGEN_UNROLL
                for (int i = 0; i < at_once; ++i)
                    held[i] = load_shared(from + swizzled<width>(first_row + row_of(begin + i), chunk));
                KGEN_UNROLL
                for (int i = 0; i < at_once; ++i) {
                    const int row = row_of(begin + i);
                    if (!all_valid && (row < first_valid || row >= end_valid)) held[i] = {0, 0, 0, 0};
                    words4 left, right;
                    widen_in_order<From, To>(held[i].x, left.x, left.y);
                    widen_in_order<From, To>(held[i].y, left.z, left.w);
                    widen_in_order<From, To>(held[i].z, right.x, right.y);
                    widen_in_order<From, To>(held[i].w, right.z, right.w);
                    // Elements end at whole steps of 16 columns, bytes at those of 32.
                    if (START * 2 + panels * width * 2 <= Elements::columns || column < Elements::columns) {
                        store_shared(elements + chunk_offset<Elements>(first_row + row, column), left);
                        store_shared(elements + chunk_offset<Elements>(first_row + row, column + 8), right);
                    }
                }
            }
        }
        widen_rows<From, To, Bytes, Elements, AT_ONCE, START + panels * width>(elements, bytes, first_row, first_valid,
                                                                               end_valid);
    }
}

}  // namespace kgen
