// mma.sync m16n8k8 of fp16: D += A B in fp32, over k ascending.
#pragma once

namespace kgen::emulator {

inline void multiply_m16n8k8(const lane_operands* lanes) {
    float a[16][8];
    float b[8][8];
    const auto widen = [](uint32_t pair, float& low, float& high) {
        low = widen_fp16(static_cast<uint16_t>(pair));
        high = widen_fp16(static_cast<uint16_t>(pair >> 16));
    };
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const uint32_t g = lane / 4;
        const uint32_t t = lane % 4 * 2;
        const auto* from = static_cast<const uint32_t*>(lanes[lane].input);
        widen(from[0], a[g][t], a[g][t + 1]);
        widen(from[1], a[g + 8][t], a[g + 8][t + 1]);
        widen(lanes[lane].words[0], b[t][g], b[t + 1][g]);
    }
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        auto* sums = static_cast<float*>(lanes[lane].result);
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t row = lane / 4 + i / 2 * 8;
            const uint32_t column = lane % 4 * 2 + i % 2;
            for (uint32_t k = 0; k < 8; ++k) sums[i] += a[row][k] * b[k][column];
        }
    }
}

void mma_m16n8k8(float* d, uint32_t a0, uint32_t a1, uint32_t b0, source at) {
    lane_operands& mine = my_operands();
    const uint32_t a[2] = {a0, a1};
    mine.result = d;
    mine.input = a;
    mine.words[0] = b0;
    if (meet(primitive::mma_m16n8k8, at)) multiply_m16n8k8(warp_of(this_thread()).operands);
}

}  // namespace kgen::emulator
