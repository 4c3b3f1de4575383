// Device memory and the blocks of a launch: two that touch the same bytes, at least one of them writing, with nothing between that orders
// them. Blocks run one after the other here, so that never shows in numbers; on a GPU they run in any order, or at once.
//
// What orders: the end of a launch; cluster_sync, among the blocks of a cluster; and additions (add_global) among themselves need no order.
// Every block has a stamp, and gets a new one at each cluster_sync. Stamps only grow, so that one comparison says that a record is of an
// earlier launch, and nothing is ever cleared.
#pragma once

namespace kgen::emulator {

enum class device_access : uint8_t { read, write, add };

// What this launch has done to an element of a tensor that kernels may write to.
struct device_record {
    uint32_t writer;      // stamp; with `adds`, of the last that added
    uint32_t readers[2];  // the last two different ones
    uint16_t written_by, read_by;  // uses
    bool adds;
};

class device_conflicts {
  public:
    // Room for a tensor; gives its first record.
    size_t take(size_t count) {
        const size_t first = used_;
        used_ += count;
        if (records_.size() < used_) records_.resize(used_);
        return first;
    }

    // The tensors are others; their records are stale then.
    void forget_tensors() {
        used_ = 0;
        launch_ = next_;
    }

    void begin_launch() {
        if (next_ > UINT32_MAX / 2) {
            std::fill(records_.begin(), records_.end(), device_record{});
            next_ = 1;
        }
        launch_ = next_;
        stamps_.clear();
    }

    void begin_cluster(uint32_t first_block) {
        cluster_ = next_;
        first_block_ = first_block;
        pass_cluster_sync();
    }

    void pass_cluster_sync() {
        interval_ = next_;
        stamps_.push_back({next_, first_block_});
        next_ += self.cluster_size;
    }

    // The stamp of a block that an access by block `rank` of the running cluster conflicts with; 0 if there is none.
    uint32_t meet(size_t index, device_access access, uint32_t rank, const use& used, use& other) {
        device_record& record = records_[index];
        const uint32_t mine = interval_ + rank;
        uint32_t met = 0;
        const auto look = [&](uint32_t stamp, uint16_t by) {
            if (!conflicts(stamp, mine)) return;
            met = stamp;
            other = self.uses[by];
        };
        if (access != device_access::add || !record.adds) look(record.writer, record.written_by);
        if (access == device_access::read) {
            if (record.readers[0] != mine) record.readers[1] = record.readers[0];
            record.readers[0] = mine;
            record.read_by = self.uses.number_of(used);
            return met;
        }
        for (const uint32_t reader : record.readers) look(reader, record.read_by);
        record.writer = mine;
        record.written_by = self.uses.number_of(used);
        record.adds = access == device_access::add;
        return met;
    }

    uint32_t block_of(uint32_t stamp) const {
        const auto above = std::upper_bound(stamps_.begin(), stamps_.end(), stamp, [](uint32_t s, const auto& given) { return s < given.first; });
        return std::prev(above)->second + (stamp - std::prev(above)->first);
    }

  private:
    bool conflicts(uint32_t stamp, uint32_t mine) const {
        return stamp >= launch_ && stamp != mine && (stamp < cluster_ || stamp >= interval_);
    }

    std::vector<device_record> records_;
    std::vector<std::pair<uint32_t, uint32_t>> stamps_;  // first of an interval of a cluster, and the number of its first block
    size_t used_ = 0;
    uint32_t next_ = 1;
    uint32_t launch_ = 1, cluster_ = 1, interval_ = 1;  // their first stamps
    uint32_t first_block_ = 0;
};

static device_conflicts blocks_met;

}  // namespace kgen::emulator
