#!/usr/bin/env python3
"""Draws random kernels, most of which are in no grid, and checks each with `kgen check` on the emulator.

    python3 scripts/random_variants.py [--seed N] [--seconds S] [--out FILE]

The grid contains the head dims and features that users request; other kernels can be generated too. The script draws
the kind, the head dims of Q and K and of V (half of them near multiples of 64, where panels end, and at both limits),
the dtype, the target, the mask and up to four features, often together with pages and packed heads. Kernels that kgen
refuses to generate, with exit code 2 and a reason, are counted and cost milliseconds.

Prints the command of each kernel that fails, which is how to run it again, and the counts. --out FILE has the same as
JSON, with the seconds of each. Exit code 0: none failed; 1: some did. KGEN names the kgen binary (target/release/kgen).
"""

import argparse
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGETS = ["sm90"] * 4 + ["sm80", "sm80", "sm75", "sm89", "sm100", "sm120"]
KINDS = ["fwd"] * 5 + ["fwd_split"] * 3 + ["fwd_short", "bwd", "bwd"]
EDGES = [16, 24, 32, 40, 64, 72, 128, 136, 192, 200, 248, 256]


def features_of(kgen):
    """All features: kgen's error for an unknown one lists them."""
    said = subprocess.run([kgen, "list", "--features", "?"], capture_output=True, text=True, check=False).stderr
    known = re.findall(r"`(\w+)`", said.partition("known:")[2])
    if not known:
        sys.exit(f"error: `{kgen} list --features ?` does not name the features: {said}")
    return known


def drawn(draw, known):
    """The arguments that select one kernel."""
    head_dim = lambda: draw.choice(EDGES if draw.random() < 0.5 else range(16, 257, 8))
    qk = head_dim()
    v = qk if draw.random() < 0.4 else head_dim()
    features = set(draw.sample(known, draw.choice([0, 1, 1, 2, 2, 3, 4])))
    if draw.random() < 0.3:
        features |= {"packgqa", "paged"}
    words = ["--kind", draw.choice(KINDS), "--head-dim", str(qk) if v == qk else f"{qk}_{v}", "--target", draw.choice(TARGETS)]
    words += ["--dtype", draw.choice(["bf16", "bf16", "fp16", "fp8"])]
    if features:
        words += ["--features", ",".join(sorted(features))]
    return words + ["--causal"] * (draw.random() < 0.6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600, help="after which no other kernel is drawn")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    kgen = pathlib.Path(os.environ.get("KGEN", ROOT / "target/release/kgen")).resolve()
    if not kgen.is_file():
        parser.error(f"`{kgen}` is not there: `cargo build --release` makes it, and KGEN names another")
    draw, known, begin, rows = random.Random(args.seed), features_of(kgen), time.monotonic(), []
    with tempfile.TemporaryDirectory() as place:
        while time.monotonic() - begin < args.seconds:
            words, since = drawn(draw, known), time.monotonic()
            run = subprocess.run([kgen, "check", "--device", "emulator", *words], cwd=place, capture_output=True, text=True, check=False)
            result = {0: "passed", 2: "refused"}.get(run.returncode, "failed")
            rows.append({"selection": shlex.join(words), "result": result, "seconds": round(time.monotonic() - since, 2)})
            if result == "failed":
                rows[-1]["said"] = (run.stdout + run.stderr)[-3000:]
                print(f"failed: kgen check --device emulator {shlex.join(words)}\n{rows[-1]['said']}", flush=True)
            elif sys.stderr.isatty():
                print(f"\r{counts(rows)} ", end="", file=sys.stderr, flush=True)
    print(f"{counts(rows)}; seed {args.seed}")
    if args.out is not None:
        args.out.write_text(json.dumps({"seed": args.seed, "kernels": rows}, indent=1) + "\n")
    return 1 if any(row["result"] == "failed" for row in rows) else 0


def counts(rows):
    return ", ".join(f"{sum(row['result'] == result for row in rows)} {result}" for result in ("passed", "refused", "failed"))


if __name__ == "__main__":
    sys.exit(main())
