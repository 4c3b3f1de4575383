// Part of primitives.cpp: the FP8 primitives.
#pragma once

// Decodes an E4M3 byte by definition.
double e4m3_value(uint32_t b) {
    if ((b & 0x7f) == 0x7f) return NAN;
    const double magnitude = (b >> 3 & 15) == 0 ? ldexp(b & 7, -9) : ldexp(8 + (b & 7), static_cast<int>(b >> 3 & 15) - 10);
    return b & 0x80 ? -magnitude : magnitude;
}

uint32_t e4m3_of(float x) { return pack_e4m3(x, 0, 0, 0); }

// Decodes an E5M2 byte by definition.
double e5m2_value(uint32_t b) {
    const double magnitude = (b >> 2 & 31) == 0 ? ldexp(b & 3, -16) : ldexp(4 + (b & 3), static_cast<int>(b >> 2 & 31) - 17);
    return b & 0x80 ? -magnitude : magnitude;
}

// True if a rounding function is exact for every finite byte up to `largest`, rounds to nearest even, and saturates.
template <class Round>
bool rounds(Round round, double (*value_of)(uint32_t), uint32_t largest) {
    bool right = round(INFINITY) == largest && round(-1e9f) == (largest | 0x80) && round(NAN) == 0x7f && round(-0.0f) == 0x80;
    for (uint32_t b = 0; b < largest; ++b) {
        const auto value = static_cast<float>(value_of(b)), next = static_cast<float>(value_of(b + 1));
        const float halfway = (value + next) / 2;
        right = right && round(value) == b && round(-next) == ((b + 1) | 0x80);
        right = right && round(halfway) == b + b % 2 && round(nextafterf(halfway, 0)) == b && round(nextafterf(halfway, 1e9f)) == b + 1;
    }
    return right;
}

void fp8_roundings() {
    expect(rounds([](float x) { return pack_e5m2(x, 0, 0, 0); }, e5m2_value, 0x7b), "pack_e5m2 rounds to nearest, ties to even, and saturates at 57344");
    expect(pack_e5m2(1, -2, 0, 57345) == 0x7b00c03cu, "pack_e5m2 puts the first value into the lowest byte");
    expect(rounds(round_to_e4m3, e4m3_value, 0x7e), "round_to_e4m3 rounds like pack_e4m3");
    expect(rounds(round_to_e5m2, e5m2_value, 0x7b), "round_to_e5m2 rounds like pack_e5m2");
}

void fp8_numbers() {
    bool exact = true;
    bool nearest = true;
    for (uint32_t b = 0; b < 0x7e; ++b) {  // all finite values except the largest, and their midpoints to the next
        const auto value = static_cast<float>(e4m3_value(b));
        const auto next = static_cast<float>(e4m3_value(b + 1));
        const float halfway = (value + next) / 2;
        exact = exact && pack_e4m3(value, -value, 0, value) == (b | (b | 0x80) << 8 | b << 24);
        nearest = nearest && e4m3_of(halfway) == b + b % 2 && e4m3_of(nextafterf(halfway, 0)) == b && e4m3_of(nextafterf(halfway, 1e9f)) == b + 1;
    }
    expect(exact, "pack_e4m3 is exact for every finite value and puts the first into the lowest byte");
    expect(nearest, "pack_e4m3 rounds to nearest, ties to even");
    expect(pack_e4m3(448, 465, -1e9f, infinity()) == 0x7efe7e7eu, "pack_e4m3 saturates at 448");
    expect(pack_e4m3(NAN, 0, 0, 0) == 0x7f, "pack_e4m3 keeps NaN");
    expect(choose_bytes<0x6420>(0x33221100u, 0x77665544u) == 0x66442200u && choose_bytes<0x7531>(0x33221100u, 0x77665544u) == 0x77553311u &&
               choose_bytes<0x0123>(0x33221100u, 0x77665544u) == 0x00112233u,
           "choose_bytes selects the bytes of its selector's digits");
    float low, high;
    unpack<fp16>(0xc5003c01u, low, high);
    expect(low == 1 + 0x1p-10f && high == -5, "unpack<fp16> returns both values");
}

