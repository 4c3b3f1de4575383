// The race detector over shared memory: two accesses to the same bytes, at least one a write, by different threads,
// with nothing between them that orders them. It does not depend on the order in which the threads happened to run.
//
// Order comes from vector clocks, one a warp (struct warp, `step` and `known`): a block barrier tells every warp what
// all did; warp_sync orders the lanes of one warp. Inside a warp a later word at which all lanes meet also orders an
// earlier read before a write, for by then the value is in a register; but a write is seen by other lanes only behind
// warp_sync or a barrier.
//
// Records are kept for every 16 bytes, the unit that ldmatrix and cp.async move: the last write of each of its four
// words, and the last read by each warp.
#pragma once

namespace kgen::emulator {

constexpr uint32_t CHUNK = 16;
constexpr uint8_t ALL_LANES = 0xff;  // in a record: read by several lanes, or for all of them

struct write_record {
    uint32_t step;
    uint16_t used;
    uint8_t warp;
    uint8_t lane;
    uint8_t bytes;  // which of the word's four
};

struct read_record {
    uint32_t step;
    uint16_t used;
    uint16_t bytes;  // which of the sixteen
    uint8_t lane;
};

struct chunk_record {
    write_record writes[4];
    uint16_t in_flight;  // 1 + the thread whose asynchronous copy has this chunk as destination; 0: none
    bool whole;          // the four writes are one
};

// An access about to be made.
struct access {
    uint32_t offset;  // in shared memory; a chunk is not left
    uint16_t bytes;   // which of the chunk's sixteen
    uint8_t lane;
    uint32_t warp;
    uint32_t step;
    use used;
};

class race_detector {
  public:
    // Makes room for a block. Records of earlier blocks need no clearing: their steps are below `first_step`.
    void prepare(uint32_t shared_bytes, uint32_t warps) {
        chunks_ = (shared_bytes + CHUNK - 1) / CHUNK;
        if (records_.size() < chunks_) records_.resize(chunks_);
        if (reads_.size() < static_cast<size_t>(chunks_) * warps) reads_.resize(static_cast<size_t>(chunks_) * warps);
        for (uint32_t i = 0; i < chunks_; ++i) records_[i].in_flight = 0;
    }

    // After ~2^31 steps the clocks start again.
    void forget() {
        std::fill(records_.begin(), records_.end(), chunk_record{});
        std::fill(reads_.begin(), reads_.end(), read_record{});
    }

    void read(const access& a) {
        chunk_record& record = records_[a.offset / CHUNK];
        if (record.in_flight != 0) report_in_flight(a, "reads", record);
        const uint32_t* known = self.warps[a.warp].known;
        for (uint32_t word = 0; word < (record.whole ? 1u : 4u); ++word) {
            const write_record& w = record.writes[word];
            const uint32_t bytes = record.whole ? 15 : a.bytes >> word * 4 & 15;
            if (bytes == 0) continue;
            if (w.step < self.first_step) {
                report_unwritten(a);
            } else if ((w.bytes & bytes) != 0 && w.step >= known[w.warp] && !(w.lane == a.lane && w.warp == a.warp)) {
                report_race(a, "reads", "written", w.used, w.warp, w.lane);
            }
        }
        read_record& last = reads_[a.warp * chunks_ + a.offset / CHUNK];
        if (last.step == a.step) {
            last.lane = last.lane == a.lane ? a.lane : ALL_LANES;
            last.bytes |= a.bytes;
        } else {
            last = {a.step, self.uses.number_of(a.used), a.bytes, a.lane};
        }
    }

