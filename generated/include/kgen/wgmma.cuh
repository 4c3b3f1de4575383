// Matrix products of a warpgroup from shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions";
// sm_90a).
//
// Four warps, starting at a warp number divisible by four, multiply together: D (64 x N) += A (64 x K) B (K x N),
// in fp32. K is 32 bytes of elements: 16 of fp16 or bf16, 32 of E4M3. A is in shared memory or in registers, B in
// shared memory, D in registers: lane l of warp w has d[j][e], row w % 4 * 16 + e / 2 * 8 + l / 4, column j * 8 + l % 4
// * 2 + e % 2, which is the accumulator layout of mma.m16n8k16 and m16n8k32; A in registers has those instructions'
// layout too (kgen/mma.cuh, kgen/mma_fp8.cuh).
//
// Products are asynchronous. wgmma_fence() precedes the first one that uses registers written by other instructions,
// wgmma_commit() closes a group of them, and wgmma_wait() waits for groups: until then their D and A must not be
// accessed, and the shared memory that they read must not be overwritten. They read it through the asynchronous proxy:
// data written by ordinary stores first needs fence_proxy_async() (kgen/tma.cuh) by the writers and a barrier; data
// loaded by TMA needs neither.
//
// A kernel declares the widths N it uses with KGEN_WGMMA_WIDTH(N) for 16-bit elements and KGEN_WGMMA_WIDTH_FP8(N) for
// E4M3, once each, outside all namespaces.
#pragma once

#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// The descriptor of an operand: bits 0-13 its address, 16-29 `leading`, 32-45 `stride` (all in units of 16 bytes),
// 62-63 the swizzle, for panels of kgen/tile.cuh or kgen/byte_tile.cuh whose rows are ROW_BYTES long. Panels start at
// multiples of 1024, 512 or 256 bytes.
//
// Rows of A or columns of B along the panel's rows ("K-major": Q and K): `stride` is from eight panel rows to the next,
// `leading` is not used. The next step of K is 32 bytes further.
// B transposed ("N-major": V, of 16-bit elements only): `leading` is from one panel to the next, `stride` from eight
// panel rows to the next. The next step of 16 is 16 panel rows further.
template <int ROW_BYTES>
KGEN_DEVICE uint64_t matrix_descriptor_by_bytes(uint32_t address, uint32_t leading, uint32_t stride) {
    static_assert(ROW_BYTES == 128 || ROW_BYTES == 64 || ROW_BYTES == 32, "the widths of panels");
    constexpr uint64_t swizzle = ROW_BYTES == 128 ? 1 : ROW_BYTES == 64 ? 2 : 3;
    // In a cluster, the addresses of all blocks except the first have bits above the field's. If `leading` is used,
    // they must not spill into it.
    const uint32_t start = leading == 0 ? address / 16 : address / 16 % (1u << 14);
    return swizzle << 62 | static_cast<uint64_t>(stride / 16) << 32 | ((leading / 16 << 16) + start);
}

// The descriptor of an operand in panels of WIDTH 16-bit columns.
template <int WIDTH>
KGEN_DEVICE uint64_t matrix_descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
    return matrix_descriptor_by_bytes<WIDTH * 2>(address, leading, stride);
}

// The descriptor of an operand `bytes` further on (a multiple of 16). Shared memory (228 KB) is smaller than what the
// 14 bits of an address can hold, so nothing is carried into the other fields: with a constant distance, one addition
// remains.
KGEN_DEVICE uint64_t advance(uint64_t descriptor, uint32_t bytes) {
    return (descriptor & 0xffffffff00000000u) | (static_cast<uint32_t>(descriptor) + bytes / 16);
}

// Orders the warp's register accesses with the products that follow.
KGEN_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes a group: all products of the warpgroup since the last commit.
KGEN_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Makes the compiler assume that products have changed D.
template <int TILES>
KGEN_DEVICE void hold(float (&d)[TILES][4]) {
    KGEN_UNROLL
    for (int j = 0; j < TILES; ++j)
        asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])::"memory");
}

