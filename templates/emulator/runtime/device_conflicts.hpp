// Conflicts in device memory between the threads of a launch: two accesses to the same bytes, at least one a write,
// without an order between them. Blocks run one after another here, so a conflict between them never shows in the
// results; on a GPU they run in any order, or concurrently.
//
// Order comes from: the end of a launch; cluster_sync, among the blocks of a cluster; a flag, released and acquired
// (atomics.hpp); and within a block from the same primitives as for shared memory (race.hpp). Atomics, including
// additions (add_global), need no order among themselves.
// Every block has a stamp, and gets a new one at each cluster_sync. Stamps only grow, so one comparison shows that a
// record is of an earlier launch, and nothing is ever cleared.
#pragma once

namespace kgen::emulator {

enum class device_access : uint8_t {
    read,          // through a path that may return stale data: only the end of a launch, or cluster_sync, orders it
    read_written,  // through another path
    write,
    atomic,       // strong, and writes; among themselves atomics need no order
    atomic_read,  // strong, without writing
};

// An access to an element: its thread and time.
struct device_place {
    uint32_t stamp;
    uint32_t step, tick;  // as in records of shared memory (race.hpp)
    uint16_t used;
    uint8_t warp, lane;
};

// The accesses of this launch to an element of a writable tensor.
struct device_record {
    device_place writer;      // of an atomic, the last one
    device_place readers[2];  // of the last two different stamps
    bool writes_atomically;
    bool reads_atomically[2];
};

bool is_behind_a_flag(const device_place& place);

// True if an earlier access of the running thread's block is ordered before one that it makes now. Writes of one
// element by several lanes of a warp between two warp-wide primitives are not reported: an instruction may store parts
// of it, or one value from all lanes. Lanes that store different values go unnoticed in this case.
bool is_behind_in_block(const device_place& place, bool was_read, bool writes);

class device_conflicts {
  public:
    // Allocates the records of a tensor; returns the index of the first.
    size_t take(size_t count) {
        const size_t first = used_;
        used_ += count;
        if (records_.size() < used_) records_.resize(used_);
        return first;
    }

    // Called when the tensors have changed, which makes their records stale.
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

    // The state of a cluster: its first stamp, the current one of its first block, and that block's number.
    struct position {
        uint32_t cluster = 1, interval = 1, first_block = 0;
    };

    void begin_cluster(uint32_t first_block) {
        where_.cluster = next_;
        where_.first_block = first_block;
        pass_cluster_sync();
    }

    void pass_cluster_sync() {
        where_.interval = next_;
        stamps_.push_back({next_, where_.first_block});
        next_ += self.cluster_size;
    }

    // Called when another cluster is resumed.
    void exchange(position& other) { std::swap(where_, other); }

    uint32_t stamp(uint32_t rank) const { return where_.interval + rank; }

    // The stamp of a block, possibly the thread's own, whose access conflicts with one by the running thread, in block
    // `rank` of the running cluster; 0 if there is none.
    uint32_t meet(size_t index, device_access how, uint32_t rank, const use& used, use& other) {
        device_record& record = records_[index];
        const device_thread& me = this_thread();
        const device_place mine = {where_.interval + rank, warp_of(me).step, me.ticks, self.uses.number_of(used), static_cast<uint8_t>(me.warp), static_cast<uint8_t>(me.lane)};
        uint32_t met = 0;
        const bool writes = how == device_access::write || how == device_access::atomic;
        const auto look = [&](const device_place& place, bool was_read) {
            if (place.stamp == mine.stamp) {
                if (is_behind_in_block(place, was_read, writes)) return;
            } else if (!conflicts(place.stamp, mine.stamp) || (how != device_access::read && is_behind_a_flag(place))) {
                return;
            }
            met = place.stamp;
            other = self.uses[place.used];
        };
        const bool strong = how == device_access::atomic || how == device_access::atomic_read;
        if (!strong || !record.writes_atomically) look(record.writer, false);
        if (writes) {
            for (int i = 0; i < 2; ++i) {
                if (!strong || !record.reads_atomically[i]) look(record.readers[i], true);
            }
            record.writer = mine;
            record.writes_atomically = strong;
            return met;
        }
        if (record.readers[0].stamp != mine.stamp) {
            record.readers[1] = record.readers[0];
            record.reads_atomically[1] = record.reads_atomically[0];
        }
        record.readers[0] = mine;
        record.reads_atomically[0] = strong;
        return met;
    }

    uint32_t block_of(uint32_t stamp) const {
        const auto above = std::upper_bound(stamps_.begin(), stamps_.end(), stamp, [](uint32_t s, const auto& given) { return s < given.first; });
        return std::prev(above)->second + (stamp - std::prev(above)->first);
    }

  private:
    bool conflicts(uint32_t stamp, uint32_t mine) const {
        if (stamp < launch_ || stamp == mine) return false;
        if (stamp < where_.cluster || stamp >= where_.interval) return true;
        return block_of(stamp) - where_.first_block >= self.cluster_size;  // of a cluster that runs interleaved with this one
    }

    std::vector<device_record> records_;
    std::vector<std::pair<uint32_t, uint32_t>> stamps_;  // first of an interval of a cluster, and the number of its first block
    size_t used_ = 0;
    uint32_t next_ = 1;
    uint32_t launch_ = 1;  // its first stamp
    position where_;       // the running cluster
};

static device_conflicts blocks_met;

}  // namespace kgen::emulator
