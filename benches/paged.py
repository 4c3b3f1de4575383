#!/usr/bin/env python3
"""Paged K and V in the engine's own layout, compared with FlashAttention-3 on the same tensors.

    kgen build --target sm80,sm90 --kind fwd,fwd_split --dtype bf16 --head-dim 64,128 --causal --features paged \\
        --build-dir build-paged
    python3 benches/paged.py --library build-paged/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out paged.jsonl

Needs torch and a Hopper GPU. FA3 is the library in vLLM's wheel. The cache has vLLM's layout: (pages, 16, key heads,
2 head dim), K in the first half of a row and V in the second; pages are in random order; Q is a view of a fused QKV
tensor. Graphs of calls rotate through copies of the cache that exceed the L2 in total, as the layers of a model do.
FA3 runs as vLLM runs it (`FA3 eager`: its own number of splits; `FA3 graph`: 32 splits with scheduler metadata made
once). O is compared with float64 before and after. GB/s count K and V once. `kgen` is the dispatcher's choice, with a
work counter and counters of row tiles; `kgen captured` an engine's captured decoding: the maximum keys of the model, 32
splits, counters, and counts computed by kgen_fwd_metadata beforehand; with --ways also by merging kernel. --ways times
each path with and without the work counter too, and paths that split with partial results merged by fwd_combine
(`launch`) and by the last block of each row tile (`last block`). --beside, or another --library, times other libraries
in the same run in the same way as `kgen`. Ways without a kernel in the library are skipped:

    kgen build --features packgqa,paged --target sm90 --dtype bf16 --head-dim 64,128 --causal --build-dir build-paged
"""

import random
import sys
from functools import partial

from lab import Bench, named, parser, timing
from lab.kgen import FLAG_CAUSAL, FLAG_PATHS, Library
from lab.paged import MERGING, Work, counters, even, spread
from lab.peers import Fa3


def decode_cases():
    """Name; query lengths, key lengths, query heads, key heads, head dim."""
    yield "decode B1 L32768", even(1, 32768, 32, 8, 128)
    yield "decode B64 L4096", even(64, 4096, 32, 8, 128)
    yield "decode B16 L8192 64/8", even(16, 8192, 64, 8, 128)
    yield "decode B128 L1024", even(128, 1024, 32, 8, 128)
    yield "decode B32 128..65536", ([1] * 32, spread(32, 128, 65536, 1), 32, 8, 128)
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
    """Steps of an engine with 64 prompts of 4096 tokens, at most 8192 per step: some sequences decode, one has the rest
    of its prompt, one all of it and one the beginning. (`prefill` and `long decode` of docs/results run these.)"""
    for dim in (64, 128):
        yield f"engine step, 2 prompts d{dim}", ([4096] * 2, [4096] * 2, 32, 8, dim)
        for decodes, rest in ((2, 7), (31, 226), (61, 901)):
            prompts = [rest, 4096, 8192 - decodes - rest - 4096]
            keys = [4110] * decodes + [4096, *prompts[1:]]
            yield f"engine step, {decodes} decodes d{dim}", ([1] * decodes + prompts, keys, 32, 8, dim)


def main():
    arguments = parser(__doc__, peers=["fa3"])
    arguments.add_argument("--ways", action="store_true", help="every path, with and without the work counter")
    arguments.add_argument("--beside", action="append", default=[], metavar="NAME=LIBRARY", help="another library")
    arguments.add_argument("--splits", default="",
        help="numbers of splits to force where there is one query each, with commas")
    bench = Bench(args := arguments.parse_args(), copy_gbs=timing.copy_gbs())
    bench.libraries |= {name: Library(path) for name, path in named(args.beside).items()}
    peers = bench.peers({"fa3": (lambda: Fa3(args.fa3)) if args.fa3 else None})
    counter, counted = counters()
    for name, sizes in bench.selected([*decode_cases(), *prefill_cases(), *engine_cases()]):
        work = Work(*sizes)
        decodes, library = max(work.queries) == 1, bench.library
        # Name of a contender; its library, the function for its parameters, and fields.
        ways = [(word, lib, work.params, {"work_counter": counter, **counted}) for word, lib in bench.libraries.items()]
        for word, lib in bench.libraries.items() if decodes else ():
            ways.append((f"{word} captured", lib, partial(work.captured, lib), counted))
            for merging, flags in MERGING.items() if args.ways else ():
                ways.append(
                    (f"{word} captured, {merging}", lib, partial(work.captured, lib), {**counted, "flags": flags}))
        if args.ways:
            for path in library.ways(work.params(work.caches[0], *work.output())):
                flags = FLAG_CAUSAL | FLAG_PATHS[path]
                ways += [(path, library, work.params, {"flags": flags})]
                ways += [(f"{path} counter", library, work.params, {"flags": flags, "work_counter": counter})]
                for merging, who in MERGING.items() if path in ("SPLIT", "SCHEDULED", "MIXED") else ():
                    ways.append((f"{path} {merging}", library, work.params, {**counted, "flags": flags | who}))
        for splits in filter(None, args.splits.split(",")) if decodes else ():
            for merging, who in MERGING.items():
                forced = {**counted, "num_splits": int(splits), "flags": FLAG_PATHS["SPLIT"] | who}
                ways.append((f"{splits} splits {merging}", library, work.params, forced))
        contenders = {word: work.kgen(lib, partial(make, **fields)) for word, lib, make, fields in ways}
        if peers:
            contenders["FA3 eager"] = work.fa3(peers["fa3"], 0)
        if peers and decodes:
            contenders["FA3 graph"] = work.fa3(peers["fa3"], 32)
        bench.point(
            name, work.shape(), contenders, judge=work.judge, allowed=0.02, dtype="bf16",
            layout="paged", flops=work.flops, moved=work.bytes, rate="gbs" if decodes else "tflops", l2="cold",
            graph=True, formula="K and V once, 4 Hk D bytes a key; 4 H D FLOPs a visible pair")
        assert not counted["arrivals"].any(), "counters are left"
        del work, contenders, ways
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
