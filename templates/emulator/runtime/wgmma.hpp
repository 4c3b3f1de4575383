// Products of a warpgroup (PTX ISA, "wgmma.mma_async"). Each warp computes its 16 rows by itself, as late as possible:
// a product reads shared memory and adds to D at the wgmma_wait that forces its group to complete. From its issue until
// a wgmma_wait or hold names them, the registers of D are NaN, so premature use or overwriting shows.
#pragma once

namespace kgen::emulator {

// A decoded matrix descriptor: panels of `width` bytes per row.
struct shared_operand {
    uint32_t start, leading, stride;
    uint32_t width;
    uint8_t swizzle;  // as in tensor_map_contents
};

// D of one warp while products add to it.
struct accumulator {
    float* registers[LANES];
    std::vector<float> sums;  // [tile][row][column of eight]
    uint32_t tiles;
    uint32_t in_flight;  // products
    uint32_t returned;   // lanes whose registers hold the sums, all products being complete
    use issued;          // the last product
};

struct pending_product {
    use issued;
    wgmma_operands operands;
    shared_operand a, b;      // operands in shared memory
    uint16_t a_bits[16][16];  // A, if it was in registers: 32 bytes per row
    std::shared_ptr<accumulator> d;
    uint32_t group;
    bool a_in_registers() const { return operands.registers != nullptr; }
};

// The registers of a D at the last wgmma_fence, or when they were returned to the warp if that was later.
struct fenced_registers {
    float* registers[LANES];
    std::vector<float> values;  // [lane][register]
};

// The registers of an A, and their contents at the last wgmma_fence.
struct fenced_a {
    static constexpr uint32_t REGISTERS = 4;

    const uint32_t* registers[LANES];
    uint32_t values[LANES][REGISTERS];

