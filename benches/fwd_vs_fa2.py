"""Forward kernels beside FlashAttention-2 (PyTorch's flash backend) in one process, on the GPU at hand.

    python3 benches/fwd_vs_fa2.py --library build/lib/libkgen.so --out results.json

Rules (docs/results/README.md): random normal inputs; candidate and peer alternate; device events over batches of
launches after 25 ms of warm-up; the ratio is the median over rounds with a 95 % bootstrap interval; O is compared with
a float64 reference on a slice before and after timing; TFLOP/s count 4 B H Sq Sk D, halved for causal.
L2 is warm: the same tensors are used throughout (they exceed the L2 from s 2048 on).
"""

import argparse
import json
import random
import statistics
import subprocess

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kgen_ctypes import Library, fwd_params

TOKENS = 16384  # batch * seqlen
WIDTH = 2048  # heads * head_dim


def median_interval(values, draws=2000):
    """95 % bootstrap interval of the median."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def time_batch(f, n):
    """Milliseconds a call, over n calls."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(n):
        f()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / n


def side_by_side(functions, rounds, round_ms):
    """Times each function in every round, in alternating order; a list of milliseconds for each."""
    counts = {}
    for label, f in functions.items():
        f()
        torch.cuda.synchronize()
        once = time_batch(f, 2)
        time_batch(f, max(1, int(25 / once)))
        counts[label] = max(1, int(round_ms / time_batch(f, 3)))
    times = {label: [] for label in functions}
    for r in range(rounds):
        for label in list(functions) if r % 2 == 0 else list(functions)[::-1]:
            times[label].append(time_batch(functions[label], counts[label]))
    return times


def relative_error(out, q, k, v, causal):
    """‖out − ref‖ / ‖ref‖ of the last head's last 128 queries, reference in float64."""
    qd, kd, vd = (x[-1, :, -1].double() for x in (q, k, v))
    rows = qd[-128:]
    s = rows @ kd.T * q.shape[-1] ** -0.5
    if causal:
        i = torch.arange(len(qd) - len(rows), len(qd), device=q.device)[:, None]
        s = s.masked_fill(torch.arange(len(kd), device=q.device)[None] > i + len(kd) - len(qd), float("-inf"))
    ref = torch.softmax(s, -1) @ vd
    return ((out[-1, -128:, -1].double() - ref).norm() / ref.norm()).item()


def card_state():
    query = "name,driver_version,clocks.sm,temperature.gpu,power.draw"
    try:
        return subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "nvidia-smi unavailable"


def measure(candidates, dtype, head_dim, causal, seqlen, rounds, round_ms):
    """One row: candidates ({label: launch}) beside FA2 at one shape."""
    heads, batch = max(1, WIDTH // head_dim), max(1, TOKENS // seqlen)
    q, k, v = (torch.randn(batch, seqlen, heads, head_dim, device="cuda", dtype=dtype) for _ in range(3))
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))

    def fa2():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(qt, kt, vt, is_causal=causal)

    outputs, functions = {}, {"fa2": fa2}
    for label, launch in candidates.items():
        o = torch.full_like(q, float("nan"))
        lse = torch.full((batch, heads, seqlen), float("nan"), device="cuda", dtype=torch.float32)
        p = fwd_params(q, k, v, o, lse, causal)
        outputs[label] = (o, lse)
        functions[label] = lambda launch=launch, p=p: launch(p)
        functions[label]()
    torch.cuda.synchronize()

    def errors():
        found = {label: relative_error(o, q, k, v, causal) for label, (o, _) in outputs.items()}
        for label, error in found.items():
            if not error < 1e-2 or outputs[label][1].isnan().any() or outputs[label][0].isnan().any():
                raise SystemExit(f"{label} is wrong at d{head_dim} s{seqlen} causal={causal}: relative error {error}")
        return found

    before = errors()
    times = side_by_side(functions, rounds, round_ms)
    errors()
    flops = 4 * batch * heads * seqlen * seqlen * head_dim * (0.5 if causal else 1)
    row = {"head_dim": head_dim, "causal": causal, "seqlen": seqlen, "batch": batch, "heads": heads, "dtype": str(dtype)[6:], "kernels": {}}
    for label, ms in times.items():
        ratio = [p / c for p, c in zip(times["fa2"], ms)]
        tflops = flops / statistics.median(ms) / 1e9
        if tflops > 989:
            raise SystemExit(f"{label}: {tflops:.0f} TFLOP/s is beyond the card; the measurement is wrong")
        row["kernels"][label] = {
            "tflops": tflops, "ms": statistics.median(ms), "ratio": statistics.median(ratio), "interval": median_interval(ratio),
            "rounds": rounds, "relative_error": before.get(label), "round_ms": list(ms),
        }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", action="append", required=True, help="shared library; several compare builds of the same variants")
    parser.add_argument("--head-dim", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--seqlen", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--target", default="sm80")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--round-ms", type=float, default=20)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()

    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[args.dtype]
    libraries = {path: Library(path) for path in args.library}
    print(f"# {card_state()}; torch {torch.__version__}; {args.dtype}", flush=True)
    rows = []
    for d in args.head_dim:
        for causal in (False, True):
            name = f"flash_fwd_hdim{d}_{args.dtype}{'_causal' if causal else ''}_{args.target}"
            candidates = {}
            for path, library in libraries.items():
                if hasattr(library.lib, name):
                    candidates[path.rsplit("/", 1)[-1].removesuffix(".so")] = library.launcher(name)
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
    print(f"# {card_state()}")
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"card": card_state(), "torch": torch.__version__, "target": args.target, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
