"""Times candidate tiles of forward kernels against their peers, to choose the defaults in tiles/.

    python3 benches/tiles.py portable --kgen target/release/kgen --out tiles.jsonl
    python3 benches/tiles.py hopper --candidates ladder.json --head-dim 64 128 256 --site .peers/site

A candidate is a set of `[[tile]]` keys in a separate grid, which kgen builds into a separate folder, with the
templates of the folder in the key `templates` if there is one. Candidates of a head dim and mask are timed in one
process, by the rules of `dense.py forward`. One that spills is timed too, and its row reports that. Needs nvcc, PyTorch
and a GPU that runs the target.
"""

import json
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dense import dense_peers, name_of
from lab import attention, main, suite
from lab.dense import Dense
from lab.kgen import Library
from serving import DECODES, Decoding, decode_name

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
FULL_AND_CAUSAL = ("full", "causal")
OPTIONS = {"tables": True, "rounds": 6, "round_ms": 10, "library": None, "kgen": "target/release/kgen", "head_dim": []}
DENSE = {**OPTIONS, "places": ["site"], "seqlen": [2048, 8192]}


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


def build(bench, folder, tile, kind, head_dim, dtype, masks, target, run_as):
    """The library of one candidate and the bytes that its kernels spill; None, with a row, if kgen fails to
    build it."""
    place, keys = Path(tempfile.mkdtemp(dir=folder)), {key: value for key, value in tile.items() if key != "templates"}
    grid = GRID.format(target=target, kind=kind, head_dim=head_dim, dtype=dtype,
        masks=", ".join(map(json.dumps, masks)))
    grid += HELPERS.format(target=target) if kind == "fwd_split" else ""
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items())
    (place / "grid.toml").write_text(grid + (TILE.format(head_dim=head_dim, keys=lines) if lines else ""))
    templates = ["--templates", tile["templates"]] if "templates" in tile else []
    command = [bench.args.kgen, *templates, "--variants", place / "grid.toml", "build", "--format", "json", "--offline",
        "--allow-spills", "-j", "2", "--build-dir", place / "build"]
    command += ["--run-as", run_as] if run_as else ["--generated", place / "generated"]
    done = subprocess.run(command, capture_output=True, text=True)
    library = place / "build" / (f"run-as-{run_as}" if run_as else "") / "lib/libkgen.so"
    if done.returncode != 0 or not library.exists():
        said = done.stderr.strip().splitlines() or ["?"]
        why = next((line for line in said if line.startswith("error")), said[-1])
        bench.add(f"d{head_dim}", label(tile), "refused", f"not built: {why}", own=False)
        return None
    resources = [k for a in json.loads(done.stdout)["artifacts"] for k in a["resources"]]
    return Library(library), sum(k["spill_store_bytes"] + k["spill_load_bytes"] for k in resources)


def built(bench, folder, candidates, kind="fwd", dtype="bf16", masks=FULL_AND_CAUSAL, target="sm80", run_as=None):
    """{(head dim, label): (library, spilled bytes)} for {(head dim, label): tile}, eight at a time."""
    make = lambda key: build(bench, folder, candidates[key], kind, key[0], dtype, masks, target, run_as)
    with ThreadPoolExecutor(8) as pool:
        return {key: found for key, found in zip(candidates, pool.map(make, candidates)) if found}


