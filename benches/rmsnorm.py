#!/usr/bin/env python3
"""RMS normalisation with a residual, compared with PyTorch, torch.compile and a copy.

    kgen build --kind rmsnorm --target sm90 --build-dir build-rmsnorm
    python3 benches/rmsnorm.py --library build-rmsnorm/lib/libkgen.so --out rmsnorm.jsonl

Needs torch. Graphs of calls rotate through tensors that exceed twice the L2 in total. `torch` is `torch.add` and
`torch.nn.functional.rms_norm`, `compile` the same under torch.compile, `copy` copies of two matrices, the number of
bytes that kgen reads and writes without `weight`: ratios are their times / kgen's.
"""

import sys

import torch
from torch.nn.functional import rms_norm

from lab import Bench, Contender, attention, parser, timing
from lab.kgen import rmsnorm_params
from lab.peers import compiled

EPS = 1e-6
# name, dtype, rows, columns: sizes from models, rows that are read twice, and rows that are not multiples of pieces
SIZES = [(16384, 1024), (4096, 4096), (8192, 8192), (1024, 65536), (16384, 1000), (4096, 4097)]
CASES = [(f"{dtype} {rows}x{columns}", dtype, rows, columns) for dtype in ("bf16", "fp16") for rows, columns in SIZES]


class Tensors:
    """Inputs and outputs of one call."""

    def __init__(self, dtype, rows, columns):
        self.x, self.residual = (attention.normal(rows, columns, dtype=dtype) for _ in range(2))
        self.weight = attention.normal(columns, dtype=dtype)
        self.out, self.residual_out = (torch.full_like(self.x, float("nan")) for _ in range(2))
        self.copies = [torch.empty_like(self.x) for _ in range(2)]  # outputs of the peers

    def kgen(self, library):
        return library.call("kgen_rmsnorm",
            rmsnorm_params(self.x, self.residual, self.weight, self.out, self.residual_out, EPS))

    def copy(self):
        self.copies[0].copy_(self.x), self.copies[1].copy_(self.residual)

    def in_torch(self):
        torch.add(self.x, self.residual, out=self.copies[0])
        return rms_norm(self.copies[0], self.weight.shape, self.weight, EPS)

    def judge(self, _):
        """The largest error of `out` against float64, relative to the element or to 0.001; NaN if a sum is wrong."""
        h = self.x + self.residual
        wide = h.double()
        expected = wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + EPS) * self.weight.double()
        worst = ((self.out.double() - expected).abs() / expected.abs().clamp(min=0.001)).max().item()
        return worst if torch.equal(h, self.residual_out) else float("nan")


def added(x, residual, weight):
    h = x + residual
    return rms_norm(h, weight.shape, weight, EPS), h


def main():
    bench = Bench(parser(__doc__).parse_args())
    for name, dtype, rows, columns in bench.selected(CASES):
        moved = 8 * rows * columns
        sets = [Tensors(dtype, rows, columns) for _ in range(1 + timing.copies_for(moved, 2, most=400))]
        last, turn = sets[-1], compiled(added)
        contenders = {
            label: Contender([t.kgen(library) for t in sets], out=[last.out, last.residual_out], own=True,
                judge=last.judge)
            for label, library in bench.libraries.items()
        }
        contenders["torch"] = Contender([t.in_torch for t in sets], judge=lambda _: 0.0)
        contenders["compile"] = Contender([lambda t=t: turn(t.x, t.residual, t.weight) for t in sets],
            judge=lambda _: 0.0)
        contenders["copy"] = Contender([t.copy for t in sets], judge=lambda _: 0.0)
        bench.point(
            name, {"rows": rows, "columns": columns}, contenders, judge=None,
            allowed=2**-8 if dtype == "bf16" else 2**-10, dtype=dtype, layout="matrix", moved=moved, l2="cold",
            graph=True, formula="four matrices, without weight")
        del sets, last, contenders
    return bench.finish(group="columns")


if __name__ == "__main__":
    sys.exit(main())
