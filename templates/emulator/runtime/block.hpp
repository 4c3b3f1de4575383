// A running block: its threads are fibers, and this part selects the one that continues.
//
// The lanes of a warp run one after another until each has reached the next warp-wide primitive; the last to arrive
// does the work of that primitive for all. When no lane of a warp can continue (a block barrier, or exit), the
// scheduler picks another warp (schedule.hpp). When no thread of the block can continue, nor of those that run with it
// (cluster.hpp), that is a deadlock.
#pragma once

namespace kgen::emulator {

constexpr uint32_t LANES = 32;
constexpr uint32_t MAX_THREADS = 1024;
constexpr uint32_t MAX_WARPS = MAX_THREADS / LANES;
constexpr uint32_t VISITOR = MAX_WARPS;  // index in place of a warp: a thread of another block of the cluster

// A copy that has been issued and is not complete.
struct pending_copy {
    uint32_t destination;  // offset in shared memory
    const void* from;
    uint32_t bytes;  // copied from `from`; the rest of the chunk becomes zeros
    uint32_t group;
    use issued;
    uint32_t interval;  // number of block barriers passed when it was issued
};

// A TMA store that still needs its source.
struct pending_store {
    tensor_map_contents map;
    int32_t first[5];                     // coordinates of the box's first element
    uint32_t source;                      // offset in shared memory
    uint32_t group;
    use issued;
    std::vector<unsigned char> contents;  // of the box, row after row; empty until it has been read
};

// The accesses that are ordered before a thread, for the race detector. known[u]: everything that warp u did before
// that step of its own. `details`, needed only in blocks with mbarriers, are finer: see clock.hpp.
struct clock {
    uint32_t known[MAX_WARPS];
    std::vector<uint32_t> details;
};

struct snapshot;
struct released;

struct device_thread : identity {
    context place;
    uint32_t position;  // of its lane in the order in which the warp's lanes run
    use waiting;        // `primitive::none`: it can continue
    bool ended;
    std::vector<pending_copy> copies;
    uint32_t open_group;  // number of the group that the next commit closes
    std::vector<pending_store> stores;
    uint32_t open_store_group;
    uint32_t ticks;       // counts its arrivals at mbarriers and its proxy fences
    uint32_t fenced;      // `ticks` at the last proxy fence
    uint32_t waits_for;   // 1 + the mbarrier whose phase it waits for; 0: none
    uint32_t parity;      // of the phase that it waits for
    bool awaits_nothing;  // it has waited for all earlier kernels
    std::vector<std::shared_ptr<snapshot>> acquired;  // from its waits for mbarriers, not yet in its warp's clock
};

// The operands that a lane contributes to a warp-wide primitive.
struct lane_operands {
    void* result;
    const void* input;
    uint32_t words[2];
    float value;
};

struct warp : clock {
    uint32_t ready;    // lanes, by position, that can continue
    uint32_t arrived;  // lanes that wait in a warp-wide primitive
    bool divergent;    // the lanes that wait are not all in the same primitive
    use meeting;
    bool held;       // waits in a named barrier
    uint32_t order;  // position ^ order is the lane
    lane_operands operands[LANES];
    float results[LANES];
    // Vector clock for the race detector: `step` counts this warp's warp-wide primitives. All accesses of warp u before
    // its step `known[u]` are ordered before this warp. known[itself] is its last warp_sync or barrier.
    uint32_t step;
    uint32_t epoch;  // number of times that all 32 lanes have arrived at an mbarrier
};

// The state of a named barrier while threads arrive.
struct named_barrier {
    uint32_t arrived;  // threads
    int threads;       // needed to complete it
    bool waits[MAX_WARPS];
    uint32_t knows[MAX_WARPS];  // joined clocks of the arrived warps, own steps included
    std::vector<uint32_t> details;  // joined detailed clocks, in a block with mbarriers
    uint32_t came[MAX_WARPS];       // the step of each warp when it arrived; 0: it has not
    uint32_t before[MAX_WARPS];     // the step of each warp when it arrived for the most recently completed use
    use used[MAX_WARPS];            // place of each warp's last arrival
};

constexpr int NAMED_BARRIERS = 16;  // number 0 is block_sync's

// The last arrival of a thread of another block.
struct far_arrival {
    uint32_t rank, warp, lane;
    uint32_t step, tick;  // of that thread, at the arrival
    use used;
};

// A flag that a thread has found set, and the clocks acquired from it (atomics.hpp).
struct flag_acquire {
    uint32_t warp, lane, step, tick;
    std::shared_ptr<const released> shown;
};

// State private to the running block, except its memory and the records of accesses to it.
struct block_state {
    uint32_t block = 0;
    uint32_t rank = 0;  // in its cluster
    std::unique_ptr<named_barrier[]> barriers = std::make_unique<named_barrier[]>(NAMED_BARRIERS);
    std::unique_ptr<device_thread[]> threads = std::make_unique<device_thread[]>(MAX_THREADS);
    std::unique_ptr<warp[]> warps = std::make_unique<warp[]>(MAX_WARPS + 1);  // one for VISITOR
    uint32_t thread_count = 0;
    uint32_t warp_count = 0;
    uint32_t at_barrier = 0;  // threads that wait in block_sync
    uint32_t interval = 0;    // number of block barriers passed
    uint32_t first_step = 1;  // steps below belong to earlier blocks
    bool detailed = false;    // mbarriers are in use: clocks have details
    uint32_t polls = 0;       // mbarrier tests that failed since the last progress
    std::vector<far_arrival> far_arrivals;
    std::vector<flag_acquire> flags_acquired;
    uint32_t flag_polls = 0;  // reads of flags since the block started its turn
};

struct machine : block_state {
    bool early = false;            // the launch: by launch_early()
    bool flag_written = false;     // since the last check
    uint32_t cluster_size = 1;     // blocks that run together
    uint32_t alive = 0;            // their threads that have not exited
    uint32_t at_cluster_sync = 0;  // threads of these blocks that wait in cluster_sync
    context scheduler = {};
    stack_pool stacks;
    random_numbers random = {0};
    schedule order;
    time_limit allowed;
    use_table uses;
    report violations;
    void (*enter)(const void*) = nullptr;
    const void* call = nullptr;
};

static machine self;
const identity* current = nullptr;

inline device_thread& this_thread() { return *const_cast<device_thread*>(static_cast<const device_thread*>(current)); }
inline warp& warp_of(const device_thread& t) { return self.warps[t.warp]; }

inline void resume(context& from, device_thread& next) {
    current = &next;
    kgen_emulator_switch(&from, &next.place);
}

// Switches away: to the next runnable lane of the warp, or else to the scheduler. Returns when this thread is resumed.
inline void leave(device_thread& me, warp& w) {
    w.ready &= ~(1u << me.position);
    if (w.ready == 0) {
        kgen_emulator_switch(&me.place, &self.scheduler);
        return;
    }
    const uint32_t start = (me.position + 1) % LANES;
    const uint32_t rotated = w.ready >> start | w.ready << (LANES - start) % LANES;
    const uint32_t position = (start + static_cast<uint32_t>(__builtin_ctz(rotated))) % LANES;
    resume(me.place, self.threads[me.warp * LANES + (position ^ w.order)]);
}

// A warp's number among those of all blocks that run together.
inline uint32_t number_of(const block_state& block, uint32_t warp_index) { return block.rank * block.warp_count + warp_index; }

inline void report_endless();

// Counts a step of the running thread that a loop may repeat forever (time_limit.hpp). Does not return if the launch
// has lasted too long: the thread is never resumed.
inline void count_step() {
    if (!self.allowed.step(!self.violations.empty())) return;
    report_endless();
    kgen_emulator_switch(&this_thread().place, &self.scheduler);
}

// Completes a step of the schedule for the running thread (schedule.hpp). Returns when the thread is resumed.
inline void take_step() {
    count_step();
    device_thread& me = this_thread();
    if (self.order.step(number_of(self, me.warp))) kgen_emulator_switch(&me.place, &self.scheduler);
}

// Synchronises the lanes of the warp. Returns true in the last lane to arrive, which must do the work for all before it
// uses another primitive; returns false in the other lanes, after that work is done.
inline bool meet(primitive which, source at) {
    device_thread& me = this_thread();
    warp& w = warp_of(me);
    me.waiting = {which, at};
    if (w.arrived++ == 0) {
        w.meeting = me.waiting;
    } else if (!(w.meeting == me.waiting)) {
        w.divergent = true;
    }
    if (w.arrived == LANES && !w.divergent) {
        w.arrived = 0;
        w.ready = ~0u;
        me.waiting.which = primitive::none;
        ++w.step;
        count_step();
        return true;
    }
    leave(me, w);
    me.waiting.which = primitive::none;
    return false;
}

void share_details_in_warp(uint32_t index);
void share_details_in_block();

void warp_sync(source at) {
    if (meet(primitive::warp_sync, at)) {
        warp& w = warp_of(this_thread());
        w.known[current->warp] = w.step;
        if (self.detailed) share_details_in_warp(current->warp);
    }
}

void block_sync(source at) {
    device_thread& me = this_thread();
    me.waiting = {primitive::block_sync, at};
    if (++self.at_barrier == self.thread_count) {
        self.at_barrier = 0;
        ++self.interval;
        for (uint32_t i = 0; i < self.warp_count; ++i) ++self.warps[i].step;
        for (uint32_t i = 0; i < self.warp_count; ++i) {
            self.warps[i].ready = ~0u;
            for (uint32_t u = 0; u < self.warp_count; ++u) self.warps[i].known[u] = self.warps[u].step;
        }
        if (self.detailed) share_details_in_block();
        self.polls = 0;
        count_step();
        kgen_emulator_switch(&me.place, &self.scheduler);  // any warp may be the first after a barrier
    } else {
        leave(me, warp_of(me));
    }
    me.waiting.which = primitive::none;
}

void check_unfinished_copies(const device_thread& t);
void check_uncommitted_stores(const device_thread& t);
void check_earlier_kernels_at_end(const device_thread& t);
bool pass_cluster_sync();

inline void thread_main() {
    self.enter(self.call);
    device_thread& me = this_thread();
    check_unfinished_copies(me);
    check_uncommitted_stores(me);
    check_earlier_kernels_at_end(me);
    me.ended = true;
    --self.alive;
    pass_cluster_sync();
    leave(me, warp_of(me));
}

// "lanes 0-15, 17 wait in warp_sync (x.cu:90); lanes 16, 18-31 have ended"
inline std::string where_lanes_wait(uint32_t index) {
    std::vector<std::pair<std::string, std::string>> groups;  // state, and the lanes in it
    uint32_t first = 0;
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        const auto state = [&](uint32_t l) {
            const device_thread& t = self.threads[index * LANES + l];
            if (t.ended) return std::string("have ended");
            return t.waiting.which == primitive::none ? std::string("can go on") : "wait in " + text_of(t.waiting);
        };
        if (lane + 1 < LANES && state(lane + 1) == state(lane)) continue;
        const std::string range = std::to_string(first) + (lane > first ? "-" + std::to_string(lane) : "");
        first = lane + 1;
        const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == state(lane); });
        if (known == groups.end()) {
            groups.emplace_back(state(lane), "lanes " + range);
        } else {
            known->second += ", " + range;
        }
    }
    std::string text;
    for (const auto& [state, lanes] : groups) text += (text.empty() ? "" : "; ") + lanes + " " + state;
    return text;
}

