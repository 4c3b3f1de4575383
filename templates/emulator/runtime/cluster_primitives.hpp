// Primitives that access other blocks of the cluster: arrivals at their mbarriers, and multicast copies.
//
// A thread of another block (a visitor) is ordered after accesses of the block only through arrivals and cluster_syncs,
// like any other thread. Its clock is stored after those of the block's warps.
#pragma once

namespace kgen::emulator {

uint32_t cluster_rank() { return self.rank; }

uint32_t shared_of(uint32_t address, uint32_t rank, source at) {
    const use used = {primitive::shared_of, at};
    if (rank >= self.cluster_size) {
        complain_of_mbarrier("cluster", used, "block " + std::to_string(rank) + " of a cluster of " + std::to_string(self.cluster_size));
        return address;
    }
    if (is_of_cluster(address)) {
        complain_of_mbarrier("cluster", used, "the address is one that shared_of has given already");
        return address;
    }
    return CLUSTER_BASE + rank * CLUSTER_STRIDE + address;
}

// The access of a visitor from block `from` with the clock `knows`.
inline access visiting_access(const clock& knows, uint32_t from, uint32_t address, const use& used) {
    static_cast<clock&>(self.warps[VISITOR]) = translated(knows, from, self.rank);
    return {address - SHARED_BASE, 0, ALL_LANES, VISITOR, 0, used};
}

inline void remember_arrival(const far_arrival& arrival) {
    const auto same = [&](const far_arrival& a) { return a.rank == arrival.rank && a.warp == arrival.warp && a.lane == arrival.lane; };
    const auto found = std::find_if(self.far_arrivals.begin(), self.far_arrivals.end(), same);
    if (found == self.far_arrivals.end()) {
        self.far_arrivals.push_back(arrival);
    } else {
        *found = arrival;
    }
}

inline void arrive_from_afar(uint32_t address, const use& used) {
    device_thread& me = this_thread();
    warp& mine = warp_of(me);
    const uint32_t from = self.rank;
    if (!is_of_cluster(address)) {
        return complain_of_mbarrier("cluster", used, "shared memory offset " + std::to_string(address - SHARED_BASE) + " is not a place that shared_of has named");
    }
    if (rank_of(address) == from) return arrive(own_address(address), 0, used);
    const far_arrival arrival = {from, me.warp, me.lane, mine.step, me.ticks, used};
    clock told = empty_clock();
    publish(me, mine, told);
    const visit there(rank_of(address));
    const access by = visiting_access(told, from, own_address(address), used);
    mbarrier* b = mbarrier_for(by);
    if (b == nullptr || !takes_arrival(*b, by)) return;
    if (!b->fenced) {
        complain_of_mbarrier("proxy", used, text_of(*b) + " counts arrivals from afar, and no fence_mbarrier_init has followed " + text_of(self.uses[b->made.used]));
    }
    publish_epoch(me, mine, b->lanes[from * self.warp_count + me.warp], told);
    join(b->arriving, translated(told, from, self.rank));
    b->from_afar = true;
    remember_arrival(arrival);
    --b->pending;
    end_phase_if_complete(*b);
}

void mbarrier_arrive_at(uint32_t address, source at) {
    arrive_from_afar(address, {primitive::mbarrier_arrive_at, at});
    take_step();
}

// An arrival must be ordered before the exit of the block that it targets: some thread of that block must have waited
// for it, or for something after it.
void check_far_arrivals() {
    if (self.far_arrivals.empty()) return;
    clock end = empty_clock();
    share_details_in_block();
    for (uint32_t i = 0; i < self.warp_count; ++i) join(end, self.warps[i]);
    for (const far_arrival& a : self.far_arrivals) {
        if (covers(translated(end, self.rank, a.rank), a.warp, a.lane, a.step, a.tick) || !self.violations.is_news("cluster", a.used, a.used)) continue;
        self.violations.tell(who(a.used, VISITOR, a.lane) + " may come when this one has ended: no cluster_sync keeps it");
    }
}

void tma_load_multicast(uint32_t destination, const tensor_map& map, uint32_t barrier, uint32_t blocks, const int32_t* box, uint32_t rank, source at) {
    device_thread& me = this_thread();
    const use used = {primitive::tma_load_multicast, at};
    const uint32_t from = self.rank;
    const tensor_map_contents* c = contents_of(map, rank, used);
    if (c == nullptr) return;
    if (blocks == 0 || blocks >> self.cluster_size != 0) {
        return complain_of_mbarrier("cluster", used, "the mask " + std::to_string(blocks) + " for a cluster of " + std::to_string(self.cluster_size) + " blocks");
    }
    if (is_of_cluster(barrier) || is_of_cluster(destination)) {
        return complain_of_mbarrier("cluster", used, "an address that shared_of has given, where one's own is meant");
    }
    check_earlier_kernels(used);
    check_box_is_readable(*c, box, used);
    const access own = {barrier - SHARED_BASE, 0, static_cast<uint8_t>(me.lane), me.warp, warp_of(me).step, used};
    clock knows = empty_clock();
    join(knows, warp_of(me));
    for (const std::shared_ptr<snapshot>& shown : me.acquired) join(knows, shown->behind);
    for (uint32_t to = 0; to < self.cluster_size; ++to) {
        if ((blocks >> to & 1) == 0) continue;
        const visit there(to);
        const access by = to == from ? own : visiting_access(knows, from, barrier, used);
        if (mbarrier* b = mbarrier_for(by)) start_copy(*c, box, destination, *b, by);
    }
    take_step();
}

}  // namespace kgen::emulator
