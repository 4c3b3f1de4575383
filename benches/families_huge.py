"""vector_add, transpose and reduce on tensors of more than 2^31 elements, compared with PyTorch piece by piece: indices
of 32 bits, signed or not, would give wrong elements or faults. `benches/families.py --huge` runs it; it takes about
40 GiB of device memory."""

import torch

from kgen_ctypes import reduce_params, transpose_params, vector_add_params

PIECE = 1 << 27  # elements that PyTorch looks at at once
BEYOND = (1 << 32) + (1 << 20) + 24  # elements: more than 32 bits count
ROWS, COLUMNS = 65_560, 65_568  # 4.3e9 elements, of which every row begins at a multiple of 8 elements


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
    library.launcher("kgen_vector_add")(vector_add_params(a, b, out))
    pieces = zip(*(x.split(PIECE) for x in (a, b, out)))
    return all(torch.equal(x + y, z) for x, y, z in pieces)


def transpose(library, dtype, rows, columns):
    x = bits(dtype, rows, columns)
    out = torch.zeros(columns, rows, device="cuda", dtype=dtype)
    library.launcher("kgen_transpose")(transpose_params(x, out))
    at_once = PIECE // columns
    return all(torch.equal(x[r : r + at_once], out[:, r : r + at_once].t()) for r in range(0, rows, at_once))


def in_place(library, dtype, side):
    x = bits(dtype, side, side)
    kept = x.clone()
    library.launcher("kgen_transpose")(transpose_params(x, x))
    at_once = PIECE // side
    return all(torch.equal(kept[r : r + at_once], x[:, r : r + at_once].t()) for r in range(0, side, at_once))


def reduce(library, dtype, rows, columns):
    """Sums, maxima and logsumexp; integers, so that maxima are exact."""
    x = bits(dtype, rows, columns)
    x.view(-1)[-1] = 64  # the largest stands at the end
    right = True
    for operation in ("sum", "max", "logsumexp"):
        out = torch.full((rows,), float("nan"), device="cuda")
        params = reduce_params(x, out, operation)
        workspace = library.workspace("kgen_reduce", params)
        library.launcher("kgen_reduce")(params)
        torch.cuda.synchronize()
        del workspace
        for first in range(0, rows, max(1, PIECE // columns)):
            part = x[first : first + max(1, PIECE // columns)]
            wide = [piece.double() for piece in part.split(PIECE, 1)]
            found = out[first : first + part.shape[0]].double()
            if operation == "sum":
                expected, allowed = sum(w.sum(1) for w in wide), 1e-6 * sum(w.abs().sum(1) for w in wide)
            elif operation == "max":
                expected, allowed = torch.stack([w.amax(1) for w in wide]).amax(0), 0.0
            else:
                expected, allowed = torch.stack([w.logsumexp(1) for w in wide]).logsumexp(0), 1e-4
            right &= bool(((found - expected).abs() <= allowed).all())
    return right


def check(library):
    """Runs all; 1 if one was wrong."""
    checks = [
        ("vector_add fp16", lambda: vector_add(library, torch.float16)),
        ("transpose b8", lambda: transpose(library, torch.uint8, ROWS, COLUMNS)),
        ("transpose b16", lambda: transpose(library, torch.float16, 32_784, 65_568)),
        ("transpose b16, odd", lambda: transpose(library, torch.float16, 46_349, 46_351)),
        ("transpose b8 in place", lambda: in_place(library, torch.uint8, 65_552)),
        ("reduce bf16, all", lambda: reduce(library, torch.bfloat16, 1, BEYOND + 3)),
        ("reduce fp16, rows", lambda: reduce(library, torch.float16, 70_000, 65_544)),
        ("reduce bf16, short rows", lambda: reduce(library, torch.bfloat16, (1 << 31) // 96 + 7, 96)),
    ]
    wrong = 0
    for name, run in checks:
        try:
            right = run()
        except Exception as error:  # a fault of one kernel must not hide which it was
            right = print(f"{name}: {str(error).strip().splitlines()[0]}", flush=True)
        print(f"{name}, more than 2^31 elements: {'right' if right else 'WRONG'}", flush=True)
        wrong += not right
        torch.cuda.empty_cache()
    return 1 if wrong else 0
