// The interface between the device primitives and the emulator's runtime (templates/emulator/runtime.cpp). Declarations
// only: the implementation is compiled once, with the runtime, so a kernel compiles quickly against this.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kgen/types.cuh"

#if defined(__GNUC__) && !defined(__clang__) && !defined(KGEN_EMULATOR_RUNTIME)
// With -ftrivial-auto-var-init=pattern GCC fills uninitialised variables with bytes 0xfe: a finite number in
// every floating-point format, which times 0 is 0. Arrays are filled through memset, which this redirects to
// the runtime's memset: it fills with 0xff, a NaN in every format.
extern "C" void* memset(void* to, int value, size_t bytes) noexcept __asm__("kgen_emulator_fill");
#endif

// The interface for the emulator's driver (kgen's worker process); exported by every emulated kernel's library.
extern "C" {

// Clears the registered tensors and the report. `seed` determines the order in which warps and lanes run and the time
// at which copies complete: at random unless kgen_emulator_priorities() was called.
void kgen_emulator_reset(uint64_t seed);

// Until the next reset, the runnable warp (or warpgroup) with the highest priority runs. Priorities are drawn from the
// seed for each block; at `depth` points of its run the running warp's priority drops below all others. Those points
// are drawn from the steps that the longest block of the same kernel took when it last ran without priorities, so run
// it without them first.
void kgen_emulator_priorities(uint32_t depth);

// Steps taken by all blocks since the last reset: operations of warps that other warps may wait for, except block_sync.
// If 0, a kernel without races behaves the same under every schedule.
uint64_t kgen_emulator_steps(void);

// Registers `bytes` bytes from `base` as tensor `name`: a kernel may access nothing else in device memory.
// `element_map`, if not NULL, has one byte per `element_bytes` bytes: 1 is an element, 0 a gap that must not be
// accessed; it must outlive the launches. `writable` is 0 for an input.
void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* element_map, size_t element_bytes, int writable);

// Errors of the last launch, as readable lines; "" if there were none. Valid until the next launch or reset.
const char* kgen_emulator_report(void);

// The compute capability (major * 10 + minor) of the emulated device, 80 unless set; determines its shared-memory
// limit.
void kgen_emulator_device(int capability);

// Number of multiprocessors the emulated device reports: 5 unless set, so that persistent blocks get several work
// items. Only launchers query it; blocks run one at a time.
void kgen_emulator_multiprocessors(int count);

#ifdef KGEN_PROFILE
// Counts of accesses since the last reset, by line of source (runtime/profile.hpp). Valid until the next call.
const char* kgen_emulator_profile(void);
#endif

}

namespace kgen {
struct tensor_map;
}

namespace kgen::emulator {

// The contents of a tensor map here; kgen/tensor_map.cuh fills them in. `strides` are in bytes, the innermost is not
// used.
constexpr uint64_t TENSOR_MAP_MARK = 0x70616d2065687420;
struct tensor_map_contents {
    uint64_t mark;  // distinguishes a map from other bytes
    const void* base;
    uint64_t extents[5];
    uint64_t strides[5];
    uint16_t box[5];
    uint8_t rank;
    uint8_t element_bytes;
    uint8_t swizzle;  // 0: none, 1, 2, 3: a span of 32, 64, 128 bytes
};

}  // namespace kgen::emulator

// Inside one library the calls need no indirection, and several loaded libraries must not share a runtime.
#pragma GCC visibility push(hidden)

namespace kgen::emulator {

// The location in the kernel's source of a use of a primitive: the last parameter of every primitive whose misuse can
// be reported.
struct source {
    const char* file;
    int line;
};
#define KGEN_AT ::kgen::emulator::source at = {__builtin_FILE(), __builtin_LINE()}

// The running thread.
struct identity {
    uint32_t thread;  // in its block
    uint32_t block;
    uint32_t warp;  // in its block
    uint32_t lane;
};
extern const identity* current;

// Warp-wide primitives: each waits for all 32 lanes of the warp.
uint32_t warp_index(source at);
void warp_sync(source at);
bool warp_any(bool value, source at);
uint32_t warp_ballot(bool value, source at);
uint32_t shuffle(uint32_t value, int lane, source at);
void warp_meet(source at);
float shuffle_xor(float value, int mask, source at);
int64_t shuffle_xor(int64_t value, int mask, source at);
void ldmatrix_x4(uint32_t* fragment, uint32_t address, source at);
void ldmatrix_x4_transposed(uint32_t* fragment, uint32_t address, source at);
void stmatrix_x4(uint32_t address, const uint32_t* fragment, source at);
void stmatrix_x4_transposed(uint32_t address, const uint32_t* fragment, source at);
void mma_m16n8k8(float* d, uint32_t a0, uint32_t a1, uint32_t b0, source at);
void mma_m16n8k16_fp16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, source at);
void mma_m16n8k16_bf16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, source at);
void ldmatrix_b8_x2_transposed(uint32_t* fragment, uint32_t address, source at);

