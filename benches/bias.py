#!/usr/bin/env python3
"""An additive bias, forward and backward with its gradient, beside FlexAttention and scaled_dot_product_attention.

    kgen build --variants benches/bias_grid.toml --all
    python3 benches/bias.py --out bias.jsonl

Needs torch and a GPU of compute capability 8.0 or more. Head dims 64 and 128, bf16, 16 heads, batch 4 times 1024 rows,
2 times 2048 or 1 times 4096. The bias is bf16: one for each batch entry and head, or one for all. FlexAttention is
compiled with the bias in its score function. `cudnn` and `efficient` are backends of scaled_dot_product_attention; its
flash backend takes no mask. Backward calls give dQ, dK, dV and dBias, in fp32 for kgen and in bf16 for its peers, which
is what each has; the peers' time is that of `torch.autograd.grad`. O is compared with float64 attention for the last
rows, gradients with those of the `math` backend in fp32.
"""

import itertools
import sys

import torch

from lab import Bench, Contender, attention, parser
from lab.kgen import bwd_params, fwd_params, put
from lab.peers import Absent

F = torch.nn.functional


def backend(name):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return lambda: sdpa_kernel({"efficient": SDPBackend.EFFICIENT_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
        "math": SDPBackend.MATH}[name])


def sdpa(name):
    pinned = backend(name)

    def attend(q, k, v, bias):
        with pinned():
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    return attend


def flex():
    try:
        from torch.nn.attention.flex_attention import flex_attention
    except ImportError as error:
        raise Absent("FlexAttention is absent: this torch is too old") from error
    torch._dynamo.config.recompile_limit = 1000  # beyond it, calls of further shapes are not compiled
    compiled = torch.compile(flex_attention, dynamic=False)

    def attend(q, k, v, bias):
        batches, heads = bias.shape[:2]
        return compiled(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[b % batches, h % heads, i, j])

    return attend


class Point:
    """Tensors of one shape: (batch, seqlen, heads, head_dim), the bias (batch or 1, heads or 1, seqlen, seqlen)."""

    def __init__(self, dim, seqlen, repeated):
        self.batch, self.heads, self.seqlen, self.dim = 4096 // seqlen, 16, seqlen, dim
        self.shape = {"batch": self.batch, "heads": 16, "heads_k": 16, "seqlen_q": seqlen, "seqlen_k": seqlen,
            "head_dim": dim, "causal": 0}
        normal = lambda: attention.normal(self.batch, seqlen, 16, dim)
        self.q, self.k, self.v, self.dout = normal(), normal(), normal(), normal()
        extents = (1, 1) if repeated else (self.batch, 16)
        self.bias = attention.normal(*extents, seqlen, seqlen)
        self.turned = [x.transpose(1, 2).contiguous() for x in (self.q, self.k, self.v)]
        with torch.enable_grad():
            exact = [x.float().requires_grad_() for x in (*self.turned, self.bias)]
            o = sdpa("math")(*exact)
            self.gradients = torch.autograd.grad(o, exact, self.dout.transpose(1, 2).float())
        self.o = o.detach().transpose(1, 2)

    def with_bias(self, p):
        put(p, bias=self.bias, bias_dtype=1)
        strides = [0 if extent == 1 else stride for extent, stride in zip(self.bias.shape, self.bias.stride())]
        p.bias_batch_stride, p.bias_head_stride, p.bias_row_stride, p.bias_column_stride = strides
        return p

    def forward(self, library, name):
        o, lse = torch.empty_like(self.q), torch.empty(self.batch, self.heads, self.seqlen, device="cuda")
        return Contender(library.call(name, self.with_bias(fwd_params(self.q, self.k, self.v, o, lse, False))), out=o, own=True)

    def backward(self, library, forward, name):
        o, lse = torch.empty_like(self.q), torch.empty(self.batch, self.heads, self.seqlen, device="cuda")
        library.call(forward, self.with_bias(fwd_params(self.q, self.k, self.v, o, lse, False)))()
        tensors = {"q": self.q, "k": self.k, "v": self.v, "o": o, "dout": self.dout}
        tensors |= {f"d{name}": torch.empty_like(tensors[name]) for name in "qkv"}
        p = self.with_bias(bwd_params(tensors, lse, False))
        dbias = torch.empty(self.bias.shape, device="cuda")
        put(p, dbias=dbias)
        strides = [0 if extent == 1 else stride for extent, stride in zip(dbias.shape, dbias.stride())]
        p.dbias_batch_stride, p.dbias_head_stride, p.dbias_row_stride, p.dbias_column_stride = strides
        out = [tensors["dq"], tensors["dk"], tensors["dv"], dbias]
        return Contender(library.call(name, p), out=out, own=True)

    def peer_forward(self, attend):
        return Contender(lambda: attend(*self.turned, self.bias).transpose(1, 2))

    def peer_backward(self, attend):
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in (*self.turned, self.bias)]
            o = attend(*inputs)
            dout = self.dout.transpose(1, 2).contiguous()

        def differentiate():
            *gradients, dbias = torch.autograd.grad(o, inputs, dout, retain_graph=True)
            return [x.transpose(1, 2) for x in gradients] + [dbias]

        return Contender(differentiate)

    def error_of_o(self, o):
        return attention.norm_error(o, self.o)

    def error_of_gradients(self, found):
        *gradients, dbias = self.gradients
        expected = [x.transpose(1, 2) for x in gradients] + [dbias]
        return max(attention.norm_error(x, y) for x, y in zip(found, expected))


def main():
    bench = Bench(args := parser(__doc__, rounds=7, round_ms=8, head_dim=[64, 128], seqlen=[1024, 2048, 4096]).parse_args())
    makers = {"flex": flex, "sdpa efficient": lambda: sdpa("efficient"), "sdpa cudnn": lambda: sdpa("cudnn")}
    peers = bench.peers(makers)
    cases = itertools.product(args.head_dim, args.seqlen, (False, True))
    for dim, seqlen, repeated in bench.selected(cases, lambda case: f"d{case[0]} s{case[1]} {'repeated' if case[2] else 'own'}"):
        point, what = Point(dim, seqlen, repeated), f"d{dim} s{seqlen} {'one bias' if repeated else 'a bias each'}"
        name = lambda kind, target: attention.kernel_name(kind, dim, "bf16", False, target, ["bias"])
        for label, make, judge, allowed, peer in (
            ("fwd", lambda library, target: point.forward(library, name("fwd", target)), point.error_of_o, 0.01, point.peer_forward),
            ("bwd", lambda library, target: point.backward(library, name("fwd", "sm80"), name("bwd", target)), point.error_of_gradients,
                0.02, point.peer_backward),
        ):
            contenders = {}
            for other, attend in peers.items():
                try:
                    contenders[other] = peer(attend)
                except RuntimeError as error:  # a backend that takes no such mask
                    bench.note(f"{label} {what}: {other}: {str(error).splitlines()[0][:120]}")
            for library_name, library in bench.libraries.items():
                for target in ("sm80", "sm90"):
                    if library.holds(name(label, target)):
                        contenders[f"{library_name} {target}"] = make(library, target)
            bench.point(f"{label} {what}", point.shape, contenders, judge=judge, allowed=allowed, dtype="bf16", graph=False,
                flops=attention.flops(point.shape, 2 if label == "fwd" else 5), details={"what": label, "repeated": repeated})
    return bench.finish(group="what")


if __name__ == "__main__":
    sys.exit(main())
