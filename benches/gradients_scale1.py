#!/usr/bin/env python3
"""Gradients at softmax scale 1, which makes rows of P nearly one-hot: compares kgen's rounding errors with those of
other implementations.

    kgen build --filter "hdim in (64, 128) and dtype in (bf16, fp16) and kind in (fwd, bwd) and target == sm90"
    python3 benches/gradients_scale1.py --library build/lib/libkgen.so --out gradients.jsonl [--calls 400]

Random calls, head dims 64 and 128, with and without causal mask, at scale 1 and 1/sqrt(head dim). Errors are relative
to the largest gradient, against float64. In each call:

  kgen, FA2           backward passes of kgen and of FlashAttention-2 (torch's), each with the O and LSE of its own
                      forward pass
  naive               matmul and softmax in the dtype; and the same with delta from the O in the dtype
  ..., O rounded      the backward pass given the float64 O, rounded once
  ..., exact delta    the backward pass given an O in the dtype that is not O at all, but whose product with dO is
                      delta to 30 bits: delta is all that a backward pass takes from O. If the errors go away with it,
                      they were those of O's rounding.
  alone: …            float64 with P, dP, dS, or O rounded and nothing else

A row is one call, its errors of dQ, dK and dV in the details. Exit code 1 if a call breaks FlashAttention's rule
(`keeps_the_rule`). On a library for the emulator it runs in host memory, without FA2.
"""

import math
import os
import random
import sys
from pathlib import Path

import torch

from lab import Bench, parser, stats
from lab.peers import fa2_backward

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

LIMITS = {torch.float16: 0.005, torch.bfloat16: 0.03}  # relative; external tests called larger errors large
ALONE = {"P of dV and dS": "p", "P and O of the forward pass": "of", "O in delta": "o", "dP": "dp", "dS": "ds"}


def probabilities(s, causal):
    """Softmax of (heads, rows, keys); with a causal mask the last row is at the last key."""
    rows, keys = s.shape[-2:]
    hidden = torch.ones(rows, keys, device=s.device, dtype=torch.bool).triu(keys - rows + 1)
    return torch.softmax(s.masked_fill(hidden, -math.inf) if causal else s, -1)


def in_float64(q, k, v, dout, scale, causal, dtype=None, rounding=""):
    """dQ, dK, dV, O and delta of (heads, rows, head_dim) in float64, except for the quantities named by `rounding`."""
    rounded = lambda x, *names: x.to(dtype).double() if rounding in names else x
    p = probabilities(q @ k.mT * scale, causal)
    o = rounded(rounded(p, "of") @ v, "o", "of")
    dp = rounded(dout @ v.mT, "dp")
    delta = (dout * o).sum(-1, keepdim=True)
    of_v = rounded(p, "p", "of")
    ds = rounded(rounded(p, "p") * (dp - delta), "ds")
    return [ds @ k * scale, ds.mT @ q * scale, of_v.mT @ dout], o, delta


def naively(q, k, v, dout, scale, causal, o_for_delta=None):
    """The same in the dtype of the inputs, each intermediate rounded; delta from P and dP, or from an O."""
    p = probabilities((q @ k.mT).float() * scale, causal).to(q.dtype)
    dp = (dout @ v.mT).float()
    products = p.float() * dp if o_for_delta is None else dout.float() * o_for_delta.float()
    ds = (p.float() * (dp - products.sum(-1, keepdim=True)) * scale).to(q.dtype)
    return [ds @ k, ds.mT @ q, p.mT @ dout], p @ v


def stand_in(delta, dout):
    """An O in dO's dtype for which the sum of O dO is `delta`: four elements per row, each correcting the rest of the
    previous ones."""
    o, left = torch.zeros_like(dout), delta.squeeze(-1).clone()
    places = dout.double().abs().topk(4, dim=-1).indices
    for i in range(4):
        at = places[..., i : i + 1]
        factor = dout.gather(-1, at).squeeze(-1).double()
        element = torch.where(factor == 0, 0.0, left / torch.where(factor == 0, 1.0, factor)).to(dout.dtype)
        o.scatter_(-1, at, element.unsqueeze(-1))
        left = left - element.double() * factor
    return o