    void keep() {
        for (uint32_t lane = 0; lane < LANES; ++lane) memcpy(values[lane], registers[lane], sizeof values[lane]);
    }
};

// A warp's products in flight.
struct warp_products {
    std::vector<pending_product> pending;  // in the order of issue
    std::vector<std::shared_ptr<accumulator>> accumulators;
    uint32_t open_group;  // number of the group that the next commit closes
    uint32_t waits;
    bool fenced;  // since the last wait
    std::vector<fenced_registers> returned;  // each D that has been returned to the warp
    std::vector<fenced_a> a;  // each A that has been in registers
};

static std::vector<warp_products> products(MAX_WARPS);  // of the running block

void forget_products() {
    for (warp_products& p : products) p = {};
}

constexpr uint32_t BYTES_OF_STEP = 32;  // of a row of A: 16 elements or 32
constexpr uint32_t K_OF_TRANSPOSED = 16;
constexpr int WGMMA_CAPABILITY = 90;
constexpr uint32_t FLOATS_OF_TILE = 16 * 8;

void check_matrix_descriptor(uint32_t address, uint32_t stride, source at) {
    if (is_of_cluster(address)) return complain_of_warp("cluster", {primitive::matrix_descriptor, at}, beyond_reach(address));
    if (address % CHUNK == 0 && stride % CHUNK == 0) return;
    complain_of_warp("misaligned", {primitive::matrix_descriptor, at}, "address " + std::to_string(address) + " and stride " + std::to_string(stride) +
                                                                      " are not both multiples of 16");
}

// False, with a report, if the bits are not a descriptor that the emulator supports.
inline bool decode(uint64_t descriptor, shared_operand& operand, const use& used) {
    const auto field = [&](uint32_t first) { return static_cast<uint32_t>(descriptor >> first & 0x3fff) * CHUNK; };
    const auto mode = static_cast<uint32_t>(descriptor >> 62);
    operand = {field(0), field(16), field(32), 16u << (4 - mode), static_cast<uint8_t>(4 - mode)};
    constexpr uint64_t used_bits = 3ull << 62 | 0x3fffull << 32 | 0x3fffull << 16 | 0x3fffull;
    if (mode == 0 || (descriptor & ~used_bits) != 0) {
        complain_of_warp("wgmma", used, "a matrix descriptor without swizzle, with a base offset or with other bits that the emulator does not know");
        return false;
    }
    if ((operand.start / 128 & (operand.width / 16 - 1)) != 0) {
        complain_of_warp("misaligned", used, "an operand starts at shared memory offset " + std::to_string(operand.start - SHARED_BASE) +
                                                 ", not in the first 128 bytes of its swizzle's pattern");
        return false;
    }
    return true;
}

// Calls action(address, line, byte) for each chunk of `bytes` bytes of each of the lines from `first` on: the rows of a
// panel, which continue in the next panel if they are longer than one.
template <class Action>
inline void each_chunk(const shared_operand& o, uint32_t first, uint32_t lines, uint32_t bytes, Action&& action) {
    for (uint32_t line = 0; line < lines; ++line) {
        const uint32_t row = first + line;
        for (uint32_t byte = 0; byte < bytes; byte += CHUNK) {
            const uint32_t plain = o.start + byte / o.width * o.leading + byte % o.width + row % 8 * o.width + row / 8 * o.stride;
            action(swizzled_address(plain, o.swizzle), line, byte);
        }
    }
}

// The rows of A that produce the warp's rows of D.
template <class Action>
inline void each_chunk_of_a(const pending_product& p, uint32_t warp_index, Action&& action) {
    if (!p.a_in_registers()) each_chunk(p.a, warp_index % WARPS_OF_GROUP * 16, 16, BYTES_OF_STEP, action);
}

template <class Action>
inline void each_chunk_of_b(const pending_product& p, Action&& action) {
    const uint32_t columns = p.operands.columns;
    const bool transposed = p.operands.transposed;
    each_chunk(p.b, 0, transposed ? K_OF_TRANSPOSED : columns, transposed ? columns * 2 : BYTES_OF_STEP, action);
}

// The chunks that may be read until the warp has waited: all of A, since it is not specified which rows the hardware
// reads for which warp.
template <class Action>
inline void each_chunk_of_both(const pending_product& p, Action&& action) {
    if (!p.a_in_registers()) each_chunk(p.a, 0, WARPS_OF_GROUP * 16, BYTES_OF_STEP, action);
    each_chunk_of_b(p, action);
}

inline access product_access(const pending_product& p, uint32_t warp_index, uint32_t address) {
    return {address - SHARED_BASE, 0xffff, ALL_LANES, warp_index, self.warps[warp_index].step - 1, p.issued};
}

// Calls action(register, sum) for each of the lane's registers.
template <class Action>
inline void each_register(accumulator& d, uint32_t lane, Action&& action) {
    for (uint32_t tile = 0; tile < d.tiles; ++tile) {
        for (uint32_t e = 0; e < 4; ++e) action(d.registers[lane][tile * 4 + e], d.sums[tile * FLOATS_OF_TILE + d_row(lane, e) * 8 + d_column(lane, e)]);
    }
}

inline bool is_poisoned(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits == UINT32_MAX;
}

inline void keep_fenced(fenced_registers& d) {
    const size_t count = d.values.size() / LANES;
    for (uint32_t lane = 0; lane < LANES; ++lane) memcpy(&d.values[lane * count], d.registers[lane], count * sizeof(float));
}

// Reports registers that have changed since the last wgmma_fence. Only registers that have been a D before are known.
inline void check_fenced(const warp_products& mine, const accumulator& d, const use& used) {
    for (const fenced_registers& f : mine.returned) {
        const size_t count = f.values.size() / LANES;
        if (f.registers[0] != d.registers[0] || count != d.tiles * 4) continue;
        for (uint32_t lane = 0; lane < LANES; ++lane) {
            if (memcmp(&f.values[lane * count], d.registers[lane], count * sizeof(float)) == 0) continue;
            return complain_of_warp("wgmma", used, "D has been written to since the last wgmma_fence, by lane " + std::to_string(lane));
        }
    }
}

inline const wgmma_operands& operands_of(const lane_operands& lane) { return *static_cast<const wgmma_operands*>(lane.input); }

// Reports registers of A, passed by the lanes, that have been written to since the last wgmma_fence. Only registers
// that have been an A before are compared; others are remembered.
inline void check_fenced_a(warp_products& mine, const lane_operands* lanes, const use& used) {
    const auto registers = [&](uint32_t lane) { return operands_of(lanes[lane]).registers; };
    const auto same = [&](const fenced_a& known) { return known.registers[0] == registers(0); };
    const auto known = std::find_if(mine.a.begin(), mine.a.end(), same);
    if (known == mine.a.end()) {
        fenced_a& a = mine.a.emplace_back();
        for (uint32_t lane = 0; lane < LANES; ++lane) a.registers[lane] = registers(lane);
        return a.keep();
    }
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        if (memcmp(known->values[lane], registers(lane), sizeof known->values[lane]) == 0) continue;
        return complain_of_warp("wgmma", used, "A has been written to since the last wgmma_fence, by lane " + std::to_string(lane));
    }
}

