#!/usr/bin/env python3
"""Decoding with DeepSeek's latent attention (MLA), beside FlashAttention-3 and FlashMLA on the same tensors.

    kgen build --target sm80,sm90 --dtype bf16 --head-dim 64_512 --causal --features paged,qv --build-dir build-mla
    python3 benches/mla.py --library build-mla/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out mla.json

Needs torch and a Hopper GPU. The cache is (pages, 64, 1, 576), pages in random order: the latent of 512 columns,
which is V as well, then the 64 that turn with the position; queries likewise. kgen is called as engines have it, with
head dims 576 and 512 and V inside K; FA3, the library in vLLM's wheel, with `q_v`; FlashMLA, if it can be imported,
by its own function. Graphs of calls go round copies of the cache together larger than the L2, as the layers of a
model do. Every O is compared with float32 first. A ratio is the faster peer's time / kgen's, above 1 where kgen is
faster; GB/s count the cache once, FLOPs 2 (64 + 512 + 512) for each visible pair of a query's head and a key.
`--splits` times forced numbers of splits as well, from which the constants of `KernelCost::latent` are to be fitted.
"""

import argparse
import ctypes
import json
import random

import torch

from kgen_ctypes import FLAG_CAUSAL, FwdParams, Library
from paged import L2_BYTES, MOST_BYTES, Fa3, captured, copy_gbs, medians, spread

PAGE = 64
LATENT, TURNED = 512, 64
WIDE = LATENT + TURNED
SCALE = (128 + 64) ** -0.5  # of the attention that the absorbed one stands for


def cases():
    """Name, query lengths, key lengths, query heads."""
    for heads in (128, 16):
        for batch in (1, 16, 64, 128):
            for keys in (1024, 4096, 32768):
                yield f"B{batch} L{keys} h{heads}", [1] * batch, [keys] * batch, heads
    yield "B32 128..65536 h128", [1] * 32, spread(32, 128, 65536, 1), 128
    yield "B64 L4096 h128, 2 queries", [2] * 64, [4096] * 64, 128
    yield "B64 L4096 h16, 4 queries", [4] * 64, [4096] * 64, 16
    yield "prefill 4 x 2048 h16", [2048] * 4, [2048] * 4, 16


