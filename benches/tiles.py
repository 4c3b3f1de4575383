"""Times candidate tiles of forward kernels against their peers, to choose the defaults in tiles/.

    python3 benches/tiles.py portable --kgen target/release/kgen --out tiles.jsonl
    python3 benches/tiles.py hopper --candidates ladder.json --head-dim 64 128 256 --site .peers/site
    python3 benches/tiles.py hopper --candidates fp8.json --dtype fp8
    python3 benches/tiles.py tma --rounds 15
    python3 benches/tiles.py split     # the same as decode.py --sweep

A candidate is a set of `[[tile]]` keys in a separate grid, which kgen builds into a separate folder, with the
templates of the folder in the key `templates` if there is one. Candidates of a head dim and mask are timed in one
process, by the rules of forward.py. One that spills is timed too, and its row reports that.

portable  sm80's forward kernels against FlashAttention-2, with the candidates of this file
hopper    sm90's against cuDNN and FlashAttention-3. --candidates is a file {"<head dim>": [{"m": 128, "n": 128,
          …}, …]}, or {"<head dim> causal": …} and {"<head dim> full": …} for one mask
tma       sm100's portable kernels, run as sm90's, with K and V by TMA and by cp.async, each with the plan's tile and
          with one of two stages; ratios are to the plan's tile with cp.async
split     sm80's split-KV kernels at the shapes of decode.py

Needs nvcc, PyTorch and a GPU that runs the target.
"""

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forward
from lab import Bench, attention, parser
from lab.kgen import Library

WORDS = ("m", "n", "warps", "stages", "q_in_registers", "min_blocks_per_sm", "rescale_threshold")
PORTABLE = {
    32: [(128, 64, 4, 2, 0, 3, 8), (128, 64, 4, 2, 1, 2, 8), (128, 128, 4, 2, 1, 2, 8), (128, 128, 4, 1, 1, 2, 8)],
    64: [(128, 128, 4, 1, 0, 2, 8), (128, 112, 4, 1, 0, 2, 8), (128, 128, 4, 2, 0, 2, 8), (128, 64, 4, 2, 1, 2, 8),
         (128, 80, 4, 2, 1, 2, 8), (128, 128, 4, 1, 0, 2, 0)],
    80: [(128, 64, 4, 1, 0, 2, 8), (128, 80, 4, 1, 0, 2, 8), (128, 96, 4, 1, 0, 2, 8)],
    96: [(128, 64, 4, 1, 0, 2, 8), (128, 80, 4, 1, 0, 2, 8), (128, 64, 4, 2, 0, 2, 8), (64, 64, 4, 1, 1, 3, 8)],
    128: [(128, 64, 4, 1, 0, 2, 8), (128, 48, 4, 1, 0, 2, 8), (128, 32, 4, 2, 0, 2, 8), (64, 64, 4, 1, 1, 2, 8),
          (128, 64, 8, 1, 0, 1, 8), (128, 64, 4, 1, 0, 2, 0)],
    160: [(64, 64, 4, 1, 1, 2, 8), (64, 64, 4, 1, 0, 2, 8), (128, 64, 8, 1, 0, 1, 8), (128, 32, 4, 1, 0, 2, 8)],
    192: [(64, 64, 4, 1, 1, 2, 8), (64, 64, 4, 1, 0, 2, 8), (128, 64, 8, 1, 0, 1, 8), (64, 80, 4, 1, 0, 1, 8)],
    224: [(64, 64, 4, 1, 0, 1, 8), (64, 80, 4, 1, 0, 1, 8), (128, 64, 8, 1, 0, 1, 8)],
    256: [(64, 64, 4, 1, 0, 1, 8), (64, 80, 4, 1, 0, 1, 8), (128, 64, 8, 1, 0, 1, 8), (64, 64, 4, 1, 0, 1, 0)],
}
SPLIT = {
    64: [(16, 64, 4, 2, 1, 2), (16, 64, 4, 3, 1, 3), (16, 64, 4, 4, 1, 2), (16, 128, 4, 2, 1, 2), (16, 128, 4, 3, 1, 2),
         (16, 128, 8, 2, 1, 2), (16, 128, 8, 3, 1, 1)],
    128: [(16, 64, 4, 2, 1, 2), (16, 64, 4, 2, 1, 3), (16, 64, 4, 3, 1, 1), (16, 64, 4, 4, 1, 1), (16, 128, 4, 2, 1, 1),
          (16, 128, 8, 2, 1, 1), (16, 32, 2, 2, 1, 4), (16, 32, 2, 3, 1, 3), (16, 32, 2, 4, 1, 2), (16, 64, 2, 2, 1, 2),
          (32, 128, 4, 2, 0, 1)],
    256: [(16, 64, 4, 2, 1, 1), (16, 32, 2, 2, 1, 2), (16, 32, 2, 3, 1, 1), (16, 32, 2, 4, 1, 1), (16, 64, 4, 2, 0, 1)],
}
# Two stages, so that a whole tile is in flight during the other: m, n, q_in_registers, min_blocks_per_sm.
TWO_STAGES = {
    32: (128, 64, 1, 2), 64: (128, 64, 1, 2), 96: (128, 48, 0, 2), 128: (128, 32, 0, 2), 192: (64, 32, 1, 2),
    256: (64, 32, 0, 1),
}
GRID = """version = 1
[targets.{target}]
description = "tiles"
[[family]]
kind = ["{kind}"]
head_dim = [{head_dim}]
dtype = ["{dtype}"]
mask = [{masks}]
target = ["{target}"]
"""
HELPERS = '[[family]]\nkind = ["fwd_combine", "prepare_scheduler"]\ntarget = ["{target}"]\n'
TILE = '[[tile]]\nwhen = "hdim == {head_dim}"\nmeasured = "candidate of benches/tiles.py"\n{keys}\n'


