#!/usr/bin/env python3
"""A decoding step with new rows of K and V: one launch beside two.

    kgen build --filter "kind in (fwd_combine, prepare_scheduler) or kind == append_kv and dtype == bf16 or kind == fwd_split \\
        and dtype == bf16 and causal and paged and hdim in (64, 128) and not page_descale and not kv_e5m2" --build-dir build-append
    python3 benches/fwd_kvcache.py --library build-append/lib/libkgen.so --out fwd_kvcache.json

Needs torch. 32 heads of Q and 8 of K, pages of 16 rows, K and V in the halves of a row; K and Q are rotated. Each sequence has
1 or 4 queries and as many new rows. Graphs of calls go round copies of the cache that are together larger than the L2, as the
layers of a model do (benches/paged.py). `two` is `kgen_append_kv` and `kgen_fwd`; `kvcache` is `kgen_fwd_kvcache`, which
chooses; `one` is `kgen_fwd` with `k_new`, which has one way; `attention` is `kgen_fwd` alone, on a cache that has the rows. O
and the rows in the cache of `kvcache` and `one` are compared with those of `two` first: rows bit for bit.
"""

import argparse
import ctypes
import json

import torch

from kgen_ctypes import FLAG_CAUSAL, AppendKvParams, Library, append_kv_params
from paged import ARRIVALS, PAGE, Work, captured, copy_gbs, kgen_call, medians

FORMATS = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}
# name, sequences, keys with the new ones, queries of each, head dim, type of the cache
CASES = [
    (f"B{batch} L{keys} d{dim}{f', {queries} queries' if queries > 1 else ''}{', ' + cache if cache != 'bf16' else ''}", batch, keys, queries, dim, cache)
    for batch, keys, queries, dim, cache in [
        (1, 512, 1, 128, "bf16"), (1, 32768, 1, 128, "bf16"), (8, 1024, 1, 128, "bf16"), (64, 145, 1, 64, "bf16"), (64, 145, 1, 128, "bf16"),
        (64, 1024, 1, 128, "bf16"), (64, 1024, 4, 128, "bf16"), (64, 4110, 1, 64, "bf16"), (64, 4110, 1, 128, "bf16"), (64, 1024, 1, 128, "e4m3"),
    ]
]


