#!/usr/bin/env python3
"""vector_add, transpose and reduce beside the card's bandwidth, PyTorch, torch.compile and CuPy in one process, on the
GPU at hand.

    kgen build --target sm90 --build-dir build-families \\
      --kind vector_add,transpose,reduce_sum,reduce_max,reduce_logsumexp
    python3 benches/families.py --library build-families/lib/libkgen.so --out families.json
    python3 benches/families.py --library build-families/lib/libkgen.so --huge

Needs PyTorch; nvcc (for the read probe, the naive and the tiled transposition) and CuPy are left out with a note
where they are missing. The library may come from another machine. A second --library is timed beside the first as
`kgen 2`.

Rules: every side is timed in every round, in alternating order, by device events over batches of calls after a
warm-up, as replays of CUDA graphs where a call takes less than 0.4 ms. Calls go round copies of the tensors that
together are several times the L2, so that it holds none of them. GB/s count what must be moved: three vectors, two
matrices, one input. `floor` is the least share of the reference that kgen must reach: of the best copy of as many
bytes (cudaMemcpy's or Tensor.copy_'s), for a reduction of the fastest reader of its input (several probes and
torch.sum). Ratios to peers are times of the peer / time of kgen, medians over rounds, and must be 1 or more. Every
side's result is compared with PyTorch's (reductions: with float64) before it is timed, and kgen's again afterwards.

A Markdown table on standard output, progress and notes on standard error, all rounds in the JSON file. Exit code 1: a
result of kgen was wrong. A rate below its floor is no error; it is marked and counted.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

import families_huge
from families_peers import CompiledPeers, cuda_memcpy, cupy_sides
from fwd_vs_fa2 import card_state
from kgen_ctypes import Library, reduce_params, transpose_params, vector_add_params
from paired import ratio

MIB, GIB = 1 << 20, 1 << 30
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "b32": torch.int32, "b16": torch.int16, "b8": torch.uint8}
GRAPH_BELOW_MS = 0.4
PEERS = ["torch", "compile", "cupy"]  # what kgen must not be slower than
noted = set()


def note(message):
    """Says something once."""
    if message not in noted:
        noted.add(message)
        print(f"# {message}", file=sys.stderr, flush=True)


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def compiled(function):
    """`function` through torch.compile, specialised for the shapes of its first call."""
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


class Copies:
    """As many copies of a point's tensors as exceed the L2 several times, and whose turn it is."""

    def __init__(self, make, bytes_each):
        l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 50 * MIB)
        self.sets = [make() for _ in range(max(1, math.ceil(5 * l2 / bytes_each)))]
        self.turn = 0

    def __call__(self):
        self.turn = (self.turn + 1) % len(self.sets)
        return self.sets[self.turn]


@dataclass
class Side:
    """One way to do a point's work: a call on a set of tensors, and which of them has the result, if it does not return
    it."""

    call: Callable
    result: Callable | None = None


