// The dispatcher's device queries. For the host compiler as well as nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

#include "kgen/launch.cuh"

namespace kgen {

// Compute capability of the calling thread's current device, major * 10 + minor; 0 if CUDA reports none, and
// `last_error` then holds its message.
inline int device_capability() {
    int device = 0, major = 0, minor = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (error == cudaSuccess) return major * 10 + minor;
    cudaGetLastError();  // reported here; it must not surface in an unrelated later call
    fail(KGEN_ERROR_LAUNCH, "no CUDA device to choose a kernel for: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    return 0;
}

// Shared memory (bytes) available to a block on the calling thread's current device; 0 if CUDA reports none.
inline int device_shared_memory() {
    int device = 0, bytes = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) cudaGetLastError();  // the caller is told that nothing fits
    return error == cudaSuccess ? bytes : 0;
}

// Multiprocessors of the calling thread's current device; 0 if CUDA reports none, and `last_error` then holds its
// message.
inline int multiprocessor_count() {
    int device = 0, count = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) return count;
    cudaGetLastError();  // reported here; it must not surface in an unrelated later call
    fail(KGEN_ERROR_LAUNCH, "the device's multiprocessors cannot be counted: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    return 0;
}

// Bytes of L2 of the calling thread's current device; 0 if CUDA reports none.
inline int l2_cache_bytes() {
    int device = 0, bytes = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device);
    if (error != cudaSuccess) cudaGetLastError();  // the caller assumes none
    return error == cudaSuccess ? bytes : 0;
}

// Rated memory bandwidth (GB/s) of the calling thread's current device: two transfers per clock. 0 if CUDA does not
// report it.
//
// The driver fetches the memory clock from the device, which takes about a millisecond, so each device is queried once.
inline double device_memory_gbs() {
    constexpr int REMEMBERED = 64;  // devices; later ones are queried each time
    constexpr double NOT_SAID = -1;
    static std::atomic<double> known[REMEMBERED];  // 0: not queried yet
    int device = 0, kilohertz = 0, bits = 0;
    cudaError_t error = cudaGetDevice(&device);
    const bool remembered = error == cudaSuccess && device < REMEMBERED;
    if (remembered) {
        const double before = known[device].load(std::memory_order_relaxed);
        if (before != 0) return before == NOT_SAID ? 0 : before;
    }
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device);
    if (error != cudaSuccess) cudaGetLastError();  // the caller has another number
    const double gbs = error == cudaSuccess ? static_cast<double>(kilohertz) * bits / 4e6 : 0;
    if (remembered) known[device].store(gbs > 0 ? gbs : NOT_SAID, std::memory_order_relaxed);
    return gbs;
}

}  // namespace kgen
