// The race detector for shared memory: two accesses to the same bytes, at least one a write, by different threads,
// without an order between them. Its results do not depend on the order in which the threads happened to run.
//
// Order comes from vector clocks, one per warp (struct warp, `step` and `known`): a block barrier joins the clocks of
// all warps; warp_sync orders the lanes of one warp. Inside a warp a later warp-wide primitive also orders an earlier
// read before a write, since by then the value is in a register; but other lanes see a write only after warp_sync or a
// barrier.
//
// Mbarriers add finer order: see clock.hpp.
//
// Records are kept for every 16 bytes, the unit that ldmatrix and cp.async move: the last write of each of its four
// words, and the last read by each warp.
#pragma once

namespace kgen::emulator {

constexpr uint32_t CHUNK = 16;

struct write_record {
    uint32_t step;
    uint32_t tick;  // of its lane; of a TMA copy, the phase of the mbarrier in which it completed
    uint16_t used;
    uint8_t warp;   // TMA: `lane` is an mbarrier's number
    uint8_t lane;
    uint8_t bytes;  // one bit per byte of the word
};

struct read_record {
    uint32_t step;
    uint32_t tick;  // of its lane; of ALL_LANES, the warp's epoch
    uint16_t used;
    uint16_t bytes;  // a bit for each of the sixteen
    uint8_t lane;
};

struct chunk_record {
    write_record writes[4];
    uint16_t in_flight;  // 1 + the thread whose asynchronous copy has this chunk as destination, or 1 + MAX_THREADS + the
                         // mbarrier that counts a copy by TMA; 0: none
    uint16_t mbarriers;  // a bit for each byte that belongs to an mbarrier
    uint16_t readers;    // products and stores by TMA that read the chunk and are not finished
    bool whole;          // the four writes are one
};

// An access about to be made.
struct access {
    uint32_t offset;  // in shared memory; it does not cross a chunk
    uint16_t bytes;   // one bit per byte of the 16-byte chunk
    uint8_t lane;
    uint32_t warp;
    uint32_t step;
    use used;
};

// The clock value stored in a record of the access next to its step.
inline uint32_t tick_now(const access& a) {
    return a.lane == ALL_LANES ? self.warps[a.warp].epoch : self.threads[a.warp * LANES + a.lane].ticks;
}

// True if one of the clocks that apply to the access covers a record.
inline bool knows_in_detail(const access& a, uint32_t warp_index, uint32_t lane, uint32_t step, uint32_t tick) {
    if (covers(self.warps[a.warp], warp_index, lane, step, tick)) return true;
    if (a.lane == ALL_LANES) return false;
    const auto& own = self.threads[a.warp * LANES + a.lane].acquired;
    return std::any_of(own.begin(), own.end(), [&](const auto& shown) { return covers(shown->behind, warp_index, lane, step, tick); });
}

// True if the writer of a record has since executed fence_proxy_async and that is ordered before the access.
inline bool is_fenced(const access& a, const write_record& w) {
    const uint32_t writer = w.warp * LANES + w.lane;
    if (w.warp == a.warp && w.lane == a.lane) return w.tick < self.threads[writer].fenced;
    if (w.tick < self.warps[a.warp].details[fence_of(writer)]) return true;
    if (a.lane == ALL_LANES) return false;
    const auto& own = self.threads[a.warp * LANES + a.lane].acquired;
    return std::any_of(own.begin(), own.end(), [&](const auto& shown) { return w.tick < shown->behind.details[fence_of(writer)]; });
}

// "load_shared (x.cu:71) of warp 2 lane 5"
inline std::string who(const use& used, uint32_t warp_index, uint32_t lane) {
    if (warp_index == TMA) return text_of(used);
    if (warp_index == VISITOR) return text_of(used) + " of another block";
    return text_of(used) + " of warp " + std::to_string(warp_index) + (lane >= LANES ? "" : " lane " + std::to_string(lane));
}

class race_detector {
  public:
    // Prepares for a block. Records of earlier blocks need no clearing: their steps are below `first_step`.
    void prepare(uint32_t shared_bytes, uint32_t warps) {
        chunks_ = (shared_bytes + CHUNK - 1) / CHUNK;
        if (records_.size() < chunks_) records_.resize(chunks_);
        if (reads_.size() < static_cast<size_t>(chunks_) * warps) reads_.resize(static_cast<size_t>(chunks_) * warps);
        for (uint32_t i = 0; i < chunks_; ++i) records_[i].in_flight = records_[i].mbarriers = records_[i].readers = 0;
    }

    // After ~2^31 steps the clocks restart.
    void forget() {
        std::fill(records_.begin(), records_.end(), chunk_record{});
        std::fill(reads_.begin(), reads_.end(), read_record{});
    }

    void read(const access& a) {
        check_contents(a, false);
        record_read(a);
    }

