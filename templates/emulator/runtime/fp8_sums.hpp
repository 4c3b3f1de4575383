// Sums of E4M3 products as computed by Hopper's tensor cores (QGMMA), with fewer bits than fp32. 32 products and the
// value of D are summed at once. Each of them is truncated toward zero, FP8_FRACTION_BITS after the power of two of the
// largest, and so is the sum, relative to its own. A product's power of two is that of its factors (1.5 * 1.5 counts as
// 1), and that of a subnormal E4M3 is 2^-6.
//
// NVIDIA does not document this. The algorithm is that of MMA-Sim (Xie et al., "MMA-Sim: Bit-Accurate Reference Model
// of Tensor Cores and Matrix Cores", arXiv 2511.10909; WGMMASim in github.com/microsoft/MMA-Sim). DeepSeek-V3's report
// (arXiv 2412.19437, 3.5.2) reports "the highest 14 bits": the leading one and these. An H100 gave the same bits as
// add_fp8_product() for 59 million sums of random operands, among them zeros, subnormal numbers, NaNs, and a D with all
// bits of an fp32. Attention's oracle (`arithmetic.rs`) has the same algorithm.
#pragma once

namespace kgen::emulator {

constexpr int FP8_FRACTION_BITS = 13;

constexpr int32_t EXPONENT_BITS = 0x7f800000;  // exponent field of fp32; a value masked with it is its power of two
constexpr int32_t KEPT_BITS = ~((1 << (23 - FP8_FRACTION_BITS)) - 1);

// Four columns: compilers generate faster code than with eight.
typedef float columns4 __attribute__((vector_size(16), aligned(4)));
typedef int32_t integers4 __attribute__((vector_size(16), aligned(4)));

// Four numbers: `finite` is 0 for those that are not finite, `rest` is 0 for those that are.
struct finite_parts {
    columns4 finite, rest;
    explicit finite_parts(const float* from) {
        memcpy(&rest, from, sizeof rest);
        finite = rest - rest == 0.0f ? rest : columns4{};
        rest -= finite;
    }
};

// COUNT rows of WIDTH E4M3 numbers, and the powers of two that they count as.
template <uint32_t COUNT, uint32_t WIDTH>
struct fp8_factors {
    float values[COUNT][WIDTH], powers[COUNT][WIDTH];
    columns4 in_row[COUNT] = {}, in_column[WIDTH / 4] = {};  // NaN where there is one
    explicit fp8_factors(const float (&from)[COUNT][WIDTH]) {
        for (uint32_t i = 0; i < COUNT * WIDTH; i += 4) {
            const finite_parts parts(from[0] + i);
            in_row[i / WIDTH] += parts.rest;
            in_column[i % WIDTH / 4] += parts.rest;
            columns4 power = (columns4)((integers4)parts.finite & EXPONENT_BITS);
            power = parts.finite == 0.0f ? columns4{} : power < 0x1p-6f ? columns4{} + 0x1p-6f : power;
            memcpy(values[0] + i, &parts.finite, sizeof power);
            memcpy(powers[0] + i, &power, sizeof power);
        }
    }
};

// d += a b.
template <uint32_t K>
inline void add_fp8_product(float (&d)[16][8], const fp8_factors<16, K>& left, const float (&b)[K][8]) {
    const fp8_factors<K, 8> right(b);
    for (uint32_t row = 0; row < 16; ++row) {
        const columns4& rest = left.in_row[row];
        const float spoilt = rest[0] + rest[1] + rest[2] + rest[3];
        for (uint32_t column = 0; column < 8; column += 4) {
            const finite_parts sum(d[row] + column);
            columns4 largest = (columns4)((integers4)sum.finite & EXPONENT_BITS);
            for (uint32_t k = 0; k < K; ++k) {
                columns4 power;
                memcpy(&power, right.powers[k] + column, sizeof power);
                power *= left.powers[row][k];
                largest = largest < power ? power : largest;
            }
            largest = largest < 0x1p-100f ? columns4{} + 0x1p-100f : largest;
            const columns4 in_units = static_cast<float>(1 << FP8_FRACTION_BITS) / largest;
            integers4 units = __builtin_convertvector(sum.finite * in_units, integers4);
            for (uint32_t k = 0; k < K; ++k) {
                columns4 term;
                memcpy(&term, right.values[k] + column, sizeof term);
                units += __builtin_convertvector(term * left.values[row][k] * in_units, integers4);
            }
            columns4 result = __builtin_convertvector(units, columns4) / in_units;
            result = (columns4)((integers4)result & KEPT_BITS) + sum.rest + right.in_column[column / 4] + spoilt;
            memcpy(d[row] + column, &result, sizeof result);
        }
    }
}

}  // namespace kgen::emulator
