#!/usr/bin/env python3
"""Host time of calls from Python: the package's functions, and the Torch ops of docs/vllm.md.

    PYTHONPATH=python python3 benches/host_time.py package                   # without a GPU
    python3 benches/host_time.py ops                                         # without a GPU
    python3 benches/host_time.py gpu                                         # kgen_attn, as installed, beside PyTorch
    python3 benches/host_time.py gpu \\
        --op OUT/_vllm_fa3_C.abi3.so            # kgen's op; vLLM's own in a separate run
    python3 benches/host_time.py gpu --op OUT/_vllm_fa2_C.abi3.so

`package` and `ops` call a library whose functions return at once, with tensors in host memory: the cost of a launch
in the library and the driver is excluded, and the CPU's allocator replaces the GPU's. Times are CPU times. An op
without a body, with the same schema, measures the cost of calling any such op from Python. `gpu` times problems so
small that the GPU waits for the host. A round is as many calls as the launch queue accepts without blocking, then an
untimed synchronisation; times are wall times. The fastest round of a call counts.
"""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from lab import Bench, parser
from lab.record import ROOT

STUB = """
#include "kgen.h"
int kgen_fwd(const kgen_fwd_params* p, cudaStream_t s) { return 0; }
int kgen_bwd(const kgen_bwd_params* p, cudaStream_t s) { return 0; }
int kgen_fwd_metadata(const kgen_fwd_params* p, cudaStream_t s) { return 0; }
int kgen_explain_choice(const kgen_fwd_params* p, kgen_choice* choice) { return KGEN_ERROR_NO_VARIANT; }
int kgen_append_kv(const kgen_append_kv_params* p, cudaStream_t s) { return 0; }
int kgen_fwd_kvcache(const kgen_append_kv_params* a, const kgen_fwd_params* p, cudaStream_t s) { return 0; }
size_t kgen_fwd_workspace(const kgen_fwd_params* p) { return p->num_splits > 1 ? 65536 : 0; }
size_t kgen_bwd_workspace(const kgen_bwd_params* p) { return 1024; }
const kgen_variant* kgen_variants(size_t* count) { *count = 0; return NULL; }
const char* kgen_last_error(void) { return ""; }
uint32_t kgen_abi_version(void) { return KGEN_ABI_VERSION; }
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
    const int32_t cpu = aoti_torch_device_type_cpu();
    aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.begin(), strides, type, cpu, index_, &made);
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
static std::vector<Tensor> fwd(Tensor q, const Tensor& k, const Tensor& v, T, T, T, T, T, T, T, T, T,
    std::optional<int64_t>, std::optional<int64_t>, T, T, T, T, T, T, T, T, T, double, bool, int64_t, int64_t, double,
    bool, T, int64_t, std::optional<bool>, int64_t, T, int64_t, int64_t, T) { return {}; }
STABLE_TORCH_LIBRARY(empty_op, ops) { ops.def("fwd@SCHEMA@"); }
STABLE_TORCH_LIBRARY_IMPL(empty_op, CPU, ops) { ops.impl("fwd", TORCH_BOX(&fwd)); }
"""


def stub(folder, name, more=""):
    """Compiles the library whose functions return at once."""
    (folder / "stub.c").write_text(STUB + more)
    include = ROOT / "generated" / "include"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", include, folder / "stub.c", "-o", folder / name], check=True)
    return folder / name


