// The report of a launch: violations as text, the first few distinct ones with their counts.
#pragma once

namespace kgen::emulator {

// The primitives that a report names.
enum class primitive : uint8_t {
    none,
    warp_index,
    warp_sync,
    warp_any,
    warp_ballot,
    shuffle,
    warp_meet,
    shuffle_xor,
    ldmatrix_x4,
    ldmatrix_x4_transposed,
    stmatrix_x4,
    stmatrix_x4_transposed,
    mma_m16n8k16,
    mma_m16n8k8,
    ldmatrix_b8_x2_transposed,
    mma_m16n8k32,
    mma_m16n8k32_fp16,
    mma_m16n8k32_block_scaled,
    block_sync,
    barrier_arrive,
    barrier_wait,
    store_shared,
    load_shared,
    cp_async,
    load_global,
    store_global,
    add_global,
    load_written,
    atomic_add,
    atomic_max,
    atomic_or,
    atomic_exchange,
    atomic_cas,
    reduce_add,
    reduce_max,
    reduce_or,
    load_acquire,
    store_release,
    load_relaxed,
    store_relaxed,
    mbarrier_init,
    mbarrier_arrive,
    mbarrier_arrive_expect_tx,
    mbarrier_try_wait,
    mbarrier_test_wait,
    mbarrier_wait,
    mbarrier_wait_cluster,
    mbarrier_arrive_at,
    shared_of,
    cluster_sync,
    tma_prefetch_map,
    tma_load,
    tma_load_multicast,
    tma_store,
    matrix_descriptor,
    wgmma,
    wgmma_transposed,
    wgmma_registers,
    wgmma_fence,
    wgmma_commit,
    wgmma_wait,
    hold,
    release_registers,
    claim_registers,
};

inline const char* name_of(primitive which) {
    static const char* const names[] = {"nothing",      "warp_index",  "warp_sync",    "warp_any",    "warp_ballot", "shuffle", "warp_meet",   "shuffle_xor", "ldmatrix_x4", "ldmatrix_x4_transposed",
                                        "stmatrix_x4",  "stmatrix_x4_transposed", "mma_m16n8k16", "mma_m16n8k8", "ldmatrix_b8_x2_transposed", "mma_m16n8k32", "mma_m16n8k32_fp16",
                                        "mma_m16n8k32_block_scaled", "block_sync",  "barrier_arrive", "barrier_wait", "store_shared", "load_shared", "cp_async",    "load_global", "store_global", "add_global",
                                        "load_written", "atomic_add", "atomic_max", "atomic_or", "atomic_exchange", "atomic_cas", "reduce_add", "reduce_max", "reduce_or",
                                        "load_acquire", "store_release", "load_relaxed", "store_relaxed",
                                        "mbarrier_init", "mbarrier_arrive", "mbarrier_arrive_expect_tx", "mbarrier_try_wait", "mbarrier_test_wait",
                                        "mbarrier_wait", "mbarrier_wait_cluster", "mbarrier_arrive_at", "shared_of", "cluster_sync", "tma_prefetch_map", "tma_load",
                                        "tma_load_multicast", "tma_store", "matrix_descriptor", "wgmma", "wgmma_transposed", "wgmma_registers",
                                        "wgmma_fence", "wgmma_commit", "wgmma_wait", "hold", "release_registers", "claim_registers"};
    return names[static_cast<int>(which)];
}

// A use of a primitive in the kernel's source.
struct use {
    primitive which;
    source at;
};

inline bool operator==(const use& a, const use& b) { return a.which == b.which && a.at.line == b.at.line && a.at.file == b.at.file; }

// "ldmatrix_x4 (flash_fwd_hdim64_fp16_sm80.cu:71)"
inline std::string text_of(const use& u) {
    const char* slash = strrchr(u.at.file, '/');
    return std::string(name_of(u.which)) + " (" + (slash ? slash + 1 : u.at.file) + ":" + std::to_string(u.at.line) + ")";
}

// Uses as small integers, for records stored by the thousand.
class use_table {
  public:
    uint16_t number_of(const use& u) {
        uint16_t& recent = recent_[(static_cast<uint32_t>(u.at.line) * 16 + static_cast<uint32_t>(u.which)) % RECENT];
        if (recent < uses_.size() && uses_[recent] == u) return recent;
        auto found = std::find(uses_.begin(), uses_.end(), u);
        if (found == uses_.end() && uses_.size() < UINT16_MAX) found = uses_.insert(uses_.end(), u);
        return recent = static_cast<uint16_t>(found - uses_.begin());
    }
    const use& operator[](uint16_t number) const { return uses_[number]; }

  private:
    static constexpr uint32_t RECENT = 256;
    std::vector<use> uses_;
    uint16_t recent_[RECENT] = {};
};

// Violations that differ in `kind` or in the uses involved are distinct; of each, the first is reported in full.
class report {
  public:
    void clear() {
        entries_.clear();
        left_out_ = 0;
        text_.clear();
    }

    bool empty() const { return entries_.empty(); }

    // From now on each text names its block, whose number is stored at `block`; NULL if only one runs.
    void name_blocks(const uint32_t* block) { block_ = block; }

    // True if this violation is new and its text is needed; a known one is only counted.
    bool is_news(const char* kind, const use& first, const use& second) {
        for (entry& e : entries_) {
            if (e.kind == kind && e.first == first && e.second == second) {
                ++e.count;
                return false;
            }
        }
        if (entries_.size() == MOST) {
            ++left_out_;
            return false;
        }
        entries_.push_back({kind, first, second, 1, ""});
        return true;
    }

    // The text of the violation that is_news() has just accepted.
    void tell(const std::string& text) {
        entries_.back().text = entries_.back().kind + std::string(": ") + (block_ == nullptr ? "" : "block " + std::to_string(*block_) + ": ") + text;
    }

    // "`name`, block 0 of 4: ..." and a line (or more) for each violation. `ran` blocks were running, the first of them
    // `block`.
    void finish(const char* name, uint32_t block, uint32_t ran, uint32_t blocks, uint64_t seed) {
        const std::string& first = entries_.front().text;
        first_line_ = first.substr(0, first.find('\n'));
        const std::string numbers = ran == 1 ? " " + std::to_string(block) : "s " + std::to_string(block) + "-" + std::to_string(block + ran - 1);
        text_ = std::string("`") + name + "`, block" + numbers + " of " + std::to_string(blocks) + ", seed " + std::to_string(seed) + ":\n";
        for (const entry& e : entries_) {
            text_ += "  " + e.text;
            if (e.count > 1) text_ += " [" + std::to_string(e.count) + " times]";
            text_ += "\n";
        }
        if (left_out_ > 0) text_ += "  and " + std::to_string(left_out_) + " more of other kinds\n";
    }

    const char* text() const { return text_.c_str(); }
    const char* first_line() const { return first_line_.c_str(); }

  private:
    struct entry {
        const char* kind;
        use first, second;
        uint64_t count;
        std::string text;
    };
    static constexpr size_t MOST = 5;
    std::vector<entry> entries_;
    uint64_t left_out_ = 0;
    std::string text_;
    std::string first_line_;
    const uint32_t* block_ = nullptr;
};

}  // namespace kgen::emulator
