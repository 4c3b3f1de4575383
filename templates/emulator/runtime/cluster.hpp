// Clusters: blocks that run at the same time, each with its own memory, barriers and clocks. All other files handle one
// block, the running one; the state of the cluster's other blocks is stored, and swapped in when they run. A primitive
// that accesses another block temporarily makes that block the running one.
#pragma once

namespace kgen::emulator {

// A block of the cluster while another one runs.
struct resting_block {
    block_state state;
    shared_memory memory;
    race_detector accesses;
    std::vector<mbarrier> barriers;
    std::vector<warpgroup> groups = std::vector<warpgroup>(MAX_WARPS / WARPS_OF_GROUP);
    std::vector<warp_products> pending = std::vector<warp_products>(MAX_WARPS);
};

static std::vector<resting_block> resting;  // by rank; the entry of the running block is unused

inline void exchange(resting_block& other) {
    std::swap(static_cast<block_state&>(self), other.state);
    std::swap(shared, other.memory);
    std::swap(races, other.accesses);
    std::swap(mbarriers, other.barriers);
    std::swap(warpgroups, other.groups);
    std::swap(products, other.pending);
}

// Makes block `rank` the running one.
inline void switch_to(uint32_t rank) {
    if (rank == self.rank) return;
    exchange(resting[self.rank]);
    exchange(resting[rank]);
}

// Within its scope block `rank` is the running one, regardless of the running thread.
class visit {
  public:
    explicit visit(uint32_t rank) : from_(self.rank) { switch_to(rank); }
    ~visit() { switch_to(from_); }
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;

