// The clocks of a GPU, on the emulator, which has no notion of time: each reading is one greater than the one before.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

namespace emulator {

inline int64_t readings = 0;

}  // namespace emulator

KGEN_DEVICE int64_t clock_cycles() { return ++emulator::readings; }

KGEN_DEVICE int64_t clock_nanoseconds() { return ++emulator::readings; }

}  // namespace kgen
