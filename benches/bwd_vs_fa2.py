"""Backward kernels beside FlashAttention-2's (PyTorch's flash backend) in one process, on the GPU at hand.

    python3 benches/bwd_vs_fa2.py --library build/lib/libkgen.so --out results.json
    python3 benches/bwd_vs_fa2.py --library build/lib/libkgen.so --quick

Without --quick: every head dim of the grid, both masks, s 512 to 16384. Rules and timing are those of fwd_vs_fa2.py. Both
sides get the same O and log-sum-exp, FlashAttention-2's. Before and after timing dQ, dK and dV are compared with
FlashAttention-2's, whole, and up to s 4096 with float64 gradients of one head. TFLOP/s count 10 B H Sq Sk D, halved for
causal.
"""

import argparse
import json
import statistics
import sys

import torch

from fwd_vs_fa2 import TOKENS, WIDTH, card_state, median_interval, side_by_side
from kgen_ctypes import Library, bwd_params

HEAD_DIMS = [32, 64, 96, 128, 160, 192, 224, 256]
SEQLENS = [512, 1024, 2048, 4096, 8192, 16384]
# Largest relative error of a gradient's norm; several times what was seen with random normal inputs.
ALLOWED = {torch.bfloat16: 1.5e-2, torch.float16: 4e-3}


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


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


def measure(candidates, dtype, head_dim, causal, seqlen, rounds, round_ms):
    """One row: candidates ({label: (launch, workspace, deterministic)}) beside FA2 at one shape."""
    heads, batch = max(1, WIDTH // head_dim), max(1, TOKENS // seqlen)
    q, k, v, dout = (torch.randn(batch, seqlen, heads, head_dim, device="cuda", dtype=dtype) for _ in range(4))
    qt, kt, vt, dt = (x.transpose(1, 2) for x in (q, k, v, dout))
    out, lse, cu_q, cu_k, max_q, max_k, seed, offset, _ = torch.ops.aten._scaled_dot_product_flash_attention(qt, kt, vt, 0.0, causal, False)

    def fa2():
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            dt, qt, kt, vt, out, lse, cu_q, cu_k, max_q, max_k, 0.0, causal, seed, offset)

    o = out.transpose(1, 2)
    outputs, functions, kept = {}, {"fa2": fa2}, []
    for label, (launch, workspace, deterministic) in candidates.items():
        gradients = [torch.full_like(x, float("nan")) for x in (q, k, v)]
        p = bwd_params(dict(q=q, k=k, v=v, o=o, dout=dout, dq=gradients[0], dk=gradients[1], dv=gradients[2]), lse, causal, deterministic)
        kept.append(workspace(p))
        outputs[label] = gradients
        functions[label] = lambda launch=launch, p=p: launch(p)
        functions[label]()
    torch.cuda.synchronize()
    first = {label: [x.clone() for x in gradients] for label, gradients in outputs.items() if candidates[label][2]}
    exact = exact_gradients(*(x[-1, :, -1] for x in (q, k, v, dout)), causal) if seqlen <= 4096 else None

    def errors():
        peer = [x.transpose(1, 2) for x in fa2()]
        found = {}
        for label, gradients in outputs.items():
            worst = max(relative(a, b) for a, b in zip(gradients, peer))
            if exact is not None:
                worst = max(worst, *(relative(a[-1, :, -1], b) for a, b in zip(gradients, exact)))
            if not worst < ALLOWED[dtype]:
                raise ValueError(f"{label} is wrong at d{head_dim} s{seqlen} causal={causal}: relative error {worst}")
            if label in first and not all(torch.equal(a, b) for a, b in zip(first[label], gradients)):
                raise ValueError(f"{label} gave other bits the second time at d{head_dim} s{seqlen} causal={causal}")
            found[label] = worst
        return found

    before = errors()
    times = side_by_side(functions, rounds, round_ms)
    errors()
    flops = 10 * batch * heads * seqlen * seqlen * head_dim * (0.5 if causal else 1)
    row = {"head_dim": head_dim, "causal": causal, "seqlen": seqlen, "batch": batch, "heads": heads, "dtype": str(dtype)[6:], "kernels": {}}
    for label, ms in times.items():
        ratio = [p / c for p, c in zip(times["fa2"], ms)]
        tflops = flops / statistics.median(ms) / 1e9
        if tflops > 989:
            raise ValueError(f"{label}: {tflops:.0f} TFLOP/s is beyond the card; the measurement is wrong")
        row["kernels"][label] = {
            "tflops": tflops, "ms": statistics.median(ms), "ratio": statistics.median(ratio), "interval": median_interval(ratio),
            "rounds": rounds, "relative_error": before.get(label),
        }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", action="append", required=True, help="shared library; several compare builds of the same variants")
    parser.add_argument("--quick", action="store_true", help="head dims 64, 128, 256 at s 2048 and 8192, four rounds")
    parser.add_argument("--head-dim", type=int, nargs="+")
    parser.add_argument("--seqlen", type=int, nargs="+")
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--target", default="sm80")
    parser.add_argument("--deterministic", action="store_true", help="time the deterministic option too")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--round-ms", type=float, default=20)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    head_dims = args.head_dim or ([64, 128, 256] if args.quick else HEAD_DIMS)
    seqlens = args.seqlen or ([2048, 8192] if args.quick else SEQLENS)
    rounds = args.rounds or (4 if args.quick else 8)

    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[args.dtype]
    libraries = {path: Library(path) for path in args.library}
    print(f"# {card_state()}; torch {torch.__version__}; {args.dtype}", flush=True)
    rows, failed = [], False
    for d in head_dims:
        for causal in (False, True):
            name = f"flash_bwd_hdim{d}_{args.dtype}{'_causal' if causal else ''}_{args.target}"
            candidates = {}
            for path, library in libraries.items():
                if not hasattr(library.lib, name):
                    continue
                for deterministic in (False, True) if args.deterministic else (False,):
                    label = path.rsplit("/", 1)[-1].removesuffix(".so") + ("+deterministic" if deterministic else "")
                    workspace = lambda p, library=library, name=name: library.workspace(name, p)
                    candidates[label] = (library.launcher(name), workspace, deterministic)
            if not candidates:
                print(f"{name}: not in the library", flush=True)
                continue
            for s in seqlens:
                try:
                    row = measure(candidates, dtype, d, causal, s, rounds, args.round_ms)
                except (ValueError, RuntimeError) as problem:
                    print(f"FAILED: {problem}", flush=True)
                    failed = True
                    continue
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
    if failed or not rows:
        sys.exit(1)


if __name__ == "__main__":
    main()
