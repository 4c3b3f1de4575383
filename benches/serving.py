"""The calls of an inference engine: decoding and prefill with caches of K and V, and packed batches, compared with
FlashAttention-2 and -3 and others on the same tensors.

    python3 benches/serving.py paged --library build/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out paged.jsonl

bf16, random normal inputs. Calls are graphs that rotate through copies of the cache which exceed the L2 in total, as
the layers of a model do; where a suite has no cache (`packed_batches`), L2 is warm. FA3 is the library in vLLM's wheel,
for a Hopper GPU. Caches of pages have vLLM's layout: (pages, 16, key heads, 2 head dim), K in the first half of a row
and V in the second, pages in random order; Q is a view of a fused QKV tensor. O is compared with float64 before and
after timing. GB/s count K and V once.
"""

import random
from functools import partial

from lab import Contender, attention, main, suite, timing, unjudged
from lab.kgen import FLAG_CAUSAL, FLAG_PATHS, FLAG_ROTARY_INTERLEAVED, append_kv_params, fwd_params, packed_params, put
from lab.paged import MERGING, Work, counters, even, spread
from lab.peers import Fa3, Fa3Wheel, compiled

try:
    import torch
except ImportError:
    torch = None


# batch, keys, query heads, key heads, head dim
DECODES = [
    (1, 32768, 32, 8, 128), (64, 4096, 32, 8, 128), (16, 8192, 64, 8, 128), (1, 131072, 32, 8, 128),
    (64, 4096, 32, 8, 64), (1, 32768, 32, 8, 64), (16, 8192, 16, 2, 256), (1, 32768, 16, 4, 256),
]
# One context of 64 Ki keys among many short ones: the use case of prepare_scheduler.
LENGTHS = [65536] + [512 + 96 * i for i in range(31)]
UNEQUAL = (len(LENGTHS), max(LENGTHS), 32, 8, 128, LENGTHS)


def decode_name(case):
    batch, keys, heads, heads_k, head_dim, *lengths = case
    return f"B{batch} {'unequal' if lengths else f'L{keys}'} {heads}/{heads_k} d{head_dim}"


