// Warp-wide primitives, except the MMA: shuffles, votes, ldmatrix and stmatrix. Each lane stores its operands; the last
// lane does the work for all.
#pragma once

namespace kgen::emulator {

inline lane_operands& my_operands() { return warp_of(this_thread()).operands[current->lane]; }

uint32_t warp_index(source at) {
    meet(primitive::warp_index, at);
    return current->warp;
}

float shuffle_xor(float value, int mask, source at) {
    lane_operands& mine = my_operands();
    mine.value = value;
    mine.words[0] = static_cast<uint32_t>(mask);
    const bool last = meet(primitive::shuffle_xor, at);
    warp& w = warp_of(this_thread());
    if (last) {
        for (uint32_t lane = 0; lane < LANES; ++lane) {
            const uint32_t from = lane ^ w.operands[lane].words[0];
            w.results[lane] = w.operands[from < LANES ? from : lane].value;
        }
    }
    return w.results[current->lane];
}

int64_t shuffle_xor(int64_t value, int mask, source at) {
    // A result is 32 bits, so the two halves are exchanged one after the other, as on a GPU.
    const auto half = [&](uint32_t word) {
        float bits;
        memcpy(&bits, &word, sizeof bits);
        bits = shuffle_xor(bits, mask, at);
        memcpy(&word, &bits, sizeof word);
        return word;
    };
    const auto all = static_cast<uint64_t>(value);
    const uint64_t low = half(static_cast<uint32_t>(all)), high = half(static_cast<uint32_t>(all >> 32));
    return static_cast<int64_t>(high << 32 | low);
}

bool warp_any(bool value, source at) {
    my_operands().words[0] = value;
    const bool last = meet(primitive::warp_any, at);
    warp& w = warp_of(this_thread());
    if (last) {
        uint32_t any = 0;
        for (const lane_operands& o : w.operands) any |= o.words[0];
        std::fill_n(w.results, LANES, static_cast<float>(any));
    }
    return w.results[current->lane] != 0.0f;
}

uint32_t warp_ballot(bool value, source at) {
    my_operands().words[0] = value;
    const bool last = meet(primitive::warp_ballot, at);
    warp& w = warp_of(this_thread());
    if (last) {
        uint32_t all = 0;
        for (uint32_t lane = 0; lane < LANES; ++lane) all |= w.operands[lane].words[0] << lane;
        for (float& result : w.results) memcpy(&result, &all, sizeof all);
    }
    uint32_t votes;
    memcpy(&votes, &w.results[current->lane], sizeof votes);
    return votes;
}

uint32_t shuffle(uint32_t value, int lane, source at) {
    lane_operands& mine = my_operands();
    mine.words[0] = value;
    mine.words[1] = static_cast<uint32_t>(lane);
    const bool last = meet(primitive::shuffle, at);
    warp& w = warp_of(this_thread());
    if (last) {
        for (uint32_t to = 0; to < LANES; ++to) memcpy(&w.results[to], &w.operands[w.operands[to].words[1] % LANES].words[0], sizeof(uint32_t));
    }
    uint32_t received;
    memcpy(&received, &w.results[current->lane], sizeof received);
    return received;
}

void warp_meet(source at) { meet(primitive::warp_meet, at); }

// The 32 rows of 16 bytes addressed by the lanes of the warp; a row that is out of bounds is NaN.
inline void gather_rows(uint16_t (&rows)[LANES][8], const use& used) {
    count_rows(used);
    const uint32_t index = current->warp;
    const warp& w = self.warps[index];
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const uint32_t address = w.operands[lane].words[0];
        const unsigned char* row = shared.at(address, CHUNK, used, index, lane);
        if (row == nullptr) {
            memset(rows[lane], POISON, CHUNK);
            continue;
        }
        memcpy(rows[lane], row, CHUNK);
        races.read({address - SHARED_BASE, 0xffff, ALL_LANES, index, w.step - 1, used});
    }
}

