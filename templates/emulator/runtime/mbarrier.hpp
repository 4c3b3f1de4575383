// Mbarriers: phases, arrivals, bytes expected and landed, and who waits (PTX ISA, "mbarrier").
#pragma once

namespace kgen::emulator {

// A copy by TMA that has been issued and has not landed.
struct pending_tile {
    tensor_map_contents map;
    int32_t first[5];      // coordinates of the box's first element
    uint32_t destination;  // offset in shared memory
    uint32_t bytes;
    use issued;
    uint32_t warp, lane;
    uint32_t interval;
};

struct mbarrier {
    uint32_t offset;    // in shared memory
    uint32_t arrivals;  // a phase
    uint32_t pending;   // that the current phase lacks
    int64_t bytes;      // expected in the current phase and not landed; below 0, landed and not expected
    uint32_t phase;
    write_record made;  // its initialisation, for the race detector
    bool fenced;        // ... and the asynchronous proxy knows of it
    clock arriving;     // what those that have arrived knew
    uint32_t lanes[MAX_WARPS];         // who has arrived in the current phase
    std::shared_ptr<snapshot> ended;   // what the last phase showed at its end
    std::vector<pending_tile> copies;  // whose bytes it counts
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
    self.violations.tell(text_of(used) + " of warp " + std::to_string(current->warp) + " lane " + std::to_string(current->lane) + ": " + what);
}

// The mbarrier at an address; NULL, with a report, where there is none that this thread may use.
inline mbarrier* mbarrier_at(uint32_t address, const use& used) {
    const device_thread& me = this_thread();
    const uint32_t offset = address - SHARED_BASE;
    const auto found = std::find_if(mbarriers.begin(), mbarriers.end(), [&](const mbarrier& b) { return b.offset == offset; });
    if (found == mbarriers.end()) {
        complain_of_mbarrier("mbarrier", used, "there is no mbarrier at shared memory offset " + std::to_string(offset));
        return nullptr;
    }
    const write_record& made = found->made;
    const access a = {offset, 0, static_cast<uint8_t>(me.lane), me.warp, warp_of(me).step, used};
    const bool own = made.warp == me.warp && made.lane == me.lane;
    if (!own && made.step >= warp_of(me).known[made.warp] && !knows_in_detail(a, made.warp, made.lane, made.step, made.tick)) {
        complain_of_mbarrier("race", used, text_of(*found) + " is used with no block_sync since its " + text_of(self.uses[made.used]));
    }
    return &*found;
}

void mbarrier_init(uint32_t barrier, uint32_t arrivals, source at) {
    const device_thread& me = this_thread();
    const use used = {word::mbarrier_init, at};
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
    mbarriers.push_back(std::move(b));
}

inline void fence_own_mbarriers() {
    const device_thread& me = this_thread();
    for (mbarrier& b : mbarriers) b.fenced = b.fenced || (b.made.warp == me.warp && b.made.lane == me.lane);
}

void fence_mbarrier_init() { fence_own_mbarriers(); }

inline bool has_ended(const mbarrier& b, uint32_t parity) { return b.phase % 2 != parity; }

// Ends the phase if nothing is missing, and wakes those that wait for it.
inline void end_phase_if_complete(mbarrier& b) {
    self.polls = 0;
    if (b.pending != 0 || b.bytes != 0) return;
    const auto index = static_cast<uint32_t>(&b - mbarriers.data());
    ++b.phase;
    b.pending = b.arrivals;
    std::fill_n(b.lanes, MAX_WARPS, 0u);
    b.arriving.details[phase_of(index)] = b.phase;
    b.ended = std::make_shared<snapshot>(snapshot{b.arriving, index, {}});
    for (uint32_t i = 0; i < self.thread_count; ++i) {
        device_thread& t = self.threads[i];
        if (t.waits_for != index + 1 || !has_ended(b, t.parity)) continue;
        t.waits_for = 0;
        warp_of(t).ready |= 1u << t.position;
    }
}

// What the lane knows, and what it has done, from now on belongs to the phase.
inline void publish(device_thread& me, mbarrier& b) {
    warp& w = warp_of(me);
    join(b.arriving, w);
    for (const std::shared_ptr<snapshot>& shown : me.acquired) join(b.arriving, shown->behind);
    std::vector<uint32_t>& details = b.arriving.details;
    details[tick_of(me.thread)] = ++me.ticks;
    details[fence_of(me.thread)] = me.fenced;
    b.lanes[me.warp] |= 1u << me.lane;
    if (b.lanes[me.warp] == ~0u) details[epoch_of(me.warp)] = ++w.epoch;
}

inline void arrive(uint32_t barrier, uint32_t bytes, const use& used) {
    mbarrier* b = mbarrier_at(barrier, used);
    if (b == nullptr) return;
    if (bytes > MOST_ARRIVALS || b->bytes + bytes > MOST_ARRIVALS) {
        return complain_of_mbarrier("mbarrier", used, text_of(*b) + " would expect " + std::to_string(b->bytes + bytes) + " bytes; it counts to 2^20 - 1");
    }
    if (b->pending == 0) {
        return complain_of_mbarrier("mbarrier", used, "one arrival too many at " + text_of(*b) + ", which takes " + std::to_string(b->arrivals) +
                                                          " a phase, in phase " + std::to_string(b->phase));
    }
    publish(this_thread(), *b);
    b->bytes += bytes;
    --b->pending;
    end_phase_if_complete(*b);
}

void mbarrier_arrive(uint32_t barrier, source at) { arrive(barrier, 0, {word::mbarrier_arrive, at}); }

void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes, source at) { arrive(barrier, bytes, {word::mbarrier_arrive_expect_tx, at}); }

// Lets others run; this thread may go on at any time.
inline void yield_turn(device_thread& me) {
    warp& w = warp_of(me);
    const uint32_t others = w.ready & ~(1u << me.position);
    if (others != 0 && self.random.below(4) != 0 && self.polls <= MOST_POLLS) {
        const uint32_t above = others & ~((2u << me.position) - 1);
        const auto position = static_cast<uint32_t>(__builtin_ctz(above != 0 ? above : others));
        resume(me.place, self.threads[me.warp * LANES + (position ^ w.order)]);
    } else {
        kgen_emulator_switch(&me.place, &self.scheduler);
    }
}

void land_a_copy(mbarrier& b);

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
            if (!b->copies.empty() && self.random.below(4) == 0) land_a_copy(*b);
            yield_turn(me);
        } else {
            me.waits_for = static_cast<uint32_t>(index) + 1;
            me.parity = parity;
            leave(me, warp_of(me));
        }
        me.waiting.which = word::none;
        b = &mbarriers[index];  // others may have been made meanwhile
    }
    if (!has_ended(*b, parity)) return false;
    acquire(me, b->ended);
    return true;
}

bool mbarrier_try_wait(uint32_t barrier, uint32_t parity, source at) {
    return wait_for_phase(barrier, parity, patience::some, {word::mbarrier_try_wait, at});
}

bool mbarrier_test_wait(uint32_t barrier, uint32_t parity, source at) {
    return wait_for_phase(barrier, parity, patience::none, {word::mbarrier_test_wait, at});
}

void mbarrier_wait(uint32_t barrier, uint32_t parity, source at) {
    wait_for_phase(barrier, parity, patience::endless, {word::mbarrier_wait, at});
}

// For the report of a deadlock: a line for each mbarrier that somebody waits for.
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
