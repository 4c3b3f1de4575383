// Mbarriers: phases, arrivals, expected and copied bytes, and waiting threads (PTX ISA, "mbarrier").
#pragma once

namespace kgen::emulator {

// A TMA copy that has been issued and is not complete.
struct pending_tile {
    tensor_map_contents map;
    int32_t first[5];      // coordinates of the box's first element
    uint32_t destination;  // offset in shared memory
    uint32_t bytes;
    use issued;
    uint32_t warp, lane;
    uint32_t interval;
    std::vector<uint32_t> behind;  // clock of the issuing thread of another block
};

struct mbarrier {
    uint32_t offset;    // in shared memory
    uint32_t arrivals;  // per phase
    uint32_t pending;   // missing in the current phase
    int64_t bytes;      // expected in the current phase and not yet copied; below 0, copied and not yet expected
    uint32_t phase;
    write_record made;  // its initialisation, for the race detector
    bool fenced;        // the initialisation is visible to the asynchronous proxy
    clock arriving;     // joined clocks of the arrived threads
    std::vector<uint32_t> lanes;       // arrivals in the current phase: a lane mask per warp of each block
    bool from_afar;                    // threads of other blocks have arrived in the current phase too
    std::shared_ptr<snapshot> ended;   // clock that the last phase passed on at its end
    std::vector<pending_tile> copies;  // copies whose bytes it counts
};

constexpr uint32_t MOST_ARRIVALS = (1u << 20) - 1;  // and bytes: both counts have 20 bits
constexpr uint32_t MBARRIER_BYTES = 8;

static std::vector<mbarrier> mbarriers;  // of the running block

void forget_mbarriers() {
    mbarriers.clear();
    self.detailed = false;
    self.polls = 0;
}

inline std::string text_of(const mbarrier& b) { return "the mbarrier at shared memory offset " + std::to_string(b.offset); }

inline void complain_of_mbarrier(const char* kind, const use& used, const std::string& what) {
    if (!self.violations.is_news(kind, used, used)) return;
    const bool is_visitor = current->block != self.block;
    self.violations.tell(who(used, is_visitor ? VISITOR : current->warp, current->lane) + ": " + what);
}

// The mbarrier at the address of the access; NULL, with a report, if there is none that the access may use.
inline mbarrier* mbarrier_for(const access& a) {
    const auto found = std::find_if(mbarriers.begin(), mbarriers.end(), [&](const mbarrier& b) { return b.offset == a.offset; });
    if (found == mbarriers.end()) {
        complain_of_mbarrier("mbarrier", a.used, "there is no mbarrier at shared memory offset " + std::to_string(a.offset));
        return nullptr;
    }
    const write_record& made = found->made;
    const bool own = made.warp == a.warp && made.lane == a.lane;
    if (!own && made.step >= self.warps[a.warp].known[made.warp] && !knows_in_detail(a, made.warp, made.lane, made.step, made.tick)) {
        const char* missing = a.warp == VISITOR ? "cluster_sync" : "block_sync";
        complain_of_mbarrier("race", a.used, text_of(*found) + " is used with no " + missing + " since its " + text_of(self.uses[made.used]));
    }
    return &*found;
}

inline access mbarrier_access(const device_thread& me, uint32_t address, const use& used) {
    return {address - SHARED_BASE, 0, static_cast<uint8_t>(me.lane), me.warp, warp_of(me).step, used};
}

// The mbarrier at an address in the running thread's block.
inline mbarrier* mbarrier_at(uint32_t address, const use& used) {
    if (is_of_cluster(address)) {
        complain_of_mbarrier("cluster", used, beyond_reach(address));
        return nullptr;
    }
    return mbarrier_for(mbarrier_access(this_thread(), address, used));
}

void mbarrier_init(uint32_t barrier, uint32_t arrivals, source at) {
    const device_thread& me = this_thread();
    const use used = {primitive::mbarrier_init, at};
    if (shared.at(barrier, MBARRIER_BYTES, used, me.warp, me.lane) == nullptr) return;
    if (arrivals == 0 || arrivals > MOST_ARRIVALS) {
        return complain_of_mbarrier("mbarrier", used, std::to_string(arrivals) + " arrivals; a phase has 1 to 2^20 - 1");
    }
    if (mbarriers.size() == MOST_MBARRIERS) return complain_of_mbarrier("mbarrier", used, "more mbarriers than the emulator has room for");
    start_details();
    const access a = access_of(me, barrier, MBARRIER_BYTES, used);
    races.mbarrier_made(a);
    mbarrier b = {};
    b.offset = a.offset;
    b.arrivals = b.pending = arrivals;
    b.made = {a.step, tick_now(a), self.uses.number_of(used), static_cast<uint8_t>(me.warp), static_cast<uint8_t>(me.lane), 15};
    b.arriving.details.assign(detail_count(), 0);
    b.lanes.assign(self.cluster_size * self.warp_count, 0);
    mbarriers.push_back(std::move(b));
}

inline void fence_own_mbarriers() {
    const device_thread& me = this_thread();
    for (mbarrier& b : mbarriers) b.fenced = b.fenced || (b.made.warp == me.warp && b.made.lane == me.lane);
}

void fence_mbarrier_init() { fence_own_mbarriers(); }

inline bool has_ended(const mbarrier& b, uint32_t parity) { return b.phase % 2 != parity; }

// Completes the phase if nothing is missing, and wakes the threads that wait for it.
inline void end_phase_if_complete(mbarrier& b) {
    self.polls = 0;
    if (b.pending != 0 || b.bytes != 0) return;
    const auto index = static_cast<uint32_t>(&b - mbarriers.data());
    ++b.phase;
    b.pending = b.arrivals;
    std::fill(b.lanes.begin(), b.lanes.end(), 0u);
    b.arriving.details[phase_of(index)] = b.phase;
    b.ended = std::make_shared<snapshot>(snapshot{b.arriving, index, {}, b.from_afar});
    b.from_afar = false;
    for (uint32_t i = 0; i < self.thread_count; ++i) {
        device_thread& t = self.threads[i];
        if (t.waits_for != index + 1 || !has_ended(b, t.parity)) continue;
        t.waits_for = 0;
        warp_of(t).ready |= 1u << t.position;
        self.order.wake();
    }
}

// Joins the clock of a lane of warp `w`, and its own accesses, into a clock of their block.
inline void publish(device_thread& me, const warp& w, clock& to) {
    join(to, w);
    for (const std::shared_ptr<snapshot>& shown : me.acquired) join(to, shown->behind);
    to.details[tick_of(me.thread)] = ++me.ticks;
    to.details[fence_of(me.thread)] = me.fenced;
}

// Counts a lane among those of its warp that have arrived in a phase. When all have, their common accesses are
// included.
inline void publish_epoch(const device_thread& me, warp& w, uint32_t& lanes, clock& to) {
    lanes |= 1u << me.lane;
    if (lanes == ~0u) to.details[epoch_of(me.warp)] = ++w.epoch;
}

// False, with a report, if the phase has all its arrivals. An arrival must be ordered after the end of the previous
// phase, by a wait of its thread or of a thread ordered before it: otherwise, under another schedule, it would
// arrive in that phase.
inline bool takes_arrival(const mbarrier& b, const access& by) {
    const auto index = static_cast<uint32_t>(&b - mbarriers.data());
    if (b.phase > 0 && !knows_in_detail(by, TMA, index, 0, b.phase - 1)) {
        complain_of_mbarrier("mbarrier", by.used, "an arrival in phase " + std::to_string(b.phase) + " of " + text_of(b) +
                                                      " that nothing orders behind the end of the phase before: it may come in that one");
    }
    if (b.pending != 0) return true;
    complain_of_mbarrier("mbarrier", by.used, "one arrival too many at " + text_of(b) + ", which takes " + std::to_string(b.arrivals) + " a phase, in phase " +
                                               std::to_string(b.phase));
    return false;
}

inline void arrive(uint32_t barrier, uint32_t bytes, const use& used) {
    device_thread& me = this_thread();
    mbarrier* b = mbarrier_at(barrier, used);
    if (b == nullptr) return;
    if (bytes > MOST_ARRIVALS || b->bytes + bytes > MOST_ARRIVALS) {
        return complain_of_mbarrier("mbarrier", used, text_of(*b) + " would expect " + std::to_string(b->bytes + bytes) + " bytes; it counts to 2^20 - 1");
    }
    if (!takes_arrival(*b, mbarrier_access(me, barrier, used))) return;
    publish(me, warp_of(me), b->arriving);
    publish_epoch(me, warp_of(me), b->lanes[self.rank * self.warp_count + me.warp], b->arriving);
    b->bytes += bytes;
    --b->pending;
    end_phase_if_complete(*b);
}

void mbarrier_arrive(uint32_t barrier, source at) {
    arrive(barrier, 0, {primitive::mbarrier_arrive, at});
    take_step();
}

void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes, source at) {
    arrive(barrier, bytes, {primitive::mbarrier_arrive_expect_tx, at});
    take_step();
}