// The accumulator of the registers that the warp's lanes pass, with their current contents: the registers are NaN from
// here on. NULL, with a report, if some of them belong to another accumulator.
inline std::shared_ptr<accumulator> accumulator_of(warp_products& mine, const lane_operands* lanes, uint32_t tiles, bool accumulate, const use& used) {
    const auto* first = static_cast<const float*>(lanes[0].result);
    std::shared_ptr<accumulator> d;
    for (const std::shared_ptr<accumulator>& other : mine.accumulators) {
        if (other->registers[0] == first && other->tiles == tiles) {
            d = other;
        } else if (first < other->registers[0] + other->tiles * 4 && other->registers[0] < first + tiles * 4) {
            if (other->in_flight == 0) continue;
            complain_of_warp("wgmma", used, "D overlaps that of " + text_of(other->issued) + ", which is not finished and has another shape");
            return nullptr;
        }
    }
    if (d == nullptr) {
        d = std::make_shared<accumulator>();
        for (uint32_t lane = 0; lane < LANES; ++lane) d->registers[lane] = static_cast<float*>(lanes[lane].result);
        d->sums.resize(tiles * FLOATS_OF_TILE);
        d->tiles = tiles;
        d->returned = ~0u;
        mine.accumulators.push_back(d);
    }
    if (accumulate && d->returned == ~0u) check_fenced(mine, *d, used);
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        if ((d->returned >> lane & 1) == 0) continue;
        each_register(*d, lane, [](float& theirs, float& sum) {
            sum = theirs;
            memset(&theirs, POISON, sizeof theirs);
        });
    }
    d->returned = 0;
    d->issued = used;
    return d;
}

// Checks that all lanes pass the same operands.
inline bool lanes_agree(const lane_operands* lanes, const wgmma_operands& operands, const use& used) {
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const wgmma_operands& theirs = operands_of(lanes[lane]);
        if (theirs.a == operands.a && theirs.b == operands.b && theirs.accumulate == operands.accumulate) continue;
        complain_of_warp("wgmma", used, "its lanes bring different operands");
        return false;
    }
    return true;
}

// The last lane issues the product of its warp.
inline void issue(const wgmma_operands& operands, const use& used) {
    const uint32_t index = current->warp;
    warp_products& mine = products[index];
    const lane_operands* lanes = self.warps[index].operands;
    start_details();
    if (!come_as_warpgroup({used, {operands.a, operands.b, operands.accumulate}}, WGMMA_CAPABILITY) || !lanes_agree(lanes, operands, used)) return;
    if (!mine.fenced) complain_of_warp("wgmma", used, "no wgmma_fence has come before it since the warp's last wgmma_wait");
    pending_product p = {used, operands, {}, {}, {}, nullptr, mine.open_group};
    if ((!p.a_in_registers() && !decode(operands.a, p.a, used)) || !decode(operands.b, p.b, used)) return;
    p.d = accumulator_of(mine, lanes, operands.columns / 8, operands.accumulate, used);
    if (p.d == nullptr) return;
    if (p.a_in_registers()) check_fenced_a(mine, lanes, used);
    for (uint32_t lane = 0; p.a_in_registers() && lane < LANES; ++lane) place_a(p.a_bits, operands_of(lanes[lane]).registers, lane);
    bool inside = true;
    each_chunk_of_both(p, [&](uint32_t address, uint32_t, uint32_t) { inside = inside && shared.at(address, CHUNK, used, index, 0) != nullptr; });
    if (!inside) return;
    count_unmeasured(used);
    each_chunk_of_both(p, [&](uint32_t address, uint32_t, uint32_t) { races.proxy_reads(product_access(p, index, address)); });
    ++p.d->in_flight;
    mine.pending.push_back(std::move(p));
}

