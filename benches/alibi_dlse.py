#!/usr/bin/env python3
"""What a signed ALiBi slope and the gradient of the log-sum-exp cost: kernels of two builds, and one kernel with and without dLSE.

    kgen build --filter "hdim in (64, 128) and dtype == bf16 and target in (sm80, sm90) and (alibi or kind == bwd and plain)"
    python3 benches/alibi_dlse.py --library before=old/libkgen.so --library kgen=build/lib/libkgen.so --out alibi_dlse.json

Needs torch and a Hopper GPU. 16,384 tokens in all, 2048 / head dim heads, bf16, head dims 64 and 128, both masks. Slopes are
2^(-8 h / heads), the usual ones. Each ratio is the time of the first side over that of the other in alternating rounds, the
median over rounds: above 1 where the other is faster. The first side is the first library, and for dLSE the call without it.
"""

import argparse
import ctypes
import itertools
import json
import statistics

import torch

from fwd_vs_fa2 import card_state, side_by_side
from kgen_ctypes import FLAG_WINDOW, BwdParams, FwdParams, Library, bwd_params, fwd_params
from paired import geomean

# The kernels that take slopes; a causal mask is a window there.
SLOPES = ["window", "softcap", "alibi", "sinks"]
# Sizes that libraries of older versions know too.
FWD_SIZE, BWD_SIZE = FwdParams.cache_entries.offset, BwdParams.dlse.offset


def tensors(dim, seqlen, count):
    shape = (max(1, 16384 // seqlen), seqlen, 2048 // dim, dim)
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(count)]


def with_slopes(p, heads, causal):
    if causal:
        p.flags, p.features.window_left, p.features.window_right = FLAG_WINDOW, p.seqlen_k, 0
    slopes = torch.exp2(-8 * torch.arange(1, heads + 1, device="cuda") / heads).float()
    p.features.alibi_slopes = slopes.data_ptr()
    return slopes


def name_of(kind, dim, causal, features, target):
    return "_".join(["flash", kind, f"hdim{dim}", "bf16", *(["causal"] if causal else []), *features, target])


def forward(library, name, dim, seqlen, causal):
    if not library.holds(name):
        return None
    q, k, v = tensors(dim, seqlen, 3)
    o, lse = torch.empty_like(q), torch.empty(q.shape[0], q.shape[2], seqlen, device="cuda")
    p = fwd_params(q, k, v, o, lse, False)
    p.struct_size = FWD_SIZE
    kept = (q, k, v, o, lse, with_slopes(p, q.shape[2], causal))
    launch = library.launcher(name)
    return lambda kept=kept: launch(p)


def backward(library, name, dim, seqlen, causal, alibi=False, dlse=False):
    if not library.holds(name):
        return None
    q, k, v, o, dout, dq, dk, dv = tensors(dim, seqlen, 8)
    rows = (q.shape[0], q.shape[2], seqlen)
    lse = torch.full(rows, 8.0, device="cuda")  # about that of random inputs
    p = bwd_params(dict(q=q, k=k, v=v, o=o, dout=dout, dq=dq, dk=dk, dv=dv), lse, causal and not alibi)
    p.struct_size = BWD_SIZE
    kept = [q, k, v, o, dout, dq, dk, dv, lse]
    if alibi:
        kept.append(with_slopes(p, q.shape[2], causal))
    if dlse:
        gradient = torch.randn(rows, device="cuda")
        p.struct_size = ctypes.sizeof(BwdParams)
        p.dlse, p.dlse_batch_stride, p.dlse_head_stride = gradient.data_ptr(), gradient.stride(0), gradient.stride(1)
        kept.append(gradient)
    kept.append(library.workspace(name, p))
    launch = library.launcher(name)
    return lambda kept=kept: launch(p)


def compare(what, sides, rows, args):
    """Times `sides` ({label: function or None}) where all are there, and keeps ratios to the first."""
    if len(sides) < 2 or any(f is None for f in sides.values()):
        return
    ms = side_by_side(sides, args.rounds, args.round_ms)
    first = next(iter(ms))
    ratio = {side: statistics.median(a / b for a, b in zip(ms[first], t)) for side, t in ms.items() if side != first}
    rows.append({**what, "ms": ms, "ratio": ratio})


def table(rows):
    lines = ["| what | kernel | side | points | ratio |", "|---|---|---|---|---|"]
    key = lambda row: (row["what"], row["kernel"])
    for (what, kernel), found in itertools.groupby(sorted(rows, key=key), key):
        found = list(found)
        for side in found[0]["ratio"]:
            ratios = [row["ratio"][side] for row in found]
            lines.append(f"| {what} | {kernel} | {side} | {len(ratios)} | {geomean(ratios):.4f} ({min(ratios):.3f} to {max(ratios):.3f}) |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", action="append", required=True, metavar="NAME=PATH", help="the last one is asked for dLSE")
    parser.add_argument("--seqlen", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--round-ms", type=float, default=10)
    parser.add_argument("--out", default=None, help="JSON file")
    args = parser.parse_args()
    libraries = {name: Library(path) for name, path in (x.split("=", 1) for x in args.library)}
    newest = list(libraries.values())[-1]
    rows = []
    for dim, causal, seqlen in itertools.product((64, 128), (False, True), args.seqlen):
        shape = {"head_dim": dim, "causal": causal, "seqlen": seqlen}
        for kind, target in (("fwd", "sm90"), ("fwd", "sm80"), ("bwd", "sm90")):
            name = name_of(kind, dim, False, SLOPES, target)
            call = forward if kind == "fwd" else lambda *a: backward(*a, alibi=True)
            sides = {label: call(library, name, dim, seqlen, causal) for label, library in libraries.items()}
            compare({"what": "ALiBi", "kernel": f"{kind} {target}", **shape}, sides, rows, args)
        plain = name_of("bwd", dim, causal, [], "sm90")
        sides = {label: backward(library, plain, dim, seqlen, causal) for label, library in libraries.items()}
        compare({"what": "plain", "kernel": "bwd sm90", **shape}, sides, rows, args)
        sides = {"without": backward(newest, plain, dim, seqlen, causal), "with dLSE": backward(newest, plain, dim, seqlen, causal, dlse=True)}
        compare({"what": "dLSE", "kernel": "bwd sm90", **shape}, sides, rows, args)
    print(torch.cuda.get_device_name(), card_state(), "torch", torch.__version__)
    print(table(rows))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(rows, file)


if __name__ == "__main__":
    main()
