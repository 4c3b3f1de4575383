// The few element-wise operations that Torch performs for the ops; vLLM's decoding calls need none of them. All write
// into memory that the caller allocated, on the current stream. (Torch's stable interface passes no Scalar, so `add`
// is not among them.)
#pragma once

#include <optional>
#include <vector>

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_aten.h>
#include <torch/csrc/stable/library.h>

#include "device.h"

namespace kgen_torch::aten {

using torch::stable::detail::from;
using torch::stable::detail::to;

// Releases the result of a call, which is one of its arguments.
template <size_t COUNT>
void call(const char* name, const char* overload, StableIValue (&stack)[COUNT]) {
    TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, overload, stack, TORCH_ABI_VERSION));
    const Tensor returned = to<Tensor>(stack[0]);
}

// out = a, converted to its dtype
inline void copy(const Tensor& a, const Tensor& out) {
    StableIValue stack[] = {from(out), from(a), from(true)};
    call("aten::copy_", "", stack);
}

// out = a * b, broadcast
inline void multiply(const Tensor& a, const Tensor& b, const Tensor& out) {
    StableIValue stack[] = {from(a), from(b), from(out)};
    call("aten::mul", "out", stack);
}

// out = -a
inline void negate(const Tensor& a, const Tensor& out) {
    StableIValue stack[] = {from(a), from(out)};
    call("aten::neg", "out", stack);
}

// out = the sum over the first axis of int32 numbers
inline void sum(const Tensor& a, const Tensor& out) {
    const std::optional<std::vector<int64_t>> axes = std::vector<int64_t>{0};
    const std::optional<ScalarType> dtype = ScalarType::Int;
    StableIValue stack[] = {from(a), from(axes), from(false), from(dtype), from(out)};
    call("aten::sum", "IntList_out", stack);
}

inline void fill(const Tensor& t, double value) { TORCH_ERROR_CODE_CHECK(aoti_torch_aten_fill__Scalar(t.get(), value)); }

// Entries first .. first + count - 1 along the first axis, as a view.
inline Tensor part(const Tensor& t, int64_t first, int64_t count) {
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_aten_narrow(t.get(), 0, first, count, &made));
    return Tensor(made);
}

}  // namespace kgen_torch::aten
