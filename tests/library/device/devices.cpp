// Asks kgen/device.cuh for the bandwidth of several devices several times. Prints for each the bandwidths, and how often the device
// was asked for the clock of its memory.
#include <stdio.h>

#include <initializer_list>

#include "kgen/device.cuh"

static int current, asked[100];

cudaError_t cudaGetDevice(int* device) {
    *device = current;
    return current < 0 ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device < 0) return cudaErrorInvalidValue;
    if (attribute == cudaDevAttrMemoryClockRate) ++asked[device];
    *value = attribute == cudaDevAttrMemoryClockRate ? 1000000 * (1 + device) : 4096;
    return device == 2 ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
const char* cudaGetErrorName(cudaError_t) { return ""; }

int main() {
    for (const int device : {-1, 0, 1, 2, 63, 64}) {
        current = device;
        double gbs[3];
        for (double& one : gbs) one = kgen::device_memory_gbs();
        printf("%d: %g %g %g, asked %d\n", device, gbs[0], gbs[1], gbs[2], device < 0 ? 0 : asked[device]);
    }
    return 0;
}
