#!/usr/bin/env python3
"""Windows, softcap and sinks on the GPU at hand beside FlashAttention-3 and -4, and what features cost plain work.

    kgen build --target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256 --build-dir build-plain
    kgen build --target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256 --full --features window --build-dir build-window
    kgen build --target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256 --full --features window,softcap,alibi,sinks \\
        --build-dir build-all
    python3 benches/features.py --plain build-plain/lib/libkgen.so --window build-window/lib/libkgen.so \\
        --features build-all/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --fa4 site --out features.json

Needs torch and a Hopper GPU. FA3 is the library in vLLM's wheel. FA4 is a folder that holds `flash_attn/cute` and
what it imports, CuTe DSL included. FA4 compiles a kernel for each new case, seconds each: `--compile-fa4` does only
that, into the folder named by FLASH_ATTENTION_CUTE_DSL_CACHE_DIR where FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1, so
that several processes may do it at once beforehand. What a peer refuses is recorded, and no failure.

16,384 tokens in all, 2048 / head dim heads, bf16. Each kernel's O is compared with the first peer's, and with float32
where they differ. A time is the median over rounds that alternate between the kernels; a ratio is the fastest peer's
time / kgen's, above 1 where kgen is faster.
"""

import argparse
import json
import math
import statistics
import sys
import time

import torch

from kgen_ctypes import FLAG_CAUSAL, FLAG_WINDOW, Library, fwd_params

TOKENS = 16384
ROWS = 256  # compared with float32 where a peer differs
OURS = ("plain", "window", "features")
PEERS = ("fa3", "fa4")


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


class Fa4:
    """FlashAttention-4's forward function for Hopper."""

    def __init__(self, site, seconds):
        sys.path[:0] = [site, f"{site}/nvidia_cutlass_dsl/dsl_packages"]
        from flash_attn.cute.interface import _flash_attn_fwd

        self.op, self.seconds, self.compiled = _flash_attn_fwd, seconds, set()

    def call(self, q, k, v, causal, window, softcap, sinks):
        """The call, after one that compiles it where its case is new; RuntimeError where there is no time left for that."""
        left, right = window or (None, None)
        o, lse = torch.empty_like(q), torch.empty(q.shape[0], q.shape[2], q.shape[1], device="cuda")
        given = {
            "causal": causal, "window_size_left": left, "window_size_right": right, "softcap": softcap or None,
            "learnable_sink": sinks, "return_lse": True, "out": o, "lse": lse,
        }
        call = lambda: self.op(q, k, v, **given)[0]
        case = (q.shape[-1], causal, window is not None, softcap, sinks is not None)
        if case not in self.compiled:
            if self.seconds <= 0:
                raise RuntimeError("not compiled: no time is left of --fa4-seconds")
            start = time.monotonic()
            call()
            torch.cuda.synchronize()
            taken = time.monotonic() - start
            self.seconds -= taken
            self.compiled.add(case)
            print(f"fa4 made the kernel of {case} in {taken:.1f} s", flush=True)
        return call


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


def peers_of(args):
    """The peers that were asked for, by name; one that does not load is told of and left out."""
    made = {"fa3": lambda: Fa3(args.fa3), "fa4": lambda: Fa4(args.fa4, args.fa4_seconds)}
    peers = {}
    for name in (name for name in made if getattr(args, name)):
        try:
            peers[name] = made[name]()
        except Exception as error:  # a peer's own failure, whatever its kind, is no failure of this comparison
            print(f"{name} does not load: {first_line(error)}", flush=True)
    return peers


def first_line(error):
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:150]}"


def peer_calls(peers, inputs, call):
    """Each peer's call and O, and why there is none; `inputs` are q, k and v, `call` the features."""
    calls, outputs, refused = {}, {}, {}
    for name, peer in peers.items():
        try:
            made = peer.call(*inputs, *call)
            outputs[name] = made().float()
            graph(made, 1)
            calls[name] = made
        except Exception as error:
            refused[name] = first_line(error)
            outputs.pop(name, None)
    return calls, outputs, refused