def keys_of(tile):
    """A tile's keys from a tuple in the order of WORDS."""
    keys = dict(zip(WORDS, tile))
    return {**keys, "q_in_registers": bool(keys["q_in_registers"])}


def label(tile):
    """`128x64 w4 s2 q b2 t0`, other keys by name."""
    short = {"warps": "w", "stages": "s", "min_blocks_per_sm": "b", "rescale_threshold": "t"}
    words = [f"{tile['m']}x{tile['n']}"] if "m" in tile else []
    for key, value in tile.items():
        if key in ("m", "n", "templates") or (key, value) in (("rescale_threshold", 8), ("q_in_registers", False)):
            continue
        key = {"q_in_registers": "q", "copy": ""}.get(key, short.get(key, key))
        words.append(key if value is True else f"no-{key}" if value is False else f"{key}{value}")
    words += [Path(tile["templates"]).name] if "templates" in tile else []
    return " ".join(words) or "default"


def build(bench, folder, tile, kind="fwd", head_dim=64, dtype="bf16", masks=("full", "causal"), target="sm80",
        run_as=None):
    """The library of one candidate and the bytes that its kernels spill; None, with a row, if kgen fails to
    build it."""
    place, keys = Path(tempfile.mkdtemp(dir=folder)), {key: value for key, value in tile.items() if key != "templates"}
    grid = GRID.format(target=target, kind=kind, head_dim=head_dim, dtype=dtype,
        masks=", ".join(map(json.dumps, masks)))
    grid += HELPERS.format(target=target) if kind == "fwd_split" else ""
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items())
    (place / "grid.toml").write_text(grid + (TILE.format(head_dim=head_dim, keys=lines) if lines else ""))
    templates = ["--templates", tile["templates"]] if "templates" in tile else []
    command = [bench.args.kgen, *templates, "--variants", place / "grid.toml", "build", "--format", "json", "--offline"]
    command += ["--allow-spills", "-j", "2", "--build-dir", place / "build"]
    command += ["--run-as", run_as] if run_as else ["--generated", place / "generated"]
    done = subprocess.run(command, capture_output=True, text=True)
    library = place / "build" / (f"run-as-{run_as}" if run_as else "") / "lib/libkgen.so"
    if done.returncode != 0 or not library.exists():
        said = done.stderr.strip().splitlines() or ["?"]
        why = next((line for line in said if line.startswith("error")), said[-1])
        bench.add(f"d{head_dim}", label(tile), "refused", f"not built: {why}", own=False)
        return None
    artifacts = json.loads(done.stdout)["artifacts"]
    spills = sum(k["spill_store_bytes"] + k["spill_load_bytes"] for a in artifacts for k in a["resources"])
    return Library(library), spills


def built(bench, folder, wanted):
    """{(head dim, label): (library, spilled bytes)} for {(head dim, label): keyword arguments of `build`}, eight at a
    time."""
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda given: build(bench, folder, **given), wanted.values())
        return {key: found for key, found in zip(wanted, made) if found}


