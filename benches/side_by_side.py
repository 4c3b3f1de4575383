"""kgen's forward kernels beside FlashAttention-2, cuDNN and FlashAttention-3 in one process, on the GPU at hand.

    scripts/fetch_peers.sh .peers     # where packages can be had; then carry the folder to the GPU's machine
    python3 benches/side_by_side.py --site .peers/site --library build/lib/libkgen.so --out side-by-side.json
    python3 benches/side_by_side.py --site .peers/site --dtype fp8 --out fp8.json
    python3 benches/side_by_side.py --site .peers/site --short --out short.json

A Markdown table on standard output, progress and what is missing on standard error, everything else in the JSON file, which
is rewritten after each point. FlashAttention-2 and cuDNN are PyTorch's; FlashAttention-3 is the wheel `fa3-fwd` (bf16 and FP8),
unpacked in the folder that --site or PEERS_SITE names, or with --vllm-fa3 the library of vLLM's wheel (fp16 too). In fp16 it also
stands as `fa3_bf16`, on the same tensors rounded to bf16: the same work at the same rate, for want of a wheel with fp16.

Rules: random normal inputs; every side is timed in every round, in alternating order; device events over batches of calls after 25 ms
of warm-up, as replays of CUDA graphs for all sides where kgen's kernel takes less than --graph-below-ms, so that no side waits for
the host; L2 is warm (the same tensors throughout; they exceed it from s 2048 on). A ratio is the median over rounds of
time of the peer / time of kgen, with a 95 % bootstrap interval; a win is an interval above 1. The fastest peer is chosen at each
point by its median time. TFLOP/s count 4 B H Sq Sk D with the true D, halved for causal; a rate beyond the card's peak
stops everything. Rows of every side's O are compared with float64 before timing, kgen's also afterwards. kgen writes
the log-sum-exp too, as FlashAttention does.

--dtype fp8: Q, K and V in E4M3 with a descale for each batch entry and head, O in bf16, FlashAttention-3 alone as the peer. The errors
of both against float64 attention of the dequantised inputs, over the last 128 queries of one head, are in the table below.
--short: microseconds of small shapes, always as graph replays, fp16 unless --dtype says otherwise. kgen is then a call of kgen_fwd, and each
row names the kernel that it picks.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fwd_vs_fa2 import TOKENS, WIDTH, card_state, relative_error, time_batch
from kgen_ctypes import Library, fwd_params, quantised
from paired import compare, geomeans, markdown, markdown_geomeans, summary

HEAD_DIMS = [32, 64, 80, 96, 128, 160, 192, 224, 256]
SEQLENS = [8192, 2048, 16384, 512, 4096, 1024]  # in this order, so that --limit-s costs the least telling ones
# batch, heads, seqlen, head dim, causal
SHORT = [(8, 8, 128, 64, True), (1, 8, 512, 64, True), (16, 8, 512, 64, True)]
SIDES = {"bf16": ["fa2", "cudnn", "fa3"], "fp16": ["fa2", "cudnn", "fa3", "fa3_bf16"], "fp8": ["fa3"]}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Relative error of O that is still the same attention. FP8 rounds P to three bits of mantissa: 0.03.
LARGEST_ERROR = {"bf16": 1e-2, "fp16": 1e-2, "fp8": 8e-2}
WARM_UP_MS = 25
GRAPH_MS = 2.0  # of calls in one graph
# Dense 16-bit FLOPs a clock and multiprocessor, as in src/bench/ceiling.rs; FP8 twice as many.
FLOPS_A_CLOCK = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192, (10, 3): 8192, (12, 0): 1024, (12, 1): 1024}

noted = set()


def note(message):
    """Says something once."""
    if message not in noted:
        noted.add(message)
        print(f"# {message}", file=sys.stderr, flush=True)


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def peak_tflops(dtype):
    """What the card can do at its highest clock, or None where that is not known."""
    query = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
    try:
        mhz = float(subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.splitlines()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    card = torch.cuda.get_device_properties(0)
    a_clock = FLOPS_A_CLOCK.get((card.major, card.minor))
    return a_clock and a_clock * card.multi_processor_count * mhz / 1e6 * (2 if dtype == "fp8" else 1)


class Tensors:
    """Inputs of one point: (batch, seqlen, heads, head_dim), and in FP8 their descales."""

    def __init__(self, dtype, batch, heads, seqlen, head_dim, causal):
        self.dtype, self.causal = dtype, causal
        draw = lambda: torch.randn(batch, seqlen, heads, head_dim, device="cuda", dtype=DTYPES.get(dtype, torch.bfloat16))
        self.q, self.k, self.v = (draw() for _ in range(3))
        self.descales = None
        wide = (self.q, self.k, self.v)
        if dtype == "fp8":
            (self.q, self.k, self.v), self.descales = zip(*map(quantised, wide))
            tensors = zip((self.q, self.k, self.v), self.descales)
            wide = [x[-1:, :, -1:].double() * scale[-1:, -1:].double()[:, None, :, None] for x, scale in tensors]
        self.wide = wide  # what is attended to; in FP8 of the last head alone, which is where errors are taken

    def error(self, out):
        if out.isnan().any():
            return float("nan")
        return relative_error(out, *self.wide, self.causal)


def peer(side, t, fa3):
    """A function that attends with that side and gives O as (batch, seqlen, heads, head_dim); None where the side is missing."""
    if side in ("fa2", "cudnn"):
        backend = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[side]
        q, k, v = (x.transpose(1, 2) for x in (t.q, t.k, t.v))

        def attend():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=t.causal).transpose(1, 2)

        return attend
    if side == "fa3_bf16":
        q, k, v = (x.bfloat16() for x in (t.q, t.k, t.v))
        return fa3 and fa3(SimpleNamespace(q=q, k=k, v=v, causal=t.causal, descales=None))
    return fa3 and fa3(t)


def fa3_of_wheel(site):
    """FlashAttention-3 of the wheel `fa3-fwd`."""
    if site:
        sys.path.insert(0, site)
    try:
        from fa3_fwd_interface import flash_attn_func
    except (ImportError, OSError, RuntimeError) as error:
        note(f"fa3 is missing ({first_line(error)}): fetch it with scripts/fetch_peers.sh and name its folder with --site")
        return None

    def side(t):
        names = dict(zip(("q_descale", "k_descale", "v_descale"), t.descales or ()))
        def attend():
            out = flash_attn_func(t.q, t.k, t.v, causal=t.causal, **names)
            return out[0] if isinstance(out, tuple) else out
        return attend

    return side


def fa3_of_vllm(path):
    """FlashAttention-3 of the library in vLLM's wheel, which takes packed sequences."""
    torch.ops.load_library(path)
    op = torch.ops._vllm_fa3_C.fwd.default

    def side(t):
        batch, seqlen = t.q.shape[:2]
        starts = torch.arange(0, (batch + 1) * seqlen, seqlen, device="cuda", dtype=torch.int32)
        q, k, v = (x.flatten(0, 1) for x in (t.q, t.k, t.v))
        given = {
            "q": q, "k": k, "v": v, "cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": seqlen, "max_seqlen_k": seqlen,
            "softmax_scale": q.shape[-1] ** -0.5, "is_causal": t.causal, "window_size_left": -1, "window_size_right": -1,
            "attention_chunk": 0, "softcap": 0.0, "is_rotary_interleaved": False, "num_splits": 1, "sm_margin": 0, "cp_world_size": 1,
            "cp_rank": 0, **dict(zip(("q_descale", "k_descale", "v_descale"), t.descales or ())),
        }
        arguments = [given.get(a.name, a.default_value if a.has_default_value() else None) for a in op._schema.arguments]
        return lambda: op(*arguments)[0].unflatten(0, (batch, seqlen))

    return side


