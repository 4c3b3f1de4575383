// The part of CUDA's runtime API that the generated dispatcher needs, for benches/host.py.
#pragma once
#include <stddef.h>
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor,
    cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrMultiProcessorCount, cudaDevAttrMemoryClockRate,
    cudaDevAttrL2CacheSize, cudaDevAttrGlobalMemoryBusWidth };
extern "C" {
cudaError_t cudaGetDevice(int*);
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
}
