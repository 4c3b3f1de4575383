#!/usr/bin/env python3
"""Windows, softcap and sinks compared with FlashAttention-3 and -4, and the cost of features for plain calls.

    kgen build --target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256 --build-dir build-plain
    kgen build --target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256 --full --features window \\
        --build-dir build-window
    kgen build --target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256 --full \\
        --features window,softcap,alibi,sinks \\
        --build-dir build-all
    python3 benches/features.py --plain build-plain/lib/libkgen.so --window build-window/lib/libkgen.so \\
        --features build-all/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --fa4 site --out features.jsonl
    python3 benches/features.py --window build-window/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so --errors

Needs torch and a Hopper GPU. FA3 is the library in vLLM's wheel. FA4 is a folder with `flash_attn/cute` and its
imports, including CuTe DSL. FA4 compiles a kernel for each new case, which takes seconds: `--compile-fa4` does only
that, into the folder named by FLASH_ATTENTION_CUTE_DSL_CACHE_DIR if FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1, so that
several processes can do it in parallel beforehand. A peer's refusal is recorded, and is not a failure.

16,384 tokens in total, 2048 / head dim heads, bf16, graph replays. O of the middle rows of the first head is compared
with float64 before and after. Ratios are to the library with the fewest features that the call needs. --errors times
nothing, and prints kgen's and FA3's errors with windows over all rows of two heads, with the row of the largest
error.
"""

import sys
from functools import partial

import torch

from lab import Bench, Contender, attention, parser
from lab.kgen import FLAG_WINDOW, Library, fwd_params
from lab.peers import Absent, Fa3, Fa4, first_line

ROWS = 256  # rows that are compared
OURS = ("plain", "window", "features")
WINDOWS = [(4096, (1024, 0), True), (16384, (1024, 0), True), (4096, (512, 512), False), (16384, (512, 512), False),
    (4096, (1000, 0), True)]


def cases(head_dims):
    """Name, head dim, length, {features}, and the libraries that support the call."""
    for dim in head_dims:
        for causal in (False, True):
            for seqlen in (16384, 4096, 512):
                yield attention.mask(causal), dim, seqlen, {"causal": causal}, OURS if seqlen == 16384 else ("plain",
                    "features")
        yield "window 1024 causal", dim, 16384, {"causal": True, "window": (1024, 0)}, OURS[1:]
        yield "window 512,512", dim, 16384, {"window": (512, 512)}, OURS[1:]
        for seqlen in (512, 2048, 8192, 16384):
            yield "softcap 30 causal", dim, seqlen, {"causal": True, "softcap": 30.0}, OURS[2:]
            yield "sinks causal", dim, seqlen, {"causal": True, "sinks": True}, OURS[2:]


def text_of(case):
    return f"{case[0]} d{case[1]} s{case[2]}"


def kgen(library, qkv, causal=False, window=None, softcap=0.0, sinks=None):
    """A contender: `kgen_fwd` of a library with these features."""
    q = qkv[0]
    out = [torch.empty_like(q), torch.empty(q.shape[0], q.shape[2], q.shape[1], device="cuda")]
    p = fwd_params(*qkv, *out, causal, flags=FLAG_WINDOW if window else 0)
    if window:
        p.features.window_left, p.features.window_right = window
    p.features.softcap = softcap
    if sinks is not None:
        p.features.sinks, p.features.sinks_dtype, p.of_features = sinks.data_ptr(), 1, sinks
    return Contender(library.call("kgen_fwd", p), out=out, own=True)


def error_of(qkv, out, sinks=None, **features):
    """The largest error of the middle rows of the first head, relative to the largest element."""
    o, first = out[0] if isinstance(out, list) else out, qkv[0].shape[1] // 2
    if o.isnan().any():
        return float("nan")
    q, k, v = (x[:1, :, 0] for x in qkv)
    of_one = {**features, "sinks": None if sinks is None else sinks[:1], "at": first}
    expected = attention.exact(q[:, first : first + ROWS], k, v, **of_one)[0]
    return attention.largest_error(o[:1, first : first + ROWS, 0], expected)


