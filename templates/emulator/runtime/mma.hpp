// mma.sync m16n8k16: D += A B in fp32, over k ascending. Operands are widened once per instruction, and the inner loops
// are over eight columns at a time, which the compiler's vector types map to the processor's vector instructions.
#pragma once

namespace kgen::emulator {

typedef float columns8 __attribute__((vector_size(32), aligned(4)));

// d += a b.
template <uint32_t K>
inline void add_product(float (&d)[16][8], const float (&a)[16][K], const float (&b)[K][8]) {
    for (uint32_t row = 0; row < 16; row += 4) {  // four rows at once: four independent sums
        columns8 sums[4];
        memcpy(sums, d[row], sizeof sums);
        for (uint32_t k = 0; k < K; ++k) {
            columns8 right;
            memcpy(&right, b[k], sizeof right);
            for (uint32_t i = 0; i < 4; ++i) sums[i] += a[row + i][k] * right;
        }
        memcpy(d[row], sums, sizeof sums);
    }
}

// The 16 x 16 matrix A; each lane holds four pairs of it. (A pair may also be four bytes of a 16 x 32 matrix.)
inline void place_a(uint16_t (&a)[16][16], const uint32_t* from, uint32_t lane) {
    const uint32_t g = lane / 4;
    const uint32_t t = lane % 4 * 2;
    memcpy(&a[g][t], &from[0], 4);
    memcpy(&a[g + 8][t], &from[1], 4);
    memcpy(&a[g][t + 8], &from[2], 4);
    memcpy(&a[g + 8][t + 8], &from[3], 4);
}

template <float (*WIDEN)(uint16_t)>
inline void multiply_m16n8k16(const lane_operands* lanes) {
    uint16_t a_bits[16][16];
    uint16_t b_bits[16][8];
    float a[16][16];
    float b[16][8];
    float d[16][8];
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const uint32_t g = lane / 4;
        const uint32_t t = lane % 4 * 2;
        place_a(a_bits, static_cast<const uint32_t*>(lanes[lane].input), lane);
        for (uint32_t half = 0; half < 2; ++half) {
            b_bits[t + half * 8][g] = static_cast<uint16_t>(lanes[lane].words[half]);
            b_bits[t + half * 8 + 1][g] = static_cast<uint16_t>(lanes[lane].words[half] >> 16);
        }
        const auto* sums = static_cast<const float*>(lanes[lane].result);
        memcpy(&d[g][t], &sums[0], 8);
        memcpy(&d[g + 8][t], &sums[2], 8);
    }
    for (uint32_t i = 0; i < 256; ++i) (&a[0][0])[i] = WIDEN((&a_bits[0][0])[i]);
    for (uint32_t i = 0; i < 128; ++i) (&b[0][0])[i] = WIDEN((&b_bits[0][0])[i]);
    add_product(d, a, b);
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        auto* sums = static_cast<float*>(lanes[lane].result);
        memcpy(&sums[0], &d[lane / 4][lane % 4 * 2], 8);
        memcpy(&sums[2], &d[lane / 4 + 8][lane % 4 * 2], 8);
    }
}

inline bool meet_for_mma(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, source at) {
    lane_operands& mine = my_operands();
    mine.result = d;
    mine.input = a;
    mine.words[0] = b0;
    mine.words[1] = b1;
    return meet(primitive::mma_m16n8k16, at);
}

void mma_m16n8k16_fp16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, source at) {
    if (meet_for_mma(d, a, b0, b1, at)) multiply_m16n8k16<widen_fp16>(warp_of(this_thread()).operands);
}

void mma_m16n8k16_bf16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, source at) {
    if (meet_for_mma(d, a, b0, b1, at)) multiply_m16n8k16<widen_bf16>(warp_of(this_thread()).operands);
}

}  // namespace kgen::emulator
