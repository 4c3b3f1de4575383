#!/usr/bin/env python3
"""Decoding and prefill from a paged KV cache in FP8 beside the same in bf16, and beside FlashAttention-3 on FP8.

    kgen build --target sm80,sm90 --kind fwd,fwd_split --dtype bf16 --head-dim 64,128 --causal --features paged --build-dir build-bf16
    kgen build --target sm80 --kind fwd,fwd_split --dtype bf16 --head-dim 64,128 --causal --features paged,kv_e4m3 --build-dir build-e4m3
    kgen build --target sm80 --kind fwd_split --dtype bf16 --head-dim 128 --causal --features paged,kv_e5m2 --build-dir build-e5m2
    kgen build --target sm90 --kind fwd --dtype fp8 --head-dim 64,128 --causal --features paged --build-dir build-fp8
    python3 benches/kv_fp8.py --bf16 build-bf16/lib/libkgen.so --e4m3 build-e4m3/lib/libkgen.so --e5m2 build-e5m2/lib/libkgen.so \\
        --fp8 build-fp8/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out kv_fp8.json

Needs torch and a GPU; FA3, from vLLM's wheel, a Hopper one. Caches, tables and timing are those of benches/paged.py:
pages of 16 rows, K and V in the halves of a row, graphs of calls that go round copies of the cache together larger
than the L2. All FP8 caches hold the bf16 one's numbers, rounded; descales are powers of two by batch entry and key
head, with strides of 0, as vLLM sends them. FA3 multiplies FP8 queries with an FP8 cache, and has no form with bf16
queries; `fp8` is kgen's way to do the same. `--beside` times other kernels for a cache in E4M3 in the same run. Every
O is compared with float32 on its own numbers first. `gain` is the time with a bf16 cache / that with FP8, kgen's
both: tokens a second over tokens a second. The target is 1.7 at B64 L4096; GB/s count K and V once.
"""

import argparse
import json

import torch

from kgen_ctypes import Library
from paged import EVEN, Fa3, Work, captured, copy_gbs, decode_cases, kgen_call, medians, prefill_cases

K_DESCALE, V_DESCALE = 2.0**-6, 2.0**-5
FORMATS = {"e4m3": (torch.float8_e4m3fn, 2), "e5m2": (torch.float8_e5m2, 4)}


def cases():
    yield from decode_cases()
    yield "decode B64 L4096 4 queries", EVEN(64, 4096, 32, 8, 128, queries=4)
    yield "decode B64 L4096 d64", EVEN(64, 4096, 32, 8, 64)
    yield from prefill_cases()


class Cache:
    """The copies of a work's cache in one format, and what a call says of it."""

    def __init__(self, work, name):
        self.descales = [torch.full((1, 1), scale, device="cuda") for scale in (K_DESCALE, V_DESCALE)]
        self.factors = torch.tensor([K_DESCALE] * work.dim + [V_DESCALE] * work.dim, device="cuda", dtype=torch.bfloat16)
        self.fields = {}
        if name == "bf16":
            self.copies, self.exact = work.caches, work.caches[-1]
            return
        dtype, code = FORMATS[name]
        self.copies = [(cache / self.factors).to(dtype) for cache in work.caches]
        self.exact = self.copies[-1].to(torch.bfloat16) * self.factors
        self.fields = {"kv_dtype": code, "k_descale": self.descales[0].data_ptr(), "v_descale": self.descales[1].data_ptr()}


def with_queries_in_e4m3(work, cache):
    """What a call says whose queries are E4M3 as the cache is, and those queries."""
    q = work.q.to(torch.float8_e4m3fn).contiguous()
    of_q = {"q": q.data_ptr(), "q_row_stride": q.stride(0), "q_head_stride": q.stride(1)}
    return {**cache.fields, **of_q, "dtype": FORMATS["e4m3"][1], "kv_dtype": 0}, q


