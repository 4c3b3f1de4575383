"""Dense backward kernels compared with FlashAttention-2's (PyTorch's flash backend) in one process.

    python3 benches/backward.py --library build/lib/libkgen.so --out backward.jsonl
    python3 benches/backward.py --library build/lib/libkgen.so --quick

Without --quick every head dim of the grid, both masks, s 512 to 16384, 16,384 tokens in total. Both sides get the
same O and LSE, FlashAttention-2's. Before and after timing dQ, dK and dV are compared with FlashAttention-2's, whole,
and up to s 4096 with float64 gradients of one head; deterministic kernels must give the same bits again. FLOPs are 10 B
H Sq Sk D, halved for causal.
"""

import sys

import torch

from lab import Bench, Contender, attention, parser
from lab.kgen import bwd_params
from lab.peers import fa2_backward

HEAD_DIMS = [32, 64, 96, 128, 160, 192, 224, 256]
SEQLENS = [512, 1024, 2048, 4096, 8192, 16384]
# Largest relative error of a gradient's norm; several times the errors observed with random normal inputs.
ALLOWED = {"bf16": 1.5e-2, "fp16": 4e-3}


def exact_gradients(q, k, v, dout, causal):
    """dQ, dK and dV of one head, (seqlen, head_dim) tensors, in float64."""
    q, k, v, dout = (x.double() for x in (q, k, v, dout))
    scale = q.shape[-1] ** -0.5
    s = q @ k.T * scale
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), float("-inf"))
    p = torch.softmax(s, -1)
    dp = dout @ v.T
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.T @ q, p.T @ dout


class Point:
    def __init__(self, shape, dtype):
        sizes = [shape[name] for name in ("batch", "seqlen_q", "heads", "head_dim")]
        self.q, self.k, self.v, self.dout = (attention.normal(*sizes, dtype=dtype) for _ in range(4))
        self.causal, qkv = bool(shape["causal"]), (self.q, self.k, self.v)
        self.o, self.lse, self.fa2 = fa2_backward(*qkv, self.causal)
        self.expected = self.fa2(self.dout, self.o)
        one = [x[-1, :, -1] for x in (*qkv, self.dout)]
        self.exact = exact_gradients(*one, self.causal) if shape["seqlen_q"] <= 4096 else None

    def judge(self, gradients):
        errors = [attention.norm_error(a, b) for a, b in zip(gradients, self.expected)]
        if self.exact is not None:
            errors += [attention.norm_error(a[-1, :, -1], b) for a, b in zip(gradients, self.exact)]
        return max(errors) if all(error == error for error in errors) else float("nan")

    def kgen(self, library, name, deterministic):
        gradients = [torch.empty_like(x) for x in (self.q, self.k, self.v)]
        tensors = {"q": self.q, "k": self.k, "v": self.v, "o": self.o, "dout": self.dout}
        tensors |= dict(zip(("dq", "dk", "dv"), gradients))
        first = []

        def judge(found):
            first.extend(x.clone() for x in found if deterministic and len(first) < 3)
            same = all(torch.equal(a, b) for a, b in zip(first, found))
            return self.judge(found) if same else float("inf")

        p = bwd_params(tensors, self.lse, self.causal, deterministic)
        return Contender(library.call(name, p), out=gradients, own=True, judge=judge, details={"kernel": name})


def main():
    arguments = parser(__doc__, rounds=8, round_ms=20, head_dim=None, seqlen=None)
    arguments.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    arguments.add_argument("--target", default="sm80")
    arguments.add_argument("--deterministic", action="store_true", help="time the deterministic option too")
    bench = Bench(args := arguments.parse_args())
    head_dims = args.head_dim or ([64, 128, 256] if args.quick else HEAD_DIMS)
    seqlens = args.seqlen or ([2048, 8192] if args.quick else SEQLENS)
    grid = [(d, causal, s) for d in head_dims for causal in (False, True) for s in seqlens]
    name_of = lambda case: f"d{case[0]} {attention.mask(case[1])} s{case[2]}"
    for case in bench.selected(grid, name_of, quick=len(grid)):
        head_dim, causal, seqlen = case
        name = attention.kernel_name("bwd", head_dim, args.dtype, causal, args.target)
        held = {label: library for label, library in bench.libraries.items() if library.holds(name)}
        if not held:
            bench.note(f"{name}: not in the library")
            continue
        shape = attention.dense_shape(head_dim, seqlen, causal)
        point = Point(shape, args.dtype)
        contenders = {}
        for label, library in held.items():
            contenders[label] = point.kgen(library, name, False)
            if args.deterministic:
                contenders[f"{label} deterministic"] = point.kgen(library, name, True)
        contenders["fa2"] = Contender(lambda: point.fa2(point.dout, point.o))
        bench.point(
            name_of(case), shape, contenders, judge=point.judge, allowed=ALLOWED[args.dtype], dtype=args.dtype,
            flops=attention.flops(shape, products=5), formula="10 B H Sq Sk D, halved for causal")
    return bench.finish() or int(not bench.points)


if __name__ == "__main__":
    sys.exit(main())