    void write(const access& a) {
        const uint32_t index = a.offset / CHUNK;
        chunk_record& record = records_[index];
        if (record.in_flight != 0) report_in_flight(a, "writes", record);
        if ((record.mbarriers & a.bytes) != 0) report_mbarrier(a, "writes");
        if (record.readers != 0) report_unfinished_reader(a);
        check_reads(a);
        const uint16_t used = self.uses.number_of(a.used);
        const uint32_t tick = tick_now(a);
        const bool whole = a.bytes == 0xffff;
        if (record.whole && !whole) {
            for (uint32_t word = 1; word < 4; ++word) record.writes[word] = record.writes[0];
        }
        for (uint32_t word = 0; word < 4; ++word) {
            write_record& w = record.writes[word];
            const auto bytes = static_cast<uint8_t>(a.bytes >> word * 4 & 15);
            if (bytes == 0) continue;
            if (w.step >= self.first_step && (w.bytes & bytes) != 0 && !is_behind(a, w)) {
                report_race(a, "writes", "written", w.used, w.warp, w.lane);
            }
            const bool adds = w.step == a.step && w.tick == tick && w.lane == a.lane && w.warp == a.warp;
            w = {a.step, tick, used, static_cast<uint8_t>(a.warp), a.lane, static_cast<uint8_t>(adds ? w.bytes | bytes : bytes)};
            if (record.whole && whole) break;
        }
        if (whole && !record.whole) record.writes[0].bytes = 15;
        record.whole = whole;
    }

    // Issue of an asynchronous copy into a chunk: a write now; the chunk must not be accessed until the copy completes.
    void copy_issued(const access& a, uint32_t thread_index) {
        write(a);
        records_[a.offset / CHUNK].in_flight = static_cast<uint16_t>(thread_index + 1);
    }

    // Completion of the copy: as if its thread had written the chunk just now.
    void copy_landed(const access& a) {
        chunk_record& record = records_[a.offset / CHUNK];
        record.in_flight = 0;
        record.writes[0] = {a.step, tick_now(a), self.uses.number_of(a.used), static_cast<uint8_t>(a.warp), a.lane, 15};
        record.whole = true;
    }

    // Issue of a TMA copy into a chunk: a write by the asynchronous proxy, to which earlier writes by threads must have
    // been made visible.
    void tile_issued(const access& a, uint32_t mbarrier) {
        chunk_record& record = records_[a.offset / CHUNK];
        if (record.in_flight != 0) report_in_flight(a, "writes", record);
        if ((record.mbarriers & a.bytes) != 0) report_mbarrier(a, "writes");
        if (record.readers != 0) report_unfinished_reader(a);
        check_reads(a);
        for (uint32_t word = 0; word < (record.whole ? 1u : 4u); ++word) {
            const write_record& w = record.writes[word];
            if (w.step < self.first_step || w.bytes == 0) continue;
            if (!is_behind(a, w)) {
                report_race(a, "writes", "written", w.used, w.warp, w.lane);
            } else if (w.warp != TMA && !is_fenced(a, w)) {
                report_proxy(a, "overwrites", w);
            }
        }
        record.in_flight = static_cast<uint16_t>(1 + MAX_THREADS + mbarrier);
        record.writes[0] = {self.first_step, UINT32_MAX, self.uses.number_of(a.used), TMA, static_cast<uint8_t>(mbarrier), 15};
        record.whole = true;
    }

    // Completion of the copy, in a phase of its mbarrier.
    void tile_landed(uint32_t offset, uint32_t phase) {
        chunk_record& record = records_[offset / CHUNK];
        record.in_flight = 0;
        record.writes[0].tick = phase;
    }

    // A product of the warp, or a TMA store of the lane, reads through the asynchronous proxy, from now until it
    // completes.
    void proxy_reads(const access& a) {
        check_contents(a, true);
        ++records_[a.offset / CHUNK].readers;
    }

    // Called when a store no longer needs its source: as if its thread had read it just now.
    void store_finished(const access& a) {
        --records_[a.offset / CHUNK].readers;
        record_read(a);
    }

    // Completion of a product; the warp has waited `waits` times before.
    void product_finished(const access& a, uint32_t waits) {
        --records_[a.offset / CHUNK].readers;
        read_record& last = reads_[a.warp * chunks_ + a.offset / CHUNK];
        if (last.step == a.step && last.lane != PRODUCTS) {
            last.lane = ALL_LANES;
            last.bytes = a.bytes;
        } else {
            last = {a.step, waits, self.uses.number_of(a.used), a.bytes, PRODUCTS};
        }
    }

    // The 8 bytes of an mbarrier, which no other primitives may access from now on.
    void mbarrier_made(const access& a) {
        write(a);
        records_[a.offset / CHUNK].mbarriers |= a.bytes;
    }

  private:
    std::vector<chunk_record> records_;
    std::vector<read_record> reads_;  // [warp][chunk]
    uint32_t chunks_ = 0;

    void record_read(const access& a) {
        read_record& last = reads_[a.warp * chunks_ + a.offset / CHUNK];
        if (last.step == a.step) {
            last.lane = last.lane == a.lane ? a.lane : ALL_LANES;
            last.bytes |= a.bytes;
        } else {
            last = {a.step, tick_now(a), self.uses.number_of(a.used), a.bytes, a.lane};
        }
    }

