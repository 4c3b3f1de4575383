// Clusters that run alternately: a cluster that waits for a flag which another one has yet to set yields to others that
// have started, and to new ones while the device has multiprocessors for them.
#pragma once

namespace kgen::emulator {

// A cluster that has started, while another one runs.
struct parked_cluster {
    resting_block first;  // its block of rank 0
    std::vector<resting_block> others;
    stack_pool stacks;
    schedule order;
    uint32_t alive = 0, at_cluster_sync = 0;
    device_conflicts::position position;
};

inline void exchange(parked_cluster& other) {
    exchange(other.first);
    std::swap(resting, other.others);
    std::swap(self.stacks, other.stacks);
    std::swap(self.order, other.order);
    std::swap(self.alive, other.alive);
    std::swap(self.at_cluster_sync, other.at_cluster_sync);
    blocks_met.exchange(other.position);
}

// The clusters of a launch.
class turns {
  public:
    // Space for another cluster in addition to those that have started; NULL when out of memory. The running one is
    // moved there.
    bool park(uint32_t threads) {
        if (spare_.empty()) spare_.push_back(std::make_unique<parked_cluster>());
        std::unique_ptr<parked_cluster> room = std::move(spare_.back());
        spare_.pop_back();
        exchange(*room);
        begun_.push_back(std::move(room));
        reserve_blocks(self.cluster_size);
        return self.stacks.reserve(threads);
    }

    // Resumes the cluster that has waited longest, in place of the one that has ended or, if that one `waits`, in
    // addition to it.
    void next(bool waits) {
        std::unique_ptr<parked_cluster> chosen = std::move(begun_.front());
        begun_.pop_front();
        exchange(*chosen);
        if (waits) {
            begun_.push_back(std::move(chosen));
        } else {
            spare_.push_back(std::move(chosen));
        }
    }

    size_t begun() const { return begun_.size(); }

    // Called when the launch is complete, or abandoned.
    void forget() {
        for (auto& cluster : begun_) spare_.push_back(std::move(cluster));
        begun_.clear();
    }

  private:
    std::deque<std::unique_ptr<parked_cluster>> begun_;
    std::vector<std::unique_ptr<parked_cluster>> spare_;
};

static turns by_turns;

}  // namespace kgen::emulator
