// An op without a body. benches/host.py inserts the schema of `_vllm_fa3_C.fwd`.
#include <torch/csrc/stable/library.h>
#include <optional>
#include <vector>
using torch::stable::Tensor;
using T = const std::optional<Tensor>&;
static std::vector<Tensor> fwd(Tensor q, const Tensor& k, const Tensor& v, T, T, T, T, T, T, T, T, T,
    std::optional<int64_t>, std::optional<int64_t>, T, T, T, T, T, T, T, T, T, double, bool, int64_t, int64_t, double,
    bool, T, int64_t, std::optional<bool>, int64_t, T, int64_t, int64_t, T) { return {}; }
STABLE_TORCH_LIBRARY(empty_op, ops) { ops.def("fwd@SCHEMA@"); }
STABLE_TORCH_LIBRARY_IMPL(empty_op, CPU, ops) { ops.impl("fwd", TORCH_BOX(&fwd)); }