def functions(bench, device, tell):
    """`kgen_attn`'s functions on 64 rows, 8 heads, head dim 64, and PyTorch's times for similar calls."""
    import torch
    from kgen_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

    draw = lambda *shape: torch.randn(*shape, dtype=torch.bfloat16, device=device)
    integers = lambda *values: torch.tensor(values, dtype=torch.int32, device=device)
    q, k, v, dout = (draw(1, 64, 8, 64) for _ in range(4))
    leaves, packed, cu = [draw(1, 64, 8, 64).requires_grad_() for _ in range(3)], draw(64, 8, 64), integers(0, 64)
    row, cache, lengths, scales = draw(2, 1, 8, 64), draw(2, 64, 8, 64), integers(3, 5), iter(range(1, 1 << 30))
    recorded, new = partial(flash_attn_func, *leaves, causal=True), {"k": row, "v": row, "cache_seqlens": lengths,
        "causal": True}
    tell("torch: empty_like of the output", lambda: torch.empty_like(q))
    tell("flash_attn_func", lambda: flash_attn_func(q, k, v, causal=True))
    tell("flash_attn_func with LSE", lambda: flash_attn_func(q, k, v, causal=True, return_attn_probs=True))
    if device == "cpu":
        tell("flash_attn_func, first call of a shape",
            lambda: flash_attn_func(q, k, v, softmax_scale=1e-6 * next(scales)), 400)
    tell("flash_attn_varlen_func", lambda: flash_attn_varlen_func(packed, packed, packed, cu, cu, 64, 64, causal=True))
    with torch.enable_grad():
        tell("flash_attn_func with gradients", recorded)
        if device == "cpu":
            tell("the same and autograd.grad", lambda: torch.autograd.grad(recorded(), leaves, dout), 3000)
    if device == "cpu":
        tell("flash_attn_with_kvcache",
            lambda: flash_attn_with_kvcache(row, cache, cache, cache_seqlens=lengths, causal=True))
        tell("flash_attn_with_kvcache, new keys", lambda: flash_attn_with_kvcache(row, cache, cache, **new))
        numbers = (0, 0, 0.125, True, -1, -1, 0, 0.0, 0, False)
        return tell("torch.ops.kgen_attn.forward", lambda: torch.ops.kgen_attn.forward(q, k, v, *[None] * 14, *numbers))
    across, aten = [x.transpose(1, 2) for x in (q, k, v)], torch.ops.aten._flash_attention_forward
    attention = partial(torch.nn.functional.scaled_dot_product_attention, *across, is_causal=True)
    tell("torch.ops.aten._flash_attention_forward", lambda: aten(q, k, v, None, None, 64, 64, 0.0, True, False),
        contender="torch")
    tell("scaled_dot_product_attention, no_grad", attention, contender="torch")
    with torch.enable_grad():
        tell("scaled_dot_product_attention", attention, contender="torch")


def of_engine(device):
    """Arguments of the ops for a decode step of 8 sequences, as vLLM's engine passes them: for FA3's `fwd` by the
    number of splits, for its metadata, and for FA2's `varlen_fwd`."""
    import torch

    batch, heads, heads_k, dim, on = 8, 8, 2, 64, {"device": device}
    fused = torch.randn(batch, (heads + 2 * heads_k) * dim, **on).bfloat16()
    q = fused[:, : heads * dim].view(batch, heads, dim)
    cache = torch.randn(64, heads_k, 16, 2 * dim, **on).bfloat16().transpose(1, 2)
    k, v = cache[..., :dim], cache[..., dim:]
    out = torch.empty(batch, heads, dim, dtype=torch.bfloat16, **on)
    cu = torch.arange(batch + 1, dtype=torch.int32, **on)
    used, table = torch.full((batch,), 100, dtype=torch.int32, **on), torch.zeros(batch, 8, dtype=torch.int32, **on)
    ones, no = torch.ones(1, **on).expand(batch, heads_k), (None,)
    sizes = (batch, 1, 128, heads, heads_k, dim, dim, torch.bfloat16)
    described = lambda splits: (*sizes, used, cu, *no * 4, 16, 0, True, -1, -1, False, splits, None, 0)

    def fa3(splits, counts):
        tensors = (q, k, v, *no * 3, out, cu, *no * 3, used, 1, 128, table, *no * 5, ones, ones, ones)
        return *tensors, 0.125, True, -1, -1, 0.0, True, counts, splits, None, 0, None, 1, 0, None

    rest = (None, 1, 128, 0.0, 0.125, False, True, -1, -1, 0.0, False, 0, None)
    return fa3, described, (q, k, v, out, cu, torch.zeros_like(cu), used, None, table, *rest)