std::string what_mbarriers_lack();

// The block's progress, and the primitives that it waits in.
inline std::string where_block_waits() {
    std::string text = "barrier interval " + std::to_string(self.interval);
    for (uint32_t i = 0; i < self.warp_count; ++i) text += "\n    warp " + std::to_string(i) + ": " + where_lanes_wait(i);
    return text + what_mbarriers_lack();
}

// Reports that the launch has lasted too long.
inline void report_endless() {
    const use nothing = {primitive::none, {"", 0}};
    const bool is_faulty = !self.violations.empty();
    if (!self.violations.is_news("endless", nothing, nothing)) return;
    char limit[64];
    snprintf(limit, sizeof limit, "%g s of processor time (KGEN_EMULATOR_SECONDS)", self.allowed.limit());
    self.violations.tell(std::string("the launch was ended ") + (is_faulty ? "some time after the violations above" : std::string("after ") + limit) +
                         ": a loop does not end, or does not end soon, as where lengths in memory are wrong or change during the call; " + where_block_waits());
}

// Actions of the asynchronous proxy, concurrent with the threads (tma.hpp).
void forget_mbarriers();
bool land_an_awaited_copy();
void check_unfinished_tiles();
void finish_stores();

// Accesses of threads of other blocks to this one (cluster.hpp).
void check_far_arrivals();

