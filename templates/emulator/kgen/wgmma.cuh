// Matrix products of a warpgroup, on the emulator: they read shared memory and update D only at the wgmma_wait that
// forces them to complete; until then D is NaN. include/kgen/wgmma.cuh describes the products and their operands.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// The location of an operand, in panels whose rows are ROW_BYTES long.
template <int ROW_BYTES>
KGEN_DEVICE uint64_t matrix_descriptor_by_bytes(uint32_t address, uint32_t leading, uint32_t stride, KGEN_AT) {
    static_assert(ROW_BYTES == 128 || ROW_BYTES == 64 || ROW_BYTES == 32, "the widths of panels");
    constexpr uint64_t swizzle = ROW_BYTES == 128 ? 1 : ROW_BYTES == 64 ? 2 : 3;
    emulator::check_matrix_descriptor(address, stride, at);
    return swizzle << 62 | static_cast<uint64_t>(stride / 16) << 32 | leading / 16 << 16 | (address & 0x3ffff) / 16;
}

// The descriptor of an operand in panels of WIDTH 16-bit columns.
template <int WIDTH>
KGEN_DEVICE uint64_t matrix_descriptor(uint32_t address, uint32_t leading, uint32_t stride, KGEN_AT) {
    return matrix_descriptor_by_bytes<WIDTH * 2>(address, leading, stride, at);
}

// The descriptor of an operand `bytes` further on (a multiple of 16).
KGEN_DEVICE uint64_t advance(uint64_t descriptor, uint32_t bytes) { return descriptor + bytes / 16; }

// Orders the warp's register accesses with the products that follow.
KGEN_DEVICE void wgmma_fence(KGEN_AT) { emulator::wgmma_fence(at); }

// Closes a group: all products of the warpgroup since the last commit.
KGEN_DEVICE void wgmma_commit(KGEN_AT) { emulator::wgmma_commit(at); }

// Makes D hold the results of the products that have been waited for.
template <int TILES>
KGEN_DEVICE void hold(float (&d)[TILES][4], KGEN_AT) {
    emulator::hold(d[0], TILES, at);
}

// Waits until at most PENDING groups, the most recent ones, are incomplete. `d` then holds the results of the completed
// groups.
template <int PENDING, int TILES>
KGEN_DEVICE void wgmma_wait(float (&d)[TILES][4], KGEN_AT) {
    emulator::wgmma_wait(PENDING, d[0], TILES, at);
}

// Declared by KGEN_WGMMA_WIDTH(N) for 2-byte elements and by KGEN_WGMMA_WIDTH_FP8(N) for 1-byte ones: without it a
// product of N columns does not compile.
template <int ELEMENT_BYTES, int N>
struct wgmma_width;

// Element types of products.
template <class Element>
struct wgmma_element_of;
template <>
struct wgmma_element_of<bf16> {
    static constexpr emulator::wgmma_element value = emulator::wgmma_element::bf16;
};
template <>
struct wgmma_element_of<fp16> {
    static constexpr emulator::wgmma_element value = emulator::wgmma_element::fp16;
};
template <>
struct wgmma_element_of<e4m3> {
    static constexpr emulator::wgmma_element value = emulator::wgmma_element::e4m3;
};

// d[FIRST ..] += A B, or = A B unless `accumulate`, with A in shared memory and both K-major.
template <class Element, int N, int FIRST = 0, int TILES>
KGEN_DEVICE void wgmma(float (&d)[TILES][4], uint64_t a, uint64_t b, bool accumulate, KGEN_AT) {
    static_assert(wgmma_width<sizeof(Element), N>::columns == N && FIRST + N / 8 <= TILES, "D holds N columns from tile FIRST on");
    emulator::wgmma(d[FIRST], {wgmma_element_of<Element>::value, N, nullptr, a, b, false, accumulate}, at);
}

// d[FIRST ..] += A B, or = A B unless `accumulate`, with A in registers and B transposed: 16-bit elements.
template <class Element, int N, int FIRST = 0, int TILES>
KGEN_DEVICE void wgmma_transposed(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b, bool accumulate, KGEN_AT) {
    static_assert(wgmma_width<sizeof(Element), N>::columns == N && FIRST + N / 8 <= TILES, "D holds N columns from tile FIRST on");
    static_assert(sizeof(Element) == 2, "B of 16-bit elements can be transposed");
    emulator::wgmma(d[FIRST], {wgmma_element_of<Element>::value, N, a, 0, b, true, accumulate}, at);
}

// wgmma_transposed() with A in shared memory, K-major.
template <class Element, int N, int FIRST = 0, int TILES>
KGEN_DEVICE void wgmma_transposed(float (&d)[TILES][4], uint64_t a, uint64_t b, bool accumulate, KGEN_AT) {
    static_assert(wgmma_width<sizeof(Element), N>::columns == N && FIRST + N / 8 <= TILES, "D holds N columns from tile FIRST on");
    static_assert(sizeof(Element) == 2, "B of 16-bit elements can be transposed");
    emulator::wgmma(d[FIRST], {wgmma_element_of<Element>::value, N, nullptr, a, b, true, accumulate}, at);
}

// d[FIRST ..] += A B, or = A B unless `accumulate`, with A in registers and B K-major: E4M3, which has no transposed
// form.
template <class Element, int N, int FIRST = 0, int TILES>
KGEN_DEVICE void wgmma_registers(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b, bool accumulate, KGEN_AT) {
    static_assert(wgmma_width<sizeof(Element), N>::columns == N && FIRST + N / 8 <= TILES, "D holds N columns from tile FIRST on");
    static_assert(sizeof(Element) == 1, "with A in registers, B of 8-bit elements is K-major");
    emulator::wgmma(d[FIRST], {wgmma_element_of<Element>::value, N, a, 0, b, false, accumulate}, at);
}

}  // namespace kgen

#define KGEN_WGMMA_WIDTH_OF_BYTES(ELEMENT_BYTES, N)                                                       \
    namespace kgen {                                                                                      \
    template <>                                                                                           \
    struct wgmma_width<ELEMENT_BYTES, N> {                                                                \
        static_assert((N) % 8 == 0 && (N) >= 8 && (N) <= 256, "D has 8, 16, .. 256 columns");             \
        static constexpr int columns = N;                                                                 \
    };                                                                                                    \
    }
#define KGEN_WGMMA_WIDTH(N) KGEN_WGMMA_WIDTH_OF_BYTES(2, N)
#define KGEN_WGMMA_WIDTH_FP8(N) KGEN_WGMMA_WIDTH_OF_BYTES(1, N)