def errors_of_windows(bench, library, fa3, head_dims):
    """The largest error with windows over all rows of two heads, and its row; processes 2048 rows of O at a time."""
    for dim in head_dims:
        for seqlen, window, causal in WINDOWS:
            qkv = [attention.normal(1, seqlen, 2, dim) for _ in range(3)]
            sides = {"kgen": lambda: kgen(library, qkv, causal, window)} | (
                {"fa3": lambda: Contender(fa3(*qkv, causal, window=window))} if fa3 else {})
            for name, make in sides.items():
                contender, of_row = make(), []

                def judge(out):
                    o = out[0] if isinstance(out, list) else out
                    for first in range(0, seqlen, 2048):
                        q = qkv[0][0, first : first + 2048].transpose(0, 1)
                        k, v = (x[0].transpose(0, 1) for x in qkv[1:])
                        expected = attention.exact(q, k, v, causal=causal, window=window, at=first)[0].transpose(0, 1)
                        of_row.append((o[0, first : first + 2048].double() - expected).abs().amax((1, 2)))
                    return torch.cat(of_row).max().item()

                error = contender.error(judge)
                row = torch.cat(of_row).argmax().item()
                case = f"d{dim} s{seqlen} window {window[0]},{window[1]}"
                details = {"largest_error": error, "row": row}
                numbers = {"relative_error": error, "allowed_error": 0.05}
                status, message = ("ok", "") if error <= 0.05 else ("wrong", f"error {error:.4f} in row {row}")
                bench.add(case, name, status, message, numbers if status == "ok" else None, own=name == "kgen",
                    details=details)
                print(f"{case} {name}: {error:.4f} in row {row}", flush=True)


def main():
    arguments = parser(__doc__, library=None, peers=["fa3", "fa4"], head_dim=[64, 128, 256])
    for name in OURS:
        arguments.add_argument(f"--{name}", metavar="FILE")
    arguments.add_argument("--fa4-seconds", type=float, default=240,
        help="FA4 compiles no further kernel after so many")
    arguments.add_argument("--compile-fa4", action="store_true", help="only compile FA4's kernels, into its cache")
    arguments.add_argument("--errors", action="store_true", help="errors of windows over all rows, and no times")
    args = arguments.parse_args()
    given = {name: getattr(args, name) for name in OURS}
    if not args.compile_fa4 and not all(given[name] for name in (("window",) if args.errors else OURS)):
        arguments.error("--window is needed" if args.errors else "--plain, --window and --features are needed")
    bench = Bench(args, libraries=given)
    makers = {"fa3": (lambda: Fa3(args.fa3)) if args.fa3 and not args.compile_fa4 else None}
    peers = bench.peers({**makers, "fa4": (lambda: Fa4(args.fa4, args.fa4_seconds)) if args.fa4 else None})
    libraries = {name: Library(path) for name, path in given.items() if path and not args.compile_fa4}
    if args.errors:
        errors_of_windows(bench, libraries["window"], peers.get("fa3"), args.head_dim)
        return bench.finish(tables=False)
    for case in bench.selected(cases(args.head_dim), text_of):
        _, dim, seqlen, features, ours = case
        shape = attention.dense_shape(dim, seqlen, features.get("causal", False))
        qkv = [attention.normal(shape["batch"], seqlen, shape["heads"], dim) for _ in range(3)]
        call = {**features, **({"sinks": torch.randn(shape["heads"], device="cuda", dtype=torch.bfloat16)}
            if "sinks" in features else {})}
        contenders = {name: kgen(libraries[name], qkv, **call) for name in ours if name in libraries}
        for name, peer in peers.items():
            try:
                contenders[name] = Contender(peer(*qkv, **call))
            except (Absent, RuntimeError, TypeError, AssertionError, NotImplementedError) as why:
                bench.add(text_of(case), name, "refused", first_line(why), own=False)
        if not args.compile_fa4:
            bench.point(
                text_of(case), shape, contenders, judge=partial(error_of, qkv, **call), allowed=0.02, dtype="bf16",
                graph=True, details={key: value for key, value in features.items() if value})
    return bench.finish(tables=not args.compile_fa4)


if __name__ == "__main__":
    sys.exit(main())
