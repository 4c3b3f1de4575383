// Primitives that the four warps of a warpgroup execute together: here each warp runs at its own pace, but all must
// execute the same primitives in the same order. Also the registers that warpgroups pass to each other.
#pragma once

namespace kgen::emulator {

constexpr uint32_t WARPS_OF_GROUP = 4;

// The parts of a primitive that must be the same in all warps of a warpgroup.
struct warpgroup_primitive {
    use used;
    uint64_t operands[3];
};

inline bool operator==(const warpgroup_primitive& a, const warpgroup_primitive& b) {
    return a.used == b.used && std::equal(a.operands, a.operands + 3, b.operands);
}

struct warpgroup {
    std::deque<warpgroup_primitive> pending;  // not reached by all of its warps yet, the first of them being number `first`
    uint64_t first;
    uint64_t come[WARPS_OF_GROUP];  // number of primitives that each warp has reached
    bool apart;                     // warps have reached different primitives, which has been reported
    uint32_t registers;             // per thread; 0: as at the start
};

static std::vector<warpgroup> warpgroups(MAX_WARPS / WARPS_OF_GROUP);  // of the running block

void forget_warpgroups() {
    for (warpgroup& g : warpgroups) g = {};
}

inline void complain_of_warp(const char* kind, const use& used, const std::string& what) {
    if (!self.violations.is_news(kind, used, used)) return;
    self.violations.tell(text_of(used) + " of warp " + std::to_string(current->warp) + ": " + what);
}

// Reports two different uses; `mine` is empty if the warp has exited.
inline void report_apart(warpgroup& g, uint32_t warp_index, const use& mine, const use& theirs) {
    g.apart = true;
    if (!self.violations.is_news("warpgroup", mine, theirs)) return;
    const std::string done = mine.which == primitive::none ? "has ended" : "comes to " + text_of(mine);
    self.violations.tell("warps of a warpgroup have issued different primitives, or operands: warp " + std::to_string(warp_index) + " " + done +
                         " where another has come to " + text_of(theirs));
}

// Called when the running warp has reached a warpgroup primitive, which devices of compute capability 9.0 up to
// `last_capability` have. False, with a report, if it cannot be executed.
inline bool come_as_warpgroup(const warpgroup_primitive& issued, int last_capability) {
    if (device_capability() < 90 || device_capability() > last_capability) {
        complain_of_warp("warpgroup", issued.used, "a device of compute capability " + std::to_string(device_capability()) + " does not have this primitive");
        return false;
    }
    const uint32_t index = current->warp / WARPS_OF_GROUP;
    if ((index + 1) * WARPS_OF_GROUP > self.warp_count) {
        complain_of_warp("warpgroup", issued.used, "its warpgroup has fewer than four warps");
        return false;
    }
    warpgroup& g = warpgroups[index];
    if (g.apart) return true;
    uint64_t& come = g.come[current->warp % WARPS_OF_GROUP];
    if (come - g.first == g.pending.size()) {
        g.pending.push_back(issued);
    } else if (!(g.pending[come - g.first] == issued)) {
        report_apart(g, current->warp, issued.used, g.pending[come - g.first].used);
    }
    ++come;
    for (; g.first < *std::min_element(g.come, g.come + WARPS_OF_GROUP); ++g.first) g.pending.pop_front();
    return true;
}

constexpr int LAST_CAPABILITY = 129;  // known to the emulator

inline void take_registers(uint32_t count, bool more, const use& used) {
    if (!come_as_warpgroup({used, {count, 0, 0}}, LAST_CAPABILITY)) return;
    uint32_t& mine = warpgroups[current->warp / WARPS_OF_GROUP].registers;
    if (mine != 0 && (more ? count < mine : count > mine)) {
        complain_of_warp("warpgroup", used, std::to_string(count) + " registers a thread where it has " + std::to_string(mine));
    }
    mine = count;
}

void release_registers(uint32_t count, source at) {
    if (meet(primitive::release_registers, at)) take_registers(count, false, {primitive::release_registers, at});
}

void claim_registers(uint32_t count, source at) {
    if (meet(primitive::claim_registers, at)) take_registers(count, true, {primitive::claim_registers, at});
}

// Checks that all warps have reached the same number of primitives, and that a multiprocessor has the registers that
// they hold at the end. The block starts with at most an equal share for every thread.
void check_warpgroups() {
    constexpr uint32_t registers = 64 * 1024, most_a_thread = 255;
    const use nothing = {primitive::none, {"", 0}};
    const uint32_t share = std::min(registers / self.thread_count, most_a_thread) / 8 * 8;
    uint32_t held = 0;
    bool moved = false;
    for (uint32_t i = 0; i < self.warp_count; ++i) {
        warpgroup& g = warpgroups[i / WARPS_OF_GROUP];
        const uint64_t behind = g.come[i % WARPS_OF_GROUP] - g.first;
        if (!g.apart && behind < g.pending.size()) report_apart(g, i, nothing, g.pending[behind].used);
        moved = moved || g.registers != 0;
        held += (g.registers != 0 ? g.registers : share) * LANES;
    }
    if (!moved) return;
    for (uint32_t i = 0; i < self.warp_count; i += WARPS_OF_GROUP) {
        if (warpgroups[i / WARPS_OF_GROUP].registers != 0 || !self.violations.is_news("warpgroup", nothing, nothing)) continue;
        self.violations.tell("warpgroup " + std::to_string(i / WARPS_OF_GROUP) + " has the registers that it started with at the end, where another has "
                             "handed its own over: its code is compiled for those that claim_registers gives it");
    }
    if (held <= share * self.thread_count || !self.violations.is_news("warpgroup", nothing, nothing)) return;
    self.violations.tell("warpgroups have claimed " + std::to_string(held) + " registers, the block has " + std::to_string(share * self.thread_count) +
                         ": claim_registers would wait forever");
}

}  // namespace kgen::emulator