// Waits until at most PENDING groups, the most recent ones, are incomplete. `d` then holds the results of the completed
// groups.
template <int PENDING, int TILES>
KGEN_DEVICE void wgmma_wait(float (&d)[TILES][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    hold(d);
}

// d[FIRST ..] += A B, or = A B unless `accumulate`, with A in shared memory and both K-major.
template <class Element, int N, int FIRST = 0, int TILES>
KGEN_DEVICE void wgmma(float (&d)[TILES][4], uint64_t a, uint64_t b, bool accumulate);

// d[FIRST ..] += A B, or = A B unless `accumulate`, with A in registers and B transposed: 16-bit elements.
template <class Element, int N, int FIRST = 0, int TILES>
KGEN_DEVICE void wgmma_transposed(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b, bool accumulate);

// wgmma_transposed() with A in shared memory, K-major.
template <class Element, int N, int FIRST = 0, int TILES>
KGEN_DEVICE void wgmma_transposed(float (&d)[TILES][4], uint64_t a, uint64_t b, bool accumulate);

// d[FIRST ..] += A B, or = A B unless `accumulate`, with A in registers and B K-major: E4M3, which has no transposed
// form.
template <class Element, int N, int FIRST = 0, int TILES>
KGEN_DEVICE void wgmma_registers(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b, bool accumulate);

}  // namespace kgen

