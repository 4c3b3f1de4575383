"""Decoding with long contexts: `kgen_fwd` (split-KV, combine, scheduler) compared with FlashAttention-2 and -3.

    kgen build && python3 benches/decode.py --library build/lib/libkgen.so --out decode.jsonl
    python3 benches/decode.py --sweep --kgen target/release/kgen     # tiles of fwd_split, as in benches/tiles.py

bf16, random normal inputs, one query per sequence. Calls rotate through copies of K and V that total ten times the
L2, as graph replays, so L2 is cold for K and V (a combine kernel's inputs are warm, as in real use). GB/s count K and
V once; the time includes every launch of `kgen_fwd`. O and LSE are compared with float64 before and after timing.
Peers: FA2 (PyTorch's flash backend), and FA3 if the wheel `fa3-fwd` is installed (`fa3`) or if --fa3 or the folder
`PEERS` names `_vllm_fa3_C.abi3.so` (`fa3_vllm`).
"""

import os
import sys
from functools import partial

from lab import Bench, Contender, attention, parser, timing
from lab.kgen import fwd_params, put
from lab.peers import Fa3, Fa3Wheel, Sdpa

try:
    import torch
except ImportError:
    sys.exit("decode.py: PyTorch is not installed")

# batch, keys, query heads, key heads, head dim
SHAPES = [
    (1, 32768, 32, 8, 128), (64, 4096, 32, 8, 128), (16, 8192, 64, 8, 128), (1, 131072, 32, 8, 128),
    (64, 4096, 32, 8, 64), (1, 32768, 32, 8, 64), (16, 8192, 16, 2, 256), (1, 32768, 16, 4, 256),
]
# One context of 64 Ki keys among many short ones: the use case of prepare_scheduler.
LENGTHS = [65536] + [512 + 96 * i for i in range(31)]
UNEQUAL = (len(LENGTHS), max(LENGTHS), 32, 8, 128, LENGTHS)


def text_of(shape):
    batch, keys, heads, heads_k, head_dim, *lengths = shape
    return f"B{batch} {'unequal' if lengths else f'L{keys}'} {heads}/{heads_k} d{head_dim}"


class Problem:
    """Copies of Q, K and V of one shape, (batch, 1 or keys, heads, head_dim)."""

    def __init__(self, batch, keys, heads, heads_k, head_dim, lengths=None):
        self.text = text_of((batch, keys, heads, heads_k, head_dim, *([lengths] if lengths else [])))
        self.lengths = lengths or [keys] * batch
        self.bytes = 4 * heads_k * head_dim * sum(self.lengths)
        draw = lambda rows, heads: attention.normal(batch, rows, heads, head_dim)
        copies = timing.copies_for(self.bytes, 10, most=10**6)
        self.copies = [(draw(1, heads), draw(keys, heads_k), draw(keys, heads_k)) for _ in range(copies)]
        self.used = torch.tensor(self.lengths, device="cuda", dtype=torch.int32)
        self.is_unequal = bool(lengths)
        self.shape = {
            "batch": batch, "heads": heads, "heads_k": heads_k, "seqlen_q": 1, "seqlen_k": keys,
            "total_k": sum(self.lengths),
            "head_dim": head_dim, "copies": copies,
        }

    def judge(self, out):
        """The larger of O's error and a hundred times LSE's error, over the first, a middle and the last sequence."""
        o, lse = out if isinstance(out, list) else (out, None)
        q, k, v = self.copies[-1]
        worst = 0.0
        for b in sorted({0, len(q) // 2, len(q) - 1}):
            keys = self.lengths[b]
            expected, of_lse, _ = attention.exact(q[b].transpose(0, 1), *(x[b, :keys].transpose(0, 1) for x in (k, v)))
            errors = [attention.norm_error(o[b].transpose(0, 1), expected)]
            errors += [] if lse is None else [100 * (lse[b].double() - of_lse).abs().max().item()]
            worst = max(worst, *errors) if all(error == error for error in errors) else float("nan")
        return worst

    def kgen(self, library, num_splits=0, direct=False, prepared=False, **details):
        """kgen on every copy. `direct` launches the two kernels by name with `num_splits` for every sequence;
        `prepared` runs the scheduler once, outside the timed part."""
        variant = attention.kernel_name("fwd_split", self.shape["head_dim"], "bf16", False, "sm80")
        calls = []
        for q, k, v in self.copies:
            out = [torch.full_like(q, float("nan")),
                torch.full((q.shape[0], q.shape[2], 1), float("nan"), device="cuda")]
            p = fwd_params(q, k, v, *out, False, num_splits=num_splits,
                **({"seqused_k": self.used} if self.is_unequal else {}))
            if prepared:
                counts = torch.zeros(len(q), device="cuda", dtype=torch.int32)
                library.launcher("flash_prepare_scheduler_sm80")(put(p, split_counts=counts))
            split = library.call(variant if direct else "kgen_fwd", p)
            if p.workspace_bytes == 0 and num_splits > 1:
                raise SystemExit(f"{self.text}: the library does not split this in {num_splits}")
            combine = partial(library.launcher("flash_fwd_combine_sm80"), p) if direct else None
            calls.append((lambda split=split, combine=combine: (split(), combine())) if direct else split)
        return Contender(calls, out=out, own=True, details=details)

    def peer(self, attend):
        return Contender([attend(*copy) for copy in self.copies])

    def time(self, bench, contenders):
        return bench.point(
            self.text, self.shape, contenders, judge=self.judge, allowed=1e-2, dtype="bf16", moved=self.bytes,
            l2="cold", graph=True, formula="K and V once: 4 Hk D bytes a key")


def main():
    if "--sweep" in sys.argv:
        import tiles

        return tiles.main("split")
    arguments = parser(__doc__, rounds=10, round_ms=20, peers=["site", "fa3"])
    arguments.add_argument("--splits", type=int, nargs="*", default=[],
        help="also these split counts in place of the library's choice")
    arguments.set_defaults(fa3=os.path.join(os.environ.get("PEERS", ""), "_vllm_fa3_C.abi3.so"))
    bench = Bench(args := arguments.parse_args())
    makers = {"fa2": lambda: Sdpa("fa2"), "fa3": lambda: Fa3Wheel(args.site), "fa3_vllm": lambda: Fa3(args.fa3)}
    peers = bench.peers(makers)
    for shape in bench.selected([*SHAPES, UNEQUAL], text_of):
        problem = Problem(*shape)
        contenders = {label: problem.kgen(library) for label, library in bench.libraries.items()}
        if problem.is_unequal:
            contenders["scheduler once"] = problem.kgen(bench.library, 64, prepared=True)
            contenders |= {f"no scheduler, {n} splits for all": problem.kgen(bench.library, n, direct=True)
                for n in (1, 4, 8, 16, 33)}
        else:
            contenders |= {f"splits={n}": problem.kgen(bench.library, n) for n in args.splits}
        if "fa3_vllm" in peers:
            attend = partial(peers["fa3_vllm"], splits=0, used=problem.used)
            contenders["fa3_vllm"] = problem.peer(attend)
        if not problem.is_unequal:
            contenders |= {name: problem.peer(attend) for name, attend in peers.items() if name != "fa3_vllm"}
        problem.time(bench, contenders)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
