// Registration with Torch: the dispatch key of the ops. The tests define another, to call them on tensors in host
// memory.
#pragma once

#include <torch/csrc/stable/library.h>

#ifndef KGEN_TORCH_KEY
#define KGEN_TORCH_KEY CUDA
#endif

namespace kgen_torch {

// Stands in for `Generator?` in a boxed call: Torch's stable interface converts None and no generator.
using no_generator = std::optional<int64_t>;

}  // namespace kgen_torch
