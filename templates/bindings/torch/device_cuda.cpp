// The device of the shipped ops: CUDA.
#define USE_CUDA  // declares the calls for streams

#include "device.h"

#include <torch/csrc/stable/stableivalue_conversions.h>

#include "errors.h"

namespace kgen_torch {

device_scope::device_scope(const Tensor& tensor) : index_(tensor.get_device_index()), stream_(nullptr), guard_(nullptr) {
    DeviceGuardHandle guard = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_create_device_guard(index_, &guard));
    guard_ = guard;
    void* stream = nullptr;
    if (aoti_torch_get_current_cuda_stream(index_, &stream) != TORCH_SUCCESS) {
        aoti_torch_delete_device_guard(guard);
        throw std::runtime_error("Torch names no current CUDA stream");
    }
    stream_ = static_cast<cudaStream_t>(stream);
}

device_scope::~device_scope() { aoti_torch_delete_device_guard(static_cast<DeviceGuardHandle>(guard_)); }

Tensor device_scope::allocate(std::initializer_list<int64_t> sizes, ScalarType dtype) const {
    constexpr size_t MOST = 4;
    int64_t strides[MOST], next = 1;
    for (size_t i = sizes.size(); i-- > 0; next *= sizes.begin()[i]) strides[i] = next;
    AtenTensorHandle made = nullptr;
    const int32_t type = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
    const int64_t rank = static_cast<int64_t>(sizes.size());
    if (aoti_torch_empty_strided(rank, sizes.begin(), strides, type, aoti_torch_device_type_cuda(), index_, &made) != TORCH_SUCCESS) refuse_allocation(next);
    return Tensor(made);
}

bool on_one_device(const Tensor& a, const Tensor& b) { return a.is_cuda() && b.is_cuda() && a.get_device_index() == b.get_device_index(); }

}  // namespace kgen_torch