class Work:
    """The tensors of one case, with as many copies of the cache as make the L2 cold."""

    def __init__(self, queries, keys, heads):
        self.queries, self.keys, self.heads, self.batch = queries, keys, heads, len(queries)
        pages = [-(-count // PAGE) for count in keys]
        total = sum(pages)
        cache_bytes = total * PAGE * WIDE * 2
        copies = max(1, min(64, -(-6 * L2_BYTES // cache_bytes), MOST_BYTES // cache_bytes))
        self.caches = [torch.randn(total, PAGE, 1, WIDE, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        order = torch.randperm(total, dtype=torch.int32)
        self.table = torch.zeros(self.batch, max(pages), dtype=torch.int32)
        first = 0
        for row, count in enumerate(pages):
            self.table[row, :count] = order[first : first + count]
            first += count
        self.table = self.table.cuda()
        self.q = torch.randn(sum(queries), heads, WIDE, device="cuda", dtype=torch.bfloat16)
        starts = [0]
        for count in queries:
            starts.append(starts[-1] + count)
        self.starts = torch.tensor(starts, dtype=torch.int32, device="cuda")
        self.used = torch.tensor(keys, dtype=torch.int32, device="cuda")
        self.bytes = sum(keys) * WIDE * 2
        self.flops = sum(2 * (WIDE + LATENT) * heads * (q * k - q * (q - 1) / 2) for q, k in zip(queries, keys))

    def reference(self, cache, sequence):
        """float32, of the last 64 rows of one sequence at most."""
        count = self.keys[sequence]
        rows_of_cache = cache[self.table[sequence, : -(-count // PAGE)].long()].reshape(-1, WIDE)[:count].float()
        end, rows = int(self.starts[sequence + 1]), min(64, self.queries[sequence])
        s = torch.einsum("qhd,kd->hqk", self.q[end - rows : end].float(), rows_of_cache) * SCALE
        seen = torch.arange(count, device="cuda")[None] <= torch.arange(count - rows, count, device="cuda")[:, None]
        p = torch.softmax(s.masked_fill(~seen, float("-inf")), -1)
        return torch.einsum("hqk,kd->qhd", p, rows_of_cache[:, :LATENT]), slice(end - rows, end)


def kgen_call(library, work, cache, o, lse, workspaces, splits=0):
    p = FwdParams(struct_size=ctypes.sizeof(FwdParams), flags=FLAG_CAUSAL)
    for name, t in (("q", work.q), ("o", o)):
        setattr(p, name, t.data_ptr())
        setattr(p, f"{name}_row_stride", t.stride(0))
        setattr(p, f"{name}_head_stride", t.stride(1))
    for name in "kv":
        setattr(p, name, cache.data_ptr())
        for axis, stride in zip(("batch", "row", "head"), cache.stride()):
            setattr(p, f"{name}_{axis}_stride", stride)
    p.lse, p.lse_head_stride = lse.data_ptr(), lse.stride(0)
    p.cu_seqlens_q, p.seqused_k = work.starts.data_ptr(), work.used.data_ptr()
    p.batch, p.num_heads, p.num_heads_k = work.batch, work.heads, 1
    p.seqlen_q, p.seqlen_k = max(work.queries), max(work.keys)
    p.total_q, p.total_k = sum(work.queries), sum(work.keys)
    p.head_dim, p.head_dim_v, p.dtype, p.softmax_scale = WIDE, LATENT, 1, SCALE
    p.page_table, p.page_table_stride = work.table.data_ptr(), work.table.stride(0)
    p.page_size, p.num_pages, p.num_splits = PAGE, cache.shape[0], splits
    wanted = library.lib.kgen_fwd_workspace
    wanted.restype, wanted.argtypes = ctypes.c_size_t, [ctypes.POINTER(FwdParams)]
    if bytes_needed := wanted(p):
        # Calls follow one another, and share a workspace that is large enough.
        if not workspaces or workspaces[-1].numel() < bytes_needed:
            workspaces.append(torch.empty(bytes_needed, dtype=torch.uint8, device="cuda"))
        p.workspace, p.workspace_bytes = workspaces[-1].data_ptr(), bytes_needed
    launch = library.launcher("kgen_fwd")

    def call():
        launch(p)

    call.kept = (cache, o, lse, p)
    return call


def fa3_call(fa3, work, cache, o):
    longest_q, longest_k = max(work.queries), max(work.keys)
    common = {
        "cu_seqlens_q": work.starts, "seqused_k": work.used, "max_seqlen_q": longest_q, "max_seqlen_k": longest_k, "is_causal": True,
        "window_size_left": -1, "window_size_right": -1, "num_splits": 0, "sm_margin": 0,
    }
    metadata = fa3.metadata(*fa3.arguments(fa3.metadata, {
        **common, "batch_size": work.batch, "num_heads": work.heads, "num_heads_k": 1, "headdim": TURNED, "headdim_v": LATENT,
        "qkv_dtype": torch.bfloat16, "page_size": PAGE, "max_seqlen_k_new": 0, "has_softcap": False,
    }))
    given = fa3.arguments(fa3.fwd, {
        **common, "q": work.q[..., LATENT:], "k": cache[..., LATENT:], "v": cache[..., :LATENT], "q_v": work.q[..., :LATENT], "out": o,
        "page_table": work.table, "softmax_scale": SCALE, "softcap": 0.0, "is_rotary_interleaved": True, "scheduler_metadata": metadata,
        "cp_world_size": 1, "cp_rank": 0,
    })
    return lambda: fa3.fwd(*given)


def flash_mla_call(module, work, cache, o):
    """None where sequences have unequal numbers of queries, which it does not take."""
    queries = work.queries[0]
    if any(count != queries for count in work.queries):
        return None
    metadata, splits = module.get_mla_metadata(work.used, queries * work.heads, 1)
    q = work.q.view(work.batch, queries, work.heads, WIDE)

    def call():
        result, _ = module.flash_mla_with_kvcache(q, cache, work.table, work.used, LATENT, metadata, splits, SCALE, True)
        o.copy_(result.view_as(o)) if call.copies else None

    call.copies = True  # for the comparison; not timed
    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--fa3", metavar="FILE", help="_vllm_fa3_C.abi3.so")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--splits", default="", help="numbers of splits to force besides, with commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=float, default=6)
    parser.add_argument("--out")
    args = parser.parse_args()
    library, fa3 = Library(args.library), Fa3(args.fa3) if args.fa3 else None
    try:
        import flash_mla
    except ImportError:
        flash_mla = None
    torch.manual_seed(1)
    random.seed(1)
    copy = copy_gbs()
    print(f"{torch.cuda.get_device_name()}, copy {copy:.0f} GB/s; FlashMLA {'is there' if flash_mla else 'cannot be imported'}")
    rows = []
    for name, queries, keys, heads in cases():
        if args.only not in name:
            continue
        work = Work(queries, keys, heads)
        tokens = sum(queries)
        o = torch.full((tokens, heads, LATENT), float("nan"), device="cuda", dtype=torch.bfloat16)
        lse = torch.empty(heads, tokens, device="cuda")
        workspaces = []
        makers = {"kgen": lambda cache: kgen_call(library, work, cache, o, lse, workspaces)}
        for splits in filter(None, args.splits.split(",")):
            makers[f"kgen {splits}"] = lambda cache, splits=int(splits): kgen_call(library, work, cache, o, lse, workspaces, splits)
        if fa3:
            makers["FA3"] = lambda cache: fa3_call(fa3, work, cache, o)
        if flash_mla:
            makers["FlashMLA"] = lambda cache: flash_mla_call(flash_mla, work, cache, o)
        graphs, errors, kept = {}, {}, []
        for peer, make in makers.items():
            o.fill_(float("nan"))
            call = make(work.caches[-1])
            if call is None:
                continue
            call()
            error = 0.0
            for sequence in {0, work.batch // 2, work.batch - 1}:
                expected, rows_of = work.reference(work.caches[-1], sequence)
                error = max(error, ((o[rows_of].float() - expected).abs().max() / expected.abs().max()).item())
            errors[peer] = error if not torch.isnan(o).any() else float("nan")
            calls = [make(cache) for cache in work.caches]
            for call in calls:
                call.copies = False
            if len(calls) == 1:
                calls *= 2
            kept.append(calls)
            graphs[peer] = captured(calls)
        us = medians(graphs, len(kept[0]), args.rounds, args.round_ms)
        best = min((time for peer, time in us.items() if not peer.startswith("kgen")), default=float("nan"))
        row = {
            "case": name, "us": us, "error": errors, "ratio": best / us["kgen"], "gbs": work.bytes / us["kgen"] / 1e3,
            "of_copy": work.bytes / us["kgen"] / 1e3 / copy, "tflops": work.flops / us["kgen"] / 1e6, "copies": len(work.caches),
        }
        rows.append(row)
        times = "  ".join(f"{peer} {time:9.1f}" for peer, time in us.items())
        wrong = "" if max(errors.values()) < 0.02 else f"  ERRORS {errors}"
        print(f"{name:28} {times}  ratio {row['ratio']:5.2f}  {row['gbs']:6.0f} GB/s ({row['of_copy']:.2f})  {row['tflops']:5.0f} TFLOP/s{wrong}", flush=True)
        if args.out:
            with open(args.out, "w") as file:
                json.dump({"device": torch.cuda.get_device_name(), "copy_gbs": copy, "rows": rows}, file, indent=1)
        del work, graphs, kept, makers
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
