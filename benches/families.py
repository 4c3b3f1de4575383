"""Kernels that are limited by memory: vector_add, transpose, reduce and rmsnorm, compared with the card's bandwidth,
PyTorch, torch.compile and CuPy in one process.

    kgen build --target sm90 --kind vector_add,transpose,reduce_sum,reduce_max,reduce_logsumexp
    python3 benches/families.py families --library build/lib/libkgen.so --out families.jsonl

nvcc (for the read probe, the naive and the tiled transposition) and CuPy are skipped with a note if they are missing.
The library may come from another machine. L2 is cold: calls rotate through copies of the tensors that total 5 times the
L2 (`rmsnorm`: twice). GB/s count the required traffic.
"""

import ctypes
import math
import shutil
import subprocess
import tempfile
from pathlib import Path

from lab import Contender, attention, main, suite, timing, unjudged
from lab.kgen import reduce_params, rmsnorm_params, transpose_params, vector_add_params
from lab.peers import Absent, compiled, cuda_memcpy, cupy, found

try:
    import torch
except ImportError:
    torch = None

MIB, GIB, INF = 1 << 20, 1 << 30, float("inf")
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "b32": "int32", "b16": "int16", "b8": "uint8"}
PEERS = ["torch", "compile", "cupy"]  # the peers that kgen must not be slower than


def kind_of(dtype):
    return getattr(torch, DTYPES[dtype])


def drawn(dtype, *shape):
    """Normally distributed numbers, or random bits of an integer type."""
    kind = kind_of(dtype)
    if kind.is_floating_point:
        return torch.randn(*shape, device="cuda", dtype=kind)
    limits = torch.iinfo(kind)
    return torch.randint(limits.min, limits.max + (dtype == "b8"), shape, device="cuda", dtype=kind)


