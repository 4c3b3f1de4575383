// What the dispatcher asks about the device. For the host compiler as well as nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include "kgen/launch.cuh"

namespace kgen {

// Compute capability of the calling thread's current device, major * 10 + minor; 0 when CUDA gives none, and
// `last_error` then holds its words.
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

// Shared memory (bytes) that a block may have on the calling thread's current device; 0 when CUDA gives none.
inline int device_shared_memory() {
    int device = 0, bytes = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) cudaGetLastError();  // who asks is told that nothing fits
    return error == cudaSuccess ? bytes : 0;
}

// Multiprocessors of the calling thread's current device; 0 when CUDA does not say, and `last_error` then holds its words.
inline int multiprocessor_count() {
    int device = 0, count = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) return count;
    cudaGetLastError();  // reported here; it must not surface in an unrelated later call
    fail(KGEN_ERROR_LAUNCH, "the device's multiprocessors cannot be counted: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    return 0;
}

// Rated bandwidth (GB/s) of the calling thread's current device's memory: two transfers a clock. 0 when CUDA does not say.
inline double device_memory_gbs() {
    int device = 0, kilohertz = 0, bits = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device);
    if (error != cudaSuccess) cudaGetLastError();  // who asks has another number
    return error == cudaSuccess ? static_cast<double>(kilohertz) * bits / 4e6 : 0;
}

}  // namespace kgen
