"""Decoding with long contexts: GB/s of K and V through `kgen_fwd` (split-KV, combine, scheduler), beside peers.

    kgen build && python3 benches/decode.py --library build/lib/libkgen.so --out decode.json
    python3 benches/decode.py --sweep --kgen target/release/kgen --out sweep.json     # tiles, each built into a library of its own

Rules (docs/results/README.md): bf16, random normal inputs, one query a sequence; candidate and peers alternate in one
process; every time is that of CUDA-graph replays. The graph goes round several copies of K and V that together are ten times
the L2 and more, so L2 is cold for K and V (what a combine kernel reads is warm, as in use). K and V count once; the time
includes every launch of `kgen_fwd`. O and LSE are compared with a float64 reference before and after timing.
Peers: FA2 (PyTorch's flash backend), and FA3 where the wheel `fa3-fwd` is installed or `PEERS` names a folder with
`_vllm_fa3_C.abi3.so`.
"""

import argparse
import ctypes
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

from fwd_vs_fa2 import card_state, median_interval
from kgen_ctypes import FwdParams, Library, fwd_params

# batch, keys, query heads, key heads, head dim
SHAPES = [
    (1, 32768, 32, 8, 128),
    (64, 4096, 32, 8, 128),
    (16, 8192, 64, 8, 128),
    (1, 131072, 32, 8, 128),
    (64, 4096, 32, 8, 64),
    (1, 32768, 32, 8, 64),
    (16, 8192, 16, 2, 256),
    (1, 32768, 16, 4, 256),
]
# One context of 64 Ki keys among many short ones: what prepare_scheduler is for.
UNEQUAL = ([65536] + [512 + 96 * i for i in range(31)], 32, 8, 128)

L2_BYTES = 50 << 20
HIGHEST_GBS = 3352  # HBM3 of an H100 SXM; more than that on one is a mistake of the measurement

# m, n, warps, stages, q_in_registers, min_blocks_per_sm
CANDIDATES = {
    64: [(16, 64, 4, 2, 1, 2), (16, 64, 4, 3, 1, 3), (16, 64, 4, 4, 1, 2), (16, 128, 4, 2, 1, 2), (16, 128, 4, 3, 1, 2), (16, 128, 8, 2, 1, 2), (16, 128, 8, 3, 1, 1)],
    128: [
        (16, 64, 4, 2, 1, 2), (16, 64, 4, 2, 1, 3), (16, 64, 4, 3, 1, 1), (16, 64, 4, 4, 1, 1), (16, 128, 4, 2, 1, 1), (16, 128, 8, 2, 1, 1),
        (16, 32, 2, 2, 1, 4), (16, 32, 2, 3, 1, 3), (16, 32, 2, 4, 1, 2), (16, 64, 2, 2, 1, 2), (32, 128, 4, 2, 0, 1),
    ],
    256: [(16, 64, 4, 2, 1, 1), (16, 32, 2, 2, 1, 2), (16, 32, 2, 3, 1, 1), (16, 32, 2, 4, 1, 1), (16, 64, 4, 2, 0, 1)],
}

GRID = """version = 1
[targets.sm80]
description = "tile sweep"
[[family]]
kind = ["fwd_split"]
head_dim = [{head_dim}]
dtype = ["bf16"]
mask = ["full"]
target = ["sm80"]
[[family]]
kind = ["fwd_combine", "prepare_scheduler"]
target = ["sm80"]
[[tile]]
when = "hdim == {head_dim}"
measured = "candidate of benches/decode.py"
m = {m}
n = {n}
warps = {warps}
stages = {stages}
q_in_registers = {q}
min_blocks_per_sm = {blocks}
"""