def error_of(work, o, exact):
    worst = 0.0
    for sequence in {0, work.batch // 2, work.batch - 1}:
        expected, rows = work.reference(exact, sequence)
        worst = max(worst, ((o[rows].float() - expected).abs().max() / expected.abs().max()).item())
    return float("nan") if torch.isnan(o).any() else worst


def fa3_maker(fa3, work, cache, o, splits):
    """FA3 with queries in E4M3 too."""
    one = torch.ones(1, 1, device="cuda")
    by_head = [t.expand(work.batch, work.heads_k) for t in (one, *cache.descales)]
    given = {"q": work.q.to(torch.float8_e4m3fn), **dict(zip(("q_descale", "k_descale", "v_descale"), by_head))}
    return lambda copy: fa3.call(work, copy, o, splits, given)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bf16", "e4m3", "e5m2"):
        parser.add_argument(f"--{name}", metavar="LIBRARY", required=name != "e5m2", help=f"a library of kernels for caches in {name}")
    parser.add_argument("--fp8", metavar="LIBRARY", help="a library of kernels for queries and caches in e4m3")
    parser.add_argument("--fa3", metavar="FILE", help="_vllm_fa3_C.abi3.so")
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=LIBRARY", help="another one for caches in e4m3")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=float, default=6)
    parser.add_argument("--out")
    args = parser.parse_args()
    paths = {name: getattr(args, name) for name in ("bf16", "e4m3", "e5m2", "fp8")}
    paths |= dict(pair.split("=", 1) for pair in args.beside)
    libraries = {name: Library(path) for name, path in paths.items() if path}
    fa3 = Fa3(args.fa3) if args.fa3 else None
    torch.manual_seed(1)
    copy = copy_gbs()
    print(f"{torch.cuda.get_device_name()}, copy {copy:.0f} GB/s")
    rows = []
    for case, shape in cases():
        if args.only not in case:
            continue
        work = Work(*shape)
        tokens = sum(work.queries)
        o = torch.full((tokens, work.heads, work.dim), float("nan"), device="cuda", dtype=torch.bfloat16)
        lse = torch.empty(work.heads, tokens, device="cuda")
        workspace = torch.empty(0, dtype=torch.uint8, device="cuda")
        makers, caches, queries, chosen = {}, {}, {}, {}
        for name, library in libraries.items():
            if name == "e5m2" and work.dim != 128:
                continue
            caches[name] = cache = Cache(work, name) if name in ("bf16", *FORMATS) else caches["e4m3"]
            fields, queries[name] = with_queries_in_e4m3(work, cache) if name == "fp8" else (cache.fields, work.q)
            makers[name] = lambda copy, library=library, fields=fields: kgen_call(library, work, copy, o, lse, workspace, fields=fields)[0]
            candidates, best = library.explain(kgen_call(library, work, cache.copies[-1], o, lse, workspace, fields=fields)[1])
            chosen[name] = candidates[best].variant.decode()
        if fa3:
            caches["FA3 fp8"] = caches["e4m3"]
            makers["FA3 fp8"] = fa3_maker(fa3, work, caches["e4m3"], o, 32)
        graphs, errors, kept = {}, {}, []
        for peer, make in makers.items():
            o.fill_(float("nan"))
            make(caches[peer].copies[-1])()
            errors[peer] = error_of(work, o, caches[peer].exact)
            calls = [make(copy_of_cache) for copy_of_cache in caches[peer].copies]
            if len(calls) == 1:
                calls *= 2
            kept.append(calls)
            graphs[peer] = captured(calls)
        us = medians(graphs, len(kept[0]), args.rounds, args.round_ms)
        row = {
            "case": case, "us": us, "error": errors, "chosen": chosen, "gain": us["bf16"] / us["e4m3"],
            "gbs": work.bytes / 2 / us["e4m3"] / 1e3, "of_copy": work.bytes / 2 / us["e4m3"] / 1e3 / copy,
        }
        if fa3:
            row["ratio"] = us["FA3 fp8"] / us["e4m3"]
        rows.append(row)
        times = "  ".join(f"{peer} {time:9.1f}" for peer, time in us.items())
        # With queries in E4M3 they and P are rounded to it; otherwise neither.
        wrong = "" if all(errors[peer] < (0.1 if peer in ("FA3 fp8", "fp8") else 0.02) for peer in errors) else f"  ERRORS {errors}"
        print(f"{case:34} {times}  gain {row['gain']:5.2f}  {row['gbs']:6.0f} GB/s ({row['of_copy']:.2f}){wrong}", flush=True)
        if args.out:
            with open(args.out, "w") as file:
                json.dump({"device": torch.cuda.get_device_name(), "copy_gbs": copy, "rows": rows}, file, indent=1)
        del work, graphs, kept, makers, caches, queries
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
