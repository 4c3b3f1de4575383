"""Errors of attention compared with those of other implementations, against float64: of O, of gradients, and with
windows.

    python3 benches/errors.py accuracy --site .peers/site --library kgen=build/lib/libkgen.so --out accuracy.jsonl
"""

import math
import os
import random
import sys
from pathlib import Path

from lab import Contender, attention, main, stats, suite
from lab.dense import Dense
from lab.kgen import FLAG_PATHS, FLAG_WINDOW
from lab.peers import Fa3Wheel, fa2_backward

try:
    import torch
except ImportError:
    torch = None

NAN = float("nan")
MANTISSA = {"bf16": 8, "fp16": 11}  # bits, including the leading one
# batch, heads, seqlen_q, seqlen_k, head dim, causal
SHAPES = [
    (2, 4, 300, 2000, 96, False), (2, 4, 1024, 1024, 64, True), (1, 4, 2048, 2048, 128, True),
    (1, 4, 1000, 4096, 128, False), (2, 4, 512, 777, 32, False), (1, 4, 1024, 2048, 160, False),
    (1, 4, 1024, 1024, 192, True), (1, 4, 600, 1500, 256, False),
]
# Kernels, and paths of the dispatcher.
SIDES = ["fwd_sm90", "fwd_sm80", "SHORT", "SPLIT", "fwd_paged_sm90", "fwd_paged_sm80"]
TIMED = [(64, False), (64, True), (80, False), (96, True), (128, False), (128, True), (160, False), (192, True),
    (256, False), (256, True)]


def ulps(out, reference, largest, dtype):
    """Errors of O relative to the reference (batch, seqlen, heads, head_dim), given each row's largest weight."""
    difference = (out.double() - reference).abs()
    size = torch.maximum(reference.abs(), reference.square().mean(-1, keepdim=True).sqrt())
    found, rows = difference / torch.exp2(torch.floor(torch.log2(size)) - MANTISSA[dtype] + 1), largest >= 0.9
    dominated = found[rows].max().item() if rows.any() else None
    return {"worst_ulp": found.max().item(), "dominated_ulp": dominated, "mean": difference.mean().item()}