class Timer:
    """Calls of one side, timed by batches."""

    def __init__(self, call, batch_ms):
        call()
        torch.cuda.synchronize()
        once = self.of(call, 3)
        self.calls, self.run = max(1, round(batch_ms / once)), call
        self.graph = None
        if once < GRAPH_BELOW_MS:
            try:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    for _ in range(self.calls):
                        call()
                self.graph = graph
                graph.replay()
            except Exception as error:  # a side that cannot be captured is launched
                torch.cuda.synchronize()
                note(f"a side is launched and not replayed as a graph: {first_line(error)}")

    @staticmethod
    def of(call, calls):
        """Milliseconds of a call. One that does not count comes first, so that the device never waits for the host."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        call()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / calls

    def batch(self):
        return self.of(self.graph.replay, 1) / self.calls if self.graph else self.of(self.run, self.calls)


def time_sides(sides, rounds, batch_ms):
    """Milliseconds of a call of each side, by round."""
    timers = {}
    for name, call in sides.items():
        try:
            timers[name] = Timer(call, batch_ms)
        except Exception as error:
            if name.startswith("kgen"):
                raise
            note(f"{name} left out: {first_line(error)}")
    times = {name: [] for name in timers}
    for r in range(rounds + 1):
        for name in list(timers) if r % 2 else list(timers)[::-1]:
            found = timers[name].batch()
            if r > 0:  # the first round warms up
                times[name].append(found)
    return times


class Bench:
    """The libraries, what else there is to measure against, and what has been found."""

    def __init__(self, args):
        self.args = args
        self.libraries = [Library(path) for path in args.library]
        self.peers = CompiledPeers.build(note)
        self.memcpy = cuda_memcpy(note)
        self.started = time.monotonic()
        self.points = []
        self.wrong = 0

    def kgen(self, name, params, result):
        """A side for each library; `params` makes a copy's parameters for a library, once for each copy."""

        def side(library):
            launch, made = library.launcher(name), {}

            def call(tensors):
                if id(tensors) not in made:
                    made[id(tensors)] = params(tensors, library)
                launch(made[id(tensors)])

            return Side(call, result)

        labels = ["kgen", *(f"kgen {n}" for n in range(2, len(self.libraries) + 1))]
        return {label: side(library) for label, library in zip(labels, self.libraries)}

    def prove(self, name, side, copies, judge):
        """Whether the side's result is right; says so where it is not."""
        tensors = copies.sets[0]
        for poisoned in ("out", "work"):
            if poisoned == "work" and "work" in tensors:
                tensors["work"].copy_(tensors["x"])
            elif poisoned in tensors:
                tensors[poisoned].fill_(float("nan") if tensors[poisoned].is_floating_point() else 0)
        try:
            returned = side.call(tensors)
            torch.cuda.synchronize()
            fault = judge(side.result(tensors) if side.result else returned, name.startswith("kgen"))
        except Exception as error:
            fault = first_line(error)
        if fault and name.startswith("kgen"):
            self.wrong += 1
            print(f"WRONG: {name}: {fault}", flush=True)
        elif fault:
            note(f"{name} left out: {fault}")
        return not fault

    def point(self, family, what, shape, moved, reference, floor, copies, sides, judge):
        """Proves and times one point. `reference` is (sides, bytes): the fastest of those sides, which move so many bytes,
        is the card's best. `judge(result, ours)` says what is wrong with a result."""
        references, reference_bytes = reference
        print(f"# {family} {what} {shape}", file=sys.stderr, flush=True)
        proven = {name: side.call for name, side in sides.items() if self.prove(name, side, copies, judge)} | references
        if "kgen" not in proven:
            return
        for call in proven.values():
            for tensors in copies.sets:
                call(tensors)  # what is made once for each set is there before anything is captured
        times = time_sides({name: (lambda call=call: call(copies())) for name, call in proven.items()}, self.args.rounds, self.args.batch_ms)
        if not self.prove("kgen", sides["kgen"], copies, judge):
            return
        rate = lambda name, bytes_: bytes_ / statistics.median(times[name]) / 1e6
        best = max((name for name in references if name in times), key=lambda name: rate(name, reference_bytes))
        row = {
            "family": family, "what": what, "shape": shape, "bytes": moved, "floor": floor, "reference": best,
            "reference_gbs": rate(best, reference_bytes),
            "gbs": {name: rate(name, reference_bytes if name in references else moved) for name in times},
            "ratios": {name: ratio(times["kgen"], times[name]) for name in times if name != "kgen" and name not in references},
            "milliseconds": times,
        }
        row["share"] = row["gbs"]["kgen"] / row["reference_gbs"]
        row["missed"] = [f"{row['share']:.3f} of {best}"] if floor and row["share"] < floor else []
        row["missed"] += [f"{row['ratios'][name]['median']:.3f} x {name}" for name in PEERS if name in row["ratios"] and row["ratios"][name]["median"] < 1]
        self.points.append(row)
        print(f"# {family} {what} {shape}: {row['gbs']['kgen']:.0f} GB/s, {row['share']:.3f} of {best}", file=sys.stderr, flush=True)
        self.write()

    def copies_of_the_card(self):
        """Its copies of a set's `x` to its `out`, which may have different shapes."""
        calls = {"copy_": lambda t: t["out"].view(-1).copy_(t["x"].view(-1))}
        if self.memcpy:
            calls["cudaMemcpy"] = lambda t: self.memcpy(t["out"], t["x"])
        return calls

    def write(self):
        if self.args.out:
            card = torch.cuda.get_device_properties(0)
            document = {
                "format": 1, "gpu": card.name, "torch": torch.__version__, "cuda": torch.version.cuda, "libraries": self.args.library,
                "card": card_state(), "rounds": self.args.rounds, "notes": sorted(noted), "points": self.points,
            }
            with open(self.args.out, "w") as file:
                json.dump(document, file, indent=1)


