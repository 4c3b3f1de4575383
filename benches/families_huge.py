"""vector_add, transpose and reduce on tensors of more than 2^31 elements, compared with PyTorch piece by piece: indices
of 32 bits, signed or not, would give wrong elements or faults. `benches/families.py --huge` runs it, with about 40
GiB."""

import torch

from lab import Contender
from lab.kgen import reduce_params, transpose_params, vector_add_params

PIECE = 1 << 27  # elements that PyTorch compares at once
BEYOND = (1 << 32) + (1 << 20) + 24  # elements: more than 32 bits can count


def bits(dtype, *shape):
    """Random bits whose float16 and bfloat16 readings are finite and small."""
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, device="cuda", dtype=dtype)
    x = torch.empty(shape, device="cuda", dtype=dtype)
    for part in x.view(-1).split(PIECE):
        part.copy_(torch.randint(-8, 9, part.shape, device="cuda", dtype=torch.int8))
    return x


def vector_add(library, dtype):
    a, b = bits(dtype, BEYOND), bits(dtype, BEYOND)
    out = torch.full_like(a, float("nan"))
    library.call("kgen_vector_add", vector_add_params(a, b, out))()
    return all(torch.equal(x + y, z) for x, y, z in zip(*(x.split(PIECE) for x in (a, b, out))))


def transpose(library, dtype, rows, columns, in_place=False):
    x = bits(dtype, rows, columns)
    kept, out = (x.clone(), x) if in_place else (x, torch.zeros(columns, rows, device="cuda", dtype=dtype))
    library.call("kgen_transpose", transpose_params(x, out))()
    at_once = PIECE // columns
    return all(torch.equal(kept[r : r + at_once], out[:, r : r + at_once].t()) for r in range(0, rows, at_once))


def reduce(library, dtype, rows, columns):
    """Sums, maxima and logsumexp; integers, so that maxima are exact."""
    x = bits(dtype, rows, columns)
    x.view(-1)[-1] = 64  # the largest is at the end
    right, at_once = True, max(1, PIECE // columns)
    for operation in ("sum", "max", "logsumexp"):
        out = torch.full((rows,), float("nan"), device="cuda")
        library.call("kgen_reduce", reduce_params(x, out, operation))()
        for first in range(0, rows, at_once):
            wide = [piece.double() for piece in x[first : first + at_once].split(PIECE, 1)]
            if operation == "sum":
                expected, allowed = sum(w.sum(1) for w in wide), 1e-6 * sum(w.abs().sum(1) for w in wide)
            elif operation == "max":
                expected, allowed = torch.stack([w.amax(1) for w in wide]).amax(0), 0.0
            else:
                expected, allowed = torch.stack([w.logsumexp(1) for w in wide]).logsumexp(0), 1e-4
            right &= bool(((out[first : first + at_once].double() - expected).abs() <= allowed).all())
    return right


CHECKS = {
    "vector_add fp16": (vector_add, torch.float16),
    "transpose b8": (transpose, torch.uint8, 65_560, 65_568),  # every row begins at a multiple of 8 elements
    "transpose b16": (transpose, torch.float16, 32_784, 65_568),
    "transpose b16, odd": (transpose, torch.float16, 46_349, 46_351),
    "transpose b8 in place": (transpose, torch.uint8, 65_552, 65_552, True),
    "reduce bf16, all": (reduce, torch.bfloat16, 1, BEYOND + 3),
    "reduce fp16, rows": (reduce, torch.float16, 70_000, 65_544),
    "reduce bf16, short rows": (reduce, torch.bfloat16, (1 << 31) // 96 + 7, 96),
}


def check(bench):
    """Runs all points, once each and untimed; returns the exit code."""
    for name in bench.selected(CHECKS, str, quick=len(CHECKS)):
        function, *sizes = CHECKS[name]
        judge = lambda right: 0.0 if right else float("inf")
        contender = Contender(lambda: function(bench.library, *sizes), own=True, timed=False, judge=judge)
        bench.point(f"{name}, more than 2^31 elements", {}, {"kgen": contender}, judge=judge, allowed=0,
            dtype=name.split()[1].strip(","))
    return bench.finish(tables=False)