// The registers of D: %0 to %(N / 2 - 1), and the elements of d that they hold.
#define KGEN_WGMMA_NAMES_8 "%0, %1, %2, %3"
#define KGEN_WGMMA_NAMES_16 KGEN_WGMMA_NAMES_8 ", %4, %5, %6, %7"
#define KGEN_WGMMA_NAMES_24 KGEN_WGMMA_NAMES_16 ", %8, %9, %10, %11"
#define KGEN_WGMMA_NAMES_32 KGEN_WGMMA_NAMES_24 ", %12, %13, %14, %15"
#define KGEN_WGMMA_NAMES_40 KGEN_WGMMA_NAMES_32 ", %16, %17, %18, %19"
#define KGEN_WGMMA_NAMES_48 KGEN_WGMMA_NAMES_40 ", %20, %21, %22, %23"
#define KGEN_WGMMA_NAMES_56 KGEN_WGMMA_NAMES_48 ", %24, %25, %26, %27"
#define KGEN_WGMMA_NAMES_64 KGEN_WGMMA_NAMES_56 ", %28, %29, %30, %31"
#define KGEN_WGMMA_NAMES_72 KGEN_WGMMA_NAMES_64 ", %32, %33, %34, %35"
#define KGEN_WGMMA_NAMES_80 KGEN_WGMMA_NAMES_72 ", %36, %37, %38, %39"
#define KGEN_WGMMA_NAMES_88 KGEN_WGMMA_NAMES_80 ", %40, %41, %42, %43"
#define KGEN_WGMMA_NAMES_96 KGEN_WGMMA_NAMES_88 ", %44, %45, %46, %47"
#define KGEN_WGMMA_NAMES_104 KGEN_WGMMA_NAMES_96 ", %48, %49, %50, %51"
#define KGEN_WGMMA_NAMES_112 KGEN_WGMMA_NAMES_104 ", %52, %53, %54, %55"
#define KGEN_WGMMA_NAMES_120 KGEN_WGMMA_NAMES_112 ", %56, %57, %58, %59"
#define KGEN_WGMMA_NAMES_128 KGEN_WGMMA_NAMES_120 ", %60, %61, %62, %63"
#define KGEN_WGMMA_NAMES_136 KGEN_WGMMA_NAMES_128 ", %64, %65, %66, %67"
#define KGEN_WGMMA_NAMES_144 KGEN_WGMMA_NAMES_136 ", %68, %69, %70, %71"
#define KGEN_WGMMA_NAMES_152 KGEN_WGMMA_NAMES_144 ", %72, %73, %74, %75"
#define KGEN_WGMMA_NAMES_160 KGEN_WGMMA_NAMES_152 ", %76, %77, %78, %79"
#define KGEN_WGMMA_NAMES_168 KGEN_WGMMA_NAMES_160 ", %80, %81, %82, %83"
#define KGEN_WGMMA_NAMES_176 KGEN_WGMMA_NAMES_168 ", %84, %85, %86, %87"
#define KGEN_WGMMA_NAMES_184 KGEN_WGMMA_NAMES_176 ", %88, %89, %90, %91"
#define KGEN_WGMMA_NAMES_192 KGEN_WGMMA_NAMES_184 ", %92, %93, %94, %95"
#define KGEN_WGMMA_NAMES_200 KGEN_WGMMA_NAMES_192 ", %96, %97, %98, %99"
#define KGEN_WGMMA_NAMES_208 KGEN_WGMMA_NAMES_200 ", %100, %101, %102, %103"
#define KGEN_WGMMA_NAMES_216 KGEN_WGMMA_NAMES_208 ", %104, %105, %106, %107"
#define KGEN_WGMMA_NAMES_224 KGEN_WGMMA_NAMES_216 ", %108, %109, %110, %111"
#define KGEN_WGMMA_NAMES_232 KGEN_WGMMA_NAMES_224 ", %112, %113, %114, %115"
#define KGEN_WGMMA_NAMES_240 KGEN_WGMMA_NAMES_232 ", %116, %117, %118, %119"
#define KGEN_WGMMA_NAMES_248 KGEN_WGMMA_NAMES_240 ", %120, %121, %122, %123"
#define KGEN_WGMMA_NAMES_256 KGEN_WGMMA_NAMES_248 ", %124, %125, %126, %127"
#define KGEN_WGMMA_TILE(j) "+f"(d[FIRST + j][0]), "+f"(d[FIRST + j][1]), "+f"(d[FIRST + j][2]), "+f"(d[FIRST + j][3])
#define KGEN_WGMMA_TILES_8 KGEN_WGMMA_TILE(0)
#define KGEN_WGMMA_TILES_16 KGEN_WGMMA_TILES_8, KGEN_WGMMA_TILE(1)
#define KGEN_WGMMA_TILES_24 KGEN_WGMMA_TILES_16, KGEN_WGMMA_TILE(2)
#define KGEN_WGMMA_TILES_32 KGEN_WGMMA_TILES_24, KGEN_WGMMA_TILE(3)
#define KGEN_WGMMA_TILES_40 KGEN_WGMMA_TILES_32, KGEN_WGMMA_TILE(4)
#define KGEN_WGMMA_TILES_48 KGEN_WGMMA_TILES_40, KGEN_WGMMA_TILE(5)
#define KGEN_WGMMA_TILES_56 KGEN_WGMMA_TILES_48, KGEN_WGMMA_TILE(6)
#define KGEN_WGMMA_TILES_64 KGEN_WGMMA_TILES_56, KGEN_WGMMA_TILE(7)
#define KGEN_WGMMA_TILES_72 KGEN_WGMMA_TILES_64, KGEN_WGMMA_TILE(8)
#define KGEN_WGMMA_TILES_80 KGEN_WGMMA_TILES_72, KGEN_WGMMA_TILE(9)
#define KGEN_WGMMA_TILES_88 KGEN_WGMMA_TILES_80, KGEN_WGMMA_TILE(10)
#define KGEN_WGMMA_TILES_96 KGEN_WGMMA_TILES_88, KGEN_WGMMA_TILE(11)
#define KGEN_WGMMA_TILES_104 KGEN_WGMMA_TILES_96, KGEN_WGMMA_TILE(12)
#define KGEN_WGMMA_TILES_112 KGEN_WGMMA_TILES_104, KGEN_WGMMA_TILE(13)
#define KGEN_WGMMA_TILES_120 KGEN_WGMMA_TILES_112, KGEN_WGMMA_TILE(14)
#define KGEN_WGMMA_TILES_128 KGEN_WGMMA_TILES_120, KGEN_WGMMA_TILE(15)
#define KGEN_WGMMA_TILES_136 KGEN_WGMMA_TILES_128, KGEN_WGMMA_TILE(16)
#define KGEN_WGMMA_TILES_144 KGEN_WGMMA_TILES_136, KGEN_WGMMA_TILE(17)
#define KGEN_WGMMA_TILES_152 KGEN_WGMMA_TILES_144, KGEN_WGMMA_TILE(18)
#define KGEN_WGMMA_TILES_160 KGEN_WGMMA_TILES_152, KGEN_WGMMA_TILE(19)
#define KGEN_WGMMA_TILES_168 KGEN_WGMMA_TILES_160, KGEN_WGMMA_TILE(20)
#define KGEN_WGMMA_TILES_176 KGEN_WGMMA_TILES_168, KGEN_WGMMA_TILE(21)
#define KGEN_WGMMA_TILES_184 KGEN_WGMMA_TILES_176, KGEN_WGMMA_TILE(22)
#define KGEN_WGMMA_TILES_192 KGEN_WGMMA_TILES_184, KGEN_WGMMA_TILE(23)
#define KGEN_WGMMA_TILES_200 KGEN_WGMMA_TILES_192, KGEN_WGMMA_TILE(24)
#define KGEN_WGMMA_TILES_208 KGEN_WGMMA_TILES_200, KGEN_WGMMA_TILE(25)
#define KGEN_WGMMA_TILES_216 KGEN_WGMMA_TILES_208, KGEN_WGMMA_TILE(26)
#define KGEN_WGMMA_TILES_224 KGEN_WGMMA_TILES_216, KGEN_WGMMA_TILE(27)
#define KGEN_WGMMA_TILES_232 KGEN_WGMMA_TILES_224, KGEN_WGMMA_TILE(28)
#define KGEN_WGMMA_TILES_240 KGEN_WGMMA_TILES_232, KGEN_WGMMA_TILE(29)
#define KGEN_WGMMA_TILES_248 KGEN_WGMMA_TILES_240, KGEN_WGMMA_TILE(30)
#define KGEN_WGMMA_TILES_256 KGEN_WGMMA_TILES_248, KGEN_WGMMA_TILE(31)
// The names of the inputs after them.
#define KGEN_WGMMA_INPUTS_8(USE) USE("%4", "%5", "%6", "%7", "%8", "%9")
#define KGEN_WGMMA_INPUTS_16(USE) USE("%8", "%9", "%10", "%11", "%12", "%13")
#define KGEN_WGMMA_INPUTS_24(USE) USE("%12", "%13", "%14", "%15", "%16", "%17")
#define KGEN_WGMMA_INPUTS_32(USE) USE("%16", "%17", "%18", "%19", "%20", "%21")
#define KGEN_WGMMA_INPUTS_40(USE) USE("%20", "%21", "%22", "%23", "%24", "%25")
#define KGEN_WGMMA_INPUTS_48(USE) USE("%24", "%25", "%26", "%27", "%28", "%29")
#define KGEN_WGMMA_INPUTS_56(USE) USE("%28", "%29", "%30", "%31", "%32", "%33")
#define KGEN_WGMMA_INPUTS_64(USE) USE("%32", "%33", "%34", "%35", "%36", "%37")
#define KGEN_WGMMA_INPUTS_72(USE) USE("%36", "%37", "%38", "%39", "%40", "%41")
#define KGEN_WGMMA_INPUTS_80(USE) USE("%40", "%41", "%42", "%43", "%44", "%45")
#define KGEN_WGMMA_INPUTS_88(USE) USE("%44", "%45", "%46", "%47", "%48", "%49")
#define KGEN_WGMMA_INPUTS_96(USE) USE("%48", "%49", "%50", "%51", "%52", "%53")
#define KGEN_WGMMA_INPUTS_104(USE) USE("%52", "%53", "%54", "%55", "%56", "%57")
#define KGEN_WGMMA_INPUTS_112(USE) USE("%56", "%57", "%58", "%59", "%60", "%61")
#define KGEN_WGMMA_INPUTS_120(USE) USE("%60", "%61", "%62", "%63", "%64", "%65")
#define KGEN_WGMMA_INPUTS_128(USE) USE("%64", "%65", "%66", "%67", "%68", "%69")
#define KGEN_WGMMA_INPUTS_136(USE) USE("%68", "%69", "%70", "%71", "%72", "%73")
#define KGEN_WGMMA_INPUTS_144(USE) USE("%72", "%73", "%74", "%75", "%76", "%77")
#define KGEN_WGMMA_INPUTS_152(USE) USE("%76", "%77", "%78", "%79", "%80", "%81")
#define KGEN_WGMMA_INPUTS_160(USE) USE("%80", "%81", "%82", "%83", "%84", "%85")
#define KGEN_WGMMA_INPUTS_168(USE) USE("%84", "%85", "%86", "%87", "%88", "%89")
#define KGEN_WGMMA_INPUTS_176(USE) USE("%88", "%89", "%90", "%91", "%92", "%93")
#define KGEN_WGMMA_INPUTS_184(USE) USE("%92", "%93", "%94", "%95", "%96", "%97")
#define KGEN_WGMMA_INPUTS_192(USE) USE("%96", "%97", "%98", "%99", "%100", "%101")
#define KGEN_WGMMA_INPUTS_200(USE) USE("%100", "%101", "%102", "%103", "%104", "%105")
#define KGEN_WGMMA_INPUTS_208(USE) USE("%104", "%105", "%106", "%107", "%108", "%109")
#define KGEN_WGMMA_INPUTS_216(USE) USE("%108", "%109", "%110", "%111", "%112", "%113")
#define KGEN_WGMMA_INPUTS_224(USE) USE("%112", "%113", "%114", "%115", "%116", "%117")
#define KGEN_WGMMA_INPUTS_232(USE) USE("%116", "%117", "%118", "%119", "%120", "%121")
#define KGEN_WGMMA_INPUTS_240(USE) USE("%120", "%121", "%122", "%123", "%124", "%125")
#define KGEN_WGMMA_INPUTS_248(USE) USE("%124", "%125", "%126", "%127", "%128", "%129")
#define KGEN_WGMMA_INPUTS_256(USE) USE("%128", "%129", "%130", "%131", "%132", "%133")

