// The launchers' device queries, on the emulator.
#pragma once

#include <stdint.h>

#include "kgen/emulator.h"

namespace kgen {

// Identifies the device in caches of choices: it may change at any time.
inline int64_t device_identity() { return static_cast<int64_t>(emulator::device_capability()) << 32 | emulator::multiprocessor_count(); }

// Compute capability of the device, major * 10 + minor: set by kgen_emulator_device(), initially 80.
inline int device_capability() { return emulator::device_capability(); }

// Shared memory (bytes) available to a block of the device.
inline int device_shared_memory() { return emulator::device_shared_memory(); }

// Multiprocessors of the device: set by kgen_emulator_multiprocessors(), initially 108 (an A100's).
inline int multiprocessor_count() { return emulator::multiprocessor_count(); }

// Bytes of L2: so few that calls of a few hundred keys exceed them.
inline int l2_cache_bytes() { return 192 << 10; }

// Rated memory bandwidth (GB/s): not reported.
inline double device_memory_gbs() { return 0; }

}  // namespace kgen
