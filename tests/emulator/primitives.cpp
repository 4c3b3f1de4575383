// Tests of each emulated primitive with one small kernel per statement. Exit status 1 if a statement is false.
// tests/faults compiles it together with the runtime.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

#include "kgen.h"
#include "kgen/atomics.cuh"
#include "kgen/bytes.cuh"
#include "kgen/clock.cuh"
#include "kgen/cluster.cuh"
#include "kgen/cp_async.cuh"
#include "kgen/device.cuh"
#include "kgen/floats.cuh"
#include "kgen/fp8_to_half.cuh"
#include "kgen/global.cuh"
#include "kgen/grid_order.cuh"
#include "kgen/launch.cuh"
#include "kgen/ldmatrix.cuh"
#include "kgen/ldmatrix_b8.cuh"
#include "kgen/math.cuh"
#include "kgen/mma.cuh"
#include "kgen/mma_m16n8k8.cuh"
#include "kgen/mma_fp8.cuh"
#include "kgen/round_fp8.cuh"
#include "kgen/shared.cuh"
#include "kgen/staged_tile.cuh"
#include "kgen/sync.cuh"
#include "statements.hpp"

namespace {

uint32_t bits(float x) { return emulator::float_bits(x); }

// Decodes an fp16 bit pattern by definition.
double half_value(uint32_t h) {
    const double magnitude = (h >> 10 & 31) == 0 ? ldexp(h & 1023, -24) : ldexp(1024 + (h & 1023), static_cast<int>(h >> 10 & 31) - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

void numbers() {
    bool exact = true;
    bool nearest = true;
    for (uint32_t h = 0; h < 0x7bff; ++h) {  // all finite values except the largest, and their midpoints to the next
        const auto value = static_cast<float>(half_value(h));
        const auto next = static_cast<float>(half_value(h + 1));
        const float halfway = (value + next) / 2;
        exact = exact && pack<fp16>(value, -value) == (h | (h | 0x8000u) << 16);
        const uint32_t even = h % 2 == 0 ? h : h + 1;
        nearest = nearest && pack<fp16>(halfway, 0) == even && pack<fp16>(nextafterf(halfway, 0), 0) == h && pack<fp16>(nextafterf(halfway, 1e9f), 0) == h + 1;
    }
    expect(exact, "pack<fp16> is exact for every finite half");
    bool widened = true;
    for (uint32_t h = 0; h < 0x10000; ++h) {
        float low, high;
        unpack<bf16>(h | 0xbf80u << 16, low, high);
        widened = widened && bits(low) == h << 16 && high == -1.0f;
        if ((h & 0x7c00) == 0x7c00) continue;
        unpack<fp16>(h << 16 | 0x3c00u, low, high);
        widened = widened && low == 1.0f && high == half_value(h);
    }
    float infinite, nan;
    unpack<fp16>(0x7e00fc00u, infinite, nan);
    expect(widened && infinite == -infinity() && nan != nan, "unpack is exact for both values of a pair");
    expect(nearest, "pack<fp16> rounds to nearest, ties to even");
    expect(pack<fp16>(65519.0f, 65520.0f) == 0x7c007bffu, "pack<fp16> overflows to infinity from 65520 on");
    expect(pack<fp16>(NAN, -infinity()) == 0xfc007fffu, "pack<fp16> keeps NaN and infinity");
    expect(pack<bf16>(1.00390625f, 1.01171875f) == 0x3f823f80u, "pack<bf16> rounds ties to even");
    expect(pack<bf16>(NAN, 3.4e38f) == 0x7f807fffu, "pack<bf16> keeps NaN and overflows to infinity");
    expect(exp2_fast(-infinity()) == 0 && exp2_fast(-127) == 0 && exp2_fast(-126) > 0 && exp2_fast(3) == 8, "exp2_fast flushes subnormal results to zero");
    expect(log2_fast(0) == -infinity() && log2_fast(8) == 3, "log2_fast of 0 is -infinity");
    expect(bits(maximum(NAN, 2)) == bits(2) && bits(maximum(2, NAN)) == bits(2) && maximum(-infinity(), 1) == 1, "maximum of a number and NaN is the number");
    expect(bits(minimum(NAN, 2)) == bits(2) && bits(minimum(2, NAN)) == bits(2) && minimum(-infinity(), 1) == -infinity(), "minimum of a number and NaN is the number");
    const int64_t cycles = clock_cycles(), nanoseconds = clock_nanoseconds();
    expect(clock_cycles() > cycles && clock_nanoseconds() > nanoseconds, "the clocks advance from one reading to the next");
    const float third = 1.0f / 3.0f;
    expect(rounded_product(third, 3.0f) - 1.0f == 0.0f, "a rounded product is not contracted into an FMA");
}

void shuffles(int) { store_global(output + lane_index(), shuffle_xor(static_cast<float>(lane_index()), 5)); }

void single_lanes(int) {
    const uint32_t votes = warp_ballot(lane_index() % 3 == 1);
    bool right = votes == 0x92492492u;
    right = right && shuffle(0xff800000u + lane_index(), static_cast<int>(31 - lane_index())) == 0xff800000u + 31 - lane_index();
    right = right && shuffle(lane_index() * 7, 9) == 63;
    store_global(output + lane_index(), right ? 1.0f : 0.0f);
}

void votes(int) {
    const bool one = warp_any(lane_index() == 17);
    const bool none = warp_any(lane_index() == 32);
    store_global(output + lane_index(), one && !none ? 1.0f : 0.0f);
}

// Shared memory contains a 32 x 8 matrix; row r has the values 8 r .. 8 r + 7.
void write_rows() {
    const uint32_t first = thread_index() * 8;
    const auto two = [&](uint32_t i) { return (first + i) | (first + i + 1) << 16; };
    store_shared(shared_base() + thread_index() * 16, words4{two(0), two(2), two(4), two(6)});
    warp_sync();
}

void fragments(int) {
    write_rows();
    uint32_t plain[4], transposed[4];
    ldmatrix_x4(plain, shared_base() + lane_index() * 16);
    ldmatrix_x4_transposed(transposed, shared_base() + lane_index() * 16);
    bool right = true;
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = 8 * i + lane_index() / 4, column = lane_index() % 4 * 2;
        right = right && plain[i] == ((row * 8 + column) | (row * 8 + column + 1) << 16);
        const uint32_t down = (8 * i + lane_index() % 4 * 2) * 8 + lane_index() / 4;
        right = right && transposed[i] == (down | (down + 8) << 16);
    }
    store_global(output + lane_index(), right ? 1.0f : 0.0f);
}

// A[i][k] = i + k / 4, B[k][n] = k - 2 n, D starts as n: all exact in 16 bits, sums exact in fp32.
template <class T>
void products(int) {
    const int g = static_cast<int>(lane_index()) / 4, t = static_cast<int>(lane_index()) % 4;
    const auto a_at = [](int i, int k) { return static_cast<float>(i) + static_cast<float>(k) / 4; };
    const auto b_at = [](int k, int n) { return static_cast<float>(k - 2 * n); };
    uint32_t a[4];
    for (int i = 0; i < 4; ++i) a[i] = pack<T>(a_at(g + i % 2 * 8, 2 * t + i / 2 * 8), a_at(g + i % 2 * 8, 2 * t + i / 2 * 8 + 1));
    const uint32_t b0 = pack<T>(b_at(2 * t, g), b_at(2 * t + 1, g)), b1 = pack<T>(b_at(2 * t + 8, g), b_at(2 * t + 9, g));
    float d[4];
    for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(2 * t + i % 2);
    mma_m16n8k16<T>(d, a, b0, b1);
    bool right = true;
    for (int i = 0; i < 4; ++i) {
        const int row = g + i / 2 * 8, column = 2 * t + i % 2;
        float sum = static_cast<float>(column);
        for (int k = 0; k < 16; ++k) sum += a_at(row, k) * b_at(k, column);
        right = right && d[i] == sum;
    }
    store_global(output + lane_index(), right ? 1.0f : 0.0f);
}

// Like products(), with k = 8.
void products_of_depth_8(int) {
    const int g = static_cast<int>(lane_index()) / 4, t = static_cast<int>(lane_index()) % 4;
    const auto a_at = [](int i, int k) { return static_cast<float>(i) + static_cast<float>(k) / 4; };
    const auto b_at = [](int k, int n) { return static_cast<float>(k - 2 * n); };
    const uint32_t a0 = pack<fp16>(a_at(g, 2 * t), a_at(g, 2 * t + 1)), a1 = pack<fp16>(a_at(g + 8, 2 * t), a_at(g + 8, 2 * t + 1));
    float d[4];
    for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(2 * t + i % 2);
    mma_m16n8k8(d, a0, a1, pack<fp16>(b_at(2 * t, g), b_at(2 * t + 1, g)));
    bool right = true;
    for (int i = 0; i < 4; ++i) {
        const int row = g + i / 2 * 8, column = 2 * t + i % 2;
        float sum = static_cast<float>(column);
        for (int k = 0; k < 8; ++k) sum += a_at(row, k) * b_at(k, column);
        right = right && d[i] == sum;
    }
    store_global(output + lane_index(), right ? 1.0f : 0.0f);
}

// Passes every finite half through the MMA: 128 at a time in the first 8 columns of A; B is the identity.
void widened_halves(int) {
    const uint32_t g = lane_index() / 4, t = lane_index() % 4 * 2;
    const uint32_t b0 = (g == t ? 0x3c00u : 0) | (g == t + 1 ? 0x3c00u << 16 : 0);
    bool right = true;
    for (uint32_t first = 0; first < 0x10000; first += 128) {
        if ((first & 0x7c00) == 0x7c00) continue;
        const uint32_t low = first + g * 8 + t, high = low + 64;
        const uint32_t a[4] = {low | (low + 1) << 16, high | (high + 1) << 16, 0, 0};
        float d[4] = {};
        mma_m16n8k16<fp16>(d, a, b0, 0);
        for (uint32_t i = 0; i < 4; ++i) right = right && d[i] == static_cast<float>(half_value((i < 2 ? low : high) + i % 2));
    }
    store_global(output + lane_index(), right ? 1.0f : 0.0f);
}

bool all_ones() {
    bool all = true;
    for (int i = 0; i < 32; ++i) all = all && output[i] == 1.0f;
    return all;
}

void meaning() {
    bool right = runs(shuffles);
    for (uint32_t i = 0; i < 32; ++i) right = right && output[i] == static_cast<float>(i ^ 5);
    expect(right, "shuffle_xor exchanges values");
    expect(runs(single_lanes) && all_ones(), "warp_ballot has one bit per lane, and shuffle returns the value of the given lane");
    expect(runs(votes) && all_ones(), "warp_any is true in all lanes if it is true in one");
    expect(runs(fragments) && all_ones(), "ldmatrix returns each lane's elements, plain and transposed");
    expect(runs(products<fp16>) && all_ones(), "mma of fp16 is a matrix product");
    expect(runs(widened_halves) && all_ones(), "mma of fp16 is exact for every finite half, subnormals included");
    expect(runs(products_of_depth_8) && all_ones(), "mma of fp16 with k = 8 is a matrix product");
    expect(runs(products<bf16>) && all_ones(), "mma of bf16 is a matrix product");
}

// Copies a tile of 16 rows of 40 elements, 3 rows of them in range, through registers of 64 threads: columns 40 .. 47
// are zeros.
void staged_tiles(int) {
    using tile = shared_tile<16, 48>;
    staged_tile<tile, 64> staged;
    stage_tile<tile, 40>(staged, input, 64, 2, 5);
    put_tile(shared_base(), staged);
    block_sync();
    bool right = true;
    for (uint32_t chunk = 0; chunk < 6; ++chunk) {
        const uint32_t row = thread_index() % 16;
        const uint32_t offset = chunk < 4 ? swizzled<32>(row, chunk) : tile::panel_offset(32) + swizzled<16>(row, chunk - 4);
        const words4 there = load_shared(shared_base() + offset);
        const uint32_t first = row < 3 && chunk < 5 ? 8 * (row + 2) + chunk : 0;
        right = right && there.x == (first | first << 16) && there.w == there.x;
    }
    store_global(output + thread_index(), right ? 1.0f : 0.0f);
}

void copies(int) {
    cp_async(shared_base() + thread_index() * 16, input + thread_index() * 8, thread_index() % 2 == 0);
    cp_async_commit();
    cp_async(shared_base() + 2048 + thread_index() * 16, input + thread_index() * 8, true);
    cp_async_commit();
    cp_async_wait<1>();
    block_sync();
    const uint32_t other = (thread_index() + 33) % 64;
    const words4 value = load_shared(shared_base() + other * 16);
    cp_async_wait<0>();
    const float expected = other % 2 == 0 ? static_cast<float>(other) : 0.0f;
    store_global(output + thread_index(), static_cast<float>(value.x & 0xffff) - expected);
}

void copies_through_registers() {
    for (uint16_t i = 0; i < 1024; ++i) input[i] = static_cast<uint16_t>(i / 8);
    expect(runs(staged_tiles, 64) && all_ones(), "stage_tile and put_tile copy a tile and fill elements outside the tensor with zeros");
    expect(is_faulted("out of bounds", [](int) {
               staged_tile<shared_tile<16, 16>, 32> staged;
               stage_tile<shared_tile<16, 16>, 16>(staged, input, 64, 8, 17);
           }),
           "stage_tile with more rows than the tensor has is reported");
    expect(is_faulted("misaligned", [](int) { load_global(reinterpret_cast<const words4*>(input + 4)); }), "16 bytes are loaded from a multiple of 16");
}

void asynchronous_copies() {
    for (uint16_t i = 0; i < 1024; ++i) input[i] = static_cast<uint16_t>(i / 8);
    bool right = runs(copies, 64);
    for (int i = 0; i < 64; ++i) right = right && output[i] == 0;
    expect(right, "after the wait for its group, cp_async has copied 16 bytes, or zeros");
    expect(is_faulted("race", [](int) {
               cp_async(shared_base() + thread_index() * 16, input, true);
               cp_async_commit();
               store_global(output, static_cast<float>(load_shared(shared_base() + thread_index() * 16).x));
               cp_async_wait<0>();
           }),
           "reading a copy's destination before the wait is a race, even for the thread that issued it");
    expect(is_faulted("race", [](int) {
               cp_async(shared_base() + thread_index() * 16, input, true);
               cp_async_commit();
               cp_async_wait<0>();
               load_shared(shared_base() + (thread_index() + 32) % 64 * 16);
           }, 64),
           "reading another warp's copy before a block_sync is a race");
    expect(is_faulted("never waited for", [](int) { cp_async(shared_base() + thread_index() * 16, input, true); }), "a copy nobody waits for is reported");
    expect(is_faulted("misaligned", [](int) { cp_async(shared_base() + 8, input, true); }), "a copy to an address that is not a multiple of 16 is reported");
    expect(is_faulted("misaligned", [](int) {
               cp_async(shared_base() + thread_index() * 16, input + 4, true);
               cp_async_commit();
               cp_async_wait<0>();
           }),
           "a copy from an address that is not a multiple of 16 is reported");
}

void races_and_order() {
    const auto ring = [](int) {
        store_shared(shared_base() + thread_index() * 4, thread_index());
        block_sync();
        load_shared(shared_base() + (thread_index() + 32) % 64 / 4 * 16);
        block_sync();
        store_shared(shared_base() + (63 - thread_index()) * 4, thread_index());
    };
    expect(runs(ring, 64), "block_sync orders the warps");
    expect(is_faulted("race", [](int) {
               store_shared(shared_base() + thread_index() * 4, thread_index());
               block_sync();
               load_shared(shared_base() + (thread_index() + 32) % 64 / 4 * 16);
               store_shared(shared_base() + thread_index() * 4, thread_index());
           }, 64),
           "writing what another warp may still read is a race");
    expect(is_faulted("race", [](int) { store_shared(shared_base(), thread_index()); }), "two lanes writing the same word is a race");
    expect(runs([](int) { store_shared(shared_base() + thread_index() * 2, static_cast<uint16_t>(1)); }), "two lanes may write the two halves of a word");
    expect(is_faulted("race", [](int) {
               store_shared(shared_base() + thread_index() * 4, thread_index());
               shuffle_xor(0.0f, 1);
               load_shared(shared_base() + thread_index() / 4 * 16);
           }),
           "a shuffle does not make a lane's write visible to another");
    expect(runs([](int) {
               write_rows();
               uint32_t fragment[4];
               ldmatrix_x4(fragment, shared_base() + lane_index() * 16);
               store_shared(shared_base() + (31 - lane_index()) * 16, words4{});
           }),
           "the warp may overwrite data that its ldmatrix has read");
    expect(runs([](int) {
               store_shared(shared_base() + lane_index() * 8, bits(1.0f));
               store_shared(shared_base() + lane_index() * 8 + 4, bits(static_cast<float>(lane_index())));
               warp_sync();
               float one, lane;
               load_shared_pair(shared_base() + (lane_index() ^ 1) * 8, one, lane);
               store_global(output + lane_index(), one + lane);
           }) && output[6] == 8.0f && output[31] == 31.0f,
           "load_shared_pair returns two floats in order");
    expect(is_faulted("misaligned", [](int) {
               float a, b;
               load_shared_pair(shared_base() + 4, a, b);
           }),
           "... and requires an address that is a multiple of 8");
    expect(is_faulted("unwritten", [](int) { load_shared(shared_base() + thread_index() * 16); }), "reading shared memory that nothing wrote is reported");
    expect(is_faulted("out of bounds", [](int) { store_shared(shared_base() + SHARED_BYTES, 0u); }), "shared memory has an end");
    expect(is_faulted("out of bounds", [](int) { store_shared(0, 0u); }), "an offset is not an address");
}

void deadlocks() {
    expect(is_faulted("deadlock", [](int) {
               if (lane_index() < 16) warp_sync();
           }),
           "a lane that exits while its warp waits in a warp-wide primitive is a deadlock");
    expect(is_faulted("deadlock", [](int) {
               if (lane_index() < 16) {
                   warp_sync();
               } else {
                   shuffle_xor(0.0f, 1);
               }
           }),
           "lanes of a warp in different warp-wide primitives are a deadlock");
    expect(is_faulted("deadlock", [](int) {
               if (thread_index() >= 32) block_sync();
           }, 64),
           "a warp that exits while others wait at a barrier is a deadlock");
    const std::string report = kgen_emulator_report();
    expect(report.find("warp 0: lanes 0-31 have ended") != std::string::npos && report.find("warp 1: lanes 0-31 wait in block_sync (primitives.cpp:") != std::string::npos,
           "a deadlock's report lists the waiting lanes and their primitives");
}

// Tests endless loops like those of a kernel whose lengths change during a call.
void endless_loops() {
    setenv("KGEN_EMULATOR_SECONDS", "0.2", 1);
    const auto ends = [](const char* with, body kernel, uint32_t threads = 32) {
        return !runs(kernel, threads) && strstr(kgen_emulator_report(), with) != nullptr && strstr(kgen_emulator_report(), "endless: the launch was ended") != nullptr;
    };
    expect(ends("after 0.2 s of processor time", [](int) {
               for (;;) warp_sync();
           }),
           "an endless loop of warp-wide primitives is stopped");
    expect(ends("warp 1: lanes 0-31 wait in block_sync (primitives.cpp:", [](int) {
               for (;;) block_sync();
           }, 64) && strstr(kgen_last_error(), "endless: the launch was ended after 0.2 s") != nullptr,
           "so is an endless loop of block_syncs, with an error message");
    expect(ends("read-only", [](int) {
               for (uint32_t row = 0;; ++row) store_global(reinterpret_cast<float*>(input) + row % 4, 0.0f);
           }),
           "an endless loop of out-of-bounds stores is stopped");
    expect(ends("some time after the violations above", [](int) {
               store_global(reinterpret_cast<float*>(input), 0.0f);
               for (;;) warp_sync();
           }),
           "after a violation a launch is stopped before the time limit");
    setenv("KGEN_EMULATOR_SECONDS", "none", 1);
    expect(!runs([](int) {}) && strstr(kgen_last_error(), "KGEN_EMULATOR_SECONDS must be a number") != nullptr, "a time limit that is not a number is rejected");
    unsetenv("KGEN_EMULATOR_SECONDS");
    expect(runs([](int) {}), "the next launch is not affected");
}

// Warp 0 passes written data to warp 1 through a named barrier; the other warps do not take part.
void named_barriers() {
    static const auto hand_over = [](auto wait) {
        const uint32_t at = shared_base() + lane_index() * 4;
        if (warp_index() == 0) {
            store_shared(at, 7u);
            barrier_arrive(1, 64);
        } else if (warp_index() == 1) {
            wait();
            load_shared(shared_base() + lane_index() / 4 * 16);
        }
    };
    bool right = true;
    for (uint64_t seed = 0; seed < 20; ++seed) right &= runs([](int) { hand_over([] { barrier_wait(1, 64); }); }, 96, seed);
    expect(right, "writes before barrier_arrive are visible after barrier_wait");
    expect(is_faulted("race", [](int) { hand_over([] {}); }, 96), "... and without the wait it is not");
    expect(is_faulted("deadlock", [](int) { hand_over([] { barrier_wait(2, 64); }); }, 96), "a barrier that nobody arrives at is a deadlock");
    expect(runs([](int) {
               for (int i = 0; i < 3; ++i) {
                   store_shared(shared_base() + thread_index() * 16, words4{});
                   barrier_wait(1 + static_cast<int>(warp_index() / 2), 64);
                   load_shared(shared_base() + (thread_index() ^ 32) * 16);
                   barrier_wait(1 + static_cast<int>(warp_index() / 2), 64);
               }
           }, 128),
           "pairs of warps can use separate named barriers repeatedly");
    expect(is_faulted("barrier", [](int) { if (warp_index() == 0) barrier_arrive(3, 64); }, 64), "who comes to a barrier must meet others there before the block ends");
    expect(is_faulted("barrier", [](int) { barrier_wait(16, 32); }), "there are 15 of them");
    expect(is_faulted("barrier", [](int) { barrier_wait(1, 48); }), "they count whole warps");
}

void device_memory() {
    expect(is_faulted("out of bounds", [](int) { load_global(input + 1024); }), "reading past a tensor's end is reported");
    expect(std::string(kgen_emulator_report()).find("element 1024 of `input`, which has 1024") != std::string::npos, "... with the names of the tensor and the element");
    expect(is_faulted("read-only", [](int) { store_global(input, static_cast<uint16_t>(1)); }), "writing an input is reported");
    expect(is_faulted("misaligned", [](int) { store_global(static_cast<void*>(output + 1), words4{}); }), "16 bytes are stored at a multiple of 16");
    expect(is_faulted("misaligned", [](int) { load_global(reinterpret_cast<const words4*>(input + 4)); }), "... and loaded from one");
    output[0] = 0.5f;
    input[8] = 7;
    expect(runs([](int) {
               const words4 eight = load_global(reinterpret_cast<const words4*>(input + 8));
               const float half = load_global(output);
               store_global(output + 1, half + static_cast<float>(eight.x & 0xffffu));
           }) && output[1] == 7.5f,
           "load_global returns floats, and eight elements at once");
    expect(is_faulted("read-only", [](int) { add_global(reinterpret_cast<float*>(input), 1.0f); }), "adding to an input is reported");
    static const uint8_t map[4] = {1, 1, 0, 1};
    expect(runs([](int) { store_global(output + thread_index(), 1.0f); }) && runs([](int) { add_global(output, 2.0f); }) && output[0] == 65.0f,
           "add_global adds the values of all threads");
    kgen_emulator_reset(1);
    kgen_emulator_tensor("gappy", output, 16, map, 4, 1);
    const auto touch = [](int element) { store_global(output + element, 1.0f); };
    const bool solid = launch<int>(touch, "words", 1, 32, 0, 3, nullptr) == KGEN_SUCCESS;
    const bool gap = launch<int>(touch, "words", 1, 32, 0, 2, nullptr) == KGEN_SUCCESS;
    expect(solid && !gap && strstr(kgen_emulator_report(), "out of bounds") != nullptr, "an access to a gap of the element map is reported");
}

void launches() {
    const body nothing = [](int) {};
    expect(!runs(nothing, 1056) && strstr(kgen_last_error(), "cudaErrorInvalidConfiguration") != nullptr, "a block of more than 1024 threads is rejected");
    expect(!runs(nothing, 48), "a block with a partial warp is rejected");
    expect(!runs(nothing, 32, 1, 163 * 1024 + 16) && strstr(kgen_last_error(), "cudaErrorInvalidValue") != nullptr, "an A100 has at most 163 KB of shared memory per block");
    kgen_emulator_device(90);
    expect(device_capability() == 90 && runs(nothing, 1024, 1, 227 * 1024), "an H100 has 227 KB of shared memory per block");
    expect(device_shared_memory() == 227 * 1024, "... and device_shared_memory() returns it");
    kgen_emulator_device(80);
    expect(runs(nothing) && kgen_emulator_report()[0] == '\0', "a clean launch clears the report");
    static bool orders[2];
    const auto who_is_first = [](int) {
        static uint32_t first;
        if (shared_base() != 0 && thread_index() % 32 == 0) first = thread_index();
        block_sync();
        orders[first / 32] = true;
    };
    for (uint64_t seed = 0; seed < 20; ++seed) runs(who_is_first, 64, seed);
    expect(orders[0] && orders[1], "the first warp to run depends on the seed");
}

#include "primitives_fp8.hpp"
#include "primitives_split.hpp"

}  // namespace

#include "primitives_blocks.hpp"
#include "primitives_atomics.hpp"

int main() {
    numbers();
    meaning();
    copies_through_registers();
    asynchronous_copies();
    races_and_order();
    deadlocks();
    endless_loops();
    named_barriers();
    device_memory();
    blocks();
    earlier_kernels();
    atomics();
    fp8();
    partial_results();
    launches();
    printf("%d false\n", failures);
    return failures == 0 ? 0 : 1;
}