    // Checks the requirements of a read: nothing in flight, everything written, and the writes ordered before it.
    void check_contents(const access& a, bool by_proxy) const {
        const chunk_record& record = records_[a.offset / CHUNK];
        if (record.in_flight != 0) report_in_flight(a, "reads", record);
        if ((record.mbarriers & a.bytes) != 0) report_mbarrier(a, "reads");
        for (uint32_t word = 0; word < (record.whole ? 1u : 4u); ++word) {
            const write_record& w = record.writes[word];
            const uint32_t bytes = record.whole ? 15 : a.bytes >> word * 4 & 15;
            if (bytes == 0) continue;
            if (w.step < self.first_step) {
                report_unwritten(a);
            } else if ((w.bytes & bytes) == 0) {
                continue;
            } else if (!is_behind(a, w)) {
                report_race(a, "reads", "written", w.used, w.warp, w.lane);
            } else if (by_proxy && w.warp != TMA && !is_fenced(a, w)) {
                report_proxy(a, "reads", w);
            }
        }
    }

    void check_reads(const access& a) {
        for (uint32_t u = 0; u < self.warp_count; ++u) {
            const read_record& r = reads_[u * chunks_ + a.offset / CHUNK];
            if (r.step < self.first_step || (r.bytes & a.bytes) == 0) continue;
            const bool ordered = r.step < self.warps[a.warp].known[u] || (u == a.warp && (r.lane == a.lane || r.step < a.step)) ||
                                 (self.detailed && knows_in_detail(a, u, r.lane, r.step, r.tick));
            if (!ordered) report_race(a, "writes", "read", r.used, u, r.lane);
        }
    }

    static bool is_behind(const access& a, const write_record& w) {
        if (w.warp != TMA && (w.step < self.warps[a.warp].known[w.warp] || (w.lane == a.lane && w.warp == a.warp))) return true;
        return self.detailed && knows_in_detail(a, w.warp, w.lane, w.step, w.tick);
    }

    static std::string place(const access& a) {
        return "shared memory offset " + std::to_string(a.offset) + ", barrier interval " + std::to_string(self.interval);
    }

    static void report_race(const access& a, const char* does, const char* done, uint16_t used, uint32_t warp_index, uint32_t lane) {
        const use& other = self.uses[used];
        if (!self.violations.is_news("race", a.used, other)) return;
        const char* missing = warp_index == TMA ? "mbarrier_wait" : a.warp == VISITOR ? "mbarrier_arrive_at or cluster_sync" : a.warp == warp_index ? "warp_sync" : self.detailed ? "block_sync or mbarrier" : "block_sync";
        self.violations.tell(who(a.used, a.warp, a.lane) + " " + does + " what " + who(other, warp_index, lane) + " has " + done + ", with no " + missing +
                             " between them: " + place(a));
    }

    static void report_mbarrier(const access& a, const char* does) {
        if (!self.violations.is_news("mbarrier", a.used, a.used)) return;
        self.violations.tell(who(a.used, a.warp, a.lane) + " " + does + " the bytes of an mbarrier: " + place(a));
    }

    static void report_proxy(const access& a, const char* does, const write_record& w) {
        const use& other = self.uses[w.used];
        if (!self.violations.is_news("proxy", a.used, other)) return;
        self.violations.tell(who(a.used, a.warp, a.lane) + " " + does + " what " + who(other, w.warp, w.lane) +
                             " has written, without a fence_proxy_async of that lane in between: " + place(a));
    }

    static void report_in_flight(const access& a, const char* does, const chunk_record& record) {
        if (record.in_flight > MAX_THREADS) return report_tile_in_flight(a, does, record.in_flight - MAX_THREADS - 1);
        const device_thread& owner = self.threads[record.in_flight - 1];
        const uint32_t chunk = a.offset / CHUNK * CHUNK;
        const auto copy = std::find_if(owner.copies.begin(), owner.copies.end(), [&](const pending_copy& c) { return c.destination == chunk; });
        if (copy == owner.copies.end() || !self.violations.is_news("race", a.used, copy->issued)) return;
        self.violations.tell(who(a.used, a.warp, a.lane) + " " + does + " the destination of " + who(copy->issued, owner.warp, owner.lane) + " of interval " +
                             std::to_string(copy->interval) + ", which has not landed because a cp_async_wait is missing: " + place(a));
    }

    static void report_tile_in_flight(const access& a, const char* does, uint32_t mbarrier);

    static void report_unfinished_reader(const access& a) {
        if (!report_unfinished_product(a)) report_unfinished_store(a);
    }

    // Reports a write to a chunk that a pending wgmma still reads; false if there is no such product.
    static bool report_unfinished_product(const access& a);

    static void report_unfinished_store(const access& a);

    static void report_unwritten(const access& a) {
        if (!self.violations.is_news("unwritten", a.used, a.used)) return;
        self.violations.tell(who(a.used, a.warp, a.lane) + " reads what nothing in this block has written yet: " + place(a));
    }
};

static race_detector races;

}  // namespace kgen::emulator
