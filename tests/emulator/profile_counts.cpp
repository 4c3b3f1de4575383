// Tests of the counts of `kgen profile`: accesses whose wavefronts and sectors the rules give. Exit status 1 if a
// statement is false. tests/profile.rs compiles it together with a runtime compiled with -DKGEN_PROFILE.

#include <stdint.h>
#include <string.h>

#include <sstream>
#include <string>

#include "kgen/atomics.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/device.cuh"
#include "kgen/global.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/shared.cuh"
#include "kgen/stmatrix.cuh"
#include "kgen/sync.cuh"
#include "statements.hpp"

namespace {

alignas(256) float numbers[4096];

struct counts {
    uint64_t accesses = 0, units = 0, ideal = 0;
    int lines = 0;
    bool are(uint64_t a, uint64_t u, uint64_t i) const { return accesses == a && units == u && ideal == i; }
};

// The counts of a space that the kernel's lines have together, of one primitive if it is named; with one order of
// threads.
counts with_seed(uint64_t seed, body kernel, const char* space, const char* primitive, uint32_t threads) {
    kgen_emulator_reset(seed);
    kgen_emulator_tensor("numbers", numbers, sizeof numbers, nullptr, 4, 1);
    if (launch(kernel, "counts", 1, threads, 32768, 0, nullptr) != KGEN_SUCCESS) {
        expect(false, kgen_emulator_report());
        return {};
    }
    std::istringstream text(kgen_emulator_profile());
    counts sum;
    for (std::string line; std::getline(text, line);) {
        std::istringstream fields(line);
        std::string file, number, which, where;
        counts c;
        std::getline(fields, file, '\t');
        std::getline(fields, number, '\t');
        std::getline(fields, which, '\t');
        std::getline(fields, where, '\t');
        fields >> c.accesses >> c.units >> c.ideal;
        if (where != space || (primitive != nullptr && which != primitive)) continue;
        sum.accesses += c.accesses;
        sum.units += c.units;
        sum.ideal += c.ideal;
        ++sum.lines;
    }
    return sum;
}

// The same, which must not depend on the order of threads.
counts of(body kernel, const char* space, const char* primitive = nullptr, uint32_t threads = 32) {
    const counts first = with_seed(1, kernel, space, primitive, threads);
    for (uint64_t seed = 2; seed < 10; ++seed) {
        const counts other = with_seed(seed, kernel, space, primitive, threads);
        if (!other.are(first.accesses, first.units, first.ideal)) expect(false, "counts do not depend on the order of threads");
    }
    return first;
}

uint32_t at(uint32_t bytes) { return shared_base() + bytes; }
uint32_t lane() { return lane_index(); }
void store_word(uint32_t bytes) { store_shared(at(bytes), lane()); }
constexpr words4 ZEROS = {0, 0, 0, 0};

// Words: the stride decides.
void stride_1(int) { store_word(lane() * 4); }
void stride_2(int) { store_word(lane() * 8); }
void stride_3(int) { store_word(lane() * 12); }
void stride_32(int) { store_word(lane() * 128); }
void halves(int) { store_shared(at(lane() * 2), uint16_t{0}); }
void halves_of_stride_128(int) { store_shared(at(lane() / 2 * 128 + lane() % 2 * 2), uint16_t{0}); }
void broadcast(int) {
    if (lane() == 0) store_word(64);
    warp_sync();
    load_shared_word(at(64));
}
void two_words_of_a_bank(int) {
    if (lane() < 2) store_word(lane() * 128);
    warp_sync();
    load_shared_word(at(lane() % 2 * 128));
}

// An access by some lanes only.
void even_lanes(int) {
    if (lane() % 2 == 0) store_word(lane() * 64);
}

// A 32 x 32 tile of words: a column without and with padding.
void column(int) { store_word(lane() * 32 * 4 + 12); }
void padded_column(int) { store_word(lane() * 33 * 4 + 12); }

// 8 and 16 bytes.
void pairs(int) { store_shared_pair(at(lane() * 8), 1, 2); }
void pairs_of_stride_16(int) { store_shared_pair(at(lane() * 16), 1, 2); }
void pairs_of_whole_banks(int) { store_shared_pair(at(lane() * 128), 1, 2); }
void fours(int) { store_shared(at(lane() * 16), ZEROS); }
void fours_of_stride_32(int) { store_shared(at(lane() * 32), ZEROS); }
void fours_of_a_quarter(int) {
    if (lane() / 8 == 2) store_shared(at(lane() * 16), ZEROS);
}
void rows_of_128_bytes(int) { store_shared(at(lane() * 128), ZEROS); }
void swizzled_rows(int) { store_shared(at(lane() * 128 + (lane() % 8) * 16), ZEROS); }

void fill() {
    for (uint32_t i = 0; i < 8; ++i) store_shared(at(i * 512 + lane() * 16), ZEROS);
    warp_sync();
}
void rows(bool swizzled) {
    fill();
    uint32_t fragment[4];
    ldmatrix_x4(fragment, at(lane() % 8 * 128 + (swizzled ? lane() % 8 ^ lane() / 8 : lane() / 8) * 16));
    stmatrix_x4(at(lane() % 8 * 128 + (swizzled ? lane() % 8 ^ lane() / 8 : lane() / 8) * 16), fragment);
}
void plain_matrices(int) { rows(false); }
void swizzled_matrices(int) { rows(true); }

// Loops and branches: the n-th accesses of the lanes at one call belong together.
void loop(int) {
    for (uint32_t i = 0; i < 5; ++i) store_word(i * 128 + lane() * 4);
}
void shorter_loops(int) {
    for (uint32_t i = 0; i <= lane() / 16; ++i) store_word(i * 128 + lane() * 4);
}
void branches(int) {
    if (lane() < 16) {
        store_shared(at(lane() * 4), lane());
    } else {
        store_shared(at(lane() * 4), lane());
    }
}
void meets(int) {
    for (uint32_t i = 0; i < 3; ++i) {
        if (lane() % 3 == i) store_word(lane() * 4);
        warp_sync();
    }
}
void two_warps(int) { store_word(thread_index() * 4); }

// Device memory.
void floats(int) { store_global(numbers + lane(), 1.0f); }
void floats_of_stride_2(int) { store_global(numbers + lane() * 2, 1.0f); }
void floats_of_stride_8(int) { store_global(numbers + lane() * 8, 1.0f); }
void misaligned(int) { store_global(numbers + 1 + lane(), 1.0f); }
void same_float(int) { load_global(numbers); }
void sixteen_bytes(int) { load_global(reinterpret_cast<const words4*>(numbers) + lane()); }
void sums(int) { add_global(numbers + lane() * 8, 1.0f); }
void atomics(int) { atomic_add(numbers + lane(), 1.0f); }

void copies(uint32_t stride, bool valid) {
    cp_async(at(lane() * stride), numbers + lane() * 4, valid);
    cp_async_commit();
    cp_async_wait<0>();
}
void good_copies(int) { copies(16, true); }
void copies_to_rows(int) { copies(128, true); }
void zeros(int) { copies(16, false); }

void shared_words() {
    expect(of(stride_1, "shared").are(1, 1, 1), "32 consecutive words are one wavefront");
    expect(of(stride_2, "shared").are(1, 2, 1), "every second word: two");
    expect(of(stride_3, "shared").are(1, 1, 1), "an odd stride meets every bank");
    expect(of(stride_32, "shared").are(1, 32, 1), "every 32nd word: 32");
    expect(of(halves, "shared").are(1, 1, 1), "two halves of a word are one access to it");
    expect(of(halves_of_stride_128, "shared").are(1, 16, 1), "16 words of one bank: 16");
    expect(of(broadcast, "shared", "load_shared").are(1, 1, 1), "a word read by all lanes is broadcast");
    expect(of(two_words_of_a_bank, "shared", "load_shared").are(1, 2, 1), "two words of a bank: two, however many lanes read them");
    expect(of(even_lanes, "shared").are(1, 16, 1), "only the lanes that take part count");
    expect(of(column, "shared").are(1, 32, 1), "a column of a 32 x 32 tile of words: 32");
    expect(of(padded_column, "shared").are(1, 1, 1), "and one with a word of padding in each row");
}

void shared_vectors() {
    expect(of(pairs, "shared").are(1, 2, 2), "8 bytes a lane take two wavefronts");
    expect(of(pairs_of_stride_16, "shared").are(1, 4, 2), "each half-warp's conflicts add up");
    expect(of(pairs_of_whole_banks, "shared").are(1, 32, 2), "16 in each half-warp");
    expect(of(fours, "shared").are(1, 4, 4), "16 bytes a lane take four");
    expect(of(fours_of_stride_32, "shared").are(1, 8, 4), "each quarter-warp's conflicts add up");
    expect(of(fours_of_a_quarter, "shared").are(1, 1, 1), "a quarter-warp without an access needs none");
    expect(of(rows_of_128_bytes, "shared").are(1, 32, 4), "rows of 128 bytes: 8 in each quarter-warp");
    expect(of(swizzled_rows, "shared").are(1, 4, 4), "and none if they are swizzled");
    expect(of(plain_matrices, "shared", "ldmatrix_x4").are(1, 32, 4), "ldmatrix reads each matrix of rows in one bank in 8 wavefronts");
    expect(of(swizzled_matrices, "shared", "ldmatrix_x4").are(1, 4, 4), "and of swizzled rows in one");
    expect(of(plain_matrices, "shared", "stmatrix_x4").are(1, 32, 4) && of(swizzled_matrices, "shared", "stmatrix_x4").are(1, 4, 4), "stmatrix writes as ldmatrix reads");
}

void groups() {
    expect(of(loop, "shared").are(5, 5, 5), "each pass of a loop is an access of the warp");
    expect(of(shorter_loops, "shared").are(2, 2, 2), "lanes that leave a loop early are missing from its last passes");
    expect(of(branches, "shared").are(2, 2, 2), "the two sides of a branch are two accesses");
    expect(of(meets, "shared").are(3, 3, 3), "accesses on two sides of a warp-wide primitive are never one");
    expect(of(two_warps, "shared", nullptr, 64).are(2, 2, 2), "and those of two warps neither");
    expect(of(two_warps, "shared", nullptr, 64).lines == 1, "a line of source has one entry");
}

void device_memory() {
    expect(of(floats, "global").are(1, 4, 4), "32 consecutive floats are four sectors");
    expect(of(floats_of_stride_2, "global").are(1, 8, 4), "every second float: eight");
    expect(of(floats_of_stride_8, "global").are(1, 32, 4), "every eighth float: a sector each");
    expect(of(misaligned, "global").are(1, 5, 4), "misaligned by a float: one more");
    expect(of(same_float, "global").are(1, 1, 1), "one float for all lanes: one");
    expect(of(sixteen_bytes, "global").are(1, 16, 16), "16 bytes a lane: sixteen");
    expect(of(sums, "global", "add_global").are(1, 32, 4), "additions touch sectors as stores do");
    expect(of(atomics, "global", "atomic_add").are(1, 4, 4), "and so do atomics");
    expect(of(good_copies, "global").are(1, 16, 16) && of(good_copies, "shared").are(1, 4, 4), "cp.async reads device memory and writes shared memory");
    expect(of(copies_to_rows, "shared").are(1, 32, 4), "its writes conflict as others do");
    expect(of(zeros, "global").are(0, 0, 0) && of(zeros, "shared").are(1, 4, 4), "and without a source only writes");
}

}  // namespace

int main() {
    shared_words();
    shared_vectors();
    groups();
    device_memory();
    return failures > 0;
}
