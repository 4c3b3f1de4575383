"""Times K and V by TMA beside K and V by cp.async, in the same kernel with the same tile, on a Hopper GPU.

    python3 benches/tma_vs_cp_async.py --kgen target/release/kgen --out tma.json

Builds the portable forward kernels of sm100, to run as sm90's, with both, the default tile and a two-stage one, and times all four of a head
dim and mask in one process, turn by turn, beside FlashAttention-2 (fwd_vs_fa2.py's rules). Prints a Markdown table whose
ratio is TMA's speed over cp.async's with the same tile, with its 95 % bootstrap interval. Needs a GPU of compute capability
9.0, nvcc and PyTorch.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import torch

from fwd_vs_fa2 import card_state, measure, median_interval
from kgen_ctypes import Library

COPIES = ("cp_async", "tma")

# Beside the plan's own tile: two stages, so that a whole tile is on its way under the other.
TWO_STAGES = {
    32: "m = 128\nn = 64\nstages = 2\nq_in_registers = true\nmin_blocks_per_sm = 2",
    64: "m = 128\nn = 64\nstages = 2\nq_in_registers = true\nmin_blocks_per_sm = 2",
    96: "m = 128\nn = 48\nstages = 2\nmin_blocks_per_sm = 2",
    128: "m = 128\nn = 32\nstages = 2\nmin_blocks_per_sm = 2",
    192: "m = 64\nn = 32\nstages = 2\nq_in_registers = true\nmin_blocks_per_sm = 2",
    256: "m = 64\nn = 32\nstages = 2\nmin_blocks_per_sm = 1",
}

GRID = """version = 1
[targets.sm100]
description = "K and V by {copy}"
[[family]]
kind = ["fwd"]
head_dim = [{head_dim}]
dtype = ["bf16"]
mask = ["full", "causal"]
target = ["sm100"]
[[tile]]
when = "hdim == {head_dim}"
measured = "candidate of benches/tma_vs_cp_async.py"
copy = "{copy}"
{tile}
"""


def build(kgen, root, head_dim, tile, copy):
    """Builds both masks of one candidate; its library, or None where it is refused."""
    folder = Path(root) / f"d{head_dim}-{tile}-{copy}"
    folder.mkdir(parents=True)
    grid = folder / "grid.toml"
    grid.write_text(GRID.format(head_dim=head_dim, copy=copy, tile=TWO_STAGES[head_dim] if tile == "two stages" else ""))
    command = [kgen, "--variants", grid, "build", "--run-as", "sm90", "--format", "json", "--build-dir", folder / "build"]
    done = subprocess.run(command, capture_output=True, text=True)
    library = folder / "build/run-as-sm90/lib/libkgen.so"
    if done.returncode != 0 or not library.exists():
        print(f"d{head_dim} {tile} {copy}: not built: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    return library


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kgen", default="target/release/kgen")
    parser.add_argument("--head-dim", type=int, nargs="+", default=[64, 128, 256], choices=list(TWO_STAGES))
    parser.add_argument("--seqlen", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--round-ms", type=float, default=8)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()

    torch.manual_seed(0)
    rows = []
    with tempfile.TemporaryDirectory() as root:
        jobs = [(d, tile, copy) for d in args.head_dim for tile in ("default", "two stages") for copy in COPIES]
        with ThreadPoolExecutor(8) as pool:
            built = dict(zip(jobs, pool.map(lambda job: build(args.kgen, root, *job), jobs)))
        print(f"{card_state()}; torch {torch.__version__}; bf16\n")
        print("| head dim | mask | s | tile | cp.async TFLOP/s | TMA TFLOP/s | TMA over cp.async | FA2 |\n|---|---|---|---|---|---|---|---|")
        for d in args.head_dim:
            for causal in (False, True):
                name = f"flash_fwd_hdim{d}_bf16{'_causal' if causal else ''}_sm100"
                candidates = {f"{t} {c}": Library(str(built[d, t, c])).launcher(name) for of, t, c in jobs if of == d and built[d, t, c]}
                for s in args.seqlen:
                    row = measure(candidates, torch.bfloat16, d, causal, s, args.rounds, args.round_ms)
                    rows.append(row)
                    kernels = row["kernels"]
                    for tile in ("default", "two stages"):
                        both = [kernels.get(f"{tile} {copy}") for copy in COPIES]
                        if None in both:
                            continue
                        ratios = [old / new for old, new in zip(*(kernel["round_ms"] for kernel in both))]
                        low, high = median_interval(ratios)
                        print(
                            f"| {d} | {'causal' if causal else 'full'} | {s} | {tile} | {both[0]['tflops']:.0f} | {both[1]['tflops']:.0f} "
                            f"| {median(ratios):.3f} ({low:.3f} to {high:.3f}) | {kernels['fa2']['tflops']:.0f} |",
                            flush=True,
                        )
    if args.out:
        Path(args.out).write_text(json.dumps({"card": card_state(), "torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
