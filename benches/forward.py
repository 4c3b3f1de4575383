"""Dense forward kernels compared with FlashAttention-2, cuDNN and FlashAttention-3 in one process.

    scripts/fetch_peers.sh .peers     # where packages can be downloaded; then copy the folder to the GPU machine
    python3 benches/forward.py --site .peers/site --library build/lib/libkgen.so --out forward.jsonl
    python3 benches/forward.py --target sm80 --peers fa2 --library new=new/libkgen.so --library old=old/libkgen.so
    python3 benches/forward.py --site .peers/site --dtype fp8
    python3 benches/forward.py --site .peers/site --short
    python3 benches/forward.py --library build/run-as-sm90/lib/libkgen.so --target sm121 --dtype fp8 --peers fa2_bf16

16,384 tokens in total, 2048 / head dim heads, random normal inputs. L2 is warm: the same tensors throughout, which
exceed it from s 2048 on. FLOPs are 4 B H Sq Sk D with the true head dim, halved for causal. O of the last 128 rows of
one head is compared with float64 before and after timing, and kgen writes the LSE too, as FlashAttention does.

--dtype fp8: Q, K and V in E4M3 with a descale for each batch entry and head, O in bf16. The reference is attention of
the dequantised inputs. `fa2_bf16` and `fa3_bf16` are those peers on the tensors in bf16, since FlashAttention-2 has
no FP8, and the wheel no fp16. FP8 kernels of sm89, sm120 and sm121 run on Hopper for their correctness
only: it has no FP8 `mma.sync`, and ptxas makes two fp16 ones of each. --short: small shapes as graph replays, fp16
unless --dtype says otherwise. kgen is then a call of kgen_fwd, and the row's details name the kernel that it chooses.
"""

import sys

from lab import Bench, Contender, attention, parser
from lab.kgen import fwd_params
from lab.peers import Absent, Fa3, Fa3Wheel, Sdpa

try:
    import torch
except ImportError:
    sys.exit("forward.py: PyTorch is not installed")

HEAD_DIMS = [32, 64, 80, 96, 128, 160, 192, 224, 256]
SEQLENS = [8192, 2048, 16384, 512, 4096, 1024]  # in this order, so that --limit-s drops the least informative ones
SHORT = [(8, 8, 128, 64, True), (1, 8, 512, 64, True), (16, 8, 512, 64, True)]  # batch, heads, seqlen, head dim, causal
SIDES = {"bf16": ["fa2", "cudnn", "fa3"], "fp16": ["fa2", "cudnn", "fa3", "fa3_bf16"], "fp8": ["fa3"]}
# Relative error of O that is still correct attention. FP8 rounds P to three bits of mantissa: 0.03.
ALLOWED = {"bf16": 1e-2, "fp16": 1e-2, "fp8": 8e-2}


class Point:
    """Tensors of one point, the contenders on them, and their errors."""

    def __init__(self, shape, dtype):
        batch, heads, seqlen, head_dim = (shape[name] for name in ("batch", "heads", "seqlen_q", "head_dim"))
        self.shape, self.dtype, self.causal = shape, dtype, bool(shape["causal"])
        self.plain = [attention.normal(batch, seqlen, heads, head_dim, dtype=dtype) for _ in range(3)]
        self.qkv, self.descales, self.wide = self.plain, None, self.plain
        if dtype == "fp8":
            self.qkv, self.descales = zip(*map(attention.quantised, self.plain))
            last = zip((x[-1:, :, -1:] for x in self.qkv), (x[-1:, None, -1:, None] for x in self.descales))
            self.wide = [x.double() * descale.double() for x, descale in last]

    def judge(self, out):
        return attention.last_rows_error(out[0] if isinstance(out, list) else out, *self.wide, self.causal)

    def kgen(self, library, name, **details):
        """A launcher of the library that writes into separate outputs."""
        batch, seqlen, heads, _ = self.qkv[0].shape
        out = torch.empty_like(self.plain[0]), torch.empty(batch, heads, seqlen, device="cuda")
        p = fwd_params(*self.qkv, *out, self.causal, descales=self.descales)
        return Contender(library.call(name, p), out=list(out), own=True, details=details)

    def peer(self, name, attend):
        if name.endswith("_bf16"):
            wide = [x.bfloat16() for x in self.plain]
            of_wide = (lambda out: attention.last_rows_error(out, *wide, self.causal)) if self.dtype == "fp8" else None
            return Contender(attend(*wide, causal=self.causal), judge=of_wide)
        return Contender(attend(*self.qkv, causal=self.causal, descales=self.descales))

    def time(self, bench, case, contenders, graph=None, **more):
        return bench.point(
            case, self.shape, contenders, judge=self.judge, allowed=ALLOWED[self.dtype], dtype=self.dtype, graph=graph,
            flops=attention.flops(self.shape), formula="4 B H Sq Sk D, halved for causal", **more)