// The scales that a lane passes to an MMA, for a row of A and a column of B, and the lanes of each four whose scales
// are used.
struct block_scales {
    uint32_t a, b;
    uint32_t pair_a, lane_b;
};
void mma_m16n8k32(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, source at);
void mma_m16n8k32_fp16(uint32_t* d, const uint32_t* a, uint32_t b0, uint32_t b1, source at);
void mma_m16n8k32_block_scaled(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, const block_scales& scales, source at);

// Matrix products of a warpgroup, and their ordering. A and B are matrix descriptors.
enum class wgmma_element : uint8_t { bf16, fp16, e4m3 };
struct wgmma_operands {
    wgmma_element element;
    uint32_t columns;  // of D
    const uint32_t* registers;  // A; NULL if it is in shared memory
    uint64_t a, b;
    bool transposed;  // B
    bool accumulate;
};
void check_matrix_descriptor(uint32_t address, uint32_t stride, source at);
void wgmma_fence(source at);
void wgmma_commit(source at);
void wgmma_wait(uint32_t pending, float* d, uint32_t tiles, source at);
void wgmma(float* d, const wgmma_operands& operands, source at);

// Per lane: the registers of D now hold the results of completed products.
void hold(float* d, uint32_t tiles, source at);

// Lower (release) or raise (claim) the register count per thread of this warpgroup to `count`, like setmaxnreg.
void release_registers(uint32_t count, source at);
void claim_registers(uint32_t count, source at);

// Barriers of the whole block, and of some of its warps.
void block_sync(source at);
void barrier_arrive(int barrier, int threads, source at);
void barrier_wait(int barrier, int threads, source at);

// Shared memory. The address space starts above 0, so that an offset is never mistaken for an address.
constexpr uint32_t SHARED_BASE = 1024;
void store_shared(uint32_t address, const void* value, uint32_t bytes, source at);
void load_shared(uint32_t address, void* value, uint32_t bytes, source at);

// Asynchronous copies.
void cp_async(uint32_t destination, const void* source_bytes, uint32_t bytes, source at);
void cp_async_commit();
void cp_async_wait(uint32_t pending);

// Barriers that count arrivals and bytes.
void mbarrier_init(uint32_t barrier, uint32_t arrivals, source at);
void fence_mbarrier_init();
void mbarrier_arrive(uint32_t barrier, source at);
void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes, source at);
bool mbarrier_try_wait(uint32_t barrier, uint32_t parity, source at);
bool mbarrier_test_wait(uint32_t barrier, uint32_t parity, source at);
void mbarrier_wait(uint32_t barrier, uint32_t parity, source at);

// Clusters: blocks that access each other's shared memory.
uint32_t cluster_rank();
void cluster_sync(source at);
uint32_t shared_of(uint32_t address, uint32_t rank, source at);
void mbarrier_arrive_at(uint32_t address, source at);
void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity, source at);

// Copies of whole tiles. `map` is a kgen::tensor_map, wherever it is stored.
void fence_proxy_async();
void tma_prefetch_map(const tensor_map& map, source at);
void tma_load(uint32_t destination, const tensor_map& map, uint32_t barrier, const int32_t* box, uint32_t rank, source at);
void tma_load_multicast(uint32_t destination, const tensor_map& map, uint32_t barrier, uint32_t blocks, const int32_t* box, uint32_t rank, source at);
void tma_store(const tensor_map& map, uint32_t address, const int32_t* box, uint32_t rank, source at);
void tma_store_commit();
void tma_store_wait_read(uint32_t pending);

// Consecutive kernels of a stream: this one was launched before its predecessors had completed.
void await_earlier_kernels();

// Device memory.
void load_global(const void* pointer, void* value, uint32_t bytes, source at);
void store_global(void* pointer, const void* value, uint32_t bytes, source at);
void add_global(float* pointer, const float* values, uint32_t count, source at);
void load_written(const void* pointer, void* value, uint32_t bytes, source at);

// The operation of a strong access, and the ordering that it provides.
enum class atomic_primitive : uint8_t { add, add_float, max, bit_or, exchange, cas, reduce_add, reduce_max, reduce_or, load_acquire, store_release, load_relaxed, store_relaxed };
struct atomic_access {
    atomic_primitive which;
    uint32_t bytes;
    bool acquires, releases;
    uint64_t value, expected;
};

// The old value.
uint64_t access_atomically(void* pointer, const atomic_access& access, source at);

// Launch attributes other than the grid.
struct launch_options {
    bool early;        // launch_early()
    uint32_t cluster;  // blocks per cluster
};

// Runs `enter(call)` as every thread of a grid. NULL on success, otherwise an error message of one line.
const char* run(const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, launch_options options, void (*enter)(const void*), const void* call);

int device_capability();
int device_shared_memory();
int multiprocessor_count();

}  // namespace kgen::emulator

#pragma GCC visibility pop
