#!/usr/bin/env python3
"""Gradients at softmax scale 1, where rows of P are nearly one-hot: whose rounding makes them err, kgen's or everybody's?

    kgen build --filter "hdim in (64, 128) and dtype in (bf16, fp16) and kind in (fwd, bwd) and target == sm90"
    python3 benches/gradients_scale1.py --library build/lib/libkgen.so --out OUT [--calls 400]

Random calls, head dims 64 and 128, with and without causal mask, at scale 1 and 1/sqrt(head dim). Errors are of the largest gradient,
against float64. In each call:

  kgen, FA2           backward passes of kgen and of FlashAttention-2 (torch's), each with the O and LSE of its own forward pass
  naive               torch's autograd of matmul and softmax in the dtype; and the same with delta from the O in the dtype
  ..., O rounded      the backward pass given the float64 O, rounded once
  ..., exact delta    the backward pass given an O in the dtype that is not O at all, but whose product with dO is delta to 30 bits:
                      delta is all that a backward pass takes from O. If the errors go away with it, they were those of O's rounding.
  one rounding alone  float64 with P, dP, dS, or O rounded and nothing else

Writes gradients_scale1.json and .txt to OUT. Exit code 1 if a call breaks FlashAttention's rule (keeps_the_rule). On a library for the emulator it runs in host memory, without FA2.
"""

import argparse
import json
import math
import os
import pathlib
import random
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

LIMITS = {torch.float16: 0.005, torch.bfloat16: 0.03}  # of the largest gradient: what outside testing called large
ALONE = {"P of dV and dS": "p", "P and O of the forward pass": "of", "O in delta": "o", "dP": "dp", "dS": "ds"}


def rounded(x, dtype):
    return x.to(dtype).double()


def in_float64(q, k, v, dout, scale, causal, dtype=None, rounding=""):
    """dQ, dK, dV, O and delta of (heads, rows, head_dim) in float64, but for what `rounding` names."""
    s = q @ k.mT * scale
    if causal:
        rows, keys = s.shape[-2:]
        hidden = torch.arange(keys, device=s.device)[None] > torch.arange(rows, device=s.device)[:, None] + keys - rows
        s = s.masked_fill(hidden, -math.inf)
    p = torch.softmax(s, -1)
    p16 = rounded(p, dtype) if rounding in ("p", "of") else p
    o = (p16 if rounding == "of" else p) @ v
    if rounding in ("o", "of"):
        o = rounded(o, dtype)
    dp = dout @ v.mT
    if rounding == "dp":
        dp = rounded(dp, dtype)
    delta = (dout * o).sum(-1, keepdim=True)
    if rounding == "p":
        p = p16
    ds = p * (dp - delta)
    if rounding == "ds":
        ds = rounded(ds, dtype)
    return [ds @ k * scale, ds.mT @ q * scale, p.mT @ dout], o, delta


def naively(q, k, v, dout, scale, causal, o_for_delta=None):
    """The same in the dtype of the inputs, each intermediate rounded; delta from P and dP, or from an O."""
    s = (q @ k.mT).float() * scale
    if causal:
        rows, keys = s.shape[-2:]
        hidden = torch.arange(keys, device=s.device)[None] > torch.arange(rows, device=s.device)[:, None] + keys - rows
        s = s.masked_fill(hidden, -math.inf)
    p = torch.softmax(s, -1).to(q.dtype)
    dp = (dout @ v.mT).float()
    delta = (p.float() * dp).sum(-1, keepdim=True) if o_for_delta is None else (dout.float() * o_for_delta.float()).sum(-1, keepdim=True)
    ds = (p.float() * (dp - delta) * scale).to(q.dtype)
    return [ds @ k, ds.mT @ q, p.mT @ dout], p @ v


def stand_in(delta, dout):
    """An O in dO's dtype for which the sum of O dO is `delta`: by four elements a row, each taking up what those before left."""
    o = torch.zeros_like(dout)
    left = delta.squeeze(-1).clone()
    places = dout.double().abs().topk(4, dim=-1).indices
    for i in range(4):
        at = places[..., i : i + 1]
        factor = dout.gather(-1, at).squeeze(-1).double()
        element = torch.where(factor == 0, 0.0, left / torch.where(factor == 0, 1.0, factor)).to(dout.dtype)
        o.scatter_(-1, at, element.unsqueeze(-1))
        left = left - element.double() * factor
    return o


