"""Times candidate tiles of the Hopper forward kernel beside FA3 and cuDNN, to choose the defaults of src/plan/hopper.rs.

    python3 benches/sweep_hopper.py --kgen target/release/kgen --out sweep.json
    python3 benches/sweep_hopper.py --candidates ladder.json --head-dim 64 128 256

A candidate is a set of `[[tile]]` keys, built by kgen into a folder of its own; all candidates of a head dim and mask are then timed
in one process, in alternating rounds. `--candidates` names a JSON file {"<head dim>": [{"m": 128, "n": 128, ...}, ...]}, or
{"<head dim> causal": ...} and {"<head dim> full": ...} for one mask. Needs a GPU of 9.0, nvcc, PyTorch; FA3 where the `fa3-fwd`
wheel is installed or unpacked in a folder named by --site.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fwd_vs_fa2 import TOKENS, WIDTH, card_state, relative_error, side_by_side
from kgen_ctypes import Library, fwd_params

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


def label(tile):
    words = [f"{tile['m']}x{tile['n']}"] if "m" in tile else []
    words += [key if value is True else f"no-{key}" if value is False else f"{key}{value}" for key, value in tile.items() if key not in ("m", "n", "warps")]
    return " ".join(words) or "default"


def build(kgen, folder, head_dim, dtype, tile):
    """The library of one candidate, or None with the reason printed."""
    tile = dict(tile)
    if "m" in tile:
        tile["warps"] = 4 + tile["m"] // 16
    keys = "\n".join(f"{key} = {str(value).lower() if isinstance(value, bool) else value}" for key, value in tile.items())
    place = Path(folder) / f"{head_dim}-{label(tile).replace(' ', '_')}"
    place.mkdir(parents=True)
    grid = GRID.format(head_dim=head_dim, dtype=dtype) + (RULE.format(head_dim=head_dim, keys=keys) if keys else "")
    (place / "variants.toml").write_text(grid)
    done = subprocess.run(
        [kgen, "--variants", place / "variants.toml", "build", "--all", "--build-dir", place, "--generated", place / "generated", "--offline", "-j", "2"],
        capture_output=True, text=True)
    if done.returncode:
        print(f"# d{head_dim} {label(tile)}: not built: {done.stderr.strip().splitlines()[-1] if done.stderr else ''}", flush=True)
        return None
    return Library(str(place / "lib/libkgen.so"))


def peers(q, k, v, causal):
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))

    def cudnn():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(qt, kt, vt, is_causal=causal)

    found = {"cudnn": cudnn}
    try:
        from fa3_fwd_interface import flash_attn_func

        found["fa3"] = lambda: flash_attn_func(q, k, v, causal=causal)
    except ImportError as missing:
        print(f"# no FA3: {missing}", flush=True)
    return found


def measure(libraries, name, dtype, head_dim, causal, seqlen, rounds, round_ms):
    heads, batch = max(1, WIDTH // head_dim), max(1, TOKENS // seqlen)
    q, k, v = (torch.randn(batch, seqlen, heads, head_dim, device="cuda", dtype=dtype) for _ in range(3))
    functions, outputs = peers(q, k, v, causal), {}
    for words, library in libraries.items():
        o = torch.full_like(q, float("nan"))
        lse = torch.full((batch, heads, seqlen), float("nan"), device="cuda", dtype=torch.float32)
        p = fwd_params(q, k, v, o, lse, causal)
        launch = library.launcher(name)
        launch(p)
        torch.cuda.synchronize()
        error = relative_error(o, q, k, v, causal)
        if not error < 1e-2 or o.isnan().any() or lse.isnan().any():
            print(f"WRONG: {words} at d{head_dim} s{seqlen} causal={causal}: relative error {error}", flush=True)
            continue
        outputs[words] = (o, lse)
        functions[words] = lambda launch=launch, p=p: launch(p)
    times = side_by_side(functions, rounds, round_ms)
    flops = 4 * batch * heads * seqlen * seqlen * head_dim * (0.5 if causal else 1)
    tflops = {words: flops / statistics.median(ms) / 1e9 for words, ms in times.items()}
    return {"head_dim": head_dim, "causal": causal, "seqlen": seqlen, "batch": batch, "heads": heads, "dtype": str(dtype)[6:], "tflops": tflops}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kgen", default="target/release/kgen")
    parser.add_argument("--candidates", type=Path)
    parser.add_argument("--head-dim", type=int, nargs="+")
    parser.add_argument("--seqlen", type=int, nargs="+", default=[2048, 16384])
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-ms", type=float, default=10)
    parser.add_argument("--site", default=os.environ.get("PEERS_SITE"))
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    if args.site:
        sys.path.insert(0, args.site)

    candidates = json.loads(args.candidates.read_text()) if args.candidates else {"64": [{}], "128": [{}], "256": [{}]}
    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[args.dtype]
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
                libraries = {label(tile): built[head_dim, label(tile)] for tile in tiles if built[head_dim, label(tile)]}
                for seqlen in args.seqlen:
                    row = measure(libraries, name, dtype, head_dim, causal, seqlen, args.rounds, args.round_ms)
                    rows.append(row)
                    cells = ", ".join(f"{words} {value:.0f}" for words, value in sorted(row["tflops"].items(), key=lambda item: -item[1]))
                    print(f"d{head_dim} {'causal' if causal else 'full'} s{seqlen}: {cells}", flush=True)
                    if args.out:
                        Path(args.out).write_text(json.dumps({"card": card_state(), "torch": torch.__version__, "rows": rows}, indent=1))
    print(f"# {card_state()}")


if __name__ == "__main__":
    main()