// Warpgroup-wide operations (warpgroup.hpp, wgmma.hpp).
void forget_warpgroups();
void check_warpgroups();
void forget_products();
void check_unfinished_products();

void check_barriers_are_empty();
void check_mbarriers_are_empty();

constexpr uint32_t MOST_POLLS = 1u << 20;

// Sets up a block in which nothing has run yet.
inline void start_block(uint32_t block, uint32_t thread_count) {
    self.block = block;
    self.thread_count = thread_count;
    self.warp_count = thread_count / LANES;
    self.at_barrier = 0;
    self.interval = 0;
    self.far_arrivals.clear();
    self.flags_acquired.clear();
    self.flag_polls = 0;
    std::fill_n(self.barriers.get(), NAMED_BARRIERS, named_barrier{});
    for (uint32_t i = 0; i < self.warp_count; ++i) {
        warp& w = self.warps[i];
        w.ready = ~0u;
        w.arrived = 0;
        w.divergent = false;
        w.held = false;
        w.order = self.random.below(LANES);
        w.step = self.first_step;
        w.epoch = 0;
        std::fill_n(w.known, MAX_WARPS, self.first_step);
    }
    forget_mbarriers();
    forget_warpgroups();
    forget_products();
    for (uint32_t i = 0; i < thread_count; ++i) {
        device_thread& t = self.threads[i];
        static_cast<identity&>(t) = {i, block, i / LANES, i % LANES};
        t.position = t.lane ^ self.warps[t.warp].order;
        t.waiting = {primitive::none, {"", 0}};
        t.ended = false;
        t.copies.clear();
        t.open_group = 0;
        t.stores.clear();
        t.open_store_group = 0;
        t.ticks = t.fenced = t.waits_for = 0;
        t.awaits_nothing = !self.early;
        t.acquired.clear();
        prepare(t.place, self.stacks.top(self.rank * thread_count + i), thread_main);
    }
}

