#!/usr/bin/env python3
"""How much slower the dispatcher's choice is than the best of its paths, over random shapes: the regret.

    python3 benches/dispatch_regret.py --library build/lib/libkgen.so --old-lib before/lib/libkgen.so --out regret.json --fit

Shapes are drawn from a seed: decoding steps, prefills and what lies between, with and without a causal mask, query heads in groups, and
sequences that differ in length. For each, every path that `kgen_explain_choice` finds possible is forced by a flag and timed, each split
count by itself, and so is the dispatcher left alone, with the workspace that it asks for. `--old-lib` times another library's dispatcher
with the workspace that *it* asks for, in the same rounds. regret = time of the dispatcher / time of the fastest forced path - 1.

Times are replays of CUDA graphs of several calls, the candidates in turns, so the host is no part of them; all are timed by one replay first,
then those within a fifth of the best in more rounds. The calls of a graph read copies of K and V in turn, up to 8 and 256 MB: K and V come from
a cold L2 where they are large and from a warm one where they are small, as in a model. O of every path is compared with that of the first.

`--out` holds the raw times and the prediction's parts; `benches/dispatch_fit.py regret.json` fits the model's constants to them, which
`--fit` does at once.
"""

import argparse
import ctypes
import json
import math
import random
import statistics
import sys
import time
from pathlib import Path

import torch

import dispatch_fit
from kgen_ctypes import FLAG_CAUSAL, FLAG_PATHS, PATHS, FwdParams, Library

DTYPES = {"fp16": (torch.float16, 0), "bf16": (torch.bfloat16, 1)}
MOST_BYTES = 6 << 30  # of tensors and of a workspace
MOST_FLOPS = 6e11
SLOW = 4  # times the best: timed by one replay and no more
PARTS = ("predicted", "launch", "tile", "chain", "step", "memory", "combine", "scheduler")


def power(draw, least, most):
    """A number whose logarithm is uniform."""
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))


def draw_shape(draw, head_dims, dtype):
    """A request; lengths of the sequences are equal, or drawn so that the longest is `queries` or `keys`."""
    style = draw.choice(["decode", "decode", "prefill", "prefill", "chunk", "any"])
    heads_k = draw.choice([1, 2, 4, 8, 8, 12, 16, 32])
    heads = min(64, heads_k * draw.choice([1, 1, 2, 4, 8]))
    heads -= heads % heads_k
    batch = draw.choice([1, 1, 2, power(draw, 1, 64)])
    if style == "decode":
        queries, keys = draw.choice([1, 1, 1, 2, 4, 8, 16]), power(draw, 64, 65536)
    elif style == "prefill":
        queries = keys = power(draw, 32, 16384)
    elif style == "chunk":
        queries, keys = power(draw, 16, 1024), power(draw, 512, 32768)
        keys = max(keys, queries)
    else:
        queries, keys = power(draw, 1, 16384), power(draw, 16, 16384)
    shape = {
        "style": style, "batch": batch, "heads": heads, "heads_k": heads_k, "queries": queries, "keys": keys,
        "head_dim": draw.choice(head_dims), "dtype": dtype, "causal": draw.random() < 0.5, "lengths": None,
    }
    if batch > 1 and draw.random() < 0.35:
        part = lambda longest, skew: [max(1, round(longest * draw.random() ** skew)) for _ in range(batch - 1)] + [longest]
        skew = draw.choice([1, 1, 3])  # 3: one long sequence among many short ones
        lengths_k = part(keys, skew)
        if style == "prefill":
            lengths_q = lengths_k
        else:
            lengths_q = [queries] * batch if queries <= 16 else part(queries, 1)
        shape["lengths"] = [lengths_q, lengths_k]
        # A KV cache is padded, a prefill packed.
        shape["packed"] = style != "decode"
        # Whether the caller says how many keys there are.
        shape["told"] = shape["packed"] or draw.random() < 0.5
    return shape