def relative(gradients, exact):
    """Errors of dQ, dK, dV, relative to the largest; for zero gradients (one key: dQ = dK = 0) 0 below 1e-5."""
    errors = [((a.double() - b).abs().max().item(), b.abs().max().item()) for a, b in zip(gradients, exact)]
    return [math.inf if error != error else 0.0 if largest < 1e-5 else error / largest for error, largest in errors]


def of_fp32_sums(q, k, v, dout, scale, exact):
    """Errors of dQ, dK and dV due to fp32 sums alone, as in kgen's check (src/family/attention/oracle/gradients.rs):
    delta cancels dP only to 2^-20 of the longest rows of dO and V, and K or Q propagate that. Relative to the largest
    gradient."""
    longest, largest = [t.norm(dim=-1).max().item() for t in (dout, v)], [max(1e-30, t.abs().max().item())
        for t in exact]
    of_ds = 2.0**-20 * scale * longest[0] * longest[1]
    return [of_ds * k.abs().max().item() / largest[0], of_ds * q.abs().max().item() * q.shape[1] / largest[1], 0.0]


class Kgen:
    """The package's two passes on (batch, rows, heads, head_dim); the backward pass accepts any O and LSE."""

    def __init__(self, path):
        os.environ["KGEN_LIBRARY"] = str(Path(path).resolve())
        from kgen_attn import backward, forward, library

        self.is_emulated = library.library().emulator is not None
        self._forward, self._backward = forward.forward, backward.backward

    def forward(self, q, k, v, causal, scale):
        return self._forward(q, k, v, (None,) * 13, (0, 0, scale, causal, -1, -1, 0, 0.0, 0))

    def backward(self, dout, q, k, v, o, lse, causal, scale):
        return self._backward(dout, q, k, v, o, lse, *(None,) * 7, 0, 0, scale, causal, -1, -1, 0, 0.0, False)[:3]


def one_call(kgen, draw, dtype, head_dim, scale):
    """Sizes, {side: errors of dQ, dK and dV}, and the errors of fp32 sums, for a random call."""
    pick = lambda full, emulated: draw.choice(emulated if kgen.is_emulated else full)
    causal = draw.random() < 0.5
    rows = pick([1, 2, 5, 17, 40, 64, 100, 130, 257], [1, 5, 17, 40])
    keys = rows if causal else pick([2, 3, 17, 33, 64, 100, 129, 300], [2, 3, 17, 33])
    heads, generator = pick([1, 2, 4], [1]), torch.Generator().manual_seed(draw.randrange(2**31))
    drawn = lambda n: torch.randn((1, n, heads, head_dim),
        generator=generator).to("cpu" if kgen.is_emulated else "cuda", dtype)
    q, k, v, dout = map(drawn, (rows, keys, keys, rows))
    by_head = [t[0].transpose(0, 1).contiguous() for t in (q, k, v, dout)]  # (heads, rows, head_dim)
    wide = [t.double() for t in by_head]
    exact, o64, delta = in_float64(*wide, scale, causal)
    back = lambda t: t.transpose(0, 1).unsqueeze(0).contiguous()
    judge = lambda gradients: relative([t[0].transpose(0, 1) for t in gradients], exact)
    given = {"": None, ", O rounded": back(o64.to(dtype)), ", exact delta": back(stand_in(delta, by_head[3]))}
    o, lse = kgen.forward(q, k, v, causal, scale)
    errors = {f"kgen{name}": judge(kgen.backward(dout, q, k, v, o if x is None else x, lse, causal, scale))
        for name, x in given.items()}
    if not kgen.is_emulated:
        o2, _, backward = fa2_backward(q, k, v, causal, scale)
        errors |= {f"FA2{name}": judge(backward(dout, o2 if x is None else x)) for name, x in given.items()}
    gradients, naive_o = naively(*by_head, scale, causal)
    errors["naive"] = relative(gradients, exact)
    errors["naive, delta from O"] = relative(naively(*by_head, scale, causal, naive_o)[0], exact)
    for name, rounding in ALONE.items():
        errors[f"alone: {name}"] = relative(in_float64(*wide, scale, causal, dtype, rounding)[0], exact)
    shape = {"batch": 1, "heads": heads, "heads_k": heads, "seqlen_q": rows, "seqlen_k": keys, "head_dim": head_dim,
        "causal": int(causal)}
    return shape, errors, of_fp32_sums(*wide, scale, exact)