void ldmatrix_x4(uint32_t* fragment, uint32_t address, source at) {
    lane_operands& mine = my_operands();
    mine.result = fragment;
    mine.words[0] = address;
    if (!meet(primitive::ldmatrix_x4, at)) return;
    uint16_t rows[LANES][8];
    gather_rows(rows, {primitive::ldmatrix_x4, at});
    const warp& w = warp_of(this_thread());
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        auto* result = static_cast<uint32_t*>(w.operands[lane].result);
        for (uint32_t matrix = 0; matrix < 4; ++matrix) memcpy(&result[matrix], &rows[matrix * 8 + lane / 4][lane % 4 * 2], 4);
    }
}

void ldmatrix_x4_transposed(uint32_t* fragment, uint32_t address, source at) {
    lane_operands& mine = my_operands();
    mine.result = fragment;
    mine.words[0] = address;
    if (!meet(primitive::ldmatrix_x4_transposed, at)) return;
    uint16_t rows[LANES][8];
    gather_rows(rows, {primitive::ldmatrix_x4_transposed, at});
    const warp& w = warp_of(this_thread());
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        auto* result = static_cast<uint32_t*>(w.operands[lane].result);
        for (uint32_t matrix = 0; matrix < 4; ++matrix) {
            const uint32_t row = matrix * 8 + lane % 4 * 2;
            result[matrix] = rows[row][lane / 4] | static_cast<uint32_t>(rows[row + 1][lane / 4]) << 16;
        }
    }
}

// Writes the 32 rows of 16 bytes to the addresses of the lanes of the warp. A row counts as written by the lane that
// addresses it, just after the warp-wide primitive.
inline void scatter_rows(const uint16_t (&rows)[LANES][8], const use& used) {
    count_rows(used);
    const uint32_t index = current->warp;
    const warp& w = self.warps[index];
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const uint32_t address = w.operands[lane].words[0];
        unsigned char* row = shared.at(address, CHUNK, used, index, lane);
        if (row == nullptr) continue;
        races.write({address - SHARED_BASE, 0xffff, static_cast<uint8_t>(lane), index, w.step, used});
        memcpy(row, rows[lane], CHUNK);
    }
}

inline bool meet_for_stmatrix(uint32_t address, const uint32_t* fragment, primitive which, source at) {
    lane_operands& mine = my_operands();
    mine.input = fragment;
    mine.words[0] = address;
    return meet(which, at);
}

void stmatrix_x4(uint32_t address, const uint32_t* fragment, source at) {
    if (!meet_for_stmatrix(address, fragment, primitive::stmatrix_x4, at)) return;
    uint16_t rows[LANES][8];
    const warp& w = warp_of(this_thread());
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const auto* brought = static_cast<const uint32_t*>(w.operands[lane].input);
        for (uint32_t matrix = 0; matrix < 4; ++matrix) memcpy(&rows[matrix * 8 + lane / 4][lane % 4 * 2], &brought[matrix], 4);
    }
    scatter_rows(rows, {primitive::stmatrix_x4, at});
}

void stmatrix_x4_transposed(uint32_t address, const uint32_t* fragment, source at) {
    if (!meet_for_stmatrix(address, fragment, primitive::stmatrix_x4_transposed, at)) return;
    uint16_t rows[LANES][8];
    const warp& w = warp_of(this_thread());
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const auto* brought = static_cast<const uint32_t*>(w.operands[lane].input);
        for (uint32_t matrix = 0; matrix < 4; ++matrix) {
            const uint32_t row = matrix * 8 + lane % 4 * 2;
            rows[row][lane / 4] = static_cast<uint16_t>(brought[matrix]);
            rows[row + 1][lane / 4] = static_cast<uint16_t>(brought[matrix] >> 16);
        }
    }
    scatter_rows(rows, {primitive::stmatrix_x4_transposed, at});
}

}  // namespace kgen::emulator
