// The device of the ops in tests: host memory registered with the emulator, without streams. Replaces
// templates/bindings/torch/device_cuda.cpp.
#include "device.h"

#include <cstring>
#include <string>

#include <torch/csrc/stable/stableivalue_conversions.h>

#include "errors.h"

extern "C" void kgen_emulator_tensor(const char* name, void* base, size_t bytes, const uint8_t* element_map, size_t element_bytes, int writable);

namespace {

std::string& allocations() {
    static std::string text;
    return text;
}

}  // namespace

// Bytes of each allocation since the last call, separated by spaces. Valid until the next call of an op.
extern "C" __attribute__((visibility("default"))) const char* kgen_test_allocations() {
    static std::string told;
    told.swap(allocations());
    allocations().clear();
    return told.c_str();
}

namespace kgen_torch {

device_scope::device_scope(const Tensor& tensor) : index_(tensor.get_device_index()), stream_(nullptr), guard_(nullptr) {}

device_scope::~device_scope() = default;

// Filled with NaN in every format, so that elements that are never written are noticed.
Tensor device_scope::allocate(std::initializer_list<int64_t> sizes, ScalarType dtype) const {
    int64_t strides[4], next = 1;
    for (size_t i = sizes.size(); i-- > 0; next *= sizes.begin()[i]) strides[i] = next;
    AtenTensorHandle made = nullptr;
    const int32_t type = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
    const int64_t rank = static_cast<int64_t>(sizes.size());
    if (aoti_torch_empty_strided(rank, sizes.begin(), strides, type, aoti_torch_device_type_cpu(), index_, &made) != TORCH_SUCCESS) refuse_allocation(next);
    const Tensor tensor(made);
    const size_t bytes = static_cast<size_t>(next) * tensor.element_size();
    allocations() += std::to_string(bytes) + " ";
    if (bytes > 0) {
        std::memset(tensor.data_ptr(), 0xff, bytes);
        kgen_emulator_tensor("made by the op", tensor.data_ptr(), bytes, nullptr, 1, 1);
    }
    return tensor;
}

bool on_one_device(const Tensor& a, const Tensor& b) { return a.is_cpu() && b.is_cpu(); }

}  // namespace kgen_torch