// The runnable warps of a block, or only those with the highest priority.
struct runnable_warps {
    explicit runnable_warps(const block_state& block) {
        if (block.polls > MOST_POLLS) return;
        for (uint32_t i = 0; i < block.warp_count; ++i) {
            if (block.warps[i].ready == 0) continue;
            const int32_t priority = self.order.by_priority() ? self.order.priority(number_of(block, i)) : 0;
            if (count == 0 || priority > highest) {
                count = 0;
                highest = priority;
            }
            if (priority == highest) numbers[count++] = i;
        }
    }
    uint32_t numbers[MAX_WARPS];
    uint32_t count = 0;
    int32_t highest = 0;
};

// Runs one of the running block's warps.
inline void run_one_of(const runnable_warps& runnable) {
    const uint32_t chosen = runnable.numbers[self.random.below(runnable.count)];
    const warp& w = self.warps[chosen];
    const auto position = static_cast<uint32_t>(__builtin_ctz(w.ready));
    resume(self.scheduler, self.threads[chosen * LANES + (position ^ w.order)]);
}

// Lets a warp or a copy of the block make progress; false if it cannot proceed by itself.
inline bool go_on() {
    const runnable_warps runnable(self);
    const bool by_chance = self.detailed && self.order.copies != landing::late && self.random.below(4) == 0;
    if ((runnable.count == 0 || by_chance) && land_an_awaited_copy()) return true;
    if (runnable.count == 0) return false;
    run_one_of(runnable);
    return true;
}

// Called when the block has ended, or is abandoned.
inline void finish_block(bool all_have_ended) {
    if (all_have_ended) {
        check_far_arrivals();
        check_unfinished_tiles();
        check_unfinished_products();
        check_barriers_are_empty();
        check_mbarriers_are_empty();
        check_warpgroups();
        finish_stores();
    }
    for (uint32_t i = 0; i < self.warp_count; ++i) self.first_step = std::max(self.first_step, self.warps[i].step + 1);
}

}  // namespace kgen::emulator
