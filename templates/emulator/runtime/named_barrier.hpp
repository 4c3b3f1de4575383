// Barriers of some of a block's warps: bar.arrive and bar.sync with a number and a count of threads.
//
// A barrier completes repeatedly, and only the order of arrivals distinguishes its uses. So an arrival must be ordered
// after the completion of the previous use, by a wait of its warp or of a warp ordered before it: otherwise, under
// another schedule, it would arrive at that earlier use.
#pragma once

namespace kgen::emulator {

// Checks that the arrivals of all participants of the barrier's last use are ordered before the warp.
inline void check_last_use_is_known(const named_barrier& b, int barrier, const warp& mine, const use& used) {
    for (uint32_t u = 0; u < self.warp_count; ++u) {
        if (u == current->warp || b.before[u] <= mine.known[u]) continue;
        if (!self.violations.is_news("barrier", used, b.used[u])) return;
        return self.violations.tell(text_of(used) + " of warp " + std::to_string(current->warp) + ": nothing orders this behind the last completion of barrier " +
                                    std::to_string(barrier) + ", to which warp " + std::to_string(u) + " has come by " + text_of(b.used[u]));
    }
}

// Called when the running warp has arrived with all lanes; the last lane does this for all.
inline void come(int barrier, int threads, bool waits, const use& used) {
    warp& mine = warp_of(this_thread());
    const bool numbered = barrier >= 1 && barrier < NAMED_BARRIERS;
    named_barrier& b = self.barriers[numbered ? barrier : 0];
    const bool counted = threads > 0 && threads % static_cast<int>(LANES) == 0 && (b.arrived == 0 || b.threads == threads);
    if (!numbered || !counted) {
        if (!self.violations.is_news("barrier", used, used)) return;
        self.violations.tell(text_of(used) + " of warp " + std::to_string(current->warp) + ": barrier " + std::to_string(barrier) + " for " + std::to_string(threads) +
                             " threads; numbers go from 1 to 15, counts are whole warps, and all who come name the same");
        return;
    }
    if (self.detailed) share_details_in_warp(current->warp);
    check_last_use_is_known(b, barrier, mine, used);
    b.threads = threads;
    b.arrived += LANES;
    b.came[current->warp] = mine.step;
    b.used[current->warp] = used;
    b.waits[current->warp] = waits;
    mine.held = waits;
    for (uint32_t u = 0; u < self.warp_count; ++u) b.knows[u] = std::max(b.knows[u], u == current->warp ? mine.step : mine.known[u]);
    if (self.detailed) {
        b.details.resize(detail_count());
        join_details(b.details, mine.details);
    }
    if (b.arrived < static_cast<uint32_t>(threads)) return;
    self.order.wake();
    for (uint32_t i = 0; i < self.warp_count; ++i) {
        if (!b.waits[i]) continue;
        warp& w = self.warps[i];
        w.held = false;
        w.ready = ~0u;
        for (uint32_t u = 0; u < self.warp_count; ++u) w.known[u] = std::max(w.known[u], b.knows[u]);
        if (self.detailed) join_details(w.details, b.details);
    }
    named_barrier next = {};
    std::copy_n(b.came, MAX_WARPS, next.before);
    std::copy_n(b.used, MAX_WARPS, next.used);
    b = std::move(next);
}

// Called when the block has ended: every arrival at a barrier must have completed it together with the others. No
// thread waits at a barrier any more, so a leftover arrival was not needed, or another arrival has completed its
// barrier.
void check_barriers_are_empty() {
    for (int i = 1; i < NAMED_BARRIERS; ++i) {
        const named_barrier& b = self.barriers[i];
        if (b.arrived == 0) continue;
        const auto came = static_cast<size_t>(std::find_if(b.came, b.came + MAX_WARPS, [](uint32_t step) { return step != 0; }) - b.came);
        if (!self.violations.is_news("barrier", b.used[came], b.used[came])) continue;
        self.violations.tell("the block ends when " + std::to_string(b.arrived) + " of " + std::to_string(b.threads) + " threads have come to barrier " +
                             std::to_string(i) + ", warp " + std::to_string(came) + " by " + text_of(b.used[came]));
    }
}

void barrier_arrive(int barrier, int threads, source at) {
    if (!meet(primitive::barrier_arrive, at)) return;
    come(barrier, threads, false, {primitive::barrier_arrive, at});
    take_step();
}

void barrier_wait(int barrier, int threads, source at) {
    if (meet(primitive::barrier_wait, at)) {
        come(barrier, threads, true, {primitive::barrier_wait, at});
        take_step();
    }
    device_thread& me = this_thread();
    me.waiting = {primitive::barrier_wait, at};
    while (warp_of(me).held) leave(me, warp_of(me));
    me.waiting.which = primitive::none;
}

}  // namespace kgen::emulator
