// The time limit of a launch. A kernel takes the bounds of its loops from memory: invalid lengths, or lengths that
// another thread changes during the call, can make loops that never end, or run for days, without any forbidden access.
// (A GPU that drives a display gives up in a similar way.)
#pragma once

namespace kgen::emulator {

constexpr double USUAL_SECONDS = 100;

constexpr uint32_t STEPS_OF_A_LOOK = 1u << 16;

// After a violation, further execution adds little more than counts: a second or so of it is enough.
constexpr uint32_t MOST_LOOKS_AT_FAULTS = 16;

// Counts steps, which are warp-wide primitives and everything else that a thread may repeat forever, and reads the
// clock once in a while. It is the thread's own CPU clock, so that a busy machine makes no difference.
class time_limit {
  public:
    // Begins a launch. Returns an error message if the limit in the environment is invalid.
    const char* begin() {
        limit_ = USUAL_SECONDS;
        if (const char* given = getenv("KGEN_EMULATOR_SECONDS")) {
            char* end = nullptr;
            limit_ = strtod(given, &end);
            if (end == given || *end != '\0' || !(limit_ > 0)) return "KGEN_EMULATOR_SECONDS must be a number of seconds above 0";
        }
        began_ = seconds();
        left_ = STEPS_OF_A_LOOK;
        looks_at_faults_ = 0;
        is_lost = false;
        return nullptr;
    }

    // Counts a step; true if the launch has to end, which `is_lost` reports from then on.
    bool step(bool is_faulty) {
        if (--left_ > 0) return false;
        left_ = STEPS_OF_A_LOOK;
        is_lost = is_faulty ? ++looks_at_faults_ > MOST_LOOKS_AT_FAULTS : seconds() - began_ > limit_;
        return is_lost;
    }

    double limit() const { return limit_; }

    bool is_lost = false;

  private:
    static double seconds() {
        timespec now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
    }

    double limit_ = USUAL_SECONDS;
    double began_ = 0;
    uint32_t left_ = STEPS_OF_A_LOOK;
    uint32_t looks_at_faults_ = 0;
};

}  // namespace kgen::emulator