class Kgen:
    """A launcher of the library on a point's tensors, writing into outputs of its own."""

    def __init__(self, library, name, t):
        self.out = torch.full_like(t.q, float("nan"), dtype=DTYPES.get(t.dtype, torch.bfloat16))
        batch, seqlen, heads, _ = t.q.shape
        self.lse = torch.full((batch, heads, seqlen), float("nan"), device="cuda", dtype=torch.float32)
        self.params = fwd_params(t.q, t.k, t.v, self.out, self.lse, t.causal, descales=t.descales)
        self.launch = library.launcher(name)

    def poison(self):
        self.out.fill_(float("nan"))
        self.lse.fill_(float("nan"))

    def __call__(self):
        self.launch(self.params)
        return self.out


def replayed(attend, calls):
    """A function that replays a graph of `calls` calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            attend()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            attend()
    return graph.replay


def ready(sides, graph):
    """{side: (function, calls it stands for)}; a peer whose calls cannot be captured is left out."""
    functions = {}
    for side, attend in sides.items():
        if not graph:
            functions[side] = (attend, 1)
            continue
        calls = max(1, min(200, int(GRAPH_MS / max(1e-3, time_batch(attend, 5)))))
        try:
            functions[side] = (replayed(attend, calls), calls)
        except RuntimeError as error:
            if side == "kgen":
                raise
            torch.cuda.synchronize()
            note(f"{side} cannot be captured in a graph: {first_line(error)}")
    return functions


def rounds_of(functions, rounds, round_ms):
    """Milliseconds a call of each side in each round, sides in alternating order."""
    counts, times = {}, {side: [] for side in functions}
    for side, (f, _) in functions.items():
        f()
        torch.cuda.synchronize()
        once = time_batch(f, 2)
        each = time_batch(f, max(1, int(WARM_UP_MS / once)))
        counts[side] = max(1, round(round_ms / each))
    for number in range(rounds):
        for side in list(functions) if number % 2 == 0 else list(functions)[::-1]:
            f, calls = functions[side]
            times[side].append(time_batch(f, counts[side]) / calls)
    return times


def ceiling(rounds, round_ms):
    """TFLOP/s of a bf16 matrix product of 8192³: what the card gives today."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    times = rounds_of({"matmul": (lambda: torch.matmul(a, b, out=out), 1)}, rounds, round_ms)["matmul"]
    return 2 * 8192**3 / statistics.median(times) / 1e9


