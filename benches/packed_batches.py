#!/usr/bin/env python3
"""Forward attention on packed batches: compares kgen libraries, PyTorch's own `varlen_attn`, and FlashAttention-3.

    python3 benches/packed_batches.py --library after=build/lib/libkgen.so \\
        --library before=/tmp/before/lib/libkgen.so \\
        --out packed.jsonl
    python3 benches/packed_batches.py --library build/lib/libkgen.so --batch 64x4-128
    python3 benches/packed_batches.py --library build/lib/libkgen.so --batch 12x1-6000 --ways --fa3 _vllm_fa3_C.abi3.so

Self-attention in bf16: `cu_seqlens_q` is `cu_seqlens_k`, lengths are uniform in the given range. Calls are graph
replays, L2 is warm. O is compared with float64 on three sequences. Needs a GPU that the library has kernels for,
PyTorch 2.10 or newer for the first peer, vLLM's library for the second. --ways times each path that the library has
kernels for, with and without a work counter; kgen's own choice is called with one.
"""

import random
import sys

import torch

from lab import Bench, Contender, attention, parser
from lab.kgen import FLAG_PATHS, packed_params
from lab.paged import counters
from lab.peers import Fa3, Varlen

# Sequences, shortest and longest, query heads, key heads, head dim, causal: from the external report of the crash.
BATCHES = [
    (64, 4, 128, 12, 12, 64, False), (256, 4, 128, 12, 12, 64, False), (64, 4, 200, 16, 16, 128, False),
    (64, 4, 200, 16, 16, 128, True),
    (64, 4, 200, 16, 16, 80, False), (32, 4, 400, 32, 8, 128, True), (40, 4, 300, 10, 2, 160, True),
    (128, 4, 60, 8, 8, 96, False),
    (48, 4, 250, 16, 4, 256, True),
    # Unequal and long: the block with the longest sequence last determines the time.
    *((12, 1, 6000, *heads, dim, causal) for dim in (64, 128) for heads in ((16, 16), (32, 8))
        for causal in (False, True)),
]


def name_of(batch):
    count, least, most, heads, heads_k, dim, causal = batch
    return f"{count}x{least}-{most} h{heads}/{heads_k} d{dim}{' causal' if causal else ''}"


class Batch:
    """Q, K and V, (rows, heads, head_dim), of sequences of random lengths."""

    def __init__(self, batch):
        count, least, most, heads, heads_k, dim, self.causal = batch
        draw = random.Random(count * 1000 + most)
        self.lengths = [draw.randint(least, most) for _ in range(count)]
        self.rows, self.longest = sum(self.lengths), max(self.lengths)
        self.qkv = [attention.normal(self.rows, h, dim) for h in (heads, heads_k, heads_k)]
        self.starts = torch.tensor([0, *self.lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32).cuda()
        self.shape = {
            "batch": count, "heads": heads, "heads_k": heads_k, "seqlen_q": self.longest, "seqlen_k": self.longest,
            "total_q": self.rows,
            "head_dim": dim, "causal": int(self.causal),
        }
        pairs = sum(n * (n + 1) // 2 if self.causal else n * n for n in self.lengths)
        self.flops = 4 * heads * dim * pairs

    def params(self, out, **fields):
        lengths = (self.lengths, self.lengths)
        return packed_params(*self.qkv, *out, self.causal, *lengths, self.starts, cu_seqlens_k=self.starts, **fields)

    def output(self):
        return torch.empty_like(self.qkv[0]), torch.empty(self.shape["heads"], self.rows, device="cuda")

    def kgen(self, library, **fields):
        out = self.output()
        return Contender(library.call("kgen_fwd", self.params(out, **fields)), out=list(out), own=True)

    def fa3(self, fa3):
        """FA3's call, with its scheduler's metadata created once."""
        common = {"cu_seqlens_q": self.starts, "cu_seqlens_k": self.starts, "max_seqlen_q": self.longest,
            "max_seqlen_k": self.longest}
        metadata = {"seqused_k": self.starts[1:] - self.starts[:-1]}
        return Contender(fa3.call(*self.qkv, metadata=metadata, num_splits=1, is_causal=self.causal, **common))

    def judge(self, out):
        """The largest error of three sequences."""
        o, ends, worst = out[0] if isinstance(out, list) else out, self.starts.tolist(), 0.0
        for index in (0, len(self.lengths) // 2, len(self.lengths) - 1):
            part = slice(ends[index], ends[index + 1])
            expected = attention.exact(*(x[part].transpose(0, 1) for x in self.qkv), causal=self.causal)[0]
            error = attention.largest_error(o[part].transpose(0, 1), expected)
            worst = max(worst, error) if error == error else error
        return worst


def main():
    arguments = parser(__doc__, rounds=15, peers=["fa3"])
    arguments.add_argument("--batch", dest="only", action="append", metavar="TEXT", help="as --only")
    arguments.add_argument("--ways", action="store_true", help="every path, with and without a work counter")
    bench = Bench(args := arguments.parse_args())
    peers = bench.peers({"fa3": (lambda: Fa3(args.fa3)) if args.fa3 else None, "varlen_attn": Varlen})
    counter = counters()[0]
    for description in bench.selected(BATCHES, name_of):
        batch, contenders = Batch(description), {}
        for label, library in bench.libraries.items():
            contenders[label] = batch.kgen(library, work_counter=counter)
            for way in library.ways(batch.params(batch.output())) if args.ways else ():
                contenders[f"{label} {way}"] = batch.kgen(library, flags=FLAG_PATHS[way])
                contenders[f"{label} {way} counter"] = batch.kgen(library, flags=FLAG_PATHS[way], work_counter=counter)
        if "fa3" in peers:
            contenders["FA3"] = batch.fa3(peers["fa3"])
        if "varlen_attn" in peers:
            contenders["varlen_attn"] = Contender(
                peers["varlen_attn"](*batch.qkv, batch.starts, batch.longest, batch.causal))
        bench.point(
            name_of(description), batch.shape, contenders, judge=batch.judge, allowed=0.02, dtype="bf16",
            layout="packed", graph=True, flops=batch.flops, formula="4 H D a visible pair of a query and a key")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
