#!/usr/bin/env python3
"""Paged K and V in the engine's own layout, beside FlashAttention-3 on the same tensors.

    kgen build --target sm80,sm90 --kind fwd,fwd_split --dtype bf16 --head-dim 64,128 --causal --features paged --build-dir build-paged
    python3 benches/paged.py --library build-paged/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out paged.json

Needs torch and a Hopper GPU. FA3 is the library in vLLM's wheel. The cache is the one that vLLM keeps: (pages, 16, key heads,
2 head dim), K in the first half of a row and V in the second; pages lie in random order; Q is a view of a fused QKV
tensor. Decoding times graphs of calls that go round copies of the cache together larger than the L2, as the layers of a
model do. FA3 runs as vLLM runs it (`eager`: its own number of splits; `graph`: 32 splits with scheduler metadata made
once); the faster one counts. Every O is compared with float32 first. A ratio is FA3's time / kgen's, above 1 where kgen
is faster; GB/s count K and V once. `kgen` is what the dispatcher chooses, with a work counter and counters of row tiles;
`kgen captured` what an engine captures for decoding: the most keys that the model takes, 32 splits, counters, and counts
made by kgen_fwd_metadata before; with --ways also by who merges.
--ways times each path with and without the work counter too, and paths that split with partial results merged by
fwd_combine (`launch`) and by the last block of each row tile (`last block`). --beside times other libraries in the same
run, each as `kgen` is. All are timed as far as a library holds the kernels:

    kgen build --features packgqa,paged --target sm90 --dtype bf16 --head-dim 64,128 --causal --build-dir build-paged
"""

import argparse
import ctypes
import json
import random
import statistics

import torch

from kgen_ctypes import FLAG_CAUSAL, FLAG_MERGE_BY_LAST_BLOCK, FLAG_MERGE_BY_LAUNCH, FLAG_PATHS, PATHS, FwdParams, Library

PAGE = 16
L2_BYTES = 50 << 20
MOST_BYTES = 24 << 30
MODEL_KEYS = 8192  # the most that a model takes, where a call is captured
ARRIVALS = 1 << 16
MERGING = {"launch": FLAG_MERGE_BY_LAUNCH, "last block": FLAG_MERGE_BY_LAST_BLOCK}

# name, query lengths, key lengths, query heads, key heads, head dim
EVEN = lambda batch, keys, heads, heads_k, dim, queries=1: ([queries] * batch, [keys] * batch, heads, heads_k, dim)


def spread(count, low, high, seed):
    """Lengths between `low` and `high`, evenly spread in their logarithm."""
    draw = random.Random(seed)
    return [round(low * (high / low) ** draw.random()) for _ in range(count)]


def decode_cases():
    yield "decode B1 L32768", EVEN(1, 32768, 32, 8, 128)
    yield "decode B64 L4096", EVEN(64, 4096, 32, 8, 128)
    yield "decode B16 L8192 64/8", EVEN(16, 8192, 64, 8, 128)
    yield "decode B128 L1024", EVEN(128, 1024, 32, 8, 128)
    unequal = spread(32, 128, 65536, 1)
    yield "decode B32 128..65536", ([1] * 32, unequal, 32, 8, 128)
    for dim in (64, 128):
        yield f"engine decode d{dim} ~4110 keys", ([1] * 64, [4096 + 14 + i % 5 for i in range(64)], 32, 8, dim)
        yield f"engine decode d{dim} ~145 keys", ([1] * 64, [140 + i % 11 for i in range(64)], 32, 8, dim)


def prefill_cases():
    for dim in (64, 128):
        yield f"prefill 16 x 4096 d{dim}", ([4096] * 16, [4096] * 16, 32, 8, dim)
        draw = random.Random(2)
        mixed = [8192] + [draw.randrange(64, 513) for _ in range(30)]
        yield f"prefill 8192 + 30 of 64..512 d{dim}", (mixed, mixed, 32, 8, dim)
        some = [draw.randrange(300, 701) for _ in range(64)]
        yield f"prefill 64 of 300..700 d{dim}", (some, some, 32, 8, dim)
        yield f"prefill chunks of 512 over 8192 d{dim}", ([512] * 4, [8192] * 4, 32, 8, dim)
        yield f"mixed 63 decodes + chunk 1985 d{dim}", ([1] * 63 + [1985], [2000] * 63 + [3000], 32, 8, dim)


def engine_cases():
    """Steps of an engine with 64 prompts of 4096 tokens, at most 8192 a step: some sequences decode, one has the rest of
    its prompt, one all of it and one the beginning. (`prefill` and `long decode` of docs/results run these.)"""
    for dim in (64, 128):
        yield f"engine step, 2 prompts d{dim}", ([4096] * 2, [4096] * 2, 32, 8, dim)
        for decodes, rest in ((2, 7), (31, 226), (61, 901)):
            prompts = [rest, 4096, 8192 - decodes - rest - 4096]
            yield f"engine step, {decodes} decodes d{dim}", ([1] * decodes + prompts, [4110] * decodes + [4096, *prompts[1:]], 32, 8, dim)