def peers_of(names, site, vllm_fa3):
    """{name: function that creates the peer}; a peer is a function of Q, K and V."""
    fa3 = (lambda: Fa3(vllm_fa3)) if vllm_fa3 else (lambda: Fa3Wheel(site))
    return {name: fa3 if name.startswith("fa3") else lambda name=name: Sdpa(name.removesuffix("_bf16"))
        for name in names}


def picked(library, target, dtype, shape):
    """The kernel that kgen_fwd chooses among those for the card: fwd_short if the library has it and its blocks, of 64
    queries of a head, all run at once (templates/bindings/dispatch/paths.tera)."""
    name = lambda kind: attention.kernel_name(kind, shape["head_dim"], dtype, shape["causal"], target)
    blocks = -(-shape["seqlen_q"] // 64) * shape["heads"] * shape["batch"]
    little = blocks <= torch.cuda.get_device_properties(0).multi_processor_count
    return name("fwd_short") if little and library.holds(name("fwd_short")) else name("fwd")


def points(args):
    """(case, shape) of the grid, iterating over lengths last, or of --short."""
    if args.short:
        for batch, heads, seqlen, head_dim, causal in SHORT:
            sizes = {"batch": batch, "heads": heads, "heads_k": heads}
            yield {**attention.dense_shape(head_dim, seqlen, causal), **sizes}
        return
    for seqlen in args.seqlen:
        for head_dim in args.head_dim:
            for causal in (False, True):
                if args.mask in ("both", attention.mask(causal)):
                    yield attention.dense_shape(head_dim, seqlen, causal)


def case_of(shape):
    return "d{head_dim} {} s{seqlen_q} b{batch} h{heads}".format(attention.mask(shape["causal"]), **shape)


def main():
    arguments = parser(__doc__, rounds=8, round_ms=20, peers=["site"], head_dim=HEAD_DIMS, seqlen=SEQLENS)
    arguments.add_argument("--target", default="sm90", help="target in the kernels' names (sm90)")
    arguments.add_argument("--dtype", choices=["bf16", "fp16", "fp8"], help="bf16, with --short fp16")
    arguments.add_argument("--mask", choices=["both", "full", "causal"], default="both")
    arguments.add_argument("--short", action="store_true", help="small shapes in place of the grid, in microseconds")
    arguments.add_argument("--peers", nargs="*", choices=["fa2", "cudnn", "fa3", "fa3_bf16", "fa2_bf16"],
        help="by dtype")
    arguments.add_argument("--vllm-fa3", metavar="FILE", help="_vllm_fa3_C.abi3.so, in place of fa3-fwd")
    args = arguments.parse_args()
    args.dtype = args.dtype or ("fp16" if args.short else "bf16")
    bench = Bench(args)
    peers = bench.peers(peers_of(SIDES[args.dtype] if args.peers is None else args.peers, args.site, args.vllm_fa3))
    for shape in bench.selected(points(args), case_of):
        name, point = picked(bench.library, args.target, args.dtype, shape), Point(shape, args.dtype)
        held = {label: library for label, library in bench.libraries.items() if library.holds(name)}
        if not held:
            bench.note(f"the library holds no {name}")
            continue
        launcher = "kgen_fwd" if args.short else name
        contenders = {label: point.kgen(library, launcher, kernel=name) for label, library in held.items()}
        for side, attend in peers.items():
            try:
                contenders[side] = point.peer(side, attend)
            except (Absent, RuntimeError, TypeError) as why:
                bench.note(f"{side} does not take {case_of(shape)}: {why}")
        point.time(bench, case_of(shape), contenders, graph=True if args.short else None)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
