// Kernels of a stream one behind the other (PTX ISA, "griddepcontrol"; sm_90 and newer; CUDA calls it programmatic dependent launch).
// A kernel that launch_early() starts may begin before the one before it has ended.
#pragma once

#include "kgen/platform.cuh"

namespace kgen {

// Waits until the kernels before have ended and all they have written is there. What stands before it must touch no memory that they
// write or read.
KGEN_DEVICE void await_earlier_kernels() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// From here on, when all blocks have come here, blocks of the next kernel may start where there is room; it waits itself. May stand before
// await_earlier_kernels() if every thread comes to that before it ends: the next kernel waits for this one, and so for those before.
KGEN_DEVICE void let_later_kernels_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace kgen