def vllm_ops(device, tell, which, splits=(0, 32), empty=None):
    """The calls of the loaded ops: `fa3`, `fa2`."""
    import torch

    fa3, described, of_fa2 = of_engine(device)
    if "fa3" in which:
        op, metadata = torch.ops._vllm_fa3_C.fwd, torch.ops._vllm_fa3_C.get_scheduler_metadata
        of = lambda count: fa3(count, metadata(*described(count)))
        if empty:
            given = of(0)
            tell("an op without a body, schema of fwd", lambda: empty(*given), contender="torch")
            tell("the same, its overload called", lambda: empty.default(*given), contender="torch")
            tell("_vllm_fa3_C.fwd, its overload called", lambda: op.default(*given))
        for count in splits:
            tell(f"_vllm_fa3_C.fwd, num_splits {count}", partial(op, *of(count)))
        tell("_vllm_fa3_C.get_scheduler_metadata", lambda: metadata(*described(0)))
    if "fa2" in which:
        tell("_vllm_fa2_C.varlen_fwd", lambda: torch.ops._vllm_fa2_C.varlen_fwd(*of_fa2))


def ops_of_host(folder):
    """Builds and loads the ops, with a stub as their library, and an op without a body, which is returned."""
    import torch

    (folder / "device.cpp").write_text(DEVICE)
    out, include, of_torch = folder / "out", ROOT / "generated" / "include", Path(torch.__file__).parent
    out.mkdir()
    stub(folder, "libkgen_vllm.so", "void kgen_emulator_tensor(void) {}\n").rename(out / "libkgen_vllm.so")
    environment = {**os.environ, "KEY": "CPU", "DEVICE": str(folder / "device.cpp"), "PYTHON": sys.executable,
        "INCLUDE": str(include)}
    subprocess.run([ROOT / "scripts" / "torch_ops.sh", out], env=environment, check=True, stdout=subprocess.DEVNULL)
    for name in ("_vllm_fa2_C", "_vllm_fa3_C"):
        torch.ops.load_library(str(out / f"{name}.abi3.so"))
    schema = str(torch.ops._vllm_fa3_C.fwd.default._schema).partition("fwd")[2]
    schema = schema.replace("$0! -> ", "a!").replace("$1! -> ", "b!")
    (folder / "empty.cpp").write_text(EMPTY.replace("@SCHEMA@", schema))
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-DTORCH_TARGET_VERSION=0x020a000000000000", "-isystem",
        of_torch / "include"]
    libraries = ["-L", of_torch / "lib", "-ltorch_cpu", "-lc10"]
    subprocess.run(["c++", *flags, folder / "empty.cpp", "-o", folder / "empty.so", *libraries], check=True)
    torch.ops.load_library(str(folder / "empty.so"))
    return torch.ops.empty_op.fwd


def main():
    arguments = parser(__doc__, library=None)
    arguments.add_argument("mode", choices=["package", "ops", "gpu"])
    arguments.add_argument("--op", metavar="FILE", help="of gpu: a library of Torch ops in place of the package")
    args = arguments.parse_args()
    args.gpu = args.mode == "gpu"
    import torch

    torch.set_num_threads(1)
    bench = Bench(args)
    sys.path.insert(0, str(ROOT / "python"))  # after an installed package, and before it only with PYTHONPATH
    with tempfile.TemporaryDirectory() as folder:
        if args.mode == "gpu":
            tell = partial(bench.host, number=400, rounds=15, timer=time.perf_counter, settle=torch.cuda.synchronize)
            on_gpu = lambda what, call, number=400, **more: tell(what, call, **more)
            if args.op:
                torch.ops.load_library(args.op)
                vllm_ops("cuda", on_gpu, "fa2" if "fa2" in args.op else "fa3", splits=(0, 1, 32))
            else:
                functions(bench, "cuda", on_gpu)
        elif args.mode == "ops":
            vllm_ops("cpu", bench.host, ("fa2", "fa3"), empty=ops_of_host(Path(folder)))
        else:
            os.environ["KGEN_LIBRARY"] = str(stub(Path(folder), "libkgen.so"))
            from kgen_attn.library import library

            library().device_type = "cpu"
            functions(bench, "cpu", bench.host)
    return bench.finish(tables=False)


if __name__ == "__main__":
    sys.exit(main())