def keeps_the_rule(errors, of_sums, dtype):
    """FlashAttention's rule for dQ, dK and dV: three times the worst error of the peers with unavoidable rounding, two
    roundings of the largest gradient, and the errors of fp32 sums. For a row or two the error of delta is a single
    sample; hence more than one peer. With an exact delta, the peers' errors of delta do not count either."""
    peers = ["naive", "naive, delta from O", "FA2", "alone: O in delta", "alone: P and O of the forward pass"]
    of_exact = ["alone: P of dV and dS", "alone: dS", "FA2, exact delta"]
    kept = []
    for own, others in (("kgen", peers), ("kgen, O rounded", peers), ("kgen, exact delta", of_exact)):
        for i in range(3):
            slack = torch.finfo(dtype).eps + of_sums[i]  # eps is twice the unit roundoff
            kept.append(errors[own][i] <= 3 * max(errors[name][i] for name in others if name in errors) + slack)
    return kept


def table(calls, dtype):
    """Lines: for each side the median, 99th percentile and maximum of its errors, and the number of large ones."""
    lines = [f"{'':34}" + "".join(f"{f'{g} median':>11}{'99 %':>9}{'most':>9}{'large':>7}" for g in ("dQ", "dK", "dV"))]
    for name in calls[0]:
        cells = ""
        for i in range(3):
            values = [errors[name][i] for errors in calls]
            shares = [stats.percentile(values, 0.5), stats.percentile(values, 0.99), max(values)]
            cells += "{:11.1e}{:9.1e}{:9.1e}{:7d}".format(*shares, sum(value > LIMITS[dtype] for value in values))
        lines.append(f"{name:34}" + cells)
    for peer in ("FA2", "naive", "naive, delta from O"):
        if peer in calls[0]:
            ratios = [own / other for errors in calls for own, other in zip(errors["kgen"], errors[peer])
                if other > 0 and own > 0]
            lines.append(f"  kgen to {peer}: geometric mean {stats.geomean(ratios):.3f}, most {max(ratios):.2f}")
    return lines


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--calls", type=int, default=400, help="of each dtype and scale")
    arguments.add_argument("--head-dims", default="64,128")
    args = arguments.parse_args()
    kgen = Kgen((args.library or [args.default_library])[0])
    args.gpu = not kgen.is_emulated
    if args.gpu and not torch.cuda.is_available():
        sys.exit("gradients_scale1.py: there is no GPU, and the library is not the emulator's")
    bench, draw, dims = Bench(args), random.Random(args.seed), [int(d) for d in args.head_dims.split(",")]
    calls_of_each = 20 if args.quick else args.calls
    for dtype in (torch.float16, torch.bfloat16):
        for scale in (1.0, None):
            found, word = [], {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
            for i in range(calls_of_each):
                head_dim = dims[i % len(dims)]
                shape, errors, of_sums = one_call(kgen, draw, dtype, head_dim, scale or head_dim**-0.5)
                kept, worst = keeps_the_rule(errors, of_sums, dtype), max(errors["kgen"])
                right = all(kept)
                status = ("ok", "", {"relative_error": worst}) if right else ("wrong", f"breaks the rule: {kept}", None)
                case = f"{word} scale {scale or '1/sqrt(d)'} call {i}"
                bench.add(case, "kgen", *status, shape=shape, dtype=word,
                    details={"errors": errors, "of_fp32_sums": of_sums})
                found.append(errors)
            print(f"{word}, scale {scale or '1/sqrt(head dim)'}: {len(found)} calls; large is above {LIMITS[dtype]}")
            print("\n".join([*table(found, dtype), ""]))
    print(f"{bench.failed} of {4 * calls_of_each} calls break the rule")
    return bench.finish(tables=False)


if __name__ == "__main__":
    sys.exit(main())
