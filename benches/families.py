#!/usr/bin/env python3
"""vector_add, transpose and reduce compared with the card's bandwidth, PyTorch, torch.compile and CuPy in one process.

    kgen build --target sm90 --build-dir build-families \\
      --kind vector_add,transpose,reduce_sum,reduce_max,reduce_logsumexp
    python3 benches/families.py --library build-families/lib/libkgen.so --out families.jsonl
    python3 benches/families.py --library build-families/lib/libkgen.so --huge

Needs PyTorch; nvcc (for the read probe, the naive and the tiled transposition) and CuPy are skipped with a note if
they are missing. The library may come from another machine. A second --library is timed in the same run as `kgen 2`.

Calls rotate through copies of the tensors that total five times the L2. GB/s count the required traffic: three
vectors, two matrices, one input. `floor` is the fraction of the reference's rate that kgen must reach: of the best
copy of the same number of bytes (cudaMemcpy's or Tensor.copy_'s), 0.95 at 1 GiB and 0.90 at 64 MiB; for a reduction
0.95 of the fastest reader of its input (several probes and torch.sum). Ratios to peers must be 1 or more. Every side's
result is compared with PyTorch's (reductions: with float64) before it is timed, and kgen's again afterwards.

Exit code 1: a result of kgen was wrong. A rate below its floor is not an error; it is listed and counted. --huge
checks tensors of more than 2^31 elements, with about 40 GiB of device memory, without timing.
"""

import math
import sys

import torch

import families_huge
from families_peers import CompiledPeers, cupy_call
from lab import Bench, Contender, parser, timing
from lab.kgen import reduce_params, transpose_params, vector_add_params
from lab.peers import compiled, cuda_memcpy, found

MIB, GIB = 1 << 20, 1 << 30
DTYPES = {
    "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "b32": torch.int32, "b16": torch.int16,
    "b8": torch.uint8,
}
PEERS = ["torch", "compile", "cupy"]  # kgen must not be slower than these


def drawn(dtype, *shape):
    """Normal numbers, or random bits of an integer type."""
    kind = DTYPES[dtype]
    if kind.is_floating_point:
        return torch.randn(*shape, device="cuda", dtype=kind)
    low, high = (0, 256) if kind == torch.uint8 else (torch.iinfo(kind).min, torch.iinfo(kind).max)
    return torch.randint(low, high, shape, device="cuda", dtype=kind)


def empty(dtype, *shape):
    return torch.empty(*shape, device="cuda", dtype=DTYPES[dtype])


def floor_of(size):
    """The minimum fraction of the best copy's rate: at 1 GiB and 64 MiB of a vector or a matrix, give or take a
    tile."""
    near = lambda wanted: abs(size - wanted) <= wanted / 100
    return 0.95 if near(GIB) else 0.90 if near(64 * MIB) else None


class Families:
    """The bench with kgen's references, and the rates below their floors."""

    def __init__(self, bench):
        self.bench, self.missed = bench, []
        peers = bench.peers({"compiled": CompiledPeers, "cudaMemcpy": cuda_memcpy})
        self.compiled, memcpy = peers.get("compiled"), peers.get("cudaMemcpy")
        self.copies_of_the_card = {"copy_": lambda t: t["out"].view(-1).copy_(t["x"].view(-1))}
        if memcpy:
            self.copies_of_the_card["cudaMemcpy"] = lambda t: memcpy(t["out"], t["x"])

    def cupy(self, operation, dtype):
        peers, absent = found({"cupy": lambda: cupy_call(operation, dtype)})
        for why in absent.values():
            self.bench.note(why)
        return peers

    def point(self, case, what, make, size, moved, name, params, peers, references, floor, judge, ours=None,
            reset=None):
        """One point. `make` draws a set of tensors of `size` bytes, `params` are kgen's for a set, `peers` and
        `references` functions of a set; those that return nothing leave their result in `out`. `judge(result, set)`
        is 0 if the result is right; `ours` applies stricter limits to kgen. `reset` restores a set whose result is in
        `work`."""
        sets = [make() for _ in range(timing.copies_for(size, 5))]
        judged = lambda found: judge(sets[-1]["out"] if found is None else found, sets[-1])
        contenders = {}
        for label, library in self.bench.libraries.items():
            # Separate results for kgen, so that values found after timing were written by it.
            mine = [{**t, **{key: torch.empty_like(t[key]) for key in ("out", "work") if key in t}} for t in sets]
            calls = [library.call(name, params(t)) for t in mine]

            def judge_own(_, t=mine[-1], calls=calls):
                if reset:
                    reset(t)
                    calls[-1]()
                return (ours or judge)(t["work" if reset else "out"], t)

            out = [] if reset else [mine[-1]["out"]]
            contenders[label] = Contender(calls, out=out, own=True, judge=judge_own)
        for label, call in {**peers, **references}.items():
            is_reference = label in references
            contenders[label] = Contender(
                [lambda t=t, call=call: call(t) for t in sets], judge=(lambda _: 0.0) if is_reference else judged,
                bytes=size if is_reference else None)
        shape = dict(zip(("rows", "columns") if len(what) == 2 else ("count",), what))
        rows = self.bench.point(
            case, shape, contenders, judge=judged, allowed=0, dtype=case.split()[1], layout="row-major", moved=moved,
            l2="cold", formula="what must be moved: three vectors, two matrices, one input",
            details={"floor": floor, "peers": sorted(peers)})
        timed = {label: row["numbers"] for label, row in rows.items() if row["numbers"]}
        best = max((label for label in references if label in timed), key=lambda label: timed[label]["rate"],
            default=None)
        if "kgen" in timed and best:
            share = timed["kgen"]["rate"] / timed[best]["rate"]
            below = [f"{share:.3f} of {best}"] if floor and share < floor else []
            ratios = {label: timed[label]["ratio"]["median"] for label in PEERS if label in timed}
            below += [f"{ratio:.3f} x {label}" for label, ratio in ratios.items() if ratio < 1]
            self.missed += [f"* {case}: {'; '.join(below)}"] if below else []
            self.bench.note(f"{case}: {share:.3f} of {best}, floor {floor or 'none'}")


