// The dispatcher's device queries. For the host compiler as well as nvcc.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#include <atomic>

#include "kgen/launch.cuh"

namespace kgen {

// Number of devices whose properties are cached; later ones are queried each time.
constexpr int REMEMBERED_DEVICES = 64;

// A constant property of each device, plus 1; 0: not queried yet.
struct device_numbers {
    std::atomic<int> of[REMEMBERED_DEVICES];
};

// A property of the calling thread's current device, which `ask(value, device)` queries from CUDA in the first call.
template <class Ask>
cudaError_t of_device(device_numbers& known, int& value, Ask ask) {
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    const bool remembered = error == cudaSuccess && device < REMEMBERED_DEVICES;
    if (remembered) {
        const int before = known.of[device].load(std::memory_order_relaxed);
        if (before != 0) {
            value = before - 1;
            return cudaSuccess;
        }
    }
    if (error == cudaSuccess) error = ask(value, device);
    if (error == cudaSuccess && remembered) known.of[device].store(value + 1, std::memory_order_relaxed);
    // the caller reports it; it must not surface in an unrelated later call
    if (error != cudaSuccess) cudaGetLastError();
    return error;
}

// Identifies the calling thread's current device in caches of choices: unique per device; -1 if CUDA has none.
inline int64_t device_identity() {
    int device = 0;
    if (cudaGetDevice(&device) == cudaSuccess) return device;
    cudaGetLastError();
    return -1;
}

// Compute capability of the calling thread's current device, major * 10 + minor; 0 if CUDA reports none, and
// `last_error` then holds its message.
inline int device_capability() {
    static device_numbers known;
    int capability = 0;
    const cudaError_t error = of_device(known, capability, [](int& value, int device) {
        int major = 0, minor = 0;
        cudaError_t asked = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
        if (asked == cudaSuccess) asked = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
        value = major * 10 + minor;
        return asked;
    });
    if (error == cudaSuccess) return capability;
    fail(KGEN_ERROR_LAUNCH, "no CUDA device to choose a kernel for: %s (%s)", cudaGetErrorString(error),
         cudaGetErrorName(error));
    return 0;
}

// Shared memory (bytes) available to a block on the calling thread's current device; 0, so that nothing fits, if CUDA
// reports none.
inline int device_shared_memory() {
    static device_numbers known;
    int bytes = 0;
    const auto ask = [](int& value, int device) {
        return cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    };
    return of_device(known, bytes, ask) == cudaSuccess ? bytes : 0;
}

// Multiprocessors of the calling thread's current device; 0 if CUDA reports none, and `last_error` then holds its
// message.
inline int multiprocessor_count() {
    static device_numbers known;
    int count = 0;
    const auto ask = [](int& value, int device) {
        return cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device);
    };
    const cudaError_t error = of_device(known, count, ask);
    if (error == cudaSuccess) return count;
    fail(KGEN_ERROR_LAUNCH, "the device's multiprocessors cannot be counted: %s (%s)", cudaGetErrorString(error),
         cudaGetErrorName(error));
    return 0;
}

// Bytes of L2 of the calling thread's current device; 0 if CUDA reports none.
inline int l2_cache_bytes() {
    static device_numbers known;
    int bytes = 0;
    const auto ask = [](int& value, int device) {
        return cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, device);
    };
    return of_device(known, bytes, ask) == cudaSuccess ? bytes : 0;
}

// Rated memory bandwidth (GB/s) of the calling thread's current device: two transfers per clock. 0 if CUDA does not
// report it.
//
// The driver fetches the memory clock from the device, which takes about a millisecond, so each device is queried once.
inline double device_memory_gbs() {
    constexpr double NOT_SAID = -1;
    static std::atomic<double> known[REMEMBERED_DEVICES];  // 0: not queried yet
    int device = 0, kilohertz = 0, bits = 0;
    cudaError_t error = cudaGetDevice(&device);
    const bool remembered = error == cudaSuccess && device < REMEMBERED_DEVICES;
    if (remembered) {
        const double before = known[device].load(std::memory_order_relaxed);
        if (before != 0) return before == NOT_SAID ? 0 : before;
    }
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device);
    if (error != cudaSuccess) cudaGetLastError();  // the caller has a fallback
    const double gbs = error == cudaSuccess ? static_cast<double>(kilohertz) * bits / 4e6 : 0;
    if (remembered) known[device].store(gbs > 0 ? gbs : NOT_SAID, std::memory_order_relaxed);
    return gbs;
}

}  // namespace kgen