def relative(gradients, exact):
    """Errors of dQ, dK, dV, of the largest; those of gradients that are naught (one key: dQ = dK = 0) count as 0 below 1e-5."""
    out = []
    for got, right in zip(gradients, exact):
        error, largest = (got.double() - right).abs().max().item(), right.abs().max().item()
        out.append(math.inf if math.isnan(error) else 0.0 if largest < 1e-5 else error / largest)
    return out


def flash_2(q, k, v, scale, causal):
    """FlashAttention-2's forward pass on (1, rows, heads, head_dim), and its backward pass from any O."""
    turned = [t.transpose(1, 2) for t in (q, k, v)]
    o, lse, cu_q, cu_k, max_q, max_k, seed, offset, _ = torch.ops.aten._scaled_dot_product_flash_attention(*turned, 0.0, causal, False, scale=scale)

    def backward(dout, given):
        gradients = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            dout.transpose(1, 2), *turned, given.transpose(1, 2), lse, cu_q, cu_k, max_q, max_k, 0.0, causal, seed, offset, scale=scale
        )
        return [t.transpose(1, 2) for t in gradients]

    return o.transpose(1, 2), backward


def of_fp32_sums(q, k, v, dout, scale, exact):
    """What sums in fp32 alone make dQ, dK and dV err by, as kgen's own check has it (src/family/attention/exam/gradients.rs): delta cancels dP only to
    2^-20 of the longest rows of dO and V, and K or Q carry that on. Of the largest gradient."""
    longest = [t.norm(dim=-1).max().item() for t in (dout, v)]
    of_ds = 2.0**-20 * scale * longest[0] * longest[1]
    largest = [max(1e-30, t.abs().max().item()) for t in exact]
    return [of_ds * k.abs().max().item() / largest[0], of_ds * q.abs().max().item() * q.shape[1] / largest[1], 0.0]


class Kgen:
    """The library's two passes on (batch, rows, heads, head_dim), the backward one from any O and LSE."""

    def __init__(self, path):
        os.environ["KGEN_LIBRARY"] = str(path.resolve())
        from kgen_attn import backward, forward, library

        self.is_emulated = library.library().emulator is not None
        self._forward, self._backward = forward.forward, backward.backward

    def forward(self, q, k, v, causal, scale):
        return self._forward(q, k, v, (None,) * 13, (0, 0, scale, causal, -1, -1, 0, 0.0, 0))

    def backward(self, dout, q, k, v, o, lse, causal, scale):
        return self._backward(dout, q, k, v, o, lse, *(None,) * 7, 0, 0, scale, causal, -1, -1, 0, 0.0, False)[:3]


def one_call(kgen, rng, dtype, head_dim, scale, device):
    causal = rng.random() < 0.5
    rows = rng.choice([1, 2, 5, 17, 40, 64, 100, 130, 257]) if not kgen.is_emulated else rng.choice([1, 5, 17, 40])
    keys = rows if causal else rng.choice([2, 3, 17, 33, 64, 100, 129, 300]) if not kgen.is_emulated else rng.choice([2, 3, 17, 33])
    heads = rng.choice([1, 2, 4]) if not kgen.is_emulated else 1
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    q, k, v, dout = (torch.randn((1, n, heads, head_dim), generator=generator).to(device, dtype) for n in (rows, keys, keys, rows))
    by_head = [t[0].transpose(0, 1).contiguous() for t in (q, k, v, dout)]  # (heads, rows, head_dim)
    wide = [t.double() for t in by_head]
    exact, o64, delta = in_float64(*wide, scale, causal)
    back = lambda t: t.transpose(0, 1).unsqueeze(0).contiguous()  # noqa: E731

    def judge(gradients):
        return relative([t[0].transpose(0, 1) for t in gradients], exact)

    o_rounded, o_exact = back(o64.to(dtype)), back(stand_in(delta, by_head[3]))
    o, lse = kgen.forward(q, k, v, causal, scale)
    own = lambda given: judge(kgen.backward(dout, q, k, v, given, lse, causal, scale))  # noqa: E731
    errors = {"kgen": own(o), "kgen, O rounded": own(o_rounded), "kgen, exact delta": own(o_exact)}
    if not kgen.is_emulated:
        o2, backward = flash_2(q, k, v, scale, causal)
        for name, given in (("FA2", o2), ("FA2, O rounded", o_rounded), ("FA2, exact delta", o_exact)):
            errors[name] = judge(backward(dout, given))
    gradients, naive_o = naively(*by_head, scale, causal)
    errors["naive"] = relative(gradients, exact)
    errors["naive, delta from O"] = relative(naively(*by_head, scale, causal, naive_o)[0], exact)
    for name, rounding in ALONE.items():
        errors[f"alone: {name}"] = relative(in_float64(*wide, scale, causal, dtype, rounding)[0], exact)
    return {"dtype": str(dtype)[6:], "head_dim": head_dim, "scale": scale, "rows": rows, "keys": keys, "heads": heads, "causal": causal, "errors": errors, "of_fp32_sums": of_fp32_sums(*wide, scale, exact)}