void wgmma(float* d, const wgmma_operands& operands, source at) {
    const primitive which = operands.transposed ? primitive::wgmma_transposed : operands.registers == nullptr ? primitive::wgmma : primitive::wgmma_registers;
    lane_operands& mine = my_operands();
    mine.result = d;
    mine.input = &operands;
    if (meet(which, at)) issue(operands, {which, at});
}

inline float value_of_e4m3(uint8_t bits) { return e4m3_values()[bits]; }

template <class Bits, float (*WIDEN)(Bits), size_t COUNT>
inline void widen(const void* from, float (&values)[COUNT]) {
    Bits bits[COUNT];
    memcpy(bits, from, sizeof bits);
    for (size_t i = 0; i < COUNT; ++i) values[i] = WIDEN(bits[i]);
}

template <class Bits, float (*WIDEN)(Bits)>
void multiply(const pending_product& p, uint32_t warp_index) {
    constexpr uint32_t k_of_product = BYTES_OF_STEP / sizeof(Bits), in_chunk = CHUNK / sizeof(Bits);
    static float b[32][k_of_product][8];  // [tile]
    float a[16][k_of_product];
    float chunk[in_chunk];
    const auto load = [&](uint32_t address) { widen<Bits, WIDEN>(shared.at(address, CHUNK, {}, 0, 0), chunk); };
    for (uint32_t row = 0; p.a_in_registers() && row < 16; ++row) widen<Bits, WIDEN>(p.a_bits[row], a[row]);
    each_chunk_of_a(p, warp_index, [&](uint32_t address, uint32_t row, uint32_t byte) {
        load(address);
        memcpy(&a[row][byte / sizeof(Bits)], chunk, sizeof chunk);
    });
    each_chunk_of_b(p, [&](uint32_t address, uint32_t line, uint32_t byte) {
        const uint32_t element = byte / sizeof(Bits);
        load(address);
        if (p.operands.transposed) {
            memcpy(b[element / 8][line], chunk, sizeof b[0][0]);
            return;
        }
        for (uint32_t i = 0; i < in_chunk; ++i) b[line / 8][element + i][line % 8] = chunk[i];
    });
    std::vector<float>& sums = p.d->sums;
    if (!p.operands.accumulate) std::fill(sums.begin(), sums.end(), 0.0f);
    const auto part = [&](uint32_t tile) -> auto& { return *reinterpret_cast<float(*)[16][8]>(&sums[tile * FLOATS_OF_TILE]); };
    if constexpr (sizeof(Bits) == 1) {
        const fp8_factors<16, k_of_product> left(a);
        for (uint32_t tile = 0; tile < p.d->tiles; ++tile) add_fp8_product(part(tile), left, b[tile]);
    } else {
        for (uint32_t tile = 0; tile < p.d->tiles; ++tile) add_product(part(tile), a, b[tile]);
    }
}

inline void finish(const pending_product& p, uint32_t warp_index) {
    switch (p.operands.element) {
        case wgmma_element::bf16: multiply<uint16_t, widen_bf16>(p, warp_index); break;
        case wgmma_element::fp16: multiply<uint16_t, widen_fp16>(p, warp_index); break;
        case wgmma_element::e4m3: multiply<uint8_t, value_of_e4m3>(p, warp_index); break;
    }
    each_chunk_of_both(p, [&](uint32_t address, uint32_t, uint32_t) {
        races.product_finished(product_access(p, warp_index, address), products[warp_index].waits);
    });
    --p.d->in_flight;
}

inline void remember_returned(warp_products& mine, const accumulator& d) {
    const size_t floats = d.tiles * 4 * LANES;
    const auto same = [&](const fenced_registers& f) { return f.registers[0] == d.registers[0] && f.values.size() == floats; };
    auto found = std::find_if(mine.returned.begin(), mine.returned.end(), same);
    if (found == mine.returned.end()) {
        found = mine.returned.insert(found, {{}, std::vector<float>(floats)});
        std::copy_n(d.registers, LANES, found->registers);
    }
    keep_fenced(*found);
}