    void write(const access& a) {
        const uint32_t index = a.offset / CHUNK;
        chunk_record& record = records_[index];
        if (record.in_flight != 0) report_in_flight(a, "writes", record);
        const warp& mine = self.warps[a.warp];
        for (uint32_t u = 0; u < self.warp_count; ++u) {
            const read_record& r = reads_[u * chunks_ + index];
            if (r.step < self.first_step || (r.bytes & a.bytes) == 0) continue;
            const bool ordered = r.step < mine.known[u] || (u == a.warp && (r.lane == a.lane || r.step < a.step));
            if (!ordered) report_race(a, "writes", "read", r.used, u, r.lane);
        }
        const uint16_t used = self.uses.number_of(a.used);
        const bool whole = a.bytes == 0xffff;
        if (record.whole && !whole) {
            for (uint32_t word = 1; word < 4; ++word) record.writes[word] = record.writes[0];
        }
        for (uint32_t word = 0; word < 4; ++word) {
            write_record& w = record.writes[word];
            const auto bytes = static_cast<uint8_t>(a.bytes >> word * 4 & 15);
            if (bytes == 0) continue;
            const bool same_lane = w.lane == a.lane && w.warp == a.warp;
            if (w.step >= self.first_step && (w.bytes & bytes) != 0 && !same_lane && w.step >= mine.known[w.warp]) {
                report_race(a, "writes", "written", w.used, w.warp, w.lane);
            }
            const bool adds = w.step == a.step && same_lane;
            w = {a.step, used, static_cast<uint8_t>(a.warp), a.lane, static_cast<uint8_t>(adds ? w.bytes | bytes : bytes)};
            if (record.whole && whole) break;
        }
        if (whole && !record.whole) record.writes[0].bytes = 15;
        record.whole = whole;
    }

    // An asynchronous copy into a chunk: a write now, which nobody may come near until it has landed.
    void copy_issued(const access& a, uint32_t thread_index) {
        write(a);
        records_[a.offset / CHUNK].in_flight = static_cast<uint16_t>(thread_index + 1);
    }

    // It has landed: as if its thread had written the chunk just now.
    void copy_landed(const access& a) {
        chunk_record& record = records_[a.offset / CHUNK];
        record.in_flight = 0;
        record.writes[0] = {a.step, self.uses.number_of(a.used), static_cast<uint8_t>(a.warp), a.lane, 15};
        record.whole = true;
    }

  private:
    std::vector<chunk_record> records_;
    std::vector<read_record> reads_;  // [warp][chunk]
    uint32_t chunks_ = 0;

    static std::string who(const use& used, uint32_t warp_index, uint32_t lane) {
        return text_of(used) + " of warp " + std::to_string(warp_index) + (lane == ALL_LANES ? "" : " lane " + std::to_string(lane));
    }

    static std::string place(const access& a) {
        return "shared memory offset " + std::to_string(a.offset) + ", barrier interval " + std::to_string(self.interval);
    }

    static void report_race(const access& a, const char* does, const char* done, uint16_t used, uint32_t warp_index, uint32_t lane) {
        const use& other = self.uses[used];
        if (!self.violations.is_news("race", a.used, other)) return;
        const bool same_warp = a.warp == warp_index;
        self.violations.tell(who(a.used, a.warp, a.lane) + " " + does + " what " + who(other, warp_index, lane) + " has " + done + ", with no " +
                             (same_warp ? "warp_sync" : "block_sync") + " between them: " + place(a));
    }

    static void report_in_flight(const access& a, const char* does, const chunk_record& record) {
        const device_thread& owner = self.threads[record.in_flight - 1];
        const uint32_t chunk = a.offset / CHUNK * CHUNK;
        const auto copy = std::find_if(owner.copies.begin(), owner.copies.end(), [&](const pending_copy& c) { return c.destination == chunk; });
        if (copy == owner.copies.end() || !self.violations.is_news("race", a.used, copy->issued)) return;
        self.violations.tell(who(a.used, a.warp, a.lane) + " " + does + " the destination of " + who(copy->issued, owner.warp, owner.lane) + " of interval " +
                             std::to_string(copy->interval) + ", which has not landed for want of a cp_async_wait: " + place(a));
    }

    static void report_unwritten(const access& a) {
        if (!self.violations.is_news("unwritten", a.used, a.used)) return;
        self.violations.tell(who(a.used, a.warp, a.lane) + " reads what nothing in this block has written yet: " + place(a));
    }
};

static race_detector races;

}  // namespace kgen::emulator
