"""FP8 forward kernels on the GPU at hand: correct first, then timed beside FlashAttention-2 in bf16 on the same shapes.

    kgen build --dtype fp8 --target sm121 --run-as sm90
    python3 benches/fp8_forward.py --library build/run-as-sm90/lib/libkgen.so --target sm121 --out results.json

On Hopper such kernels are run for their correctness: it has no FP8 `mma.sync`, and ptxas makes two fp16 ones of each.
The times then say nothing of the GPU a kernel was made for, and the ratio is beside a kernel that reads twice the bytes.

Inputs are normal, quantised to E4M3 with a factor for each batch entry and head (amax / 448), which the kernel gets as
descales; the reference is float64 attention on the dequantised tensors. Other rules as in fwd_vs_fa2.py.
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fwd_vs_fa2 import TOKENS, WIDTH, card_state, median_interval, relative_error, side_by_side
from kgen_ctypes import Library, fwd_params, quantised

# P is rounded to three bits of mantissa: errors of up to 1/16, 0.026 in the mean square, which average out with V alone.
LARGEST_ERROR = 0.05


def dequantised(x, scale):
    return x.double() * scale.double()[:, None, :, None]


def measure(launch, head_dim, causal, seqlen, rounds, round_ms):
    heads, batch = max(1, WIDTH // head_dim), max(1, TOKENS // seqlen)
    exact = [torch.randn(batch, seqlen, heads, head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    tensors, scales = zip(*map(quantised, exact))
    o = torch.full_like(exact[0], float("nan"))
    lse = torch.full((batch, heads, seqlen), float("nan"), device="cuda", dtype=torch.float32)
    p = fwd_params(*tensors, o, lse, causal, descales=scales)
    qt, kt, vt = (x.transpose(1, 2) for x in exact)

    def fa2():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(qt, kt, vt, is_causal=causal)

    wide = [dequantised(x[-1:, :, -1:], scale[-1:, -1:]) for x, scale in zip(tensors, scales)]

    def error():
        torch.cuda.synchronize()
        found = relative_error(o, *wide, causal)
        if not found < LARGEST_ERROR or lse.isnan().any() or o.isnan().any():
            raise SystemExit(f"wrong at d{head_dim} s{seqlen} causal={causal}: relative error {found}")
        return found

    launch(p)
    before = error()
    times = side_by_side({"fa2_bf16": fa2, "kgen_fp8": lambda: launch(p)}, rounds, round_ms)
    error()
    flops = 4 * batch * heads * seqlen * seqlen * head_dim * (0.5 if causal else 1)
    ratio = [peer / own for peer, own in zip(times["fa2_bf16"], times["kgen_fp8"])]
    row = {label: flops / statistics.median(ms) / 1e9 for label, ms in times.items()}
    shape = {"head_dim": head_dim, "causal": causal, "seqlen": seqlen, "batch": batch, "heads": heads, "relative_error": before}
    return {**shape, **row, "ratio": statistics.median(ratio), "interval": median_interval(ratio), "rounds": rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--target", default="sm121", help="target in the kernels' names")
    parser.add_argument("--head-dim", type=int, nargs="+", default=[64, 128, 224, 256])
    parser.add_argument("--seqlen", type=int, nargs="+", default=[512, 4096])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--round-ms", type=float, default=20)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()

    torch.manual_seed(0)
    library = Library(args.library)
    print(f"# {card_state()}; torch {torch.__version__}; kernels of {args.target}", flush=True)
    rows = []
    for d in args.head_dim:
        for causal in (False, True):
            name = f"flash_fwd_hdim{d}_fp8{'_causal' if causal else ''}_{args.target}"
            if not hasattr(library.lib, name):
                print(f"# the library holds no {name}")
                continue
            for s in args.seqlen:
                row = measure(library.launcher(name), d, causal, s, args.rounds, args.round_ms)
                rows.append(row)
                low, high = row["interval"]
                print(
                    f"d{d} {'causal' if causal else 'full  '} s{s} b{row['batch']} h{row['heads']}: kgen fp8 {row['kgen_fp8']:.0f}, "
                    f"FA2 bf16 {row['fa2_bf16']:.0f} TFLOP/s ({row['ratio']:.3f} [{low:.3f}, {high:.3f}]), relative error {row['relative_error']:.4f}",
                    flush=True,
                )
    print(f"# {card_state()}")
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"card": card_state(), "torch": torch.__version__, "target": args.target, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