def dense(bench, tiles, target, sides, dtype="bf16", run_as=None):
    """Times {head dim: {label: tile}} of each (head dim, causal) at the lengths of --seqlen."""
    rows = [row for row in tiles if not bench.args.head_dim or row[0] in bench.args.head_dim]
    peers = bench.peers(**dense_peers(sides, bench.args.site, None))
    cases = [(attention.dense_shape(head_dim, seqlen, causal), found) for head_dim, causal, found in rows
        for seqlen in bench.args.seqlen]
    with tempfile.TemporaryDirectory() as folder:
        kept = list(bench.selected(cases, lambda case: name_of(case[0])))
        wanted = {(shape["head_dim"], words): tile for shape, found in kept for words, tile in found.items()}
        libraries = built(bench, folder, wanted, dtype=dtype, target=target, run_as=run_as)
        for shape, found in kept:
            name = attention.kernel_name("fwd", shape["head_dim"], dtype, shape["causal"], target)
            point = Dense(shape, dtype)
            contenders = {
                words: point.forward(library, name, details={"kernel": name, "tile": tile, "spill_bytes": spills})
                for words, tile in found.items() if (shape["head_dim"], words) in libraries
                for library, spills in [libraries[shape["head_dim"], words]]}
            contenders |= {side: point.peer(attend) for side, attend in peers.items()}
            point.time(bench, name_of(shape), contenders, graph=False)


@suite(**DENSE, target="sm80")
def portable(bench):
    """sm80's forward kernels against FlashAttention-2, with the candidates of this file; --target is the one whose
    machine code the GPU at hand runs."""
    tiles = {d: {label(keys_of(tile)): keys_of(tile) for tile in found} for d, found in PORTABLE.items()}
    dense(bench, [(d, causal, found) for d, found in tiles.items() for causal in (False, True)], bench.args.target,
        ["fa2"])


@suite(**DENSE, candidates="", dtype=("bf16", "fp16", "fp8"))
def hopper(bench):
    """sm90's forward kernels against cuDNN and FlashAttention-3.

    --candidates is a file {"<head dim>": [{"m": 128, "n": 128, …}, …]}, or {"<head dim> causal": …} and
    {"<head dim> full": …} for one mask."""
    path, dtype, rows = bench.args.candidates, bench.args.dtype, []
    candidates = json.loads(Path(path).read_text()) if path else {"64": [{}], "128": [{}], "256": [{}]}
    for key, tiles in candidates.items():
        head_dim, *only = key.split()
        found = {label(tile): {**({"warps": 4 + tile["m"] // 16} if "m" in tile else {}), **tile} for tile in tiles}
        rows += [(int(head_dim), mask == "causal", found) for mask in only or FULL_AND_CAUSAL]
    dense(bench, rows, "sm90", {"bf16": ["cudnn", "fa3"], "fp16": ["cudnn"], "fp8": ["fa3"]}[dtype], dtype)


@suite(**DENSE)
def tma(bench):
    """sm100's portable kernels, run as sm90's, with K and V by TMA and by cp.async, each with the plan's tile and with
    one of two stages; ratios are to the plan's tile with cp.async."""
    rows = []
    for head_dim in bench.args.head_dim or (64, 128, 256):
        m, n, q, blocks = TWO_STAGES[head_dim]
        two = {"m": m, "n": n, "stages": 2, "q_in_registers": bool(q), "min_blocks_per_sm": blocks}
        found = {f"{words} {copy}": {"copy": copy, **tile} for words, tile in (("default", {}), ("two stages", two))
            for copy in ("cp_async", "tma")}
        rows += [(head_dim, causal, found) for causal in (False, True)]
    dense(bench, rows, "sm100", ["fa2"], run_as="sm90")


@suite(**OPTIONS)
def split(bench):
    """sm80's split-KV kernels at the shapes of `serving.py decode`."""
    with tempfile.TemporaryDirectory() as folder:
        shapes = [shape for shape in bench.selected(DECODES, decode_name)
            if not bench.args.head_dim or shape[-1] in bench.args.head_dim]
        wanted = {(d, label(keys_of(tile))): keys_of(tile) for d in dict.fromkeys(shape[-1] for shape in shapes)
            for tile in SPLIT[d]}
        found = built(bench, folder, wanted, "fwd_split", masks=("full",))
        for shape in shapes:
            problem = Decoding(*shape)
            problem.time(bench, decode_name(shape), {
                words: problem.kgen(library, tile=wanted[head_dim, words], spill_bytes=spills)
                for (head_dim, words), (library, spills) in found.items() if head_dim == shape[-1]})


if __name__ == "__main__":
    main(__doc__)
