// TMA stores: a box is read from shared memory at a time derived from the seed, between its issue and the wait for its
// group, and reaches device memory either then or only when the grid has ended. Until that wait its source must not be
// overwritten.
#pragma once

namespace kgen::emulator {

// Stores of the running grid's threads that have read their sources but have not yet written to device memory.
static std::vector<pending_store> late_stores;

// Calls action(address, byte) for each chunk of the source that holds elements of the tensor; `byte` is its offset in
// the box.
template <class Action>
inline void each_source_chunk(const pending_store& store, Action&& action) {
    const uint32_t width = row_bytes(store.map);
    for (uint32_t row = 0; row < box_rows(store.map); ++row) {
        const box_row r = row_of(store.map, store.first, row);
        for (uint32_t i = r.start / CHUNK * CHUNK; i < r.start + r.bytes; i += CHUNK) {
            action(swizzled_address(SHARED_BASE + store.source + row * width + i, store.map.swizzle), row * width + i);
        }
    }
}

inline void read_source(pending_store& store) {
    if (!store.contents.empty()) return;
    store.contents.resize(row_bytes(store.map) * box_rows(store.map));
    each_source_chunk(store, [&](uint32_t address, uint32_t byte) { memcpy(&store.contents[byte], shared.at(address, CHUNK, store.issued, 0, 0), CHUNK); });
}

inline void write_box(const pending_store& store) {
    const uint32_t width = row_bytes(store.map);
    for (uint32_t row = 0; row < box_rows(store.map); ++row) {
        const box_row r = row_of(store.map, store.first, row);
        if (r.bytes != 0) memcpy(const_cast<unsigned char*>(r.from), &store.contents[row * width + r.start], r.bytes);
    }
}

// True if a store proceeds at the earliest opportunity rather than the last.
inline bool stores_early() {
    return self.order.copies == landing::random ? self.random.below(2) == 0 : self.order.copies == landing::early;
}

inline void write_now_or_later(pending_store&& store) {
    if (stores_early()) {
        write_box(store);
    } else {
        late_stores.push_back(std::move(store));
    }
}

void tma_store(const tensor_map& map, uint32_t address, const int32_t* box, uint32_t rank, source at) {
    device_thread& me = this_thread();
    const use used = {primitive::tma_store, at};
    start_details();
    check_earlier_kernels(used);
    const tensor_map_contents* c = contents_of(map, rank, used);
    if (c == nullptr || !box_is_in_shared_memory(address, row_bytes(*c) * box_rows(*c), used, me.warp, me.lane)) return;
    pending_store store = {*c, {}, address - SHARED_BASE, me.open_store_group, used, {}};
    std::copy_n(box, rank, store.first);
    for (uint32_t row = 0; row < box_rows(*c); ++row) {
        const box_row r = row_of(*c, box, row);
        if (r.bytes != 0 && !tensors.allows(r.from, r.bytes, device_access::write, used, c->element_bytes)) return;
    }
    count_unmeasured(used);
    each_source_chunk(store, [&](uint32_t chunk, uint32_t) { races.proxy_reads(access_of(me, chunk, CHUNK, used)); });
    if (stores_early()) read_source(store);
    me.stores.push_back(std::move(store));
    take_step();
}

void tma_store_commit() { ++this_thread().open_store_group; }

void tma_store_wait_read(uint32_t pending) {
    device_thread& me = this_thread();
    size_t read = 0;
    for (; read < me.stores.size() && me.stores[read].group + pending < me.open_store_group; ++read) {
        pending_store& store = me.stores[read];
        read_source(store);
        each_source_chunk(store, [&](uint32_t chunk, uint32_t) { races.store_finished(access_of(me, chunk, CHUNK, store.issued)); });
        write_now_or_later(std::move(store));
    }
    me.stores.erase(me.stores.begin(), me.stores.begin() + static_cast<std::ptrdiff_t>(read));
}

void check_uncommitted_stores(const device_thread& t) {
    if (t.stores.empty() || t.stores.back().group != t.open_store_group) return;
    const use& used = t.stores.back().issued;
    if (!self.violations.is_news("never committed", used, used)) return;
    self.violations.tell(who(used, t.warp, t.lane) + ": no tma_store_commit has closed its group when the thread ends");
}

// Called when the block has ended without a wait for the stores that its threads have committed.
void finish_stores() {
    for (uint32_t i = 0; i < self.thread_count; ++i) {
        for (pending_store& store : self.threads[i].stores) {
            read_source(store);
            write_now_or_later(std::move(store));
        }
    }
}

// Called when the grid has ended.
inline void write_late_stores() {
    for (const pending_store& store : late_stores) write_box(store);
    late_stores.clear();
}

void race_detector::report_unfinished_store(const access& a) {
    const uint32_t chunk = a.offset / CHUNK * CHUNK;
    for (uint32_t i = 0; i < self.thread_count; ++i) {
        const device_thread& t = self.threads[i];
        for (const pending_store& store : t.stores) {
            bool reads = false;
            each_source_chunk(store, [&](uint32_t address, uint32_t) { reads = reads || address - SHARED_BASE == chunk; });
            if (!reads || !self.violations.is_news("race", a.used, store.issued)) continue;
            return self.violations.tell(who(a.used, a.warp, a.lane) + " writes what " + who(store.issued, t.warp, t.lane) +
                                        " reads, which is not finished because a tma_store_wait_read is missing: " + place(a));
        }
    }
}

}  // namespace kgen::emulator
