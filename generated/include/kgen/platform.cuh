// The platform of a kernel: function qualifiers and thread indices. The emulator has its own file of this name; all
// differences between a GPU and the emulator at the level of the language itself are in these two files.
#pragma once

#include <stdint.h>

#define KGEN_DEVICE __device__ __forceinline__
#define KGEN_HOST_DEVICE __host__ __device__ __forceinline__
#define KGEN_KERNEL(max_threads, min_blocks) __global__ void __launch_bounds__(max_threads, min_blocks)
#define KGEN_PARAMETER const __grid_constant__
#define KGEN_UNROLL _Pragma("unroll")
#define KGEN_ROLLED _Pragma("unroll 1")

namespace kgen {

KGEN_DEVICE uint32_t thread_index() { return threadIdx.x; }
// Read again at each call (`volatile`): values that a kernel needs again at its end are then recomputed, not kept in
// registers.
KGEN_DEVICE uint32_t block_index() {
    uint32_t index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
}
KGEN_DEVICE uint32_t lane_index() { return threadIdx.x % 32; }
// Uniform over a warp; the shuffle shows this to the compiler, which then keeps dependent values in uniform registers.
KGEN_DEVICE uint32_t warp_index() { return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); }

// Hides from the compiler how `value` was computed. Without it every multiple of a stride in an unrolled loop is
// hoisted into a register of its own, and a kernel that keeps its accumulators in registers spills.
template <class T>
KGEN_DEVICE T* opaque(T* value) {
    asm volatile("" : "+l"(value));
    return value;
}

// Returns `value`, which the compiler takes to be unknown until `first` has been computed: loads through it cannot
// begin earlier.
template <class T>
KGEN_DEVICE T* opaque_after(T* value, float first) {
    asm volatile("" : "+l"(value) : "f"(first));
    return value;
}

KGEN_DEVICE int opaque(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

}  // namespace kgen
