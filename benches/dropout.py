#!/usr/bin/env python3
"""Dropout of attention weights, forward and backward, beside FlashAttention-2 (PyTorch's flash backend).

    kgen build --filter 'hdim in (64, 128) and dtype == bf16 and target == sm80 and (dropout or plain)'
    python3 benches/dropout.py --out dropout.jsonl

Head dims 64 and 128, bf16, 16 heads, 4096 rows in total, p 0.1. `plain` is kgen's kernel without dropout. O is compared
with float64 attention of the last rows under the mask that `kgen_attn.dropout_mask` gives; gradients are not compared
(`kgen check` does that), nor is FlashAttention-2, whose mask is another one.
"""

import itertools
import sys

import torch

from lab import Bench, Contender, attention, parser
from lab.kgen import bwd_params, fwd_params, put
from lab.peers import Sdpa  # noqa: F401: its import puts kgen_attn on the path
from kgen_attn import dropout_mask

P = 0.1
ROWS = 64  # compared


class Point:
    """Tensors of one shape: (batch, seqlen, heads, head_dim)."""

    def __init__(self, dim, seqlen, causal):
        self.batch, self.heads, self.seqlen, self.dim, self.causal = 4096 // seqlen, 16, seqlen, dim, causal
        self.shape = {"batch": self.batch, "heads": 16, "heads_k": 16, "seqlen_q": seqlen, "seqlen_k": seqlen,
            "head_dim": dim, "causal": int(causal)}
        self.q, self.k, self.v, self.dout = (attention.normal(self.batch, seqlen, 16, dim) for _ in range(4))
        self.rng_state = torch.randint(0, 2**31, (2,), device="cuda")

    def forward(self, library, name, p):
        o, lse = torch.empty_like(self.q), torch.empty(self.batch, self.heads, self.seqlen, device="cuda")
        params = put(fwd_params(self.q, self.k, self.v, o, lse, self.causal), p_dropout=p, rng_state=self.rng_state)
        return Contender(library.call(name, params), out=o, own=True, judge=self.error if p else lambda _: 0.0), lse, o

    def backward(self, library, names, p):
        contender, lse, o = self.forward(library, names[0], p)
        contender.calls[0]()
        tensors = {"q": self.q, "k": self.k, "v": self.v, "o": o, "dout": self.dout}
        tensors |= {f"d{name}": torch.empty_like(tensors[name]) for name in "qkv"}
        params = put(bwd_params(tensors, lse, self.causal), p_dropout=p, rng_state=self.rng_state)
        out = [tensors["dq"], tensors["dk"], tensors["dv"]]
        return Contender(library.call(names[1], params), out=out, own=True)

    def peer(self, backward):
        turned = [x.transpose(1, 2).detach().requires_grad_(backward) for x in (self.q, self.k, self.v)]

        def attend():
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(*turned, dropout_p=P, is_causal=self.causal)

        if not backward:
            return Contender(attend, judge=lambda _: 0.0)
        with torch.enable_grad():
            o, dout = attend(), self.dout.transpose(1, 2)
        return Contender(lambda: torch.autograd.grad(o, turned, dout, retain_graph=True))

    def error(self, o):
        """Of the last rows of the last head of the last batch entry."""
        q, k, v = (x[-1, :, -1].double() for x in (self.q, self.k, self.v))
        s = q[-ROWS:] @ k.T / self.dim**0.5
        if self.causal:
            s = s.masked_fill(torch.ones_like(s).triu(self.seqlen - ROWS + 1).bool(), float("-inf"))
        kept = dropout_mask(self.rng_state, P, self.batch, self.heads, self.seqlen, self.seqlen)[-1, -1, -ROWS:]
        return attention.norm_error(o[-1, -ROWS:, -1], (s.softmax(-1) * kept) @ v / (1 - P))


def main():
    bench = Bench(args := parser(__doc__, rounds=7, round_ms=8, head_dim=[64, 128], seqlen=[1024, 4096]).parse_args())
    cases = itertools.product(args.head_dim, args.seqlen, (False, True))
    name_of = lambda case: f"d{case[0]} {attention.mask(case[2])} s{case[1]}"
    for case in bench.selected(cases, name_of):
        dim, seqlen, causal = case
        point = Point(*case)
        name = lambda kind, features: attention.kernel_name(kind, dim, "bf16", causal, "sm80", features)
        dropping, plain = ([name(kind, features) for kind in ("fwd", "bwd")] for features in (["dropout"], []))
        for label, kgen, factor in (
            ("fwd", lambda names, p: point.forward(bench.library, names[0], p)[0], 2),
            ("bwd", lambda names, p: point.backward(bench.library, names, p), 5),
        ):
            contenders = {"kgen": kgen(dropping, P), "plain": kgen(plain, 0.0), "fa2": point.peer(label == "bwd")}
            bench.point(
                f"{label} {name_of(case)}", point.shape, contenders, judge=lambda _: 0.0, allowed=0.02, dtype="bf16",
                graph=False, flops=attention.flops(point.shape, factor), details={"what": label})
    return bench.finish(group="what")


if __name__ == "__main__":
    sys.exit(main())
