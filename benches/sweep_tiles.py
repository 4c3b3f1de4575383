"""Times candidate tiles of the portable forward kernel beside FlashAttention-2, to choose the defaults of src/plan/fwd_tiles.rs.

    python3 benches/sweep_tiles.py --kgen target/release/kgen --out sweep.json

Each candidate is a `[[tile]]` entry in a grid of its own, built by kgen into a folder of its own; all candidates of a
head dim are then timed in one process by fwd_vs_fa2.py's rules. Prints a Markdown table. Needs a GPU, nvcc, PyTorch.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from fwd_vs_fa2 import card_state, measure
from kgen_ctypes import Library

# m, n, warps, stages, q_in_registers, min_blocks_per_sm, rescale_threshold
CANDIDATES = {
    32: [(128, 64, 4, 2, 0, 3, 8), (128, 64, 4, 2, 1, 2, 8), (128, 128, 4, 2, 1, 2, 8), (128, 128, 4, 1, 1, 2, 8)],
    64: [(128, 128, 4, 1, 0, 2, 8), (128, 112, 4, 1, 0, 2, 8), (128, 128, 4, 2, 0, 2, 8), (128, 64, 4, 2, 1, 2, 8), (128, 80, 4, 2, 1, 2, 8), (128, 128, 4, 1, 0, 2, 0)],
    80: [(128, 64, 4, 1, 0, 2, 8), (128, 80, 4, 1, 0, 2, 8), (128, 96, 4, 1, 0, 2, 8)],
    96: [(128, 64, 4, 1, 0, 2, 8), (128, 80, 4, 1, 0, 2, 8), (128, 64, 4, 2, 0, 2, 8), (64, 64, 4, 1, 1, 3, 8)],
    128: [(128, 64, 4, 1, 0, 2, 8), (128, 48, 4, 1, 0, 2, 8), (128, 32, 4, 2, 0, 2, 8), (64, 64, 4, 1, 1, 2, 8), (128, 64, 8, 1, 0, 1, 8), (128, 64, 4, 1, 0, 2, 0)],
    160: [(64, 64, 4, 1, 1, 2, 8), (64, 64, 4, 1, 0, 2, 8), (128, 64, 8, 1, 0, 1, 8), (128, 32, 4, 1, 0, 2, 8)],
    192: [(64, 64, 4, 1, 1, 2, 8), (64, 64, 4, 1, 0, 2, 8), (128, 64, 8, 1, 0, 1, 8), (64, 80, 4, 1, 0, 1, 8)],
    224: [(64, 64, 4, 1, 0, 1, 8), (64, 80, 4, 1, 0, 1, 8), (128, 64, 8, 1, 0, 1, 8)],
    256: [(64, 64, 4, 1, 0, 1, 8), (64, 80, 4, 1, 0, 1, 8), (128, 64, 8, 1, 0, 1, 8), (64, 64, 4, 1, 0, 1, 0)],
}

GRID = """version = 1
[targets.{target}]
description = "tile sweep"
[[family]]
kind = ["fwd"]
head_dim = [{head_dim}]
dtype = ["bf16"]
mask = ["full", "causal"]
target = ["{target}"]
[[tile]]
when = "hdim == {head_dim}"
measured = "candidate of benches/sweep_tiles.py"
m = {m}
n = {n}
warps = {warps}
stages = {stages}
q_in_registers = {q}
min_blocks_per_sm = {blocks}
rescale_threshold = {threshold}
"""


def label(tile):
    m, n, warps, stages, q, blocks, threshold = tile
    return f"{m}x{n} w{warps} s{stages}{' q' if q else ''} b{blocks}" + ("" if threshold == 8 else f" t{threshold}")


def build(kgen, root, target, head_dim, tile):
    """Builds both masks of one candidate; the library's path and its spill count, or None where the plan is refused."""
    m, n, warps, stages, q, blocks, threshold = tile
    folder = Path(root) / f"d{head_dim}" / label(tile).replace(" ", "_")
    folder.mkdir(parents=True)
    grid = folder / "grid.toml"
    grid.write_text(GRID.format(target=target, head_dim=head_dim, m=m, n=n, warps=warps, stages=stages, q=str(bool(q)).lower(), blocks=blocks, threshold=threshold))
    command = [kgen, "--variants", grid, "build", "--format", "json", "--generated", folder / "generated", "--build-dir", folder / "build"]
    done = subprocess.run(command, capture_output=True, text=True)
    library = folder / "build/lib/libkgen.so"
    if done.returncode != 0 or not library.exists():
        print(f"d{head_dim} {label(tile)}: not built: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    artifacts = json.loads(done.stdout)["artifacts"]
    spills = sum(k["spill_store_bytes"] + k["spill_load_bytes"] for a in artifacts for k in a["resources"])
    return library, spills


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kgen", default="target/release/kgen")
    parser.add_argument("--target", default="sm80", help="whose machine code the GPU at hand runs")
    parser.add_argument("--head-dim", type=int, nargs="+", default=list(CANDIDATES))
    parser.add_argument("--seqlen", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-ms", type=float, default=8)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()

    torch.manual_seed(0)
    rows = []
    with tempfile.TemporaryDirectory() as root:
        jobs = [(d, tile) for d in args.head_dim for tile in CANDIDATES[d]]
        with ThreadPoolExecutor(8) as pool:
            built = dict(zip(jobs, pool.map(lambda job: build(args.kgen, root, args.target, *job), jobs)))
        print(f"{card_state()}; torch {torch.__version__}; bf16\n")
        print("| head dim | mask | s | FA2 | candidates: TFLOP/s (× FA2) |\n|---|---|---|---|---|")
        for d in args.head_dim:
            for causal in (False, True):
                name = f"flash_fwd_hdim{d}_bf16{'_causal' if causal else ''}_{args.target}"
                candidates = {label(t): Library(str(built[d, t][0])).launcher(name) for t in CANDIDATES[d] if built[d, t]}
                for s in args.seqlen:
                    row = measure(candidates, torch.bfloat16, d, causal, s, args.rounds, args.round_ms)
                    row["spill_bytes"] = {label(t): built[d, t][1] for t in CANDIDATES[d] if built[d, t]}
                    rows.append(row)
                    ranked = sorted(((k, v) for k, v in row["kernels"].items() if k != "fa2"), key=lambda kv: -kv[1]["tflops"])
                    cells = ", ".join(
                        f"{k}{' (spills)' if row['spill_bytes'][k] else ''}: {v['tflops']:.0f} ({v['ratio']:.2f})" for k, v in ranked
                    )
                    print(f"| {d} | {'causal' if causal else 'full'} | {s} | {row['kernels']['fa2']['tflops']:.0f} | {cells} |", flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps({"card": card_state(), "torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
