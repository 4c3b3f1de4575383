#!/usr/bin/env python3
"""Errors of O in units of its last place, and what they cost: kgen's forward kernels beside FlashAttention-2, -3 and cuDNN.

    kgen build --filter "kind in (fwd, fwd_short, fwd_split, fwd_combine) and dtype in (bf16, fp16) and target in (sm80, sm90) and \\
        (plain or paged)"
    python3 benches/accuracy.py --site .peers/site --library kgen=build/lib/libkgen.so --out accuracy.json

Needs torch and a Hopper GPU. --library NAME=PATH may stand several times: builds to compare. FlashAttention-2 and cuDNN are
PyTorch's; FlashAttention-3 is the wheel `fa3-fwd` (scripts/fetch_peers.sh; bf16 alone).

Errors: Q, K and V are randn times 1, 2 and 3, rounded to the dtype; the reference is float64 attention of the rounded
tensors. An element's error counts in ulp of the reference, or of the root mean square of its row where that is larger: an
element that cancels to almost nothing has no more exact bits than its row. `worst` is the largest of all rows, `dominated`
of the rows whose largest weight is at least 0.9, `mean` the mean absolute error over that of the most exact peer.

Speed (--speed): milliseconds of each library and of a peer (FlashAttention-2 beside sm80's kernels, else -3) in alternating rounds, for randn times 1 and times 3,
since a kernel may rescale O more often where few weights dominate. A ratio is the time of the first library over the
time of the other, so above 1 where the other is faster.
"""

import argparse
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fwd_vs_fa2 import card_state, side_by_side
from kgen_ctypes import FLAG_PATHS, Library, fwd_params
from paired import geomean

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
MANTISSA = {"bf16": 8, "fp16": 11}  # bits, the leading one included
# batch, heads, seqlen_q, seqlen_k, head dim, causal
SHAPES = [
    (2, 4, 300, 2000, 96, False), (2, 4, 1024, 1024, 64, True), (1, 4, 2048, 2048, 128, True), (1, 4, 1000, 4096, 128, False),
    (2, 4, 512, 777, 32, False), (1, 4, 1024, 2048, 160, False), (1, 4, 1024, 1024, 192, True), (1, 4, 600, 1500, 256, False),
]
# kernels by name, and paths of the dispatcher
SIDES = ["fwd_sm90", "fwd_sm80", "SHORT", "SPLIT", "fwd_paged_sm90", "fwd_paged_sm80"]
PAGE = 16
TIMED = [(64, False), (64, True), (80, False), (96, True), (128, False), (128, True), (160, False), (192, True), (256, False), (256, True)]


def exact(q, k, v, causal):
    """O and each row's largest weight, in float64, one head at a time."""
    out = torch.empty_like(q, dtype=torch.float64)
    largest = torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
    rows, keys = q.shape[1], k.shape[1]
    hidden = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows).logical_not() if causal else None
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            s = q[b, :, h].double() @ k[b, :, h].double().T * q.shape[-1] ** -0.5
            if causal:
                s.masked_fill_(hidden, float("-inf"))
            p = s.softmax(-1)
            largest[b, :, h] = p.amax(-1)
            out[b, :, h] = p @ v[b, :, h].double()
    return out, largest


def errors(out, reference, largest, dtype):
    if out.isnan().any():
        return {"worst": float("nan"), "dominated": float("nan"), "mean": float("nan")}
    difference = (out.double() - reference).abs()
    size = torch.maximum(reference.abs(), reference.square().mean(-1, keepdim=True).sqrt())
    ulps = difference / torch.exp2(torch.floor(torch.log2(size)) - MANTISSA[dtype] + 1)
    rows = largest >= 0.9
    return {
        "worst": ulps.max().item(),
        "dominated": ulps[rows].max().item() if rows.any() else None,
        "mean": difference.mean().item(),
    }


