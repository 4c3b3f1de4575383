"""Times candidate tiles of the Hopper forward kernels beside their peers, to choose the defaults of src/plan/hopper.rs and hopper_fp8.rs.

    python3 benches/sweep_hopper.py --kgen target/release/kgen --out sweep.json
    python3 benches/sweep_hopper.py --candidates ladder.json --head-dim 64 128 256
    python3 benches/sweep_hopper.py --candidates fp8.json --dtype fp8

A candidate is a set of `[[tile]]` keys, built by kgen into a folder of its own, with kgen's templates or those of the folder
`templates` names; all candidates of a head dim and mask are then timed in one process, in alternating rounds, by the rules of
side_by_side.py. `--candidates` names a JSON file {"<head dim>": [{"m": 128, "n": 128, ...}, ...]}, or {"<head dim> causal": ...} and
{"<head dim> full": ...} for one mask. A candidate that spills is built and timed too, and marked. Needs a GPU of 9.0, nvcc, PyTorch;
FA3 where the `fa3-fwd` wheel is unpacked in a folder named by --site.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from fwd_vs_fa2 import TOKENS, WIDTH, card_state
from kgen_ctypes import Library
from side_by_side import LARGEST_ERROR, Kgen, Tensors, fa3_of_wheel, peer, rounds_of

GRID = """version = 1
[targets.sm90]
description = "tile sweep"
[[family]]
kind = ["fwd"]
head_dim = [{head_dim}]
dtype = ["{dtype}"]
mask = ["full", "causal"]
target = ["sm90"]
"""
RULE = """[[tile]]
when = "hdim == {head_dim}"
measured = "candidate of benches/sweep_hopper.py"
{keys}
"""


PEERS = {"bf16": ["cudnn", "fa3"], "fp16": ["cudnn"], "fp8": ["fa3"]}


def label(tile):
    words = [f"{tile['m']}x{tile['n']}"] if "m" in tile else []
    words += [key if value is True else f"no-{key}" if value is False else f"{key}{value}" for key, value in tile.items() if key not in ("m", "n", "warps", "templates", "turns")]
    words += [tile["turns"]] if "turns" in tile else []
    words += [Path(tile["templates"]).name] if "templates" in tile else []
    return " ".join(words) or "default"


def build(kgen, folder, head_dim, dtype, tile):
    """(the library of one candidate, whether a kernel of it spills), or None with the reason printed."""
    tile = dict(tile)
    templates = ["--templates", tile.pop("templates")] if "templates" in tile else []
    if "m" in tile:
        tile["warps"] = 4 + tile["m"] // 16
    keys = "\n".join(f"{key} = {json.dumps(value)}" for key, value in tile.items())
    place = Path(tempfile.mkdtemp(dir=folder))
    grid = GRID.format(head_dim=head_dim, dtype=dtype) + (RULE.format(head_dim=head_dim, keys=keys) if keys else "")
    (place / "variants.toml").write_text(grid)
    done = subprocess.run(
        [kgen, *templates, "--variants", place / "variants.toml", "build", "--all", "--build-dir", place, "--generated", place / "generated",
         "--offline", "--allow-spills", "-j", "2"], capture_output=True, text=True)
    if done.returncode:
        print(f"# d{head_dim} {label(tile)}: not built: {done.stderr.strip().splitlines()[-1] if done.stderr else ''}", flush=True)
        return None
    spills = '"spill_store_bytes": 0' not in (place / "report.json").read_text() or "registers spill" in done.stdout + done.stderr
    return Library(str(place / "lib/libkgen.so")), spills


def measure(libraries, name, args, fa3, head_dim, causal, seqlen):
    heads, batch = max(1, WIDTH // head_dim), max(1, TOKENS // seqlen)
    t = Tensors(args.dtype, batch, heads, seqlen, head_dim, causal)
    functions = {side: attend for side in PEERS[args.dtype] if (attend := peer(side, t, fa3))}
    for words, library in libraries.items():
        kgen = Kgen(library, name, t)
        kgen()
        torch.cuda.synchronize()
        error = t.error(kgen.out)
        if not error < LARGEST_ERROR[args.dtype] or kgen.lse.isnan().any():
            print(f"WRONG: {words} at d{head_dim} s{seqlen} causal={causal}: relative error {error}", flush=True)
            continue
        functions[words] = kgen
    times = rounds_of({words: (f, 1) for words, f in functions.items()}, args.rounds, args.round_ms)
    flops = 4 * batch * heads * seqlen * seqlen * head_dim * (0.5 if causal else 1)
    tflops = {words: flops / statistics.median(ms) / 1e9 for words, ms in times.items()}
    return {"head_dim": head_dim, "causal": causal, "seqlen": seqlen, "batch": batch, "heads": heads, "dtype": args.dtype, "tflops": tflops}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kgen", default="target/release/kgen")
    parser.add_argument("--candidates", type=Path)
    parser.add_argument("--head-dim", type=int, nargs="+")
    parser.add_argument("--seqlen", type=int, nargs="+", default=[2048, 16384])
    parser.add_argument("--dtype", choices=["bf16", "fp16", "fp8"], default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-ms", type=float, default=10)
    parser.add_argument("--site", default=os.environ.get("PEERS_SITE"))
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    fa3 = fa3_of_wheel(args.site)
    candidates = json.loads(args.candidates.read_text()) if args.candidates else {"64": [{}], "128": [{}], "256": [{}]}
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    print(f"# {card_state()}; torch {torch.__version__}; {args.dtype}", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for key, tiles in candidates.items():
            head_dim = int(key.split()[0])
            if args.head_dim and head_dim not in args.head_dim:
                continue
            masks = {"causal": [True], "full": [False]}.get((key.split() + [""])[1], [False, True])
            jobs.append((head_dim, masks, tiles))
        distinct = {(head_dim, label(tile)): tile for head_dim, _, tiles in jobs for tile in tiles}
        with ThreadPoolExecutor(8) as pool:
            built = dict(zip(distinct, pool.map(lambda item: build(args.kgen, folder, item[0][0], args.dtype, item[1]), distinct.items())))
        for head_dim, masks, tiles in jobs:
            for causal in masks:
                name = f"flash_fwd_hdim{head_dim}_{args.dtype}{'_causal' if causal else ''}_sm90"
                found = {label(tile): built[head_dim, label(tile)] for tile in tiles if built[head_dim, label(tile)]}
                libraries = {words + (" (spills)" if spills else ""): library for words, (library, spills) in found.items()}
                for seqlen in args.seqlen:
                    row = measure(libraries, name, args, fa3, head_dim, causal, seqlen)
                    rows.append(row)
                    cells = ", ".join(f"{words} {value:.0f}" for words, value in sorted(row["tflops"].items(), key=lambda item: -item[1]))
                    print(f"d{head_dim} {'causal' if causal else 'full'} s{seqlen}: {cells}", flush=True)
                    if args.out:
                        Path(args.out).write_text(json.dumps({"card": card_state(), "torch": torch.__version__, "rows": rows}, indent=1))
    print(f"# {card_state()}")


if __name__ == "__main__":
    main()