def random(dtype, *shape):
    """Normal numbers, or random bits of an integer type."""
    kind = DTYPES[dtype]
    if kind.is_floating_point:
        return torch.randn(*shape, device="cuda", dtype=kind)
    low, high = (0, 256) if kind == torch.uint8 else (torch.iinfo(kind).min, torch.iinfo(kind).max)
    return torch.randint(low, high, shape, device="cuda", dtype=kind)


def empty(dtype, *shape):
    return torch.empty(*shape, device="cuda", dtype=DTYPES[dtype])


def floor_of(size):
    """The least share of the best copy, where one is asked for: at 1 GiB and 64 MiB of a vector or a matrix, give or
    take a tile."""
    near = lambda wanted: abs(size - wanted) <= wanted / 100
    return 0.95 if near(GIB) else 0.90 if near(64 * MIB) else None


def vector_add(bench, dtype, count):
    size = count * DTYPES[dtype].itemsize
    copies = Copies(lambda: {"x": random(dtype, count), "b": random(dtype, count), "out": empty(dtype, count)}, 3 * size)
    out = lambda t: t["out"]
    sides = bench.kgen("kgen_vector_add", lambda t, _: vector_add_params(t["x"], t["b"], t["out"]), out)
    sides["torch"] = Side(lambda t: torch.add(t["x"], t["b"], out=t["out"]), out)
    if bench.args.compile:
        add = compiled(lambda x, b, out: out.copy_(x + b))
        sides["compile"] = Side(lambda t: add(t["x"], t["b"], t["out"]), out)
    sides |= {name: Side(call, out) for name, call in cupy_sides("vector_add", dtype, note).items()}
    expected = copies.sets[0]["x"] + copies.sets[0]["b"]
    judge = lambda found, _: None if torch.equal(found, expected) else "not the sum"
    reference = bench.copies_of_the_card(), 2 * size
    bench.point("vector_add", dtype, f"{count}", 3 * size, reference, floor_of(size), copies, sides, judge)


def transpose(bench, dtype, rows, columns, in_place=False):
    size = rows * columns * DTYPES[dtype].itemsize

    def make():
        x = random(dtype, rows, columns)
        return {"x": x, "out": empty(dtype, columns, rows)} | ({"work": x.clone()} if in_place else {})

    copies = Copies(make, 2 * size)
    out, source = lambda t: t["out"], "work" if in_place else "x"
    target = "work" if in_place else "out"
    sides = bench.kgen("kgen_transpose", lambda t, _: transpose_params(t[source], t[target]), lambda t: t[target])
    # No library transposes in place: theirs write a second matrix.
    sides["torch"] = Side(lambda t: t["x"].t().contiguous())
    if bench.args.compile:
        turn = compiled(lambda x, out: out.copy_(x.t()))
        sides["compile"] = Side(lambda t: turn(t["x"], t["out"]), out)
    sides |= {name: Side(call, out) for name, call in cupy_sides("transpose", dtype, note).items()}
    if bench.peers:
        sides["tiled"] = Side(lambda t: bench.peers.transpose(True, t["x"], t["out"]), out)
        sides["naive"] = Side(lambda t: bench.peers.transpose(False, t["x"], t["out"]), out)
    expected = copies.sets[0]["x"].t()
    judge = lambda found, _: None if torch.equal(found, expected) else "not the transposition"
    what = f"{dtype} in place" if in_place else dtype
    reference = bench.copies_of_the_card(), 2 * size
    bench.point("transpose", what, f"{rows}x{columns}", 2 * size, reference, floor_of(size), copies, sides, judge)


