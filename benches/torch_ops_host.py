#!/usr/bin/env python3
"""Host time of the Torch ops (docs/vllm.md), without a GPU: a library whose functions return at once, and host memory.

    python benches/torch_ops_host.py

Times are of the processor, the least of several rounds, in microseconds. An op without a body, of the same schema, is
what Torch takes to call any such op from Python.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import timeit

ROOT = pathlib.Path(__file__).resolve().parent.parent

LIBRARY = """
#include "kgen.h"
int kgen_fwd(const kgen_fwd_params* p, cudaStream_t s) { return 0; }
int kgen_fwd_metadata(const kgen_fwd_params* p, cudaStream_t s) { return 0; }
int kgen_explain_choice(const kgen_fwd_params* p, kgen_choice* choice) { return KGEN_ERROR_NO_VARIANT; }
int kgen_append_kv(const kgen_append_kv_params* p, cudaStream_t s) { return 0; }
int kgen_fwd_kvcache(const kgen_append_kv_params* a, const kgen_fwd_params* p, cudaStream_t s) { return 0; }
size_t kgen_fwd_workspace(const kgen_fwd_params* p) { return p->num_splits > 1 ? 65536 : 0; }
const char* kgen_last_error(void) { return ""; }
void kgen_emulator_tensor(void) {}
"""

DEVICE = """
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
    aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.begin(), strides, type, aoti_torch_device_type_cpu(), index_, &made);
    return Tensor(made);
}
bool on_one_device(const Tensor& a, const Tensor& b) { return a.is_cpu() && b.is_cpu(); }
}
"""

EMPTY = """
#include <torch/csrc/stable/library.h>
#include <optional>
#include <vector>
using torch::stable::Tensor;
using T = const std::optional<Tensor>&;
static std::vector<Tensor> fwd(Tensor q, const Tensor& k, const Tensor& v, T, T, T, T, T, T, T, T, T, std::optional<int64_t>, std::optional<int64_t>, T, T, T, T, T, T, T, T, T,
    double, bool, int64_t, int64_t, double, bool, T, int64_t, std::optional<bool>, int64_t, T, int64_t, int64_t, T) { return {}; }
STABLE_TORCH_LIBRARY(empty_op, ops) { ops.def("fwd@SCHEMA@"); }
STABLE_TORCH_LIBRARY_IMPL(empty_op, CPU, ops) { ops.impl("fwd", TORCH_BOX(&fwd)); }
"""


def built(folder):
    """Builds and loads the ops, the library and the empty op."""
    import torch

    out = folder / "out"
    (folder / "library.c").write_text(LIBRARY)
    (folder / "device.cpp").write_text(DEVICE)
    include = ROOT / "generated" / "include"
    out.mkdir()
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", include, folder / "library.c", "-o", out / "libkgen_vllm.so"], check=True)
    environment = {**os.environ, "KEY": "CPU", "DEVICE": str(folder / "device.cpp"), "PYTHON": sys.executable, "INCLUDE": str(include)}
    subprocess.run([ROOT / "scripts" / "torch_ops.sh", out], env=environment, check=True, stdout=subprocess.DEVNULL)
    for name in ("_vllm_fa2_C", "_vllm_fa3_C"):
        torch.ops.load_library(str(out / f"{name}.abi3.so"))
    schema = str(torch.ops._vllm_fa3_C.fwd.default._schema).partition("fwd")[2]
    schema = schema.replace("$0! -> ", "a!").replace("$1! -> ", "b!")
    (folder / "empty.cpp").write_text(EMPTY.replace("@SCHEMA@", schema))
    torch_folder = pathlib.Path(torch.__file__).parent
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-DTORCH_TARGET_VERSION=0x020a000000000000", "-isystem", torch_folder / "include"]
    libraries = ["-L", torch_folder / "lib", "-ltorch_cpu", "-lc10"]
    subprocess.run(["c++", *flags, folder / "empty.cpp", "-o", folder / "empty.so", *libraries], check=True)
    torch.ops.load_library(str(folder / "empty.so"))


def main():
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        built(pathlib.Path(folder))

    def tell(what, call, number=10000):
        call()
        best = min(timeit.repeat(call, number=number, repeat=9, timer=time.process_time)) / number
        print(f"{what:44} {best * 1e6:6.2f}", flush=True)

    batch, heads, heads_k, dim = 8, 8, 2, 64
    fused = torch.randn(batch, (heads + 2 * heads_k) * dim).bfloat16()
    q = fused[:, : heads * dim].view(batch, heads, dim)
    cache = torch.randn(64, heads_k, 16, 2 * dim).bfloat16().transpose(1, 2)
    k, v = cache[..., :dim], cache[..., dim:]
    out, cu = torch.empty(batch, heads, dim).bfloat16(), torch.arange(batch + 1, dtype=torch.int32)
    used, table = torch.full((batch,), 100, dtype=torch.int32), torch.zeros(batch, 8, dtype=torch.int32)
    one = torch.ones(1).expand(batch, heads_k)
    metadata = torch.ops._vllm_fa3_C.get_scheduler_metadata
    described = (batch, 1, 128, heads, heads_k, dim, dim, torch.bfloat16, used, cu, None, None, None, None, 16, 0, True, -1, -1, False, 0, None, 0)
    counts = metadata(*described)

    def arguments(splits):
        # fmt: off
        return (q, k, v, None, None, None, out, cu, None, None, None, used, 1, 128, table, None, None, None, None, None, one, one, one,
                0.125, True, -1, -1, 0, True, counts, splits, None, 0, None, 1, 0, None)
        # fmt: on

    plain, split = arguments(0), arguments(32)
    ours, empty = torch.ops._vllm_fa3_C.fwd, torch.ops.empty_op.fwd
    zeros = torch.zeros_like(cu)
    fa2 = torch.ops._vllm_fa2_C.varlen_fwd
    of_fa2 = (q, k, v, out, cu, zeros, used, None, table, None, 1, 128, 0.0, 0.125, False, True, -1, -1, 0.0, False, 0, None)
    tell("an op without a body, schema of fwd", lambda: empty(*plain))
    tell("the same, its overload called", lambda: empty.default(*plain))
    tell("_vllm_fa3_C.fwd", lambda: ours(*plain))
    tell("the same, its overload called", lambda: ours.default(*plain))
    tell("_vllm_fa3_C.fwd, 32 splits, a workspace", lambda: ours(*split))
    tell("_vllm_fa3_C.get_scheduler_metadata", lambda: metadata(*described))
    tell("_vllm_fa2_C.varlen_fwd", lambda: fa2(*of_fa2))


if __name__ == "__main__":
    main()
