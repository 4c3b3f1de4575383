#!/usr/bin/env python3
"""New K and V appended to a paged cache, with rotary embedding of K and Q, on the GPU at hand.

    kgen build --kind append_kv --dtype bf16 --target sm90 --build-dir build-append
    python3 benches/append_kv.py --library build-append/lib/libkgen.so --out append_kv.json

Needs torch. 64 sequences, 32 heads of Q and 8 of K, head dim 128, bf16, pages of 16 rows in no order, K and V views of
one cache as vLLM has them. Each result is compared with torch first. Then CUDA graphs of 20 calls are replayed in turn,
each call with tensors of its own; all of them together are more than twice the L2. A time is the median over replays,
by CUDA events, of a call.

Beside kgen: the same in torch, compiled (rotation and `index_put_`), and a copy of as many bytes as kgen reads and
writes. `of copy` is the copy's time / kgen's.
"""

import argparse
import json
import math
import statistics

import torch

from kgen_ctypes import FLAG_CAUSAL, FLAG_ROTARY_INTERLEAVED, Library, append_kv_params

BATCH, HEADS, HEADS_K, DIM, PAGE = 64, 32, 8, 128, 16
CALLS = 20
# name, new rows of each sequence, cached rows, dtype of the cache, columns that are rotated, interleaved
CASES = [
    ("decode", 1, 1000, torch.bfloat16, 128, False),
    ("decode, interleaved", 1, 1000, torch.bfloat16, 128, True),
    ("decode, fp8 cache", 1, 1000, torch.float8_e4m3fn, 128, False),
    ("decode, not rotated", 1, 1000, torch.bfloat16, 0, False),
    ("prefill of 512", 512, 0, torch.bfloat16, 128, False),
    ("prefill of 512, interleaved", 512, 0, torch.bfloat16, 128, True),
    ("prefill of 512, half rotated", 512, 0, torch.bfloat16, 64, False),
    ("prefill of 512, fp8 cache", 512, 0, torch.float8_e4m3fn, 128, False),
    ("prefill of 512, not rotated", 512, 0, torch.bfloat16, 0, False),
]


class Tensors:
    """What one call reads and writes."""

    def __init__(self, new, cached, dtype, rotary_dim):
        draw = lambda heads: torch.randn(BATCH, new, heads, DIM, device="cuda", dtype=torch.bfloat16)
        self.q, self.k, self.v = draw(HEADS), draw(HEADS_K), draw(HEADS_K)
        self.q_out = torch.empty_like(self.q)
        per_sequence = (cached + new + PAGE - 1) // PAGE
        pages = BATCH * per_sequence
        cache = torch.zeros(pages, PAGE, HEADS_K, 2 * DIM, device="cuda", dtype=torch.bfloat16).to(dtype)
        self.k_cache, self.v_cache = cache[..., :DIM], cache[..., DIM:]
        self.fp8 = cache.element_size() == 1
        raw = cache.view(torch.uint8) if self.fp8 else cache
        self.k_raw, self.v_raw = raw[..., :DIM], raw[..., DIM:]
        self.table = torch.randperm(pages, device="cuda").int().view(BATCH, per_sequence)
        self.lengths = torch.full((BATCH,), cached, device="cuda", dtype=torch.int32)
        self.cos = self.sin = None
        if rotary_dim:
            frequency = 10000.0 ** (-torch.arange(0, rotary_dim, 2, device="cuda") / rotary_dim)
            angle = torch.arange(cached + new, device="cuda")[:, None] * frequency
            self.cos, self.sin = angle.cos().bfloat16(), angle.sin().bfloat16()
        self.descale = torch.rand(BATCH, HEADS_K, device="cuda") + 0.5
        rows = cached + torch.arange(new, device="cuda")
        self.positions = rows
        self.pages, self.rows = self.table[:, rows // PAGE].long(), (rows % PAGE).expand(BATCH, new)

    def bytes(self):
        """Read and written, without tables."""
        both = self.k.numel() + self.v.numel()
        rotated = 2 * self.q.numel() * 2 if self.cos is not None else 0
        return rotated + both * (2 + self.k_cache.element_size())


def rotated(x, cos, sin, interleaved):
    """(batch, rows, heads, head_dim) in fp32, cos and sin by row."""
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width].float(), x[..., width:].float()
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, dim=-1)
    c, s = cos.float()[:, None], sin.float()[:, None]
    a, b = a * c - b * s, b * c + a * s
    turned = torch.stack((a, b), dim=-1).flatten(-2) if interleaved else torch.cat((a, b), dim=-1)
    return torch.cat((turned, rest), dim=-1)


