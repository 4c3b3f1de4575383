// The services of a device that the ops need: the current stream, and memory from Torch's allocator. device_cuda.cpp
// implements them; the tests replace that file with one for host memory and the emulator.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <torch/csrc/stable/tensor.h>

#include "kgen.h"

namespace kgen_torch {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Makes the device of a tensor the current one for the lifetime of this object.
class device_scope {
public:
    explicit device_scope(const Tensor& tensor);
    ~device_scope();
    device_scope(const device_scope&) = delete;
    device_scope& operator=(const device_scope&) = delete;

    int32_t index() const { return index_; }

    // Torch's current stream of the device.
    cudaStream_t stream() const { return stream_; }

    // A new contiguous tensor on the device, with undefined contents. Its memory is ordered by the current stream: it
    // may be released as soon as everything that uses it has been launched there, also while a graph is captured.
    Tensor allocate(std::initializer_list<int64_t> sizes, ScalarType dtype) const;

private:
    int32_t index_;
    cudaStream_t stream_;
    void* guard_;
};

// True if two tensors are on one device.
bool on_one_device(const Tensor& a, const Tensor& b);

}  // namespace kgen_torch
