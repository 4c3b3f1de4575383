// The part of the CUDA runtime API that the generated dispatcher calls; whoever includes it implements it: ask.cpp,
// and programs of tests/ and benches/.
#pragma once
#include <stddef.h>
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaDeviceAttr {
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrComputeCapabilityMinor,
    cudaDevAttrMaxSharedMemoryPerBlockOptin,
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrMemoryClockRate,
    cudaDevAttrL2CacheSize,
    cudaDevAttrGlobalMemoryBusWidth,
};
extern "C" {
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
}