def keeps_the_rule(row, dtype):
    """FlashAttention's rule for dQ, dK and dV: three times the worst of those that round as one must, two roundings of the largest
    gradient, and what fp32 sums err by. Of a row or two the error of delta is a single draw; hence more than one who draws. Given an exact delta the errors of
    delta do not count for the peers either."""
    peers = ["naive", "naive, delta from O", "FA2", "alone: O in delta", "alone: P and O of the forward pass"]
    of_exact = ["alone: P of dV and dS", "alone: dS", "FA2, exact delta"]
    kept = []
    for own, others in (("kgen", peers), ("kgen, O rounded", peers), ("kgen, exact delta", of_exact)):
        for i in range(3):
            slack = torch.finfo(dtype).eps + row["of_fp32_sums"][i]  # eps is twice the unit roundoff
            kept.append(row["errors"][own][i] <= 3 * max(row["errors"][name][i] for name in others if name in row["errors"]) + slack)
    return kept


def quantile(values, at):
    values = sorted(values)
    return values[min(len(values) - 1, int(at * len(values)))]


def table(rows, dtype):
    lines = [f"{'':34}" + "".join(f"{f'{g} median':>11}{'99 %':>9}{'most':>9}{'large':>7}" for g in ("dQ", "dK", "dV"))]
    for name in rows[0]["errors"]:
        cells = ""
        for i in range(3):
            values = [row["errors"][name][i] for row in rows]
            cells += f"{quantile(values, 0.5):11.1e}{quantile(values, 0.99):9.1e}{max(values):9.1e}{sum(value > LIMITS[dtype] for value in values):7d}"
        lines.append(f"{name:34}" + cells)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--calls", type=int, default=400, help="of each dtype and scale")
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    kgen = Kgen(args.library)
    if not kgen.is_emulated and not torch.cuda.is_available():
        print("no GPU, and the library is not the emulator's", file=sys.stderr)
        return 3
    device = "cpu" if kgen.is_emulated else "cuda"
    rng = random.Random(args.seed)
    dims = [int(d) for d in args.head_dims.split(",")]
    rows, text, broken = [], [], []
    for dtype in (torch.float16, torch.bfloat16):
        for scale in (1.0, None):
            some = []
            for i in range(args.calls):
                head_dim = dims[i % len(dims)]
                row = one_call(kgen, rng, dtype, head_dim, scale or head_dim**-0.5, device)
                row["keeps_the_rule"] = keeps_the_rule(row, dtype)
                some.append(row)
            broken += [row for row in some if not all(row["keeps_the_rule"])]
            text += [f"{str(dtype)[6:]}, scale {scale or '1/sqrt(head dim)'}: {len(some)} calls; large is above {LIMITS[dtype]} of the largest gradient", *table(some, dtype)]
            for peer in ("FA2", "naive", "naive, delta from O"):
                if peer in some[0]["errors"]:
                    ratios = [own / other for row in some for own, other in zip(row["errors"]["kgen"], row["errors"][peer]) if other > 0 and own > 0]
                    text.append(f"  kgen to {peer}: geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}, most {max(ratios):.2f}")
            text.append("")
            rows += some
    text.append(f"{len(broken)} of {len(rows)} calls break the rule")
    text += [json.dumps(row) for row in broken[:5]]
    print("\n".join(text))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gradients_scale1.txt").write_text("\n".join(text) + "\n")
    (args.out / "gradients_scale1.json").write_text(json.dumps({"seed": args.seed, "broken": len(broken), "rows": rows}) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
