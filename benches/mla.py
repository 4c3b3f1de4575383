#!/usr/bin/env python3
"""Decoding with DeepSeek's latent attention (MLA), compared with FlashAttention-3 and FlashMLA on the same tensors.

    kgen build --target sm80,sm90 --dtype bf16 --head-dim 64_512 --causal --features paged,qv --build-dir build-mla
    python3 benches/mla.py --library build-mla/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out mla.jsonl

Needs torch and a Hopper GPU. The cache is (pages, 64, 1, 576), pages in random order: the latent of 512 columns,
which is V as well, then the 64 with rotary embedding; queries have the same layout. kgen is called as in engines,
with head dims 576 and 512 and V inside K; FA3, the library in vLLM's wheel, with `q_v`; FlashMLA, if it can be
imported, by its own function. Graphs of calls rotate through copies of the cache that exceed the L2 in total, as the
layers of a model do. O is compared with float64 before and after. GB/s count the cache once, FLOPs 2 (64 + 512 + 512)
for each visible pair of a query's head and a key. `--splits` times forced numbers of splits as well, to which the
constants of `KernelCost::latent` are fitted.
"""

import sys
from functools import partial

from lab import Bench, Contender, parser, timing
from lab.paged import Work, spread
from lab.peers import Fa3, flash_mla

LATENT, TURNED, PAGE = 512, 64, 64
SCALE = (128 + 64) ** -0.5  # for the attention before absorption


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


def flash_mla_contender(module, work):
    """None if sequences have unequal numbers of queries, which it does not support."""
    queries = work.queries[0]
    if any(count != queries for count in work.queries):
        return None
    metadata, splits = module.get_mla_metadata(work.used, queries * work.heads, 1)
    q, attend = work.q.view(work.batch, queries, work.heads, work.dim), module.flash_mla_with_kvcache
    given = (work.table, work.used, LATENT, metadata, splits, SCALE, True)
    return Contender([lambda cache=cache: [attend(q, cache, *given)[0].flatten(0, 1)] for cache in work.caches])


def main():
    arguments = parser(__doc__, peers=["fa3"])
    arguments.add_argument("--splits", default="", help="numbers of splits to force besides, with commas")
    bench = Bench(args := arguments.parse_args(), copy_gbs=timing.copy_gbs())
    peers = bench.peers({"fa3": (lambda: Fa3(args.fa3)) if args.fa3 else None, "flash_mla": flash_mla})
    for name, queries, keys, heads in bench.selected(cases()):
        work = Work(queries, keys, heads, 1, LATENT + TURNED, page=PAGE, latent=LATENT, scale=SCALE)
        contenders = {label: work.kgen(library) for label, library in bench.libraries.items()}
        for splits in filter(None, args.splits.split(",")):
            contenders[f"kgen {splits}"] = work.kgen(bench.library, partial(work.params, num_splits=int(splits)))
        if "fa3" in peers:
            contenders["FA3"] = work.fa3(peers["fa3"], 0)
        if "flash_mla" in peers and (mla := flash_mla_contender(peers["flash_mla"], work)):
            contenders["FlashMLA"] = mla
        bench.point(
            name, work.shape(), contenders, judge=work.judge, allowed=0.02, dtype="bf16",
            layout="paged", flops=work.flops, moved=work.bytes, rate="gbs", l2="cold", graph=True,
            formula="the cache once, 1152 bytes a key; 2 (64 + 512 + 512) FLOPs a visible pair")
        del work, contenders
    return bench.finish(group="heads")


if __name__ == "__main__":
    sys.exit(main())
