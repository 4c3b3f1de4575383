// A tensor argument of an op: read once, checked against the op's expectations.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include <torch/csrc/stable/tensor.h>

#include "device.h"

namespace kgen_torch {

// Means "any size" in `require_shape`.
constexpr int64_t ANY = -1;

// Borrows the tensor's sizes and strides: it must not outlive the tensor.
struct view {
    const char* op;    // for messages
    const char* name;  // of the argument
    const Tensor* tensor;
    int64_t rank;
    const int64_t* sizes;
    const int64_t* strides;
    ScalarType dtype;

    view(const char* op, const char* name, const Tensor& tensor);

    int64_t size(int64_t axis) const { return sizes[axis < 0 ? rank + axis : axis]; }
    int64_t stride(int64_t axis) const { return strides[axis < 0 ? rank + axis : axis]; }
    int64_t elements() const;
    void* data() const;
    template <class T>
    T* data_as() const { return static_cast<T*>(data()); }

    // Refuses a different rank or different sizes; ANY is not compared.
    void require_shape(std::initializer_list<int64_t> expected) const;
    void require_dtype(std::initializer_list<ScalarType> expected) const;
    // Refuses a last axis whose elements are not contiguous.
    void require_rows() const;
    // Refuses a tensor that is not contiguous.
    void require_contiguous() const;
    void require_device_of(const view& other) const;
};

// The int32 tensor with a length or index for each of `count` entries; NULL if it is not given.
const int32_t* entries(const char* op, const char* name, const std::optional<Tensor>& given, int64_t count, const view& beside);

// A size that the C interface holds in 32 bits.
int32_t narrow(const char* op, const char* name, int64_t value);

}  // namespace kgen_torch
