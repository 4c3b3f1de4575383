// The order that mbarriers create, for the race detector. A block barrier joins the clocks of all warps; at an mbarrier
// individual lanes arrive, and their clocks are joined into those of the waiting lanes. So clocks need details, with
// the accesses that are ordered before:
//
//   epochs   of each warp: accesses by its lanes together (ldmatrix, mma) before all 32 had arrived for the epoch-th
// time
//   ticks    of each lane: its accesses before that arrival or proxy fence of its own
//   fences   of each lane: likewise, its writes before its last fence_proxy_async
//   phases   of each mbarrier: the TMA copies that completed before that phase
//   products of each warp: the reads of those of its products for which it had waited by then
//
// In a cluster (cluster.hpp) a clock also holds the accesses in each other block that are ordered before: the steps of
// its warps, and details like these.
//
// After a lane's wait its clock is ahead of its warp's until all 32 lanes have waited for the same phase, or until a
// warp_sync; until then the lane keeps the snapshot of the phase. So other lanes may use the data that one lane has
// waited for only after a warp_sync.
#pragma once

namespace kgen::emulator {

constexpr uint8_t ALL_LANES = 0xff;  // in a record: read by several lanes, or for all of them
constexpr uint8_t PRODUCTS = 0xfe;   // in a record: read by the warp's products
constexpr uint8_t TMA = 0xff;        // in place of a warp: the asynchronous proxy
constexpr uint32_t MOST_MBARRIERS = 128;

inline uint32_t epoch_of(uint32_t warp_index) { return warp_index; }
inline uint32_t tick_of(uint32_t thread) { return self.warp_count + thread; }
inline uint32_t fence_of(uint32_t thread) { return self.warp_count + self.thread_count + thread; }
inline uint32_t phase_of(uint32_t mbarrier) { return self.warp_count + 2 * self.thread_count + mbarrier; }
inline uint32_t products_of(uint32_t warp_index) { return self.warp_count + 2 * self.thread_count + MOST_MBARRIERS + warp_index; }
inline uint32_t block_details() { return products_of(self.warp_count); }

// In a cluster: the index where the steps of block `rank` begin, and that of its details.
inline uint32_t steps_in(uint32_t rank) { return block_details() + rank * (self.warp_count + block_details()); }
inline uint32_t details_in(uint32_t rank) { return steps_in(rank) + self.warp_count; }

inline uint32_t detail_count() { return self.cluster_size == 1 ? block_details() : steps_in(self.cluster_size); }

inline void join_details(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
}

// Joins clock `from` into `to`.
inline void join(clock& to, const clock& from) {
    for (uint32_t u = 0; u < self.warp_count; ++u) to.known[u] = std::max(to.known[u], from.known[u]);
    join_details(to.details, from.details);
}

// A completed copy passes on none of its thread's clock, except that phases of other blocks that had completed when
// it was issued have completed.
inline void join_far_phases(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
    for (uint32_t rank = 0; rank < self.cluster_size; ++rank) {
        if (rank == self.rank) continue;
        uint32_t* const known = &to[details_in(rank) + phase_of(0)];
        for (uint32_t i = 0; i < MOST_MBARRIERS; ++i) known[i] = std::max(known[i], from[details_in(rank) + phase_of(i)]);
    }
}

// The clock that the end of a phase passes to waiting threads.
struct snapshot {
    clock behind;
    uint32_t mbarrier;
    uint32_t lanes[MAX_WARPS];  // lanes that have waited
    bool from_afar;             // threads of other blocks have arrived in the phase
};

inline void start_details() {
    if (self.detailed) return;
    self.detailed = true;
    for (uint32_t i = 0; i < self.warp_count; ++i) self.warps[i].details.assign(detail_count(), 0);
}

// Joins the lanes' snapshots into the clock of the warp.
inline void share_acquired(uint32_t index) {
    warp& w = self.warps[index];
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        device_thread& t = self.threads[index * LANES + lane];
        for (const std::shared_ptr<snapshot>& shown : t.acquired) join(w, shown->behind);
        t.acquired.clear();
        w.details[fence_of(t.thread)] = t.fenced;
    }
}

void share_details_in_warp(uint32_t index) { share_acquired(index); }

void share_details_in_block() {
    for (uint32_t i = 0; i < self.warp_count; ++i) share_acquired(i);
    for (uint32_t i = 1; i < self.warp_count; ++i) join(self.warps[0], self.warps[i]);
    for (uint32_t i = 1; i < self.warp_count; ++i) self.warps[i].details = self.warps[0].details;
}

// Called when the lane has found the phase complete.
inline void acquire(device_thread& me, const std::shared_ptr<snapshot>& shown) {
    if (shown == nullptr || (shown->lanes[me.warp] >> me.lane & 1) != 0) return;
    shown->lanes[me.warp] |= 1u << me.lane;
    if (shown->lanes[me.warp] == ~0u) {
        join(warp_of(me), shown->behind);
        for (uint32_t lane = 0; lane < LANES; ++lane) {
            auto& kept = self.threads[me.warp * LANES + lane].acquired;
            kept.erase(std::remove(kept.begin(), kept.end(), shown), kept.end());
        }
        return;
    }
    // The clock of a later phase of an mbarrier includes that of an earlier one.
    const auto known = std::find_if(me.acquired.begin(), me.acquired.end(), [&](const auto& s) { return s->mbarrier == shown->mbarrier; });
    if (known == me.acquired.end()) {
        me.acquired.push_back(shown);
    } else {
        *known = shown;
    }
}

inline bool covers(const clock& c, uint32_t warp_index, uint32_t lane, uint32_t step, uint32_t tick) {
    if (warp_index == TMA) return tick < c.details[phase_of(lane)];
    if (step < c.known[warp_index]) return true;
    if (lane == PRODUCTS) return tick < c.details[products_of(warp_index)];
    return tick < c.details[lane == ALL_LANES ? epoch_of(warp_index) : tick_of(warp_index * LANES + lane)];
}

}  // namespace kgen::emulator
