#!/usr/bin/env python3
"""The regret of the dispatcher: how much slower its choice is than the best of its paths, over random shapes.

    python3 benches/dispatch_regret.py --library build/lib/libkgen.so --old-lib before/lib/libkgen.so \\
        --out regret.jsonl --fit

Shapes are drawn from a seed: decoding steps, prefills and shapes in between, with and without a causal mask, query
heads in groups, and sequences that differ in length. For each, every path that `kgen_explain_choice` reports as
possible is forced by a flag and timed, each split count separately, and so is the dispatcher's own choice, with the
workspace that it requests. `--old-lib` times another library's dispatcher in the same rounds. regret = time of the
dispatcher / time of the fastest forced path - 1.

Calls are graph replays; all are timed once first, then those within a fifth of the best in more rounds. They rotate
through copies of K and V, up to 8 and 256 MB: L2 is cold for large K and V and warm for small ones, as in a model. O
of every path is compared with the first path's.

A row is a forced path (`split 4`), the dispatcher (`own`) or the other library's dispatcher (`old`); its details
contain the request and the prediction's parts. `benches/dispatch_fit.py regret.jsonl` fits the model's constants to
them; `--fit` runs it directly.
"""

import math
import random
import sys
import time

import torch

import dispatch_fit
from lab import Bench, attention, parser, stats, timing
from lab.kgen import FLAG_PATHS, PARTS, PATHS, Library, fwd_params, packed_params

MOST_BYTES = 6 << 30  # for tensors and for a workspace
MOST_FLOPS = 6e11
SLOW = 4  # times the best: timed by a single replay


def power(draw, least, most):
    """A number whose logarithm is uniform."""
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))


def draw_shape(draw, head_dims, dtype):
    """A request; lengths of the sequences are equal, or random with a maximum of `queries` or `keys`."""
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
        part = lambda longest, skew: [max(1, round(longest * draw.random() ** skew))
            for _ in range(batch - 1)] + [longest]
        skew = draw.choice([1, 1, 3])  # 3: one long sequence among many short ones
        lengths_k = part(keys, skew)
        if style == "prefill":
            lengths_q = lengths_k
        else:
            lengths_q = [queries] * batch if queries <= 16 else part(queries, 1)
        # A KV cache is padded, a prefill packed. `told`: true if the caller passes the total number of keys.
        shape |= {"lengths": [lengths_q, lengths_k], "packed": style != "decode"}
        shape["told"] = shape["packed"] or draw.random() < 0.5
    return shape


def sizes(shape):
    """Total rows of Q and of K."""
    if dispatch_fit.is_packed(shape):
        return sum(shape["lengths"][0]), sum(shape["lengths"][1])
    return shape["batch"] * shape["queries"], shape["batch"] * shape["keys"]


def is_feasible(shape):
    rows_q, rows_k = sizes(shape)
    bytes_in_all = 4 * shape["head_dim"] * (rows_q * shape["heads"] + rows_k * shape["heads_k"])
    pairs = shape["batch"] * shape["queries"] * shape["keys"]
    pairs = sum(q * k for q, k in zip(*shape["lengths"])) if shape["lengths"] else pairs
    return bytes_in_all <= MOST_BYTES and 4 * pairs * shape["heads"] * shape["head_dim"] <= MOST_FLOPS


def name_of(shape):
    lengths = "" if not shape["lengths"] else " packed" if shape["packed"] else " padded"
    words = "b{batch} h{heads}/{heads_k} q{queries} k{keys} d{head_dim}".format(**shape)
    return f"{words} {attention.mask(shape['causal'])}{lengths}"