def sizes(shape):
    """Rows of Q and of K together."""
    if shape["lengths"] and shape["packed"]:
        return sum(shape["lengths"][0]), sum(shape["lengths"][1])
    return shape["batch"] * shape["queries"], shape["batch"] * shape["keys"]


def is_feasible(shape):
    rows_q, rows_k = sizes(shape)
    element = 2 * shape["head_dim"]
    bytes_in_all = element * (2 * rows_q * shape["heads"] + 2 * rows_k * shape["heads_k"])
    pairs = sum(q * k for q, k in zip(*shape["lengths"])) if shape["lengths"] else shape["batch"] * shape["queries"] * shape["keys"]
    return bytes_in_all <= MOST_BYTES and 4 * pairs * shape["heads"] * shape["head_dim"] <= MOST_FLOPS


def name_of(shape):
    lengths = "" if not shape["lengths"] else " packed" if shape["packed"] else " padded"
    mask = "causal" if shape["causal"] else "full"
    return (
        f"b{shape['batch']} h{shape['heads']}/{shape['heads_k']} q{shape['queries']} k{shape['keys']} d{shape['head_dim']} {mask}{lengths}"
    )


class Problem:
    """Tensors of a shape, K and V in several copies."""

    def __init__(self, shape, copies):
        self.shape = shape
        dtype, self.dtype_number = DTYPES[shape["dtype"]]
        rows_q, rows_k = sizes(shape)
        make = lambda rows, heads: torch.randn(rows, heads, shape["head_dim"], device="cuda", dtype=dtype)
        self.q = make(rows_q, shape["heads"])
        kv_bytes = 4 * rows_k * shape["heads_k"] * shape["head_dim"]
        self.copies = max(1, min(copies, (256 << 20) // max(1, kv_bytes)))
        self.k = [make(rows_k, shape["heads_k"]) for _ in range(self.copies)]
        self.v = [make(rows_k, shape["heads_k"]) for _ in range(self.copies)]
        self.o = torch.empty_like(self.q)
        self.lse = torch.empty(rows_q * shape["heads"], device="cuda", dtype=torch.float32)
        self.keep = []

    def numbers(self, values):
        tensor = torch.tensor(values, dtype=torch.int32, device="cuda")
        self.keep.append(tensor)
        return tensor.data_ptr()

    def params(self, copy=0):
        shape = self.shape
        p = FwdParams(struct_size=ctypes.sizeof(FwdParams), flags=FLAG_CAUSAL if shape["causal"] else 0)
        packed = bool(shape["lengths"]) and shape["packed"]
        for name, t, rows in (("q", self.q, shape["queries"]), ("k", self.k[copy], shape["keys"]), ("v", self.v[copy], shape["keys"]), ("o", self.o, shape["queries"])):
            setattr(p, name, t.data_ptr())
            setattr(p, f"{name}_batch_stride", 0 if packed else rows * t.stride(0))
            setattr(p, f"{name}_row_stride", t.stride(0))
            setattr(p, f"{name}_head_stride", t.stride(1))
        p.lse = self.lse.data_ptr()
        p.batch, p.seqlen_q, p.seqlen_k = shape["batch"], shape["queries"], shape["keys"]
        p.num_heads, p.num_heads_k, p.head_dim = shape["heads"], shape["heads_k"], shape["head_dim"]
        p.dtype, p.softmax_scale = self.dtype_number, shape["head_dim"] ** -0.5
        if packed:
            starts = lambda lengths: [sum(lengths[:i]) for i in range(len(lengths) + 1)]
            p.cu_seqlens_q, p.cu_seqlens_k = (self.numbers(starts(lengths)) for lengths in shape["lengths"])
            p.total_q, p.total_k = sizes(shape)
            p.lse_head_stride = p.total_q
        else:
            p.lse_batch_stride, p.lse_head_stride = shape["heads"] * shape["queries"], shape["queries"]
            if shape["lengths"]:
                for side, lengths in zip("qk", shape["lengths"]):
                    if min(lengths) < max(lengths):
                        setattr(p, f"seqused_{side}", self.numbers(lengths))
                p.total_k = sum(shape["lengths"][1]) if shape["told"] else 0
        return p


class Runner:
    """`kgen_fwd` of a library with a request's parameters, as a CUDA graph."""

    def __init__(self, library, problem, change=None):
        self.problem, self.launch = problem, library.launcher("kgen_fwd")
        self.all = [problem.params(copy) for copy in range(problem.copies)]
        for p in self.all:
            if change:
                change(p)
        size = library.workspace_bytes(self.all[0])
        if size > MOST_BYTES:
            raise MemoryError(f"{size} bytes of workspace")
        if size:
            self.workspace = torch.empty(size, device="cuda", dtype=torch.uint8)
            for p in self.all:
                p.workspace, p.workspace_bytes = self.workspace.data_ptr(), size
        self.times, self.graph = [], None

    def once(self):
        self.launch(self.all[0])

    def capture(self, calls):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for p in self.all:
                self.launch(p)
        torch.cuda.current_stream().wait_stream(side)
        self.graph, self.calls = torch.cuda.CUDAGraph(), calls
        with torch.cuda.graph(self.graph):
            for i in range(calls):
                self.launch(self.all[i % len(self.all)])
        self.graph.replay()

    def replay_us(self, replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(replays):
            self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / (replays * self.calls)

    def measure(self, round_us):
        """A round of about that long; remembers the time of a call."""
        replays = 1
        if self.times:
            replays = max(1, round(round_us / (self.times[-1] * self.calls)))
        self.times.append(self.replay_us(replays))

    def us(self):
        return statistics.median(self.times)


def check(runner, problem, reference):
    """Refuses an O unlike the first path's."""
    problem.o.fill_(float("nan"))
    runner.once()
    rows = problem.o.float()
    if problem.shape["lengths"] and not problem.shape["packed"]:
        shape = problem.shape
        rows = rows.view(shape["batch"], shape["queries"], -1)
        rows = torch.cat([rows[b, :length] for b, length in enumerate(shape["lengths"][0])])
    if reference is None:
        if rows.isnan().any():
            raise SystemExit(f"{name_of(problem.shape)}: O has NaN")
        return rows
    far = (rows - reference).abs().max().item()
    if not far <= 0.02 * max(1.0, reference.abs().max().item()):
        raise SystemExit(f"{name_of(problem.shape)}: O of two paths differs by {far}")
    return reference


def forced(path, splits):
    def change(p):
        p.flags |= FLAG_PATHS[PATHS[path]]
        p.num_splits = splits if path >= 2 else 0

    return change


def measure(shape, library, old, args):
    """A row of raw data."""
    problem = Problem(shape, args.copies)
    asked = problem.params()
    asked.workspace, asked.workspace_bytes = 256, 1 << 62  # looked at by nobody
    candidates, chosen = library.explain(asked)
    if chosen is None:
        raise SystemExit(f"{name_of(shape)}: {library.last_error()}")
    row = {"shape": shape, "name": name_of(shape), "chosen": chosen, "candidates": []}
    runners, reference = {}, None
    for place, c in enumerate(candidates):
        row["candidates"].append({
            "path": PATHS[c.path].lower(), "splits": c.num_splits, "variant": c.variant and c.variant.decode(),
            "excluded": c.excluded and c.excluded.decode(), **{part: getattr(c, f"{part}_ns") for part in PARTS}, "us": None,
        })
        if c.excluded:
            continue
        try:
            runners[place] = Runner(library, problem, forced(c.path, c.num_splits))
        except (MemoryError, torch.cuda.OutOfMemoryError) as error:
            row["candidates"][-1]["excluded"] = str(error).splitlines()[0]
            continue
    runners["own"] = Runner(library, problem)
    if old:
        runners["old"] = Runner(old, problem)
    for runner in runners.values():
        reference = check(runner, problem, reference)
        runner.capture(problem.copies)
        runner.times = [runner.replay_us(1)]
    best = min(runner.us() for runner in runners.values())
    quick = {key: runner for key, runner in runners.items() if runner.us() <= SLOW * best or key in ("own", "old", chosen)}
    # As many calls in a graph as take a fifth of a millisecond, and a round about as long as asked.
    for runner in quick.values():
        runner.capture(max(problem.copies, min(64, math.ceil(200 / runner.us()))))
    rounds(quick, 2, args.round_us / 2)
    best = min(runner.us() for runner in quick.values())
    near = {key: runner for key, runner in quick.items() if runner.us() <= 1.2 * best or key in ("own", "old", chosen)}
    for runner in near.values():
        runner.times.clear()
    rounds(near, args.rounds + 1, args.round_us)
    for key, runner in runners.items():
        value = runner.us()
        if isinstance(key, int):
            row["candidates"][key]["us"] = value
        else:
            row[f"{key}_us"] = value
    return row


def rounds(runners, count, round_us):
    order = list(runners.values())
    for number in range(count):
        for runner in order if number % 2 == 0 else reversed(order):
            runner.measure(round_us)
    for runner in order:
        runner.times = runner.times[1:] or runner.times  # the first says how long a round is


def head_dims_of(library, dtype, causal_too=True):
    """Head dims of which the library holds forward kernels for both masks; by name, sm80's and sm90's."""
    name = lambda d, mask, target: f"flash_fwd_hdim{d}_{dtype}{mask}_{target}"
    return [d for d in range(16, 257, 8) if any(library.holds(name(d, "", t)) and library.holds(name(d, "_causal", t)) for t in ("sm80", "sm90"))]


def host_us(library, shape):
    """Median time of one call on the host, of a request whose kernel the GPU has done by then."""
    problem = Problem(shape, 1)
    runner, times = Runner(library, problem), []
    for _ in range(300):
        torch.cuda.synchronize()
        began = time.perf_counter()
        runner.once()
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times[50:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/lib/libkgen.so")
    parser.add_argument("--old-lib", help="another libkgen.so whose dispatcher is timed beside it")
    parser.add_argument("--shapes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="fp16")
    parser.add_argument("--head-dim", type=int, nargs="*", help="of these only; the library's by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-us", type=float, default=1500)
    parser.add_argument("--copies", type=int, default=8, help="copies of K and V at most; 1: L2 stays warm where it holds them")
    parser.add_argument("--minutes", type=float, default=9, help="stops drawing shapes after that long")
    parser.add_argument("--fit", action="store_true", help="fits the model's constants to the times")
    parser.add_argument("--out", help="raw data, JSON")
    args = parser.parse_args()

    library, old = Library(args.library), Library(args.old_lib) if args.old_lib else None
    head_dims = args.head_dim or head_dims_of(library, args.dtype)
    if not head_dims:
        sys.exit(f"{args.library} holds no forward kernels of {args.dtype} for both masks")
    draw = random.Random(args.seed)
    torch.manual_seed(args.seed)
    data = {"version": 2, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "seed": args.seed, "rows": []}
    started = time.monotonic()
    while len(data["rows"]) < args.shapes and time.monotonic() - started < 60 * args.minutes:
        shape = draw_shape(draw, head_dims, args.dtype)
        if not is_feasible(shape):
            continue
        row = measure(shape, library, old, args)
        data["rows"].append(row)
        print(dispatch_fit.line_of(row), flush=True)
        if args.out:
            Path(args.out).write_text(json.dumps(data))
        torch.cuda.empty_cache()
    print(f"\n{data['gpu']}, torch {data['torch']}, seed {args.seed}, {len(data['rows'])} shapes in {time.monotonic() - started:.0f} s\n")
    print(dispatch_fit.summary(data["rows"]))
    data["host_us"] = {name: host_us(lib, data["rows"][0]["shape"]) for name, lib in (("own", library), ("old", old)) if lib}
    print("one call on the host, median: " + ", ".join(f"{name} {us:.1f} us" for name, us in data["host_us"].items()))
    if args.out:
        Path(args.out).write_text(json.dumps(data))
    if args.fit:
        print(dispatch_fit.fitted(data["rows"]))


if __name__ == "__main__":
    main()