// Returns to the lane those registers of `d` that no product in flight uses any more.
inline void give_back(uint32_t warp_index, uint32_t lane, const float* d, uint32_t tiles, const use& used) {
    auto& all = products[warp_index].accumulators;
    for (size_t i = 0; i < all.size();) {
        accumulator& mine = *all[i];
        const bool asked = mine.registers[lane] >= d && mine.registers[lane] < d + tiles * 4;
        if (asked && mine.in_flight == 0 && (mine.returned >> lane & 1) == 0) {
            bool touched = false;
            each_register(mine, lane, [&](float& theirs, float& sum) {
                touched = touched || !is_poisoned(theirs);
                theirs = sum;
            });
            if (touched && self.violations.is_news("wgmma", mine.issued, used)) {
                self.violations.tell("warp " + std::to_string(warp_index) + " lane " + std::to_string(lane) + " has written to registers of D between " +
                                     text_of(mine.issued) + " and the " + text_of(used) + " that they need");
            }
            mine.returned |= 1u << lane;
        }
        if (mine.returned == ~0u) {
            remember_returned(products[warp_index], mine);
            all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
            ++i;
        }
    }
}

void hold(float* d, uint32_t tiles, source at) { give_back(current->warp, current->lane, d, tiles, {primitive::hold, at}); }

void wgmma_fence(source at) {
    if (!meet(primitive::wgmma_fence, at)) return;
    products[current->warp].fenced = true;
    for (fenced_registers& d : products[current->warp].returned) keep_fenced(d);
    for (fenced_a& a : products[current->warp].a) a.keep();
    come_as_warpgroup({{primitive::wgmma_fence, at}, {}}, WGMMA_CAPABILITY);
}

void wgmma_commit(source at) {
    if (!meet(primitive::wgmma_commit, at)) return;
    ++products[current->warp].open_group;
    come_as_warpgroup({{primitive::wgmma_commit, at}, {}}, WGMMA_CAPABILITY);
}

void wgmma_wait(uint32_t pending, float* d, uint32_t tiles, source at) {
    my_operands().result = d;
    if (!meet(primitive::wgmma_wait, at)) return;
    const use used = {primitive::wgmma_wait, at};
    const uint32_t index = current->warp;
    warp_products& mine = products[index];
    if (!come_as_warpgroup({used, {pending, 0, 0}}, WGMMA_CAPABILITY)) return;
    if (!mine.pending.empty() && mine.pending.back().group == mine.open_group) {
        complain_of_warp("wgmma", used, "no wgmma_commit has closed the group of " + text_of(mine.pending.back().issued) + ", which it does not wait for");
    }
    size_t finished = 0;
    while (finished < mine.pending.size() && mine.pending[finished].group + pending < mine.open_group) finish(mine.pending[finished++], index);
    mine.pending.erase(mine.pending.begin(), mine.pending.begin() + static_cast<std::ptrdiff_t>(finished));
    mine.fenced = false;
    ++mine.waits;
    warp& w = self.warps[index];
    if (self.detailed) w.details[products_of(index)] = mine.waits;
    for (uint32_t lane = 0; lane < LANES; ++lane) give_back(index, lane, static_cast<const float*>(w.operands[lane].result), tiles, used);
}

bool race_detector::report_unfinished_product(const access& a) {
    const uint32_t chunk = a.offset / CHUNK * CHUNK;
    for (uint32_t i = 0; i < self.warp_count; ++i) {
        for (const pending_product& p : products[i].pending) {
            bool reads = false;
            each_chunk_of_both(p, [&](uint32_t address, uint32_t, uint32_t) { reads = reads || address - SHARED_BASE == chunk; });
            if (!reads) continue;
            if (self.violations.is_news("race", a.used, p.issued)) {
                self.violations.tell(who(a.used, a.warp, a.lane) + " writes what " + text_of(p.issued) + " of warp " + std::to_string(i) +
                                     " reads, which is not finished because a wgmma_wait is missing: " + place(a));
            }
            return true;
        }
    }
    return false;
}

void check_unfinished_products() {
    for (uint32_t i = 0; i < self.warp_count; ++i) {
        for (const std::shared_ptr<accumulator>& d : products[i].accumulators) {
            if (!self.violations.is_news("never waited for", d->issued, d->issued)) continue;
            self.violations.tell(text_of(d->issued) + " of warp " + std::to_string(i) + ": when the block ends, " +
                                 (d->in_flight != 0 ? "it is not finished because a wgmma_wait is missing" : "no wgmma_wait or hold has named its D"));
        }
    }
}

}  // namespace kgen::emulator