// Lets other threads run; this thread may continue at any time. A polling warp yields to all others: the warp that it
// waits for may have a lower priority.
inline void yield_turn(device_thread& me) {
    warp& w = warp_of(me);
    const uint32_t others = w.ready & ~(1u << me.position);
    if (others != 0 && self.random.below(4) != 0 && self.polls <= MOST_POLLS) {
        const uint32_t above = others & ~((2u << me.position) - 1);
        const auto position = static_cast<uint32_t>(__builtin_ctz(above != 0 ? above : others));
        resume(me.place, self.threads[me.warp * LANES + (position ^ w.order)]);
    } else {
        if (self.order.by_priority()) self.order.lower(number_of(self, me.warp));
        kgen_emulator_switch(&me.place, &self.scheduler);
    }
}

void land_a_copy(mbarrier& b);

constexpr uint32_t POLLS_WITHOUT_COPY = 64;  // failed polls before a delayed copy completes

// Decides whether a poll makes a copy complete.
inline bool poll_lands_a_copy(const mbarrier& b) {
    if (b.copies.empty()) return false;
    return self.order.copies == landing::late ? self.polls > POLLS_WITHOUT_COPY : self.random.below(4) == 0;
}

enum class patience { none, some, endless };

inline bool wait_for_phase(uint32_t barrier, uint32_t parity, patience how, const use& used) {
    device_thread& me = this_thread();
    mbarrier* b = mbarrier_at(barrier, used);
    if (b == nullptr) return true;
    if (parity > 1) {
        complain_of_mbarrier("mbarrier", used, "parity " + std::to_string(parity) + " is not 0 or 1");
        return true;
    }
    const auto index = static_cast<size_t>(b - mbarriers.data());
    if (!has_ended(*b, parity)) {
        me.waiting = used;
        if (how == patience::none || (how == patience::some && self.random.below(4) == 0)) {
            ++self.polls;
            if (poll_lands_a_copy(*b)) land_a_copy(*b);
            yield_turn(me);
        } else {
            me.waits_for = static_cast<uint32_t>(index) + 1;
            me.parity = parity;
            leave(me, warp_of(me));
        }
        me.waiting.which = primitive::none;
        b = &mbarriers[index];  // others may have been made in the meantime
    }
    if (!has_ended(*b, parity)) return false;
    if (b->ended != nullptr && b->ended->from_afar && used.which != primitive::mbarrier_wait_cluster) {
        complain_of_mbarrier("cluster", used, "threads of other blocks have arrived at " + text_of(*b) + "; only mbarrier_wait_cluster shows what they have done");
    }
    acquire(me, b->ended);
    return true;
}