// The operands, signs, and transposition flags, which exist only for 16-bit elements.
#define KGEN_WGMMA_BOTH_SHARED(a, b, accumulate, ...) "}, " a ", " b ", accumulate, 1, 1, 0, 0;\n}"
#define KGEN_WGMMA_BOTH_SHARED_TRANSPOSED(a, b, accumulate, ...) "}, " a ", " b ", accumulate, 1, 1, 0, 1;\n}"
#define KGEN_WGMMA_SECOND_SHARED(a0, a1, a2, a3, b, accumulate) "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b ", accumulate, 1, 1, 1;\n}"
#define KGEN_WGMMA_BOTH_SHARED_FP8(a, b, accumulate, ...) "}, " a ", " b ", accumulate, 1, 1;\n}"
#define KGEN_WGMMA_SECOND_SHARED_FP8(a0, a1, a2, a3, b, accumulate) "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b ", accumulate, 1, 1;\n}"
#define KGEN_WGMMA_THIRD(a, b, accumulate, ...) accumulate
#define KGEN_WGMMA_SIXTH(a0, a1, a2, a3, b, accumulate) accumulate

#define KGEN_WGMMA_TEXT(N, K, TYPE, ACCUMULATE, END)                                                   \
    "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " KGEN_WGMMA_INPUTS_##N(ACCUMULATE) ", 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n" #N "k" #K ".f32." TYPE "." TYPE " {" KGEN_WGMMA_NAMES_##N KGEN_WGMMA_INPUTS_##N(END)

