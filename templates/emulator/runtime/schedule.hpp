// The choice of the runnable warp that continues, and of the time at which asynchronous copies complete: either random
// or by priorities (probabilistic concurrency testing: Burckhardt, Kothari, Musuvathi, Nagarakatte, ASPLOS 2010). With
// priorities, the runnable warp of the highest priority always runs, so it gets as far ahead as the barriers allow and
// the lowest does not advance until all others wait; at `depth` random steps of a block's run the priority of the
// running warp drops below all others.
#pragma once

namespace kgen::emulator {

struct random_numbers {
    uint64_t state;
    uint32_t next() {  // splitmix64
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return static_cast<uint32_t>((z ^ z >> 31) >> 32);
    }
    uint32_t below(uint32_t bound) { return next() % bound; }
};

// Completion of an asynchronous copy: at a random time, at its issue, or only when no thread can continue without it.
enum class landing : uint8_t { random, early, late };

constexpr int32_t SHUFFLED = -1;  // in place of a depth: no priorities
constexpr uint32_t MOST_FALLS = 1u << 20;

// The schedule of the blocks that run together. A step is an operation of one warp that other warps may wait for, or
// that may complete by itself.
class schedule {
  public:
    // Starts the blocks, with `warps` warps in total. Draws anew whether warps or whole warpgroups (of `group` warps)
    // have priorities, the priorities, and the completion of copies. A block is expected to take `steps` steps.
    void begin(random_numbers& random, int32_t depth, uint32_t steps, uint32_t warps, uint32_t group) {
        taken_ = 0;
        woken_ = false;
        priorities_.clear();
        falls_.clear();
        copies = landing::random;
        if (depth == SHUFFLED) return;
        group_ = random.below(2) == 0 ? 1 : group;
        lowest_ = 0;
        for (uint32_t i = 0; i * group_ < warps; ++i) priorities_.push_back(static_cast<int32_t>(i));
        for (uint32_t i = static_cast<uint32_t>(priorities_.size()); i > 1; --i) std::swap(priorities_[i - 1], priorities_[random.below(i)]);
        for (int32_t i = 0; i < depth && steps > 0; ++i) falls_.push_back(1 + random.below(steps));
        std::sort(falls_.begin(), falls_.end(), std::greater<uint32_t>());
        constexpr landing ways[] = {landing::random, landing::early, landing::late};
        copies = ways[random.below(3)];
    }

    bool by_priority() const { return !priorities_.empty(); }

    int32_t priority(uint32_t warp) const { return priorities_[warp / group_]; }

    // Lowers the priority of a warp below all others.
    void lower(uint32_t warp) { priorities_[warp / group_] = --lowest_; }

    // Counts a step of the running warp. True if the scheduler must choose again: the warp's priority has dropped, or a
    // warp whose priority may be higher has become runnable.
    bool step(uint32_t warp) {
        ++taken_;
        if (!by_priority()) return false;
        bool gives_way = std::exchange(woken_, false);
        for (; !falls_.empty() && falls_.back() <= taken_; falls_.pop_back()) {
            lower(warp);
            gives_way = true;
        }
        return gives_way;
    }

    // Called when a thread has become runnable.
    void wake() { woken_ = true; }

    uint32_t steps_taken() const { return taken_; }

    landing copies = landing::random;

  private:
    uint32_t group_ = 1;  // warps that share a priority
    std::vector<int32_t> priorities_;
    std::vector<uint32_t> falls_;  // the steps at which the running warp's priority drops, the next one last
    int32_t lowest_ = 0;
    uint32_t taken_ = 0;
    bool woken_ = false;
};

}  // namespace kgen::emulator
