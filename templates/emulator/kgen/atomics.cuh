// Device memory shared by blocks of one launch, on the emulator; see include/kgen/atomics.cuh. Other accesses of the
// blocks are checked against the order that these accesses create between blocks.
#pragma once

#include "kgen/floats.cuh"
#include "kgen/math.cuh"
#include "kgen/platform.cuh"
#include "kgen/types.cuh"

namespace kgen {

// The memory order of an atomic.
enum class memory_order : uint8_t { relaxed, acquire, release, acquire_release };

namespace emulator {

template <memory_order ORDER>
KGEN_DEVICE atomic_access atomic_of(atomic_primitive which, uint32_t bytes, uint64_t value, uint64_t expected = 0) {
    return {which, bytes, ORDER == memory_order::acquire || ORDER == memory_order::acquire_release,
            ORDER == memory_order::release || ORDER == memory_order::acquire_release, value, expected};
}

}  // namespace emulator

// Each returns the old value.
#define KGEN_DEFINE_ATOMIC(name, type, word)                                                                                                              \
    template <memory_order ORDER = memory_order::relaxed>                                                                                                 \
    KGEN_DEVICE type name(type* pointer, type value, KGEN_AT) {                                                                                           \
        return static_cast<type>(emulator::access_atomically(pointer, emulator::atomic_of<ORDER>(emulator::atomic_primitive::word, sizeof value, value), at)); \
    }
KGEN_DEFINE_ATOMIC(atomic_add, uint32_t, add)
KGEN_DEFINE_ATOMIC(atomic_add, uint64_t, add)
KGEN_DEFINE_ATOMIC(atomic_max, uint32_t, max)
KGEN_DEFINE_ATOMIC(atomic_max, uint64_t, max)
KGEN_DEFINE_ATOMIC(atomic_or, uint32_t, bit_or)
KGEN_DEFINE_ATOMIC(atomic_or, uint64_t, bit_or)
KGEN_DEFINE_ATOMIC(atomic_exchange, uint32_t, exchange)
KGEN_DEFINE_ATOMIC(atomic_exchange, uint64_t, exchange)
#undef KGEN_DEFINE_ATOMIC

template <memory_order ORDER = memory_order::relaxed>
KGEN_DEVICE float atomic_add(float* pointer, float value, KGEN_AT) {
    const emulator::atomic_access made = emulator::atomic_of<ORDER>(emulator::atomic_primitive::add_float, sizeof value, emulator::float_bits(value));
    return emulator::float_of_bits(static_cast<uint32_t>(emulator::access_atomically(pointer, made, at)));
}

// Stores `value` if the old value equals `expected`; returns the old value.
#define KGEN_DEFINE_CAS(type)                                                                                                                                           \
    template <memory_order ORDER = memory_order::relaxed>                                                                                                               \
    KGEN_DEVICE type atomic_cas(type* pointer, type expected, type value, KGEN_AT) {                                                                                    \
        return static_cast<type>(emulator::access_atomically(pointer, emulator::atomic_of<ORDER>(emulator::atomic_primitive::cas, sizeof value, value, expected), at)); \
    }
KGEN_DEFINE_CAS(uint32_t)
KGEN_DEFINE_CAS(uint64_t)
#undef KGEN_DEFINE_CAS

// Atomic operations without a result, so that no thread waits for one.
#define KGEN_DEFINE_REDUCTION(name, type)                                                                                                \
    template <memory_order ORDER = memory_order::relaxed>                                                                                \
    KGEN_DEVICE void name(type* pointer, type value, KGEN_AT) {                                                                          \
        static_assert(ORDER == memory_order::relaxed || ORDER == memory_order::release, "a reduction cannot acquire");                   \
        emulator::access_atomically(pointer, emulator::atomic_of<ORDER>(emulator::atomic_primitive::name, sizeof value, value), at);          \
    }
KGEN_DEFINE_REDUCTION(reduce_add, uint32_t)
KGEN_DEFINE_REDUCTION(reduce_add, uint64_t)
KGEN_DEFINE_REDUCTION(reduce_max, uint32_t)
KGEN_DEFINE_REDUCTION(reduce_max, uint64_t)
KGEN_DEFINE_REDUCTION(reduce_or, uint32_t)
KGEN_DEFINE_REDUCTION(reduce_or, uint64_t)
#undef KGEN_DEFINE_REDUCTION

// A flag. An acquire load that reads the value also makes visible all writes that precede its release store. Relaxed
// accesses order nothing else.
#define KGEN_DEFINE_FLAG(type)                                                                                                                                         \
    KGEN_DEVICE type load_acquire(const type* pointer, KGEN_AT) {                                                                                                      \
        const auto made = emulator::atomic_of<memory_order::acquire>(emulator::atomic_primitive::load_acquire, sizeof(type), 0);                                            \
        return static_cast<type>(emulator::access_atomically(const_cast<type*>(pointer), made, at));                                                                   \
    }                                                                                                                                                                  \
    KGEN_DEVICE type load_relaxed(const type* pointer, KGEN_AT) {                                                                                                      \
        const auto made = emulator::atomic_of<memory_order::relaxed>(emulator::atomic_primitive::load_relaxed, sizeof(type), 0);                                            \
        return static_cast<type>(emulator::access_atomically(const_cast<type*>(pointer), made, at));                                                                   \
    }                                                                                                                                                                  \
    KGEN_DEVICE void store_release(type* pointer, type value, KGEN_AT) {                                                                                               \
        emulator::access_atomically(pointer, emulator::atomic_of<memory_order::release>(emulator::atomic_primitive::store_release, sizeof value, value), at);               \
    }                                                                                                                                                                  \
    KGEN_DEVICE void store_relaxed(type* pointer, type value, KGEN_AT) {                                                                                               \
        emulator::access_atomically(pointer, emulator::atomic_of<memory_order::relaxed>(emulator::atomic_primitive::store_relaxed, sizeof value, value), at);               \
    }
KGEN_DEFINE_FLAG(uint32_t)
KGEN_DEFINE_FLAG(uint64_t)
#undef KGEN_DEFINE_FLAG

// Data written by another block of the same launch, once it is known to be complete.
#define KGEN_DEFINE_LOAD(type)                                              \
    KGEN_DEVICE type load_written(const type* pointer, KGEN_AT) {           \
        type value;                                                         \
        emulator::load_written(pointer, &value, sizeof value, at);          \
        return value;                                                       \
    }
KGEN_DEFINE_LOAD(uint32_t)
KGEN_DEFINE_LOAD(float)
KGEN_DEFINE_LOAD(floats4)
KGEN_DEFINE_LOAD(words4)
#undef KGEN_DEFINE_LOAD

}  // namespace kgen