#define KGEN_WGMMA_FORMS(N, K, ELEMENT, TYPE, BOTH_SHARED, SECOND_SHARED)                                                      \
    template <>                                                                                                                \
    struct wgmma_forms<ELEMENT, N> {                                                                                           \
        template <int FIRST, int TILES>                                                                                        \
        static KGEN_DEVICE void shared(float (&d)[TILES][4], uint64_t a, uint64_t b, int accumulate) {                         \
            asm volatile(KGEN_WGMMA_TEXT(N, K, TYPE, KGEN_WGMMA_THIRD, BOTH_SHARED)                                            \
                         : KGEN_WGMMA_TILES_##N : "l"(a), "l"(b), "r"(accumulate) : "memory");                                 \
        }                                                                                                                      \
        template <int FIRST, int TILES>                                                                                        \
        static KGEN_DEVICE void transposed(float (&d)[TILES][4], uint64_t a, uint64_t b, int accumulate) {                     \
            asm volatile(KGEN_WGMMA_TEXT(N, K, TYPE, KGEN_WGMMA_THIRD, KGEN_WGMMA_BOTH_SHARED_TRANSPOSED)                      \
                         : KGEN_WGMMA_TILES_##N : "l"(a), "l"(b), "r"(accumulate) : "memory");                                 \
        }                                                                                                                      \
        template <int FIRST, int TILES>                                                                                        \
        static KGEN_DEVICE void registers(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b, int accumulate) {          \
            asm volatile(KGEN_WGMMA_TEXT(N, K, TYPE, KGEN_WGMMA_SIXTH, SECOND_SHARED)                                          \
                         : KGEN_WGMMA_TILES_##N : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate) : "memory"); \
        }                                                                                                                      \
    };

#define KGEN_WGMMA_WIDTH(N)                                                                            \
    namespace kgen {                                                                                   \
    KGEN_WGMMA_FORMS(N, 16, bf16, "bf16", KGEN_WGMMA_BOTH_SHARED, KGEN_WGMMA_SECOND_SHARED)            \
    KGEN_WGMMA_FORMS(N, 16, fp16, "f16", KGEN_WGMMA_BOTH_SHARED, KGEN_WGMMA_SECOND_SHARED)             \
    }

#define KGEN_WGMMA_WIDTH_FP8(N)                                                                        \
    namespace kgen {                                                                                   \
    KGEN_WGMMA_FORMS(N, 32, e4m3, "e4m3", KGEN_WGMMA_BOTH_SHARED_FP8, KGEN_WGMMA_SECOND_SHARED_FP8)    \
    }

namespace kgen {

template <class Element, int N>
struct wgmma_forms;

template <class Element, int N, int FIRST, int TILES>
KGEN_DEVICE void wgmma(float (&d)[TILES][4], uint64_t a, uint64_t b, bool accumulate) {
    static_assert(N % 8 == 0 && FIRST + N / 8 <= TILES, "D holds N columns from tile FIRST on");
    wgmma_forms<Element, N>::template shared<FIRST>(d, a, b, accumulate);
}

template <class Element, int N, int FIRST, int TILES>
KGEN_DEVICE void wgmma_transposed(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
    static_assert(N % 8 == 0 && FIRST + N / 8 <= TILES, "D holds N columns from tile FIRST on");
    static_assert(sizeof(Element) == 2, "B of 16-bit elements can be transposed");
    wgmma_forms<Element, N>::template registers<FIRST>(d, a, b, accumulate);
}

template <class Element, int N, int FIRST, int TILES>
KGEN_DEVICE void wgmma_transposed(float (&d)[TILES][4], uint64_t a, uint64_t b, bool accumulate) {
    static_assert(N % 8 == 0 && FIRST + N / 8 <= TILES, "D holds N columns from tile FIRST on");
    static_assert(sizeof(Element) == 2, "B of 16-bit elements can be transposed");
    wgmma_forms<Element, N>::template transposed<FIRST>(d, a, b, accumulate);
}

template <class Element, int N, int FIRST, int TILES>
KGEN_DEVICE void wgmma_registers(float (&d)[TILES][4], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
    static_assert(N % 8 == 0 && FIRST + N / 8 <= TILES, "D holds N columns from tile FIRST on");
    static_assert(sizeof(Element) == 1, "with A in registers, B of 8-bit elements is K-major");
    wgmma_forms<Element, N>::template registers<FIRST>(d, a, b, accumulate);
}

}  // namespace kgen
