// The warp-wide FP8 primitives: mma.sync m16n8k32 of E4M3, in its three forms, and ldmatrix of bytes. As in mma.hpp an
// MMA adds in fp32 over k ascending; an fp16 sum is rounded once, at its end.
#pragma once

namespace kgen::emulator {

// Exact: an E4M3 is a half with its exponent reduced by eight and three mantissa bits, subnormals included.
inline float widen_e4m3(uint8_t bits) {
    if ((bits & 0x7f) == 0x7f) return float_of_bits(0x7fffffffu);
    return widen_fp16(static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 0x1p8f;
}

inline const std::array<float, 256>& e4m3_values() {
    static const std::array<float, 256> values = [] {
        std::array<float, 256> v;
        for (uint32_t i = 0; i < 256; ++i) v[i] = widen_e4m3(static_cast<uint8_t>(i));
        return v;
    }();
    return values;
}

// 2^(scale - 127), or NaN.
inline float widen_ue8m0(uint32_t scale) {
    if (scale == 255) return float_of_bits(0x7fffffffu);
    return scale == 0 ? 0x1p-127f : float_of_bits(scale << 23);
}

// A lane's part of an FP8 MMA.
struct fp8_operands {
    const uint32_t* a;
    uint32_t b[2];
    block_scales scales;
};

// Row and column in D of a lane's element `e`.
inline uint32_t d_row(uint32_t lane, uint32_t e) { return lane / 4 + e / 2 * 8; }
inline uint32_t d_column(uint32_t lane, uint32_t e) { return lane % 4 * 2 + e % 2; }

// d += A B, with the scales that the lanes have passed.
inline void multiply_m16n8k32(const lane_operands* lanes, float (&d)[16][8]) {
    const std::array<float, 256>& values = e4m3_values();
    float a[16][32];
    float b[32][8];
    const auto part = [&](uint32_t lane) -> const fp8_operands& { return *static_cast<const fp8_operands*>(lanes[lane].input); };
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const uint32_t g = lane / 4;
        const uint32_t t = lane % 4 * 4;
        const fp8_operands& mine = part(lane);
        const block_scales& selected = mine.scales;
        const float scales_a[2] = {widen_ue8m0(part(g * 4 + selected.pair_a * 2).scales.a), widen_ue8m0(part(g * 4 + selected.pair_a * 2 + 1).scales.a)};
        const float scale_b = widen_ue8m0(part(g * 4 + selected.lane_b).scales.b);
        for (uint32_t i = 0; i < 4; ++i) {
            for (uint32_t word = 0; word < 4; ++word) a[g + word % 2 * 8][t + word / 2 * 16 + i] = values[mine.a[word] >> i * 8 & 0xff] * scales_a[word % 2];
            for (uint32_t word = 0; word < 2; ++word) b[t + word * 16 + i][g] = values[mine.b[word] >> i * 8 & 0xff] * scale_b;
        }
    }
    add_product(d, a, b);
}

constexpr block_scales UNIT_SCALES = {127, 127, 0, 0};

// D in fp32.
inline void meet_for_fp8(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, const block_scales& scales, primitive which, source at) {
    const fp8_operands operands = {a, {b0, b1}, scales};
    lane_operands& mine = my_operands();
    mine.result = d;
    mine.input = &operands;
    if (!meet(which, at)) return;
    const lane_operands* lanes = warp_of(this_thread()).operands;
    float sums[16][8];
    const auto each = [&](auto&& action) {
        for (uint32_t lane = 0; lane < LANES; ++lane) {
            for (uint32_t e = 0; e < 4; ++e) action(static_cast<float*>(lanes[lane].result)[e], sums[d_row(lane, e)][d_column(lane, e)]);
        }
    };
    each([](float& theirs, float& sum) { sum = theirs; });
    multiply_m16n8k32(lanes, sums);
    each([](float& theirs, float& sum) { theirs = sum; });
}

void mma_m16n8k32(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, source at) {
    meet_for_fp8(d, a, b0, b1, UNIT_SCALES, primitive::mma_m16n8k32, at);
}

void mma_m16n8k32_block_scaled(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, const block_scales& scales, source at) {
    meet_for_fp8(d, a, b0, b1, scales, primitive::mma_m16n8k32_block_scaled, at);
}

void mma_m16n8k32_fp16(uint32_t* d, const uint32_t* a, uint32_t b0, uint32_t b1, source at) {
    const fp8_operands operands = {a, {b0, b1}, UNIT_SCALES};
    lane_operands& mine = my_operands();
    mine.result = d;
    mine.input = &operands;
    if (!meet(primitive::mma_m16n8k32_fp16, at)) return;
    const lane_operands* lanes = warp_of(this_thread()).operands;
    float sums[16][8];
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const auto* theirs = static_cast<const uint32_t*>(lanes[lane].result);
        for (uint32_t e = 0; e < 4; ++e) sums[d_row(lane, e)][d_column(lane, e)] = widen_fp16(static_cast<uint16_t>(theirs[e / 2] >> e % 2 * 16));
    }
    multiply_m16n8k32(lanes, sums);
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        auto* theirs = static_cast<uint32_t*>(lanes[lane].result);
        for (uint32_t h = 0; h < 2; ++h) {
            const float* pair = &sums[lane / 4 + h * 8][lane % 4 * 2];
            theirs[h] = round_to_fp16(pair[0]) | round_to_fp16(pair[1]) << 16;
        }
    }
}

void ldmatrix_b8_x2_transposed(uint32_t* fragment, uint32_t address, source at) {
    lane_operands& mine = my_operands();
    mine.result = fragment;
    mine.words[0] = address;
    if (!meet(primitive::ldmatrix_b8_x2_transposed, at)) return;
    uint16_t rows[LANES][8];
    gather_rows(rows, {primitive::ldmatrix_b8_x2_transposed, at});
    const warp& w = warp_of(this_thread());
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        auto* result = static_cast<uint32_t*>(w.operands[lane].result);
        for (uint32_t word = 0; word < 4; ++word) {
            const uint32_t column = lane / 4 + word % 2 * 8;
            result[word] = 0;
            for (uint32_t i = 0; i < 4; ++i) {
                const auto* row = reinterpret_cast<const uint8_t*>(rows[word / 2 * 16 + lane % 4 * 4 + i]);
                result[word] |= static_cast<uint32_t>(row[column]) << i * 8;
            }
        }
    }
}

}  // namespace kgen::emulator
