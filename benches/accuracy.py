#!/usr/bin/env python3
"""Errors of O in units in the last place, and their cost: kgen's forward kernels compared with FlashAttention-2, -3 and
cuDNN.

    kgen build --filter "kind in (fwd, fwd_short, fwd_split, fwd_combine) and dtype in (bf16, fp16) \\
        and target in (sm80, sm90) and (plain or paged)"
    python3 benches/accuracy.py --site .peers/site --library kgen=build/lib/libkgen.so --out accuracy.jsonl
    python3 benches/accuracy.py --library now=now.so --library exact=exact.so --no-errors --speed --timed fwd_short_sm90

Needs torch and a Hopper GPU. Several --library are builds to compare. FlashAttention-2 and cuDNN are PyTorch's;
FlashAttention-3 is the wheel `fa3-fwd` (scripts/fetch_peers.sh; bf16 alone).

Errors: Q, K and V are randn times 1, 2 and 3, rounded to the dtype; the reference is float64 attention of the rounded
tensors. An element's error is in ulp of the reference, or of the root mean square of its row if that is larger: an
element that cancels to almost nothing has no more exact bits than its row. `worst_ulp` is the largest of all rows,
`dominated_ulp` of the rows whose largest weight is at least 0.9, `mean_over_best` the mean absolute error over that of
the most exact peer. They are in the rows' details.

Speed (--speed): each library and a peer (FlashAttention-2 for sm80's kernels, else -3) in interleaved rounds, for
randn times 1 and times 3, since a kernel may rescale O more often if few weights dominate. Ratios are to the first
library.
"""

import sys

import torch

from lab import Bench, Contender, attention, parser, stats
from lab.kgen import FLAG_PATHS, fwd_params
from lab.peers import Fa3Wheel, Sdpa, first_line

MANTISSA = {"bf16": 8, "fp16": 11}  # bits, including the leading one
# batch, heads, seqlen_q, seqlen_k, head dim, causal
SHAPES = [
    (2, 4, 300, 2000, 96, False), (2, 4, 1024, 1024, 64, True), (1, 4, 2048, 2048, 128, True),
    (1, 4, 1000, 4096, 128, False),
    (2, 4, 512, 777, 32, False), (1, 4, 1024, 2048, 160, False), (1, 4, 1024, 1024, 192, True),
    (1, 4, 600, 1500, 256, False),
]
SIDES = ["fwd_sm90", "fwd_sm80", "SHORT", "SPLIT", "fwd_paged_sm90",
    "fwd_paged_sm80"]  # kernels, and paths of the dispatcher
PAGE = 16
TIMED = [(64, False), (64, True), (80, False), (96, True), (128, False), (128, True), (160, False), (192, True),
    (256, False), (256, True)]


