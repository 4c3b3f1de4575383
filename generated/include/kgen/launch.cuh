// The host side of a launch: error reporting and the launch itself. Allocates nothing, never synchronises.
#pragma once

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>

#include "kgen.h"

namespace kgen {

// The message that kgen_last_error() returns; one per thread, shared by all launchers of a program.
inline thread_local char last_error[256] = "";

// Records a formatted message and returns `code`.
__attribute__((format(printf, 2, 3))) inline int fail(int code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return code;
}

// Launch attributes other than the grid.
struct launch_options {
    bool early;        // launch_early()
    uint32_t cluster;  // blocks per cluster
};

// Common code of launch() and launch_early().
template <class Params>
int launch_with(launch_options options, void (*kernel)(Params), const char* name, uint32_t blocks, uint32_t threads,
                uint32_t shared_bytes, const Params& params, cudaStream_t stream) {
    if (blocks == 0) return KGEN_SUCCESS;
    cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(shared_bytes));
    if (error == cudaSuccess) {
        void* arguments[] = {const_cast<Params*>(&params)};
        cudaLaunchAttribute attributes[2] = {};
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(blocks);
        config.blockDim = dim3(threads);
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        config.attrs = attributes;
        if (options.early) {
            cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
            attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
            attribute.val.programmaticStreamSerializationAllowed = 1;
        }
        if (options.cluster > 1) {
            cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
            attribute.id = cudaLaunchAttributeClusterDimension;
            attribute.val.clusterDim = {options.cluster, 1, 1};
        }
        error = cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments);
    }
    if (error == cudaSuccess) return KGEN_SUCCESS;
    cudaGetLastError();  // reported to the caller here; it must not surface in an unrelated later call
    return fail(KGEN_ERROR_LAUNCH, "%s: %s (%s)", name, cudaGetErrorString(error), cudaGetErrorName(error));
}

// Starts `kernel(params)` on `blocks` blocks, in clusters (kgen/cluster.cuh) of `cluster` blocks; `blocks` must be a
// multiple of `cluster`. Raising the shared-memory limit is idempotent and cheap, is allowed during graph capture, and
// must be done once per device: doing it at every launch avoids tracking the devices where it was done.
template <class Params>
int launch(void (*kernel)(Params), const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes,
           const Params& params, cudaStream_t stream, uint32_t cluster = 1) {
    return launch_with({false, cluster}, kernel, name, blocks, threads, shared_bytes, params, stream);
}

// launch() for a kernel that calls await_earlier_kernels() (kgen/grid_order.cuh): it may start early.
template <class Params>
int launch_early(void (*kernel)(Params), const char* name, uint32_t blocks, uint32_t threads, uint32_t shared_bytes,
                 const Params& params, cudaStream_t stream, uint32_t cluster = 1) {
    return launch_with({true, cluster}, kernel, name, blocks, threads, shared_bytes, params, stream);
}

}  // namespace kgen

// Every object defines the interface's two query functions, so that a single kernel links too; one definition is used.
extern "C" {
__attribute__((weak)) const char* kgen_last_error(void) { return kgen::last_error; }
__attribute__((weak)) uint32_t kgen_abi_version(void) { return KGEN_ABI_VERSION; }
}
