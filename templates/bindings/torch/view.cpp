#include "view.h"

#include <climits>
#include <string>

#include <torch/headeronly/core/ScalarType.h>

#include "errors.h"

namespace kgen_torch {

namespace {

std::string shape_text(std::initializer_list<int64_t> sizes) {
    std::string text = "(";
    for (const int64_t* size = sizes.begin(); size != sizes.end(); ++size) {
        text += (size == sizes.begin() ? "" : ", ") + (*size == ANY ? std::string("any") : std::to_string(*size));
    }
    return text + ")";
}

std::string shape_text(const view& v) {
    std::string text = "(";
    for (int64_t axis = 0; axis < v.rank; ++axis) text += (axis == 0 ? "" : ", ") + std::to_string(v.sizes[axis]);
    return text + ")";
}

}  // namespace

view::view(const char* op_, const char* name_, const Tensor& given) : op(op_), name(name_), tensor(&given), rank(given.dim()) {
    sizes = given.sizes().data();
    strides = given.strides().data();
    dtype = given.scalar_type();
}

int64_t view::elements() const {
    int64_t count = 1;
    for (int64_t axis = 0; axis < rank; ++axis) count *= sizes[axis];
    return count;
}

void* view::data() const { return tensor->data_ptr(); }

void view::require_shape(std::initializer_list<int64_t> expected) const {
    bool fits = rank == static_cast<int64_t>(expected.size());
    for (int64_t axis = 0; fits && axis < rank; ++axis) fits = expected.begin()[axis] == ANY || expected.begin()[axis] == sizes[axis];
    if (fits) return;  // texts are assembled only for a refusal
    refuse(op, "`", name, "` has shape ", shape_text(*this), "; expected ", shape_text(expected));
}

void view::require_dtype(std::initializer_list<ScalarType> expected) const {
    for (const ScalarType type : expected) {
        if (type == dtype) return;
    }
    std::string names;
    for (const ScalarType type : expected) names += (names.empty() ? "" : " or ") + std::string(torch::headeronly::toString(type));
    refuse(op, "`", name, "` has dtype ", torch::headeronly::toString(dtype), "; expected ", names);
}

void view::require_rows() const {
    require(rank > 0 && (stride(-1) == 1 || size(-1) <= 1), op, "`", name, "` has stride ", rank > 0 ? stride(-1) : 0,
            " along its last axis; elements must lie side by side");
}

void view::require_contiguous() const {
    int64_t expected = 1;
    for (int64_t axis = rank - 1; axis >= 0; expected *= sizes[axis--]) {
        require(sizes[axis] <= 1 || strides[axis] == expected, op, "`", name, "` must be contiguous");
    }
}

void view::require_device_of(const view& other) const {
    require(on_one_device(*tensor, *other.tensor), op, "`", name, "` is on another device than `", other.name, "`");
}

const int32_t* entries(const char* op, const char* name, const std::optional<Tensor>& given, int64_t count, const view& beside) {
    if (!given) return nullptr;
    const view v(op, name, *given);
    v.require_shape({count});
    v.require_dtype({ScalarType::Int});
    v.require_contiguous();
    v.require_device_of(beside);
    return v.data_as<const int32_t>();
}

int32_t narrow(const char* op, const char* name, int64_t value) {
    require(value >= INT32_MIN && value <= INT32_MAX, op, "`", name, "` is ", value, "; it must fit 32 bits");
    return static_cast<int32_t>(value);
}

}  // namespace kgen_torch