def wide_result(x, operation, rows_at_once):
    """Results of rows in float64, and for a sum what it may be off by."""
    results, magnitude = [], []
    for part in x.split(rows_at_once):
        wide = part.double()
        results.append({"sum": lambda: wide.sum(1), "max": lambda: wide.amax(1), "logsumexp": lambda: wide.logsumexp(1)}[operation]())
        magnitude.append(wide.abs().sum(1))
    return torch.cat(results), torch.cat(magnitude)


def reduce(bench, operation, dtype, rows, columns):
    size = rows * columns * DTYPES[dtype].itemsize
    copies = Copies(lambda: {"x": random(dtype, rows, columns), "out": empty("fp32", rows)}, size)
    workspaces = []

    def params(t, library):
        p = reduce_params(t["x"], t["out"], operation)
        workspaces.append(library.workspace("kgen_reduce", p))
        return p

    plain = {
        "sum": lambda x: torch.sum(x, 1, dtype=torch.float32),
        "max": lambda x: torch.amax(x, 1),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
    }[operation]
    sides = bench.kgen("kgen_reduce", params, lambda t: t["out"])
    sides["torch"] = Side(lambda t: plain(t["x"]))
    if bench.args.compile:
        fused = compiled(plain if operation != "logsumexp" else lambda x: torch.logsumexp(x.float(), 1))
        sides["compile"] = Side(lambda t: fused(t["x"]))
    sides |= {name: Side(call) for name, call in cupy_sides(operation, dtype, note).items()}
    readers = bench.peers.readers() if bench.peers else {}
    readers["torch.sum"] = lambda t: torch.sum(t["x"].view(-1), dtype=torch.float32)
    wide, magnitude = wide_result(copies.sets[0]["x"], operation, max(1, (1 << 27) // columns))

    def judge(found, ours):
        # kgen's logsumexp differs from float64's by roundings of fp32; a library may round its own to the dtype.
        slack = 3e-5 + wide.abs() * 1e-6 if ours else 2e-2 * (1 + wide.abs())
        allowed = {"sum": magnitude * 1e-5, "max": torch.zeros_like(wide), "logsumexp": slack}[operation]
        bad = int((~((found.double() - wide).abs() <= allowed)).sum())
        return f"{bad} of {rows} rows differ from float64" if bad else None

    shape = f"all {columns}" if rows == 1 else f"{rows}x{columns}"
    bench.point("reduce", f"{operation} {dtype}", shape, size, (readers, size), 0.95, copies, sides, judge)


def plan(quick):
    """The points, those that decide first. 64 MiB and 1 GiB are bytes of a vector or a matrix."""
    sizes = [GIB, 64 * MIB]
    points = []
    for size in sizes:
        points += [(vector_add, dtype, size // DTYPES[dtype].itemsize) for dtype in ("fp32", "fp16", "bf16")]
        sides = {"b32": 16384, "b16": 16384, "b8": 32768}
        for dtype, side in sides.items():
            rows = side // 4 if size != GIB else side
            columns = size // DTYPES[dtype].itemsize // rows
            points.append((transpose, dtype, rows, columns))
        for dtype in sides:
            side = math.isqrt(size // DTYPES[dtype].itemsize) // 64 * 64
            points.append((transpose, dtype, side, side, True))
        points += [(reduce, operation, dtype, 1, size // DTYPES[dtype].itemsize) for dtype in ("fp32", "bf16") for operation in ("sum", "max", "logsumexp")]
    if quick:
        return points
    for columns in (1024, 32768, 128, 4096, 1 << 20):
        points += [(reduce, operation, "bf16", GIB // 2 // columns, columns) for operation in ("sum", "max", "logsumexp")]
    # Sizes that nothing was tuned on.
    points += [(vector_add, "fp16", 100_000_007), (vector_add, "fp32", 50_331_653)]
    points += [(transpose, dtype, 10_007, 9_001) for dtype in ("b32", "b16", "b8")]
    points += [(transpose, "b16", 50_000, 3_000), (transpose, "b8", 9_999, 9_999, True)]
    points += [(reduce, "sum", "fp32", 1, 77_777_777), (reduce, "sum", "fp32", 30_011, 3_001), (reduce, "logsumexp", "fp16", 7_001, 12_344)]
    points += [(reduce, "sum", "fp16", 1, GIB // 2), (reduce, "logsumexp", "fp16", 1, GIB // 2), (reduce, "sum", "fp32", GIB // 4 // 4096, 4096)]
    return points


def markdown(points):
    """A row a point."""
    names = [name for name in ["kgen 2", *PEERS, "tiled", "naive"] if any(name in row["ratios"] for row in points)]
    lines = ["| kernel | shape | kgen GB/s | best of the card | share | floor | " + " | ".join(f"x {name}" for name in names) + " | missed |"]
    lines.append("|" + "---|" * (7 + len(names)))
    for row in points:
        cells = [f"{row['family']} {row['what']}", row["shape"], f"{row['gbs']['kgen']:.0f}", f"{row['reference_gbs']:.0f} {row['reference']}"]
        cells += [f"{row['share']:.3f}", f"{row['floor']:.2f}" if row["floor"] else "–"]
        cells += [f"{row['ratios'][name]['median']:.2f}" if name in row["ratios"] else "–" for name in names]
        lines.append("| " + " | ".join([*cells, "; ".join(row["missed"]) or "–"]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", action="append", required=True, metavar="FILE", help="libkgen.so; more are timed beside the first")
    parser.add_argument("--out", metavar="FILE", help="JSON with all rounds, rewritten after each point")
    parser.add_argument("--only", choices=["vector_add", "transpose", "reduce"], help="one family")
    parser.add_argument("--quick", action="store_true", help="the two sizes alone, without rows and unround sizes")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="without torch.compile, which takes most of the time")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--batch-ms", type=float, default=2.0)
    parser.add_argument("--limit-s", type=float, default=170, help="no further point is begun after so many seconds")
    parser.add_argument("--huge", action="store_true", help="check, and not time, tensors of more than 2^31 elements")
    args = parser.parse_args()
    if args.huge:
        return families_huge.check(Library(args.library[0]))
    bench = Bench(args)
    for function, *point in plan(args.quick):
        if args.only not in (None, function.__name__):
            continue
        name = f"{function.__name__} {' '.join(map(str, point))}"
        if time.monotonic() - bench.started > args.limit_s:
            note(f"--limit-s is over: {name} is left out")
            continue
        try:
            function(bench, *point)
        except Exception as error:  # such as too little memory: the other points stand
            bench.wrong += 1
            print(f"WRONG: {name}: {first_line(error)}", flush=True)
        torch.cuda.empty_cache()
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, {card_state()}\n")
    print(markdown(bench.points))
    missed = [row for row in bench.points if row["missed"]]
    print(f"\n{len(bench.points)} points, {len(missed)} below a floor or a peer, {bench.wrong} wrong, {time.monotonic() - bench.started:.0f} s")
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
