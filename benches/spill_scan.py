"""Compiles default plans of the forward kernels for every head dim and target and says which spill. Needs nvcc, no GPU.

    python3 benches/spill_scan.py --kgen target/release/kgen                     # all: some 780 kernels
    python3 benches/spill_scan.py --target sm120 sm121 --head-dim 64 128         # a part

Prints a Markdown table, a row a target: kernels, those that spill or use local memory, most registers. Exit code 1 if
one spills. Objects stay in kgen's cache, so a second run is quick.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TARGETS = {"sm75": range(16, 129, 8),
    **{t: range(16, 257, 8) for t in ("sm80", "sm89", "sm90", "sm100", "sm120", "sm121")}}


def build(kgen, target, head_dims, dtypes, jobs):
    """The artifacts of one target's default plans, as `kgen build --format json` tells them."""
    with tempfile.TemporaryDirectory() as root:
        command = [kgen, "build", "--kind", "fwd", "--dtype", dtypes, "--target", target, "--format", "json", "--jobs",
            str(jobs)]
        command += ["--head-dim", ",".join(map(str, head_dims)), "--generated", f"{root}/generated", "--build-dir",
            f"{root}/build"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{target}: {done.stderr.strip()}")
    return [artifact for artifact in json.loads(done.stdout)["artifacts"]
        if artifact["target"]]  # all but the dispatcher


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kgen", default="target/release/kgen")
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--head-dim", type=int, nargs="+", help="only these")
    parser.add_argument("--dtype", default="fp16,bf16")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()

    kgen = str(Path(args.kgen).resolve())
    spilling = []
    print("| target | kernels | spill | most registers | CPU s a kernel |\n|---|---|---|---|---|")
    for target in args.target:
        head_dims = [d for d in TARGETS[target] if args.head_dim is None or d in args.head_dim]
        artifacts = build(kgen, target, head_dims, "fp16" if target == "sm75" else args.dtype, args.jobs)
        bad = [
            a["name"]
            for a in artifacts
            if any(k["spill_store_bytes"] or k["spill_load_bytes"] or k["stack_bytes"] for k in a["resources"])
        ]
        most = max(k["registers"] for a in artifacts for k in a["resources"])
        seconds = sum(a["cpu_seconds"] for a in artifacts) / len(artifacts)
        print(f"| {target} | {len(artifacts)} | {len(bad)} | {most} | {seconds:.1f} |", flush=True)
        spilling += bad
    for name in spilling:
        print(f"spills: {name}", file=sys.stderr)
    return 1 if spilling else 0


if __name__ == "__main__":
    sys.exit(main())
