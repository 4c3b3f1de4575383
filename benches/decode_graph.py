"""A decode loop in one CUDA graph: keys appended with rotary embedding, then attention, over growing lengths.

    kgen build --filter "kind in (fwd_combine, prepare_scheduler) or kind == append_kv and dtype == bf16 or paged \\
        and causal and dtype == bf16 and hdim in (64, 128) and target in (sm80, sm90)" --build-dir build-graph
    python3 benches/decode_graph.py --library build-graph/lib/libkgen.so

Needs torch and a GPU. 64 sequences of unequal lengths, 32 heads of Q and 8 of K, head dims 64 and 128, bf16, pages of
16 rows in random order, K and V views of one packed cache as in vLLM, 32 splits. One step is captured with sequences
of few keys: `kgen_append_kv`, then `kgen_fwd` with counts. Before each replay the lengths, the table and the slots are
changed in place, and `kgen_fwd_metadata` rewrites the counts, as an engine does once for all its layers.

`decode` captures 64 queries of one token. Its replays have fewer and fewer sequences: the others have no queries and no
keys. `mixed` captures 128 tokens with `seqlen_q` = 128, the largest value of any replay, in sequences of two tokens
each, and replays them with other divisions of the tokens: every third step one sequence has all remaining tokens.
`kvcache` captures `kgen_fwd_kvcache` instead of the two calls, one row for each of 64 sequences; every tenth step a
sequence restarts.

Every tenth step is compared: the new rows of the cache and the rotated Q with a rotation in float32, the rest of the
cache with its previous contents, O with float64 attention over the actual cache, by FlashAttention's rule: at most
twice the error of the same computation in bf16, plus two roundings of the largest result. Rows of O outside of
sequences must be unchanged. Unwritten rows of the cache hold NaN; entries of the table beyond a sequence's end name
no page.

Exit code 1 if anything is wrong. Each time is for one replay, so a row's rounds are its replays.
"""

import random
from functools import partial

from lab import attention, main, stats, suite, timing
from lab.kgen import FLAG_CAUSAL, append_kv_params, packed_params, put

try:
    import torch
except ImportError:
    torch = None

SEQUENCES, HEADS, HEADS_K, PAGE, SPLITS = 64, 32, 8, 16, 32
MOST_KEYS, NO_PAGE = 8192, 0x7FFFFFFF
REPLAYS, COMPARED = 100, 10
ROUNDING = 2.0**-8  # bf16's unit roundoff