class Problem:
    """Copies of Q, K, V of one shape, and their reference."""

    def __init__(self, batch, keys, heads, heads_k, head_dim, lengths=None):
        self.lengths = lengths
        self.kv_bytes = 4 * heads_k * head_dim * (sum(lengths) if lengths else batch * keys)
        self.copies = max(1, -(-10 * L2_BYTES // self.kv_bytes))
        draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        self.q = [draw(batch, 1, heads, head_dim) for _ in range(self.copies)]
        self.k = [draw(batch, keys, heads_k, head_dim) for _ in range(self.copies)]
        self.v = [draw(batch, keys, heads_k, head_dim) for _ in range(self.copies)]
        self.seqused = torch.tensor(lengths, device="cuda", dtype=torch.int32) if lengths else None
        self.text = f"B{batch} {'unequal' if lengths else f'L{keys}'} {heads}/{heads_k} d{head_dim}"

    def check(self, label, copy, o, lse=None):
        """Refuses a wrong O or LSE of the first, the last and, of many, a middle sequence."""
        q, k, v = self.q[copy], self.k[copy], self.v[copy]
        if o.isnan().any():
            raise SystemExit(f"{label} left a NaN at {self.text}")
        for b in {0, len(q) // 2, len(q) - 1}:
            keys = self.lengths[b] if self.lengths else k.shape[1]
            group = q.shape[2] // k.shape[2]
            for hk in range(k.shape[2]):
                rows = slice(hk * group, (hk + 1) * group)
                s = q[b, 0, rows].double() @ k[b, :keys, hk].double().T * q.shape[-1] ** -0.5
                ref = torch.softmax(s, -1) @ v[b, :keys, hk].double()
                error = ((o[b, 0, rows].double() - ref).norm() / ref.norm()).item()
                far = 0.0 if lse is None else (lse[b, rows, 0].double() - torch.logsumexp(s, -1)).abs().max().item()
                if not (error < 1e-2 and far < 1e-4):
                    raise SystemExit(f"{label} is wrong at {self.text}, sequence {b}, key head {hk}: relative error {error}, LSE off by {far}")


class Candidate:
    """kgen on every copy of a problem. `direct` launches the two kernels by name with `num_splits` for every sequence;
    `prepared` has the scheduler run once, outside what is timed."""

    def __init__(self, library, problem, num_splits=0, direct=False, prepared=False):
        self.problem, self.keep, self.calls = problem, [], []
        variant = f"flash_fwd_split_hdim{problem.q[0].shape[-1]}_bf16_sm80"
        size_of = getattr(library.lib, f"{variant}_workspace" if direct else "kgen_fwd_workspace")
        size_of.argtypes, size_of.restype = [ctypes.POINTER(FwdParams)], ctypes.c_size_t
        names = [variant, "flash_fwd_combine_sm80"] if direct else ["kgen_fwd"]
        launchers = [library.launcher(name) for name in names]
        for q, k, v in zip(problem.q, problem.k, problem.v):
            o = torch.full_like(q, float("nan"))
            lse = torch.full((q.shape[0], q.shape[2], 1), float("nan"), device="cuda")
            p = fwd_params(q, k, v, o, lse, False)
            p.num_splits = num_splits
            if problem.seqused is not None:
                p.seqused_k = problem.seqused.data_ptr()
            if prepared:
                counts = torch.zeros(q.shape[0], device="cuda", dtype=torch.int32)
                p.split_counts = counts.data_ptr()
                library.launcher("flash_prepare_scheduler_sm80")(p)
                self.keep.append(counts)
            p.workspace_bytes = size_of(ctypes.byref(p))
            if p.workspace_bytes == 0 and num_splits != 1:
                raise SystemExit(f"{problem.text}: the library does not split this")
            workspace = torch.full((max(1, p.workspace_bytes),), 255, device="cuda", dtype=torch.uint8)
            p.workspace = workspace.data_ptr()
            self.keep += [workspace, o, lse]
            self.calls.append((p, o, lse, launchers))

    def run(self):
        for p, _, _, launchers in self.calls:
            for launch in launchers:
                launch(p)

    def check(self, label):
        for copy in {0, len(self.calls) - 1}:
            self.problem.check(label, copy, self.calls[copy][1], self.calls[copy][2])


class Peer:
    """A function of (q, k, v) on every copy of a problem."""

    def __init__(self, problem, attend):
        self.problem, self.attend, self.outputs = problem, attend, []

    def run(self):
        problem = self.problem
        self.outputs = [self.attend(q, k, v) for q, k, v in zip(problem.q, problem.k, problem.v)]

    def check(self, label):
        for copy in {0, len(self.outputs) - 1}:
            self.problem.check(label, copy, self.outputs[copy])


def peers_of(problem):
    def fa2(q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), enable_gqa=True).transpose(1, 2)

    found = {} if problem.lengths else {"fa2": fa2}
    try:
        from fa3_fwd_interface import flash_attn_func

        def fa3(q, k, v):
            out = flash_attn_func(q, k, v, causal=False)
            return out[0] if isinstance(out, tuple) else out

        if not problem.lengths:
            found["fa3"] = fa3
    except ImportError:
        pass
    library = Path(os.environ.get("PEERS", "")) / "_vllm_fa3_C.abi3.so"
    if os.environ.get("PEERS") and library.exists():
        torch.ops.load_library(str(library))
        op = torch.ops._vllm_fa3_C.fwd.default
        batch, keys = problem.k[0].shape[:2]
        used = problem.seqused if problem.seqused is not None else torch.full((batch,), keys, device="cuda", dtype=torch.int32)
        starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32)
        wanted = {
            "seqused_k": used, "cu_seqlens_q": starts, "max_seqlen_q": 1, "max_seqlen_k": keys, "is_causal": False,
            "window_size_left": -1, "window_size_right": -1, "attention_chunk": 0, "softcap": 0.0, "is_rotary_interleaved": False,
            "num_splits": 0, "sm_margin": 0, "cp_world_size": 1, "cp_rank": 0, "softmax_scale": problem.q[0].shape[-1] ** -0.5,
        }

        def fa3_vllm(q, k, v):
            given = {**wanted, "q": q[:, 0], "k": k, "v": v}
            default = lambda a: a.default_value if a.has_default_value() else None
            return op(*[given.get(a.name, default(a)) for a in op._schema.arguments])[0].unsqueeze(1)

        found["fa3_vllm"] = fa3_vllm
    return found


def graph_of(runner):
    """A graph of one round over the copies, after a warm-up on a side stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            runner.run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        runner.run()
    return graph


def replay_ms(graph, n):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(n):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / n


def measure(problem, runners, rounds=10, round_ms=20.0):
    """A row of results: every runner timed in every round, in alternating order."""
    graphs = {}
    for label, runner in list(runners.items()):
        try:
            graphs[label] = graph_of(runner)
        except Exception as error:  # a peer that does not take this shape is left out, ours may not be
            if not isinstance(runner, Peer):
                raise
            print(f"# {label} at {problem.text}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
            continue
        graphs[label].replay()
        torch.cuda.synchronize()
        runner.check(label)
    counts = {}
    for label, graph in graphs.items():
        once = replay_ms(graph, 2)
        replay_ms(graph, max(1, int(25 / once)))
        counts[label] = max(1, int(round_ms / once))
    times = {label: [] for label in graphs}
    for r in range(rounds):
        for label in list(graphs) if r % 2 == 0 else list(graphs)[::-1]:
            times[label].append(replay_ms(graphs[label], counts[label]) / problem.copies)
    for label in graphs:
        runners[label].check(label)
    row = {"shape": problem.text, "kv_mb": problem.kv_bytes / 1e6, "copies": problem.copies, "kernels": {}}
    for label, ms in times.items():
        gbs = problem.kv_bytes / statistics.median(ms) / 1e6
        if gbs > HIGHEST_GBS and "H100" in torch.cuda.get_device_name():
            raise SystemExit(f"{label}: {gbs:.0f} GB/s is beyond the card; the measurement is wrong")
        row["kernels"][label] = {"us": statistics.median(ms) * 1e3, "gbs": gbs, "interval_us": [t * 1e3 for t in median_interval(ms)], "rounds": rounds}
    return row


def show(row):
    cells = sorted(row["kernels"].items(), key=lambda kv: kv[1]["us"])
    text = ", ".join(f"{label} {r['gbs']:.0f} GB/s ({r['us']:.1f} us)" for label, r in cells)
    print(f"{row['shape']} ({row['kv_mb']:.0f} MB x {row['copies']}): {text}", flush=True)


def compare(args):
    library = Library(args.library)
    rows = []
    for shape in SHAPES:
        problem = Problem(*shape)
        runners = {"kgen": Candidate(library, problem)}
        runners |= {f"kgen splits={n}": Candidate(library, problem, n) for n in args.splits}
        runners |= {label: Peer(problem, attend) for label, attend in peers_of(problem).items()}
        rows.append(measure(problem, runners))
        show(rows[-1])
        del problem, runners
    lengths, heads, heads_k, head_dim = UNEQUAL
    problem = Problem(len(lengths), max(lengths), heads, heads_k, head_dim, lengths)
    runners = {"scheduler each time": Candidate(library, problem)}
    runners["scheduler once"] = Candidate(library, problem, 64, prepared=True)
    runners |= {f"no scheduler, {n} splits for all": Candidate(library, problem, n, direct=True) for n in (1, 4, 8, 16, 33)}
    runners |= {label: Peer(problem, attend) for label, attend in peers_of(problem).items()}
    rows.append(measure(problem, runners))
    show(rows[-1])
    return rows


def label_of(tile):
    m, n, warps, stages, q, blocks = tile
    return f"{m}x{n} w{warps} s{stages}{' q' if q else ''} b{blocks}"


def build(kgen, root, head_dim, tile):
    """The library of one candidate and its spill count; None where the plan is refused."""
    m, n, warps, stages, q, blocks = tile
    folder = Path(root) / f"d{head_dim}" / label_of(tile).replace(" ", "_")
    folder.mkdir(parents=True)
    grid = folder / "grid.toml"
    grid.write_text(GRID.format(head_dim=head_dim, m=m, n=n, warps=warps, stages=stages, q=str(bool(q)).lower(), blocks=blocks))
    command = [kgen, "--variants", grid, "build", "--format", "json", "--generated", folder / "generated", "--build-dir", folder / "build"]
    done = subprocess.run(command, capture_output=True, text=True)
    library = folder / "build/lib/libkgen.so"
    if done.returncode != 0 or not library.exists():
        print(f"# d{head_dim} {label_of(tile)}: not built: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    artifacts = json.loads(done.stdout)["artifacts"]
    return library, sum(k["spill_store_bytes"] + k["spill_load_bytes"] for a in artifacts for k in a["resources"])


def sweep(args):
    rows = []
    with tempfile.TemporaryDirectory() as root:
        jobs = [(d, tile) for d, tiles in CANDIDATES.items() for tile in tiles if d in args.head_dim]
        with ThreadPoolExecutor(8) as pool:
            built = dict(zip(jobs, pool.map(lambda job: build(args.kgen, root, *job), jobs)))
        for shape in SHAPES:
            head_dim = shape[-1]
            libraries = {label_of(tile): found for (d, tile), found in built.items() if d == head_dim and found}
            if not libraries:
                continue
            problem = Problem(*shape)
            runners = {
                label + (" (spills)" if spills else ""): Candidate(Library(str(path)), problem) for label, (path, spills) in libraries.items()
            }
            rows.append(measure(problem, runners, rounds=6, round_ms=10))
            show(rows[-1])
            del problem, runners
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/lib/libkgen.so")
    parser.add_argument("--splits", type=int, nargs="*", default=[], help="also with these split counts in place of the library's own choice")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--kgen", default="target/release/kgen")
    parser.add_argument("--head-dim", type=int, nargs="+", default=list(CANDIDATES))
    parser.add_argument("--out", default=None)
    args = parser.parse_args()

    torch.manual_seed(0)
    print(f"# {card_state()}; torch {torch.__version__}; bf16; K and V from cold L2", flush=True)
    rows = sweep(args) if args.sweep else compare(args)
    print(f"# {card_state()}")
    if args.out:
        Path(args.out).write_text(json.dumps({"card": card_state(), "torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