def in_pages(x, page=16):
    """(batch, keys, heads, head_dim) as pages in random order, with NaN beyond the keys; and the order, which a seed
    determines."""
    each = -(-x.shape[1] // page)
    order = torch.randperm(len(x) * each, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
    padded = x.new_full((len(x), each * page, *x.shape[2:]), NAN)
    padded[:, : x.shape[1]] = x
    cache = torch.empty_like(padded).view(-1, page, *x.shape[2:])
    cache[order] = padded.view_as(cache)
    return cache, order.view(len(x), each).int()


def kernel(point, library, side):
    """A contender for that kernel or path; None if the library has none."""
    if not side.startswith("fwd"):
        found = []
        made = point.forward(library, fields={"flags": FLAG_PATHS[side]}, change=found.append)
        return made if library.explain(found[0])[1] is not None else None
    kind, target = side.replace("_paged", "").rsplit("_", 1)
    features = ["paged"] if "_paged" in side else []
    name = attention.kernel_name(kind, point.shape["head_dim"], point.dtype, point.causal, target, features)
    if not library.holds(name):
        return None
    if not features:
        return point.forward(library, name)
    (q, k, v), (pages, table) = point.qkv, in_pages(point.qkv[1])
    of_pages = point.with_tensors(q, pages, in_pages(v)[0])
    return of_pages.forward(library, name, fields={"seqlen_k": k.shape[1], "page_table": table})


def compare_errors(bench, peers):
    names = ("batch", "heads", "seqlen_q", "seqlen_k", "head_dim", "causal")
    inputs = [(dtype, shape, times) for dtype in MANTISSA for shape in SHAPES for times in (1, 2, 3)]
    for case in bench.selected(inputs, "{0[0]} {0[1]} x{0[2]}".format):
        dtype, shape, times = case
        sizes, name = dict(zip(names, map(int, shape))), "{} {} x{}".format(*case)
        point = Dense(sizes, dtype, times=times, generator=torch.Generator("cuda").manual_seed(bench.args.seed))
        by_head = ([x[b].transpose(0, 1) for x in point.qkv] for b in range(sizes["batch"]))
        o, _, weights = map(torch.stack, zip(*(attention.exact(*heads, causal=point.causal) for heads in by_head)))
        reference, largest = o.transpose(1, 2), weights.transpose(1, 2)
        # Peers align the mask of unequal lengths differently.
        able = {name: peer for name, peer in peers.items() if name != "fa3" or dtype == "bf16"}
        able = able if sizes["seqlen_q"] == sizes["seqlen_k"] or not point.causal else {}
        sides = bench.on(name, able, point.peer)
        sides |= {f"{label} {side}": made for label, library in bench.libraries.items() for side in SIDES
            if (made := kernel(point, library, side))}
        errors = {}
        for side, contender in sides.items():
            try:
                found = {"worst_ulp": NAN, "dominated_ulp": None, "mean": NAN}  # if O or the LSE has a NaN
                contender.error(lambda out: found.update(ulps(out[0], reference, largest, dtype)))
                errors[side] = found
            except Exception as why:
                bench.note(f"{side} does not take {name}: {type(why).__name__}: {why}"[:200])
        best = min((error["mean"] for side, error in errors.items() if not sides[side].own), default=None)
        for side, error in errors.items():
            error |= {"mean_over_best": error["mean"] / best if best else None, "times": times}
            right = error["worst_ulp"] == error["worst_ulp"]
            status = ("ok", "", {"relative_error": error["mean"]}) if right else ("wrong", "NaN in O")
            bench.add(name, side, *status, own=sides[side].own, shape=sizes, dtype=dtype, details=error)


def error_table(rows):
    """Over all inputs: the largest of each number, by dtype and side, and the largest and geometric mean of the
    means."""
    lines = ["| dtype | side | inputs | worst, ulp | dominated rows, ulp | mean / most exact peer: largest | geomean |",
        "|---|---|---|---|---|---|---|"]
    for dtype, side in sorted({(row["dtype"], row["contender"]) for row in rows if row["numbers"]}):
        found = [row["details"] for row in rows if (row["dtype"], row["contender"]) == (dtype, side) and row["numbers"]]
        dominated = [x["dominated_ulp"] for x in found if x["dominated_ulp"] is not None]
        ratios = [x["mean_over_best"] for x in found if x["mean_over_best"]] or [NAN]
        lines.append("| {} | {} | {} | {:.2f} | {:.2f} | {:.3f} | {:.3f} |".format(dtype, side, len(found),
            max(x["worst_ulp"] for x in found), max(dominated, default=NAN), max(ratios), stats.geomean(ratios)))
    return "\n".join(lines)


def compare_speed(bench, peers):
    args = bench.args
    points = [(dim, causal, seqlen, times) for dim, causal in TIMED for seqlen in args.seqlen for times in (1, 3)]
    name_of = lambda case: f"d{case[0]} {attention.mask(case[1])} s{case[2]} x{case[3]}"
    for case in bench.selected(points, name_of):
        dim, causal, seqlen, times = case
        point = Dense(attention.dense_shape(dim, seqlen, causal), args.dtype, times=times,
            generator=torch.Generator("cuda").manual_seed(args.seed + 1))
        sides = {label: kernel(point, library, args.timed) for label, library in bench.libraries.items()}
        peer = "fa2" if args.timed.endswith("sm80") else "fa3"
        if not all(sides.values()):  # a ratio to another library is meaningless
            continue
        if peer in peers and (peer != "fa3" or args.dtype == "bf16"):
            sides[peer] = point.peer(peers[peer])
        point.shape["times"] = times
        point.time(bench, name_of(case), sides, graph=False)


@suite("times", tables=False, rounds=8, round_ms=15, places=["site"], seqlen=[1024, 4096, 16384], errors=True,
    speed=False, timed="fwd_sm90", dtype=tuple(MANTISSA))
def accuracy(bench):
    """Errors of O in units in the last place, and their cost, compared with FlashAttention-2, -3 and cuDNN.

    kgen build --filter "kind in (fwd, fwd_short, fwd_split, fwd_combine) and dtype in (bf16, fp16) \\
        and target in (sm80, sm90) and (plain or paged)"
    python3 benches/errors.py accuracy --library now=now.so --library exact=exact.so --no-errors --speed \\
        --timed fwd_short_sm90

    Several --library are builds to compare. FlashAttention-3 is the wheel `fa3-fwd`; it has only bf16.

    Errors: Q, K and V are randn times 1, 2 and 3, rounded to the dtype; the reference is float64 attention of the
    rounded tensors. An element's error is in ulp of the reference, or of the root mean square of its row if that is
    larger: an element that cancels to almost nothing has no more exact bits than its row. `worst_ulp` is the largest of
    all rows, `dominated_ulp` of the rows whose largest weight is at least 0.9, `mean_over_best` the mean absolute error
    over that of the most exact peer. They are in the rows' details.

    --speed: each library and a peer (FlashAttention-2 for sm80's kernels, else -3) in interleaved rounds, for randn
    times 1 and times 3, since a kernel may rescale O more often if few weights dominate. Ratios are to the first
    library. --timed is its kernel or path, as in the table of errors, --dtype its type."""
    peers = bench.peers("fa2", "cudnn", fa3=lambda: Fa3Wheel(bench.args.site))
    if bench.args.errors:
        compare_errors(bench, peers)
        print(error_table(bench.points), flush=True)
    if bench.args.speed:
        bench.points = []
        compare_speed(bench, peers)
        bench.print_tables("times")


WINDOWS = [(4096, (1024, 0), True), (16384, (1024, 0), True), (4096, (512, 512), False), (16384, (512, 512), False),
    (4096, (1000, 0), True)]


@suite(tables=False, places=["fa3"], head_dim=[64, 128, 256])
def windows(bench):
    """The largest error of O with windows over all rows of two heads, kgen's and FA3's, and its row.

    python3 benches/errors.py windows --library build-window/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so"""
    peers = bench.peers("fa3")
    cases = [(dim, *window) for dim in bench.args.head_dim for window in WINDOWS]
    for case in bench.selected(cases, lambda case: "d{} s{} window {},{}".format(*case[:2], *case[2]), quick=None):
        dim, seqlen, window, causal = case
        point = Dense({**attention.dense_shape(dim, seqlen, causal), "batch": 1, "heads": 2})

        def set_window(p):
            p.flags |= FLAG_WINDOW
            p.features.window_left, p.features.window_right = window

        def of_rows(o):
            """The largest error of each row, 2048 rows at a time."""
            for first in range(0, seqlen, 2048):
                part = slice(first, first + 2048)
                q, k, v = (x[0].transpose(0, 1) for x in (point.qkv[0][:, part], *point.qkv[1:]))
                expected = attention.exact(q, k, v, causal=causal, window=window, at=first)[0].transpose(0, 1)
                yield (o[0, part].double() - expected).abs().amax((1, 2))

        sides = {"kgen": point.forward(bench.library, change=set_window)}
        sides |= {name: Contender(fa3(*point.qkv, causal, window=window)) for name, fa3 in peers.items()}
        for name, contender in sides.items():
            errors = []
            error = contender.error(lambda out: errors.extend(of_rows(out[0])) or torch.cat(errors).max().item())
            row = torch.cat(errors).argmax().item() if errors else None
            text, right = "d{} s{} window {},{}".format(dim, seqlen, *window), error <= 0.05
            numbers = {"relative_error": error, "allowed_error": 0.05}
            bench.add(text, name, *(("ok", "", numbers) if right else ("wrong", f"error {error:.4f} in row {row}")),
                own=contender.own, details={"largest_error": error, "row": row})
            print(f"{text} {name}: {error:.4f} in row {row}", flush=True)


LIMITS = {"fp16": 0.005, "bf16": 0.03}  # relative; external tests called larger errors large
ALONE = {"P of dV and dS": "p", "P and O of the forward pass": "of", "O in delta": "o", "dP": "dp", "dS": "ds"}


def probabilities(s, causal):
    """Softmax of (heads, rows, keys); with a causal mask the last row is at the last key."""
    rows, keys = s.shape[-2:]
    hidden = torch.ones(rows, keys, device=s.device, dtype=torch.bool).triu(keys - rows + 1)
    return torch.softmax(s.masked_fill(hidden, -math.inf) if causal else s, -1)


def in_float64(q, k, v, dout, scale, causal, dtype=None, rounding=""):
    """dQ, dK, dV, O and delta of (heads, rows, head_dim) in float64, except for the quantities named by `rounding`."""
    rounded = lambda x, *names: x.to(dtype).double() if rounding in names else x
    p = probabilities(q @ k.mT * scale, causal)
    o = rounded(rounded(p, "of") @ v, "o", "of")
    dp = rounded(dout @ v.mT, "dp")
    delta = (dout * o).sum(-1, keepdim=True)
    ds = rounded(rounded(p, "p") * (dp - delta), "ds")
    return [ds @ k * scale, ds.mT @ q * scale, rounded(p, "p", "of").mT @ dout], o, delta


def naively(q, k, v, dout, scale, causal, o_for_delta=None):
    """The same in the dtype of the inputs, each intermediate rounded; delta from P and dP, or from an O."""
    p = probabilities((q @ k.mT).float() * scale, causal).to(q.dtype)
    dp = (dout @ v.mT).float()
    products = p.float() * dp if o_for_delta is None else dout.float() * o_for_delta.float()
    ds = (p.float() * (dp - products.sum(-1, keepdim=True)) * scale).to(q.dtype)
    return [ds @ k, ds.mT @ q, p.mT @ dout], p @ v


def stand_in(delta, dout):
    """An O in dO's dtype for which the sum of O dO is `delta`: four elements per row, each correcting the rest of the
    previous ones."""
    o, left = torch.zeros_like(dout), delta.squeeze(-1).clone()
    places = dout.double().abs().topk(4, dim=-1).indices
    for i in range(4):
        at = places[..., i : i + 1]
        factor = dout.gather(-1, at).squeeze(-1).double()
        element = torch.where(factor == 0, 0.0, left / torch.where(factor == 0, 1.0, factor)).to(dout.dtype)
        o.scatter_(-1, at, element.unsqueeze(-1))
        left = left - element.double() * factor
    return o


def relative(gradients, exact):
    """Errors of dQ, dK, dV, relative to the largest; for zero gradients (one key: dQ = dK = 0) 0 below 1e-5."""
    errors = [((a.double() - b).abs().max().item(), b.abs().max().item()) for a, b in zip(gradients, exact)]
    return [math.inf if error != error else 0.0 if largest < 1e-5 else error / largest for error, largest in errors]


def of_fp32_sums(q, k, v, dout, scale, exact):
    """Errors of dQ, dK and dV that are due only to fp32 sums, as in kgen's check
    (src/family/attention/oracle/gradients.rs): delta cancels dP only to 2^-20 of the longest rows of dO and V, and K or
    Q propagate that. Relative to the largest gradient."""
    of_ds = 2.0**-20 * scale * dout.norm(dim=-1).max().item() * v.norm(dim=-1).max().item()
    of_q, of_k = (of_ds * x.abs().max().item() / max(1e-30, t.abs().max().item()) for x, t in zip((k, q), exact))
    return [of_q, of_k * q.shape[1], 0.0]


class Package:
    """kgen_attn's two passes on (batch, rows, heads, head_dim); the backward pass accepts any O and LSE."""

    def __init__(self, path):
        os.environ["KGEN_LIBRARY"] = str(Path(path).resolve())
        from kgen_attn import backward, forward, library

        self.is_emulated = library.library().emulator is not None
        self._forward, self._backward = forward.forward, backward.backward

    def forward(self, q, k, v, causal, scale):
        return self._forward(q, k, v, (None,) * 14, (0, 0, scale, causal, -1, -1, 0, 0.0, 0))

    def backward(self, dout, q, k, v, o, lse, causal, scale):
        numbers = (0, 0, scale, causal, -1, -1, 0, 0.0, False, False)
        return self._backward(dout, q, k, v, o, lse, *(None,) * 8, *numbers)[:3]


def one_call(kgen, draw, dtype, head_dim, scale):
    """Sizes, {side: errors of dQ, dK and dV}, and the errors of fp32 sums, for a random call."""
    pick = lambda full, emulated: draw.choice(emulated if kgen.is_emulated else full)
    causal = draw.random() < 0.5
    rows = pick([1, 2, 5, 17, 40, 64, 100, 130, 257], [1, 5, 17, 40])
    keys = rows if causal else pick([2, 3, 17, 33, 64, 100, 129, 300], [2, 3, 17, 33])
    heads, generator = pick([1, 2, 4], [1]), torch.Generator().manual_seed(draw.randrange(2**31))
    device = "cpu" if kgen.is_emulated else "cuda"
    drawn = lambda n: torch.randn((1, n, heads, head_dim), generator=generator).to(device, dtype)
    q, k, v, dout = map(drawn, (rows, keys, keys, rows))
    by_head = [t[0].transpose(0, 1).contiguous() for t in (q, k, v, dout)]  # (heads, rows, head_dim)
    wide = [t.double() for t in by_head]
    exact, o64, delta = in_float64(*wide, scale, causal)
    back = lambda t: t.transpose(0, 1).unsqueeze(0).contiguous()
    judge = lambda gradients: relative([t[0].transpose(0, 1) for t in gradients], exact)
    given = {"": None, ", O rounded": back(o64.to(dtype)), ", exact delta": back(stand_in(delta, by_head[3]))}
    o, lse = kgen.forward(q, k, v, causal, scale)
    errors = {f"kgen{name}": judge(kgen.backward(dout, q, k, v, o if x is None else x, lse, causal, scale))
        for name, x in given.items()}
    if not kgen.is_emulated:
        o2, _, backward = fa2_backward(q, k, v, causal, scale)
        errors |= {f"FA2{name}": judge(backward(dout, o2 if x is None else x)) for name, x in given.items()}
    gradients, naive_o = naively(*by_head, scale, causal)
    errors["naive"] = relative(gradients, exact)
    errors["naive, delta from O"] = relative(naively(*by_head, scale, causal, naive_o)[0], exact)
    for name, rounding in ALONE.items():
        errors[f"alone: {name}"] = relative(in_float64(*wide, scale, causal, dtype, rounding)[0], exact)
    shape = {"batch": 1, "heads": heads, "heads_k": heads, "seqlen_q": rows, "seqlen_k": keys, "head_dim": head_dim,
        "causal": int(causal)}
    return shape, errors, of_fp32_sums(*wide, scale, exact)


def keeps_the_rule(errors, of_sums, dtype):
    """FlashAttention's rule for dQ, dK and dV: three times the worst error of the peers with unavoidable rounding, two
    roundings of the largest gradient, and the errors of fp32 sums. With one or two rows the error of delta is a single
    sample, so there is more than one peer. With an exact delta, the peers' errors of delta do not count either."""
    peers = ["naive", "naive, delta from O", "FA2", "alone: O in delta", "alone: P and O of the forward pass"]
    of_exact = ["alone: P of dV and dS", "alone: dS", "FA2, exact delta"]
    return [errors[own][i] <= 3 * max(errors[name][i] for name in others if name in errors)
        + torch.finfo(dtype).eps + of_sums[i]  # eps is twice the unit roundoff
        for own, others in (("kgen", peers), ("kgen, O rounded", peers), ("kgen, exact delta", of_exact))
        for i in range(3)]


def gradient_table(calls, limit):
    """Lines: for each side the median, 99th percentile and maximum of its errors, and the number of large ones."""
    lines = [f"{'':34}" + "".join(f"{f'{g} median':>11}{'99 %':>9}{'most':>9}{'large':>7}" for g in ("dQ", "dK", "dV"))]
    for name in calls[0]:
        by_gradient = zip(*(errors[name] for errors in calls))
        cells = ["{:11.1e}{:9.1e}{:9.1e}{:7d}".format(stats.percentile(values, 0.5), stats.percentile(values, 0.99),
            max(values), sum(value > limit for value in values)) for values in by_gradient]
        lines.append(f"{name:34}" + "".join(cells))
    for peer in ("FA2", "naive", "naive, delta from O"):
        ratios = [own / other for errors in calls if peer in errors for own, other in zip(errors["kgen"], errors[peer])
            if other > 0 and own > 0]
        if ratios:
            lines.append(f"  kgen to {peer}: geometric mean {stats.geomean(ratios):.3f}, most {max(ratios):.2f}")
    return lines


@suite(tables=False, gpu=None, calls=400, head_dims=[64, 128])
def gradients_scale1(bench):
    """Gradients at softmax scale 1, which makes rows of P nearly one-hot.

    kgen build --filter "hdim in (64, 128) and dtype in (bf16, fp16) and kind in (fwd, bwd) and target == sm90"
    python3 benches/errors.py gradients_scale1 --library build/lib/libkgen.so --out gradients.jsonl [--calls 400]

    Random calls, --calls of each dtype and scale, head dims 64 and 128, with and without causal mask, at scale 1 and
    1/sqrt(head dim). Errors are relative to the largest gradient. In each call:

      kgen, FA2           backward passes of kgen and of FlashAttention-2 (torch's), each with the O and LSE of its own
                          forward pass
      naive               matmul and softmax in the dtype; and the same with delta from the O in the dtype
      ..., O rounded      the backward pass given the float64 O, rounded once
      ..., exact delta    the backward pass given an artificial O in the dtype, whose product with dO is delta to 30
                          bits: a backward pass uses O only for delta. If the errors disappear with it, they were
                          due to the rounding of O.
      alone: …            float64 with P, dP, dS, or O rounded and nothing else

    A row is one call, its errors of dQ, dK and dV in the details. Exit code 1 if a call breaks FlashAttention's rule
    (`keeps_the_rule`). On a library for the emulator it runs in host memory, without FA2."""
    args = bench.args
    kgen, draw, count = Package(bench.library.path), random.Random(args.seed), 20 if args.quick else args.calls
    if not kgen.is_emulated and not torch.cuda.is_available():
        sys.exit("gradients_scale1: there is no GPU, and the library is not the emulator's")
    for word, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        for scale in (1.0, None):
            found = []
            for i in range(count):
                head_dim = args.head_dims[i % len(args.head_dims)]
                shape, errors, of_sums = one_call(kgen, draw, dtype, head_dim, scale or head_dim**-0.5)
                kept, numbers = keeps_the_rule(errors, of_sums, dtype), {"relative_error": max(errors["kgen"])}
                bench.add(f"{word} scale {scale or '1/sqrt(d)'} call {i}", "kgen",
                    *(("ok", "", numbers) if all(kept) else ("wrong", f"breaks the rule: {kept}")), shape=shape,
                    dtype=word, details={"errors": errors, "of_fp32_sums": of_sums})
                found.append(errors)
            print(f"{word}, scale {scale or '1/sqrt(head dim)'}: {len(found)} calls; large is above {LIMITS[word]}")
            print("\n".join([*gradient_table(found, LIMITS[word]), ""]))
    print(f"{bench.failed} of {4 * count} calls break the rule")


if __name__ == "__main__":
    main(__doc__)
