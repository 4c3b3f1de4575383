// How long a launch may run. A kernel takes the bounds of its loops from memory: lengths that are nonsense, or that
// another thread changes during the call, make loops that never end, or not for days, and that need not touch anything
// that they must not. (A GPU gives up in a similar way where its driver watches over a display.)
#pragma once

namespace kgen::emulator {

constexpr double USUAL_SECONDS = 100;

constexpr uint32_t STEPS_OF_A_LOOK = 1u << 16;

// What follows a violation adds little more than counts: a second or so of it is enough.
constexpr uint32_t MOST_LOOKS_AT_FAULTS = 16;

// Steps are meetings of a warp, and whatever else a thread may do without end: they are counted, and now and then the
// clock is looked at. It is the thread's own, so that a machine that has more to do makes no difference.
class time_limit {
  public:
    // A launch begins; an error message if the environment has a limit that is none.
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

    // Counts a step; true if the launch has to end, which `is_lost` says from then on.
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