def vector_add(families, dtype, count):
    size = count * DTYPES[dtype].itemsize
    make = lambda: {"x": drawn(dtype, count), "b": drawn(dtype, count), "out": empty(dtype, count)}
    peers = {"torch": lambda t: torch.add(t["x"], t["b"], out=t["out"])}
    if families.bench.args.compile:
        add = compiled(lambda x, b, out: out.copy_(x + b))
        peers["compile"] = lambda t: add(t["x"], t["b"], t["out"])
    families.point(
        f"vector_add {dtype} {count}", (count,), make, 2 * size, 3 * size, "kgen_vector_add",
        lambda t: vector_add_params(t["x"], t["b"], t["out"]), peers | families.cupy("vector_add", dtype),
        families.copies_of_the_card,
        floor_of(size), lambda found, t: 0.0 if torch.equal(found, t["x"] + t["b"]) else float("inf"))


def transpose(families, dtype, rows, columns, in_place=False):
    size = rows * columns * DTYPES[dtype].itemsize

    def make():
        x = drawn(dtype, rows, columns)
        return {"x": x, "out": empty(dtype, columns, rows)} | ({"work": x.clone()} if in_place else {})

    # No library transposes in place: peers write a second matrix.
    peers = {"torch": lambda t: t["x"].t().contiguous()}
    if families.bench.args.compile:
        turn = compiled(lambda x, out: out.copy_(x.t()))
        peers["compile"] = lambda t: turn(t["x"], t["out"])
    peers |= families.cupy("transpose", dtype)
    if families.compiled:
        peers["tiled"] = lambda t: families.compiled.transpose(True, t["x"], t["out"])
        peers["naive"] = lambda t: families.compiled.transpose(False, t["x"], t["out"])
    params = lambda t: transpose_params(t["work"], t["work"]) if in_place else transpose_params(t["x"], t["out"])
    judge = lambda found, t: 0.0 if torch.equal(found, t["x"].t()) else float("inf")
    anew = (lambda t: t["work"].copy_(t["x"])) if in_place else None
    families.point(
        f"transpose {dtype} {rows}x{columns}{' in place' if in_place else ''}", (rows, columns), make, 2 * size,
        2 * size, "kgen_transpose",
        params, peers, families.copies_of_the_card, floor_of(size), judge, reset=anew)


def wide_result(x, operation, rows_at_once):
    """Results of rows in float64, and for a sum its tolerance."""
    of = {"sum": lambda x: x.sum(1), "max": lambda x: x.amax(1), "logsumexp": lambda x: x.logsumexp(1)}[operation]
    parts = [(of(part.double()), part.double().abs().sum(1)) for part in x.split(rows_at_once)]
    return [torch.cat(found) for found in zip(*parts)]


