#!/usr/bin/env python3
"""Cost of a signed ALiBi slope and of the gradient of the log-sum-exp: kernels of two builds, and one kernel with and
without dLSE.

    kgen build --filter "hdim in (64, 128) and dtype == bf16 and target in (sm80, sm90) \\
        and (alibi or kind == bwd and plain)"
    python3 benches/alibi_dlse.py --library before=old/libkgen.so --library kgen=build/lib/libkgen.so \\
        --out alibi_dlse.jsonl

Needs torch and a Hopper GPU. 16,384 tokens in total, 2048 / head dim heads, bf16, head dims 64 and 128, both masks.
Slopes are 2^(-8 h / heads), the usual ones. Ratios are to the first library, and for dLSE to the call without it.
Only NaN is refused: `kgen check` verifies these kernels.
"""

import ctypes
import itertools
import sys

import torch

from lab import Bench, Contender, attention, parser
from lab.kgen import FLAG_WINDOW, BwdParams, FwdParams, bwd_params, fwd_params, put

SLOPES = ["window", "softcap", "alibi", "sinks"]  # the kernels that support slopes; their causal mask is a window
FWD_SIZE, BWD_SIZE = FwdParams.cache_entries.offset, BwdParams.dlse.offset  # also in older libraries


class Point:
    """The calls of one shape."""

    def __init__(self, dim, causal, seqlen):
        self.shape, self.causal = attention.dense_shape(dim, seqlen, causal), causal
        self.batch, self.heads, self.seqlen, self.dim = self.shape["batch"], self.shape["heads"], seqlen, dim

    def tensors(self, count):
        return [attention.normal(self.batch, self.seqlen, self.heads, self.dim) for _ in range(count)]

    def with_slopes(self, p):
        if self.causal:
            p.flags, p.features.window_left, p.features.window_right = FLAG_WINDOW, p.seqlen_k, 0
        p.slopes = torch.exp2(-8 * torch.arange(1, self.heads + 1, device="cuda") / self.heads).float()
        p.features.alibi_slopes = p.slopes.data_ptr()

    def forward(self, library, name):
        q, k, v, o = self.tensors(4)
        out = [o, torch.empty(self.batch, self.heads, self.seqlen, device="cuda")]
        p = fwd_params(q, k, v, *out, False)
        p.struct_size = FWD_SIZE
        self.with_slopes(p)
        return Contender(library.call(name, p), out=out, own=True)

    def backward(self, library, name, alibi=False, dlse=False):
        tensors = dict(zip(("q", "k", "v", "o", "dout", "dq", "dk", "dv"), self.tensors(8)))
        lse = torch.full((self.batch, self.heads, self.seqlen), 8.0, device="cuda")  # typical for random inputs
        p = bwd_params(tensors, lse, self.causal and not alibi)
        p.struct_size = ctypes.sizeof(BwdParams) if dlse else BWD_SIZE
        if alibi:
            self.with_slopes(p)
        if dlse:
            put(p, dlse=torch.randn_like(lse))
        return Contender(library.call(name, p), out=[tensors[name] for name in ("dq", "dk", "dv")], own=True)


def main():
    bench = Bench(args := parser(__doc__, rounds=8, round_ms=10, seqlen=[1024, 4096]).parse_args())
    newest = list(bench.libraries.values())[-1]
    shapes = itertools.product((64, 128), (False, True), args.seqlen)
    for shape in bench.selected(shapes, lambda shape: f"d{shape[0]} {attention.mask(shape[1])} s{shape[2]}"):
        point, (dim, causal, seqlen) = Point(*shape), shape
        plain = attention.kernel_name("bwd", dim, "bf16", causal, "sm90")
        sloped = lambda kind, target: attention.kernel_name(kind, dim, "bf16", False, target, SLOPES)
        sides = {
            f"ALiBi {kind} {target}": {label: (library, sloped(kind, target), kind, {})
                for label, library in bench.libraries.items()}
            for kind, target in (("fwd", "sm90"), ("fwd", "sm80"), ("bwd", "sm90"))
        }
        sides["ALiBi bwd sm90"] = {label: (*side[:3], {"alibi": True})
            for label, side in sides["ALiBi bwd sm90"].items()}
        sides["plain bwd sm90"] = {label: (library, plain, "bwd", {}) for label, library in bench.libraries.items()}
        sides["dLSE bwd sm90"] = {"without": (newest, plain, "bwd", {}),
            "with dLSE": (newest, plain, "bwd", {"dlse": True})}
        for what, sought in sides.items():
            # A ratio is meaningful only if all sides exist.
            if len(sought) > 1 and all(library.holds(name) for library, name, _, _ in sought.values()):
                calls = {"fwd": point.forward, "bwd": point.backward}
                contenders = {label: calls[kind](library, name, **given)
                    for label, (library, name, kind, given) in sought.items()}
                bench.point(
                    f"{what} d{dim} {attention.mask(causal)} s{seqlen}", point.shape, contenders,
                    judge=lambda _: 0.0, allowed=0.0, dtype="bf16", graph=False, details={"what": what})
    return bench.finish(group="what")


if __name__ == "__main__":
    sys.exit(main())
