// Widening of FP8 K and V to fp16 or bf16 in registers, between ldmatrix and the MMA: exact, and by the same integer
// operations on every target.
//
// A register with four bytes gives two pairs: the first and the third byte, and the second and the fourth. Each byte is
// shifted to the position of its sign, exponent and mantissa in the wider type. The difference of the exponent biases
// is then a power of two. bf16 is multiplied by it, since its products would otherwise be subnormal; for fp16 the
// caller includes it in a factor of its own (FP8_UNIT).
//
// ldmatrix gives a lane four adjacent columns of K, whereas the MMA needs pairs of columns 8 apart. The order of
// columns does not matter to Q K^T if Q has the same: the even columns of each 16, then the odd ones (part_columns).
// Transposed, ldmatrix gives two keys of two adjacent columns of V, whose pairs are the two keys of one column each:
// the first accumulator holds the even columns of each 16 of O and the second the odd ones, so that a lane has four
// adjacent columns.
//
// Infinities and NaN: those of E5M2 keep their meaning in fp16, which has the same bits for them. In the other three
// cases they are read as if the format continued: E4M3's NaN as 480, E5M2's infinity as 65536 and its NaN as 81920 to
// 114688, of either sign. Preserving them would take half as many instructions again, in the unit that already limits
// the conversion. Caches written with saturation, as by append_kv, hold a NaN only if the input was one.
#pragma once

#include "kgen/bytes.cuh"
#include "kgen/pair_product.cuh"
#include "kgen/platform.cuh"
#include "kgen/shared.cuh"
#include "kgen/tile.cuh"

namespace kgen {

// The position of an FP8 byte in a 16-bit element. It starts in the upper half; all bits except the sign move right by
// SHIFT. FACTOR: a pair of equal bf16 powers of two to multiply by, 0 for none.
template <class From, class To>
struct fp8_place;

template <>
struct fp8_place<e4m3, fp16> {
    static constexpr int SHIFT = 1;
    static constexpr uint32_t FACTOR = 0;
    static constexpr float UNIT = 256.0f;
};

template <>
struct fp8_place<e5m2, fp16> {
    static constexpr int SHIFT = 0;
    static constexpr uint32_t FACTOR = 0;
    static constexpr float UNIT = 1.0f;
};

template <>
struct fp8_place<e4m3, bf16> {
    static constexpr int SHIFT = 4;
    static constexpr uint32_t FACTOR = 0x7b807b80u;  // 2^120
    static constexpr float UNIT = 1.0f;
};

template <>
struct fp8_place<e5m2, bf16> {
    static constexpr int SHIFT = 3;
    static constexpr uint32_t FACTOR = 0x77807780u;  // 2^112
    static constexpr float UNIT = 1.0f;
};

// The factor that turns a widened value into the byte's value.
template <class From, class To>
constexpr float FP8_UNIT = fp8_place<From, To>::UNIT;

// Two elements of the bytes in the upper halves of `pair`.
template <class From, class To>
KGEN_DEVICE uint32_t widen_pair(uint32_t pair) {
    using place = fp8_place<From, To>;
    const uint32_t moved = place::SHIFT == 0
                               ? pair & 0xff00ff00u
                               : (pair & 0x80008000u) | (pair >> place::SHIFT & (0x7f007f00u >> place::SHIFT));
    if constexpr (place::FACTOR == 0) return moved;
    else return multiply_bf16_pairs(moved, place::FACTOR);
}

// Four bytes: the first and the third as one pair, the second and the fourth as the other.
template <class From, class To>
KGEN_DEVICE void widen_bytes(uint32_t bytes, uint32_t& first_and_third, uint32_t& second_and_fourth) {
    first_and_third = widen_pair<From, To>(bytes << 8);
    second_and_fourth = widen_pair<From, To>(bytes);
}

// Moves the even columns of each 16 of a tile of Q before the odd ones. Called by all threads, between two barriers.
template <class Tile, int THREADS>
KGEN_DEVICE void part_columns(uint32_t tile) {
    constexpr int groups = Tile::columns / 16;
    KGEN_ROLLED
    for (int i = thread_index(); i < Tile::rows * groups; i += THREADS) {
        const uint32_t first = tile + chunk_offset<Tile>(i / groups, i % groups * 16),
            second = tile + chunk_offset<Tile>(i / groups, i % groups * 16 + 8);
        const words4 low = load_shared(first), high = load_shared(second);
        store_shared(first, words4{choose_bytes<0x5410>(low.x, low.y), choose_bytes<0x5410>(low.z, low.w),
                                   choose_bytes<0x5410>(high.x, high.y), choose_bytes<0x5410>(high.z, high.w)});
        store_shared(second, words4{choose_bytes<0x7632>(low.x, low.y), choose_bytes<0x7632>(low.z, low.w),
                                    choose_bytes<0x7632>(high.x, high.y), choose_bytes<0x7632>(high.z, high.w)});
    }
}

}  // namespace kgen
