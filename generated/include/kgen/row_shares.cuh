// Rows of K, V and Q in shares of two pieces, and the rotary embedding of a share: the code that append_kv shares with
// attention kernels that append rows themselves. A row is cut into pieces of 8 elements, and a thread has two of them,
// which the rotation pairs: pieces j and j + rotary_dim / 16, with one piece each of cosines and sines, whether pairs
// of columns are interleaved or not.
#pragma once

#include "kgen.h"
#include "kgen/atomics.cuh"
#include "kgen/elements.cuh"
#include "kgen/floats.cuh"
#include "kgen/global.cuh"
#include "kgen/math.cuh"
#include "kgen/platform.cuh"

namespace kgen {

// Two pieces of a row; -1: none.
struct share {
    int first, second;
    bool rotates;
};

// The pieces that `turned` shares rotate come first; the rest of `pieces` is copied, also in two halves, so that
// adjacent threads always have adjacent pieces.
KGEN_DEVICE share share_of(int index, int turned, int pieces) {
    if (index < turned) return {index, index + turned, true};
    const int half = (pieces - 2 * turned + 1) / 2, first = index + turned;
    if (first >= 2 * turned + half) return {-1, -1, false};
    return {first, first + half < pieces ? first + half : -1, false};
}

// A share of a row of K, V or Q, as it is in memory.
struct held {
    words4 first, second;
};

// Loads 8 elements. PIECES: tensors are aligned to 16 bytes. WRITTEN: this launch also writes there (Q in place).
template <bool PIECES, bool WRITTEN = false>
KGEN_DEVICE words4 load_piece(const uint16_t* from) {
    if constexpr (PIECES) {
        if constexpr (WRITTEN) return load_written(reinterpret_cast<const words4*>(from));
        else return load_global(reinterpret_cast<const words4*>(from));
    } else {
        uint32_t words[4] = {0, 0, 0, 0};
        KGEN_UNROLL
        for (int i = 0; i < 8; ++i)
            words[i / 2] |= static_cast<uint32_t>(WRITTEN ? load_element(from + i) : load_global(from + i)) <<
                            (i % 2 * 16);
        return {words[0], words[1], words[2], words[3]};
    }
}

template <bool PIECES, bool WRITTEN = false>
KGEN_DEVICE held load_share(const uint16_t* row, const share& s) {
    held h = { {0, 0, 0, 0}, {0, 0, 0, 0} };
    if (s.first >= 0) h.first = load_piece<PIECES, WRITTEN>(row + s.first * 8);
    if (s.second >= 0) h.second = load_piece<PIECES, WRITTEN>(row + s.second * 8);
    return h;
}

template <bool PIECES>
KGEN_DEVICE void store_piece(uint16_t* to, const words4& piece) {
    if constexpr (PIECES) {
        store_global(static_cast<void*>(to), piece);
    } else {
        const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
        KGEN_UNROLL
        for (int i = 0; i < 8; ++i) store_element(to + i, static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
    }
}

template <class Element>
KGEN_DEVICE void widen(const words4& piece, float (&values)[8]) {
    unpack<Element>(piece.x, values[0], values[1]);
    unpack<Element>(piece.y, values[2], values[3]);
    unpack<Element>(piece.z, values[4], values[5]);
    unpack<Element>(piece.w, values[6], values[7]);
}

template <class Element>
KGEN_DEVICE words4 narrow(const float (&values)[8]) {
    return {pack<Element>(values[0], values[1]), pack<Element>(values[2], values[3]),
            pack<Element>(values[4], values[5]), pack<Element>(values[6], values[7])};
}

// Stores 8 values times `scale` as FP8. `narrow_to_bytes(a, b, c, d)` converts four, the first in the lowest byte.
template <bool PIECES, class Narrow>
KGEN_DEVICE void store_bytes(uint8_t* to, const float (&values)[8], float scale, const Narrow& narrow_to_bytes) {
    words2 bytes;
    bytes.x = narrow_to_bytes(values[0] * scale, values[1] * scale, values[2] * scale, values[3] * scale);
    bytes.y = narrow_to_bytes(values[4] * scale, values[5] * scale, values[6] * scale, values[7] * scale);
    if constexpr (PIECES) {
        store_global(static_cast<void*>(to), bytes);
    } else {
        const uint32_t words[2] = {bytes.x, bytes.y};
        KGEN_UNROLL
        for (int i = 0; i < 8; ++i) store_element(to + i, static_cast<uint8_t>(words[i / 4] >> (i % 4 * 8)));
    }
}

// The cosines and sines of all positions, (rows, rotary_dim / 2).
struct rotary_tables {
    const uint16_t *cos, *sin;
    int64_t row_stride;
    bool interleaved;
};

// Cosines and sines of a share: of the 8 pairs that its two pieces make, or, interleaved, of the 4 pairs within the
// first piece and the 4 within the second.
struct angles {
    words4 cos, sin;
};

// Loads the values of 4 pairs, from column `4 * quarter` on.
template <bool PIECES>
KGEN_DEVICE words2 load_quarter(const uint16_t* row, int quarter) {
    const words4 piece = load_piece<PIECES>(row + quarter / 2 * 8);
    return quarter % 2 == 0 ? words2{piece.x, piece.y} : words2{piece.z, piece.w};
}

template <bool PIECES>
KGEN_DEVICE words4 load_pairs(const uint16_t* row, const share& s, bool interleaved) {
    if (!interleaved) return load_piece<PIECES>(row + s.first * 8);
    const words2 low = load_quarter<PIECES>(row, s.first), high = load_quarter<PIECES>(row, s.second);
    return {low.x, low.y, high.x, high.y};
}

// Requires that `s` rotates.
template <bool PIECES>
KGEN_DEVICE angles load_angles(const rotary_tables& tables, int position, const share& s) {
    const int64_t row = position * tables.row_stride;
    return {load_pairs<PIECES>(tables.cos + row, s, tables.interleaved),
            load_pairs<PIECES>(tables.sin + row, s, tables.interleaved)};
}

// The products are exact, as factors have at most 11 bits: each result is rounded once.
KGEN_DEVICE void turn(float& x, float& y, float cos, float sin) {
    const float old = x;
    x = fused_multiply_add(x, cos, -(y * sin));
    y = fused_multiply_add(y, cos, old * sin);
}

template <class Element>
KGEN_DEVICE void rotate(float (&first)[8], float (&second)[8], const angles& by, bool interleaved) {
    float cos[8], sin[8];
    widen<Element>(by.cos, cos);
    widen<Element>(by.sin, sin);
    KGEN_UNROLL
    for (int i = 0; i < 8; ++i) {
        if (!interleaved) {
            turn(first[i], second[i], cos[i], sin[i]);
        } else if (i < 4) {
            turn(first[2 * i], first[2 * i + 1], cos[i], sin[i]);
        } else {
            turn(second[2 * i - 8], second[2 * i - 7], cos[i], sin[i]);
        }
    }
}

// A share of a row as it is stored, in 16 bits: rotated if `s` rotates.
template <class Element>
KGEN_DEVICE held rotated(const held& h, const share& s, const angles& by, bool interleaved) {
    if (!s.rotates) return h;
    float first[8], second[8];
    widen<Element>(h.first, first);
    widen<Element>(h.second, second);
    rotate<Element>(first, second, by, interleaved);
    return {narrow<Element>(first), narrow<Element>(second)};
}

// Stores a share to a row of 16-bit elements.
template <bool PIECES>
KGEN_DEVICE void store_share(uint16_t* row, const share& s, const held& h) {
    if (s.first >= 0) store_piece<PIECES>(row + s.first * 8, h.first);
    if (s.second >= 0) store_piece<PIECES>(row + s.second * 8, h.second);
}

// Stores a share, rotated if `s` rotates, to a row of FP8: multiplied by `scale` after the rotation and rounded once.
template <class Element, bool PIECES, class Narrow>
KGEN_DEVICE void store_share_as_bytes(uint8_t* row, const share& s, const held& h, const angles& by, bool interleaved,
                                      float scale, const Narrow& narrow_to_bytes) {
    float first[8], second[8];
    widen<Element>(h.first, first);
    widen<Element>(h.second, second);
    if (s.rotates) rotate<Element>(first, second, by, interleaved);
    if (s.first >= 0) store_bytes<PIECES>(row + s.first * 8, first, scale, narrow_to_bytes);
    if (s.second >= 0) store_bytes<PIECES>(row + s.second * 8, second, scale, narrow_to_bytes);
}

}  // namespace kgen
