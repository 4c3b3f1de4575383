"""Attention of whole sequences of one length: tensors (batch, seqlen, heads, head_dim), kgen's calls, and errors."""

import copy

from . import attention
from .bench import Contender
from .kgen import bwd_params, fwd_params

try:
    import torch
except ImportError:
    torch = None

# Relative error of O that is still correct attention. FP8 rounds P to three bits of mantissa: 0.03.
ALLOWED = {"bf16": 1e-2, "fp16": 1e-2, "fp8": 8e-2}


class Dense:
    """Q, K, V and dO of a shape, normal numbers times a factor. With `fp8`, Q, K and V are in E4M3 with a descale for
    each batch entry and head; `plain` are the tensors before."""

    def __init__(self, shape, dtype="bf16", backward=False, times=1.0, generator=None):
        self.shape, self.dtype, self.causal = shape, dtype, bool(shape["causal"])
        sizes = [(shape["batch"], shape[f"seqlen_{side}"], shape["heads"], shape["head_dim"]) for side in "qkkq"]
        self.plain, self.descales = [attention.normal(*size, dtype=dtype, times=times, generator=generator)
            for size in sizes[: 3 + backward]], None
        self.dout = self.plain.pop() if backward else None
        self.qkv, self.wide = self.plain, self.plain
        if dtype == "fp8":
            self.qkv, self.descales = zip(*map(attention.quantised, self.plain))
            last = zip((x[-1:, :, -1:] for x in self.qkv), (x[-1:, None, -1:, None] for x in self.descales))
            self.wide = [x.double() * descale.double() for x, descale in last]

    def with_tensors(self, q, k, v):
        """This point with other Q, K and V, such as caches of pages."""
        other = copy.copy(self)
        other.qkv = [q, k, v]
        return other

    def forward(self, library, name="kgen_fwd", change=lambda p: None, causal=None, fields={}, **given):
        """A contender: a launcher of a library that writes O and the LSE; `change` completes its parameters."""
        (batch, rows, heads, _), causal = self.plain[0].shape, self.causal if causal is None else causal
        out = [torch.empty_like(self.plain[0]), torch.empty(batch, heads, rows, device="cuda")]
        p = fwd_params(*self.qkv, *out, causal, descales=self.descales, **fields)
        change(p)
        return Contender(library.call(name, p), out=out, own=True, **given)

    def backward(self, library, name, o, lse, change=lambda p: [], causal=None, deterministic=False, **given):
        """A contender that writes dQ, dK and dV, and the outputs that `change` adds and returns."""
        tensors = dict(zip(("q", "k", "v", "o", "dout"), (*self.qkv, o, self.dout)))
        gradients = {f"d{side}": torch.empty_like(tensors[side]) for side in "qkv"}
        p = bwd_params(tensors | gradients, lse, self.causal if causal is None else causal, deterministic)
        return Contender(library.call(name, p), out=[*gradients.values(), *change(p)], own=True, **given)

    def of_kind(self, kind, library, name, change, **given):
        """The contender `fwd`, or `bwd` on O and the LSE of a call of `fwd`; `name` gives the launcher of a kind."""
        made = self.forward(library, name("fwd"), change, **given)
        if kind == "fwd":
            return made
        made.calls[0]()
        return self.backward(library, name("bwd"), *made.out, change)

    def peer(self, attend, **given):
        descales = {"descales": self.descales} if self.descales else {}
        return Contender(attend(*self.qkv, causal=self.causal, **descales), **given)

    def error(self, out, inputs=None, rows=128):
        """`norm_error` of O's last rows of the last head of the last batch entry; NaN if any element of O is NaN."""
        if out[0].isnan().any():
            return float("nan")
        q, k, v = (x[-1:, :, -1] for x in inputs or self.wide)
        expected = attention.exact(q[:, -rows:], k, v, causal=self.causal)[0]
        return attention.norm_error(out[0][-1:, -rows:, -1], expected)

    def time(self, bench, case, contenders, **given):
        """A point whose FLOPs are those of the forward pass; or with `products` 5, of the backward pass."""
        products = given.pop("products", 2)
        return bench.point(case, self.shape, contenders, **{
            "judge": self.error, "allowed": ALLOWED[self.dtype], "dtype": self.dtype,
            "flops": attention.flops(self.shape, products),
            "formula": f"{2 * products} B H Sq Sk D, halved for causal", **given})