def peers(site, q, k, v, causal, dtype):
    """{name: a function that gives O as (batch, seqlen, heads, head dim)}"""
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]

    def sdpa(backend):
        def attend():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(*heads_first, is_causal=causal).transpose(1, 2)
        return attend

    found = {"fa2": sdpa(SDPBackend.FLASH_ATTENTION), "cudnn": sdpa(SDPBackend.CUDNN_ATTENTION)}
    if site and dtype == "bf16":
        if site not in sys.path:
            sys.path.insert(0, site)
        from fa3_fwd_interface import flash_attn_func

        def fa3():
            out = flash_attn_func(q, k, v, causal=causal)
            return out[0] if isinstance(out, tuple) else out
        found["fa3"] = fa3
    return found


def read_from_pages(p, k, v):
    """Lets `p` read K and V from pages in random order; the tensors that the caller keeps alive."""
    batch, keys, heads, dim = k.shape
    each = -(-keys // PAGE)
    order = torch.randperm(batch * each, device=k.device).reshape(batch, each)
    caches = []
    for name, tensor in (("k", k), ("v", v)):
        cache = torch.full((batch * each, PAGE, heads, dim), float("nan"), device=k.device, dtype=k.dtype)
        padded = torch.full((batch, each * PAGE, heads, dim), float("nan"), device=k.device, dtype=k.dtype)
        padded[:, :keys] = tensor
        cache[order.flatten()] = padded.reshape(batch * each, PAGE, heads, dim)
        setattr(p, name, cache.data_ptr())
        for axis, stride in zip(("batch", "row", "head"), cache.stride()):
            setattr(p, f"{name}_{axis}_stride", stride)
        caches.append(cache)
    table = order.int().contiguous()
    p.page_table, p.page_table_stride = table.data_ptr(), table.stride(0)
    p.page_size, p.num_pages = PAGE, batch * each
    return [table, *caches]


def kernel(library, side, q, k, v, causal, dtype):
    """A function that runs that kernel or path into poisoned outputs and gives O, or None where the library has none."""
    out = torch.full_like(q, float("nan"))
    lse = torch.full((q.shape[0], q.shape[2], q.shape[1]), float("nan"), device=q.device, dtype=torch.float32)
    p = fwd_params(q, k, v, out, lse, causal)
    if side.startswith("fwd"):
        kind, target = side.replace("_paged", "").rsplit("_", 1)
        paged = "_paged" in side
        name = f"flash_{kind}_hdim{q.shape[-1]}_{dtype}{'_causal' if causal else ''}{'_paged' if paged else ''}_{target}"
        if not library.holds(name):
            return None
        launch = library.launcher(name)
        kept = read_from_pages(p, k, v) if paged else None
    else:
        p.flags |= FLAG_PATHS[side]
        try:
            kept = library.workspace("kgen_fwd", p)
            launch = library.launcher("kgen_fwd")
            launch(p)
        except RuntimeError:
            return None

    def attend(kept=kept):
        launch(p)
        return out
    return attend


def draw(shape, dtype, times, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    batch, heads, rows, keys, dim, _ = shape
    make = lambda length: (torch.randn(batch, length, heads, dim, device="cuda", generator=generator) * times).to(DTYPES[dtype])
    return make(rows), make(keys), make(keys)


def compare_errors(libraries, site, rows):
    for dtype in DTYPES:
        for shape in SHAPES:
            for times in (1, 2, 3):
                q, k, v = draw(shape, dtype, times, 1)
                causal = shape[-1]
                reference, largest = exact(q, k, v, causal)
                row = {"dtype": dtype, "shape": shape, "times": times, "dominated_rows": (largest >= 0.9).double().mean().item(), "sides": {}}
                if q.shape[1] == k.shape[1] or not causal:
                    for name, attend in peers(site, q, k, v, causal, dtype).items():
                        try:
                            row["sides"][name] = errors(attend(), reference, largest, dtype)
                        except (RuntimeError, TypeError, AssertionError) as error:
                            print(f"# {name} does not take {dtype} {shape}: {str(error).splitlines()[0][:80]}", file=sys.stderr)
                best = min((x["mean"] for x in row["sides"].values()), default=None)
                for label, library in libraries.items():
                    for side in SIDES:
                        attend = kernel(library, side, q, k, v, causal, dtype)
                        if attend:
                            row["sides"][f"{label} {side}"] = errors(attend(), reference, largest, dtype)
                for x in row["sides"].values():
                    x["mean_over_best"] = x["mean"] / best if best else None
                rows.append(row)


def error_table(rows):
    """Over all inputs: the worst of each number, by dtype and side, and the largest and geometric mean of the means."""
    lines = ["| dtype | side | inputs | worst, ulp | dominated rows, ulp | mean / most exact peer: largest | geomean |", "|---|---|---|---|---|---|---|"]
    for dtype in DTYPES:
        sides = sorted({side for row in rows if row["dtype"] == dtype for side in row["sides"]})
        for side in sides:
            found = [row["sides"][side] for row in rows if row["dtype"] == dtype and side in row["sides"]]
            dominated = [x["dominated"] for x in found if x["dominated"] is not None]
            ratios = [x["mean_over_best"] for x in found if x["mean_over_best"]]
            lines.append(f"| {dtype} | {side} | {len(found)} | {max(x['worst'] for x in found):.2f} | {max(dominated, default=float('nan')):.2f} | {max(ratios):.3f} | {geomean(ratios):.3f} |")
    return "\n".join(lines)


def compare_speed(libraries, site, rows, args):
    for dim, causal in TIMED:
        for seqlen in args.seqlen:
            for times in (1, 3):
                shape = (max(1, 16384 // seqlen), max(1, 2048 // dim), seqlen, seqlen, dim, causal)
                q, k, v = draw(shape, args.dtype, times, 2)
                sides = {label: kernel(library, args.timed, q, k, v, causal, args.dtype) for label, library in libraries.items()}
                sides = {label: attend for label, attend in sides.items() if attend}
                if len(sides) < len(libraries):  # a ratio to another library says nothing
                    continue
                others = peers(site, q, k, v, causal, args.dtype)
                peer = "fa2" if args.timed.endswith("sm80") else "fa3"
                if peer in others:
                    sides[peer] = others[peer]
                ms = side_by_side(sides, args.rounds, args.round_ms)
                first = next(iter(ms))
                ratio = {side: statistics.median(a / b for a, b in zip(ms[first], t)) for side, t in ms.items()}
                rows.append({"dtype": args.dtype, "shape": shape, "times": times, "ms": ms, "ratio": ratio})
                print(f"d{dim} {'causal' if causal else 'full'} s{seqlen} x{times}: " + ", ".join(f"{s} {r:.4f}" for s, r in ratio.items()), file=sys.stderr, flush=True)


def speed_table(rows):
    lines = ["| inputs | points | " + " | ".join(rows[0]["ratio"]) + " |", "|---|---|" + "---|" * len(rows[0]["ratio"])]
    for times in (1, 3):
        found = [row for row in rows if row["times"] == times]
        cells = []
        for side in rows[0]["ratio"]:
            ratios = [row["ratio"][side] for row in found if side in row["ratio"]]
            cells.append(f"{geomean(ratios):.4f} ({min(ratios):.3f} to {max(ratios):.3f})")
        lines.append(f"| randn × {times} | {len(found)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--site", default=None, help="folder with the unpacked wheel fa3-fwd")
    parser.add_argument("--no-errors", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--timed", default="fwd_sm90", help="kernel or path of --speed, as in the table of errors")
    parser.add_argument("--dtype", choices=list(DTYPES), default="bf16", help="of --speed")
    parser.add_argument("--seqlen", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--round-ms", type=float, default=15)
    parser.add_argument("--out", default=None, help="JSON file")
    args = parser.parse_args()
    libraries = {name: Library(path) for name, path in (x.split("=", 1) for x in args.library)}
    result = {"device": torch.cuda.get_device_name(), "card": card_state(), "torch": torch.__version__, "errors": [], "speed": []}
    print(result["device"], result["card"], "torch", torch.__version__)
    if not args.no_errors:
        compare_errors(libraries, args.site, result["errors"])
        print(error_table(result["errors"]), flush=True)
    if args.speed:
        compare_speed(libraries, args.site, result["speed"], args)
        print(speed_table(result["speed"]))
    if args.out:
        with open(args.out, "w") as file:
            json.dump(result, file)


if __name__ == "__main__":
    main()