def picked(library, args, batch, heads, seqlen, head_dim, causal):
    """The kernel that kgen_fwd picks of those made for the card: fwd_short where the library holds it and its blocks, of 64 queries of
    a head, all run at once (templates/bindings/dispatch/paths.tera)."""
    name = lambda kind: f"flash_{kind}_hdim{head_dim}_{args.dtype}{'_causal' if causal else ''}_{args.target}"
    blocks = (seqlen + 63) // 64 * heads * batch
    little = blocks <= torch.cuda.get_device_properties(0).multi_processor_count
    return name("fwd_short") if args.short and little and library.holds(name("fwd_short")) else name("fwd")


def measure(args, library, fa3, shape, graph_always=False):
    """A row of results for (batch, heads, seqlen, head_dim, causal)."""
    batch, heads, seqlen, head_dim, causal = shape
    name = picked(library, args, *shape)
    row = {"head_dim": head_dim, "causal": causal, "seqlen": seqlen, "batch": batch, "heads": heads, "dtype": args.dtype, "kernel": name, "kernels": {}}
    if not library.holds(name):
        note(f"the library holds no {name}")
        return {**row, "skipped": "not in the library"}
    t = Tensors(args.dtype, batch, heads, seqlen, head_dim, causal)
    kgen, sides, errors = Kgen(library, "kgen_fwd" if args.short else name, t), {}, {}
    for side in SIDES[args.dtype]:
        attend = peer(side, t, fa3)
        if attend is None:
            continue
        try:
            errors[side] = t.error(attend())
            torch.cuda.synchronize()
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            note(f"{side} does not take {args.dtype} d{head_dim}{' causal' if causal else ''}: {first_line(error)}")
            continue
        if not errors[side] < LARGEST_ERROR[args.dtype]:
            note(f"{side} is left out at d{head_dim} s{seqlen} causal={causal}: its relative error is {errors[side]:.3g}")
            continue
        sides[side] = attend

    def judge(when):
        torch.cuda.synchronize()
        error = t.error(kgen.out)
        if not error < LARGEST_ERROR[args.dtype] or kgen.lse.isnan().any():
            raise SystemExit(f"{name} is wrong {when} timing at s{seqlen}: relative error {error}")
        return error

    kgen()
    errors["kgen"] = judge("before")
    kgen.poison()  # what is found afterwards was written by calls that were timed
    graph = graph_always or time_batch(kgen, 3) < args.graph_below_ms
    times = rounds_of(ready({"kgen": kgen, **sides}, graph), args.rounds, args.round_ms)
    judge("after")
    flops = 4 * batch * heads * seqlen * seqlen * head_dim * (0.5 if causal else 1)
    for side, ms in times.items():
        tflops = flops / statistics.median(ms) / 1e9
        if args.peak and tflops > args.peak:
            raise SystemExit(f"{side}: {tflops:.0f} TFLOP/s is beyond the {args.peak:.0f} of this card; the measurement is wrong")
        microseconds = [m * 1e3 for m in ms]
        row["kernels"][side] = {
            "tflops": tflops, "us": statistics.median(microseconds), "microseconds": summary(microseconds),
            "round_us": microseconds, "relative_error": errors[side],
        }
    return {**row, **compare(times), "graph_replays": graph}


def show(row):
    kernels = row["kernels"]
    cells = [f"{side} {k['tflops']:.0f} TFLOP/s {k['us']:.1f} us" + (f" ({row['ratios'][side]['median']:.3f})" if side in row["ratios"] else "") for side, k in kernels.items()]
    mask = "causal" if row["causal"] else "full"
    print(f"d{row['head_dim']} {mask} s{row['seqlen']} b{row['batch']} h{row['heads']}: {', '.join(cells)}; {row['kernel']}", file=sys.stderr, flush=True)


