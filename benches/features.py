#!/usr/bin/env python3
"""Windows, softcap and sinks on the GPU at hand beside FlashAttention-3, and what features cost plain work.

    kgen build --target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256 --build-dir build-plain
    kgen build --target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256 --full --features window --build-dir build-window
    kgen build --target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256 --full --features window,softcap,alibi,sinks \\
        --build-dir build-all
    python3 benches/features.py --plain build-plain/lib/libkgen.so --window build-window/lib/libkgen.so \\
        --features build-all/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out features.json

Needs torch and a Hopper GPU. FA3 is the library in vLLM's wheel. 16,384 tokens in all, 2048 / head dim heads, bf16. Each
kernel's O is compared with FA3's first. A time is the median over rounds that alternate between the kernels; a ratio is
FA3's time / kgen's, above 1 where kgen is faster.
"""

import argparse
import json
import math
import statistics

import torch

from kgen_ctypes import FLAG_CAUSAL, FLAG_WINDOW, Library, fwd_params

TOKENS = 16384
ROWS = 256  # compared with float32 where FA3 differs


class Fa3:
    """FlashAttention-3's forward operator."""

    def __init__(self, path):
        torch.ops.load_library(path)
        self.op = torch.ops._vllm_fa3_C.fwd.default
        self.defaults = {
            "window_size_left": -1, "window_size_right": -1, "attention_chunk": 0, "softcap": 0.0, "is_rotary_interleaved": False,
            "num_splits": 1, "sm_margin": 0, "cp_world_size": 1, "cp_rank": 0,
        }

    def call(self, q, k, v, causal, window, softcap, sinks):
        batch, seqlen, heads, dim = q.shape
        starts = torch.arange(0, (batch + 1) * seqlen, seqlen, device="cuda", dtype=torch.int32)
        flat = lambda x: x.view(batch * seqlen, x.shape[2], dim)
        given = {
            **self.defaults, "q": flat(q), "k": flat(k), "v": flat(v), "softmax_scale": dim**-0.5, "is_causal": causal, "softcap": softcap,
            "cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": seqlen, "max_seqlen_k": seqlen, "s_aux": sinks,
        }
        if window:
            given["window_size_left"], given["window_size_right"] = window
        default = lambda a: a.default_value if a.has_default_value() else None
        arguments = [given.get(a.name, default(a)) for a in self.op._schema.arguments]
        return lambda: self.op(*arguments)[0].view(batch, seqlen, heads, dim)


def kgen_call(library, q, k, v, o, lse, causal, window, softcap, sinks):
    p = fwd_params(q, k, v, o, lse, causal)
    if window:
        p.flags |= FLAG_WINDOW
        p.features.window_left, p.features.window_right = window
    p.features.softcap = softcap
    if sinks is not None:
        p.features.sinks, p.features.sinks_dtype = sinks.data_ptr(), 1
    launch = library.launcher("kgen_fwd")
    return lambda: launch(p)


def error_of(o, q, k, v, causal, window, softcap, sinks):
    """The largest error of the middle ROWS rows of the first head, against float32, over the largest element."""
    first = q.shape[1] // 2
    rows, keys = torch.arange(first, first + ROWS, device="cuda"), torch.arange(k.shape[1], device="cuda")
    s = q[0, first : first + ROWS, 0].float() @ k[0, :, 0].float().T * q.shape[-1] ** -0.5
    if softcap > 0:
        s = softcap * torch.tanh(s / softcap)
    left, right = window or (-1, -1)
    seen = torch.ones_like(s, dtype=torch.bool)
    if left >= 0:
        seen &= keys >= rows[:, None] - left
    if causal or right >= 0:
        seen &= keys <= rows[:, None] + (0 if causal else right)
    s = s.masked_fill(~seen, -math.inf)
    if sinks is not None:
        s = torch.cat([s, sinks[0].float().expand(ROWS, 1)], 1)
    expected = torch.softmax(s, -1)[:, : k.shape[1]] @ v[0, :, 0].float()
    return ((o[0, first : first + ROWS, 0].float() - expected).abs().max() / expected.abs().max()).item()


