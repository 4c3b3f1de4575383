"""Times kgen's own commands on this machine: wall time, in fresh folders, with a warm object cache.

    python3 benches/commands.py [--kgen target/release/kgen] [--runs 15]

Needs nvcc (kgen's own will do) for the last rows only.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab import Bench, parser

HEAD_DIMS = ",".join(str(d) for d in range(16, 257, 8))
FOUR = f"for i in 1 2 3 4; do $KGEN generate --head-dim {HEAD_DIMS} --output $i || exit; done"
# Description, command, and whether its folder persists
COMMANDS = [
    ("kgen list", "$KGEN list", False),
    ("kgen list --set standard-74 --format json", "$KGEN list --set standard-74 --format json", False),
    ("kgen generate --all, empty folder", "$KGEN generate --all", False),
    ("kgen generate --all, nothing changed", "$KGEN generate --all", True),
    ("kgen generate --head-dim 16,24,…,256, empty folder (124 kernels)", f"$KGEN generate --head-dim {HEAD_DIMS}",
        False),
    ("the same into four empty folders, one after another (496 kernels)", FOUR, False),
    ("kgen build-all --device emulator, nothing changed", "$KGEN build-all --device emulator", True),
]


def seconds(command, kgen, folder):
    begun = time.perf_counter()
    environment = {**os.environ, "KGEN": kgen}
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{command} failed: {done.stderr.strip()[-400:]}")
    return time.perf_counter() - begun


def main():
    arguments = parser(__doc__, library=None, gpu=False)
    arguments.add_argument("--kgen", default="target/release/kgen", type=Path)
    arguments.add_argument("--runs", type=int, default=15)
    bench = Bench(args := arguments.parse_args(), cores=os.cpu_count(), load=os.getloadavg()[0])
    runs = 2 if args.quick else args.runs
    for what, command, stays in bench.selected(COMMANDS):
        times = []
        with tempfile.TemporaryDirectory() as whole:
            for run in range(runs + stays):  # the first run in a persistent folder is not counted
                folder = Path(whole) / ("one" if stays else str(run))
                folder.mkdir(exist_ok=True)
                times.append(1e6 * seconds(command, str(args.kgen.resolve()), folder))
        bench.clocked(what, times[stays:])
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
