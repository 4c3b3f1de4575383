// What the launchers ask about the device, on the emulator.
#pragma once

#include "kgen/emulator.h"

namespace kgen {

// Compute capability of the device, major * 10 + minor: what kgen_emulator_device() was told, 80 at first.
inline int device_capability() { return emulator::device_capability(); }

// Shared memory (bytes) that a block may have there.
inline int device_shared_memory() { return emulator::device_shared_memory(); }

// Multiprocessors of the device: what kgen_emulator_multiprocessors() was told, 108 (an A100's) at first.
inline int multiprocessor_count() { return emulator::multiprocessor_count(); }

// Rated bandwidth (GB/s) of its memory: not said.
inline double device_memory_gbs() { return 0; }

}  // namespace kgen