def graph(call, calls=4):
    """`calls` calls as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(calls):
            call()
    return captured, calls


def medians(calls, rounds, round_ms):
    """The median time of each call, in microseconds, over rounds in alternating order."""
    graphs = {name: graph(call) for name, call in calls.items()}
    times = {name: [] for name in graphs}

    def once(name, replays):
        captured, count = graphs[name]
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(replays):
            captured.replay()
        end.record()
        end.synchronize()
        return 1e3 * start.elapsed_time(end) / (replays * count)

    first = {name: once(name, 1) for name in graphs}
    replays = {name: max(1, round(1e3 * round_ms / (us * graphs[name][1]))) for name, us in first.items()}
    for number in range(rounds):
        for name in list(graphs) if number % 2 == 0 else reversed(list(graphs)):
            times[name].append(once(name, replays[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", required=True, metavar="FILE")
    parser.add_argument("--window", required=True, metavar="FILE")
    parser.add_argument("--features", required=True, metavar="FILE")
    parser.add_argument("--fa3", metavar="FILE", help="_vllm_fa3_C.abi3.so")
    parser.add_argument("--head-dim", type=int, nargs="*", default=[64, 128, 256])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=float, default=6)
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args()
    libraries = {"plain": Library(args.plain), "window": Library(args.window), "features": Library(args.features)}
    fa3 = Fa3(args.fa3) if args.fa3 else None
    rows = []
    torch.manual_seed(1)
    for dim in args.head_dim:
        heads = 2048 // dim
        for name, seqlen, causal, window, softcap, sink, ours in cases():
            batch = TOKENS // seqlen
            q, k, v = (torch.randn(batch, seqlen, heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
            o, lse = torch.empty_like(q), torch.empty(batch, heads, seqlen, device="cuda")
            sinks = torch.randn(heads, device="cuda", dtype=torch.bfloat16) if sink else None
            calls = {which: kgen_call(libraries[which], q, k, v, o, lse, causal, window, softcap, sinks) for which in ours}
            far = {}
            if fa3:
                calls["fa3"] = fa3.call(q, k, v, causal, window, softcap, sinks)
                try:
                    reference = calls["fa3"]().float()
                except RuntimeError as error:
                    print(f"fa3 refuses {name} d{dim}: {str(error).splitlines()[0][:100]}")
                    del calls["fa3"]
            for which in ours:
                o.fill_(math.nan)
                calls[which]()
                if "fa3" in calls:
                    far[which] = ((o.float() - reference).abs().max() / reference.abs().max()).item()
                    if not far[which] <= 0.02:
                        errors = {n: error_of(x, q, k, v, causal, window, softcap, sinks) for n, x in ((which, o), ("fa3", reference))}
                        print(f"{name} d{dim} s{seqlen}: O of `{which}` is {far[which]:.3f} from FA3's; errors against float32: {errors}")
                        if not errors[which] <= 0.02:
                            raise SystemExit(f"{name} d{dim} s{seqlen}: O of `{which}` is wrong")
            us = medians(calls, args.rounds, args.round_ms)
            row = {"case": name, "head_dim": dim, "seqlen": seqlen, "us": us, "far": far}
            rows.append(row)
            told = "  ".join(f"{which} {value:9.1f}" for which, value in us.items())
            ratios = "  ".join(f"{which} {us['fa3'] / us[which]:.3f}" for which in ours) if "fa3" in us else ""
            print(f"d{dim:<4} s{seqlen:<6} {name:24} us: {told}   x fa3: {ratios}", flush=True)
            if args.out:
                with open(args.out, "w") as file:
                    json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, file)


def cases():
    """Name, length, causal, window, softcap, sinks, and which libraries serve the call."""
    yield "full", 16384, False, None, 0.0, False, ["plain", "window", "features"]
    yield "causal", 16384, True, None, 0.0, False, ["plain", "window", "features"]
    yield "window 1024 causal", 16384, True, (1024, 0), 0.0, False, ["window", "features"]
    yield "window 512,512", 16384, False, (512, 512), 0.0, False, ["window", "features"]
    for seqlen in (512, 2048, 8192, 16384):
        yield "softcap 30 causal", seqlen, True, None, 30.0, False, ["features"]
        yield "sinks causal", seqlen, True, None, 0.0, True, ["features"]
    for seqlen in (512, 4096):
        yield "causal", seqlen, True, None, 0.0, False, ["plain", "features"]
        yield "full", seqlen, False, None, 0.0, False, ["plain", "features"]


if __name__ == "__main__":
    main()