class Schedule:
    """The tokens of each step, and the positions of their rows in memory. Uses no tensors."""

    def __init__(self, tokens, mixed, restarts, seed):
        draw = random.Random(seed)
        self.tokens, self.mixed, self.restarts = tokens, mixed, restarts
        self.keys = [round(130 * (4000 / 130) ** draw.random()) for _ in range(SEQUENCES)]
        self.free = list(range(SEQUENCES * MOST_KEYS // PAGE // 4))
        draw.shuffle(self.free)
        self.num_pages, self.pages, self.queries = len(self.free), [[] for _ in range(SEQUENCES)], [0] * SEQUENCES
        self.reserve()

    def reserve(self):
        for pages, count in zip(self.pages, self.keys):
            while len(pages) * PAGE < count:
                pages.append(self.free.pop())

    def advance(self, step):
        """The step's queries; the keys grow by the same number. Sequences end in order from the last one, or a new one
        takes over the row and pages of one that ends."""
        live = SEQUENCES if self.restarts else SEQUENCES - 5 * (step // 10)
        self.queries = [1] * live + [0] * (SEQUENCES - live)
        if self.mixed and step % 3 == 2:
            self.queries[step % live] = self.tokens - (live - 1)
        if self.restarts and step % 10 == 4:
            self.keys[step % SEQUENCES] = 0
        self.keys = [keys + count if count else 0 for keys, count in zip(self.keys, self.queries)]
        self.reserve()

    def starts(self):
        return [sum(self.queries[:i]) for i in range(SEQUENCES + 1)]

    def slots(self, sequence, first=0):
        """Slots of the rows of a sequence from `first` on."""
        return [self.pages[sequence][row // PAGE] * PAGE + row % PAGE for row in range(first, self.keys[sequence])]

    def rows(self):
        """Slot and position of each token; a negative slot for tokens outside of sequences."""
        places = []
        for sequence, count in enumerate(self.queries):
            first = self.keys[sequence] - count
            places += zip(self.slots(sequence, first) if count else (), range(first, first + count))
        return places + [(-1, 0)] * (self.tokens - len(places))

    def table(self):
        used = [pages[: -(-count // PAGE)] for pages, count in zip(self.pages, self.keys)]
        return [pages + [NO_PAGE] * (MOST_KEYS // PAGE - len(pages)) for pages in used]


class Step:
    """The tensors and calls of a step. `kvcache`: a single `kgen_fwd_kvcache`."""

    def __init__(self, library, schedule, dim, kvcache):
        self.schedule, self.dim, self.kvcache, tokens = schedule, dim, kvcache, schedule.tokens
        self.qkv = attention.normal(tokens, HEADS + 2 * HEADS_K, dim)
        self.q, self.k, self.v = self.qkv.split((HEADS, HEADS_K, HEADS_K), 1)
        self.rotated_q = torch.empty(tokens, HEADS, dim, device="cuda", dtype=torch.bfloat16)
        self.o, self.lse = torch.empty_like(self.rotated_q), torch.empty(HEADS, tokens, device="cuda")
        self.cache = attention.normal(schedule.num_pages, PAGE, HEADS_K, 2 * dim).fill_(float("nan"))
        for sequence, count in enumerate(schedule.keys):
            self.flat()[self.slots_of(sequence)] = attention.normal(count, HEADS_K, 2 * dim)
        self.halves, self.tables = self.cache.split(dim, -1), attention.rotary_tables(MOST_KEYS, dim)
        zeros = lambda *shape, dtype=torch.int32: torch.zeros(*shape, device="cuda", dtype=dtype)
        # The tensors that change before each replay, in place.
        self.starts, self.used, self.before = zeros(SEQUENCES + 1), zeros(SEQUENCES), zeros(SEQUENCES)
        self.table = zeros(SEQUENCES, MOST_KEYS // PAGE)
        self.slots, self.positions = zeros(tokens, dtype=torch.int64), zeros(tokens, dtype=torch.int64)
        new = [x[:, None] if kvcache else x[None] for x in (self.k, self.v, self.q, self.rotated_q)]
        append = append_kv_params(*new[:2], *self.halves, self.before if kvcache else self.used,
            self.table if kvcache else None, *new[2:], *self.tables, flags=FLAG_CAUSAL)
        bounds = {"seqlen_q": tokens if schedule.mixed else 1, "seqlen_k": MOST_KEYS, "num_splits": SPLITS,
            "total_q": 0 if kvcache else tokens, "total_k": 0, **({"cu_seqlens_q": None} if kvcache else {})}
        p = self.params = packed_params(
            self.rotated_q, *self.halves, self.o, self.lse, True, [1] * SEQUENCES, [MOST_KEYS] * SEQUENCES, self.starts,
            **{"seqused_k": self.used, "page_table": self.table, **bounds, "split_counts": zeros(SEQUENCES),
                "work_counter": zeros(2)})
        if kvcache:
            put(append, seqlens_after=self.used)
            p.q_batch_stride, p.o_batch_stride, p.lse_batch_stride = p.q_row_stride, p.o_row_stride, 1
        else:
            put(append, batch=SEQUENCES, cache_seqlens=None, slot_mapping=self.slots, positions=self.positions,
                cu_seqlens_new=self.starts, cu_seqlens_q=self.starts, total_new=tokens, total_q=tokens)
        attend, write = library.call("kgen_fwd", p), library.call("kgen_append_kv", append)
        self.count = partial(library.launcher("kgen_fwd_metadata"), p)
        both = partial(library.launcher("kgen_fwd_kvcache"), append, p)
        self.layer = both if kvcache else lambda: (write(), attend())

    def flat(self):
        return self.cache.view(-1, HEADS_K, 2 * self.dim)

    def slots_of(self, sequence):
        return torch.tensor(self.schedule.slots(sequence), device="cuda")

    def refresh(self):
        """Updates the graph's inputs in place."""
        schedule, (slots, positions) = self.schedule, zip(*self.schedule.rows())
        before = [keys - queries for keys, queries in zip(schedule.keys, schedule.queries)]
        for tensor, values in ((self.starts, schedule.starts()), (self.used, schedule.keys), (self.before, before),
                (self.table, schedule.table()), (self.slots, slots), (self.positions, positions)):
            tensor.copy_(torch.tensor(values, dtype=tensor.dtype))
        self.count()

    def capture(self):
        """A graph of the layer, captured with the same number of tokens for each sequence and no other keys."""
        kept, before = self.schedule.keys, self.cache.clone()
        self.schedule.queries = self.schedule.keys = [self.schedule.tokens // SEQUENCES] * SEQUENCES
        self.refresh()
        graph = timing.capture([self.layer])
        torch.cuda.synchronize()
        self.cache.copy_(before)
        self.schedule.keys = kept
        return graph

    def complaints(self, before):
        """Descriptions of errors in the appended rows, in the rotated Q if there is one, and in the rest of the
        cache."""
        live = self.schedule.starts()[-1]
        slots, (cos, sin) = self.slots[:live], (x[self.positions[:live]] for x in self.tables)
        expected = torch.cat((attention.rotated(self.k[:live], cos, sin), self.v[:live].float()), dim=-1)
        near = lambda got, wanted: bool(((got - wanted).abs() <= 2 * ROUNDING * wanted.abs() + 1e-6).all())
        right = {"K and V after append_kv": near(self.flat()[slots].float(), expected)}
        if not self.kvcache:
            turned = attention.rotated(self.q[:live], cos, sin)
            right["Q after append_kv"] = near(self.rotated_q[:live].float(), turned)
        before.view_as(self.flat())[slots] = self.flat()[slots]
        before, now = (x.view(torch.int16) for x in (before, self.cache))
        right["rows of the cache that are not new"] = torch.equal(before, now)
        right["rows that no sequence has"] = bool(self.o[live:].isnan().all() and self.lse[:, live:].isnan().all())
        return [what for what, is_right in right.items() if not is_right]

    def errors(self):
        """Largest error of O relative to the tolerance, and of LSE. NaN counts as infinitely wrong."""
        starts, group, found = self.schedule.starts(), HEADS // HEADS_K, []
        worst = lambda x: x.abs().nan_to_num(nan=float("inf")).max().item()
        for sequence, count in enumerate(self.schedule.queries):
            if count == 0:
                continue
            slots, rows = self.slots_of(sequence), slice(starts[sequence], starts[sequence + 1])
            turned = attention.rotated(self.q[rows], *(x[self.positions[rows]] for x in self.tables))
            q, k, v = turned.bfloat16().transpose(0, 1), *(
                x.reshape(-1, HEADS_K, self.dim)[slots].transpose(0, 1) for x in self.halves)
            expected, lse, _ = attention.exact(q, k, v, causal=True)
            wide, keys = [x.float().repeat_interleave(group, 0) for x in (k, v)], len(slots)
            hidden = torch.ones(count, keys, device="cuda", dtype=torch.bool).triu(keys - count + 1)
            s = ((q.float() @ wide[0].mT).bfloat16().float() * self.dim**-0.5).bfloat16().float()
            naive = (torch.softmax(s.masked_fill(hidden, float("-inf")), -1).bfloat16().float() @ wide[1]).bfloat16()
            got = self.o[rows].transpose(0, 1).double()
            found.append((worst(got - expected), worst(naive.double() - expected), worst(expected),
                worst(self.lse[:, rows] - lse)))
        error, naive_error, largest, lse_error = map(max, zip(*found))
        return error / (2 * naive_error + 2 * ROUNDING * largest), lse_error


@suite()
def decode_graph(bench):
    cases = [(name, dim) for dim in (64, 128) for name in ("decode", "mixed", "kvcache")]
    for name, dim in bench.selected(cases, lambda case: f"{case[0]} d{case[1]}", quick=3):
        mixed, kvcache = name == "mixed", name == "kvcache"
        schedule = Schedule(2 * SEQUENCES if mixed else SEQUENCES, mixed, kvcache, seed=dim + mixed)
        step = Step(bench.library, schedule, dim, kvcache)
        graph, worst, worst_lse, wrong, times = step.capture(), 0.0, 0.0, [], []
        for number in range(REPLAYS // 5 if bench.args.quick else REPLAYS):
            schedule.advance(number)
            step.qkv.normal_()
            step.refresh()
            compared = number % COMPARED == COMPARED - 1 or (mixed and number in (2, 5))
            before = step.cache.clone() if compared else None
            step.o.fill_(float("nan"))
            step.lse.fill_(float("nan"))
            times.append(timing.elapsed_us(graph.replay, 1))
            if compared:
                ratio, lse_error = step.errors()
                worst, worst_lse = max(worst, ratio), max(worst_lse, lse_error)
                wrong += [f"step {number}: {complaint}" for complaint in step.complaints(before)]
        wrong += [f"O: {worst:.2f} of what is allowed"] if not worst <= 1 else []
        wrong += [f"LSE: {worst_lse:.1e}"] if not worst_lse <= 1e-4 else []
        candidates, chosen = bench.library.explain(step.params)
        numbers = {"microseconds": stats.summary(times), "round_microseconds": times, "launches_a_round": 1,
            "repeated": "graph", "l2": "warm", "relative_error": worst, "allowed_error": 1.0}
        shape = {"batch": SEQUENCES, "heads": HEADS, "heads_k": HEADS_K, "head_dim": dim, "page_size": PAGE,
            "total_q": schedule.tokens}
        bench.add(f"{name} d{dim}", "kgen", *(("wrong", "; ".join(wrong), None) if wrong else ("ok", "", numbers)),
            dtype="bf16", layout="paged", shape=shape,
            details={"replays": len(times), "worst_lse": worst_lse, "path": candidates[chosen].path,
                "splits": candidates[chosen].num_splits})


if __name__ == "__main__":
    main(__doc__)
