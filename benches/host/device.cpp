// The device of the Torch ops of docs/vllm.md in host memory, for benches/host.py.
#include "device.h"
#include <torch/csrc/stable/stableivalue_conversions.h>
namespace kgen_torch {
device_scope::device_scope(const Tensor&) : index_(-1), stream_(nullptr), guard_(nullptr) {}
device_scope::~device_scope() = default;
Tensor device_scope::allocate(std::initializer_list<int64_t> sizes, ScalarType dtype) const {
    int64_t strides[4], next = 1;
    for (size_t i = sizes.size(); i-- > 0; next *= sizes.begin()[i]) strides[i] = next;
    AtenTensorHandle made = nullptr;
    const int32_t type = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
    const int32_t cpu = aoti_torch_device_type_cpu();
    aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.begin(), strides, type, cpu, index_, &made);
    return Tensor(made);
}
bool on_one_device(const Tensor& a, const Tensor& b) { return a.is_cpu() && b.is_cpu(); }
}
