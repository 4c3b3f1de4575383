"""Times kgen's own commands on the machine at hand: medians of wall time, in fresh folders, with a warm object cache.

    python3 benches/commands.py [--kgen target/release/kgen] [--runs 15]

Prints a Markdown table. Needs nvcc (kgen's own will do) for the last rows only.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ALL_HEAD_DIMS = ",".join(str(d) for d in range(16, 257, 8))


def run(command, folder):
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed: {done.stderr.strip()[-400:]}")
    return time.perf_counter() - start


def fresh(command, runs):
    """Each run in a folder of its own."""
    times = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            times.append(run(command, folder))
    return times


def repeated(command, runs):
    """One folder; the first run is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        run(command, folder)
        return [run(command, folder) for _ in range(runs)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kgen", default="target/release/kgen", type=Path)
    parser.add_argument("--runs", type=int, default=15)
    args = parser.parse_args()
    kgen = str(args.kgen.resolve())
    rows = [
        ("`kgen list`", fresh([kgen, "list"], args.runs)),
        ("`kgen list --set standard-74 --format json`", fresh([kgen, "list", "--set", "standard-74", "--format", "json"], args.runs)),
        ("`kgen generate --all`, empty folder (32 kernels)", fresh([kgen, "generate", "--all"], args.runs)),
        ("`kgen generate --all`, nothing changed", repeated([kgen, "generate", "--all"], args.runs)),
        ("`kgen generate --head-dim 16,24,…,256`, empty folder (124 kernels)", fresh([kgen, "generate", "--head-dim", ALL_HEAD_DIMS], args.runs)),
        (
            "the same into four empty folders, one after another (496 kernels)",
            fresh(["sh", "-c", f"for i in 1 2 3 4; do {kgen} generate --head-dim {ALL_HEAD_DIMS} --output $i || exit; done"], args.runs),
        ),
        ("`kgen build-all --device emulator`, nothing changed", repeated([kgen, "build-all", "--device", "emulator"], args.runs)),
    ]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {args.runs} runs each\n")
    print("| command | median | slowest |\n|---|---|---|")
    for label, times in rows:
        print(f"| {label} | {statistics.median(times) * 1e3:.1f} ms | {max(times) * 1e3:.1f} ms |")


if __name__ == "__main__":
    main()
