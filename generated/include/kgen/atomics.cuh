// Device memory shared by blocks of one launch: atomics, and flags that signal that data is complete. (PTX ISA, "Memory
// consistency model": all are strong operations of scope .gpu; sm_70 and newer.)
//
// One thread publishes what it and others have written: all of them write, a barrier follows, then one store_release(),
// or an atomic with order release. A thread that reads that value by load_acquire(), or by an atomic with order
// acquire, and all threads after a barrier with that thread, see the earlier writes. They must read the data by
// load_written() or cp.async: load_global() may return stale data from L1.
#pragma once

#include "kgen/floats.cuh"
#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// The memory order of an atomic.
enum class memory_order : uint8_t { relaxed, acquire, release, acquire_release };

// Expands MAKE(word, ...) with the PTX qualifier for ORDER.
#define KGEN_BY_ORDER(MAKE, ...)                             \
    if constexpr (ORDER == memory_order::relaxed) {          \
        MAKE("relaxed", __VA_ARGS__);                        \
    } else if constexpr (ORDER == memory_order::acquire) {   \
        MAKE("acquire", __VA_ARGS__);                        \
    } else if constexpr (ORDER == memory_order::release) {   \
        MAKE("release", __VA_ARGS__);                        \
    } else {                                                 \
        MAKE("acq_rel", __VA_ARGS__);                        \
    }

// Each returns the old value. `letter` is the type's asm constraint.
#define KGEN_ATOM(order, instruction, letter) \
    asm volatile("atom." order ".gpu.global." instruction " %0, [%1], %2;" : "=" letter(old) : "l"(pointer), letter(value) : "memory")
#define KGEN_DEFINE_ATOMIC(name, type, letter, instruction)     \
    template <memory_order ORDER = memory_order::relaxed>       \
    KGEN_DEVICE type name(type* pointer, type value) {          \
        type old;                                               \
        KGEN_BY_ORDER(KGEN_ATOM, instruction, letter)           \
        return old;                                             \
    }
KGEN_DEFINE_ATOMIC(atomic_add, uint32_t, "r", "add.u32")
KGEN_DEFINE_ATOMIC(atomic_add, uint64_t, "l", "add.u64")
KGEN_DEFINE_ATOMIC(atomic_add, float, "f", "add.f32")
KGEN_DEFINE_ATOMIC(atomic_max, uint32_t, "r", "max.u32")
KGEN_DEFINE_ATOMIC(atomic_max, uint64_t, "l", "max.u64")
KGEN_DEFINE_ATOMIC(atomic_or, uint32_t, "r", "or.b32")
KGEN_DEFINE_ATOMIC(atomic_or, uint64_t, "l", "or.b64")
KGEN_DEFINE_ATOMIC(atomic_exchange, uint32_t, "r", "exch.b32")
KGEN_DEFINE_ATOMIC(atomic_exchange, uint64_t, "l", "exch.b64")
#undef KGEN_DEFINE_ATOMIC
#undef KGEN_ATOM

// Stores `value` if the old value equals `expected`; returns the old value.
#define KGEN_CAS(order, instruction, letter)                                           \
    asm volatile("atom." order ".gpu.global." instruction " %0, [%1], %2, %3;"         \
                 : "=" letter(old)                                                     \
                 : "l"(pointer), letter(expected), letter(value)                       \
                 : "memory")
#define KGEN_DEFINE_CAS(name, type, letter, instruction)                               \
    template <memory_order ORDER = memory_order::relaxed>                              \
    KGEN_DEVICE type name(type* pointer, type expected, type value) {                  \
        type old;                                                                      \
        KGEN_BY_ORDER(KGEN_CAS, instruction, letter)                                   \
        return old;                                                                    \
    }
KGEN_DEFINE_CAS(atomic_cas, uint32_t, "r", "cas.b32")
KGEN_DEFINE_CAS(atomic_cas, uint64_t, "l", "cas.b64")
#undef KGEN_DEFINE_CAS
#undef KGEN_CAS
#undef KGEN_BY_ORDER

// Atomic operations without a result, so that no thread waits for one. (PTX ISA, "red"; for floats see add_global().)
#define KGEN_RED(order, instruction, letter) \
    asm volatile("red." order ".gpu.global." instruction " [%0], %1;" ::"l"(pointer), letter(value) : "memory")
#define KGEN_DEFINE_REDUCTION(name, type, letter, instruction)                                                                     \
    template <memory_order ORDER = memory_order::relaxed>                                                                          \
    KGEN_DEVICE void name(type* pointer, type value) {                                                                             \
        static_assert(ORDER == memory_order::relaxed || ORDER == memory_order::release, "a reduction cannot acquire");             \
        if constexpr (ORDER == memory_order::relaxed) {                                                                            \
            KGEN_RED("relaxed", instruction, letter);                                                                              \
        } else {                                                                                                                   \
            KGEN_RED("release", instruction, letter);                                                                              \
        }                                                                                                                          \
    }
KGEN_DEFINE_REDUCTION(reduce_add, uint32_t, "r", "add.u32")
KGEN_DEFINE_REDUCTION(reduce_add, uint64_t, "l", "add.u64")
KGEN_DEFINE_REDUCTION(reduce_max, uint32_t, "r", "max.u32")
KGEN_DEFINE_REDUCTION(reduce_max, uint64_t, "l", "max.u64")
KGEN_DEFINE_REDUCTION(reduce_or, uint32_t, "r", "or.b32")
KGEN_DEFINE_REDUCTION(reduce_or, uint64_t, "l", "or.b64")
#undef KGEN_DEFINE_REDUCTION
#undef KGEN_RED

// A flag. An acquire load that reads the value also makes visible all writes that precede its release store.
KGEN_DEVICE uint32_t load_acquire(const uint32_t* pointer) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(pointer) : "memory");
    return value;
}

KGEN_DEVICE uint64_t load_acquire(const uint64_t* pointer) {
    uint64_t value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(pointer) : "memory");
    return value;
}

KGEN_DEVICE void store_release(uint32_t* pointer, uint32_t value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(pointer), "r"(value) : "memory");
}

KGEN_DEVICE void store_release(uint64_t* pointer, uint64_t value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(pointer), "l"(value) : "memory");
}

// Loads atomically, without ordering other accesses.
KGEN_DEVICE uint32_t load_relaxed(const uint32_t* pointer) {
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(pointer) : "memory");
    return value;
}

KGEN_DEVICE uint64_t load_relaxed(const uint64_t* pointer) {
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(pointer) : "memory");
    return value;
}

KGEN_DEVICE void store_relaxed(uint32_t* pointer, uint32_t value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(pointer), "r"(value) : "memory");
}

KGEN_DEVICE void store_relaxed(uint64_t* pointer, uint64_t value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(pointer), "l"(value) : "memory");
}

// Data written by another block of the same launch, once it is known to be complete.
KGEN_DEVICE uint32_t load_written(const uint32_t* pointer) {
    uint32_t value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(pointer) : "memory");
    return value;
}

KGEN_DEVICE float load_written(const float* pointer) {
    float value;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(pointer) : "memory");
    return value;
}

// 16 bytes; `pointer` must be 16-byte aligned.
KGEN_DEVICE floats4 load_written(const floats4* pointer) {
    floats4 value;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(pointer) : "memory");
    return value;
}

KGEN_DEVICE words4 load_written(const words4* pointer) {
    words4 value;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(pointer) : "memory");
    return value;
}

}  // namespace kgen