def compared(which, o, reference, peer, inputs, call, told):
    """How far O is from the peer's; SystemExit where it is wrong by float32 too."""
    far = ((o.float() - reference).abs().max() / reference.abs().max()).item()
    if not far <= 0.02:
        errors = {name: error_of(x, *inputs, *call) for name, x in ((which, o), (peer, reference))}
        print(f"{told}: O of `{which}` is {far:.3f} from {peer}'s; errors against float32: {errors}")
        if which not in PEERS and not errors[which] <= 0.02:
            raise SystemExit(f"{told}: O of `{which}` is wrong")
    return far


def summary(rows):
    """Geometric means of the ratios of each case over lengths and head dims; `rows` with a peer's time only."""
    logs = {}
    for row in rows:
        for which, ratio in row["ratios"].items():
            for dim in (row["head_dim"], "all"):
                logs.setdefault((row["case"], which, dim), []).append(math.log(ratio))
    return [
        {"case": case, "kernel": which, "head_dim": dim, "lengths": len(values), "ratio": math.exp(statistics.mean(values))}
        for (case, which, dim), values in logs.items()
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", metavar="FILE")
    parser.add_argument("--window", metavar="FILE")
    parser.add_argument("--features", metavar="FILE")
    parser.add_argument("--fa3", metavar="FILE", help="_vllm_fa3_C.abi3.so")
    parser.add_argument("--fa4", metavar="FOLDER", help="where FlashAttention-4 and CuTe DSL are unpacked")
    parser.add_argument("--fa4-seconds", type=float, default=240, help="FA4 compiles no further kernel after so many")
    parser.add_argument("--compile-fa4", action="store_true", help="only compile FA4's kernels, into its cache")
    parser.add_argument("--head-dim", type=int, nargs="*", default=[64, 128, 256])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=float, default=6)
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args()
    given = {which: getattr(args, which) for which in OURS}
    if args.compile_fa4:
        given, args.fa3 = {}, None
    elif not all(given.values()):
        parser.error("--plain, --window and --features are needed")
    libraries = {which: Library(path) for which, path in given.items()}
    peers = peers_of(args)
    rows = []
    torch.manual_seed(1)
    for dim in args.head_dim:
        heads = 2048 // dim
        for name, seqlen, causal, window, softcap, sink, ours in cases():
            batch = TOKENS // seqlen
            inputs = [torch.randn(batch, seqlen, heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
            sinks = torch.randn(heads, device="cuda", dtype=torch.bfloat16) if sink else None
            call, told = (causal, window, softcap, sinks), f"{name} d{dim} s{seqlen}"
            calls, outputs, refused = peer_calls(peers, inputs, call)
            for peer, why in refused.items():
                print(f"{told}: {peer} refuses: {why}", flush=True)
            if args.compile_fa4:
                continue
            first = next(iter(outputs), None)
            others = [peer for peer in outputs if peer != first]
            far = {peer: compared(peer, outputs[peer], outputs[first], first, inputs, call, told) for peer in others}
            o, lse = torch.empty_like(inputs[0]), torch.empty(batch, heads, seqlen, device="cuda")
            for which in ours:
                calls[which] = kgen_call(libraries[which], *inputs, o, lse, *call)
                o.fill_(math.nan)
                calls[which]()
                if first:
                    far[which] = compared(which, o, outputs[first], first, inputs, call, told)
            us = medians(calls, args.rounds, args.round_ms)
            fastest = min((peer for peer in PEERS if peer in us), key=us.get, default=None)
            ratios = {which: us[fastest] / us[which] for which in ours} if fastest else {}
            row = {"case": name, "head_dim": dim, "seqlen": seqlen, "us": us, "far": far, "refused": refused}
            rows.append({**row, "fastest_peer": fastest, "ratios": ratios})
            shown = "  ".join(f"{which} {value:9.1f}" for which, value in us.items())
            times = "  ".join(f"{which} {ratio:.3f}" for which, ratio in ratios.items())
            print(f"d{dim:<4} s{seqlen:<6} {name:24} us: {shown}   x {fastest}: {times}", flush=True)
            if args.out:
                document = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows, "means": summary(rows)}
                with open(args.out, "w") as file:
                    json.dump(document, file)
    for mean in summary(rows):
        which = f"{mean['case']:24} d{mean['head_dim']:<4} {mean['kernel']:9}"
        print(f"{which} {mean['ratio']:.3f} x the fastest peer, {mean['lengths']} calls")


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
