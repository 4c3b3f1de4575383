#!/usr/bin/env python3
"""Host time of a call on a GPU: the package's functions and the Torch ops, beside PyTorch's and vLLM's own.

    python3 benches/host_time_gpu.py                                     # kgen_attn, as installed, beside PyTorch
    python3 benches/host_time_gpu.py --op OUT/_vllm_fa3_C.abi3.so        # kgen's op; of vLLM's own in a run of its own
    python3 benches/host_time_gpu.py --op OUT/_vllm_fa2_C.abi3.so

Problems are so small that the GPU waits for the host. A round is as many calls as the launch queue takes without waiting,
then a synchronisation outside of the time. Microseconds of wall time for a call, the least of the rounds.
"""

import argparse
import time

import torch

CALLS, ROUNDS = 400, 15


def tell(what, call):
    for _ in range(20):
        call()
    best = float("inf")
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - begin)
        torch.cuda.synchronize()
    print(f"{what:56} {best / CALLS * 1e6:6.2f}", flush=True)


def package():
    """`kgen_attn`'s functions of 64 rows, 8 heads, head dim 64."""
    import torch.nn.functional as F

    import kgen_attn

    q, k, v = (torch.randn(1, 64, 8, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    packed = [t[0] for t in (q, k, v)]
    cu = torch.tensor([0, 64], dtype=torch.int32, device="cuda")
    across = [t.transpose(1, 2) for t in (q, k, v)]
    grad = [t.clone().requires_grad_() for t in (q, k, v)]
    tell("torch.empty_like", lambda: torch.empty_like(q))
    tell("kgen_attn.flash_attn_func", lambda: kgen_attn.flash_attn_func(q, k, v, causal=True))
    tell("kgen_attn.flash_attn_func, LSE", lambda: kgen_attn.flash_attn_func(q, k, v, causal=True, return_attn_probs=True))
    tell("kgen_attn.flash_attn_varlen_func", lambda: kgen_attn.flash_attn_varlen_func(*packed, cu, cu, 64, 64, causal=True))
    tell("kgen_attn.flash_attn_func, gradients recorded", lambda: kgen_attn.flash_attn_func(*grad, causal=True))
    forward = torch.ops.aten._flash_attention_forward
    tell("torch.ops.aten._flash_attention_forward", lambda: forward(q, k, v, None, None, 64, 64, 0.0, True, False))
    tell("scaled_dot_product_attention", lambda: F.scaled_dot_product_attention(*across, is_causal=True))
    with torch.no_grad():
        tell("scaled_dot_product_attention, no_grad", lambda: F.scaled_dot_product_attention(*across, is_causal=True))


def op(path):
    """The op that vLLM's engine calls for a decode step of 8 sequences."""
    torch.ops.load_library(path)
    batch, heads, heads_k, dim = 8, 8, 2, 64
    device = {"device": "cuda"}
    fused = torch.randn(batch, (heads + 2 * heads_k) * dim, **device).bfloat16()
    q = fused[:, : heads * dim].view(batch, heads, dim)
    cache = torch.randn(64, heads_k, 16, 2 * dim, **device).bfloat16().transpose(1, 2)
    k, v = cache[..., :dim], cache[..., dim:]
    out, cu = torch.empty(batch, heads, dim, dtype=torch.bfloat16, **device), torch.arange(batch + 1, dtype=torch.int32, **device)
    used, table = torch.full((batch,), 100, dtype=torch.int32, **device), torch.zeros(batch, 8, dtype=torch.int32, **device)
    if "fa2" in path:
        zeros = torch.zeros_like(cu)
        given = (q, k, v, out, cu, zeros, used, None, table, None, 1, 128, 0.0, 0.125, False, True, -1, -1, 0.0, False, 0, None)
        tell("_vllm_fa2_C.varlen_fwd", lambda: torch.ops._vllm_fa2_C.varlen_fwd(*given))
        return
    ones = torch.ones(1, **device).expand(batch, heads_k)
    metadata = torch.ops._vllm_fa3_C.get_scheduler_metadata
    # fmt: off
    described = (batch, 1, 128, heads, heads_k, dim, dim, torch.bfloat16, used, cu, None, None, None, None, 16, 0, True, -1, -1,
                 False, 0, None, 0)
    counts = metadata(*described)

    def arguments(splits):
        return (q, k, v, None, None, None, out, cu, None, None, None, used, 1, 128, table, None, None, None, None, None, ones,
                ones, ones, 0.125, True, -1, -1, 0.0, True, counts, splits, None, 0, None, 1, 0, None)
    # fmt: on

    for splits in (0, 1, 32):
        given = arguments(splits)
        tell(f"_vllm_fa3_C.fwd, num_splits {splits}", lambda: torch.ops._vllm_fa3_C.fwd(*given))
    tell("_vllm_fa3_C.get_scheduler_metadata", lambda: metadata(*described))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", metavar="FILE", help="a library of Torch ops in place of the package")
    args = parser.parse_args()
    print(torch.cuda.get_device_name())
    with torch.no_grad() if args.op else torch.enable_grad():
        op(args.op) if args.op else package()


if __name__ == "__main__":
    main()
