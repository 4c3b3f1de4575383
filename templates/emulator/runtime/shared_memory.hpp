// A block's shared memory: an array initialised to NaN, with bounds and alignment checks.
#pragma once

namespace kgen::emulator {

constexpr int POISON = 0xff;  // as a byte of any floating-point format, part of a NaN

// Addresses returned by shared_of(): in block `rank` of the cluster, and valid only for mbarrier_arrive_at().
constexpr uint32_t CLUSTER_BASE = 1u << 28;
constexpr uint32_t CLUSTER_STRIDE = 1u << 20;

inline bool is_of_cluster(uint32_t address) { return address >= CLUSTER_BASE; }
inline uint32_t rank_of(uint32_t cluster_address) { return (cluster_address - CLUSTER_BASE) / CLUSTER_STRIDE; }
inline uint32_t own_address(uint32_t cluster_address) { return (cluster_address - CLUSTER_BASE) % CLUSTER_STRIDE; }

inline std::string beyond_reach(uint32_t address) {
    return "shared memory offset " + std::to_string(own_address(address) - SHARED_BASE) + " of block " + std::to_string(rank_of(address)) +
           " of the cluster, which only mbarrier_arrive_at reaches";
}

class shared_memory {
  public:
    void prepare(uint32_t bytes) {
        bytes_ = bytes;
        memory_.assign(bytes, static_cast<unsigned char>(POISON));
    }

    // The bytes at an address; NULL, with a report, if they are not all in bounds or not aligned to their size.
    unsigned char* at(uint32_t address, uint32_t bytes, const use& used, uint32_t warp_index, uint32_t lane) {
        const uint32_t offset = address - SHARED_BASE;
        if (address >= SHARED_BASE && offset <= bytes_ && bytes_ - offset >= bytes && offset % bytes == 0) return memory_.data() + offset;
        if (is_of_cluster(address)) {
            if (self.violations.is_news("cluster", used, used)) {
                self.violations.tell(who(used, warp_index, lane) + ": " + beyond_reach(address));
            }
            return nullptr;
        }
        const bool inside = address >= SHARED_BASE && offset <= bytes_ && bytes_ - offset >= bytes;
        if (self.violations.is_news(inside ? "misaligned" : "out of bounds", used, used)) {
            self.violations.tell(who(used, warp_index, lane) + ": " + std::to_string(bytes) + " bytes at shared memory offset " + std::to_string(static_cast<int32_t>(offset)) + " of " + std::to_string(bytes_));
        }
        return nullptr;
    }

  private:
    std::vector<unsigned char> memory_;
    uint32_t bytes_ = 0;
};

static shared_memory shared;

// An access by the running thread itself, to at most 16 aligned bytes.
inline access access_of(const device_thread& me, uint32_t address, uint32_t bytes, const use& used) {
    const uint32_t offset = address - SHARED_BASE;
    const auto which = static_cast<uint16_t>(((1u << bytes) - 1) << offset % CHUNK);
    return {offset, which, static_cast<uint8_t>(me.lane), me.warp, warp_of(me).step, used};
}

void store_shared(uint32_t address, const void* value, uint32_t bytes, source at) {
    const device_thread& me = this_thread();
    const use used = {primitive::store_shared, at};
    unsigned char* to = shared.at(address, bytes, used, me.warp, me.lane);
    if (to == nullptr) return;
    races.write(access_of(me, address, bytes, used));
    KGEN_COUNT(shared, used, address, bytes);
    memcpy(to, value, bytes);
}

void load_shared(uint32_t address, void* value, uint32_t bytes, source at) {
    const device_thread& me = this_thread();
    const use used = {primitive::load_shared, at};
    const unsigned char* from = shared.at(address, bytes, used, me.warp, me.lane);
    if (from == nullptr) {
        memset(value, POISON, bytes);
        return;
    }
    races.read(access_of(me, address, bytes, used));
    KGEN_COUNT(shared, used, address, bytes);
    memcpy(value, from, bytes);
}

}  // namespace kgen::emulator
