// Queries kgen/device.cuh repeatedly for the bandwidth and the other properties of several devices. Prints for each
// device the bandwidths, the number of queries of its memory clock, the sums of the other properties, and the queries
// of those.
#include <stdio.h>

#include <initializer_list>

#include "kgen/device.cuh"

static int current, asked[100], asked_others[100];

cudaError_t cudaGetDevice(int* device) {
    *device = current;
    return current < 0 ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device < 0) return cudaErrorInvalidValue;
    if (attribute == cudaDevAttrMemoryClockRate) ++asked[device];
    else if (attribute != cudaDevAttrGlobalMemoryBusWidth) ++asked_others[device];
    *value = attribute == cudaDevAttrMemoryClockRate ? 1000000 * (1 + device) : 4096;
    if (attribute == cudaDevAttrMultiProcessorCount) *value = device;  // 0 for device 0, which equals the cache's "not yet queried"
    return device == 2 ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
const char* cudaGetErrorName(cudaError_t) { return ""; }

int main() {
    for (const int device : {-1, 0, 1, 2, 63, 64}) {
        current = device;
        double gbs[3];
        int others[3];
        for (double& one : gbs) one = kgen::device_memory_gbs();
        for (int& one : others) one = kgen::device_capability() + kgen::device_shared_memory() + kgen::multiprocessor_count() + kgen::l2_cache_bytes();
        printf("%d: %g %g %g, asked %d; %d %d %d, asked %d; identity %d\n", device, gbs[0], gbs[1], gbs[2], device < 0 ? 0 : asked[device], others[0], others[1],
               others[2], device < 0 ? 0 : asked_others[device], static_cast<int>(kgen::device_identity()));
    }
    return 0;
}
