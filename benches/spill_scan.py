"""Compiles default plans of the forward kernels for every head dim and target and reports spills. Needs nvcc, no GPU.

    python3 benches/spill_scan.py --kgen target/release/kgen                     # all: some 780 kernels
    python3 benches/spill_scan.py --target sm120 sm121 --head-dim 64 128         # a part

Prints a Markdown table, one row per target: kernels, those that spill or use local memory, most registers. Exit code
1 if one spills. Objects stay in kgen's cache, so a second run is quick. A row of --out is a kernel that spills, or a
target.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import Bench, parser

ALL = range(16, 257, 8)
TARGETS = {"sm75": range(16, 129, 8), **dict.fromkeys(("sm80", "sm89", "sm90", "sm100", "sm120", "sm121"), ALL)}
SPILLS = ("spill_store_bytes", "spill_load_bytes", "stack_bytes")


def build(args, target, head_dims):
    """The artifacts of one target's default plans, from `kgen build --format json`."""
    dtypes = "fp16" if target == "sm75" else args.dtype
    with tempfile.TemporaryDirectory() as root:
        command = [args.kgen.resolve(), "build", "--kind", "fwd", "--dtype", dtypes, "--target", target]
        command += ["--format", "json", "--jobs", str(args.jobs), "--head-dim", ",".join(map(str, head_dims))]
        command += ["--generated", f"{root}/generated", "--build-dir", f"{root}/build"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{target}: {done.stderr.strip()}")
    return [found for found in json.loads(done.stdout)["artifacts"] if found["target"]]  # all except the dispatcher


def main():
    arguments = parser(__doc__, library=None, gpu=False, head_dim=None)
    arguments.add_argument("--kgen", default="target/release/kgen", type=Path)
    arguments.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    arguments.add_argument("--dtype", default="fp16,bf16")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    bench = Bench(args := arguments.parse_args())
    print("| target | kernels | spill | most registers | CPU s a kernel |\n|---|---|---|---|---|")
    for target in bench.selected(args.target, str):
        artifacts = build(args, target, [d for d in TARGETS[target] if args.head_dim is None or d in args.head_dim])
        bad = [a["name"] for a in artifacts if any(k[size] for k in a["resources"] for size in SPILLS)]
        most = max(k["registers"] for a in artifacts for k in a["resources"])
        seconds = sum(a["cpu_seconds"] for a in artifacts) / len(artifacts)
        print(f"| {target} | {len(artifacts)} | {len(bad)} | {most} | {seconds:.1f} |", flush=True)
        for name in bad:
            bench.add(target, name, "wrong", "spills or uses local memory")
        bench.add(target, "kgen", numbers={"kernels": len(artifacts), "registers": most, "cpu_seconds": seconds})
    return bench.finish(tables=False)


if __name__ == "__main__":
    sys.exit(main())
