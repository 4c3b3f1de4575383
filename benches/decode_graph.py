#!/usr/bin/env python3
"""A decode loop in one CUDA graph: keys appended with rotary embedding, then attention, over lengths that grow.

    kgen build --filter "kind in (fwd_combine, prepare_scheduler) or kind == append_kv and dtype == bf16 or paged and causal \\
        and dtype == bf16 and hdim in (64, 128) and target in (sm80, sm90)" --build-dir build-graph
    python3 benches/decode_graph.py --library build-graph/lib/libkgen.so

Needs torch and a GPU. 64 sequences of unequal lengths, 32 heads of Q and 8 of K, head dims 64 and 128, bf16, pages of 16
rows in no order, K and V views of one packed cache as vLLM has them, 32 splits. One step is captured with sequences of
few keys: `kgen_append_kv`, then `kgen_fwd` with counts. Before each replay the lengths, the table and the slots are
changed in place, and `kgen_fwd_metadata` writes the counts anew, as an engine does once for all its layers.

`decode` captures 64 queries of one token. Its replays have fewer and fewer sequences: the others have no queries and no
keys. `mixed` captures 128 tokens with `seqlen_q` = 128, as its documentation says, in sequences of two tokens each, and
replays them with other splits of the tokens: every third step one sequence has all that the others leave. `kvcache`
captures `kgen_fwd_kvcache` in place of the two calls, one row for each of 64 sequences; every tenth step a sequence begins anew.

Every tenth step is compared: the new rows of the cache and the rotated Q with a rotation in float32, the rest of the
cache with what was there, O with float64 attention over the cache as it is, by FlashAttention's rule: at most twice the
error of the same done naively in bf16, and two roundings of the largest result. Rows of O that no sequence has must stay
as they were. Unwritten rows of the cache hold NaN; entries of the table beyond a sequence's end name no page.

Prints one line of JSON. Exit code 1 if anything is wrong.
"""

import argparse
import ctypes
import json
import random
import statistics
import sys

import torch

from kgen_ctypes import FLAG_CAUSAL, AppendKvParams, FwdParams, Library, append_kv_params

SEQUENCES, HEADS, HEADS_K, PAGE, SPLITS = 64, 32, 8, 16, 32
MOST_KEYS = 8192
NO_PAGE = 0x7FFFFFFF
REPLAYS, COMPARED = 100, 10
ROUNDING = 2.0**-8  # bf16's unit roundoff


