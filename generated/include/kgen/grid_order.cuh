// The order of consecutive kernels of a stream (PTX ISA, "griddepcontrol"; sm_90 and newer; CUDA calls it programmatic
// dependent launch). A kernel started by launch_early() may begin before its predecessor has completed.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Waits until the preceding kernels have completed and all their writes are visible. Code before it must not access
// memory that they read or write.
KGEN_DEVICE void await_earlier_kernels() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Once all blocks have called this, blocks of the next kernel may start on free resources; that kernel itself waits
// before it accesses data. May precede await_earlier_kernels() if every thread calls that before it exits: the next
// kernel waits for this one, and so for its predecessors.
KGEN_DEVICE void let_later_kernels_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace kgen
