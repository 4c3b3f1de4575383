// Tensor maps: TMA's descriptors of tensors (CUDA driver API, "Tensor Map Object Management"). A launcher encodes them
// and passes them by value in the kernel's parameters.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

#include "kgen/launch.cuh"
#include "kgen/tensor_view.cuh"

namespace kgen {

// CUtensorMap of cuda.h, redeclared because that header costs too much compile time per kernel.
struct alignas(64) tensor_map {
    uint64_t opaque[16];
};

// cuTensorMapEncodeTiled; its enumerations are ints.
using tensor_map_encoder = int (*)(tensor_map* map, int data_type, uint32_t rank, void* base, const uint64_t* extents,
                                   const uint64_t* outer_strides, const uint32_t* box, const uint32_t* element_strides,
                                   int interleave, int swizzle, int l2_promotion, int fill);

// Looked up in the driver that the process has already loaded: kgen does not link with libcuda. NULL if it is older
// than CUDA 12.0.
inline tensor_map_encoder find_tensor_map_encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                               cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    // reported by the caller; it must not surface in an unrelated later call
    if (error != cudaSuccess) cudaGetLastError();
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<tensor_map_encoder>(function)
                                                                        : nullptr;
}

// Makes the map of a tensor accepted by tma_takes(). `name` is the launcher, `tensor` its name for the tensor.
inline int make_tensor_map(tensor_map& map, const tensor_view& view, const char* name, const char* tensor) {
    static std::atomic<tensor_map_encoder> known;  // NULL until it is found: a driver out of memory may find it later
    tensor_map_encoder encode = known.load(std::memory_order_relaxed);
    if (encode == nullptr) {
        encode = find_tensor_map_encoder();
        known.store(encode, std::memory_order_relaxed);
    }
    if (encode == nullptr) {
        return fail(
            KGEN_ERROR_LAUNCH,
            "%s: the CUDA driver has no cuTensorMapEncodeTiled; copying by TMA needs the driver of CUDA 12.0 or newer",
            name);
    }
    // Elements are only moved: any integer type of their size will do.
    const int data_type = view.element_bytes == 4 ? 2 : view.element_bytes == 2 ? 1 : 0;
    const int no_interleave = 0, l2_lines_of_256_bytes = 3, fill_with_zeros = 0;
    const uint32_t every_element[TMA_MAX_RANK] = {1, 1, 1, 1, 1};
    uint64_t strides[TMA_MAX_RANK] = {};
    tma_strides(view, strides);
    const int error = encode(&map, data_type, view.rank, const_cast<void*>(view.base), view.extents, strides + 1,
                             view.box, every_element, no_interleave, static_cast<int>(view.swizzle),
                             l2_lines_of_256_bytes, fill_with_zeros);
    return error == 0
               ? KGEN_SUCCESS
               : fail(KGEN_ERROR_LAUNCH, "%s: cuTensorMapEncodeTiled refused %s (CUresult %d)", name, tensor, error);
}

}  // namespace kgen
