// TMA copies: a box is copied only when a thread waits for the mbarrier that counts its bytes, at a time and in an
// order derived from the seed; until then its destination is NaN. If the schedule lets copies complete early, it is
// copied at its issue.
#pragma once

namespace kgen::emulator {

void fence_proxy_async() {
    device_thread& me = this_thread();
    start_details();
    me.fenced = ++me.ticks;
    fence_own_mbarriers();
}

constexpr uint32_t TMA_ALIGNMENT = 128;  // of a box in shared memory

// The map's contents; NULL, with a report, if it is not a map or has another rank.
inline const tensor_map_contents* contents_of(const tensor_map& map, uint32_t rank, const use& used) {
    const tensor_map_contents& c = map.contents;
    if (c.mark != TENSOR_MAP_MARK) {
        complain_of_mbarrier("tma", used, "the tensor map was not made by make_tensor_map");
        return nullptr;
    }
    if (rank != 0 && c.rank != rank) {
        complain_of_mbarrier("tma", used, std::to_string(rank) + " coordinates for a tensor map of " + std::to_string(c.rank) + " dimensions");
        return nullptr;
    }
    return &c;
}

void tma_prefetch_map(const tensor_map& map, source at) { contents_of(map, 0, {primitive::tma_prefetch_map, at}); }

inline uint32_t row_bytes(const tensor_map_contents& map) { return map.box[0] * map.element_bytes; }

inline uint32_t box_rows(const tensor_map_contents& map) {
    uint32_t rows = 1;
    for (uint32_t i = 1; i < map.rank; ++i) rows *= map.box[i];
    return rows;
}

// A row of a box: the address of its elements inside the tensor, and the bytes of the row that they fill; `bytes` is 0
// if there are none.
struct box_row {
    const unsigned char* from;
    uint32_t start, bytes;
};

inline box_row row_of(const tensor_map_contents& map, const int32_t* first, uint32_t index) {
    const auto* from = static_cast<const unsigned char*>(map.base);
    for (uint32_t i = 1; i < map.rank; ++i) {
        const int64_t at = static_cast<int64_t>(first[i]) + index % map.box[i];
        index /= map.box[i];
        if (at < 0 || static_cast<uint64_t>(at) >= map.extents[i]) return {nullptr, 0, 0};
        from += static_cast<uint64_t>(at) * map.strides[i];
    }
    const int64_t begin = std::max<int64_t>(first[0], 0);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(first[0]) + map.box[0], static_cast<int64_t>(map.extents[0]));
    if (begin >= end) return {nullptr, 0, 0};
    const auto start = static_cast<uint32_t>(begin - first[0]);
    return {from + begin * map.element_bytes, start * map.element_bytes, static_cast<uint32_t>(end - begin) * map.element_bytes};
}

// The swizzled address of a chunk at `address`: bits 4.. are XORed with bits 7...
inline uint32_t swizzled_address(uint32_t address, uint8_t swizzle) { return address ^ (address >> 7 & ((1u << swizzle) - 1)) << 4; }

// Checks that the thread may read the rows of a box that are inside the tensor; otherwise it is reported.
inline void check_box_is_readable(const tensor_map_contents& map, const int32_t* first, const use& used) {
    for (uint32_t row = 0; row < box_rows(map); ++row) {
        const box_row r = row_of(map, first, row);
        if (r.bytes != 0) tensors.allows_box_row(r.from, r.bytes, used);
    }
}

// False, with a report, if the box is not entirely in shared memory, or is misaligned.
inline bool box_is_in_shared_memory(uint32_t address, uint32_t bytes, const use& used, uint32_t warp_index, uint32_t lane) {
    const uint32_t offset = address - SHARED_BASE;
    if (offset % TMA_ALIGNMENT != 0) {
        complain_of_mbarrier("misaligned", used, "shared memory offset " + std::to_string(offset) + " is not a multiple of 128");
        return false;
    }
    // If the whole box is in bounds, the last chunk is.
    if (bytes > CHUNK && shared.at(address, CHUNK, used, warp_index, lane) == nullptr) return false;
    return shared.at(address + bytes - CHUNK, CHUNK, used, warp_index, lane) != nullptr;
}

void land(mbarrier& b, size_t chosen);

