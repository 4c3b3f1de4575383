"""Sequences whose K and V are in pages in random order, as in an engine: tensors, reference and calls."""

import math
import random

from . import timing
from .attention import exact, largest_error, worst
from .bench import Contender
from .kgen import FLAG_CAUSAL, FLAG_MERGE_BY_LAST_BLOCK, FLAG_MERGE_BY_LAUNCH, packed_params

try:
    import torch
except ImportError:
    torch = None

MODEL_KEYS = 8192  # the most that a model supports, for captured calls
ARRIVALS = 1 << 16
MOST_BYTES = 24 << 30
MERGING = {"launch": FLAG_CAUSAL | FLAG_MERGE_BY_LAUNCH, "last block": FLAG_CAUSAL | FLAG_MERGE_BY_LAST_BLOCK}


def spread(count, low, high, seed):
    """`count` random lengths, log-uniform between `low` and `high`."""
    draw = random.Random(seed)
    return [round(low * (high / low) ** draw.random()) for _ in range(count)]


def even(batch, keys, heads, heads_k, dim, queries=1):
    """Queries, keys, query heads, key heads and head dim of equal sequences."""
    return [queries] * batch, [keys] * batch, heads, heads_k, dim


def counters():
    """A work counter, and the fields with which a call may count arrivals, all zero."""
    zeros = lambda count: torch.zeros(count, dtype=torch.int32, device="cuda")
    return zeros(2), {"arrivals": zeros(ARRIVALS), "arrivals_count": ARRIVALS}