class Schedule:
    """Which tokens each step has, and where their rows lie. Knows no tensors."""

    def __init__(self, tokens, mixed, seed):
        draw = random.Random(seed)
        self.tokens, self.mixed = tokens, mixed
        self.keys = [round(130 * (4000 / 130) ** draw.random()) for _ in range(SEQUENCES)]
        pages = list(range(SEQUENCES * MOST_KEYS // PAGE // 4))
        draw.shuffle(pages)
        self.free = pages
        self.num_pages = len(pages)
        self.pages = [[] for _ in range(SEQUENCES)]
        self.queries = [0] * SEQUENCES
        for sequence, count in enumerate(self.keys):
            self.reserve(sequence, count)

    def reserve(self, sequence, count):
        while len(self.pages[sequence]) * PAGE < count:
            self.pages[sequence].append(self.free.pop())

    def advance(self, step):
        """The step's queries; the keys grow by them. Sequences end from the last one on."""
        live = SEQUENCES - 5 * (step // 10)
        self.queries = [1] * live + [0] * (SEQUENCES - live)
        if self.mixed and step % 3 == 2:
            self.queries[step % live] = self.tokens - (live - 1)
        for sequence, count in enumerate(self.queries):
            self.keys[sequence] = self.keys[sequence] + count if count > 0 else 0
            self.reserve(sequence, self.keys[sequence])

    def starts(self):
        starts = [0]
        for count in self.queries:
            starts.append(starts[-1] + count)
        return starts

    def slot(self, sequence, row):
        return self.pages[sequence][row // PAGE] * PAGE + row % PAGE

    def rows(self):
        """Slot and position of each token; a negative slot for tokens that no sequence has."""
        places = []
        for sequence, count in enumerate(self.queries):
            first = self.keys[sequence] - count
            places += [(self.slot(sequence, first + i), first + i) for i in range(count)]
        return places + [(-1, 0)] * (self.tokens - len(places))

    def table(self):
        width = MOST_KEYS // PAGE
        used = [self.pages[sequence][: -(-count // PAGE)] for sequence, count in enumerate(self.keys)]
        return [pages + [NO_PAGE] * (width - len(pages)) for pages in used]


class RestartingSchedule(Schedule):
    """A row for each sequence in every step. Sequences end too, and another takes the place and the pages."""

    def advance(self, step):
        self.queries = [1] * SEQUENCES
        if step % 10 == 4:
            self.keys[step % SEQUENCES] = 0
        for sequence in range(SEQUENCES):
            self.keys[sequence] += 1
            self.reserve(sequence, self.keys[sequence])


def as_captured(schedule):
    """What the capture holds: as many tokens for each sequence, one or two keys."""
    each = schedule.tokens // SEQUENCES
    schedule.queries, kept = [each] * SEQUENCES, schedule.keys
    schedule.keys = [each] * SEQUENCES
    return kept


class Step:
    """The tensors of one layer, which stay where they are, and the calls."""

    def __init__(self, library, schedule, dim):
        self.schedule, self.dim = schedule, dim
        tokens, device = schedule.tokens, "cuda"
        self.qkv = torch.randn(tokens, HEADS + 2 * HEADS_K, dim, device=device, dtype=torch.bfloat16)
        self.q, self.k = self.qkv[:, :HEADS], self.qkv[:, HEADS : HEADS + HEADS_K]
        self.v = self.qkv[:, HEADS + HEADS_K :]
        self.rotated_q = torch.empty(tokens, HEADS, dim, device=device, dtype=torch.bfloat16)
        self.o = torch.empty_like(self.rotated_q)
        self.lse = torch.empty(HEADS, tokens, device=device)
        self.cache = torch.full((schedule.num_pages, PAGE, HEADS_K, 2 * dim), float("nan"), device=device, dtype=torch.bfloat16)
        for sequence, count in enumerate(schedule.keys):
            slots = torch.tensor([schedule.slot(sequence, row) for row in range(count)], device=device)
            self.cache.view(-1, HEADS_K, 2 * dim)[slots] = torch.randn(count, HEADS_K, 2 * dim, device=device).bfloat16()
        frequency = 10000.0 ** (-torch.arange(0, dim, 2, device=device) / dim)
        angle = torch.arange(MOST_KEYS, device=device)[:, None] * frequency
        self.cos, self.sin = angle.cos().bfloat16(), angle.sin().bfloat16()
        whole = lambda *shape, dtype=torch.int32: torch.zeros(*shape, device=device, dtype=dtype)
        self.starts, self.used, self.counts = whole(SEQUENCES + 1), whole(SEQUENCES), whole(SEQUENCES)
        self.table, self.work_counter = whole(SEQUENCES, MOST_KEYS // PAGE), whole(2)
        self.slots, self.positions = whole(tokens, dtype=torch.int64), whole(tokens, dtype=torch.int64)
        self.append, self.attend, self.count = (library.launcher(name) for name in ("kgen_append_kv", "kgen_fwd", "kgen_fwd_metadata"))
        self.append_params, self.fwd_params = self.parameters_of_append(), self.parameters_of_fwd()
        size = library.workspace_bytes(self.fwd_params)
        self.workspace = torch.empty(max(1, size), device=device, dtype=torch.uint8)
        self.fwd_params.workspace, self.fwd_params.workspace_bytes = self.workspace.data_ptr(), size

    def halves(self):
        return self.cache[..., : self.dim], self.cache[..., self.dim :]

    def parameters_of_append(self):
        halves = self.halves()
        p = append_kv_params(self.k[None], self.v[None], *halves, self.used, None, self.q[None], self.rotated_q[None], self.cos, self.sin)
        p.flags, p.cache_seqlens = FLAG_CAUSAL, None
        p.batch, p.total_new, p.total_q = SEQUENCES, self.schedule.tokens, self.schedule.tokens
        p.cu_seqlens_new = p.cu_seqlens_q = self.starts.data_ptr()
        p.slot_mapping, p.positions = self.slots.data_ptr(), self.positions.data_ptr()
        return p

    def parameters_of_fwd(self):
        p = FwdParams(struct_size=ctypes.sizeof(FwdParams), flags=FLAG_CAUSAL)
        for name, t in (("q", self.rotated_q), ("o", self.o)):
            setattr(p, name, t.data_ptr())
            setattr(p, f"{name}_row_stride", t.stride(0))
            setattr(p, f"{name}_head_stride", t.stride(1))
        for name, t in zip("kv", self.halves()):
            setattr(p, name, t.data_ptr())
            for axis, stride in zip(("batch", "row", "head"), t.stride()):
                setattr(p, f"{name}_{axis}_stride", stride)
        p.lse, p.lse_head_stride = self.lse.data_ptr(), self.lse.stride(0)
        p.cu_seqlens_q, p.seqused_k = self.starts.data_ptr(), self.used.data_ptr()
        p.batch, p.num_heads, p.num_heads_k = SEQUENCES, HEADS, HEADS_K
        p.total_q = self.schedule.tokens
        p.seqlen_q = p.total_q if self.schedule.mixed else 1
        p.seqlen_k, p.num_splits = MOST_KEYS, SPLITS
        p.head_dim, p.dtype, p.softmax_scale = self.dim, 1, self.dim**-0.5
        p.page_table, p.page_table_stride = self.table.data_ptr(), self.table.stride(0)
        p.page_size, p.num_pages = PAGE, self.schedule.num_pages
        p.split_counts, p.work_counter = self.counts.data_ptr(), self.work_counter.data_ptr()
        return p

    def refresh(self):
        """Changes what the graph reads, where it is."""
        self.starts.copy_(torch.tensor(self.schedule.starts(), dtype=torch.int32))
        self.used.copy_(torch.tensor(self.schedule.keys, dtype=torch.int32))
        self.table.copy_(torch.tensor(self.schedule.table(), dtype=torch.int32))
        slots, positions = zip(*self.schedule.rows())
        self.slots.copy_(torch.tensor(slots))
        self.positions.copy_(torch.tensor(positions))
        self.count(self.fwd_params)

    def layer(self):
        self.append(self.append_params)
        self.attend(self.fwd_params)

    def capture(self):
        kept = as_captured(self.schedule)
        before = self.cache.clone()
        self.refresh()
        self.layer()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.layer()
        torch.cuda.synchronize()
        self.cache.copy_(before)
        self.schedule.keys = kept
        return graph


class KvCacheStep(Step):
    """One call of `kgen_fwd_kvcache`, which writes the new rows as it attends if that is predicted to be faster."""

    def __init__(self, library, schedule, dim):
        self.before = torch.zeros(SEQUENCES, device="cuda", dtype=torch.int32)
        super().__init__(library, schedule, dim)
        self.both = library.lib.kgen_fwd_kvcache
        self.both.argtypes, self.both.restype = [ctypes.POINTER(AppendKvParams), ctypes.POINTER(FwdParams), ctypes.c_void_p], ctypes.c_int
        self.library = library

    def parameters_of_append(self):
        q, k, v, rotated = (t[:, None] for t in (self.q, self.k, self.v, self.rotated_q))
        p = append_kv_params(k, v, *self.halves(), self.before, self.table, q, rotated, self.cos, self.sin)
        p.flags, p.seqlens_after = FLAG_CAUSAL, self.used.data_ptr()
        return p

    def parameters_of_fwd(self):
        p = super().parameters_of_fwd()
        p.cu_seqlens_q, p.total_q = None, 0
        p.q_batch_stride, p.o_batch_stride, p.lse_batch_stride = p.q_row_stride, p.o_row_stride, 1
        return p

    def layer(self):
        code = self.both(self.append_params, self.fwd_params, torch.cuda.current_stream().cuda_stream)
        if code != 0:
            raise RuntimeError(f"kgen_fwd_kvcache: {code}: {self.library.last_error()}")

    def refresh(self):
        super().refresh()
        self.before.copy_(torch.tensor([keys - queries for keys, queries in zip(self.schedule.keys, self.schedule.queries)]))


def rotate(x, cos, sin):
    """Rows of heads in halves, in float32; cos and sin by row."""
    a, b = x.float().chunk(2, dim=-1)
    c, s = cos.float()[:, None], sin.float()[:, None]
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1)


def complaints_of_append(step, before):
    """What is wrong with the appended rows, the rotated Q, if there is one, or the rest of the cache."""
    wrong = []
    live = step.schedule.starts()[-1]
    slots, cos, sin = step.slots[:live], step.cos[step.positions[:live]], step.sin[step.positions[:live]]
    rows = step.cache.view(-1, HEADS_K, 2 * step.dim)
    expected = torch.cat((rotate(step.k[:live], cos, sin), step.v[:live].float()), dim=-1)
    pairs = [("K and V", rows[slots].float(), expected)]
    if not isinstance(step, KvCacheStep):
        pairs.append(("Q", step.rotated_q[:live].float(), rotate(step.q[:live], cos, sin)))
    for name, got, wanted in pairs:
        if not bool(((got - wanted).abs() <= 2 * ROUNDING * wanted.abs() + 1e-6).all()):
            wrong.append(f"{name} after append_kv")
    before.view(-1, HEADS_K, 2 * step.dim)[slots] = rows[slots]
    if not torch.equal(before.view(torch.int16), step.cache.view(torch.int16)):
        wrong.append("rows of the cache that are not new")
    return wrong


def compare(step):
    """Largest error of O relative to what is allowed, and of LSE."""
    schedule, scale, group = step.schedule, step.dim**-0.5, HEADS // HEADS_K
    starts = schedule.starts()
    error = naive_error = largest = lse_error = 0.0
    k_cache, v_cache = (half.reshape(-1, HEADS_K, step.dim) for half in step.halves())
    for sequence, count in enumerate(schedule.queries):
        if count == 0:
            continue
        keys = schedule.keys[sequence]
        slots = torch.tensor([schedule.slot(sequence, row) for row in range(keys)], device="cuda")
        rows = slice(starts[sequence], starts[sequence] + count)
        positions = step.positions[rows]
        q = rotate(step.q[rows], step.cos[positions], step.sin[positions]).bfloat16().transpose(0, 1)
        k, v = (t[slots].transpose(0, 1).repeat_interleave(group, 0) for t in (k_cache, v_cache))
        hidden = torch.arange(keys, device="cuda")[None] > torch.arange(keys - count, keys, device="cuda")[:, None]
        s = (q.double() @ k.double().transpose(1, 2) * scale).masked_fill(hidden, float("-inf"))
        expected = torch.softmax(s, -1) @ v.double()
        rounded = ((q.float() @ k.float().transpose(1, 2)).bfloat16().float() * scale).bfloat16().float().masked_fill(hidden, float("-inf"))
        naive = (torch.softmax(rounded, -1).bfloat16().float() @ v.float()).bfloat16()
        got = step.o[rows].transpose(0, 1).double()
        # NaN counts as infinitely wrong.
        error = max(error, (got - expected).abs().nan_to_num(nan=float("inf")).max().item())
        naive_error = max(naive_error, (naive.double() - expected).abs().max().item())
        largest = max(largest, expected.abs().max().item())
        lse_error = max(lse_error, (step.lse[:, rows].double() - torch.logsumexp(s, -1)).abs().nan_to_num(nan=float("inf")).max().item())
    return error / (2 * naive_error + 2 * ROUNDING * largest), lse_error


def run(library, dim, name):
    mixed = name == "mixed"
    tokens = 2 * SEQUENCES if mixed else SEQUENCES
    kvcache = name == "kvcache"
    schedule = (RestartingSchedule if kvcache else Schedule)(tokens, mixed, seed=dim + mixed)
    step = (KvCacheStep if kvcache else Step)(library, schedule, dim)
    graph = step.capture()
    worst, worst_lse, longest, wrong, times = 0.0, 0.0, 0, [], []
    for number in range(REPLAYS):
        schedule.advance(number)
        longest = max(longest, *schedule.queries)
        step.qkv.normal_()
        step.refresh()
        compared = number % COMPARED == COMPARED - 1 or (mixed and number in (2, 5))
        before = step.cache.clone() if compared else None
        step.o.fill_(float("nan"))
        step.lse.fill_(float("nan"))
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
        if not compared:
            continue
        ratio, lse_error = compare(step)
        worst, worst_lse = max(worst, ratio), max(worst_lse, lse_error)
        found = complaints_of_append(step, before)
        live = schedule.starts()[-1]
        if ratio > 1:
            found.append(f"O: {ratio:.2f} of what is allowed")
        if lse_error > 1e-4:
            found.append(f"LSE: {lse_error:.1e}")
        if not bool(step.o[live:].isnan().all() and step.lse[:, live:].isnan().all()):
            found.append("rows that no sequence has were written")
        wrong += [f"step {number}: {complaint}" for complaint in found]
    candidates, chosen = library.explain(step.fwd_params)
    path = candidates[chosen]
    return {
        "case": f"{name} d{dim}", "replays": REPLAYS, "worst_o": worst, "worst_lse": worst_lse,
        "longest_query": longest, "path": path.path,
        "splits": path.num_splits, "us": statistics.median(times), "wrong": wrong,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="a libkgen.so that holds append_kv and paged kernels")
    args = parser.parse_args()
    torch.manual_seed(1)
    library = Library(args.library)
    rows = [run(library, dim, name) for dim in (64, 128) for name in ("decode", "mixed", "kvcache")]
    print(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}))
    sys.exit(1 if any(row["wrong"] for row in rows) else 0)


if __name__ == "__main__":
    main()
