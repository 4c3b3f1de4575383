"""Host time of the Python package's functions, without a GPU: a library whose functions return at once, and CPU tensors.

    PYTHONPATH=python python benches/python_host.py

What a launch costs in the library and the driver is not in it, nor the allocator of a GPU, which takes the place of the
CPU's. Times are of the processor, the least of several rounds, in microseconds.
"""

import os
import pathlib
import subprocess
import tempfile
import time
import timeit

STUB = """
#include "kgen.h"
int kgen_fwd(const kgen_fwd_params* p, cudaStream_t s) { return 0; }
int kgen_bwd(const kgen_bwd_params* p, cudaStream_t s) { return 0; }
int kgen_append_kv(const kgen_append_kv_params* p, cudaStream_t s) { return 0; }
int kgen_fwd_kvcache(const kgen_append_kv_params* a, const kgen_fwd_params* p, cudaStream_t s) { return 0; }
size_t kgen_fwd_workspace(const kgen_fwd_params* p) { return 0; }
size_t kgen_bwd_workspace(const kgen_bwd_params* p) { return 1024; }
const kgen_variant* kgen_variants(size_t* count) { *count = 0; return NULL; }
const char* kgen_last_error(void) { return ""; }
uint32_t kgen_abi_version(void) { return KGEN_ABI_VERSION; }
"""


def load_stub(folder):
    """Makes the stub the package's library."""
    header = pathlib.Path(__file__).resolve().parent.parent / "generated" / "include"
    source, stub = folder / "stub.c", folder / "libkgen.so"
    source.write_text(STUB)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", str(header), str(source), "-o", str(stub)], check=True)
    os.environ["KGEN_LIBRARY"] = str(stub)
    from kgen_attn.library import library

    library().device_type = "cpu"


def main():
    with tempfile.TemporaryDirectory() as folder:
        load_stub(pathlib.Path(folder))
        measure()


def measure():
    import torch

    from kgen_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

    torch.set_num_threads(1)

    def tensor(*shape, grad=False):
        return torch.randn(*shape, dtype=torch.bfloat16, requires_grad=grad)

    def integers(*values):
        return torch.tensor(values, dtype=torch.int32)

    def tell(what, call, number=10000):
        call()
        best = min(timeit.repeat(call, number=number, repeat=7, timer=time.process_time)) / number
        print(f"{what:40} {best * 1e6:6.1f}", flush=True)

    q, k, v, dout = (tensor(1, 16, 4, 64) for _ in range(4))
    leaves = [tensor(1, 16, 4, 64, grad=True) for _ in range(3)]
    packed, cu = tensor(16, 4, 64), integers(0, 8, 16)
    row, cache, lengths = tensor(2, 1, 4, 64), tensor(2, 64, 4, 64), integers(3, 5)
    scales = iter(range(1, 1 << 30))

    def backward():
        torch.autograd.grad(flash_attn_func(*leaves, causal=True), leaves, dout)

    tell("torch: new_empty of the output", lambda: q.new_empty((1, 16, 4, 64)))
    tell("flash_attn_func", lambda: flash_attn_func(q, k, v, causal=True))
    tell("flash_attn_func with LSE", lambda: flash_attn_func(q, k, v, causal=True, return_attn_probs=True))
    tell("flash_attn_func, first call of a shape", lambda: flash_attn_func(q, k, v, softmax_scale=1e-6 * next(scales)), 400)
    tell("flash_attn_func with gradients", lambda: flash_attn_func(*leaves, causal=True))
    tell("the same and autograd.grad", backward, 3000)
    tell("flash_attn_varlen_func", lambda: flash_attn_varlen_func(packed, packed, packed, cu, cu, 8, 8, causal=True))
    tell("flash_attn_with_kvcache", lambda: flash_attn_with_kvcache(row, cache, cache, cache_seqlens=lengths, causal=True))
    new = {"k": row, "v": row, "cache_seqlens": lengths, "causal": True}
    tell("flash_attn_with_kvcache, new keys", lambda: flash_attn_with_kvcache(row, cache, cache, **new))
    numbers = (0, 0, 0.125, True, -1, -1, 0, 0.0, 0, False)
    tell("torch.ops.kgen_attn.forward", lambda: torch.ops.kgen_attn.forward(q, k, v, *[None] * 13, *numbers))


if __name__ == "__main__":
    main()
