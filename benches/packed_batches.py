#!/usr/bin/env python3
"""Times forward attention on packed batches: kgen libraries side by side, PyTorch's own `varlen_attn`, and FlashAttention-3.

    python3 benches/packed_batches.py --library after=build/lib/libkgen.so --library before=/tmp/before/lib/libkgen.so --out packed.json
    python3 benches/packed_batches.py --library build/lib/libkgen.so --batch 64x4-128
    python3 benches/packed_batches.py --library build/lib/libkgen.so --batch 12x1-6000 --ways --fa3 _vllm_fa3_C.abi3.so

Self-attention in bf16: `cu_seqlens_q` is `cu_seqlens_k`, lengths are uniform in the given range. Everything takes turns in rounds; a time is
the median of the rounds, each the mean of a replayed CUDA graph of 20 calls, so the host's time is no part of it. O of the first library
is compared with float64 on three sequences, and that of each way. Needs a GPU that the library has kernels for, PyTorch 2.10 or newer
for the first peer, vLLM's library for the second. --ways times each path that the library holds kernels for, with a work counter and
without; kgen's own choice is called with one.
"""

import argparse
import ctypes
import inspect
import json
import math
import random
import statistics
import sys
from pathlib import Path

import torch

from kgen_ctypes import DTYPES, FLAG_CAUSAL, FLAG_PATHS, PATHS, FwdParams, Library
from paged import Fa3

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:
    varlen_attn = None

CALLS = 20

# Sequences, shortest and longest, query heads, key heads, head dim, causal: of the outside report that found the crash.
BATCHES = [
    (64, 4, 128, 12, 12, 64, False),
    (256, 4, 128, 12, 12, 64, False),
    (64, 4, 200, 16, 16, 128, False),
    (64, 4, 200, 16, 16, 128, True),
    (64, 4, 200, 16, 16, 80, False),
    (32, 4, 400, 32, 8, 128, True),
    (40, 4, 300, 10, 2, 160, True),
    (128, 4, 60, 8, 8, 96, False),
    (48, 4, 250, 16, 4, 256, True),
    # Unequal and long: whoever gets the longest last waits for it.
    *((12, 1, 6000, heads, heads_k, dim, causal) for dim in (64, 128) for heads, heads_k in ((16, 16), (32, 8)) for causal in (False, True)),
]


def name_of(batch):
    count, least, most, heads, heads_k, dim, causal = batch
    return f"{count}x{least}-{most} h{heads}/{heads_k} d{dim}{' causal' if causal else ''}"


