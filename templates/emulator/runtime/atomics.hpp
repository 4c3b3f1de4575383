// Atomics and flags in device memory, and the order they create between blocks (PTX ISA, "Memory consistency model").
//
// A release records its thread's vector clock at its address: the clock of its own block, and those acquired from
// other blocks. Atomic read-modify-writes preserve the record; a store without release removes it. An acquire joins the
// record into the clock of its thread, and of threads after a barrier with that thread. Inside a block flags create no
// order; only barriers do.
#pragma once

namespace kgen::emulator {

// Per block number: the clock up to which its accesses are ordered before, and the block's stamp at that time.
struct released {
    struct of_block {
        uint32_t stamp;
        std::shared_ptr<const clock> behind;
    };
    std::map<uint32_t, of_block> blocks;
};

static std::map<const void*, std::shared_ptr<const released>> flags;  // of the running launch

inline void join_block(released& to, uint32_t block, const released::of_block& from) {
    const auto [known, is_new] = to.blocks.try_emplace(block, from);
    released::of_block& own = known->second;
    if (is_new || own.behind == from.behind || own.stamp > from.stamp) return;
    if (own.stamp == from.stamp) {
        auto both = std::make_shared<clock>(*own.behind);
        join(*both, *from.behind);
        own.behind = both;
    } else {
        own = from;  // everything before a cluster_sync is ordered before
    }
}

inline void join_released(released& to, const released& from) {
    for (const auto& [block, behind] : from.blocks) join_block(to, block, behind);
}

// True if the acquire by a thread of this block is ordered before the running thread.
inline bool knows_of(const device_thread& me, const flag_acquire& flag) {
    if (flag.warp == me.warp && flag.lane == me.lane) return true;
    const access mine = {0, 0, static_cast<uint8_t>(me.lane), me.warp, warp_of(me).step, {}};
    return knows_in_detail(mine, flag.warp, flag.lane, flag.step, flag.tick);
}

bool is_behind_a_flag(const device_place& place) {
    if (self.flags_acquired.empty()) return false;
    const device_thread& me = this_thread();
    const uint32_t block = blocks_met.block_of(place.stamp);
    return std::any_of(self.flags_acquired.begin(), self.flags_acquired.end(), [&](const flag_acquire& flag) {
        const auto found = flag.shown->blocks.find(block);
        if (found == flag.shown->blocks.end() || !knows_of(me, flag)) return false;
        const auto& [stamp, behind] = found->second;
        return place.stamp < stamp || (place.stamp == stamp && covers(*behind, place.warp, place.lane, place.step, place.tick));
    });
}

// The clocks that a release by the running thread passes to acquirers.
inline released what_is_known(device_thread& me) {
    auto own = std::make_shared<clock>(empty_clock());
    publish(me, warp_of(me), *own);
    released all;
    join_block(all, self.block, {blocks_met.stamp(self.rank), own});
    for (const flag_acquire& flag : self.flags_acquired) {
        if (knows_of(me, flag)) join_released(all, *flag.shown);
    }
    return all;
}

inline primitive primitive_of(atomic_primitive which) {
    constexpr primitive primitives[] = {
        primitive::atomic_add,    primitive::atomic_add,   primitive::atomic_max,    primitive::atomic_or,    primitive::atomic_exchange,
        primitive::atomic_cas,    primitive::reduce_add,   primitive::reduce_max,    primitive::reduce_or,    primitive::load_acquire,
        primitive::store_release, primitive::load_relaxed, primitive::store_relaxed,
    };
    return primitives[static_cast<int>(which)];
}

inline bool only_reads(atomic_primitive which) { return which == atomic_primitive::load_acquire || which == atomic_primitive::load_relaxed; }
inline bool only_writes(atomic_primitive which) { return which == atomic_primitive::store_release || which == atomic_primitive::store_relaxed; }

inline uint64_t changed(const atomic_access& access, uint64_t old) {
    switch (access.which) {
        case atomic_primitive::add:
        case atomic_primitive::reduce_add: return old + access.value;
        case atomic_primitive::add_float:
            return float_bits(float_of_bits(static_cast<uint32_t>(old)) + float_of_bits(static_cast<uint32_t>(access.value)));
        case atomic_primitive::max:
        case atomic_primitive::reduce_max: return std::max(old, access.value);
        case atomic_primitive::bit_or:
        case atomic_primitive::reduce_or: return old | access.value;
        case atomic_primitive::cas: return old == access.expected ? access.value : old;
        case atomic_primitive::load_acquire:
        case atomic_primitive::load_relaxed: return old;
        default: return access.value;
    }
}

uint64_t access_atomically(void* pointer, const atomic_access& access, source at) {
    device_thread& me = this_thread();
    const use used = {primitive_of(access.which), at};
    start_details();
    check_earlier_kernels(used);
    const device_access how = only_reads(access.which) ? device_access::atomic_read : device_access::atomic;
    if (!tensors.allows(pointer, access.bytes, how, used)) return 0;
    KGEN_COUNT(global, used, reinterpret_cast<uintptr_t>(pointer), access.bytes);
    uint64_t old = 0;
    memcpy(&old, pointer, access.bytes);
    const uint64_t now = changed(access, old);
    memcpy(pointer, &now, access.bytes);
    std::shared_ptr<const released>& left = flags[pointer];
    if (access.acquires && left != nullptr) self.flags_acquired.push_back({me.warp, me.lane, warp_of(me).step, me.ticks, left});
    const bool fails = access.which == atomic_primitive::cas && old != access.expected;
    if (only_writes(access.which)) left = nullptr;
    if (access.releases && !fails) {
        auto all = std::make_shared<released>(what_is_known(me));
        if (left != nullptr) join_released(*all, *left);
        left = all;
    }
    if (fails || only_reads(access.which)) {
        ++self.flag_polls;
        me.waiting = used;
        yield_turn(me);
        me.waiting.which = primitive::none;
    } else {
        self.flag_written = true;
        self.order.wake();
        take_step();
    }
    return old;
}

}  // namespace kgen::emulator