// True if widen_bytes converts every byte to its value divided by the unit, in the right pair and half, and non-finite
// bytes as fp8_to_half.cuh documents. `first_not_finite`: the first such byte without a sign.
template <class From, class To>
bool widens(double (*value_of)(uint32_t), uint32_t first_not_finite, double (*beyond)(uint32_t)) {
    bool right = true;
    for (uint32_t b = 0; b < 256; ++b) {
        const uint32_t others[4] = {0x00, 0xff, b ^ 0x80, b ^ 0x55};
        for (const uint32_t other : others) {
            for (int place = 0; place < 4; ++place) {
                const uint32_t bytes = (other * 0x01010101u & ~(0xffu << place * 8)) | b << place * 8;
                uint32_t pairs[2];
                widen_bytes<From, To>(bytes, pairs[0], pairs[1]);
                float halves[2];
                unpack<To>(pairs[place % 2], halves[0], halves[1]);
                const float got = halves[place / 2];
                const bool finite = (b & 0x7f) < first_not_finite;
                const double expected = (finite ? value_of(b) : beyond(b)) / FP8_UNIT<From, To>;
                right = right && (isnan(expected) ? isnan(got) : got == expected) && signbit(got) == (b >= 0x80);
            }
        }
    }
    return right;
}

void fp8_widened() {
    // 2^-133 and -2^-133, multiplied by 2^120.
    expect(multiply_bf16_pairs(0x80010001u, 0x7b807b80u) == 0xb9003900u, "multiply_bf16_pairs keeps subnormal numbers");
    expect(multiply_bf16_pairs(0x80000000u, 0x3f803f80u) == 0x80000000u, "multiply_bf16_pairs keeps the sign of 0");
    const auto e5m2_bits = [](uint32_t b) {
        const double fraction = (b & 3) == 0 ? INFINITY : NAN;
        return b & 0x80 ? -fraction : fraction;
    };
    expect(widens<e4m3, fp16>(e4m3_value, 0x7f, [](uint32_t b) { return b & 0x80 ? -480.0 : 480.0; }), "widen_bytes converts E4M3 to fp16");
    expect(widens<e4m3, bf16>(e4m3_value, 0x7f, [](uint32_t b) { return b & 0x80 ? -480.0 : 480.0; }), "widen_bytes converts E4M3 to bf16");
    expect(widens<e5m2, fp16>(e5m2_value, 0x7c, e5m2_bits), "widen_bytes converts E5M2 to fp16");
    expect(widens<e5m2, bf16>(e5m2_value, 0x7c, e5m2_value), "widen_bytes converts E5M2 to bf16");
}

// A[i][k] and B[k][n] of the FP8 products: small numbers that are exact in E4M3 and differ in every row and column.
float fp8_a(int i, int k) { return static_cast<float>((i * 5 + k * 3) % 17 - 8); }
float fp8_b(int k, int n) { return static_cast<float>((k * 7 + n * 11) % 15 - 7) / 4; }

struct fp8_fragments {
    uint32_t a[4], b[2];
};

fp8_fragments fp8_operands_of_lane() {
    const int g = static_cast<int>(lane_index()) / 4, t = static_cast<int>(lane_index()) % 4;
    const auto a = [&](int row, int k) { return pack_e4m3(fp8_a(row, k), fp8_a(row, k + 1), fp8_a(row, k + 2), fp8_a(row, k + 3)); };
    const auto b = [&](int k) { return pack_e4m3(fp8_b(k, g), fp8_b(k + 1, g), fp8_b(k + 2, g), fp8_b(k + 3, g)); };
    return {{a(g, 4 * t), a(g + 8, 4 * t), a(g, 4 * t + 16), a(g + 8, 4 * t + 16)}, {b(4 * t), b(4 * t + 16)}};
}

// Element `e` of a lane's D: scale(row, column) * sum over k, on top of 3 * column.
template <class Scale>
float fp8_sum(int e, Scale scale) {
    const int row = static_cast<int>(lane_index()) / 4 + e / 2 * 8, column = static_cast<int>(lane_index()) % 4 * 2 + e % 2;
    float sum = 0;
    for (int k = 0; k < 32; ++k) sum += fp8_a(row, k) * fp8_b(k, column);
    return 3 * static_cast<float>(column) + sum * scale(row, column);
}

float fp8_start(int e) { return 3 * static_cast<float>(lane_index() % 4 * 2 + static_cast<uint32_t>(e) % 2); }

void tell_whether(bool right) { store_global(output + lane_index(), right ? 1.0f : 0.0f); }

void fp8_products(int) {
    const fp8_fragments mine = fp8_operands_of_lane();
    float d[4];
    for (int e = 0; e < 4; ++e) d[e] = fp8_start(e);
    mma_m16n8k32(d, mine.a, mine.b[0], mine.b[1]);
    bool right = true;
    for (int e = 0; e < 4; ++e) right = right && d[e] == fp8_sum(e, [](int, int) { return 1.0f; });
    tell_whether(right);
}