class Work:
    """The tensors of one case, in bf16. A cache is (pages, page, key heads, 2 head_dim), K in the first half of a row;
    with `latent`, V's head dim, it is (pages, page, 1, head_dim), and V is the beginning of a row. Its copies total 6
    times the L2. Q is a packed view of a fused QKV tensor."""

    def __init__(self, queries, keys, heads, heads_k, dim, page=16, latent=None, scale=None):
        self.queries, self.keys, self.heads, self.heads_k, self.dim = queries, keys, heads, heads_k, dim
        self.batch, self.page, self.latent, self.dim_v = len(queries), page, latent, latent or dim
        self.scale = scale or dim**-0.5
        pages = [-(-count // page) for count in keys]
        shape = (sum(pages), page, heads_k, dim if latent else 2 * dim)
        of_each = 2 * math.prod(shape)
        copies = max(1, min(timing.copies_for(of_each, 6), MOST_BYTES // of_each))
        self.caches = [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        order = torch.randperm(sum(pages), dtype=torch.int32)
        self.table = torch.zeros(self.batch, max(pages) + 7, dtype=torch.int32)
        for row, (count, part) in enumerate(zip(pages, order.split(pages))):
            self.table[row, :count] = part
        self.table = self.table.cuda()
        fused = heads if latent else heads + 2 * heads_k
        self.q = torch.randn(sum(queries), fused, dim, device="cuda", dtype=torch.bfloat16)[:, :heads]
        ends = torch.tensor([0, *queries], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        self.ends, self.starts = ends.tolist(), ends.cuda()
        self.used = torch.tensor(keys, dtype=torch.int32, device="cuda")
        self.bytes = 2 * sum(keys) * heads_k * shape[3]
        self.flops = sum(2 * (dim + self.dim_v) * heads * (q * k - q * (q - 1) / 2) for q, k in zip(queries, keys))

    def shape(self, **more):
        """Sizes named as in `kgen bench`; unequal lengths by their maximum and total."""
        sizes = {"batch": self.batch, "heads": self.heads, "heads_k": self.heads_k, "seqlen_q": max(self.queries),
            "seqlen_k": max(self.keys)}
        sizes |= {"total_q": sum(self.queries), "total_k": sum(self.keys), "head_dim": self.dim,
            "head_dim_v": self.dim_v}
        return {**sizes, "page_size": self.page, "copies": len(self.caches), **more}

    def key_value(self, cache):
        return (cache, cache[..., : self.latent]) if self.latent else (cache[..., : self.dim], cache[..., self.dim :])

    def output(self):
        """O (rows, heads, head_dim_v) and LSE (heads, rows), NaN."""
        shapes = ((len(self.q), self.heads, self.dim_v), torch.bfloat16), ((self.heads, len(self.q)), torch.float32)
        return [torch.full(shape, float("nan"), device="cuda", dtype=dtype) for shape, dtype in shapes]

    def error(self, o, cache):
        """The largest error of the last 64 rows of the first, the middle and the last sequence, against float64."""
        def errors():
            for sequence in sorted({0, self.batch // 2, self.batch - 1}):
                count, end, rows = self.keys[sequence], self.ends[sequence + 1], min(64, self.queries[sequence])
                pages = self.table[sequence, : -(-count // self.page)].long()
                k, v = (x[pages].flatten(0, 1)[:count].transpose(0, 1) for x in self.key_value(cache))
                q = self.q[end - rows : end].transpose(0, 1)
                expected = exact(q, k, v, causal=True, scale=self.scale)[0].transpose(0, 1)
                yield largest_error(o[end - rows : end], expected)
        return worst(errors())

    def point(self, bench, case, contenders, **given):
        """Times one point of this work, with K and V cold in the L2 and calls in CUDA graphs."""
        return bench.point(case, self.shape(), contenders, **{
            "judge": lambda out: self.error(out[0], self.caches[-1]), "layout": "paged", "moved": self.bytes,
            "l2": "cold", "graph": True, "formula": "K and V once: 2 Hk D elements a key", **given})

    def params(self, cache, o, lse, q=None, **fields):
        given = {"seqused_k": self.used, "page_table": self.table, "scale": self.scale, **fields}
        q = self.q if q is None else q
        return packed_params(q, *self.key_value(cache), o, lse, True, self.queries, self.keys, self.starts, **given)

    def captured(self, library, cache, o, lse, **fields):
        """Parameters as captured by an engine: bounds instead of lengths, and counts from `kgen_fwd_metadata`."""
        counts = torch.zeros(self.batch, dtype=torch.int32, device="cuda")
        bounds = {"seqlen_k": max(MODEL_KEYS, *self.keys), "total_k": 0, "num_splits": 32, "split_counts": counts}
        p = self.params(cache, o, lse, **{**bounds, **fields})
        library.launcher("kgen_fwd_metadata")(p)
        return p

    def kgen(self, library, make=None, caches=None, fields={}, **given):
        """A contender: `kgen_fwd` of a library on each copy of the cache; `make` (default `params`) creates its
        parameters, with these fields."""
        (o, lse), make = self.output(), make or self.params
        calls = [library.call("kgen_fwd", make(cache, o, lse, **fields)) for cache in caches or self.caches]
        return Contender(calls, out=[o, lse], own=True, **given)

    def fa3(self, fa3, splits, caches=None, q=None, **given):
        """A contender: FlashAttention-3 on the same tensors, with its scheduler's metadata created once."""
        o, q = self.output()[0], self.q if q is None else q
        common = {"cu_seqlens_q": self.starts, "seqused_k": self.used, "page_table": self.table, "num_splits": splits,
            "is_causal": True, "max_seqlen_q": max(self.queries), "max_seqlen_k": max(self.keys), "out": o,
            "softmax_scale": self.scale}
        split = self.key_value
        if self.latent:  # FA3's Q and K are the rotated columns, its q_v and V the latent ones
            common["q_v"], q = q[..., : self.latent], q[..., self.latent :]
            split = lambda cache: (cache[..., self.latent :], cache[..., : self.latent])
        calls = [fa3.call(q, *split(cache), metadata={"page_size": self.page}, **common, **given)
            for cache in caches or self.caches]
        return Contender(calls, out=[o])