def reduce(families, operation, dtype, rows, columns):
    size = rows * columns * DTYPES[dtype].itemsize
    make = lambda: {"x": drawn(dtype, rows, columns), "out": empty("fp32", rows)}
    plain = {
        "sum": lambda x: torch.sum(x, 1, dtype=torch.float32), "max": lambda x: torch.amax(x, 1),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
    }[operation]
    peers = {"torch": lambda t: plain(t["x"])}
    if families.bench.args.compile:
        fused = compiled(plain if operation != "logsumexp" else lambda x: torch.logsumexp(x.float(), 1))
        peers["compile"] = lambda t: fused(t["x"])
    peers |= families.cupy(operation, dtype)
    readers = families.compiled.readers() if families.compiled else {}
    readers["torch.sum"] = lambda t: torch.sum(t["x"].view(-1), dtype=torch.float32)

    def judge(found, t, ours=False):
        if "wide" not in t:
            t["wide"] = wide_result(t["x"], operation, max(1, (1 << 27) // columns))
        expected, magnitude = t["wide"]
        # kgen's logsumexp differs from float64's by fp32 rounding; a library may round its own to the dtype.
        slack = 3e-5 + expected.abs() * 1e-6 if ours else 2e-2 * (1 + expected.abs())
        allowed = {"sum": magnitude * 1e-5, "max": torch.zeros_like(expected), "logsumexp": slack}[operation]
        return float((~((found.double() - expected).abs() <= allowed)).sum())

    shape = f"all {columns}" if rows == 1 else f"{rows}x{columns}"
    families.point(
        f"reduce_{operation} {dtype} {shape}", (rows, columns), make, size, size, "kgen_reduce",
        lambda t: reduce_params(t["x"], t["out"], operation), peers, readers, 0.95, judge,
        ours=lambda found, t: judge(found, t, ours=True))


def plan(quick):
    """The points, the decisive ones first. 64 MiB and 1 GiB are bytes of a vector or a matrix."""
    points = []
    for size in (GIB, 64 * MIB):
        points += [(vector_add, dtype, size // DTYPES[dtype].itemsize) for dtype in ("fp32", "fp16", "bf16")]
        for dtype, side in (("b32", 16384), ("b16", 16384), ("b8", 32768)):
            rows = side // 4 if size != GIB else side
            points.append((transpose, dtype, rows, size // DTYPES[dtype].itemsize // rows))
        for dtype in ("b32", "b16", "b8"):
            side = math.isqrt(size // DTYPES[dtype].itemsize) // 64 * 64
            points.append((transpose, dtype, side, side, True))
        operations = [(dtype, operation) for dtype in ("fp32", "bf16") for operation in ("sum", "max", "logsumexp")]
        points += [(reduce, operation, dtype, 1, size // DTYPES[dtype].itemsize) for dtype, operation in operations]
    if quick:
        return points
    for columns in (1024, 32768, 128, 4096, 1 << 20):
        points += [(reduce, operation, "bf16", GIB // 2 // columns, columns)
            for operation in ("sum", "max", "logsumexp")]
    # Sizes that were not used for tuning.
    points += [(vector_add, "fp16", 100_000_007), (vector_add, "fp32", 50_331_653)]
    points += [(transpose, dtype, 10_007, 9_001) for dtype in ("b32", "b16", "b8")]
    points += [(transpose, "b16", 50_000, 3_000), (transpose, "b8", 9_999, 9_999, True)]
    points += [(reduce, "sum", "fp32", 1, 77_777_777), (reduce, "sum", "fp32", 30_011, 3_001),
        (reduce, "logsumexp", "fp16", 7_001, 12_344)]
    points += [(reduce, "sum", "fp16", 1, GIB // 2), (reduce, "logsumexp", "fp16", 1, GIB // 2),
        (reduce, "sum", "fp32", GIB // 4 // 4096, 4096)]
    return points


def main():
    arguments = parser(__doc__, rounds=11, round_ms=2)
    arguments.add_argument("--no-compile", dest="compile", action="store_false",
        help="without torch.compile, which takes most of the time")
    arguments.add_argument("--huge", action="store_true",
        help="check, and not time, tensors of more than 2^31 elements")
    arguments.set_defaults(limit_s=170)
    bench = Bench(args := arguments.parse_args())
    if args.huge:
        return families_huge.check(bench)
    families = Families(bench)
    name_of = lambda point: f"{point[0].__name__} {' '.join(map(str, point[1:]))}"
    points = plan(args.quick)
    for function, *point in bench.selected(points, name_of, quick=len(points)):
        try:
            function(families, *point)
        except Exception as error:  # such as too little memory: the other points remain valid
            bench.add(name_of((function, *point)), "kgen", "error", f"{type(error).__name__}: {error}"[:200])
    code = bench.finish(group="rows")
    print("\n".join([f"{len(families.missed)} below a floor or a peer", *families.missed]))
    return code


if __name__ == "__main__":
    sys.exit(main())
