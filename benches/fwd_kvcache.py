#!/usr/bin/env python3
"""A decoding step with new rows of K and V: one launch compared with two.

    kgen build --filter "kind in (fwd_combine, prepare_scheduler) or kind == append_kv and dtype == bf16 \\
        or kind == fwd_split and dtype == bf16 and causal and paged and hdim in (64, 128) and not page_descale \\
        and not kv_e5m2" --build-dir build-append
    python3 benches/fwd_kvcache.py --library build-append/lib/libkgen.so --out fwd_kvcache.jsonl

Needs torch. 32 heads of Q and 8 of K, pages of 16 rows, K and V in the halves of a row; K and Q are rotated. Each
sequence has 1 or 4 queries and as many new rows. Graphs of calls rotate through copies of the cache that exceed the
L2 in total, as the layers of a model do (benches/paged.py). `two` is `kgen_append_kv` and `kgen_fwd`; `kvcache` is
`kgen_fwd_kvcache`, which chooses; `one` is `kgen_fwd` with `k_new`, which always uses one launch; `attention` is
`kgen_fwd` alone, on a cache that contains the rows. O and the rows in the cache of `kvcache` and `one` are compared
with the results of `two`: rows bit for bit. Ratios are to `kvcache`.
"""

import sys

import torch

from lab import Bench, Contender, attention, parser, timing
from lab.kgen import FLAG_CAUSAL, append_kv_params
from lab.paged import Work, counters, even

FORMATS = {"bf16": (torch.bfloat16, 0), "e4m3": (torch.float8_e4m3fn, 2)}
# sequences, keys including the new ones, queries of each, head dim, type of the cache
CASES = [
    (1, 512, 1, 128, "bf16"), (1, 32768, 1, 128, "bf16"), (8, 1024, 1, 128, "bf16"), (64, 145, 1, 64, "bf16"),
    (64, 145, 1, 128, "bf16"),
    (64, 1024, 1, 128, "bf16"), (64, 1024, 4, 128, "bf16"), (64, 4110, 1, 64, "bf16"), (64, 4110, 1, 128, "bf16"),
    (64, 1024, 1, 128, "e4m3"),
]


def name_of(case):
    batch, keys, queries, dim, cached = case
    return f"B{batch} L{keys} d{dim}" + (f", {queries} queries" if queries > 1 else "") + (f", {cached}"
        if cached != "bf16" else "")


class Steps:
    """The calls of a step on each copy of the cache, and their results."""

    def __init__(self, library, work, cached, counted):
        self.work, (dtype, code) = work, FORMATS[cached]
        queries, keys, dim = work.queries[0], work.keys[0], work.dim
        self.caches = [cache.to(dtype) for cache in work.caches]
        q, k, v = (attention.normal(work.batch, queries, heads, dim)
            for heads in (work.heads, work.heads_k, work.heads_k))
        tables = attention.rotary_tables(keys, dim)
        before = torch.full((work.batch,), keys - queries, dtype=torch.int32, device="cuda")
        self.o, self.calls = torch.empty_like(q), {way: [] for way in ("two", "kvcache", "one", "attention")}
        lse = torch.empty(work.batch, work.heads, queries, device="cuda")
        self.pages = work.table[:, (keys - queries) // work.page : (keys - 1) // work.page + 1].long()
        for cache in self.caches:
            turned, after = torch.empty_like(q), torch.empty_like(before)
            halves = work.key_value(cache)
            append = append_kv_params(
                k, v, *halves, before, work.table, q, turned, *tables, flags=FLAG_CAUSAL, seqlens_after=after)
            given = {"cu_seqlens_q": None, "total_q": 0, **counted, **({"kv_dtype": code} if code else {})}
            attend = work.params(cache, self.o, lse, turned, **{**given, "seqused_k": after})
            new = {"k_new": k, "v_new": v, "seqlen_new": queries, "rotary_cos": tables[0], "rotary_sin": tables[1]}
            new |= {"rotary_row_stride": tables[0].stride(0), "rotary_dim": dim, "rotary_rows": keys}
            one = work.params(cache, self.o, lse, q, **{**given, "seqused_k": before, **new})
            write, alone = library.call("kgen_append_kv", append), library.call("kgen_fwd", attend)
            self.calls["attention"].append(alone)
            self.calls["two"].append(lambda write=write, alone=alone: (write(), alone()))
            self.calls["kvcache"].append(lambda append=append, attend=attend,
                both=library.launcher("kgen_fwd_kvcache"): both(append, attend))
            self.calls["one"].append(library.call("kgen_fwd", one))

    def left_by(self, way):
        """O and the bytes of the pages with new rows after a call."""
        self.caches[-1].view(torch.uint8)[self.pages] = 0
        self.o.fill_(float("nan"))
        self.calls[way][-1]()
        return self.o.clone(), self.caches[-1][self.pages].view(torch.uint8).clone()

    def contender(self, way):
        def judge(_):
            if way == "attention":
                return 0.0
            (expected, rows), (o, written) = self.left_by("two"), self.left_by(way)
            far = (o.float() - expected.float()).abs().max().item()
            return far if torch.equal(rows, written) else float("inf")

        return Contender(self.calls[way], out=[], own=True, judge=judge)


def main():
    bench = Bench(parser(__doc__).parse_args(), copy_gbs=timing.copy_gbs())
    _, counted = counters()
    for case in bench.selected(CASES, name_of):
        batch, keys, queries, dim, cached = case
        work = Work(*even(batch, keys, 32, 8, dim, queries))
        steps = Steps(bench.library, work, cached, counted)
        bench.point(
            name_of(case), work.shape(seqlen_new=queries), {way: steps.contender(way) for way in steps.calls},
            judge=None, allowed=0.02,
            dtype="bf16", layout="paged", moved=work.bytes / (1 if cached == "bf16" else 2), l2="cold", graph=True,
            base="kvcache", formula="K and V once: 2 Hk D elements a key", details={"cache": cached})
        del work, steps
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