def plan(args):
    """(head dim, causal, {label: arguments of `build`}), the kernels' target and dtype, and the peers of a mode."""
    if args.mode == "hopper":
        given = json.loads(args.candidates.read_text()) if args.candidates else {"64": [{}], "128": [{}], "256": [{}]}
        rows = []
        for key, tiles in given.items():
            head_dim, *only = key.split()
            tiles = {label(tile): {**({"warps": 4 + tile["m"] // 16} if "m" in tile else {}), **tile} for tile in tiles}
            wanted = {words: {"tile": tile, "dtype": args.dtype, "target": "sm90"} for words, tile in tiles.items()}
            rows += [(int(head_dim), causal, wanted) for causal in (False, True)
                if attention.mask(causal) in (only or ["full", "causal"])]
        return rows, "sm90", args.dtype, {"bf16": ["cudnn", "fa3"], "fp16": ["cudnn"], "fp8": ["fa3"]}[args.dtype]
    if args.mode == "tma":
        rows = []
        for head_dim in args.head_dim or (64, 128, 256):
            m, n, q, blocks = TWO_STAGES[head_dim]
            two = {"m": m, "n": n, "stages": 2, "q_in_registers": bool(q), "min_blocks_per_sm": blocks}
            wanted = {
                f"{words} {copy}": {"tile": {"copy": copy, **tile}, "target": "sm100", "run_as": "sm90"}
                for words, tile in (("default", {}), ("two stages", two)) for copy in ("cp_async", "tma")
            }
            rows += [(head_dim, causal, wanted) for causal in (False, True)]
        return rows, "sm100", "bf16", ["fa2"]
    tiles = {d: {label(keys_of(tile)): {"tile": keys_of(tile), "target": args.target} for tile in found}
        for d, found in PORTABLE.items()}
    return [(d, causal, wanted) for d, wanted in tiles.items()
        for causal in (False, True)], args.target, "bf16", ["fa2"]


def dense(bench, args):
    rows, target, dtype, sides = plan(args)
    rows = [row for row in rows if not args.head_dim or row[0] in args.head_dim]
    peers = bench.peers(forward.peers_of(sides, args.site, None))
    cases = [(*row, seqlen) for row in rows for seqlen in args.seqlen]
    name_of = lambda case: f"d{case[0]} {attention.mask(case[1])} s{case[3]}"
    with tempfile.TemporaryDirectory() as folder:
        kept = list(bench.selected(cases, name_of))
        wanted = {(d, words): {**given, "head_dim": d} for d, _, tiles, _ in kept for words, given in tiles.items()}
        found = built(bench, folder, wanted)
        for case in kept:
            head_dim, causal, tiles, seqlen = case
            name = attention.kernel_name("fwd", head_dim, dtype, causal, target)
            point = forward.Point(attention.dense_shape(head_dim, seqlen, causal), dtype)
            contenders = {
                words: point.kgen(library, name, kernel=name, tile=tiles[words]["tile"], spill_bytes=spills)
                for words in tiles if (head_dim, words) in found for library, spills in [found[head_dim, words]]
            }
            contenders |= {side: point.peer(side, attend) for side, attend in peers.items()}
            point.time(bench, name_of(case), contenders, graph=False)


def split(bench, args):
    import decode

    with tempfile.TemporaryDirectory() as folder:
        shapes = [shape for shape in bench.selected(decode.SHAPES, decode.text_of)
            if not args.head_dim or shape[-1] in args.head_dim]
        wanted = {
            (d, label(keys_of(tile))): {"tile": keys_of(tile), "kind": "fwd_split", "head_dim": d, "masks": ("full",)}
            for d in dict.fromkeys(shape[-1] for shape in shapes) for tile in SPLIT[d]
        }
        found = built(bench, folder, wanted)
        for shape in shapes:
            problem = decode.Problem(*shape)
            contenders = {}
            for (head_dim, words), (library, spills) in found.items():
                if head_dim == shape[-1]:
                    contenders[words] = problem.kgen(library, tile=wanted[head_dim, words]["tile"], spill_bytes=spills)
            problem.time(bench, contenders)


def main(mode=None):
    arguments = parser(__doc__, 6, 10, library=None, peers=["site"], head_dim=None, seqlen=[2048, 8192])
    if mode is None:
        arguments.add_argument("mode", choices=["portable", "hopper", "tma", "split"])
    arguments.add_argument("--sweep", action="store_true", help="as decode.py calls it: split")
    arguments.add_argument("--kgen", default="target/release/kgen")
    arguments.add_argument("--target", default="sm80", help="of portable: whose machine code the GPU at hand runs")
    arguments.add_argument("--candidates", type=Path, help="of hopper: a JSON file")
    arguments.add_argument("--dtype", choices=["bf16", "fp16", "fp8"], default="bf16", help="of hopper")
    args = arguments.parse_args()
    args.mode = mode or args.mode
    bench = Bench(args)
    (split if args.mode == "split" else dense)(bench, args)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