def draw(shape, dtype, times, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    batch, heads, rows, keys, dim, _ = shape
    return [attention.normal(batch, length, heads, dim, dtype=dtype, times=times, generator=generator)
        for length in (rows, keys, keys)]


def ulps(out, reference, largest, dtype):
    """Errors of O relative to the reference (batch, seqlen, heads, head_dim), and each row's largest weight."""
    if out.isnan().any():
        return {"worst_ulp": float("nan"), "dominated_ulp": None, "mean": float("nan")}
    difference = (out.double() - reference).abs()
    size = torch.maximum(reference.abs(), reference.square().mean(-1, keepdim=True).sqrt())
    found, rows = difference / torch.exp2(torch.floor(torch.log2(size)) - MANTISSA[dtype] + 1), largest >= 0.9
    dominated = found[rows].max().item() if rows.any() else None
    return {"worst_ulp": found.max().item(), "dominated_ulp": dominated, "mean": difference.mean().item()}


def in_pages(x):
    """(batch, keys, heads, head_dim) as pages in random order, with NaN beyond the keys; and the order, which a seed
    determines."""
    each = -(-x.shape[1] // PAGE)
    order = torch.randperm(len(x) * each, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
    padded = x.new_full((len(x), each * PAGE, *x.shape[2:]), float("nan"))
    padded[:, : x.shape[1]] = x
    cache = torch.empty_like(padded).view(-1, PAGE, *x.shape[2:])
    cache[order] = padded.view_as(cache)
    return cache, order.view(len(x), each).int()


def kernel(library, side, q, k, v, causal, dtype):
    """A contender for that kernel or path; None if the library has none."""
    out = [torch.empty_like(q), torch.empty(q.shape[0], q.shape[2], q.shape[1], device="cuda")]
    if not side.startswith("fwd"):
        p = fwd_params(q, k, v, *out, causal, flags=FLAG_PATHS[side])
        return Contender(library.call("kgen_fwd", p), out=out, own=True) if library.explain(p)[1] is not None else None
    kind, target = side.replace("_paged", "").rsplit("_", 1)
    name = attention.kernel_name(kind, q.shape[-1], dtype, causal, target, ["paged"] if "_paged" in side else [])
    if not library.holds(name):
        return None
    if "_paged" in side:
        (k_pages, table), (v_pages, _) = in_pages(k), in_pages(v)
        p = fwd_params(q, k_pages, v_pages, *out, causal, seqlen_k=k.shape[1], page_table=table)
    else:
        p = fwd_params(q, k, v, *out, causal)
    return Contender(library.call(name, p), out=out, own=True)


def compare_errors(bench, peers):
    inputs = [(dtype, shape, times) for dtype in MANTISSA for shape in SHAPES for times in (1, 2, 3)]
    for dtype, shape, times in bench.selected(inputs, lambda case: "{} {} x{}".format(*case)):
        (q, k, v), causal = draw(shape, dtype, times, bench.args.seed), shape[-1]
        by_head = ([x[b].transpose(0, 1) for x in (q, k, v)] for b in range(len(q)))
        o, _, weights = map(torch.stack, zip(*(attention.exact(*heads, causal=causal) for heads in by_head)))
        reference, largest = o.transpose(1, 2), weights.transpose(1, 2)
        sides = {}
        # Peers align the mask of unequal lengths differently.
        for name, attend in peers.items() if q.shape[1] == k.shape[1] or not causal else ():
            if name != "fa3" or dtype == "bf16":
                sides[name] = Contender(attend(q, k, v, causal=causal))
        sides |= {
            f"{label} {side}": made for label, library in bench.libraries.items() for side in SIDES
            if (made := kernel(library, side, q, k, v, causal, dtype))
        }
        errors = {}
        for name, contender in sides.items():
            try:
                judge = lambda out: errors.update(
                    {name: ulps(out[0] if contender.own else out, reference, largest, dtype)}) or 0.0
                if contender.error(judge) != 0.0:  # NaN in O
                    errors[name] = {"worst_ulp": float("nan"), "dominated_ulp": None, "mean": float("nan")}
            except Exception as why:
                bench.note(f"{name} does not take {dtype} {shape}: {first_line(why)}")
        best = min((error["mean"] for name, error in errors.items() if not sides[name].own), default=None)
        sizes = dict(zip(("batch", "heads", "seqlen_q", "seqlen_k", "head_dim", "causal"), map(int, shape)))
        for name, error in errors.items():
            error |= {"mean_over_best": error["mean"] / best if best else None, "times": times}
            is_right = error["worst_ulp"] == error["worst_ulp"]
            numbers = {"relative_error": error["mean"]} if is_right else None
            bench.add(
                f"{dtype} {shape} x{times}", name, "ok" if is_right else "wrong", "" if is_right else "NaN in O",
                numbers, own=sides[name].own, shape=sizes, dtype=dtype, details=error)


def error_table(rows):
    """Over all inputs: the largest of each number, by dtype and side, and the largest and geometric mean of the
    means."""
    lines = ["| dtype | side | inputs | worst, ulp | dominated rows, ulp | mean / most exact peer: largest | geomean |",
        "|---|---|---|---|---|---|---|"]
    for dtype, side in sorted({(row["dtype"], row["contender"]) for row in rows if row["numbers"]}):
        found = [row["details"] for row in rows if (row["dtype"], row["contender"]) == (dtype, side) and row["numbers"]]
        dominated = [x["dominated_ulp"] for x in found if x["dominated_ulp"] is not None]
        ratios = [x["mean_over_best"] for x in found if x["mean_over_best"]] or [float("nan")]
        worst = max(x["worst_ulp"] for x in found), max(dominated, default=float("nan"))
        lines.append("| {} | {} | {} | {:.2f} | {:.2f} | {:.3f} | {:.3f} |".format(dtype, side, len(found), *worst,
            max(ratios), stats.geomean(ratios)))
    return "\n".join(lines)


def compare_speed(bench, peers):
    args = bench.args
    points = [(dim, causal, seqlen, times) for dim, causal in TIMED for seqlen in args.seqlen for times in (1, 3)]
    name_of = lambda case: f"d{case[0]} {attention.mask(case[1])} s{case[2]} x{case[3]}"
    for case in bench.selected(points, name_of):
        dim, causal, seqlen, times = case
        shape = attention.dense_shape(dim, seqlen, causal)
        qkv = draw((shape["batch"], shape["heads"], seqlen, seqlen, dim, causal), args.dtype, times,
            bench.args.seed + 1)
        sides = {label: kernel(library, args.timed, *qkv, causal, args.dtype)
            for label, library in bench.libraries.items()}
        if not all(sides.values()):  # a ratio to another library is meaningless
            continue
        peer = "fa2" if args.timed.endswith("sm80") else "fa3"
        if peer in peers and (peer != "fa3" or args.dtype == "bf16"):
            sides[peer] = Contender(peers[peer](*qkv, causal=causal))
        judge = lambda out: attention.last_rows_error(out[0] if isinstance(out, list) else out, *qkv, causal)
        bench.point(
            name_of(case), {**shape, "times": times}, sides, judge=judge, allowed=1e-2, dtype=args.dtype, graph=False,
            flops=attention.flops(shape), formula="4 B H Sq Sk D, halved for causal")


def main():
    arguments = parser(__doc__, rounds=8, round_ms=15, peers=["site"], seqlen=[1024, 4096, 16384])
    arguments.add_argument("--no-errors", action="store_true")
    arguments.add_argument("--speed", action="store_true")
    arguments.add_argument("--timed", default="fwd_sm90", help="kernel or path of --speed, as in the table of errors")
    arguments.add_argument("--dtype", choices=list(MANTISSA), default="bf16", help="of --speed")
    bench = Bench(args := arguments.parse_args())
    peers = bench.peers(
        {"fa2": lambda: Sdpa("fa2"), "cudnn": lambda: Sdpa("cudnn"), "fa3": lambda: Fa3Wheel(args.site)})
    if not args.no_errors:
        compare_errors(bench, peers)
        print(error_table(bench.points), flush=True)
    if args.speed:
        bench.points = []
        compare_speed(bench, peers)
    return bench.finish("times", tables=args.speed)


if __name__ == "__main__":
    sys.exit(main())
