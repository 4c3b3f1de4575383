// A launch, from its checks to its report.
#pragma once

namespace kgen::emulator {

struct session {
    uint64_t seed = 0;
    int32_t depth = SHUFFLED;
    uint64_t steps = 0;                                        // of all launches since the last reset
    std::map<void (*)(const void*), uint32_t> expected_steps;  // of each kernel: those of the longest block of its last launch without priorities
    int capability = 80;
    int multiprocessors = 5;
    std::mutex one_launch;
};

static session settings;

int device_capability() { return settings.capability; }

int multiprocessor_count() { return settings.multiprocessors; }

// Shared memory available to a block, in bytes (CUDA C++ programming guide, "Technical specifications").
inline uint32_t shared_memory_limit(int capability) {
    switch (capability) {
        case 75: return 64 * 1024;
        case 80:
        case 87: return 163 * 1024;
        case 86:
        case 89:
        case 120:
        case 121: return 99 * 1024;
        default: return 227 * 1024;
    }
}

int device_shared_memory() { return static_cast<int>(shared_memory_limit(settings.capability)); }

constexpr uint32_t MOST_BLOCKS_OF_CLUSTER = 8;  // supported by every device with clusters

constexpr uint32_t MOST_IDLE_TURNS = 4096;  // turns of clusters without a write to a flag

// Reports that no cluster that has started can proceed, and that no other one may start.
inline void report_waiting_blocks(uint32_t waiting) {
    const use nothing = {primitive::none, {"", 0}};
    if (!self.violations.is_news("deadlock", nothing, nothing)) return;
    self.violations.tell(std::to_string(by_turns.begun() + 1) + " blocks or clusters wait for flags that nobody sets; " + std::to_string(waiting) +
                         " blocks have not begun, for the device runs " + std::to_string(settings.multiprocessors) + " at once. One of them, " + where_block_waits());
}

const char* run(const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, launch_options options, void (*enter)(const void*), const void* call) {
    const uint32_t cluster = options.cluster;
    const std::lock_guard<std::mutex> turn(settings.one_launch);
    self.violations.clear();
    if (const char* error = self.allowed.begin()) return error;
    if (shared_bytes > shared_memory_limit(settings.capability)) return "invalid argument (cudaErrorInvalidValue)";
    const bool clusters = cluster == 1 || (settings.capability >= 90 && cluster > 1 && cluster <= MOST_BLOCKS_OF_CLUSTER && blocks % cluster == 0);
    if (threads == 0 || threads > MAX_THREADS || !clusters) return "invalid configuration argument (cudaErrorInvalidConfiguration)";
    if (threads % LANES != 0) return "the emulator runs whole warps: the number of threads must be a multiple of 32";
    if (!self.stacks.reserve(threads * cluster)) return "out of memory (cudaErrorMemoryAllocation)";
    reserve_blocks(cluster);
    self.violations.name_blocks(cluster == 1 ? nullptr : &self.block);
    self.early = options.early;
    self.enter = enter;
    self.call = call;
    self.random = {settings.seed};
    const uint32_t expected_steps = settings.expected_steps[enter];
    uint32_t longest = 0, begun = 0, idle = 0;
    blocks_met.begin_launch();
    flags.clear();
    // From the first to the last or from the last to the first, depending on the seed: only sums by atomics may differ.
    const bool backwards = (settings.seed * 0x9e3779b97f4a7c15ull) >> 63 != 0;
    const auto begin_next = [&] {
        begin_cluster(backwards ? blocks - cluster - begun : begun, threads, shared_bytes, settings.depth, expected_steps);
        begun += cluster;
    };
    const uint32_t at_once = static_cast<uint32_t>(std::max(settings.multiprocessors, 1)) / cluster;  // clusters
    for (begin_next();;) {
        const bool done = run_cluster();
        if (!self.violations.empty()) break;
        if (done) {
            longest = std::max(longest, self.order.steps_taken());
            settings.steps += self.order.steps_taken();
            if (by_turns.begun() > 0) {
                by_turns.next(false);
            } else if (begun < blocks) {
                begin_next();
            } else {
                break;
            }
        } else if (begun < blocks && by_turns.begun() + 1 < at_once) {
            if (!by_turns.park(threads * cluster)) return "out of memory (cudaErrorMemoryAllocation)";
            begin_next();
        } else if (by_turns.begun() > 0) {
            by_turns.next(true);
        }
        idle = done || std::exchange(self.flag_written, false) ? 0 : idle + 1;
        if (idle > MOST_IDLE_TURNS) {
            report_waiting_blocks(blocks - begun);
            break;
        }
    }
    const uint32_t block = self.block;
    by_turns.forget();
    if (settings.depth == SHUFFLED) settings.expected_steps[enter] = longest;
    current = nullptr;
    write_late_stores();
    close_profile();
    if (self.violations.empty()) return nullptr;
    self.violations.finish(name, block, cluster, blocks, settings.seed);
    return self.violations.first_line();
}

}  // namespace kgen::emulator
