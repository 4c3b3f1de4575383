#!/usr/bin/env python3
"""New K and V appended to a paged cache, with rotary embedding of K and Q, compared with torch.compile and a copy.

    kgen build --kind append_kv --dtype bf16 --target sm90 --build-dir build-append
    python3 benches/append_kv.py --library build-append/lib/libkgen.so --out append_kv.jsonl

Needs torch. 64 sequences, 32 heads of Q and 8 of K, head dim 128, bf16, pages of 16 rows in random order, K and V
views of one cache as in vLLM. Each result is compared with torch. Graphs of calls rotate through tensors that exceed
twice the L2 in total. `torch` is the same in torch, compiled (rotation and `index_put_`), `copy` a copy of the number
of bytes that kgen reads and writes: ratios are their times / kgen's, so the ratio of `copy` is the fraction of a
copy's rate that kgen reaches.
"""

import sys

import torch

from lab import Bench, Contender, attention, parser, timing
from lab.kgen import FLAG_CAUSAL, FLAG_ROTARY_INTERLEAVED, append_kv_params
from lab.peers import compiled

BATCH, HEADS, HEADS_K, DIM, PAGE = 64, 32, 8, 128, 16
# name, new rows per sequence, cached rows, FP8 cache or not, rotated columns, interleaved
CASES = [
    ("decode", 1, 1000, False, 128, False),
    ("decode, interleaved", 1, 1000, False, 128, True),
    ("decode, fp8 cache", 1, 1000, True, 128, False),
    ("decode, not rotated", 1, 1000, False, 0, False),
    ("prefill of 512", 512, 0, False, 128, False),
    ("prefill of 512, interleaved", 512, 0, False, 128, True),
    ("prefill of 512, half rotated", 512, 0, False, 64, False),
    ("prefill of 512, fp8 cache", 512, 0, True, 128, False),
    ("prefill of 512, not rotated", 512, 0, False, 0, False),
]


class Tensors:
    """Inputs and outputs of one call."""

    def __init__(self, new, cached, fp8, rotary_dim, interleaved):
        self.q, self.k, self.v = (attention.normal(BATCH, new, heads, DIM) for heads in (HEADS, HEADS_K, HEADS_K))
        self.q_out, each, self.fp8, self.interleaved = torch.empty_like(self.q), -(
            -(cached + new) // PAGE), fp8, interleaved
        kind = torch.float8_e4m3fn if fp8 else torch.bfloat16
        cache = torch.zeros(BATCH * each, PAGE, HEADS_K, 2 * DIM, device="cuda", dtype=torch.bfloat16).to(kind)
        raw = cache.view(torch.uint8) if fp8 else cache
        self.k_cache, self.v_cache = cache[..., :DIM], cache[..., DIM:]
        self.k_raw, self.v_raw = raw[..., :DIM], raw[..., DIM:]
        self.table = torch.randperm(BATCH * each, device="cuda").int().view(BATCH, each)
        self.lengths = torch.full((BATCH,), cached, device="cuda", dtype=torch.int32)
        self.cos, self.sin = attention.rotary_tables(cached + new, rotary_dim) if rotary_dim else (None, None)
        self.descale = torch.rand(BATCH, HEADS_K, device="cuda") + 0.5
        self.positions = cached + torch.arange(new, device="cuda")
        self.pages, self.rows = self.table[:, self.positions // PAGE].long(), (self.positions % PAGE).expand(BATCH, new)

    def bytes(self):
        """Bytes read and written, without tables."""
        turned = 4 * self.q.numel() if self.cos is not None else 0
        return turned + (self.k.numel() + self.v.numel()) * (2 + self.k_cache.element_size())

    def kgen(self, library):
        q = (self.q, self.q_out) if self.cos is not None else (None, None)
        flags = FLAG_CAUSAL | (FLAG_ROTARY_INTERLEAVED if self.interleaved else 0)
        given = {"flags": flags, "k_descale": self.descale, "v_descale": self.descale}
        caches = (self.k_cache, self.v_cache, self.lengths, self.table)
        return library.call("kgen_append_kv",
            append_kv_params(self.k, self.v, *caches, *q, self.cos, self.sin, **given))

    def for_torch(self):
        descale = self.descale if self.fp8 else None
        tensors = (self.q, self.k, self.v, self.q_out, self.k_raw, self.v_raw, self.pages, self.rows, self.cos,
            self.sin)
        return *tensors, self.positions, descale, self.interleaved

    def left(self):
        q_out = self.q_out if self.cos is not None else torch.zeros(1, device="cuda")
        return [x.float().clone() for x in (q_out, self.k_cache, self.v_cache)]

    def judge(self, _):
        """The largest error of the outputs against torch, relative to the element, or to 0.02 if that is larger."""
        found = self.left()
        self.k_raw.zero_(), self.v_raw.zero_()
        in_torch(*self.for_torch())
        return max(((a - b).abs() / b.abs().clamp(min=0.02)).max().item() for a, b in zip(found, self.left()))


def in_torch(q, k, v, q_out, k_cache, v_cache, pages, rows, cos, sin, positions, descale, interleaved):
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
    k_cache.index_put_((pages, rows), stored(k_new))
    v_cache.index_put_((pages, rows), stored(v_new))


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--kgen-only", action="store_true", help="time kgen and the copy alone, for tiles")
    arguments.add_argument("--check-only", action="store_true", help="compare results of small calls and time nothing")
    bench = Bench(args := arguments.parse_args())
    for name, new, cached, *rest in bench.selected(CASES):
        if args.check_only:
            new, cached = min(new, 40), min(cached, 40)
        sets = [Tensors(new, cached, *rest)]
        moved, judge = sets[0].bytes(), None
        sets += [Tensors(new, cached, *rest)
            for _ in range(timing.copies_for(moved, 2, most=400) if not args.check_only else 0)]
        last = sets[-1]
        contenders = {
            label: Contender([t.kgen(library) for t in sets], out=[], own=True, judge=last.judge,
                timed=not args.check_only)
            for label, library in bench.libraries.items()
        }
        if not args.check_only:
            buffers = [torch.empty(2, moved // 2, device="cuda", dtype=torch.uint8) for _ in sets]
            contenders["copy"] = Contender([lambda b=b: b[1].copy_(b[0]) for b in buffers], judge=lambda _: 0.0)
            if not args.kgen_only:
                turn = compiled(in_torch)
                calls = [lambda given=t.for_torch(): turn(*given) for t in sets]
                contenders["torch"] = Contender(calls, judge=last.judge)
        # One rounding difference, if fp32 results are near a tie.
        bench.point(
            name, {"batch": BATCH, "heads": HEADS, "heads_k": HEADS_K, "seqlen_new": new, "seqlen_k": cached + new,
                "head_dim": DIM},
            contenders, judge=judge, allowed=0.13 if last.fp8 else 0.01, dtype="bf16", layout="paged", moved=moved,
            l2="cold", graph=True, formula="K, V, rotated Q read and written, without tables")
        del sets, last, contenders
    return bench.finish(group="seqlen_new")


if __name__ == "__main__":
    sys.exit(main())
