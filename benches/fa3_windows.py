#!/usr/bin/env python3
"""Errors of kgen's and FlashAttention-3's windows against float32, all rows of two heads.

    python3 benches/fa3_windows.py build-window/lib/libkgen.so _vllm_fa3_C.abi3.so

The library holds `fwd` of sm90 with windows, bf16, head dims 64, 128 and 256; FA3 is the library in vLLM's wheel.
"""

import math
import sys

import torch

from features import Fa3, kgen_call
from kgen_ctypes import Library

HEADS = 2
BLOCK = 2048  # rows of the reference at once
CASES = [(4096, (1024, 0), True), (16384, (1024, 0), True), (4096, (512, 512), False), (16384, (512, 512), False), (4096, (1000, 0), True)]


def expected(q, k, v, window):
    """O in float32."""
    seqlen, dim = q.shape[1], q.shape[3]
    o = torch.empty(q.shape, device="cuda")
    positions = torch.arange(seqlen, device="cuda")
    for first in range(0, seqlen, BLOCK):
        rows = positions[first : first + BLOCK, None]
        seen = (positions >= rows - window[0]) & (positions <= rows + window[1])
        for head in range(HEADS):
            s = q[0, first : first + BLOCK, head].float() @ k[0, :, head].float().T * dim**-0.5
            o[0, first : first + BLOCK, head] = torch.softmax(s.masked_fill(~seen, -math.inf), -1) @ v[0, :, head].float()
    return o


def main():
    library, fa3 = Library(sys.argv[1]), Fa3(sys.argv[2])
    for dim in (64, 128, 256):
        for seqlen, window, causal in CASES:
            torch.manual_seed(1)
            q, k, v = (torch.randn(1, seqlen, HEADS, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
            o, lse = torch.full_like(q, math.nan), torch.empty(1, HEADS, seqlen, device="cuda")
            kgen_call(library, q, k, v, o, lse, causal, window, 0.0, None)()
            reference = expected(q, k, v, window)
            for name, x in (("kgen", o), ("fa3", fa3.call(q, k, v, causal, window, 0.0, None)())):
                far = (x.float() - reference).abs()
                print(f"d{dim} s{seqlen} window {window} {name}: {far.max().item():.4f} in row {far.amax((0, 2, 3)).argmax().item()}", flush=True)


if __name__ == "__main__":
    main()