class Decoding:
    """Copies of Q, K and V of one shape, (batch, 1 or keys, heads, head_dim), ten times the L2 in total."""

    def __init__(self, batch, keys, heads, heads_k, head_dim, lengths=None):
        self.lengths, self.is_unequal = lengths or [keys] * batch, bool(lengths)
        self.bytes = 4 * heads_k * head_dim * sum(self.lengths)
        draw = lambda rows, heads: attention.normal(batch, rows, heads, head_dim)
        copies = timing.copies_for(self.bytes, 10, most=10**6)
        self.copies = [(draw(1, heads), draw(keys, heads_k), draw(keys, heads_k)) for _ in range(copies)]
        self.used = torch.tensor(self.lengths, device="cuda", dtype=torch.int32)
        self.shape = {"batch": batch, "heads": heads, "heads_k": heads_k, "seqlen_q": 1, "seqlen_k": keys,
            "total_k": sum(self.lengths), "head_dim": head_dim, "copies": copies}

    def judge(self, out):
        """The larger of O's error and a hundred times LSE's error, over the first, a middle and the last sequence."""
        def errors():
            o, *lse = out
            for b in sorted({0, len(o) // 2, len(o) - 1}):
                q, k, v = (x[b].transpose(0, 1) for x in self.copies[-1])
                expected, of_lse, _ = attention.exact(q, k[:, : self.lengths[b]], v[:, : self.lengths[b]])
                yield attention.norm_error(o[b].transpose(0, 1), expected)
                yield from (100 * (x[b].double() - of_lse).abs().max().item() for x in lse)
        return attention.worst(errors())

    def kgen(self, library, num_splits=0, direct=False, prepared=False, **details):
        """kgen on every copy. `direct` launches the two kernels by name with `num_splits` for every sequence;
        `prepared` runs the scheduler once, outside the timed part."""
        name = attention.kernel_name("fwd_split", self.shape["head_dim"], "bf16", False, "sm80")
        calls, used = [], {"seqused_k": self.used} if self.is_unequal else {}
        for q, k, v in self.copies:
            out = [torch.empty_like(q), torch.empty(q.shape[0], q.shape[2], 1, device="cuda")]
            p = fwd_params(q, k, v, *out, False, num_splits=num_splits, **used)
            if prepared:
                counts = torch.zeros(len(q), device="cuda", dtype=torch.int32)
                library.launcher("flash_prepare_scheduler_sm80")(put(p, split_counts=counts))
            split = library.call(name if direct else "kgen_fwd", p)
            if p.workspace_bytes == 0 and num_splits > 1:
                raise SystemExit(f"the library does not split {self.shape} in {num_splits}")
            combine = partial(library.launcher("flash_fwd_combine_sm80"), p) if direct else None
            calls.append((lambda split=split, combine=combine: (split(), combine())) if direct else split)
        return Contender(calls, out=out, own=True, details=details)

    def peer(self, attend):
        return Contender([attend(*copy) for copy in self.copies])

    def time(self, bench, case, contenders):
        return bench.point(case, self.shape, contenders, judge=self.judge, allowed=1e-2, moved=self.bytes, l2="cold",
            graph=True, formula="K and V once: 4 Hk D bytes a key")


@suite(rounds=10, round_ms=20, places=["site", "fa3"], splits={"type": int, "nargs": "*", "default": []})
def decode(bench):
    """One query for each sequence over long contexts that are not in pages: split-KV, combine and scheduler.

    kgen build && python3 benches/serving.py decode --library build/lib/libkgen.so --out decode.jsonl

    A combine kernel's inputs are warm, as in real use; the time includes every launch of `kgen_fwd`. O and LSE are
    compared. --splits times forced numbers of splits too. Peers: FlashAttention-2 (PyTorch's flash backend), and FA3 if
    the wheel `fa3-fwd` is installed (`fa3`) or if --fa3 or the folder `PEERS` has vLLM's library (`fa3_vllm`).
    `python3 benches/tiles.py split` times tiles at these shapes."""
    args, library = bench.args, bench.library
    peers = bench.peers("fa2", fa3=lambda: Fa3Wheel(args.site), fa3_vllm=lambda: Fa3(args.fa3))
    for case in bench.selected([*DECODES, UNEQUAL], decode_name):
        problem = Decoding(*case)
        contenders = {label: problem.kgen(library) for label, library in bench.libraries.items()}
        if problem.is_unequal:
            contenders["scheduler once"] = problem.kgen(library, 64, prepared=True)
            contenders |= {f"no scheduler, {n} splits for all": problem.kgen(library, n, direct=True)
                for n in (1, 4, 8, 16, 33)}
        else:
            contenders |= {f"splits={n}": problem.kgen(library, n) for n in args.splits}
        if "fa3_vllm" in peers:
            contenders["fa3_vllm"] = problem.peer(partial(peers["fa3_vllm"], splits=0, used=problem.used))
        if not problem.is_unequal:
            contenders |= {name: problem.peer(attend) for name, attend in peers.items() if name != "fa3_vllm"}
        problem.time(bench, decode_name(case), contenders)


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


@suite(places=["fa3"], ways=False, splits=[])
def paged(bench):
    """Paged K and V in the engine's own layout.

    kgen build --target sm80,sm90 --kind fwd,fwd_split --dtype bf16 --head-dim 64,128 --causal --features paged \\
        --build-dir build-paged
    python3 benches/serving.py paged --library build-paged/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out paged.jsonl

    FA3 runs as vLLM runs it (`FA3 eager`: its own number of splits; `FA3 graph`: 32 splits with scheduler metadata made
    once). `kgen` is the dispatcher's choice, with a work counter and counters of row tiles; `kgen captured` an engine's
    captured decoding: the maximum keys of the model, 32 splits, counters, and counts computed by kgen_fwd_metadata
    beforehand; with --ways also by merging kernel. --ways times each path with and without the work counter too, and
    paths that split with partial results merged by fwd_combine (`launch`) and by the last block of each row tile (`last
    block`); --splits numbers of splits to force where there is one query each. Ways without a kernel in the library are
    skipped:

    kgen build --features packgqa,paged --target sm90 --dtype bf16 --head-dim 64,128 --causal --build-dir build-paged"""
    args, library, peers = bench.args, bench.library, bench.peers("fa3")
    bench.run["copy_gbs"] = timing.copy_gbs()
    counter, counted = counters()
    for name, sizes in bench.selected([*decode_cases(), *prefill_cases(), *engine_cases()]):
        work = Work(*sizes)
        decodes = max(work.queries) == 1
        contenders = {word: work.kgen(lib, fields={"work_counter": counter, **counted})
            for word, lib in bench.libraries.items()}
        for word, lib in bench.libraries.items() if decodes else ():
            captured = partial(work.kgen, lib, partial(work.captured, lib))
            contenders[f"{word} captured"] = captured(fields=counted)
            for merging, flags in MERGING.items() if args.ways else ():
                contenders[f"{word} captured, {merging}"] = captured(fields={**counted, "flags": flags})
        for path in library.ways(work.params(work.caches[0], *work.output())) if args.ways else ():
            flags = FLAG_CAUSAL | FLAG_PATHS[path]
            contenders[path] = work.kgen(library, fields={"flags": flags})
            contenders[f"{path} counter"] = work.kgen(library, fields={"flags": flags, "work_counter": counter})
            for merging, who in MERGING.items() if path in ("SPLIT", "SCHEDULED", "MIXED") else ():
                contenders[f"{path} {merging}"] = work.kgen(library, fields={**counted, "flags": flags | who})
        for splits in args.splits if decodes else ():
            for merging, who in MERGING.items():
                forced = {**counted, "num_splits": splits, "flags": FLAG_PATHS["SPLIT"] | who}
                contenders[f"{splits} splits {merging}"] = work.kgen(library, fields=forced)
        for label, splits in (("FA3 eager", 0), *([("FA3 graph", 32)] if decodes else [])) if peers else ():
            contenders[label] = work.fa3(peers["fa3"], splits)
        work.point(bench, name, contenders, flops=work.flops, rate="gbs" if decodes else "tflops",
            formula="K and V once, 4 Hk D bytes a key; 4 H D FLOPs a visible pair")
        assert not counted["arrivals"].any(), "counters are left"
        del work, contenders


K_DESCALE, V_DESCALE = 2.0**-6, 2.0**-5
FORMATS = {"e4m3": ("float8_e4m3fn", 2), "e5m2": ("float8_e5m2", 4)}


class Cache:
    """The copies of a work's cache in a format, the fields of a call on it, and the last copy's numbers in bf16."""

    def __init__(self, work, name):
        self.copies, self.exact, self.fields = work.caches, work.caches[-1], {}
        if name in FORMATS:
            factors = torch.tensor([K_DESCALE] * work.dim + [V_DESCALE] * work.dim, device="cuda", dtype=torch.bfloat16)
            dtype, code = getattr(torch, FORMATS[name][0]), FORMATS[name][1]
            self.copies = [(cache / factors).to(dtype) for cache in work.caches]
            self.exact = self.copies[-1].to(torch.bfloat16) * factors
            self.descales = [torch.full((1, 1), scale, device="cuda").expand(work.batch, work.heads_k)
                for scale in (1.0, K_DESCALE, V_DESCALE)]
            self.fields = {"kv_dtype": code, "k_descale": self.descales[1], "v_descale": self.descales[2]}


@suite(library="", places=["fa3"])
def kv_fp8(bench):
    """A paged FP8 cache compared with one in bf16, and with FA3 on FP8.

    F='--kind fwd,fwd_split --dtype bf16 --head-dim 64,128 --causal'
    kgen build $F --target sm80,sm90 --features paged --build-dir build-bf16
    kgen build $F --target sm80 --features paged,kv_e4m3 --build-dir build-e4m3
    kgen build $F --target sm80 --features paged,kv_e5m2 --build-dir build-e5m2
    kgen build --target sm90 --kind fwd --dtype fp8 --head-dim 64,128 --causal --features paged --build-dir build-fp8
    python3 benches/serving.py kv_fp8 --library bf16=build-bf16/lib/libkgen.so \\
        --library e4m3=build-e4m3/lib/libkgen.so --library e5m2=build-e5m2/lib/libkgen.so \\
        --library fp8=build-fp8/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out kv_fp8.jsonl

    A library's name selects the cache that it reads; `fp8` is for queries in E4M3 as well, any other name for a cache
    in E4M3, such as kernels to compare. All FP8 caches contain the bf16 cache's numbers, rounded; descales are powers
    of two by batch entry and key head, with strides of 0, as vLLM sends them. FA3 multiplies FP8 queries with an FP8
    cache, and has no form with bf16 queries; `fp8` is kgen's equivalent. Every O is compared with float64 on its own
    numbers. Ratios are to `e4m3`: the ratio of `bf16` is the factor in tokens per second that the FP8 cache gains, for
    which the target is 1.7 at B64 L4096."""
    if not {"bf16", "e4m3"} <= set(bench.libraries):
        return "kv_fp8: --library bf16=… and e4m3=… are needed"
    peers, bench.run["copy_gbs"] = bench.peers("fa3"), timing.copy_gbs()
    more = [("decode B64 L4096 4 queries", even(64, 4096, 32, 8, 128, queries=4)),
        ("decode B64 L4096 d64", even(64, 4096, 32, 8, 64))]
    for case, sizes in bench.selected([*decode_cases(), *more, *prefill_cases()]):
        work = Work(*sizes)
        caches, contenders = {name: Cache(work, name) for name in ("bf16", *FORMATS)}, {}
        # With E4M3 queries, they and P are rounded to it; otherwise neither is.
        q, of_fp8 = work.q.to(torch.float8_e4m3fn).contiguous(), {"allowed": 0.1, "bytes": work.bytes / 2}
        judge = lambda cache: lambda out: work.error(out[0], cache.exact)
        for name, library in bench.libraries.items():
            if name == "e5m2" and work.dim != 128:
                continue
            cache = caches.get(name, caches["e4m3"])
            fields = {**cache.fields, **({"q": q, "kv_dtype": 0} if name == "fp8" else {})}
            rows, chosen = library.explain(work.params(cache.copies[-1], *work.output(), **fields))
            contenders[name] = work.kgen(library, caches=cache.copies, fields=fields, **{
                "judge": judge(cache), "bytes": work.bytes / (1 if name == "bf16" else 2),
                "details": {"chosen": rows[chosen].variant.decode()} if chosen is not None else {},
                **(of_fp8 if name == "fp8" else {})})
        if peers:
            cache = caches["e4m3"]
            given = dict(zip(("q_descale", "k_descale", "v_descale"), cache.descales))
            contenders["FA3 fp8"] = fa3 = work.fa3(peers["fa3"], 32, cache.copies, q, **given)
            fa3.judge, fa3.allowed, fa3.bytes = judge(cache), *of_fp8.values()
        work.point(bench, case, contenders, base="e4m3")
        del work, caches, contenders, cache, judge


LATENT, TURNED = 512, 64
SCALE = (128 + 64) ** -0.5  # for the attention before absorption


def latent_cases():
    """Name, query lengths, key lengths, query heads."""
    for heads in (128, 16):
        for batch in (1, 16, 64, 128):
            for keys in (1024, 4096, 32768):
                yield f"B{batch} L{keys} h{heads}", [1] * batch, [keys] * batch, heads
    yield "B32 128..65536 h128", [1] * 32, spread(32, 128, 65536, 1), 128
    yield "B64 L4096 h128, 2 queries", [2] * 64, [4096] * 64, 128
    yield "B64 L4096 h16, 4 queries", [4] * 64, [4096] * 64, 16
    yield "prefill 4 x 2048 h16", [2048] * 4, [2048] * 4, 16


@suite("heads", places=["fa3"], splits=[])
def mla(bench):
    """DeepSeek's latent attention, compared with FA3 and FlashMLA.

    kgen build --target sm80,sm90 --dtype bf16 --head-dim 64_512 --causal --features paged,qv --build-dir build-mla
    python3 benches/serving.py mla --library build-mla/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --out mla.jsonl

    The cache is (pages, 64, 1, 576): the latent of 512 columns, which is V as well, then the 64 with rotary embedding;
    queries have the same layout. kgen is called as in engines, with head dims 576 and 512 and V inside K; FA3 with
    `q_v`; FlashMLA, if it can be imported, by its own function. --splits times forced numbers of splits as well, to
    which the constants of `KernelCost::latent` are fitted."""
    peers, bench.run["copy_gbs"] = bench.peers("fa3", "flash_mla"), timing.copy_gbs()
    for name, queries, keys, heads in bench.selected(latent_cases()):
        work = Work(queries, keys, heads, 1, LATENT + TURNED, page=64, latent=LATENT, scale=SCALE)
        contenders = {label: work.kgen(library) for label, library in bench.libraries.items()}
        for splits in bench.args.splits:
            contenders[f"kgen {splits}"] = work.kgen(bench.library, fields={"num_splits": splits})
        if "fa3" in peers:
            contenders["FA3"] = work.fa3(peers["fa3"], 0)
        if "flash_mla" in peers and len(set(queries)) == 1:
            module = peers["flash_mla"]
            q, counts = work.q.view(work.batch, queries[0], heads, work.dim), work.used
            metadata = module.get_mla_metadata(counts, queries[0] * heads, 1)
            given = work.table, counts, LATENT, *metadata, SCALE, True
            contenders["FlashMLA"] = Contender([
                lambda cache=cache: module.flash_mla_with_kvcache(q, cache, *given)[0].flatten(0, 1)
                for cache in work.caches])
        work.point(bench, name, contenders, flops=work.flops, rate="gbs",
            formula="the cache once, 1152 bytes a key; 2 (64 + 512 + 512) FLOPs a visible pair")
        del work, contenders


# Sequences, shortest and longest, query heads, key heads, head dim, causal: from the external report of the crash.
BATCHES = [
    (64, 4, 128, 12, 12, 64, False), (256, 4, 128, 12, 12, 64, False), (64, 4, 200, 16, 16, 128, False),
    (64, 4, 200, 16, 16, 128, True), (64, 4, 200, 16, 16, 80, False), (32, 4, 400, 32, 8, 128, True),
    (40, 4, 300, 10, 2, 160, True), (128, 4, 60, 8, 8, 96, False), (48, 4, 250, 16, 4, 256, True),
    # Unequal and long: the block with the longest sequence last determines the time.
    *((12, 1, 6000, *heads, dim, causal) for dim in (64, 128) for heads in ((16, 16), (32, 8))
        for causal in (False, True)),
    # Few and unlike tiles a block.
    (32, 1, 1194, 4, 1, 256, False), (32, 1, 782, 2, 2, 256, False), (32, 1, 420, 8, 8, 256, False),
    (4, 1, 2329, 8, 4, 256, False), (16, 1, 1564, 16, 16, 256, True), (16, 1, 3177, 8, 1, 64, True),
    (8, 1, 2269, 4, 2, 64, True), (4, 1, 5509, 4, 4, 128, False), (16, 1, 764, 8, 1, 128, False),
]


class Batch:
    """Q, K and V, (rows, heads, head_dim), of sequences of random lengths."""

    def __init__(self, count, least, most, heads, heads_k, dim, causal):
        draw, self.causal = random.Random(count * 1000 + most), causal
        self.lengths = [draw.randint(least, most) for _ in range(count)]
        self.rows, self.longest = sum(self.lengths), max(self.lengths)
        self.qkv = [attention.normal(self.rows, h, dim) for h in (heads, heads_k, heads_k)]
        self.starts = torch.tensor([0, *self.lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32).cuda()
        self.shape = {"batch": count, "heads": heads, "heads_k": heads_k, "seqlen_q": self.longest,
            "seqlen_k": self.longest, "total_q": self.rows, "head_dim": dim, "causal": int(causal)}
        self.flops = 4 * heads * dim * sum(n * (n + 1) // 2 if causal else n * n for n in self.lengths)

    def params(self, **fields):
        out = [torch.empty_like(self.qkv[0]), torch.empty(self.shape["heads"], self.rows, device="cuda")]
        return out, packed_params(*self.qkv, *out, self.causal, self.lengths, self.lengths, self.starts,
            cu_seqlens_k=self.starts, **fields)

    def kgen(self, library, **fields):
        out, p = self.params(**fields)
        return Contender(library.call("kgen_fwd", p), out=out, own=True)

    def fa3(self, fa3):
        """FA3's call, with its scheduler's metadata created once."""
        starts, longest = dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), self.starts), self.longest
        return Contender(fa3.call(*self.qkv, metadata={"seqused_k": self.starts[1:] - self.starts[:-1]}, num_splits=1,
            is_causal=self.causal, max_seqlen_q=longest, max_seqlen_k=longest, **starts))

    def judge(self, out):
        """The largest error of three sequences."""
        def errors():
            ends = self.starts.tolist()
            for index in (0, len(self.lengths) // 2, len(self.lengths) - 1):
                o, *qkv = (x[ends[index] : ends[index + 1]].transpose(0, 1) for x in (out[0], *self.qkv))
                yield attention.largest_error(o, attention.exact(*qkv, causal=self.causal)[0])
        return attention.worst(errors())


@suite(rounds=15, places=["fa3"], ways=False)
def packed_batches(bench):
    """Packed batches of unequal lengths, compared with PyTorch's own `varlen_attn` and FA3.

    python3 benches/serving.py packed_batches --library after=build/lib/libkgen.so --library before=/tmp/libkgen.so
    python3 benches/serving.py packed_batches --only 12x1-6000 --ways --fa3 _vllm_fa3_C.abi3.so

    Self-attention: `cu_seqlens_q` is `cu_seqlens_k`, lengths are uniform in the given range. O is compared on three
    sequences. `varlen_attn` needs PyTorch 2.10 or newer. --ways times each path that the library has kernels for, with
    and without a work counter; kgen's own choice is called with one."""
    peers = bench.peers("fa3", "varlen_attn")
    counter = counters()[0]
    name_of = lambda case: "{}x{}-{} h{}/{} d{}{}".format(*case[:6], " causal" if case[6] else "")
    for case in bench.selected(BATCHES, name_of):
        batch, contenders = Batch(*case), {}
        for label, library in bench.libraries.items():
            contenders[label] = batch.kgen(library, work_counter=counter)
            for way in library.ways(batch.params()[1]) if bench.args.ways else ():
                flags = FLAG_PATHS[way]
                contenders[f"{label} {way}"] = batch.kgen(library, flags=flags)
                contenders[f"{label} {way} counter"] = batch.kgen(library, flags=flags, work_counter=counter)
        if "fa3" in peers:
            contenders["FA3"] = batch.fa3(peers["fa3"])
        if "varlen_attn" in peers:
            call = peers["varlen_attn"](*batch.qkv, batch.starts, batch.longest, batch.causal)
            contenders["varlen_attn"] = Contender(call)
        bench.point(name_of(case), batch.shape, contenders, judge=batch.judge, layout="packed", graph=True,
            flops=batch.flops, formula="4 H D a visible pair of a query and a key")


class Append:
    """Inputs and outputs of a call of kgen_append_kv: 64 sequences, 32 heads of Q and 8 of K, head dim 128."""

    shape = {"batch": 64, "heads": 32, "heads_k": 8, "head_dim": 128}

    def __init__(self, new, cached, fp8, rotary_dim, interleaved, page=16):
        batch, heads, heads_k, dim = self.shape.values()
        self.q, self.k, self.v = (attention.normal(batch, new, count, dim) for count in (heads, heads_k, heads_k))
        self.q_out, self.fp8, self.interleaved = torch.empty_like(self.q), fp8, interleaved
        each = -(-(cached + new) // page)
        kind = torch.float8_e4m3fn if fp8 else torch.bfloat16
        cache = torch.zeros(batch * each, page, heads_k, 2 * dim, device="cuda", dtype=torch.bfloat16).to(kind)
        self.caches = cache.split(dim, -1)
        self.raw = (cache.view(torch.uint8) if fp8 else cache).split(dim, -1)
        self.table = torch.randperm(batch * each, device="cuda").int().view(batch, each)
        self.lengths = torch.full((batch,), cached, device="cuda", dtype=torch.int32)
        self.tables = attention.rotary_tables(cached + new, rotary_dim) if rotary_dim else (None, None)
        self.descale = torch.rand(batch, heads_k, device="cuda") + 0.5
        self.positions = cached + torch.arange(new, device="cuda")
        self.places = self.table[:, self.positions // page].long(), (self.positions % page).expand(batch, new)
        # Bytes read and written, without tables.
        self.bytes = (4 * self.q.numel() if rotary_dim else 0) + 2 * self.k.numel() * (2 + cache.element_size())

    def kgen(self, library):
        q = (self.q, self.q_out) if self.tables[0] is not None else (None, None)
        flags = FLAG_CAUSAL | (FLAG_ROTARY_INTERLEAVED if self.interleaved else 0)
        p = append_kv_params(self.k, self.v, *self.caches, self.lengths, self.table, *q, *self.tables, flags=flags,
            k_descale=self.descale, v_descale=self.descale)
        return library.call("kgen_append_kv", p)

    def for_torch(self):
        descale = self.descale if self.fp8 else None
        return (self.q, self.k, self.v, self.q_out, *self.raw, self.places, *self.tables, self.positions, descale,
            self.interleaved)

    def left(self):
        q_out = self.q_out if self.tables[0] is not None else torch.zeros(1, device="cuda")
        return [x.float().clone() for x in (q_out, *self.caches)]

    def judge(self, _):
        """The largest error of the outputs against torch, relative to the element, or to 0.02 if that is larger."""
        found = self.left()
        self.raw[0].zero_(), self.raw[1].zero_()
        append_in_torch(*self.for_torch())
        return max(((a - b).abs() / b.abs().clamp(min=0.02)).max().item() for a, b in zip(found, self.left()))


def append_in_torch(q, k, v, q_out, k_cache, v_cache, places, cos, sin, positions, descale, interleaved):
    """The same operation in torch. FP8 caches are passed as bytes, with a descale."""
    k_new, v_new = k.float(), v.float()
    if cos is not None:
        cos, sin = cos[positions], sin[positions]
        q_out.copy_(attention.rotated(q, cos, sin, interleaved))
        k_new = attention.rotated(k, cos, sin, interleaved)
    if descale is not None:
        limited = lambda x: (x / descale[:, None, :, None]).clamp(-448, 448)
        stored = lambda x: limited(x).to(torch.float8_e4m3fn).view(torch.uint8)
    else:
        stored = lambda x: x.to(k_cache.dtype)
    k_cache.index_put_(places, stored(k_new))
    v_cache.index_put_(places, stored(v_new))


# Name, new rows per sequence, cached rows, FP8 cache or not, rotated columns, interleaved.
APPENDS = [
    ("decode", 1, 1000, False, 128, False), ("decode, interleaved", 1, 1000, False, 128, True),
    ("decode, fp8 cache", 1, 1000, True, 128, False), ("decode, not rotated", 1, 1000, False, 0, False),
    ("prefill of 512", 512, 0, False, 128, False), ("prefill of 512, interleaved", 512, 0, False, 128, True),
    ("prefill of 512, half rotated", 512, 0, False, 64, False), ("prefill of 512, fp8 cache", 512, 0, True, 128, False),
    ("prefill of 512, not rotated", 512, 0, False, 0, False),
]


@suite("seqlen_new", kgen_only=False, check_only=False)
def append_kv(bench):
    """New K and V appended to a paged cache, with rotary embedding of K and Q, compared with torch.compile and a copy.

    kgen build --kind append_kv --dtype bf16 --target sm90 --build-dir build-append
    python3 benches/serving.py append_kv --library build-append/lib/libkgen.so --out append_kv.jsonl

    Each result is compared with torch. The tensors exceed twice the L2 in total. `torch` is the same in torch, compiled
    (rotation and `index_put_`), `copy` a copy of the number of bytes that kgen reads and writes: the ratio of `copy` is
    the fraction of a copy's rate that kgen reaches. --kgen-only times only kgen and the copy, for tiles; --check-only
    compares results of small calls and times nothing."""
    args, timed = bench.args, not bench.args.check_only
    for name, new, cached, *rest in bench.selected(APPENDS):
        new, cached = (new, cached) if timed else (min(new, 40), min(cached, 40))
        sets = [Append(new, cached, *rest)]
        moved = sets[0].bytes
        sets += [Append(new, cached, *rest) for _ in range(timing.copies_for(moved, 2, most=400) if timed else 0)]
        judge = sets[-1].judge
        contenders = {label: Contender([t.kgen(library) for t in sets], out=[], own=True, timed=timed)
            for label, library in bench.libraries.items()}
        if timed:
            buffers = [torch.empty(2, moved // 2, device="cuda", dtype=torch.uint8) for _ in sets]
            contenders["copy"] = Contender([lambda b=b: b[1].copy_(b[0]) for b in buffers], judge=unjudged)
        if timed and not args.kgen_only:
            turn = compiled(append_in_torch)
            contenders["torch"] = Contender([lambda given=t.for_torch(): turn(*given) for t in sets])
        # One rounding difference, if fp32 results are near a tie.
        bench.point(name, {**Append.shape, "seqlen_new": new, "seqlen_k": cached + new}, contenders, judge=judge,
            allowed=0.13 if rest[0] else 0.01, layout="paged", moved=moved, l2="cold", graph=True,
            formula="K, V, rotated Q read and written, without tables")
        del sets, contenders, judge


# Sequences, keys including the new ones, queries of each, head dim, type of the cache.
STEPS = [
    (1, 512, 1, 128, "bf16"), (1, 32768, 1, 128, "bf16"), (8, 1024, 1, 128, "bf16"), (64, 145, 1, 64, "bf16"),
    (64, 145, 1, 128, "bf16"), (64, 1024, 1, 128, "bf16"), (64, 1024, 4, 128, "bf16"), (64, 4110, 1, 64, "bf16"),
    (64, 4110, 1, 128, "bf16"), (64, 1024, 1, 128, "e4m3"),
]


class Steps:
    """The calls of a step on each copy of the cache, and their results."""

    def __init__(self, library, work, cached, counted):
        self.work, queries, keys, dim = work, work.queries[0], work.keys[0], work.dim
        self.caches = work.caches if cached == "bf16" else [x.to(torch.float8_e4m3fn) for x in work.caches]
        q, k, v = (attention.normal(work.batch, queries, heads, dim)
            for heads in (work.heads, work.heads_k, work.heads_k))
        cos, sin = attention.rotary_tables(keys, dim)
        before = torch.full((work.batch,), keys - queries, dtype=torch.int32, device="cuda")
        self.o, self.calls = torch.empty_like(q), {way: [] for way in ("two", "kvcache", "one", "attention")}
        lse = torch.empty(work.batch, work.heads, queries, device="cuda")
        self.pages = work.table[:, (keys - queries) // work.page : (keys - 1) // work.page + 1].long()
        given = {"cu_seqlens_q": None, "total_q": 0, **counted, **({} if cached == "bf16" else {"kv_dtype": 2})}
        new = {"k_new": k, "v_new": v, "seqlen_new": queries, "rotary_cos": cos, "rotary_sin": sin,
            "rotary_row_stride": cos.stride(0), "rotary_dim": dim, "rotary_rows": keys}
        for cache in self.caches:
            turned, after = torch.empty_like(q), torch.empty_like(before)
            append = append_kv_params(k, v, *work.key_value(cache), before, work.table, q, turned, cos, sin,
                flags=FLAG_CAUSAL, seqlens_after=after)
            attend = work.params(cache, self.o, lse, turned, **{**given, "seqused_k": after})
            one = work.params(cache, self.o, lse, q, **{**given, "seqused_k": before, **new})
            write, alone = library.call("kgen_append_kv", append), library.call("kgen_fwd", attend)
            calls = {"attention": alone, "two": lambda write=write, alone=alone: (write(), alone()),
                "kvcache": partial(library.launcher("kgen_fwd_kvcache"), append, attend),
                "one": library.call("kgen_fwd", one)}
            for way, call in calls.items():
                self.calls[way].append(call)

    def left_by(self, way):
        """O and the bytes of the pages with new rows after a call."""
        self.caches[-1].view(torch.uint8)[self.pages] = 0
        self.o.fill_(float("nan"))
        self.calls[way][-1]()
        return self.o.clone(), self.caches[-1][self.pages].view(torch.uint8).clone()

    def judge(self, way):
        (expected, rows), (o, written) = self.left_by("two"), self.left_by(way)
        far = (o.float() - expected.float()).abs().max().item()
        return far if torch.equal(rows, written) else float("inf")


@suite()
def fwd_kvcache(bench):
    """A decoding step with new rows of K and V: one launch compared with two.

    kgen build --filter "kind in (fwd_combine, prepare_scheduler) or kind == append_kv and dtype == bf16 \\
        or kind == fwd_split and dtype == bf16 and causal and paged and hdim in (64, 128) and not page_descale \\
        and not kv_e5m2" --build-dir build-append
    python3 benches/serving.py fwd_kvcache --library build-append/lib/libkgen.so --out fwd_kvcache.jsonl

    K and Q are rotated. Each sequence has 1 or 4 queries and as many new rows. `two` is `kgen_append_kv` and
    `kgen_fwd`; `kvcache` is `kgen_fwd_kvcache`, which chooses; `one` is `kgen_fwd` with `k_new`, which always uses one
    launch; `attention` is `kgen_fwd` alone, on a cache that contains the rows. O and the rows in the cache of `kvcache`
    and `one` are compared with the results of `two`: rows bit for bit. Ratios are to `kvcache`."""
    counted, bench.run["copy_gbs"] = counters()[1], timing.copy_gbs()
    name_of = lambda case: "".join([f"B{case[0]} L{case[1]} d{case[3]}", f", {case[2]} queries" if case[2] > 1 else "",
        f", {case[4]}" if case[4] != "bf16" else ""])
    for case in bench.selected(STEPS, name_of):
        batch, keys, queries, dim, cached = case
        work = Work(*even(batch, keys, 32, 8, dim, queries))
        steps = Steps(bench.library, work, cached, counted)
        contenders = {way: Contender(calls, out=[], own=True,
            judge=unjudged if way == "attention" else lambda _, way=way: steps.judge(way))
            for way, calls in steps.calls.items()}
        bench.point(name_of(case), work.shape(seqlen_new=queries), contenders, layout="paged", l2="cold", graph=True,
            moved=work.bytes / (1 if cached == "bf16" else 2), base="kvcache",
            formula="K and V once: 2 Hk D elements a key", details={"cache": cached})
        del work, steps, contenders


if __name__ == "__main__":
    main(__doc__)
