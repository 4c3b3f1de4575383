"""Backward kernels beside FlashAttention-2's (PyTorch's flash backend) in one process, on the GPU at hand.

    python3 benches/bwd_vs_fa2.py --library build/lib/libkgen.so --out results.json

First dQ, dK and dV on small shapes (unequal lengths, grouped heads, odd strides) against float64 autograd: the largest
error may be three times that of the same attention in plain PyTorch and the kernel's own dtype. Then timing, by the rules
of fwd_vs_fa2.py; both sides get the same O and log-sum-exp, both are checked against each other before and after.
TFLOP/s count 10 B H Sq Sk D, halved for causal.
"""

import argparse
import json
import statistics

import torch

from fwd_vs_fa2 import TOKENS, WIDTH, card_state, median_interval, side_by_side
from kgen_ctypes import Library, bwd_params

CASES = [  # batch, heads, heads_k, seqlen_q, seqlen_k, element gap between heads
    (2, 4, 4, 128, 128, 0), (1, 4, 1, 113, 203, 0), (2, 2, 2, 257, 64, 8), (1, 3, 3, 1, 300, 0), (1, 2, 1, 129, 1, 0),
    (1, 2, 2, 333, 333, 3), (1, 8, 2, 512, 640, 0), (1, 1, 1, 1023, 1023, 0),
]


def attention(q, k, v, causal, dtype):
    """O and LSE, written out, in `dtype`; (batch, seqlen, heads, head_dim) tensors."""
    group = q.shape[2] // k.shape[2]
    q, k, v = q.to(dtype).transpose(1, 2), k.to(dtype).repeat_interleave(group, 2).transpose(1, 2), v.to(dtype).repeat_interleave(group, 2).transpose(1, 2)
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(s.shape[-2:], device=s.device, dtype=torch.bool).tril(s.shape[-1] - s.shape[-2]).logical_not()
        s = s.masked_fill(hidden, float("-inf"))
    p = torch.softmax(s.float() if dtype != torch.float64 else s, -1).to(dtype)
    p = p.masked_fill(p.isnan(), 0)
    lse = torch.logsumexp(s.double(), -1).float()
    return (p @ v).transpose(1, 2), lse


def check(launch, workspace, dtype, head_dim, causal, deterministic):
    """Raises if a gradient of a small case is too far off; the worst share of what is allowed."""
    worst = 0.0
    for batch, heads, heads_k, seqlen_q, seqlen_k, gap in CASES:
        def tensor(rows, h, gap=gap):
            return torch.randn(batch, rows, h, head_dim + gap, device="cuda", dtype=dtype)[..., :head_dim]

        q, k, v, dout = tensor(seqlen_q, heads), tensor(seqlen_k, heads_k), tensor(seqlen_k, heads_k), tensor(seqlen_q, heads)
        gradients = {}
        for kind in (torch.float64, dtype):
            leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
            o, lse = attention(*leaves, causal, kind)
            gradients[kind] = [g.double() for g in torch.autograd.grad(o, leaves, dout.to(kind))]
            # autograd of a row of -infinity is NaN; such a row has no gradient
            gradients[kind][0] = gradients[kind][0].nan_to_num(0)
            if kind == torch.float64:
                exact_o, exact_lse = o.detach().to(dtype), lse.detach()
        if causal and seqlen_q > seqlen_k:  # NaNs of hidden rows spread over dK: compute without those rows
            skip = seqlen_q - seqlen_k
            for kind in (torch.float64, dtype):
                leaves = [x.detach().clone().requires_grad_() for x in (q[:, skip:], k, v)]
                o, _ = attention(*leaves, causal, kind)
                g = [x.double() for x in torch.autograd.grad(o, leaves, dout[:, skip:].to(kind))]
                gradients[kind] = [torch.cat([torch.zeros_like(q[:, :skip]).double(), g[0]], 1), g[1], g[2]]
        outputs = [torch.full_like(x, float("nan")) for x in (q, k, v)]
        o_gap = tensor(seqlen_q, heads)
        o_gap.copy_(exact_o)
        p = bwd_params(dict(q=q, k=k, v=v, o=o_gap, dout=dout, dq=outputs[0], dk=outputs[1], dv=outputs[2]), exact_lse, causal, deterministic)
        held = workspace(p)
        launch(p)
        torch.cuda.synchronize()
        first = [x.clone() for x in outputs]
        if deterministic:
            launch(p)
            if not all(torch.equal(a, b) for a, b in zip(first, outputs)):
                raise SystemExit(f"two deterministic runs differ at d{head_dim} causal={causal}")
        for what, got, exact, naive in zip(("dQ", "dK", "dV"), outputs, gradients[torch.float64], gradients[dtype]):
            error = (got.double() - exact).abs().max().item()
            allowed = 3 * (naive - exact).abs().max().item() + (2e-3 if dtype == torch.bfloat16 else 2.5e-4) * (exact.abs().max().item() + 0.05)
            if not error <= allowed:
                raise SystemExit(f"{what} is wrong at d{head_dim} causal={causal} {(batch, heads, heads_k, seqlen_q, seqlen_k, gap)}: error {error}, allowed {allowed}")
            worst = max(worst, error / allowed)
        del held
    return worst


