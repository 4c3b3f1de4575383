// Counts for `kgen profile`, by line of source: the wavefronts that each warp-wide access to shared memory takes, and
// the sectors of device memory that each access touches. Compiled with -DKGEN_PROFILE only; otherwise these functions
// are empty. docs/lab.md states the rules.
//
// The lanes of a warp run one after another, so an access of the warp is put together: the n-th access of each lane at
// one call of a primitive, between two warp-wide primitives or block barriers, is one instruction.
#pragma once

namespace kgen::emulator {

// What an access moves data to or from.
enum class memory_space : uint8_t { shared, global, unmeasured };

#ifdef KGEN_PROFILE

constexpr uint32_t BANKS = 32;
constexpr uint32_t BANK_BYTES = 4;
constexpr uint32_t WAVEFRONT_BYTES = BANKS * BANK_BYTES;
constexpr uint32_t SECTOR_BYTES = 32;

// An access of a warp: the lanes that take part and their addresses.
struct warp_access {
    uint32_t lanes = 0;
    uint64_t addresses[LANES] = {};
};

struct access_counts {
    uint64_t accesses = 0;
    uint64_t units = 0;  // wavefronts or sectors
    uint64_t ideal = 0;
};

// Numbers of the units of `unit` bytes that some lanes touch, without duplicates.
inline std::vector<uint64_t> touched(const warp_access& a, uint32_t lanes, uint32_t bytes, uint32_t unit) {
    std::vector<uint64_t> units;
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        if ((a.lanes & lanes & 1u << lane) == 0) continue;
        for (uint64_t i = a.addresses[lane] / unit; i <= (a.addresses[lane] + bytes - 1) / unit; ++i) units.push_back(i);
    }
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    return units;
}

// Wavefronts of lanes that are served together: the most words of one bank.
inline uint32_t wavefronts_of(const warp_access& a, uint32_t lanes, uint32_t bytes) {
    uint32_t words[BANKS] = {};
    for (const uint64_t word : touched(a, lanes, bytes, BANK_BYTES)) ++words[word % BANKS];
    return *std::max_element(words, words + BANKS);
}

// Shared memory serves 128 bytes at a time: 32 lanes of up to 4 bytes, 16 of 8, or 8 of 16.
inline access_counts wavefronts(const warp_access& a, uint32_t bytes) {
    const uint32_t together = WAVEFRONT_BYTES / std::max(bytes, BANK_BYTES);
    access_counts counts = {1, 0, 0};
    for (uint32_t first = 0; first < LANES; first += together) {
        const uint32_t lanes = static_cast<uint32_t>(((uint64_t{1} << together) - 1) << first);
        counts.units += wavefronts_of(a, lanes, bytes);
        counts.ideal += (a.lanes & lanes) != 0;
    }
    return counts;
}

// The fewest sectors are those of as many consecutive bytes as the lanes touch.
inline access_counts sectors(const warp_access& a, uint32_t bytes) {
    const uint64_t distinct = touched(a, ~0u, bytes, 1).size();
    return {1, touched(a, ~0u, bytes, SECTOR_BYTES).size(), (distinct + SECTOR_BYTES - 1) / SECTOR_BYTES};
}

class line_profile {
  public:
    void clear() {
        open_.clear();
        latest_ = nullptr;
        lines_.clear();
    }

    // An access of the running thread. `call` is where the primitive returns to.
    void add_lane(memory_space space, const use& used, uint64_t address, uint32_t bytes, const void* call) {
        const device_thread& me = this_thread();
        interval& now = interval_of(me);
        auto found = std::find_if(now.calls.begin(), now.calls.end(), [&](const call_record& c) {
            return c.call == call && c.space == space && c.bytes == bytes && c.used == used;
        });
        if (found == now.calls.end()) found = now.calls.insert(now.calls.end(), {call, space, bytes, used, {}, {}});
        const uint32_t number = found->made[me.lane]++;
        if (number >= found->accesses.size()) found->accesses.resize(number + 1);
        warp_access& a = found->accesses[number];
        a.lanes |= 1u << me.lane;
        a.addresses[me.lane] = address;
    }

    // An access of the whole warp.
    void add(memory_space space, const use& used, const access_counts& counts) {
        access_counts& sum = lines_[{used.at.file, used.at.line, used.which, space}];
        sum.accesses += counts.accesses;
        sum.units += counts.units;
        sum.ideal += counts.ideal;
    }

    // Puts together what the lanes have done.
    void close() {
        for (auto& [where, open] : open_) close(open);
        open_.clear();
        latest_ = nullptr;
    }

    // A line each: file, line, primitive, space, accesses, units and the fewest possible, separated by tabs.
    const char* text() {
        static const char* const spaces[] = {"shared", "global", "unmeasured"};
        text_.clear();
        for (const auto& [key, counts] : lines_) {
            const auto& [file, line, which, space] = key;
            text_ += std::string(file) + "\t" + std::to_string(line) + "\t" + name_of(which) + "\t" + spaces[static_cast<int>(space)] + "\t" + std::to_string(counts.accesses) + "\t" +
                     std::to_string(counts.units) + "\t" + std::to_string(counts.ideal) + "\n";
        }
        return text_.c_str();
    }

  private:
    struct call_record {
        const void* call;
        memory_space space;
        uint32_t bytes;
        use used;
        std::array<uint32_t, LANES> made;
        std::vector<warp_access> accesses;
    };

    // The accesses of a warp since it last met.
    struct interval {
        uint32_t step;
        std::vector<call_record> calls;
    };

    interval& interval_of(const device_thread& me) {
        const auto where = std::make_pair(me.block, me.warp);
        if (latest_ == nullptr || where != latest_place_) {
            latest_ = &open_[where];
            latest_place_ = where;
        }
        const uint32_t step = warp_of(me).step;
        if (latest_->step != step) {
            close(*latest_);
            latest_->step = step;
        }
        return *latest_;
    }

    void close(interval& open) {
        for (const call_record& c : open.calls) {
            for (const warp_access& a : c.accesses) add(c.space, c.used, c.space == memory_space::shared ? wavefronts(a, c.bytes) : sectors(a, c.bytes));
        }
        open.calls.clear();
    }

    std::map<std::pair<uint32_t, uint32_t>, interval> open_;  // by block and warp
    interval* latest_ = nullptr;
    std::pair<uint32_t, uint32_t> latest_place_;
    std::map<std::tuple<const char*, int, primitive, memory_space>, access_counts> lines_;
    std::string text_;
};

static line_profile profiled;

#define KGEN_COUNT(space, used, address, bytes) profiled.add_lane(memory_space::space, used, address, bytes, __builtin_return_address(0))

// The 32 rows of 16 bytes that the lanes of the warp have addressed.
inline void count_rows(const use& used) {
    warp_access rows = {~0u, {}};
    for (uint32_t lane = 0; lane < LANES; ++lane) rows.addresses[lane] = self.warps[current->warp].operands[lane].words[0];
    profiled.add(memory_space::shared, used, wavefronts(rows, CHUNK));
}

// An access whose wavefronts and sectors are not known here.
inline void count_unmeasured(const use& used) { profiled.add(memory_space::unmeasured, used, {1, 0, 0}); }

inline void close_profile() { profiled.close(); }
inline void clear_profile() { profiled.clear(); }

#else

#define KGEN_COUNT(space, used, address, bytes) static_cast<void>(0)

inline void count_rows(const use&) {}
inline void count_unmeasured(const use&) {}
inline void close_profile() {}
inline void clear_profile() {}

#endif

}  // namespace kgen::emulator
