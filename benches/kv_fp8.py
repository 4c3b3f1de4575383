#!/usr/bin/env python3
"""Decoding and prefill from a paged FP8 KV cache compared with the same in bf16, and with FlashAttention-3 on FP8.

    kgen build --target sm80,sm90 --kind fwd,fwd_split --dtype bf16 --head-dim 64,128 --causal --features paged \\
        --build-dir build-bf16
    kgen build --target sm80 --kind fwd,fwd_split --dtype bf16 --head-dim 64,128 --causal --features paged,kv_e4m3 \\
        --build-dir build-e4m3
    kgen build --target sm80 --kind fwd_split --dtype bf16 --head-dim 128 --causal --features paged,kv_e5m2 \\
        --build-dir build-e5m2
    kgen build --target sm90 --kind fwd --dtype fp8 --head-dim 64,128 --causal --features paged --build-dir build-fp8
    python3 benches/kv_fp8.py --bf16 build-bf16/lib/libkgen.so --e4m3 build-e4m3/lib/libkgen.so \\
        --e5m2 build-e5m2/lib/libkgen.so \\
        --fp8 build-fp8/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out kv_fp8.jsonl

Needs torch and a GPU; FA3, from vLLM's wheel, a Hopper one. Caches, tables and timing are as in benches/paged.py. All
FP8 caches contain the bf16 cache's numbers, rounded; descales are powers of two by batch entry and key head, with
strides of 0, as vLLM sends them. FA3 multiplies FP8 queries with an FP8 cache, and has no form with bf16 queries;
`fp8` is kgen's equivalent. `--beside` times other kernels for a cache in E4M3 in the same run. Every O is compared
with float64 on its own numbers. Ratios are to `e4m3`: the ratio of `bf16` is the factor in tokens per second that the
FP8 cache gains, for which the target is 1.7 at B64 L4096. GB/s count K and V once.
"""

import sys
from functools import partial

import torch

from lab import Bench, named, parser, timing
from lab.kgen import Library
from lab.paged import Work, even
from lab.peers import Fa3
from paged import decode_cases, prefill_cases

K_DESCALE, V_DESCALE = 2.0**-6, 2.0**-5
FORMATS = {"e4m3": (torch.float8_e4m3fn, 2), "e5m2": (torch.float8_e5m2, 4)}


def cases():
    yield from decode_cases()
    yield "decode B64 L4096 4 queries", even(64, 4096, 32, 8, 128, queries=4)
    yield "decode B64 L4096 d64", even(64, 4096, 32, 8, 64)
    yield from prefill_cases()


class Cache:
    """The copies of a work's cache in one format, the corresponding fields of a call, and its numbers in bf16."""

    def __init__(self, work, name):
        self.copies, self.exact, self.fields = work.caches, work.caches[-1], {}
        if name in FORMATS:
            factors = torch.tensor([K_DESCALE] * work.dim + [V_DESCALE] * work.dim, device="cuda", dtype=torch.bfloat16)
            dtype, code = FORMATS[name]
            self.copies = [(cache / factors).to(dtype) for cache in work.caches]
            self.exact = self.copies[-1].to(torch.bfloat16) * factors
            self.descales = [torch.full((1, 1), scale, device="cuda").expand(work.batch, work.heads_k)
                for scale in (1.0, K_DESCALE, V_DESCALE)]
            self.fields = {"kv_dtype": code, "k_descale": self.descales[1], "v_descale": self.descales[2]}


def judged(work, cache):
    """A judge that uses the numbers of a cache."""
    return lambda out: work.error(out[0], cache.exact)


def main():
    arguments = parser(__doc__, library=None, peers=["fa3"])
    for name in ("bf16", "e4m3", "e5m2"):
        arguments.add_argument(f"--{name}", metavar="LIBRARY", required=name != "e5m2",
            help=f"kernels for caches in {name}")
    arguments.add_argument("--fp8", metavar="LIBRARY", help="kernels for queries and caches in e4m3")
    arguments.add_argument("--beside", action="append", default=[], metavar="NAME=LIBRARY",
        help="another one for caches in e4m3")
    args = arguments.parse_args()
    paths = {name: getattr(args, name) for name in ("bf16", "e4m3", "e5m2", "fp8")} | named(args.beside)
    bench = Bench(args, copy_gbs=timing.copy_gbs(), libraries=paths)
    libraries = {name: Library(path) for name, path in paths.items() if path}
    peers = bench.peers({"fa3": (lambda: Fa3(args.fa3)) if args.fa3 else None})
    for case, sizes in bench.selected(cases()):
        work = Work(*sizes)
        caches, contenders = {name: Cache(work, name) for name in ("bf16", "e4m3", "e5m2")}, {}
        judged_by = partial(judged, work)
        q = work.q.to(torch.float8_e4m3fn).contiguous()
        for name, library in libraries.items():
            if name == "e5m2" and work.dim != 128:
                continue
            cache = caches.get(name, caches["e4m3"])
            # With E4M3 queries, they and P are rounded to it; otherwise neither is.
            fields = {**cache.fields, **({"q": q, "kv_dtype": 0} if name == "fp8" else {})}
            make = partial(work.params, **fields)
            chosen = library.explain(make(cache.copies[-1], *work.output()))
            details = {"chosen": chosen[0][chosen[1]].variant.decode()} if chosen[1] is not None else {}
            contenders[name] = work.kgen(
                library, make, cache.copies, judge=judged_by(cache), allowed=0.1 if name == "fp8" else None,
                details=details, bytes=work.bytes / (1 if name == "bf16" else 2))
        if peers:
            given = dict(zip(("q_descale", "k_descale", "v_descale"), caches["e4m3"].descales))
            contenders["FA3 fp8"] = work.fa3(peers["fa3"], 32, caches["e4m3"].copies, q, **given)
            contenders["FA3 fp8"].judge, contenders["FA3 fp8"].allowed = judged_by(caches["e4m3"]), 0.1
            contenders["FA3 fp8"].bytes = work.bytes / 2
        bench.point(
            case, work.shape(), contenders, judge=None, allowed=0.02, dtype="bf16", layout="paged", moved=work.bytes,
            l2="cold", graph=True, base="e4m3", formula="K and V once: 2 Hk D elements a key")
        del work, caches, contenders, make, cache
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
