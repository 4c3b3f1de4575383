/* The part of the CUDA runtime API that examples/attention.c calls, on the host with the emulator's tensors. */
#ifndef FAKE_CUDA_RUNTIME_API_H
#define FAKE_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 } cudaError_t;
typedef enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost } cudaMemcpyKind;

void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* element_map, size_t element_bytes, int writable);

static cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    *pointer = malloc(bytes);
    if (*pointer == NULL) return cudaErrorMemoryAllocation;
    kgen_emulator_tensor("allocation", *pointer, bytes, NULL, 1, 1);
    return cudaSuccess;
}

static cudaError_t cudaFree(void* pointer) {
    free(pointer);
    return cudaSuccess;
}

static cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

static cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }

static const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "out of memory"; }

#endif