def measure(candidates, dtype, head_dim, causal, seqlen, rounds, round_ms):
    """One row: candidates ({label: (launch, workspace, deterministic, to be checked)}) beside FA2 at one shape."""
    heads, batch = max(1, WIDTH // head_dim), max(1, TOKENS // seqlen)
    q, k, v, dout = (torch.randn(batch, seqlen, heads, head_dim, device="cuda", dtype=dtype) for _ in range(4))
    qt, kt, vt, dt = (x.transpose(1, 2) for x in (q, k, v, dout))
    out, lse, cu_q, cu_k, max_q, max_k, seed, offset, _ = torch.ops.aten._scaled_dot_product_flash_attention(qt, kt, vt, 0.0, causal, False)

    def fa2():
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            dt, qt, kt, vt, out, lse, cu_q, cu_k, max_q, max_k, 0.0, causal, seed, offset)

    o = out.transpose(1, 2)
    outputs, functions, kept = {}, {"fa2": fa2}, []
    for label, (launch, workspace, deterministic, checked) in candidates.items():
        gradients = [torch.full_like(x, float("nan")) for x in (q, k, v)]
        p = bwd_params(dict(q=q, k=k, v=v, o=o, dout=dout, dq=gradients[0], dk=gradients[1], dv=gradients[2]), lse, causal, deterministic)
        kept.append(workspace(p))
        if checked:
            outputs[label] = gradients
        functions[label] = lambda launch=launch, p=p: launch(p)
        functions[label]()
    torch.cuda.synchronize()

    def compare():
        peer = [x.transpose(1, 2).float() for x in fa2()]
        found = {label: max(((a.float() - b).norm() / b.norm()).item() for a, b in zip(gradients, peer)) for label, gradients in outputs.items()}
        for label, difference in found.items():
            if not difference < 1.5e-2:
                raise SystemExit(f"{label} differs from FA2 at d{head_dim} s{seqlen} causal={causal}: {difference} of the norm")
        return found

    before = compare()
    times = side_by_side(functions, rounds, round_ms)
    compare()
    flops = 10 * batch * heads * seqlen * seqlen * head_dim * (0.5 if causal else 1)
    row = {"head_dim": head_dim, "causal": causal, "seqlen": seqlen, "batch": batch, "heads": heads, "dtype": str(dtype)[6:], "kernels": {}}
    for label, ms in times.items():
        ratio = [p / c for p, c in zip(times["fa2"], ms)]
        tflops = flops / statistics.median(ms) / 1e9
        if tflops > 989:
            raise SystemExit(f"{label}: {tflops:.0f} TFLOP/s is beyond the card; the measurement is wrong")
        row["kernels"][label] = {
            "tflops": tflops, "ms": statistics.median(ms), "ratio": statistics.median(ratio), "interval": median_interval(ratio),
            "rounds": rounds, "difference_from_fa2": before.get(label),
        }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", action="append", required=True, help="shared library; several compare builds of the same variants")
    parser.add_argument("--unchecked", action="append", default=[], help="library to time without a check: one with parts left out, to see what they cost")
    parser.add_argument("--head-dim", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--seqlen", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--target", default="sm80")
    parser.add_argument("--deterministic", action="store_true", help="time the deterministic option too")
    parser.add_argument("--no-check", action="store_true", help="skip the small cases")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--round-ms", type=float, default=20)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[args.dtype]
    libraries = {path: Library(path) for path in args.library + args.unchecked}
    print(f"# {card_state()}; torch {torch.__version__}; {args.dtype}", flush=True)
    rows = []
    for d in args.head_dim:
        for causal in (False, True):
            name = f"flash_bwd_hdim{d}_{args.dtype}{'_causal' if causal else ''}_{args.target}"
            candidates = {}
            for path, library in libraries.items():
                if not hasattr(library.lib, name):
                    continue
                label = path.rsplit("/", 1)[-1].removesuffix(".so")
                launch, workspace = library.launcher(name), (lambda p, library=library: library.workspace(name, p))
                for deterministic in (False, True) if args.deterministic else (False,):
                    tag = label + ("+det" if deterministic else "")
                    try:
                        if not args.no_check and path not in args.unchecked:
                            share = check(launch, workspace, dtype, d, causal, deterministic)
                            print(f"d{d} {'causal' if causal else 'full'} {tag}: small cases right, largest error {share:.2f} of what is allowed", flush=True)
                        candidates[tag] = (launch, workspace, deterministic, path not in args.unchecked)
                    except (SystemExit, RuntimeError) as problem:
                        print(f"FAILED {tag}: {problem}", flush=True)
            if not candidates:
                continue
            for s in args.seqlen:
                row = measure(candidates, dtype, d, causal, s, args.rounds, args.round_ms)
                rows.append(row)
                cells = " ".join(
                    f"{label} {r['tflops']:.0f}" + ("" if label == "fa2" else f" ({r['ratio']:.3f} [{r['interval'][0]:.3f}, {r['interval'][1]:.3f}])")
                    for label, r in row["kernels"].items()
                )
                print(f"d{d} {'causal' if causal else 'full  '} s{s} b{row['batch']} h{row['heads']}: {cells}", flush=True)
                if args.out:
                    with open(args.out, "w") as f:
                        json.dump({"card": card_state(), "torch": torch.__version__, "rows": rows}, f, indent=1)
    print(f"# {card_state()}")


if __name__ == "__main__":
    main()