def grid(args):
    """Every (batch, heads, seqlen, head_dim, causal), lengths outermost."""
    if args.short:
        return SHORT
    masks = [causal for causal in (False, True) if args.mask in ("both", "causal" if causal else "full")]
    return [(max(1, TOKENS // s), max(1, WIDTH // d), s, d, causal) for s in args.seqlen for d in args.head_dim for causal in masks]


def errors_table(rows):
    """Relative errors of both sides in FP8."""
    lines = ["| head dim | mask | s | kgen error | fa3 error |", "|---|---|---|---|---|"]
    for row in rows:
        if "kgen" in row["kernels"]:
            error = lambda side: f"{row['kernels'][side]['relative_error']:.4f}" if side in row["kernels"] else "–"
            lines.append(f"| {row['head_dim']} | {'causal' if row['causal'] else 'full'} | {row['seqlen']} | {error('kgen')} | {error('fa3')} |")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/lib/libkgen.so")
    parser.add_argument("--target", default="sm90", help="target in the kernels' names (sm90)")
    parser.add_argument("--dtype", choices=["bf16", "fp16", "fp8"], default=None, help="bf16, with --short fp16")
    parser.add_argument("--head-dim", type=int, nargs="+", default=HEAD_DIMS)
    parser.add_argument("--seqlen", type=int, nargs="+", default=SEQLENS)
    parser.add_argument("--mask", choices=["both", "full", "causal"], default="both")
    parser.add_argument("--short", action="store_true", help="small shapes in place of the grid, in microseconds")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--round-ms", type=float, default=20, help="milliseconds of each side in each round (20)")
    parser.add_argument("--graph-below-ms", type=float, default=1.0, help="kernels shorter than this are timed as graph replays (1)")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="points that have not begun after so many seconds are skipped")
    parser.add_argument("--site", default=os.environ.get("PEERS_SITE"), help="folder with the unpacked wheel fa3-fwd (PEERS_SITE)")
    parser.add_argument("--vllm-fa3", default=None, metavar="FILE", help="_vllm_fa3_C.abi3.so, in place of fa3-fwd")
    parser.add_argument("--out", default=None, help="JSON file")
    args = parser.parse_args()
    args.dtype = args.dtype or ("fp16" if args.short else "bf16")
    return args


def main():
    args, begun = arguments(), time.monotonic()
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    args.peak = peak_tflops(args.dtype)
    library = Library(args.library)
    fa3 = fa3_of_vllm(args.vllm_fa3) if args.vllm_fa3 else fa3_of_wheel(args.site)
    result = {
        "card": card_state(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "target": args.target, "dtype": args.dtype,
        "fa3": args.vllm_fa3 or (fa3 and "fa3-fwd"), "rounds": args.rounds, "round_ms": args.round_ms, "l2": "warm",
        "peak_tflops": args.peak, "matmul_tflops": ceiling(args.rounds, args.round_ms), "skipped": 0, "rows": [],
    }
    print(f"# {result['card']}; torch {result['torch']}; bf16 matmul {result['matmul_tflops']:.0f} TFLOP/s", file=sys.stderr, flush=True)

    def save():
        result["card_after"], result["notes"] = card_state(), sorted(noted)
        result["geomeans"] = geomeans(result["rows"], SIDES[args.dtype])
        if args.out:
            with open(args.out, "w") as f:
                json.dump(result, f, indent=1)

    points = grid(args)
    for number, shape in enumerate(points):
        if time.monotonic() - begun > args.limit_s:
            result["skipped"] = len(points) - number
            note(f"{result['skipped']} of {len(points)} points skipped: the {args.limit_s:.0f} s of --limit-s are over")
            break
        row = measure(args, library, fa3, shape, graph_always=args.short)
        result["rows"].append(row)
        if row["kernels"]:
            show(row)
        save()
    result["rows"].sort(key=lambda row: (row["head_dim"], row["causal"], row["seqlen"], row["batch"]))
    save()
    shown = [row for row in result["rows"] if row["kernels"]]
    card = f"{result['card']}; torch {result['torch']}, cuDNN {result['cudnn']}; bf16 matmul {result['matmul_tflops']:.0f} TFLOP/s"
    print(f"{card}; {args.dtype}, {args.target}, {args.rounds} rounds of {args.round_ms:.0f} ms.\n")
    print(markdown(shown, SIDES[args.dtype], "us" if args.short else "tflops"))
    print("\n" + markdown_geomeans(result["geomeans"]))
    if args.short:
        print("\nkgen's kernels, as kgen_fwd picks them: " + ", ".join(dict.fromkeys(row["kernel"] for row in shown)) + ".")
    if args.dtype == "fp8":
        print("\n" + errors_table(shown))
    for message in result["notes"]:
        print(f"\n{message}.")


if __name__ == "__main__":
    main()