// Starts a copy into the running block, counted by its mbarrier `b`. `by` is the issuing thread.
inline void start_copy(const tensor_map_contents& map, const int32_t* box, uint32_t destination, mbarrier& b, const access& by) {
    const use& used = by.used;
    if (!b.fenced) complain_of_mbarrier("proxy", used, text_of(b) + " counts its bytes, and no fence_mbarrier_init has followed " + text_of(self.uses[b.made.used]));
    const uint32_t bytes = row_bytes(map) * box_rows(map);
    if (!box_is_in_shared_memory(destination, bytes, used, by.warp, by.lane)) return;
    count_unmeasured(used);
    pending_tile copy = {map, {}, destination - SHARED_BASE, bytes, used, by.warp, by.lane, self.interval, {}};
    std::copy_n(box, map.rank, copy.first);
    if (by.warp == VISITOR) copy.behind = self.warps[VISITOR].details;
    const auto index = static_cast<uint32_t>(&b - mbarriers.data());
    for (uint32_t i = 0; i < bytes; i += CHUNK) {
        races.tile_issued({copy.destination + i, 0xffff, by.lane, by.warp, by.step, used}, index);
        memset(shared.at(destination + i, CHUNK, used, by.warp, by.lane), POISON, CHUNK);
    }
    b.copies.push_back(copy);
    if (self.order.copies == landing::early) land(b, b.copies.size() - 1);
}

void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, const int32_t* box, uint32_t rank, source at) {
    const device_thread& me = this_thread();
    const use used = {primitive::tma_load, at};
    const tensor_map_contents* c = contents_of(map, rank, used);
    mbarrier* b = mbarrier_at(barrier, used);
    if (c == nullptr || b == nullptr) return;
    check_earlier_kernels(used);
    check_box_is_readable(*c, box, used);
    start_copy(*c, box, destination, *b, access_of(me, destination, CHUNK, used));
    take_step();
}

// Completes one of the copies whose bytes the mbarrier counts.
void land(mbarrier& b, size_t chosen) {
    const pending_tile copy = b.copies[chosen];
    b.copies.erase(b.copies.begin() + static_cast<std::ptrdiff_t>(chosen));
    const uint32_t width = row_bytes(copy.map);
    std::vector<unsigned char> contents(width);
    for (uint32_t row = 0; row < copy.bytes / width; ++row) {
        const box_row r = row_of(copy.map, copy.first, row);
        std::fill(contents.begin(), contents.end(), static_cast<unsigned char>(0));
        if (r.bytes != 0 && tensors.holds_box_row(r.from, r.bytes)) memcpy(contents.data() + r.start, r.from, r.bytes);
        for (uint32_t i = 0; i < width; i += CHUNK) {
            const uint32_t address = swizzled_address(SHARED_BASE + copy.destination + row * width + i, copy.map.swizzle);
            memcpy(shared.at(address, CHUNK, copy.issued, copy.warp, copy.lane), contents.data() + i, CHUNK);
            races.tile_landed(address - SHARED_BASE, b.phase);
        }
    }
    if (!copy.behind.empty()) join_far_phases(b.arriving.details, copy.behind);
    b.bytes -= copy.bytes;
    end_phase_if_complete(b);
}

// Completes one of the mbarrier's copies, chosen at random.
void land_a_copy(mbarrier& b) { land(b, self.random.below(static_cast<uint32_t>(b.copies.size()))); }

// Completes one copy counted by the mbarrier of a waiting thread. False if there is none.
bool land_an_awaited_copy() {
    std::vector<uint32_t> awaited;
    for (uint32_t i = 0; i < self.thread_count; ++i) {
        const uint32_t index = self.threads[i].waits_for;
        if (index != 0 && !mbarriers[index - 1].copies.empty()) awaited.push_back(index - 1);
    }
    if (awaited.empty()) return false;
    land_a_copy(mbarriers[awaited[self.random.below(static_cast<uint32_t>(awaited.size()))]]);
    return true;
}

void check_unfinished_tiles() {
    for (const mbarrier& b : mbarriers) {
        if (b.copies.empty()) continue;
        const pending_tile& first = b.copies.front();
        if (!self.violations.is_news("never waited for", first.issued, first.issued)) continue;
        self.violations.tell(std::to_string(b.copies.size()) + " copies by TMA are in flight when the block ends; the first is " + text_of(first.issued) +
                             ", counted by " + text_of(b) + " in phase " + std::to_string(b.phase));
    }
}

}  // namespace kgen::emulator