bool mbarrier_try_wait(uint32_t barrier, uint32_t parity, source at) {
    return wait_for_phase(barrier, parity, patience::some, {primitive::mbarrier_try_wait, at});
}

bool mbarrier_test_wait(uint32_t barrier, uint32_t parity, source at) {
    return wait_for_phase(barrier, parity, patience::none, {primitive::mbarrier_test_wait, at});
}

void mbarrier_wait(uint32_t barrier, uint32_t parity, source at) {
    wait_for_phase(barrier, parity, patience::endless, {primitive::mbarrier_wait, at});
}

void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity, source at) {
    wait_for_phase(barrier, parity, patience::endless, {primitive::mbarrier_wait_cluster, at});
}

// Called when the block has ended: a phase must have had all of its arrivals, or none.
void check_mbarriers_are_empty() {
    for (const mbarrier& b : mbarriers) {
        const use& made = self.uses[b.made.used];
        if (b.pending == b.arrivals || !self.violations.is_news("mbarrier", made, made)) continue;
        self.violations.tell("the block ends when " + std::to_string(b.arrivals - b.pending) + " of " + std::to_string(b.arrivals) + " have arrived in phase " +
                             std::to_string(b.phase) + " of " + text_of(b) + ", made by " + text_of(made));
    }
}

// For the report of a deadlock: a line for each mbarrier that a thread waits for.
std::string what_mbarriers_lack() {
    std::string text;
    for (size_t i = 0; i < mbarriers.size(); ++i) {
        const mbarrier& b = mbarriers[i];
        const auto threads = std::count_if(self.threads.get(), self.threads.get() + self.thread_count, [&](const device_thread& t) { return t.waits_for == i + 1; });
        if (threads == 0) continue;
        text += "\n    " + std::to_string(threads) + " threads wait for phase " + std::to_string(b.phase) + " (parity " + std::to_string(b.phase % 2) + ") of " +
                text_of(b) + ", made by " + text_of(self.uses[b.made.used]) + ": " + std::to_string(b.pending) + " of " + std::to_string(b.arrivals) +
                " arrivals are missing; ";
        if (b.bytes < 0) {
            text += std::to_string(-b.bytes) + " bytes have landed that it does not expect";
        } else {
            text += std::to_string(b.bytes) + " bytes are expected that no copy brings";
        }
    }
    return text;
}

void race_detector::report_tile_in_flight(const access& a, const char* does, uint32_t index) {
    const mbarrier& b = mbarriers[index];
    const auto covers_chunk = [&](const pending_tile& c) { return a.offset / CHUNK * CHUNK - c.destination < c.bytes; };
    const auto copy = std::find_if(b.copies.begin(), b.copies.end(), covers_chunk);
    if (copy == b.copies.end() || !self.violations.is_news("race", a.used, copy->issued)) return;
    self.violations.tell(who(a.used, a.warp, a.lane) + " " + does + " the destination of " + who(copy->issued, copy->warp, copy->lane) + " of interval " +
                         std::to_string(copy->interval) + ", which has not landed: nobody has waited for phase " + std::to_string(b.phase) + " of " +
                         text_of(b) + ": " + place(a));
}

}  // namespace kgen::emulator
