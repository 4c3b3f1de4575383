"""Forward calls of random shapes, which nothing was tuned on, compared with FlashAttention-3, cuDNN and varlen_attn.

    python3 benches/random_shapes.py shapes --library build/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --seed 7

bf16, random normal inputs, L2 warm. Every call goes through the dispatcher.
"""

import math
import random
import statistics

from lab import Contender, attention, main, suite
from lab.kgen import FLAG_PATHS, PATHS, fwd_params, packed_params

try:
    import torch
except ImportError:
    torch = None

HEAD_DIMS = (64, 64, 80, 96, 128, 128, 128, 192, 256)
FLOPS = (5e9, 6e11)
MOST_BYTES = 4 << 30
EQUAL, UNEQUAL, PACKED = "equal", "unequal", "packed"


def between(draw, least, most):
    """A whole number, uniform in its logarithm."""
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))


def drawn(draw):
    """One shape: its kind, heads, head dim, mask, and the numbers of queries and of keys of each sequence."""
    while True:
        kind = draw.choices((EQUAL, UNEQUAL, PACKED), (5, 3, 3))[0]
        batch, group = between(draw, 1, 32), draw.choice((1, 1, 1, 2, 4, 8))
        heads_k, dim, causal = between(draw, 1, 128 // group), draw.choice(HEAD_DIMS), draw.random() < 0.5
        longest = between(draw, 90, 46000)
        keys = [longest] * batch
        queries = keys
        if kind == UNEQUAL:
            queries = [between(draw, 90, longest)] * batch
        if kind == PACKED:
            queries = keys = [draw.randint(1, longest) for _ in range(batch)]
        pairs = sum(visible_pairs(*lengths, causal) for lengths in zip(queries, keys))
        flops = 4 * heads_k * group * dim * pairs
        held = 4 * dim * heads_k * (sum(queries) * group + sum(keys))
        if FLOPS[0] <= flops <= FLOPS[1] and held <= MOST_BYTES:
            return {"kind": kind, "heads": heads_k * group, "heads_k": heads_k, "dim": dim, "causal": causal,
                "queries": queries, "keys": keys, "flops": flops}


def few(draw):
    """One shape of few queries and many keys, such as a chunk of a long prompt on one of several GPUs."""
    while True:
        group = draw.choice((1, 1, 2, 4, 8))
        batch, heads_k, dim = between(draw, 1, 16), between(draw, 1, max(1, 16 // group)), draw.choice(HEAD_DIMS)
        queries, keys = between(draw, 64, 1024), between(draw, 4096, 65536)
        causal = draw.random() < 0.5
        flops = 4 * heads_k * group * dim * batch * visible_pairs(queries, keys, causal)
        if FLOPS[0] <= flops <= FLOPS[1] and 4 * dim * heads_k * batch * (queries * group + keys) <= MOST_BYTES:
            return {"kind": UNEQUAL, "heads": heads_k * group, "heads_k": heads_k, "dim": dim, "causal": causal,
                "queries": [queries] * batch, "keys": [keys] * batch, "flops": flops}


def visible_pairs(queries, keys, causal):
    """Pairs of a query and a key that it sees; the last query sees the last key."""
    return queries * (2 * keys - queries + 1) // 2 if causal else queries * keys


def name_of(shape):
    lengths = f"s{max(shape['queries'])}" + (f"/{max(shape['keys'])}" if shape["kind"] == UNEQUAL else "")
    return (f"{shape['kind']} d{shape['dim']} {attention.mask(shape['causal'])} b{len(shape['queries'])} "
        f"h{shape['heads']}/{shape['heads_k']} {lengths}")


class Call:
    """A shape's tensors, packed as (rows, heads, head_dim), and the calls of each contender."""

    def __init__(self, shape):
        self.given, self.causal, self.packed = shape, shape["causal"], shape["kind"] == PACKED
        self.queries, self.keys = shape["queries"], shape["keys"]
        rows = ((sum(self.queries), shape["heads"]), *[(sum(self.keys), shape["heads_k"])] * 2)
        self.qkv = [attention.normal(*size, shape["dim"]) for size in rows]
        ends = lambda lengths: torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32).cuda()
        self.starts = [ends(self.queries), ends(self.keys)]
        self.shape = {"batch": len(self.queries), "heads": shape["heads"], "heads_k": shape["heads_k"],
            "seqlen_q": max(self.queries), "seqlen_k": max(self.keys), "total_q": sum(self.queries),
            "head_dim": shape["dim"], "causal": int(self.causal)}

    def dense(self):
        """The tensors as (batch, seqlen, heads, head_dim)."""
        return [x.unflatten(0, (len(self.queries), -1)) for x in self.qkv]

    def params(self, flags=0):
        """kgen's outputs and parameters."""
        (q, k, v), batch = self.qkv, len(self.queries)
        out = torch.empty_like(q)
        if self.packed:
            lse = torch.empty(q.shape[1], q.shape[0], device="cuda")
            return [out, lse], packed_params(q, k, v, out, lse, self.causal, self.queries, self.keys, self.starts[0],
                cu_seqlens_k=self.starts[1], flags=flags)
        lse = torch.empty(batch, q.shape[1], max(self.queries), device="cuda")
        return [out, lse], fwd_params(*self.dense(), out.unflatten(0, (batch, -1)), lse, self.causal, flags=flags)

    def kgen(self, library, flags=0):
        """A call of the path that the dispatcher chooses among those of `flags`."""
        out, p = self.params(flags)
        call = library.call("kgen_fwd", p)
        candidates, chosen = library.explain(p)  # with the workspace of the call
        way = candidates[chosen]
        details = {"path": PATHS[way.path], "splits": way.num_splits, "predicted_us": way.predicted_ns / 1e3,
            "kernel": way.variant.decode()}
        return Contender(call, out=out, own=True, details=details)

    def fa3(self, fa3, num_splits=1):
        """vLLM's FlashAttention-3, with one split unless `num_splits` asks for another number (0: its own heuristic);
        packed, with its scheduler's metadata created once."""
        if not self.packed:
            q, k, v = self.dense()
            lengths = torch.full((len(self.keys),), self.keys[0], device="cuda", dtype=torch.int32)
            call = fa3.call(q.flatten(0, 1), k, v, cu_seqlens_q=self.starts[0], seqused_k=lengths, is_causal=self.causal,
                max_seqlen_q=max(self.queries), max_seqlen_k=max(self.keys), num_splits=num_splits)
            return Contender(call)
        starts = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), self.starts))
        lengths = self.starts[1][1:] - self.starts[1][:-1]
        return Contender(fa3.call(*self.qkv, metadata={"seqused_k": lengths}, num_splits=num_splits,
            is_causal=self.causal, max_seqlen_q=max(self.queries), max_seqlen_k=max(self.keys), **starts))

    def fa3_splits(self, fa3):
        return self.fa3(fa3, num_splits=0)

    def suits(self, peer):
        """True if a peer can compute the call: varlen_attn has packed sequences only and the wheel none here; cuDNN has
        none in PyTorch, which aligns its causal mask with the first query. FlashAttention-3's own number of splits is
        another contender only where there are fewer queries than keys."""
        if peer == "fa3":
            return True
        if peer == "fa3 splits":
            return self.given["kind"] == UNEQUAL
        if peer == "cudnn" and self.causal and self.queries != self.keys:
            return False
        return (peer == "varlen_attn") == self.packed

    def fa3_wheel(self, fa3):
        return Contender(fa3(*self.dense(), causal=self.causal))

    def cudnn(self, sdpa):
        return Contender(sdpa(*self.dense(), causal=self.causal))

    def varlen(self, attend):
        return Contender(attend(*self.qkv, self.starts[0], max(self.keys), self.causal))

    def judge(self, out):
        """The largest error in the last 128 queries of the first, the middle and the last sequence; NaN if any element
        of O is NaN."""
        flat = out[0].reshape(self.qkv[0].shape) if isinstance(out, (list, tuple)) else out.reshape(self.qkv[0].shape)
        if flat.isnan().any():
            return float("nan")

        def errors():
            of_q, of_k = (x.tolist() for x in self.starts)
            for index in sorted({0, len(self.queries) // 2, len(self.queries) - 1}):
                rows = slice(max(of_q[index], of_q[index + 1] - 128), of_q[index + 1])
                q, (k, v) = self.qkv[0][rows], (x[of_k[index] : of_k[index + 1]] for x in self.qkv[1:])
                group = q.shape[1] // k.shape[1]
                # One key head: float64 scores of all heads do not fit.
                part = [x.transpose(0, 1) for x in (q[:, -group:], k[:, -1:], v[:, -1:])]
                found = flat[rows][:, -group:].transpose(0, 1)
                yield attention.largest_error(found, attention.exact(*part, causal=self.causal)[0])

        return attention.worst(errors())


@suite(rounds=9, round_ms=12, places=["fa3", "site"], ways=False, shapes={"type": int, "default": 110})
def shapes(bench):
    """`--shapes` random shapes of `--seed`: dense ones with as many keys as queries, with fewer queries, and packed ones
    whose lengths are uniform from 1; batch 1 to 32, 1 to 128 heads, groups of 1 to 8, lengths 90 to 46000, 5e9 to 6e11
    FLOP. Ends with the geometric mean of kgen's rate to the fastest peer's, and the lowest tenth.

    python3 benches/random_shapes.py shapes --seed 7 --fa3 _vllm_fa3_C.abi3.so --site .peers/site --out random.jsonl

    FlashAttention-3 is called with one split, as for prompts, and unequal lengths with its own number of splits too. O
    of up to three sequences is compared with float64. FLOPs count visible pairs. --ways also times each path that the
    library has for a call."""
    draw = random.Random(bench.args.seed)
    timed(bench, [drawn(draw) for _ in range(bench.args.shapes)])


@suite(rounds=9, round_ms=12, places=["fa3", "site"], ways=False, shapes={"type": int, "default": 40})
def few_queries(bench):
    """`--shapes` shapes of `--seed` with 64 to 1024 queries and 4096 to 65536 keys: batch 1 to 16, up to 16 heads, groups
    of 1 to 8. The rest is as in `shapes`.

    python3 benches/random_shapes.py few_queries --seed 1 --fa3 _vllm_fa3_C.abi3.so --out few.jsonl"""
    draw = random.Random(bench.args.seed)
    timed(bench, [few(draw) for _ in range(bench.args.shapes)])


def timed(bench, drawings):
    """Times every shape beside the peers that suit it, and reports the ratios."""
    calls = {"fa3": Call.fa3, "fa3 splits": Call.fa3_splits, "fa3 wheel": Call.fa3_wheel, "cudnn": Call.cudnn,
        "varlen_attn": Call.varlen}
    peers = bench.peers(*(name for name in calls if name != "fa3 splits" and (bench.args.site or name != "fa3 wheel")))
    if "fa3" in peers:
        peers["fa3 splits"] = peers["fa3"]
    ratios = {}
    for shape in bench.selected(drawings, name_of, quick=4):
        call, case = Call(shape), name_of(shape)
        contenders = {label: call.kgen(library) for label, library in bench.libraries.items()}
        for label, library in bench.libraries.items():
            for way in library.ways(call.params()[1]) if bench.args.ways else ():
                contenders[f"{label} {way}"] = call.kgen(library, FLAG_PATHS[way])
        fitting = [name for name in peers if call.suits(name)]
        for name in fitting:
            contenders |= bench.on(case, {name: peers[name]}, lambda peer, name=name: calls[name](call, peer))
        rows = bench.point(case, call.shape, contenders, judge=call.judge, flops=shape["flops"],
            layout="packed" if call.packed else "bshd", formula="4 H D a visible pair of a query and a key",
            details={"kind": shape["kind"]})
        others = [row["numbers"]["ratio"]["median"] for name, row in rows.items()
            if row["status"] == "ok" and not row["own"]]
        if others:
            ratios[case] = min(others)
    report(ratios)


def report(ratios):
    """Prints what the issue's figures are: ratios of times, the fastest peer's to kgen's."""
    if not ratios:
        return
    low = sorted(ratios.values())
    print(f"\n{len(low)} shapes: geometric mean {statistics.geometric_mean(low):.3f} x the fastest peer, lowest tenth "
        f"{low[len(low) // 10]:.3f}, below 0.97: {sum(ratio < 0.97 for ratio in low)}, lowest {low[0]:.3f}")
    for kind in (EQUAL, UNEQUAL, PACKED):
        of_kind = [ratio for case, ratio in ratios.items() if case.startswith(kind)]
        if of_kind:
            print(f"{kind}: {statistics.geometric_mean(of_kind):.3f} of {len(of_kind)}")
    for case, ratio in sorted(ratios.items(), key=lambda pair: pair[1])[:25]:
        print(f"{ratio:.3f} {case}")


if __name__ == "__main__":
    main(__doc__)