class Batch:
    def __init__(self, batch):
        count, least, most, heads, heads_k, dim, causal = batch
        draw = random.Random(count * 1000 + most)
        self.lengths = [draw.randint(least, most) for _ in range(count)]
        self.causal, self.dim, self.heads, self.heads_k = causal, dim, heads, heads_k
        rows = sum(self.lengths)
        generator = torch.Generator("cuda").manual_seed(1)
        make = lambda h: torch.randn(rows, h, dim, device="cuda", dtype=torch.bfloat16, generator=generator)
        self.q, self.k, self.v = make(heads), make(heads_k), make(heads_k)
        ends = [0]
        for length in self.lengths:
            ends.append(ends[-1] + length)
        self.ends = ends
        self.cu = torch.tensor(ends, dtype=torch.int32, device="cuda")
        self.longest = max(self.lengths)

    def params(self, o, lse):
        p = FwdParams(struct_size=ctypes.sizeof(FwdParams), flags=FLAG_CAUSAL if self.causal else 0)
        for name, t in zip("qkvo", (self.q, self.k, self.v, o)):
            setattr(p, name, t.data_ptr())
            setattr(p, f"{name}_row_stride", t.stride(0))
            setattr(p, f"{name}_head_stride", t.stride(1))
        p.lse, p.lse_head_stride = lse.data_ptr(), lse.stride(0)
        p.cu_seqlens_q = p.cu_seqlens_k = self.cu.data_ptr()
        p.batch, p.seqlen_q, p.seqlen_k = len(self.lengths), self.longest, self.longest
        p.num_heads, p.num_heads_k, p.head_dim = self.heads, self.heads_k, self.dim
        p.total_q = p.total_k = self.ends[-1]
        p.dtype, p.softmax_scale = DTYPES[torch.bfloat16], self.dim**-0.5
        return p

    def fa3(self, fa3, o):
        """FA3's call, with its scheduler's metadata made once."""
        common = {
            "cu_seqlens_q": self.cu, "cu_seqlens_k": self.cu, "max_seqlen_q": self.longest, "max_seqlen_k": self.longest,
            "is_causal": self.causal, "window_size_left": -1, "window_size_right": -1, "num_splits": 1, "sm_margin": 0,
        }
        metadata = fa3.metadata(*fa3.arguments(fa3.metadata, {
            **common, "batch_size": len(self.lengths), "num_heads": self.heads, "num_heads_k": self.heads_k, "headdim": self.dim,
            "headdim_v": self.dim, "qkv_dtype": torch.bfloat16, "max_seqlen_k_new": 0, "has_softcap": False,
            "seqused_k": self.cu[1:] - self.cu[:-1],
        }))
        arguments = fa3.arguments(fa3.fwd, {
            **common, "q": self.q, "k": self.k, "v": self.v, "out": o, "softmax_scale": self.dim**-0.5, "softcap": 0.0,
            "is_rotary_interleaved": True, "scheduler_metadata": metadata, "cp_world_size": 1, "cp_rank": 0,
        })
        return lambda: fa3.fwd(*arguments)

    def error(self, o):
        """The largest error of three sequences, relative to the largest element of the reference."""
        worst = 0.0
        for index in (0, len(self.lengths) // 2, len(self.lengths) - 1):
            part = slice(self.ends[index], self.ends[index + 1])
            q, k, v = (t[part].double().transpose(0, 1) for t in (self.q, self.k, self.v))
            k, v = (t.repeat_interleave(self.heads // self.heads_k, 0) for t in (k, v))
            s = q @ k.transpose(1, 2) * self.dim**-0.5
            if self.causal:
                s = s.masked_fill(torch.ones_like(s[0], dtype=torch.bool).triu(1), -math.inf)
            expected = (s.softmax(-1) @ v).transpose(0, 1)
            worst = max(worst, float((o[part].double() - expected).abs().max() / expected.abs().max()))
        return worst

    def peer(self):
        # Some versions of PyTorch take fewer key heads without being told.
        told = "enable_gqa" in inspect.signature(varlen_attn).parameters and self.heads != self.heads_k
        enlarge = {"enable_gqa": True} if told else {}
        window = {"window_size": (-1, 0)} if self.causal else {}
        return lambda: varlen_attn(self.q, self.k, self.v, self.cu, self.cu, self.longest, self.longest, **window, **enlarge)


def graph_of(call):
    """A function that gives microseconds a call."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def once():
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1000 / CALLS

    once()
    return once


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", action="append", required=True, metavar="[NAME=]PATH", help="a libkgen.so; may be repeated")
    parser.add_argument("--batch", action="append", metavar="TEXT", help="only batches whose name contains this")
    parser.add_argument("--ways", action="store_true", help="every path, with and without a work counter")
    parser.add_argument("--fa3", metavar="FILE", help="_vllm_fa3_C.abi3.so")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    libraries = [(entry.split("=", 1) if "=" in entry else ("kgen", entry)) for entry in args.library]
    chosen = [b for b in BATCHES if not args.batch or any(text in name_of(b) for text in args.batch)]
    if not chosen:
        sys.exit("packed_batches.py: no batch has such a name; they are:\n" + "\n".join(map(name_of, BATCHES)))
    fa3 = Fa3(args.fa3) if args.fa3 else None
    counter = torch.zeros(2, dtype=torch.int32, device="cuda")
    rows = []
    for description in chosen:
        batch = Batch(description)
        timed, errors, kept = {}, {}, []

        def add(name, library, path=None, counted=True):
            o = torch.full_like(batch.q, math.nan)
            lse = torch.empty(batch.heads, batch.q.shape[0], device="cuda")
            p = batch.params(o, lse)
            p.flags |= FLAG_PATHS[path] if path else 0
            p.work_counter = counter.data_ptr() if counted else None
            launch = library.launcher("kgen_fwd")
            timed[name] = graph_of(lambda: launch(p))
            kept.append((o, lse))
            errors[name] = batch.error(o)
            return p

        for name, path in libraries:
            library = Library(path)
            p = add(name, library)
            if args.ways:
                held, _ = library.explain(p)
                for way in sorted({PATHS[way.path] for way in held if way.variant and not way.excluded}):
                    for counted in (False, True):
                        add(f"{name} {way}{' counter' if counted else ''}", library, way, counted)
        if fa3:
            o = torch.full_like(batch.q, math.nan)
            call = batch.fa3(fa3, o)
            kept.append(call)  # and with it the metadata, which the graph reads
            timed["FA3"] = graph_of(call)
            errors["FA3"] = batch.error(o)
        if varlen_attn is not None:
            try:
                timed["varlen_attn"] = graph_of(batch.peer())
            except Exception as refusal:  # what this PyTorch does not take is no result of ours
                print(f"varlen_attn: {name_of(description)}: {str(refusal).splitlines()[0]}", file=sys.stderr)
        rounds = {name: [] for name in timed}
        for _ in range(args.rounds):
            for name, once in timed.items():
                rounds[name].append(once())
        times = {name: statistics.median(values) for name, values in rounds.items()}
        rows.append({"batch": name_of(description), "errors": errors, "microseconds": times})
        print(f"{name_of(description):30} error {max(errors.values()):.1e}  " + "  ".join(f"{name} {time:.2f} us" for name, time in times.items()), flush=True)
    if args.out:
        args.out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
