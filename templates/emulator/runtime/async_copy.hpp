// cp.async: a copy completes only when the thread that issued it waits for its group. Until then its destination is
// NaN, so neither the old nor the new contents can be used by accident.
#pragma once

namespace kgen::emulator {

inline std::array<unsigned char, CHUNK> poison_chunk() {
    std::array<unsigned char, CHUNK> chunk;
    chunk.fill(static_cast<unsigned char>(POISON));
    return chunk;
}

void cp_async(uint32_t destination, const void* source_bytes, uint32_t bytes, source at) {
    device_thread& me = this_thread();
    const use used = {primitive::cp_async, at};
    unsigned char* to = shared.at(destination, CHUNK, used, me.warp, me.lane);
    if (to == nullptr) return;
    if (bytes > 0) check_earlier_kernels(used);
    static const std::array<unsigned char, CHUNK> nothing = poison_chunk();
    if (bytes > 0 && !tensors.allows(source_bytes, bytes, device_access::read_written, used, CHUNK)) source_bytes = nothing.data();
    KGEN_COUNT(shared, used, destination, CHUNK);
    if (bytes > 0) KGEN_COUNT(global, used, reinterpret_cast<uintptr_t>(source_bytes), bytes);
    const access a = access_of(me, destination, CHUNK, used);
    races.copy_issued(a, me.thread);
    memset(to, POISON, CHUNK);
    me.copies.push_back({a.offset, source_bytes, bytes, me.open_group, used, self.interval});
}

void cp_async_commit() { ++this_thread().open_group; }

void cp_async_wait(uint32_t pending) {
    device_thread& me = this_thread();
    size_t landed = 0;
    while (landed < me.copies.size() && me.copies[landed].group + pending < me.open_group) {
        const pending_copy& copy = me.copies[landed++];
        const uint32_t address = copy.destination + SHARED_BASE;
        unsigned char* to = shared.at(address, CHUNK, copy.issued, me.warp, me.lane);
        memset(to, 0, CHUNK);
        if (copy.bytes > 0) memcpy(to, copy.from, copy.bytes);
        races.copy_landed(access_of(me, address, CHUNK, copy.issued));
    }
    me.copies.erase(me.copies.begin(), me.copies.begin() + static_cast<std::ptrdiff_t>(landed));
}

inline void check_unfinished_copies(const device_thread& t) {
    if (t.copies.empty()) return;
    const use& used = t.copies.front().issued;
    if (!self.violations.is_news("never waited for", used, used)) return;
    self.violations.tell(std::to_string(t.copies.size()) + " asynchronous copies of warp " + std::to_string(t.warp) + " lane " + std::to_string(t.lane) +
                         " when it ended; the first is " + text_of(used));
}

}  // namespace kgen::emulator
