// The emulator's runtime: the implementation of kgen/emulator.h. Compiled once and linked with each emulated kernel:
//   c++ -std=c++17 -O2 -ffp-contract=off -fPIC -I templates/emulator -I templates/include -c
//   templates/emulator/runtime.cpp
// One translation unit, one file per concept. A grid runs only on the calling thread; concurrent launches are
// serialised.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// The fiber switch: KGEN_EMULATOR_UCONTEXT selects the portable one even if there is a faster one.
#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(KGEN_EMULATOR_UCONTEXT)
#define KGEN_EMULATOR_ASSEMBLY 1
#else
#include <ucontext.h>
#endif

#define KGEN_EMULATOR_RUNTIME 1  // for kgen/emulator.h: here memset is the C library's
#include "kgen/emulator.h"
#include "kgen/launch.cuh"
#include "kgen/math.cuh"
#include "kgen/tensor_map.cuh"

#pragma GCC visibility push(hidden)
#include "runtime/unset.hpp"
#include "runtime/context.hpp"
#include "runtime/report.hpp"
#include "runtime/schedule.hpp"
#include "runtime/time_limit.hpp"
#include "runtime/block.hpp"
#include "runtime/clock.hpp"
#include "runtime/named_barrier.hpp"
#include "runtime/race.hpp"
#include "runtime/profile.hpp"
#include "runtime/shared_memory.hpp"
#include "runtime/device_conflicts.hpp"
#include "runtime/earlier_kernels.hpp"
#include "runtime/global_memory.hpp"
#include "runtime/async_copy.hpp"
#include "runtime/mbarrier.hpp"
#include "runtime/tma.hpp"
#include "runtime/tma_store.hpp"
#include "runtime/warp_primitives.hpp"
#include "runtime/mma.hpp"
#include "runtime/mma_m16n8k8.hpp"
#include "runtime/fp8_primitives.hpp"
#include "runtime/fp8_sums.hpp"
#include "runtime/warpgroup.hpp"
#include "runtime/wgmma.hpp"
#include "runtime/cluster.hpp"
#include "runtime/cluster_primitives.hpp"
#include "runtime/atomics.hpp"
#include "runtime/turns.hpp"
#include "runtime/launch.hpp"
#pragma GCC visibility pop

#include "runtime/interface.hpp"