  private:
    uint32_t from_;
};

template <class Action>
inline void each_block(Action&& action) {
    for (uint32_t rank = 0; rank < self.cluster_size; ++rank) {
        const visit there(rank);
        action();
    }
}

// Allocates the blocks of a cluster.
inline void reserve_blocks(uint32_t count) {
    self.cluster_size = count;
    while (resting.size() < count) {
        resting.emplace_back();
        resting.back().state.rank = static_cast<uint32_t>(resting.size()) - 1;
    }
}

inline clock empty_clock() { return {{}, std::vector<uint32_t>(detail_count(), 0)}; }

// Translates a clock of block `from` for block `to`: accesses in `to` that are ordered before are stored in the clock
// itself, the rest in its details.
inline clock translated(const clock& c, uint32_t from, uint32_t to) {
    clock t = empty_clock();
    const auto put = [&](uint32_t rank, const uint32_t* steps, const uint32_t* details) {
        std::copy_n(steps, self.warp_count, rank == to ? t.known : &t.details[steps_in(rank)]);
        std::copy_n(details, block_details(), rank == to ? t.details.data() : &t.details[details_in(rank)]);
    };
    for (uint32_t rank = 0; rank < self.cluster_size; ++rank) {
        if (rank == from) {
            put(rank, c.known, c.details.data());
        } else {
            put(rank, &c.details[steps_in(rank)], &c.details[details_in(rank)]);
        }
    }
    return t;
}

// The lanes of a warp that have not exited must all wait for the same reason.
inline void check_warps_are_whole() {
    for (uint32_t i = 0; i < self.thread_count; ++i) {
        const device_thread& t = self.threads[i];
        const device_thread& next = self.threads[i / LANES * LANES + (i + 1) % LANES];
        if (t.ended || next.ended || t.waiting == next.waiting || !self.violations.is_news("cluster", t.waiting, next.waiting)) continue;
        self.violations.tell("lanes of warp " + std::to_string(t.warp) + " have come to different primitives, " + text_of(t.waiting) + " and " + text_of(next.waiting));
    }
}

// Joins the clocks of all threads and lets them continue.
inline void pass_block() {
    ++self.interval;
    self.polls = 0;
    self.order.wake();
    for (uint32_t i = 0; i < self.warp_count; ++i) ++self.warps[i].step;
    for (uint32_t i = 0; i < self.warp_count; ++i) {
        for (uint32_t u = 0; u < self.warp_count; ++u) self.warps[i].known[u] = self.warps[u].step;
    }
    for (uint32_t i = 0; i < self.thread_count; ++i) {
        const device_thread& t = self.threads[i];
        if (!t.ended) warp_of(t).ready |= 1u << t.position;
    }
    if (self.detailed) share_details_in_block();
}

// Releases the threads that wait in cluster_sync, if none is missing.
bool pass_cluster_sync() {
    if (self.at_cluster_sync == 0 || self.at_cluster_sync != self.alive) return false;
    self.at_cluster_sync = 0;
    blocks_met.pass_cluster_sync();
    std::vector<clock> known;  // [rank]
    each_block([&] {
        check_warps_are_whole();
        pass_block();
        known.push_back(self.warps[0]);
    });
    if (self.cluster_size == 1) return true;
    each_block([&] {
        for (uint32_t rank = 0; rank < self.cluster_size; ++rank) {
            if (rank != self.rank) join(self.warps[0], translated(known[rank], rank, self.rank));
        }
        for (uint32_t i = 1; i < self.warp_count; ++i) self.warps[i].details = self.warps[0].details;
    });
    return true;
}

void cluster_sync(source at) {
    device_thread& me = this_thread();
    me.waiting = {primitive::cluster_sync, at};
    ++self.at_cluster_sync;
    if (pass_cluster_sync()) {
        kgen_emulator_switch(&me.place, &self.scheduler);  // any warp of any block may be the first after it
    } else {
        leave(me, warp_of(me));
    }
    me.waiting.which = primitive::none;
}

// Runs the block of the highest priority. A copy may be delayed until no warp of any block can continue.
inline bool block_of_highest_priority_goes_on() {
    uint32_t chosen = self.cluster_size;
    int32_t highest = 0;
    for (uint32_t rank = 0; rank < self.cluster_size; ++rank) {
        const runnable_warps runnable(rank == self.rank ? static_cast<const block_state&>(self) : resting[rank].state);
        if (runnable.count == 0 || (chosen != self.cluster_size && runnable.highest < highest)) continue;
        chosen = rank;
        highest = runnable.highest;
    }
    if (chosen != self.cluster_size) {
        switch_to(chosen);
        return go_on();
    }
    bool landed = false;
    each_block([&] { landed = landed || land_an_awaited_copy(); });
    return landed;
}

inline bool some_block_goes_on() {
    if (self.cluster_size == 1) return go_on();
    if (self.order.by_priority()) return block_of_highest_priority_goes_on();
    const uint32_t first = self.random.below(self.cluster_size);
    for (uint32_t i = 0; i < self.cluster_size; ++i) {
        switch_to((first + i) % self.cluster_size);
        if (go_on()) return true;
    }
    return false;
}

inline void report_deadlock() {
    const use nothing = {primitive::none, {"", 0}};
    if (!self.violations.is_news("deadlock", nothing, nothing)) return;
    if (self.cluster_size == 1) return self.violations.tell("no thread of the block can go on, " + where_block_waits());
    std::string text = "no thread of the cluster can go on";
    each_block([&] { text += "\n   block " + std::to_string(self.block) + ", " + where_block_waits(); });
    self.violations.name_blocks(nullptr);
    self.violations.tell(text);
}

// Starts the blocks of a cluster.
inline void begin_cluster(uint32_t first_block, uint32_t thread_count, uint32_t shared_bytes, int32_t depth, uint32_t expected_steps) {
    self.alive = self.cluster_size * thread_count;
    blocks_met.begin_cluster(first_block);
    self.at_cluster_sync = 0;
    each_block([&] {
        if (self.first_step > UINT32_MAX / 2) {
            races.forget();
            self.first_step = 1;
        }
        shared.prepare(shared_bytes);
        races.prepare(shared_bytes, thread_count / LANES);
        start_block(first_block + self.rank, thread_count);
        if (self.cluster_size > 1) start_details();
    });
    const uint32_t warps = self.cluster_size * self.warp_count;
    self.order.begin(self.random, depth, expected_steps, warps, WARPS_OF_GROUP);
}

constexpr uint32_t MOST_FLAG_POLLS = 256;  // per block, before others are scheduled

// Runs the cluster until it ends, until it cannot proceed or has lasted too long (true), or until it appears to wait
// for blocks of other clusters.
inline bool run_cluster() {
    bool goes_on = true, waits = false;
    while (self.alive > 0 && goes_on && !waits) {
        goes_on = some_block_goes_on() && !self.allowed.is_lost;
        waits = self.flag_polls > MOST_FLAG_POLLS;
    }
    if (self.alive > 0 && goes_on) {
        each_block([] { self.flag_polls = 0; });
        switch_to(0);
        return false;
    }
    if (self.alive > 0 && !self.allowed.is_lost) report_deadlock();
    each_block([] { finish_block(self.alive == 0); });
    switch_to(0);
    return true;
}

}  // namespace kgen::emulator