class Problem:
    """Tensors of a shape, K and V in several copies."""

    def __init__(self, shape, copies):
        (rows_q, rows_k), self.shape, self.packed = sizes(shape), shape, dispatch_fit.is_packed(shape)
        dims = lambda rows, length: (rows,) if self.packed else (shape["batch"], length)
        make = lambda rows, length, heads: attention.normal(*dims(rows, length), heads, shape["head_dim"],
            dtype=shape["dtype"])
        self.q = make(rows_q, shape["queries"], shape["heads"])
        kv_bytes = 4 * rows_k * shape["heads_k"] * shape["head_dim"]
        self.count = max(1, min(copies, (256 << 20) // max(1, kv_bytes)))
        self.l2 = "cold" if self.count * kv_bytes > torch.cuda.get_device_properties(0).L2_cache_size else "warm"
        self.kv = [[make(rows_k, shape["keys"], shape["heads_k"]) for _ in "kv"] for _ in range(self.count)]
        self.o = torch.empty_like(self.q)
        lse = (shape["heads"], rows_q) if self.packed else (shape["batch"], shape["heads"], shape["queries"])
        self.lse = torch.empty(lse, device="cuda")

    def params(self, copy=0, **forced):
        shape, numbers = self.shape, lambda values: torch.tensor(values, dtype=torch.int32, device="cuda")
        tensors = (self.q, *self.kv[copy], self.o, self.lse, shape["causal"])
        if self.packed:
            starts = [numbers([0, *lengths]).cumsum(0, dtype=torch.int32) for lengths in shape["lengths"]]
            return packed_params(*tensors, *shape["lengths"], starts[0], cu_seqlens_k=starts[1], **forced)
        fields = {}
        if shape["lengths"]:
            fields = {f"seqused_{side}": numbers(x) for side, x in zip("qk", shape["lengths"]) if min(x) < max(x)}
            fields["total_k"] = sum(shape["lengths"][1]) if shape["told"] else 0
        return fwd_params(*tensors, **fields, **forced)

    def runner(self, library, **forced):
        all_params = [self.params(copy, **forced) for copy in range(self.count)]
        if library.workspace_bytes(all_params[0]) > MOST_BYTES:
            raise MemoryError(f"{library.workspace_bytes(all_params[0])} bytes of workspace")
        return Runner([library.call("kgen_fwd", p) for p in all_params])

    def output(self, runner):
        """O of the first copy; for padded sequences, only their own rows."""
        self.o.fill_(float("nan"))
        runner.calls[0]()
        if self.shape["lengths"] and not self.packed:
            return torch.cat([self.o[b, :length] for b, length in enumerate(self.shape["lengths"][0])]).float()
        return self.o.float()


class Runner:
    """Calls as a CUDA graph, and their times."""

    def __init__(self, calls):
        self.calls, self.times = calls, []

    def capture(self, count):
        self.captured, self.graph = count, timing.capture([self.calls[i % len(self.calls)] for i in range(count)])
        self.graph.replay()

    def measure(self, round_us=0):
        """A round of about that duration; records the time of a call."""
        replays = max(1, round(round_us / (self.times[-1] * self.captured))) if self.times else 1
        self.times.append(timing.elapsed_us(self.graph.replay, replays) / self.captured)

    def us(self):
        return sorted(self.times)[len(self.times) // 2]


def race(runners, count, round_us):
    for _, runner in timing.interleave(list(runners.values()), count):
        runner.measure(round_us)
    for runner in runners.values():
        runner.times = runner.times[1:] or runner.times  # the first determines the length of a round


def measure(bench, shape, library, old):
    """The rows of a shape, in the form that dispatch_fit.py reads; also writes them."""
    args, problem, name = bench.args, Problem(shape, bench.args.copies), name_of(shape)
    asked = problem.params(workspace=256, workspace_bytes=1 << 62)  # never dereferenced
    candidates, chosen = library.explain(asked)
    if chosen is None:
        raise SystemExit(f"{name}: {library.last_error()}")
    runners, details, reference = {}, {}, None
    for place, c in enumerate(candidates):
        path = PATHS[c.path].lower()
        details[place] = {
            "path": path, "splits": c.num_splits, "variant": c.variant and c.variant.decode(),
            "excluded": c.excluded and c.excluded.decode(),
            "chosen": place == chosen, **{part: getattr(c, f"{part}_ns") for part in PARTS},
        }
        if not c.excluded:
            try:
                splits = c.num_splits if path not in ("dense", "short") else 0
                runners[place] = problem.runner(library, flags=FLAG_PATHS[PATHS[c.path]], num_splits=splits)
            except (MemoryError, torch.cuda.OutOfMemoryError) as error:
                details[place]["excluded"] = str(error).splitlines()[0]
    runners["own"] = problem.runner(library)
    runners |= {"old": problem.runner(old)} if old else {}
    for runner in runners.values():
        o = problem.output(runner)
        reference = o if reference is None else reference
        far = (o - reference).abs().max().item()
        if not far <= 0.02 * max(1.0, reference.abs().max().item()):
            raise SystemExit(f"{name}: O of two paths differs by {far}, or has NaN")
        runner.capture(problem.count)
        runner.measure()
    kept = lambda some, times: {key: r for key, r in some.items()
        if r.us() <= times * best or key in ("own", "old", chosen)}
    best = min(runner.us() for runner in runners.values())
    quick = kept(runners, SLOW)
    for runner in quick.values():  # a fifth of a millisecond of calls per graph
        runner.capture(max(problem.count, min(64, math.ceil(200 / runner.us()))))
    race(quick, 2, 500 * args.round_ms)
    best = min(runner.us() for runner in quick.values())
    near = kept(quick, 1.2)
    for runner in near.values():
        runner.times.clear()
    race(near, args.rounds + 1, 1e3 * args.round_ms)
    sizes = {"batch": "batch", "heads": "heads", "heads_k": "heads_k", "seqlen_q": "queries", "seqlen_k": "keys",
        "head_dim": "head_dim"}
    sizes = {key: shape[word] for key, word in sizes.items()} | {"causal": int(shape["causal"])}
    rows = []
    for key in [*details, *(word for word in ("own", "old") if word in runners)]:
        timed = runners.get(key)
        label = dispatch_fit.label(details[key]) if key in details else key
        status = ("ok", "") if timed else ("absent", f"excluded: {details[key]['excluded']}")
        numbers = timed and {"microseconds": stats.summary(timed.times), "round_microseconds": timed.times,
            "repeated": "graph", "l2": problem.l2}
        given = {"request": shape, **details.get(key, {})}
        rows.append(bench.add(name, label, *status, numbers, shape=sizes, dtype=shape["dtype"], details=given))
    return rows


def head_dims_of(library, dtype):
    """Head dims for which the library has forward kernels for both masks; by name, sm80's and sm90's."""
    holds = lambda d, causal, target: library.holds(attention.kernel_name("fwd", d, dtype, causal, target))
    return [d for d in range(16, 257, 8) if any(holds(d, False, t) and holds(d, True, t) for t in ("sm80", "sm90"))]


def main():
    arguments = parser(__doc__, round_ms=1.5, head_dim=None)
    arguments.add_argument("--old-lib", help="another libkgen.so whose dispatcher is timed beside it")
    arguments.add_argument("--shapes", type=int, default=200)
    arguments.add_argument("--dtype", choices=["bf16", "fp16"], default="fp16")
    arguments.add_argument("--copies", type=int, default=8,
        help="copies of K and V at most; 1: L2 stays warm where it holds them")
    arguments.add_argument("--minutes", type=float, default=9, help="stops drawing shapes after that long")
    arguments.add_argument("--fit", action="store_true", help="fits the model's constants to the times")
    arguments.set_defaults(seed=11)
    bench = Bench(args := arguments.parse_args())
    library, old = bench.library, Library(args.old_lib) if args.old_lib else None
    head_dims = args.head_dim or head_dims_of(library, args.dtype)
    if not head_dims:
        sys.exit(f"{library.path} holds no forward kernels of {args.dtype} for both masks")
    draw, found, begun = random.Random(args.seed), [], time.monotonic()
    while len(found) < (6 if args.quick else args.shapes) and time.monotonic() - begun < 60 * args.minutes:
        shape = draw_shape(draw, head_dims, args.dtype)
        if is_feasible(shape):
            found += dispatch_fit.of_rows(measure(bench, shape, library, old))
            print(dispatch_fit.line_of(found[-1]), flush=True)
            torch.cuda.empty_cache()
    print(f"\n{bench.head}, seed {args.seed}, {len(found)} shapes in {time.monotonic() - begun:.0f} s\n")
    print(dispatch_fit.summary(found))
    for name, lib in (("own", library), ("old", old)):
        if lib:  # the GPU has finished its kernel by then
            call = Problem(found[0]["shape"], 1).runner(lib).calls[0]
            bench.host(f"a call on the host, {name}", call, 1, 300, time.perf_counter, settle=torch.cuda.synchronize)
    if args.fit:
        print(dispatch_fit.fitted(found))
    return bench.finish(tables=False)


if __name__ == "__main__":
    sys.exit(main())