void fp8_products_in_fp16(int) {
    const fp8_fragments mine = fp8_operands_of_lane();
    uint32_t d[2] = {pack<fp16>(fp8_start(0), fp8_start(1)), pack<fp16>(fp8_start(2), fp8_start(3))};
    mma_m16n8k32_fp16(d, mine.a, mine.b[0], mine.b[1]);
    const auto one = [](int, int) { return 1.0f; };
    tell_whether(d[0] == pack<fp16>(fp8_sum(0, one), fp8_sum(1, one)) && d[1] == pack<fp16>(fp8_sum(2, one), fp8_sum(3, one)));
}

// 448 * 448 overflows fp16, and an fp16 sum has 11 bits: 2048 + 1 = 2048.
void fp16_sums_are_narrow(int) {
    const uint32_t most[4] = {0x7e, 0, 0, 0}, one[4] = {0x38, 0, 0, 0};
    uint32_t d[2] = {0, 0}, e[2] = {pack<fp16>(2048, 2048), 0};
    mma_m16n8k32_fp16(d, most, 0x7e, 0);
    mma_m16n8k32_fp16(e, one, lane_index() % 4 == 0 ? 0x38 : 0, 0);
    tell_whether(d[0] == 0x7c007c00u && e[0] == pack<fp16>(2048, 2048));
}

// Passes every E4M3 byte through the MMA: the first 16 columns of A contain all 256, B selects eight columns at a time.
void widened_bytes(int) {
    const uint32_t g = lane_index() / 4, t = lane_index() % 4;
    const auto bytes = [&](uint32_t row) { return (row * 16 + t * 4) * 0x01010101u + 0x03020100u; };
    const auto finite = [](uint32_t word) {  // a NaN would make its whole row NaN
        for (uint32_t i = 0; i < 32; i += 8) {
            if ((word >> i & 0x7f) == 0x7f) word &= ~(0xffu << i);
        }
        return word;
    };
    const uint32_t a[4] = {finite(bytes(g)), finite(bytes(g + 8)), 0, 0};
    bool right = true;
    for (uint32_t first = 0; first < 16; first += 8) {
        const uint32_t column = first + g;
        float d[4] = {};
        mma_m16n8k32(d, a, column / 4 == t ? 0x38u << column % 4 * 8 : 0, 0);
        for (uint32_t e = 0; e < 4; ++e) {
            const uint32_t byte = (g + e / 2 * 8) * 16 + first + t * 2 + e % 2;
            right = right && ((byte & 0x7f) == 0x7f ? d[e] == 0 : d[e] == static_cast<float>(e4m3_value(byte)));
        }
    }
    float d[4] = {};
    const uint32_t nan[4] = {g == 3 && t == 0 ? 0x7fu : 0, 0, 0, 0};
    mma_m16n8k32(d, nan, 0, 0);
    tell_whether(right && (g == 3 ? d[0] != d[0] : d[0] == 0) && d[2] == 0);
}

// Scales 2^(row % 4 - 2) of rows and 2^(column - 3) of columns, in the selected lanes and bytes; all other bytes are
// NaN.
template <int BYTE_A, int PAIR_A, int BYTE_B, int LANE_B>
void fp8_block_scales(int) {
    const uint32_t g = lane_index() / 4, t = lane_index() % 4;
    const uint32_t row = g + t % 2 * 8;
    uint32_t scale_a = ~0u, scale_b = ~0u;
    if (t / 2 == PAIR_A) scale_a = ~(0xffu << BYTE_A * 8) | (125 + row % 4) << BYTE_A * 8;
    if (t == LANE_B) scale_b = ~(0xffu << BYTE_B * 8) | (124 + g) << BYTE_B * 8;
    const fp8_fragments mine = fp8_operands_of_lane();
    float d[4];
    for (int e = 0; e < 4; ++e) d[e] = fp8_start(e);
    mma_m16n8k32_block_scaled<BYTE_A, PAIR_A, BYTE_B, LANE_B>(d, mine.a, mine.b[0], mine.b[1], scale_a, scale_b);
    bool right = true;
    for (int e = 0; e < 4; ++e) right = right && d[e] == fp8_sum(e, [](int i, int n) { return ldexpf(1, i % 4 - 2 + n - 3); });
    tell_whether(right);
}

void fp8_unit_scales(int) {
    const fp8_fragments mine = fp8_operands_of_lane();
    float plain[4] = {}, scaled[4] = {};
    mma_m16n8k32(plain, mine.a, mine.b[0], mine.b[1]);
    mma_m16n8k32_block_scaled(scaled, mine.a, mine.b[0], mine.b[1], UNIT_SCALE, UNIT_SCALE);
    tell_whether(memcmp(plain, scaled, sizeof plain) == 0);
}