class Step:
    """A step on one copy of the cache."""

    def __init__(self, library, work, queries, dtype, cache, o, lse, arrivals):
        self.library, self.o, self.kept = library, o, []
        batch, dim = work.batch, work.dim
        fields = {"arrivals": arrivals.data_ptr(), "arrivals_count": ARRIVALS}
        if dtype != torch.bfloat16:
            fields["kv_dtype"] = 2
        view = lambda t, heads: t.view(batch, queries, heads, dim)
        q, k_new, v_new = (view(t, heads) for t, heads in ((work.new_q, work.heads), (work.new_k, work.heads_k), (work.new_v, work.heads_k)))
        self.rotated, self.after = torch.empty_like(q), torch.empty(batch, dtype=torch.int32, device="cuda")
        k, v = work.key_value(cache)
        self.append = append_kv_params(k_new, v_new, k, v, work.before, work.table, q, self.rotated, work.cos, work.sin)
        self.append.flags, self.append.seqlens_after = FLAG_CAUSAL, self.after.data_ptr()
        rows = {"cu_seqlens_q": None, "total_q": 0, "q_batch_stride": q.stride(0), "q_row_stride": q.stride(1), "q_head_stride": q.stride(2)}
        rows |= {"o_batch_stride": o.stride(0), "o_row_stride": o.stride(1), "o_head_stride": o.stride(2), "lse_batch_stride": lse.stride(0), "lse_head_stride": lse.stride(1)}
        workspace = torch.empty(0, dtype=torch.uint8, device="cuda")
        make = lambda more: kgen_call(library, work, cache, o, lse, workspace, fields={**fields, **rows, **more})
        attended = {"q": self.rotated.data_ptr(), "seqused_k": self.after.data_ptr()}
        new = {"q": q.data_ptr(), "seqused_k": work.before.data_ptr(), "k_new": k_new.data_ptr(), "v_new": v_new.data_ptr(), "seqlen_new": queries}
        for name, t in (("k_new", k_new), ("v_new", v_new)):
            new |= {f"{name}_{axis}_stride": stride for axis, stride in zip(("batch", "row", "head"), t.stride())}
        new |= {"rotary_cos": work.cos.data_ptr(), "rotary_sin": work.sin.data_ptr(), "rotary_row_stride": work.cos.stride(0), "rotary_dim": dim, "rotary_rows": work.cos.shape[0]}
        self.attention, self.attention_params = make(attended)
        self.one, _ = make(new)
        launch = library.launcher("kgen_append_kv")
        self.write = lambda: launch(self.append)
        both = library.lib.kgen_fwd_kvcache
        both.argtypes, both.restype = [ctypes.POINTER(AppendKvParams), ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int

        def kvcache():
            code = both(self.append, ctypes.byref(self.attention_params), torch.cuda.current_stream().cuda_stream)
            if code != 0:
                raise RuntimeError(f"kgen_fwd_kvcache: {code}: {library.last_error()}")

        self.kvcache = kvcache

    def two(self):
        self.write()
        self.attention()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=float, default=6)
    parser.add_argument("--out")
    args = parser.parse_args()
    library = Library(args.library)
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name()}, copy {copy_gbs():.0f} GB/s")
    rows = []
    for name, batch, keys, queries, dim, cached in CASES:
        if args.only not in name:
            continue
        work = Work([queries] * batch, [keys] * batch, 32, 8, dim)
        dtype = FORMATS[cached]
        draw = lambda heads: torch.randn(batch * queries, heads, dim, device="cuda", dtype=torch.bfloat16)
        work.new_q, work.new_k, work.new_v = draw(32), draw(8), draw(8)
        work.before = torch.full((batch,), keys - queries, dtype=torch.int32, device="cuda")
        angle = torch.arange(keys, device="cuda")[:, None] * 10000.0 ** (-torch.arange(0, dim, 2, device="cuda") / dim)
        work.cos, work.sin = angle.cos().bfloat16(), angle.sin().bfloat16()
        caches = [cache.to(dtype) for cache in work.caches]
        o = torch.empty(batch, queries, 32, dim, device="cuda", dtype=torch.bfloat16)
        lse = torch.empty(batch, 32, queries, device="cuda")
        arrivals = torch.zeros(ARRIVALS, dtype=torch.int32, device="cuda")
        steps = [Step(library, work, queries, dtype, cache, o, lse, arrivals) for cache in caches]
        results = {}
        pages = work.table[:, (keys - queries) // PAGE : (keys - 1) // PAGE + 1].long()
        for way in ("two", "kvcache", "one"):
            caches[0].view(torch.uint8)[pages] = 0
            o.fill_(float("nan"))
            getattr(steps[0], way)()
            results[way] = o.float().clone(), caches[0][pages].view(torch.uint8).clone()
        errors = {way: (results[way][0] - results["two"][0]).abs().max().item() for way in ("kvcache", "one")}
        wrong = [way for way in errors if not errors[way] < 0.02 or not torch.equal(results[way][1], results["two"][1])]
        ways = ("two", "kvcache", "one", "attention")
        graphs = {way: captured([getattr(step, way) for step in steps] * (2 if len(steps) == 1 else 1)) for way in ways}
        us = medians(graphs, max(2, len(steps)), args.rounds, args.round_ms)
        rows.append({"case": name, "us": us, "error": errors, "wrong": wrong, "gain": us["two"] / us["kvcache"]})
        times = "  ".join(f"{way} {time:8.2f}" for way, time in us.items())
        print(f"{name:24} {times}  two / kvcache {rows[-1]['gain']:5.2f}{'  WRONG ' + ', '.join(wrong) if wrong else ''}", flush=True)
        if args.out:
            with open(args.out, "w") as file:
                json.dump({"device": torch.cuda.get_device_name(), "rows": rows}, file, indent=1)
        del work, steps, graphs, caches
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