class CompiledPeers:
    """The kernels of families_peers.cu, compiled by this machine's nvcc."""

    def __init__(self):
        nvcc, folder = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin"), tempfile.mkdtemp()
        what = "the read probes, the naive and the tiled transposition are absent"
        if nvcc is None:
            raise Absent(f"{what}: there is no nvcc")
        card, library = torch.cuda.get_device_properties(0), f"{folder}/peers.so"
        source = Path(__file__).resolve().with_name("families_peers.cu")
        done = subprocess.run([nvcc, "-O3", f"-arch=sm_{card.major}{card.minor}", "-shared", "-Xcompiler", "-fPIC",
            "-o", library, source], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise Absent(f"{what}: nvcc says {done.stderr.strip()[:300]}")
        self.library, self.never = ctypes.CDLL(library), torch.zeros(1, device="cuda", dtype=torch.int32)
        self.blocks = 8 * card.multi_processor_count

    def launch(self, name, *arguments):
        """Calls a launcher; tensors are passed as addresses, and sizes as 64-bit integers."""
        given = [ctypes.c_void_p(x.data_ptr()) if hasattr(x, "data_ptr") else x for x in arguments]
        code = getattr(self.library, name)(*given, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if code != 0:
            raise RuntimeError(f"{name}: CUDA error {code}")

    def readers(self):
        """Functions that read a set's `x` and write nothing, by name."""
        size = lambda x: ctypes.c_uint64(x.nbytes // 16 * 16)
        read = lambda way: lambda t: self.launch("peer_read", *way, t["x"], size(t["x"]), self.never)
        return {"read 4": read((4, 0)), "read 8": read((8, 0)), "read 8 round": read((8, self.blocks))}

    def transposing(self, in_tiles):
        return lambda t: self.launch("peer_transpose", in_tiles, t["x"].element_size(), t["x"], t["out"],
            *map(ctypes.c_uint64, t["x"].shape))


def cupy_call(operation, dtype):
    """CuPy's function of a set of tensors, on PyTorch's stream."""
    module = cupy()
    if dtype == "bf16" or operation == "logsumexp":
        raise Absent(f"cupy is absent for {operation} of {dtype}: it has neither bf16 nor logsumexp")

    def transposed(x, out):
        out[...] = x.T

    function = {
        "vector_add": lambda x, b, out: torch.from_dlpack(module.add(x, b, out=out)), "transpose": transposed,
        "sum": lambda x, out: torch.from_dlpack(module.sum(x, axis=1, dtype=module.float32)),
        "max": lambda x, out: torch.from_dlpack(module.amax(x, axis=1)),
    }[operation]

    def call(t):
        with module.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            return function(*(module.from_dlpack(t[name]) for name in ("x", "b", "out") if name in t))

    return call


class Families:
    """The bench with kgen's references, and the rates below their floors."""

    def __init__(self, bench):
        self.bench, self.missed = bench, []
        peers = bench.peers(compiled=CompiledPeers, cudaMemcpy=cuda_memcpy)
        self.compiled, memcpy = peers.get("compiled"), peers.get("cudaMemcpy")
        self.copies_of_the_card = {"copy_": lambda t: t["out"].view(-1).copy_(t["x"].view(-1))}
        if memcpy:
            self.copies_of_the_card["cudaMemcpy"] = lambda t: memcpy(t["out"], t["x"])

    def peers(self, operation, dtype, plain, fused):
        """The peers, each a function of a set of tensors: `torch` calls `plain`, `compile` calls `fused` compiled
        (unless --no-compile is passed), and `cupy` calls CuPy's function."""
        peers = {"torch": plain}
        if self.bench.args.compile:
            turn = compiled(fused)
            peers["compile"] = lambda t: turn(*(t[name] for name in fused.__code__.co_varnames))
        peers_of_cupy, absent = found({"cupy": lambda: cupy_call(operation, dtype)})
        for why in absent.values():
            self.bench.note(why)
        return peers | peers_of_cupy

    def point(self, case, what, make, size, moved, name, params, peers, references, floor, judge, ours=None,
            reset=None):
        """One point. `make` draws a set of tensors of `size` bytes, `params` are kgen's for a set, `peers` and
        `references` functions of a set; those that return nothing leave their result in `out`. `judge(result, set)`
        is 0 if the result is right; `ours` applies stricter limits to kgen. `reset` restores a set whose result is in
        `work`."""
        sets = [make() for _ in range(timing.copies_for(size, 5))]
        judged = lambda found: judge(sets[-1]["out"] if found[0] is None else found[0], sets[-1])
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

            contenders[label] = Contender(calls, out=[] if reset else [mine[-1]["out"]], own=True, judge=judge_own)
        for label, call in {**peers, **references}.items():
            given = {"judge": unjudged, "bytes": size} if label in references else {"judge": judged}
            contenders[label] = Contender([lambda t=t, call=call: call(t) for t in sets], **given)
        shape = dict(zip(("rows", "columns") if len(what) == 2 else ("count",), what))
        rows = self.bench.point(case, shape, contenders, allowed=0, dtype=case.split()[1], layout="row-major",
            moved=moved, l2="cold", formula="what must be moved: three vectors, two matrices, one input",
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


def floor_of(size):
    """The minimum fraction of the best copy's rate: at 1 GiB and 64 MiB of a vector or a matrix, give or take a
    tile."""
    near = lambda wanted: abs(size - wanted) <= wanted / 100
    return 0.95 if near(GIB) else 0.90 if near(64 * MIB) else None


def vector_add(families, dtype, count):
    size = count * kind_of(dtype).itemsize
    make = lambda: {"x": drawn(dtype, count), "b": drawn(dtype, count),
        "out": torch.empty(count, device="cuda", dtype=kind_of(dtype))}
    peers = families.peers("vector_add", dtype, lambda t: torch.add(t["x"], t["b"], out=t["out"]),
        lambda x, b, out: out.copy_(x + b))
    families.point(f"vector_add {dtype} {count}", (count,), make, 2 * size, 3 * size, "kgen_vector_add",
        lambda t: vector_add_params(t["x"], t["b"], t["out"]), peers, families.copies_of_the_card, floor_of(size),
        lambda found, t: 0.0 if torch.equal(found, t["x"] + t["b"]) else INF)


def transpose(families, dtype, rows, columns, in_place=False):
    size = rows * columns * kind_of(dtype).itemsize

    def make():
        x = drawn(dtype, rows, columns)
        return {"x": x, "out": x.new_empty(columns, rows)} | ({"work": x.clone()} if in_place else {})

    # No library transposes in place: peers write a second matrix.
    peers = families.peers("transpose", dtype, lambda t: t["x"].t().contiguous(), lambda x, out: out.copy_(x.t()))
    if families.compiled:
        peers |= {"tiled": families.compiled.transposing(1), "naive": families.compiled.transposing(0)}
    families.point(f"transpose {dtype} {rows}x{columns}{' in place' if in_place else ''}", (rows, columns), make,
        2 * size, 2 * size, "kgen_transpose",
        lambda t: transpose_params(*([t["work"]] * 2 if in_place else (t["x"], t["out"]))), peers,
        families.copies_of_the_card, floor_of(size), lambda found, t: 0.0 if torch.equal(found, t["x"].t()) else INF,
        reset=(lambda t: t["work"].copy_(t["x"])) if in_place else None)


OF_ROWS = {"sum": lambda x: x.sum(1), "max": lambda x: x.amax(1), "logsumexp": lambda x: x.logsumexp(1)}


def reduce(families, operation, dtype, rows, columns):
    size = rows * columns * kind_of(dtype).itemsize
    make = lambda: {"x": drawn(dtype, rows, columns), "out": torch.empty(rows, device="cuda")}
    plain = OF_ROWS[operation] if operation != "sum" else lambda x: torch.sum(x, 1, dtype=torch.float32)
    peers = families.peers(operation, dtype, lambda t: plain(t["x"]),
        plain if operation != "logsumexp" else lambda x: torch.logsumexp(x.float(), 1))
    readers = families.compiled.readers() if families.compiled else {}
    readers["torch.sum"] = lambda t: torch.sum(t["x"].view(-1), dtype=torch.float32)

    def judge(found, t, ours=False):
        if "wide" not in t:  # results in float64, and for a sum its tolerance
            parts = [part.double() for part in t["x"].split(max(1, (1 << 27) // columns))]
            t["wide"] = [torch.cat([OF_ROWS[operation](x) for x in parts]), torch.cat([x.abs().sum(1) for x in parts])]
        expected, magnitude = t["wide"]
        # kgen's logsumexp differs from float64's by fp32 rounding; a library may round its own to the dtype.
        slack = 3e-5 + expected.abs() * 1e-6 if ours else 2e-2 * (1 + expected.abs())
        allowed = {"sum": magnitude * 1e-5, "max": torch.zeros_like(expected), "logsumexp": slack}[operation]
        return float((~((found.double() - expected).abs() <= allowed)).sum())

    shape = f"all {columns}" if rows == 1 else f"{rows}x{columns}"
    families.point(f"reduce_{operation} {dtype} {shape}", (rows, columns), make, size, size, "kgen_reduce",
        lambda t: reduce_params(t["x"], t["out"], operation), peers, readers, 0.95, judge,
        ours=lambda found, t: judge(found, t, ours=True))


def plan(quick):
    """The points, the decisive ones first. 64 MiB and 1 GiB are bytes of a vector or a matrix."""
    points, bytes_of = [], {"fp32": 4, "fp16": 2, "bf16": 2, "b32": 4, "b16": 2, "b8": 1}
    for size in (GIB, 64 * MIB):
        points += [(vector_add, dtype, size // bytes_of[dtype]) for dtype in ("fp32", "fp16", "bf16")]
        for dtype, side in (("b32", 16384), ("b16", 16384), ("b8", 32768)):
            rows = side // 4 if size != GIB else side
            points.append((transpose, dtype, rows, size // bytes_of[dtype] // rows))
        for dtype in ("b32", "b16", "b8"):
            side = math.isqrt(size // bytes_of[dtype]) // 64 * 64
            points.append((transpose, dtype, side, side, True))
        points += [(reduce, operation, dtype, 1, size // bytes_of[dtype]) for dtype in ("fp32", "bf16")
            for operation in OF_ROWS]
    if quick:
        return points
    points += [(reduce, operation, "bf16", GIB // 2 // columns, columns)
        for columns in (1024, 32768, 128, 4096, 1 << 20) for operation in OF_ROWS]
    # Sizes that were not used for tuning.
    return points + [
        (vector_add, "fp16", 100_000_007), (vector_add, "fp32", 50_331_653),
        *((transpose, dtype, 10_007, 9_001) for dtype in ("b32", "b16", "b8")),
        (transpose, "b16", 50_000, 3_000), (transpose, "b8", 9_999, 9_999, True),
        (reduce, "sum", "fp32", 1, 77_777_777), (reduce, "sum", "fp32", 30_011, 3_001),
        (reduce, "logsumexp", "fp16", 7_001, 12_344),
        (reduce, "sum", "fp16", 1, GIB // 2), (reduce, "logsumexp", "fp16", 1, GIB // 2),
        (reduce, "sum", "fp32", GIB // 4 // 4096, 4096)]


@suite("rows", rounds=11, round_ms=2.0, compile=True, limit_s=170.0)
def families(bench):
    """vector_add, transpose and reduce.

    A second --library is timed in the same run as `kgen 2`. GB/s count three vectors, two matrices, one input. `floor`
    is the fraction of the reference's rate that kgen must reach: of the best copy of the same number of bytes
    (cudaMemcpy's or Tensor.copy_'s), 0.95 at 1 GiB and 0.90 at 64 MiB; for a reduction 0.95 of the fastest reader of
    its input (several probes and torch.sum). Ratios to peers must be 1 or more. A rate below its floor is not an error;
    it is listed and counted. Every side's result is compared with PyTorch's (reductions: with float64).
    --no-compile: without torch.compile, which takes most of the time."""
    under = Families(bench)
    name_of = lambda point: f"{point[0].__name__} {' '.join(map(str, point[1:]))}"
    for function, *point in bench.selected(plan(bench.args.quick), name_of, quick=None):
        try:
            function(under, *point)
        except Exception as error:  # such as too little memory: the other points remain valid
            bench.add(name_of((function, *point)), "kgen", "error", f"{type(error).__name__}: {error}"[:200])
    print("\n".join([f"{len(under.missed)} below a floor or a peer", *under.missed]))


PIECE = 1 << 27  # elements that PyTorch compares at once
BEYOND = (1 << 32) + (1 << 20) + 24  # number of elements, too large for 32 bits


def bits(dtype, *shape):
    """Random integers from -8 to 8, or random bytes if `dtype` is uint8."""
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, device="cuda", dtype=dtype)
    x = torch.empty(shape, device="cuda", dtype=dtype)
    for part in x.view(-1).split(PIECE):
        part.copy_(torch.randint(-8, 9, part.shape, device="cuda", dtype=torch.int8))
    return x


def huge_vector_add(library, dtype):
    a, b = bits(dtype, BEYOND), bits(dtype, BEYOND)
    out = torch.full_like(a, float("nan"))
    library.call("kgen_vector_add", vector_add_params(a, b, out))()
    return all(torch.equal(x + y, z) for x, y, z in zip(*(x.split(PIECE) for x in (a, b, out))))


def huge_transpose(library, dtype, rows, columns, in_place=False):
    x = bits(dtype, rows, columns)
    kept, out = (x.clone(), x) if in_place else (x, x.new_zeros(columns, rows))
    library.call("kgen_transpose", transpose_params(x, out))()
    at_once = PIECE // columns
    return all(torch.equal(kept[r : r + at_once], out[:, r : r + at_once].t()) for r in range(0, rows, at_once))


def huge_reduce(library, dtype, rows, columns):
    """Sums, maxima and logsumexp; integers, so that maxima are exact."""
    x = bits(dtype, rows, columns)
    x.view(-1)[-1] = 64  # the largest is at the end
    right, at_once = True, max(1, PIECE // columns)
    for operation, of_rows in OF_ROWS.items():
        out = torch.full((rows,), float("nan"), device="cuda")
        library.call("kgen_reduce", reduce_params(x, out, operation))()
        for first in range(0, rows, at_once):
            wide = [piece.double() for piece in x[first : first + at_once].split(PIECE, 1)]
            expected = of_rows(torch.stack([of_rows(w) for w in wide], 1))
            allowed = {"sum": 1e-6 * sum(w.abs().sum(1) for w in wide), "max": 0.0, "logsumexp": 1e-4}[operation]
            right &= bool(((out[first : first + at_once].double() - expected).abs() <= allowed).all())
    return right


CHECKS = {
    "vector_add fp16": (huge_vector_add, "float16"),
    "transpose b8": (huge_transpose, "uint8", 65_560, 65_568),  # every row begins at a multiple of 8 elements
    "transpose b16": (huge_transpose, "float16", 32_784, 65_568),
    "transpose b16, odd": (huge_transpose, "float16", 46_349, 46_351),
    "transpose b8 in place": (huge_transpose, "uint8", 65_552, 65_552, True),
    "reduce bf16, all": (huge_reduce, "bfloat16", 1, BEYOND + 3),
    "reduce fp16, rows": (huge_reduce, "float16", 70_000, 65_544),
    "reduce bf16, short rows": (huge_reduce, "bfloat16", (1 << 31) // 96 + 7, 96),
}


@suite(tables=False)
def huge(bench):
    """vector_add, transpose and reduce on tensors of more than 2^31 elements, once each and untimed.

    They are compared with PyTorch piece by piece: indices of 32 bits, signed or not, would give wrong elements or
    faults. Takes about 40 GiB of device memory."""
    for name in bench.selected(CHECKS, str, quick=None):
        function, dtype, *sizes = CHECKS[name]
        contender = Contender(lambda: function(bench.library, getattr(torch, dtype), *sizes), own=True, timed=False)
        bench.point(f"{name}, more than 2^31 elements", {}, {"kgen": contender}, allowed=0,
            judge=lambda right: 0.0 if right[0] else INF, dtype=name.split()[1].strip(","))


# Rows and columns: sizes from models, rows that are read twice, and rows that are not multiples of pieces.
SIZES = [(16384, 1024), (4096, 4096), (8192, 8192), (1024, 65536), (16384, 1000), (4096, 4097)]
EPS = 1e-6


class Normalised:
    """Inputs and outputs of one RMS normalisation, and its calls; `copies` are outputs of the peers."""

    def __init__(self, dtype, rows, columns):
        self.x, self.residual = (attention.normal(rows, columns, dtype=dtype) for _ in range(2))
        self.weight = attention.normal(columns, dtype=dtype)
        self.out, self.residual_out, *self.copies = (torch.full_like(self.x, float("nan")) for _ in range(4))

    def kgen(self, library):
        return library.call("kgen_rmsnorm",
            rmsnorm_params(self.x, self.residual, self.weight, self.out, self.residual_out, EPS))

    def copy(self):
        self.copies[0].copy_(self.x), self.copies[1].copy_(self.residual)

    def in_torch(self):
        torch.add(self.x, self.residual, out=self.copies[0])
        return torch.nn.functional.rms_norm(self.copies[0], self.weight.shape, self.weight, EPS)

    def judge(self, _):
        """The largest error of `out` against float64, relative to the element or to 0.001; NaN if a sum is wrong."""
        h = self.x + self.residual
        wide = h.double()
        expected = wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + EPS) * self.weight.double()
        worst = ((self.out.double() - expected).abs() / expected.abs().clamp(min=0.001)).max().item()
        return worst if torch.equal(h, self.residual_out) else float("nan")


@suite("columns")
def rmsnorm(bench):
    """RMS normalisation with a residual.

    kgen build --kind rmsnorm --target sm90 --build-dir build-rmsnorm
    python3 benches/families.py rmsnorm --library build-rmsnorm/lib/libkgen.so --out rmsnorm.jsonl

    `torch` is `torch.add` and `torch.nn.functional.rms_norm`, `compile` the same under torch.compile, `copy` copies of
    two matrices, the number of bytes that kgen reads and writes without `weight`: ratios are their times / kgen's."""
    def added(x, residual, weight):
        h = x + residual
        return torch.nn.functional.rms_norm(h, weight.shape, weight, EPS), h

    cases = [(f"{dtype} {rows}x{columns}", dtype, rows, columns) for dtype in ("bf16", "fp16")
        for rows, columns in SIZES]
    for name, dtype, rows, columns in bench.selected(cases):
        moved = 8 * rows * columns
        sets = [Normalised(dtype, rows, columns) for _ in range(1 + timing.copies_for(moved, 2, most=400))]
        last, turn = sets[-1], compiled(added)
        contenders = {label: Contender([t.kgen(library) for t in sets], out=[last.out, last.residual_out], own=True,
            judge=last.judge) for label, library in bench.libraries.items()}
        contenders |= {"torch": Contender([t.in_torch for t in sets]),
            "compile": Contender([lambda t=t: turn(t.x, t.residual, t.weight) for t in sets]),
            "copy": Contender([t.copy for t in sets])}
        bench.point(name, {"rows": rows, "columns": columns}, contenders, allowed=2**-8 if dtype == "bf16" else 2**-10,
            dtype=dtype, layout="matrix", moved=moved, l2="cold", graph=True, formula="four matrices, without weight")
        del sets, last, contenders


if __name__ == "__main__":
    main(__doc__)