// Two 16x16 matrices of bytes; row r of each contains 16 r .. 16 r + 15 plus the matrix's number, modulo 256.
void byte_matrices(int) {
    words4 row;
    uint8_t bytes[16];
    for (uint32_t i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(lane_index() % 16 * 16 + i + lane_index() / 16);
    memcpy(&row, bytes, sizeof row);
    store_shared(shared_base() + lane_index() * 16, row);
    warp_sync();
    uint32_t fragment[4];
    ldmatrix_b8_x2_transposed(fragment, shared_base() + lane_index() * 16);
    bool right = true;
    for (uint32_t word = 0; word < 4; ++word) {
        const uint32_t column = lane_index() / 4 + word % 2 * 8;
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t from = lane_index() % 4 * 4 + i;
            right = right && (fragment[word] >> i * 8 & 0xff) == ((from * 16 + column + word / 2) & 0xff);
        }
    }
    tell_whether(right);
}

void fp8_meaning() {
    expect(runs(fp8_products) && all_ones(), "mma of E4M3 is a matrix product");
    expect(runs(widened_bytes) && all_ones(), "mma of E4M3 is exact for every byte, subnormals included, and a NaN makes its row NaN");
    expect(runs(fp8_products_in_fp16) && all_ones(), "mma of E4M3 with fp16 sums is a matrix product");
    expect(runs(fp16_sums_are_narrow) && all_ones(), "... whose sums round to 11 bits and overflow to infinity");
    expect(runs(fp8_block_scales<0, 0, 0, 0>) && all_ones(), "the block-scaled mma scales every row of A and column of B");
    expect(runs(fp8_block_scales<2, 1, 3, 2>) && all_ones(), "... with the bytes and lanes given by its selectors");
    expect(runs(fp8_unit_scales) && all_ones(), "... and equals the plain mma if all scales are 1");
    expect(runs(byte_matrices) && all_ones(), "ldmatrix of bytes returns to each lane four rows of two columns of each matrix");
    expect(is_faulted("unwritten", [](int) {
               uint32_t fragment[4];
               ldmatrix_b8_x2_transposed(fragment, shared_base() + lane_index() * 16);
           }),
           "the race detector treats ldmatrix of bytes as a read");
}

// Lane l copies the first l % 17 of its 16 bytes.
void partial_copies(int) {
    cp_async_partial(shared_base() + thread_index() * 16, input + thread_index() * 8, thread_index() % 17);
    cp_async_commit();
    cp_async_wait<0>();
    const words4 value = load_shared(shared_base() + thread_index() * 16);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    const auto* source = reinterpret_cast<const uint8_t*>(input + thread_index() * 8);
    bool right = true;
    for (uint32_t i = 0; i < 16; ++i) right = right && bytes[i] == (i < thread_index() % 17 ? source[i] : 0);
    tell_whether(right);
}

void fp8_memory() {
    for (uint16_t i = 0; i < 1024; ++i) input[i] = static_cast<uint16_t>(i * 259 + 1);
    expect(runs(partial_copies) && all_ones(), "cp_async_partial copies the given number of bytes and fills the rest with zeros");
    const auto last_eight = [](int) {
        cp_async_partial(shared_base() + thread_index() * 16, input + 1016, 8);
        cp_async_commit();
        cp_async_wait<0>();
    };
    kgen_emulator_reset(1);
    kgen_emulator_tensor("short", input, 2 * 1020, nullptr, 2, 0);
    expect(launch<int>(last_eight, "words", 1, 32, SHARED_BYTES, 0, nullptr) == KGEN_SUCCESS, "... and reads no more than those");
    expect(is_faulted("out of bounds", [](int) { cp_async_partial(shared_base() + thread_index() * 16, input + 1024, 8); }), "... which must be there");
    expect(is_faulted("misaligned", [](int) { cp_async_partial(shared_base() + thread_index() * 16, input + 4, 8); }), "... from a multiple of 16");
    expect(runs([](int) {
               const auto* bytes = reinterpret_cast<const uint8_t*>(input);
               const float low = static_cast<float>(load_global(bytes + 2 * thread_index())), high = static_cast<float>(load_global(bytes + 2 * thread_index() + 1));
               tell_whether(low + 256 * high == static_cast<float>(input[thread_index()]));
           }) && all_ones(),
           "load_global of bytes accepts any alignment");
    expect(runs([](int) { store_global(static_cast<void*>(output + 2 * thread_index()), words2{bits(1.0f), bits(1.0f)}); }) && all_ones(), "store_global stores two words");
    expect(is_faulted("misaligned", [](int) { store_global(static_cast<void*>(output + 1), words2{}); }), "... at a multiple of 8");
}

void fp8() {
    fp8_numbers();
    fp8_roundings();
    fp8_widened();
    fp8_meaning();
    fp8_memory();
}