def append_in_torch(q, k, v, q_out, k_cache, v_cache, pages, rows, cos, sin, positions, descale, interleaved):
    """What kgen does, in torch. FP8 caches come as bytes, with a descale."""
    k_new, v_new = k.float(), v.float()
    if cos is not None:
        cos, sin = cos[positions], sin[positions]
        q_out.copy_(rotated(q, cos, sin, interleaved))
        k_new = rotated(k, cos, sin, interleaved)
    if descale is not None:
        stored = lambda x: (x / descale[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    else:
        stored = lambda x: x.to(k_cache.dtype)
    k_cache.index_put_((pages, rows), stored(k_new))
    v_cache.index_put_((pages, rows), stored(v_new))


def torch_arguments(t, interleaved):
    return (t.q, t.k, t.v, t.q_out, t.k_raw, t.v_raw, t.pages, t.rows, t.cos, t.sin, t.positions, t.descale if t.fp8 else None, interleaved)


def kgen_call(library, t, interleaved):
    q = (t.q, t.q_out) if t.cos is not None else (None, None)
    p = append_kv_params(t.k, t.v, t.k_cache, t.v_cache, t.lengths, t.table, *q, t.cos, t.sin)
    p.flags = FLAG_CAUSAL | (FLAG_ROTARY_INTERLEAVED if interleaved else 0)
    for name in ("k", "v"):
        setattr(p, f"{name}_descale", t.descale.data_ptr())
        setattr(p, f"{name}_descale_batch_stride", HEADS_K)
        setattr(p, f"{name}_descale_head_stride", 1)
    launch = library.launcher("kgen_append_kv")
    return lambda: launch(p)


def check(call, t, interleaved):
    """Compares what a call leaves with what torch leaves."""
    call()
    got = [x.float().clone() for x in (t.q_out, t.k_cache, t.v_cache)]
    for x in (t.k_raw, t.v_raw):
        x.zero_()
    append_in_torch(*torch_arguments(t, interleaved))
    expected = [x.float() for x in (t.q_out, t.k_cache, t.v_cache)]
    if t.cos is None:
        got[0] = expected[0] = torch.zeros(1, device="cuda")
    # A rounding apart, where fp32 results are near a tie.
    bound = 0.13 if t.fp8 else 0.01
    for name, a, b in zip(("q_out", "k_cache", "v_cache"), got, expected):
        error = ((a - b).abs() / b.abs().clamp(min=0.02)).max().item()
        assert error <= bound, f"{name} differs from torch by {error:.2e}"


def graph_of(calls):
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def time_of(calls, replays):
    """Microseconds of one call: graphs of CALLS of them, replayed in turn."""
    calls = calls * max(1, CALLS // len(calls))
    graphs = [graph_of(calls[i : i + CALLS]) for i in range(0, len(calls) - CALLS + 1, CALLS)]
    times = []
    for number in range(replays + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(200_000)  # cycles: the replay is enqueued before the GPU comes to it
        begin.record()
        graphs[number % len(graphs)].replay()
        end.record()
        torch.cuda.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end) * 1000 / CALLS)
    return statistics.median(times)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--library", required=True, help="a libkgen.so that holds append_kv")
    arguments.add_argument("--replays", type=int, default=60)
    arguments.add_argument("--kgen-only", action="store_true", help="time kgen and the copy alone, for tiles")
    arguments.add_argument("--check-only", action="store_true", help="compare results of small calls and time nothing")
    arguments.add_argument("--out", help="where to write the numbers as JSON")
    a = arguments.parse_args()
    torch.manual_seed(1)
    library = Library(a.library)
    device = torch.cuda.get_device_properties(0)
    print(f"{device.name}, L2 {device.L2_cache_size >> 20} MiB, torch {torch.__version__}")
    print(f"{'case':31} {'kgen us':>8} {'GB/s':>6} {'of copy':>8} {'copy us':>8} {'torch us':>9} {'torch/kgen':>11}")
    rows = []
    for name, new, cached, dtype, rotary_dim, interleaved in CASES:
        if a.check_only:
            new, cached = min(new, 40), min(cached, 40)
        first = Tensors(new, cached, dtype, rotary_dim)
        check(kgen_call(library, first, interleaved), first, interleaved)
        if a.check_only:
            print(f"{name}: right")
            continue
        # Sets of what a call touches, more than twice the L2 in all, and whole graphs of them where they are small.
        least = 2 * device.L2_cache_size / first.bytes()
        sets = 2 if least <= 2 else -int(-least // CALLS) * CALLS
        tensors = [first] + [Tensors(new, cached, dtype, rotary_dim) for _ in range(sets - 1)]
        kgen = time_of([kgen_call(library, t, interleaved) for t in tensors], a.replays)
        peer = math.nan
        if not a.kgen_only:
            torch._dynamo.reset()  # otherwise it gives up on compiling after a few cases
            compiled = torch.compile(append_in_torch, dynamic=False)
            peer = time_of([lambda t=t: compiled(*torch_arguments(t, interleaved)) for t in tensors], a.replays)
        half = first.bytes() // 2
        buffers = [torch.empty(2, half, device="cuda", dtype=torch.uint8) for _ in tensors]
        copy = time_of([lambda b=b: b[1].copy_(b[0]) for b in buffers], a.replays)
        row = {
            "case": name, "new": new, "bytes": first.bytes(), "sets": sets, "kgen_us": kgen, "gbs": first.bytes() / kgen / 1000,
            "of_copy": copy / kgen, "copy_us": copy, "torch_us": peer, "torch_over_kgen": peer / kgen,
        }
        rows.append(row)
        print(f"{name:31} {kgen:8.2f} {row['gbs']:6.0f} {row['of_copy']:8.2f} {copy:8.2f} {peer:9.2f} {row['torch_over_kgen']:11.2f}", flush=True)
        del tensors, buffers, first
        torch.cuda.empty_cache()
    if a.out:
        with open(a.out, "w") as file:
            json.dump({"device": device.name, "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