class Work:
    """The tensors of one case, with as many copies of the cache as make the L2 cold."""

    def __init__(self, queries, keys, heads, heads_k, dim):
        self.queries, self.keys, self.heads, self.heads_k, self.dim = queries, keys, heads, heads_k, dim
        self.batch = len(queries)
        pages = [-(-count // PAGE) for count in keys]
        total = sum(pages)
        self.cache_bytes = total * PAGE * heads_k * 2 * dim * 2
        copies = max(1, min(64, -(-6 * L2_BYTES // self.cache_bytes), MOST_BYTES // self.cache_bytes))
        self.caches = [torch.randn(total, PAGE, heads_k, 2 * dim, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        order = torch.randperm(total, dtype=torch.int32)
        width = max(pages) + 7
        self.table = torch.full((self.batch, width), 0, dtype=torch.int32)
        first = 0
        for row, count in enumerate(pages):
            self.table[row, :count] = order[first : first + count]
            first += count
        self.table = self.table.cuda()
        tokens = sum(queries)
        self.qkv = torch.randn(tokens, heads + 2 * heads_k, dim, device="cuda", dtype=torch.bfloat16)
        self.q = self.qkv[:, :heads]
        starts = [0]
        for count in queries:
            starts.append(starts[-1] + count)
        self.starts = torch.tensor(starts, dtype=torch.int32, device="cuda")
        self.used = torch.tensor(keys, dtype=torch.int32, device="cuda")
        self.bytes = sum(keys) * heads_k * 2 * dim * 2
        self.flops = sum(4 * dim * heads * (q * k - q * (q - 1) / 2) for q, k in zip(queries, keys))

    def key_value(self, cache):
        return cache[..., : self.dim], cache[..., self.dim :]

    def reference(self, cache, sequence):
        """float32, of the last 64 rows of one sequence at most."""
        k, v = self.key_value(cache)
        count = self.keys[sequence]
        pages = self.table[sequence, : -(-count // PAGE)].long()
        group = self.heads // self.heads_k
        k, v = (t[pages].reshape(-1, self.heads_k, self.dim)[:count].float().repeat_interleave(group, 1) for t in (k, v))
        end = int(self.starts[sequence + 1])
        rows = min(64, self.queries[sequence])
        s = torch.einsum("qhd,khd->hqk", self.q[end - rows : end].float(), k) * self.dim**-0.5
        seen = torch.arange(count, device="cuda")[None] <= torch.arange(count - rows, count, device="cuda")[:, None]
        return torch.einsum("hqk,khd->qhd", torch.softmax(s.masked_fill(~seen, float("-inf")), -1), v), slice(end - rows, end)


def kgen_call(library, work, cache, o, lse, workspace, path=None, counter=None, fields=None):
    """A call, and its parameters; `fields` are set before the library is asked for the workspace."""
    k, v = work.key_value(cache)
    p = FwdParams(struct_size=ctypes.sizeof(FwdParams), flags=FLAG_CAUSAL | (FLAG_PATHS[path] if path else 0))
    p.work_counter = counter.data_ptr() if counter is not None else None
    for name, t in (("q", work.q), ("o", o)):
        setattr(p, name, t.data_ptr())
        setattr(p, f"{name}_row_stride", t.stride(0))
        setattr(p, f"{name}_head_stride", t.stride(1))
    for name, t in (("k", k), ("v", v)):
        setattr(p, name, t.data_ptr())
        for axis, stride in zip(("batch", "row", "head"), t.stride()):
            setattr(p, f"{name}_{axis}_stride", stride)
    p.lse, p.lse_head_stride = lse.data_ptr(), lse.stride(0)
    p.cu_seqlens_q, p.seqused_k = work.starts.data_ptr(), work.used.data_ptr()
    p.batch, p.num_heads, p.num_heads_k = work.batch, work.heads, work.heads_k
    p.seqlen_q, p.seqlen_k = max(work.queries), max(work.keys)
    p.total_q, p.total_k = sum(work.queries), sum(work.keys)
    p.head_dim, p.dtype, p.softmax_scale = work.dim, 1, work.dim**-0.5
    p.page_table, p.page_table_stride = work.table.data_ptr(), work.table.stride(0)
    p.page_size, p.num_pages = PAGE, cache.shape[0]
    for name, value in (fields or {}).items():
        setattr(p, name, value)
    wanted = library.lib.kgen_fwd_workspace
    wanted.restype, wanted.argtypes = ctypes.c_size_t, [ctypes.POINTER(FwdParams)]
    bytes_needed = wanted(p)
    if bytes_needed:
        if workspace.numel() < bytes_needed:
            workspace = torch.empty(bytes_needed, dtype=torch.uint8, device="cuda")
        p.workspace, p.workspace_bytes = workspace.data_ptr(), workspace.numel()
    launch = library.launcher("kgen_fwd")

    def call():
        launch(p)

    call.kept = (k, v, o, lse, workspace, p, counter)
    return call, p


def captured_call(library, work, cache, o, lse, workspace, given):
    """A call as an engine captures it: bounds instead of lengths, and counts that `kgen_fwd_metadata` has made of the
    lengths. `given`: other fields."""
    counts = torch.zeros(work.batch, dtype=torch.int32, device="cuda")
    fields = {"seqlen_k": max(MODEL_KEYS, *work.keys), "total_k": 0, "num_splits": 32, "split_counts": counts.data_ptr(), **given}
    call, p = kgen_call(library, work, cache, o, lse, workspace, fields=fields)
    library.launcher("kgen_fwd_metadata")(p)
    call.counts = counts
    return call


class Fa3:
    def __init__(self, path):
        torch.ops.load_library(path)
        self.fwd = torch.ops._vllm_fa3_C.fwd.default
        self.metadata = torch.ops._vllm_fa3_C.get_scheduler_metadata.default

    @staticmethod
    def arguments(op, given):
        default = lambda a: a.default_value if a.has_default_value() else None
        return [given.get(a.name, default(a)) for a in op._schema.arguments]

    def call(self, work, cache, o, splits, given=None):
        """`given`: other arguments of FA3's, or the same with other values. The type of the cache is that of all three inputs."""
        k, v = work.key_value(cache)
        longest_q, longest_k = max(work.queries), max(work.keys)
        common = {
            "cu_seqlens_q": work.starts, "seqused_k": work.used, "max_seqlen_q": longest_q, "max_seqlen_k": longest_k, "is_causal": True,
            "window_size_left": -1, "window_size_right": -1, "num_splits": splits, "sm_margin": 0,
        }
        metadata = self.metadata(*self.arguments(self.metadata, {
            **common, "batch_size": work.batch, "num_heads": work.heads, "num_heads_k": work.heads_k, "headdim": work.dim, "headdim_v": work.dim,
            "qkv_dtype": cache.dtype, "page_size": PAGE, "max_seqlen_k_new": 0, "has_softcap": False,
        }))
        arguments = self.arguments(self.fwd, {
            **common, "q": work.q, "k": k, "v": v, "out": o, "page_table": work.table, "softmax_scale": work.dim**-0.5, "softcap": 0.0,
            "is_rotary_interleaved": True, "scheduler_metadata": metadata, "cp_world_size": 1, "cp_rank": 0,
            **(given or {}),
        })
        return lambda: self.fwd(*arguments)


def captured(calls):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def medians(graphs, calls, rounds, round_ms):
    """Median microseconds of a call, over rounds in alternating order."""

    def once(name, replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(replays):
            graphs[name].replay()
        end.record()
        end.synchronize()
        return 1e3 * start.elapsed_time(end) / (replays * calls)

    names = list(graphs)
    first = {name: once(name, 1) for name in names}
    replays = {name: max(1, round(1e3 * round_ms / (us * calls))) for name, us in first.items()}
    times = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            times[name].append(once(name, replays[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def copy_gbs():
    """What a kernel that copies 1 GiB, element by element and negated, reaches; bytes read and written counted. A copy
    node of a graph reaches two thirds of it on an H200: the copy engine takes it."""
    a = torch.ones(1 << 28, dtype=torch.int32, device="cuda")
    b = torch.empty_like(a)
    graph = captured([lambda: torch.neg(a, out=b)])
    return 2 * a.nbytes / medians({"copy": graph}, 1, 5, 10)["copy"] / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--fa3", metavar="FILE", help="_vllm_fa3_C.abi3.so")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--ways", action="store_true", help="every path, with and without the work counter")
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=LIBRARY", help="another library, for instance with other tiles")
    parser.add_argument("--splits", default="", help="numbers of splits to force besides where there is one query each, with commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=float, default=6)
    parser.add_argument("--out")
    args = parser.parse_args()
    library, fa3 = Library(args.library), Fa3(args.fa3) if args.fa3 else None
    others = {name: Library(path) for name, path in (pair.split("=", 1) for pair in args.beside)}
    torch.manual_seed(1)
    copy = copy_gbs()
    print(f"{torch.cuda.get_device_name()}, copy {copy:.0f} GB/s")
    rows = []
    for name, shape in [*decode_cases(), *prefill_cases(), *engine_cases()]:
        if args.only not in name:
            continue
        work = Work(*shape)
        tokens = sum(work.queries)
        o = torch.full((tokens, work.heads, work.dim), float("nan"), device="cuda", dtype=torch.bfloat16)
        lse = torch.empty(work.heads, tokens, device="cuda")
        workspace = torch.empty(0, dtype=torch.uint8, device="cuda")
        counter = torch.zeros(2, dtype=torch.int32, device="cuda")
        arrivals = torch.zeros(ARRIVALS, dtype=torch.int32, device="cuda")
        counted = {"arrivals": arrivals.data_ptr(), "arrivals_count": ARRIVALS}
        makers = {"kgen": lambda cache: kgen_call(library, work, cache, o, lse, workspace, None, counter, counted)[0]}
        for word, other in others.items():
            makers[word] = lambda cache, other=other: kgen_call(other, work, cache, o, lse, workspace, None, counter, counted)[0]
        for word, other in {"kgen": library, **others}.items() if max(work.queries) == 1 else ():
            makers[f"{word} captured"] = lambda cache, other=other: captured_call(other, work, cache, o, lse, workspace, counted)
            for merging, flag in MERGING.items() if args.ways else ():
                fields = {**counted, "flags": FLAG_CAUSAL | flag}
                makers[f"{word} captured, {merging}"] = lambda cache, other=other, fields=fields: captured_call(other, work, cache, o, lse, workspace, fields)
        if args.ways:
            held, _ = library.explain(kgen_call(library, work, work.caches[0], o, lse, workspace)[1])
            for path in sorted({PATHS[way.path] for way in held if way.variant and not way.excluded}):
                for word, given in (("", None), (" counter", counter)):
                    makers[f"{path}{word}"] = lambda cache, path=path, given=given: kgen_call(library, work, cache, o, lse, workspace, path, given)[0]
                for word, flag in MERGING.items() if path in ("SPLIT", "SCHEDULED", "MIXED") else ():
                    fields = {**counted, "flags": FLAG_CAUSAL | FLAG_PATHS[path] | flag}
                    makers[f"{path} {word}"] = lambda cache, fields=fields: kgen_call(library, work, cache, o, lse, workspace, None, None, fields)[0]
        for splits in filter(None, args.splits.split(",")) if max(work.queries) == 1 else ():
            for word, flag in MERGING.items():
                fields = {**counted, "num_splits": int(splits), "flags": FLAG_CAUSAL | FLAG_PATHS["SPLIT"] | flag}
                makers[f"{splits} splits {word}"] = lambda cache, fields=fields: kgen_call(library, work, cache, o, lse, workspace, None, None, fields)[0]
        if fa3:
            makers["FA3 eager"] = lambda cache: fa3.call(work, cache, o, 0)
            if max(work.queries) == 1:
                makers["FA3 graph"] = lambda cache: fa3.call(work, cache, o, 32)
        graphs, errors, kept = {}, {}, []
        for peer, make in makers.items():
            o.fill_(float("nan"))
            call = make(work.caches[-1])
            call()
            error = 0.0
            for sequence in {0, work.batch // 2, work.batch - 1}:
                expected, rows_of = work.reference(work.caches[-1], sequence)
                error = max(error, ((o[rows_of].float() - expected).abs().max() / expected.abs().max()).item())
            errors[peer] = error if not torch.isnan(o).any() else float("nan")
            calls = [make(cache) for cache in work.caches]
            if len(calls) == 1:
                calls *= 2
            kept.append(calls)
            graphs[peer] = captured(calls)
        count = len(kept[0])
        us = medians(graphs, count, args.rounds, args.round_ms)
        best = min((us[peer] for peer in us if peer.startswith("FA3")), default=float("nan"))
        row = {
            "case": name, "us": us, "error": errors, "ratio": best / us["kgen"], "gbs": work.bytes / us["kgen"] / 1e3, "of_copy": work.bytes / us["kgen"] / 1e3 / copy,
            "tflops": work.flops / us["kgen"] / 1e6, "copies": len(work.caches),
        }
        rows.append(row)
        times = "  ".join(f"{peer} {time:9.1f}" for peer, time in us.items())
        wrong = "" if max(errors.values()) < 0.02 else f"  ERRORS {errors}"
        print(f"{name:40} {times}  ratio {row['ratio']:5.2f}  {row['gbs']:6.0f} GB/s ({row['of_copy']:.2f})  {row['tflops']:5.0f} TFLOP/s{wrong}", flush=True)
        if args.out:
            with open(args.out, "w") as file:
                json.dump({"device": torch.cuda.get_device_name(), "copy_gbs": copy, "rows": rows}, file, indent=1)
        assert not arrivals.any(), "counters are left"
        del work, graphs, kept, makers
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
