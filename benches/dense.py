"""Attention of whole sequences, forward and backward, compared with FlashAttention-2, -3 and -4, cuDNN and
FlexAttention in one process.

    scripts/fetch_peers.sh .peers     # where packages can be downloaded; then copy the folder to the GPU machine
    python3 benches/dense.py forward --site .peers/site --library build/lib/libkgen.so --out forward.jsonl

Random normal inputs, bf16 unless stated otherwise. 16,384 tokens in total and 2048 / head dim heads, except `bias` and
`dropout`, which have 4096 tokens and 16 heads. L2 is warm: the same tensors throughout, which exceed it from s 2048 on.
FLOPs are 4 B H Sq Sk D forward and 10 backward with the true head dim, halved for causal.
"""

import itertools

from lab import Contender, attention, main, suite, unjudged
from lab.attention import dense_shape, kernel_name, norm_error
from lab.dense import Dense
from lab.kgen import FLAG_WINDOW, BwdParams, FwdParams, put
from lab.peers import Fa3, Fa3Wheel, Sdpa, fa2_backward, gradients_of

try:
    import torch
except ImportError:
    torch = None

HEAD_DIMS = [32, 64, 80, 96, 128, 160, 192, 224, 256]
SEQLENS = [8192, 2048, 16384, 512, 4096, 1024]  # in this order, so that --limit-s drops the least informative ones
SHORT = [(8, 8, 128, 64, True), (1, 8, 512, 64, True), (16, 8, 512, 64, True)]  # batch, heads, seqlen, head dim, causal
SIDES = {"bf16": ["fa2", "cudnn", "fa3"], "fp16": ["fa2", "cudnn", "fa3", "fa3_bf16"], "fp8": ["fa3"]}


def name_of(shape):
    return "d{head_dim} {} s{seqlen_q}".format(attention.mask(shape["causal"]), **shape)


def name_with_heads(shape):
    return f"{name_of(shape)} b{shape['batch']} h{shape['heads']}"


def dense_peers(names, site, fa3):
    """{name: function that creates the peer}; a peer is a function of Q, K and V."""
    make_fa3 = (lambda: Fa3(fa3)) if fa3 else (lambda: Fa3Wheel(site))
    return {name: make_fa3 if name.startswith("fa3") else lambda name=name: Sdpa(name.removesuffix("_bf16"))
        for name in names}


def kernel_of(library, target, dtype, shape):
    """The kernel that kgen_fwd chooses among those for the card: fwd_short if the library has it and its blocks, of 64
    queries of a head, all run at once (templates/bindings/dispatch/paths.tera)."""
    name = lambda kind: kernel_name(kind, shape["head_dim"], dtype, shape["causal"], target)
    blocks = -(-shape["seqlen_q"] // 64) * shape["heads"] * shape["batch"]
    little = blocks <= torch.cuda.get_device_properties(0).multi_processor_count
    return name("fwd_short") if little and library.holds(name("fwd_short")) else name("fwd")


@suite(rounds=8, round_ms=20, places=["site", "fa3"], head_dim=HEAD_DIMS, seqlen=SEQLENS, target="sm90",
    dtype={"choices": ["bf16", "fp16", "fp8"]}, mask=("both", "full", "causal"), short=False,
    peers={"nargs": "*", "choices": ["fa2", "cudnn", "fa3", "fa3_bf16", "fa2_bf16"]})
def forward(bench):
    """Forward kernels.

    python3 benches/dense.py forward --target sm80 --peers fa2 --library new=new/libkgen.so --library old=old/libkgen.so
    python3 benches/dense.py forward --site .peers/site --dtype fp8
    python3 benches/dense.py forward --library build/run-as-sm90/lib/libkgen.so --target sm121 --dtype fp8 \\
        --peers fa2_bf16

    O of the last 128 rows of one head is compared with float64 before and after timing, and kgen writes the LSE too, as
    FlashAttention does. --target is the one in the kernels' names. FlashAttention-3 is the wheel, or vLLM's with --fa3.
    --dtype fp8: Q, K and V in E4M3 with a descale for each batch entry and head, O in bf16. The reference is attention
    of the dequantised inputs. `fa2_bf16` and `fa3_bf16` are those peers on the tensors in bf16, since FlashAttention-2
    has no FP8, and the wheel no fp16. FP8 kernels of sm89, sm120 and sm121 run on Hopper for their correctness only: it
    has no FP8 `mma.sync`, and ptxas makes two fp16 ones of each. --short: small shapes as graph replays, fp16 unless
    --dtype is passed; kgen is then a call of kgen_fwd, and the row's details name the kernel that it chooses."""
    args = bench.args
    dtype = args.dtype or ("fp16" if args.short else "bf16")
    peers = bench.peers(**dense_peers(SIDES[dtype] if args.peers is None else args.peers, args.site, args.fa3))
    shapes = [dense_shape(dim, seqlen, causal) for seqlen in args.seqlen for dim in args.head_dim
        for causal in (False, True) if args.mask in ("both", attention.mask(causal))]
    if args.short:
        shapes = [{**dense_shape(dim, seqlen, causal), "batch": batch, "heads": heads, "heads_k": heads}
            for batch, heads, seqlen, dim, causal in SHORT]
    for shape in bench.selected(shapes, name_with_heads):
        point, case = Dense(shape, dtype), name_with_heads(shape)
        kernel = kernel_of(bench.library, args.target, dtype, shape)
        contenders = {label: point.forward(library, "kgen_fwd" if args.short else kernel, details={"kernel": kernel})
            for label, library in bench.holding(kernel).items()}
        wide = [x.bfloat16() for x in point.plain]
        judge = (lambda out: point.error(out, wide)) if dtype == "fp8" else None
        if contenders:
            of_wide = {name: peer for name, peer in peers.items() if name.endswith("_bf16")}
            others = {name: peer for name, peer in peers.items() if name not in of_wide}
            contenders |= bench.on(case, others, point.peer)
            contenders |= bench.on(case, of_wide,
                lambda attend: Contender(attend(*wide, causal=point.causal), judge=judge))
            point.time(bench, case, contenders, graph=True if args.short else None)


def exact_gradients(q, k, v, dout, causal, window=None, softcap=0.0, sinks=None):
    """dQ, dK and dV of one head, (seqlen, head_dim) tensors, in float64."""
    q, k, v, dout = (x.double() for x in (q, k, v, dout))
    s = q @ k.T * q.shape[-1] ** -0.5
    capped = torch.tanh(s / softcap) if softcap else None
    s = s if capped is None else softcap * capped
    left, right = window or (len(k), 0 if causal else len(k))
    s = s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(right).triu(-left), float("-inf"))
    more = [] if sinks is None else [sinks[-1:].double().expand(len(q), 1)]
    p = torch.softmax(torch.cat([s, *more], -1), -1)[:, : len(k)]
    dp = dout @ v.T
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
    ds = ds if capped is None else ds * (1 - capped * capped)
    return ds @ k, ds.T @ q, p.T @ dout


def same_again(judge):
    """`judge`, except that a result that is not bit-identical to the first one has an infinite error."""
    first = []

    def judged(found):
        first.extend(x.clone() for x in found if len(first) < 3)
        return judge(found) if all(map(torch.equal, first, found)) else float("inf")

    return judged


@suite(rounds=8, round_ms=20, places=["fa4"], head_dim=[], seqlen=[], dtype=("bf16", "fp16"), target="sm80",
    mask=("both", "full", "causal"), deterministic=False, cudnn=False, fa4_seconds=240.0)
def backward(bench):
    """Backward kernels, compared with FlashAttention-2's (PyTorch's flash backend), with --cudnn with cuDNN's, and with
    FlashAttention-4's if --fa4 names its folder.

    Without --quick every head dim of the grid, both masks, s 512 to 16384. All sides get the same O and LSE,
    FlashAttention-2's, except cuDNN, whose gradients are those of its own forward pass. With --cudnn all calls are
    launches: cuDNN's cannot be captured in a graph, and the attempt leaves PyTorch's random numbers unusable. Before
    and after timing dQ, dK and dV are compared with FlashAttention-2's, whole, and up to s 4096 with float64 gradients
    of one head. --deterministic times the deterministic option too, which must give the same bits again."""
    args = bench.args
    head_dims = args.head_dim or ([64, 128, 256] if args.quick else [d for d in HEAD_DIMS if d != 80])
    seqlens = args.seqlen or ([2048, 8192] if args.quick else sorted(SEQLENS))
    masks = {"both": (False, True), "full": (False,), "causal": (True,)}[args.mask]
    grid = [dense_shape(dim, seqlen, causal) for dim in head_dims for causal in masks for seqlen in seqlens]
    fa4 = bench.peers("fa4")
    for shape in bench.selected(grid, name_of, quick=None):
        kernel = kernel_name("bwd", shape["head_dim"], args.dtype, shape["causal"], args.target)
        held = bench.holding(kernel)
        if not held:
            continue
        point = Dense(shape, args.dtype, backward=True)
        o, lse, fa2 = fa2_backward(*point.qkv, point.causal)
        expected, exact = fa2(point.dout, o), None
        if shape["seqlen_q"] <= 4096:
            exact = exact_gradients(*(x[-1, :, -1] for x in (*point.qkv, point.dout)), point.causal)

        def judge(found):
            of_one = [norm_error(a[-1, :, -1], b) for a, b in zip(found, exact)] if exact else []
            return attention.worst([*map(norm_error, found, expected), *of_one])

        contenders = {}
        for label, library in held.items():
            contenders[label] = point.backward(library, kernel, o, lse, details={"kernel": kernel})
            if args.deterministic:
                contenders[f"{label} deterministic"] = point.backward(library, kernel, o, lse, deterministic=True,
                    judge=same_again(judge), details={"kernel": kernel})
        contenders["fa2"] = Contender(lambda: fa2(point.dout, o))
        if args.cudnn:
            attend = lambda *qkv: Sdpa("cudnn")(*qkv, point.causal)()
            contenders["cudnn"] = Contender(gradients_of(attend, point.qkv, point.dout)[1])
        contenders |= bench.on(name_of(shape), fa4,
            lambda peer: Contender(peer.backward(*point.qkv, o, point.dout, lse, point.causal)))
        # Largest relative error of a gradient's norm; several times the errors observed with random normal inputs.
        point.time(bench, name_of(shape), contenders, judge=judge, products=5, graph=False if args.cudnn else None,
            allowed={"bf16": 1.5e-2, "fp16": 4e-3}[args.dtype])
    return int(not bench.points)


SLOPED = ["window", "softcap", "alibi", "sinks"]  # kernels with all masks and scores; their causal mask is a window
OURS = ("plain", "window", "features")  # libraries, by the features of their kernels


def feature_cases(head_dims):
    """Name, shape, features, and the libraries that support the call."""
    for dim in head_dims:
        for causal in (False, True):
            for seqlen in (16384, 4096, 512):
                shape, ours = dense_shape(dim, seqlen, causal), OURS if seqlen == 16384 else ("plain", "features")
                yield attention.mask(causal), shape, {}, ours
        yield "window 1024 causal", dense_shape(dim, 16384, True), {"window": (1024, 0)}, OURS[1:]
        yield "window 512,512", dense_shape(dim, 16384, False), {"window": (512, 512)}, OURS[1:]
        for seqlen in (512, 2048, 8192, 16384):
            yield "softcap 30 causal", dense_shape(dim, seqlen, True), {"softcap": 30.0}, OURS[2:]
            yield "sinks causal", dense_shape(dim, seqlen, True), {"sinks": True}, OURS[2:]


def with_features(window=None, softcap=0.0, sinks=None):
    """A function that sets these features in parameters."""
    def change(p):
        if window:
            p.flags |= FLAG_WINDOW
            p.features.window_left, p.features.window_right = window
        p.features.softcap = softcap
        if sinks is not None:
            p.features.sinks, p.features.sinks_dtype, p.of_features = sinks.data_ptr(), 1, sinks
    return change


def middle_error(point, out, rows=256, sinks=None, **features):
    """The largest error of the middle rows of the first head, relative to the largest element."""
    first = out[0].shape[1] // 2
    if out[0].isnan().any():
        return float("nan")
    q, k, v = (x[:1, :, 0] for x in point.qkv)
    expected = attention.exact(q[:, first : first + rows], k, v, causal=point.causal, at=first,
        sinks=None if sinks is None else sinks[:1], **features)[0]
    return attention.largest_error(out[0][:1, first : first + rows, 0], expected)


@suite(library="", places=["fa3", "fa4"], head_dim=[64, 128, 256], fa4_seconds=240.0, compile_fa4=False)
def features(bench):
    """Windows, softcap and sinks, compared with FlashAttention-3 and -4, and the cost of features for plain calls.

    F='--target sm90 --kind fwd --dtype bf16 --head-dim 64,128,256'
    kgen build $F --build-dir build-plain
    kgen build $F --full --features window --build-dir build-window
    kgen build $F --full --features window,softcap,alibi,sinks --build-dir build-all
    python3 benches/dense.py features --library plain=build-plain/lib/libkgen.so --fa3 _vllm_fa3_C.abi3.so \\
        --library window=build-window/lib/libkgen.so --library features=build-all/lib/libkgen.so --fa4 site

    FA4 is a folder with `flash_attn/cute` and its imports, including CuTe DSL. It compiles a kernel for each new case,
    --fa4-seconds in total: `--compile-fa4` does only that, into FLASH_ATTENTION_CUTE_DSL_CACHE_DIR if
    FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1, so that several processes can do it in parallel beforehand. Graph replays.
    O of the middle rows of the first head is compared with float64. Ratios are to the library with the fewest features
    that the call needs."""
    args = bench.args
    if not args.compile_fa4 and not set(OURS) <= set(bench.libraries):
        return "features: --library plain=…, window=… and features=… are needed"
    peers = bench.peers(*([] if args.compile_fa4 else ["fa3"]), "fa4")
    case_of = lambda case: "{} d{head_dim} s{seqlen_q}".format(case[0], **case[1])
    for case in bench.selected(feature_cases(args.head_dim), case_of):
        _, shape, given, ours = case
        point, kept = Dense(shape), () if args.compile_fa4 else ours
        call = {**given, **({"sinks": torch.randn(shape["heads"], device="cuda", dtype=torch.bfloat16)}
            if "sinks" in given else {})}
        contenders = {name: point.forward(bench.libraries[name], change=with_features(**call)) for name in kept}
        contenders |= bench.on(case_of(case), peers, lambda peer: Contender(peer(*point.qkv, point.causal, **call)))
        if not args.compile_fa4:
            bench.point(case_of(case), shape, contenders, judge=lambda out: middle_error(point, out, **call),
                graph=True, details={**({"causal": True} if point.causal else {}), **given})


MASKED = [("causal", {}), ("window 256 causal", {"window": (255, 0)}), ("window 1024 causal", {"window": (1023, 0)}),
    ("window 512,512", {"window": (512, 512)}), ("softcap 30 causal", {"softcap": 30.0}), ("sinks causal", {"sinks": True})]


@suite(rounds=8, round_ms=12, head_dim=[64, 128, 256], seqlen=[8192, 2048], target="sm90")
def masked_backward(bench):
    """Backward kernels with windows, softcap and sinks, of one or several libraries.

    kgen build --filter "dtype == bf16 and target == sm90 and hdim in (64, 128, 256) and kind in (fwd, bwd) \
        and (plain or window) and not (paged or append or splitkv or packgqa or long or m128)"
    python3 benches/dense.py masked_backward --library before=old/libkgen.so --library kgen=build/lib/libkgen.so

    Kernels have a window or none (`causal`), or all of window, softcap, ALiBi and sinks, where the call needs more.
    O and the LSE are those of the same library. Gradients of one head are compared with float64. FLOPs are 10 per
    visible pair, head and column. Ratios are to the first library."""
    shapes = [(what, dense_shape(dim, seqlen, True), given) for seqlen in bench.args.seqlen for dim in bench.args.head_dim
        for what, given in MASKED]
    case_of = lambda case: f"{case[0]} d{case[1]['head_dim']} s{case[1]['seqlen_q']}"
    for case in bench.selected(shapes, case_of):
        what, shape, given = case
        features = ["window"] if "window" in given else SLOPED if given else []
        causal = not given
        name = lambda kind: kernel_name(kind, shape["head_dim"], "bf16", causal, bench.args.target, features)
        held = {label: library for label, library in bench.holding(name("bwd")).items() if library.holds(name("fwd"))}
        if not held:
            continue
        point, rows = Dense(shape, backward=True), shape["seqlen_q"]
        call = dict(given)
        if "sinks" in given:
            call["sinks"] = torch.randn(shape["heads"], device="cuda", dtype=torch.bfloat16)
        change = with_features(**{"window": (rows, 0), **call}) if given else lambda p: None
        exact = exact_gradients(*(x[-1, :, -1] for x in (*point.qkv, point.dout)), "window" not in given, **call)
        contenders = {}
        for label, library in held.items():
            made = point.forward(library, name("fwd"), change, causal)
            made.calls[0]()
            contenders[label] = point.backward(library, name("bwd"), *made.out, lambda p: change(p) or [], causal,
                details={"kernel": name("bwd")})
        left, right = given.get("window", (rows, 0))
        pairs = sum(min(row + right, rows - 1) - max(row - left, 0) + 1 for row in range(rows))
        point.time(bench, case_of(case), contenders, allowed=1.5e-2,
            judge=lambda found: attention.worst([norm_error(a[-1, :, -1], b) for a, b in zip(found, exact)]),
            flops=10 * shape["batch"] * shape["heads"] * pairs * shape["head_dim"], formula="10 B H pairs D",
            details={"what": what, **given})


OLD = {FwdParams: FwdParams.cache_entries.offset, BwdParams: BwdParams.dlse.offset}  # sizes in older libraries too


@suite("what", rounds=8, round_ms=10, seqlen=[1024, 4096])
def alibi_dlse(bench):
    """A signed ALiBi slope and the gradient of the LSE: kernels of two builds, and one kernel with and without dLSE.

    kgen build --filter "hdim in (64, 128) and dtype == bf16 and target in (sm80, sm90) \\
        and (alibi or kind == bwd and plain)"
    python3 benches/dense.py alibi_dlse --library before=old/libkgen.so --library kgen=build/lib/libkgen.so

    Slopes are 2^(-8 h / heads), the usual ones. Ratios are to the first library, and for dLSE to the call without it.
    Only NaN is refused: `kgen check` verifies these kernels."""
    newest = list(bench.libraries.values())[-1]
    shapes = [dense_shape(dim, seqlen, causal) for dim in (64, 128) for causal in (False, True)
        for seqlen in bench.args.seqlen]
    for shape in bench.selected(shapes, name_of):
        dim, heads, seqlen = shape["head_dim"], shape["heads"], shape["seqlen_q"]
        plain = kernel_name("bwd", dim, "bf16", shape["causal"], "sm90")
        point, slopes = Dense(shape, backward=True), torch.exp2(-8 * torch.arange(1, heads + 1, device="cuda") / heads)
        # An LSE of 8 is typical for random inputs; O need not belong to them.
        o, lse = point.dout.clone(), torch.full((shape["batch"], heads, seqlen), 8.0, device="cuda")

        def sloped(p):
            p.struct_size, p.slopes = OLD[type(p)], slopes.float()
            if point.causal:
                p.flags, p.features.window_left, p.features.window_right = FLAG_WINDOW, seqlen, 0
            p.features.alibi_slopes = p.slopes.data_ptr()
            return []

        def with_dlse(p):
            return put(p, dlse=torch.randn_like(lse)) and []

        def without(p):
            p.struct_size = OLD[BwdParams]
            return []

        sloped_name = lambda kind, target: kernel_name(kind, dim, "bf16", False, target, SLOPED)
        of_each = lambda change: {label: (library, change) for label, library in bench.libraries.items()}
        sides = {f"ALiBi {kind} {target}": (kind, sloped_name(kind, target), False, of_each(sloped))
            for kind, target in (("fwd", "sm90"), ("fwd", "sm80"), ("bwd", "sm90"))}
        sides["plain bwd sm90"] = "bwd", plain, None, of_each(without)
        sides["dLSE bwd sm90"] = "bwd", plain, None, {"without": (newest, without), "with dLSE": (newest, with_dlse)}
        for what, (kind, name, causal, calls) in sides.items():
            # A ratio is meaningful only if all sides exist.
            if len(calls) > 1 and all(library.holds(name) for library, _ in calls.values()):
                contenders = {label: point.forward(library, name, change, causal) if kind == "fwd"
                    else point.backward(library, name, o, lse, change, causal)
                    for label, (library, change) in calls.items()}
                bench.point(f"{what} {name_of(shape)}", shape, contenders, allowed=0.0, graph=False,
                    details={"what": what})


def small_shape(dim, seqlen, causal):
    """16 heads and 4096 tokens."""
    return {**dense_shape(dim, seqlen, causal), "batch": 4096 // seqlen, "heads": 16, "heads_k": 16}


def strided(p, name, tensor):
    """Sets the pointer and the strides of a matrix of scores; axes of size 1 are repeated."""
    put(p, **{name: tensor})
    for axis, extent, stride in zip(("batch", "head", "row", "column"), tensor.shape, tensor.stride()):
        setattr(p, f"{name}_{axis}_stride", 0 if extent == 1 else stride)


@suite("what", rounds=7, round_ms=8, head_dim=[64, 128], seqlen=[1024, 2048, 4096])
def bias(bench):
    """An additive bias, forward and backward with its gradient, compared with FlexAttention and
    scaled_dot_product_attention.

    kgen build --variants benches/bias_grid.toml --all
    python3 benches/dense.py bias --out bias.jsonl

    Needs a GPU of compute capability 8.0 or more. The bias is bf16: one for each batch entry and head, or one for all.
    FlexAttention is compiled with the bias in its score function. `cudnn` and `efficient` are backends of
    scaled_dot_product_attention; its flash backend takes no mask. Backward calls give dQ, dK, dV and dBias, in fp32 for
    kgen and in bf16 for its peers, the types that each supports; the peers' time is that of `torch.autograd.grad`. O
    and the gradients are compared with those of the `math` backend in fp32."""
    peers = bench.peers("flex", "sdpa efficient", "sdpa cudnn")
    cases = itertools.product(bench.args.head_dim, bench.args.seqlen, (False, True))
    names = lambda case: f"d{case[0]} s{case[1]} {'repeated' if case[2] else 'own'}"
    for dim, seqlen, repeated in bench.selected(cases, names):
        shape, what = small_shape(dim, seqlen, False), f"d{dim} s{seqlen} {'one bias' if repeated else 'a bias each'}"
        point, batch = Dense(shape, backward=True), shape["batch"]
        scores = attention.normal(*((1, 1) if repeated else (batch, 16)), seqlen, seqlen)
        # Peers get tensors that are contiguous as (batch, heads, seqlen, head_dim), their own order.
        turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (*point.qkv, point.dout)]
        wide = [x.float() for x in (*turned[:3], scores)]
        o, differentiated = gradients_of(Sdpa("math").masked, wide, turned[3].float())
        expected = differentiated()

        def with_bias(p):
            strided(p, "bias", scores)
            p.bias_dtype, dbias = 1, torch.empty(scores.shape, device="cuda")
            if isinstance(p, BwdParams):
                strided(p, "dbias", dbias)
            return [dbias]

        def own(kind, target, library):
            targets = {"bwd": target, "fwd": target if kind == "fwd" else "sm80"}
            name = lambda which: kernel_name(which, dim, "bf16", False, targets[which], ["bias"])
            return point.of_kind(kind, library, name, with_bias)

        sides = {
            "fwd": ([o], 0.01, 2, lambda attend: Contender(lambda: attend.masked(*turned[:3], scores))),
            "bwd": (expected, 0.02, 5,
                lambda attend: Contender(gradients_of(attend.masked, [*turned[:3], scores], turned[3])[1])),
        }
        for kind, (right, allowed, products, of_peer) in sides.items():
            contenders = bench.on(f"{kind} {what}", peers, of_peer)
            contenders |= {f"{label} {target}": own(kind, target, library) for target in ("sm80", "sm90")
                for label, library in bench.libraries.items()
                if library.holds(kernel_name(kind, dim, "bf16", False, target, ["bias"]))}
            point.time(bench, f"{kind} {what}", contenders, allowed=allowed, products=products, graph=False,
                judge=lambda out: attention.worst(map(norm_error, out, right)),
                details={"what": kind, "repeated": repeated})


@suite("what", rounds=7, round_ms=8, head_dim=[64, 128], seqlen=[1024, 4096])
def dropout(bench):
    """Dropout of attention weights, forward and backward, compared with FlashAttention-2 (PyTorch's flash backend).

    kgen build --filter 'hdim in (64, 128) and dtype == bf16 and target == sm80 and (dropout or plain)'
    python3 benches/dense.py dropout --out dropout.jsonl

    p is 0.1. `plain` is kgen's kernel without dropout. O is compared with float64 attention of the last rows under the
    mask that `kgen_attn.dropout_mask` gives; gradients are not compared (`kgen check` does that), nor is
    FlashAttention-2, whose mask is another one."""
    from kgen_attn import dropout_mask

    fa2, rows, chance = Sdpa("fa2"), 64, 0.1
    shapes = [small_shape(*case) for case in itertools.product(bench.args.head_dim, bench.args.seqlen, (False, True))]
    for shape in bench.selected(shapes, name_of):
        point, state = Dense(shape, backward=True), torch.randint(0, 2**31, (2,), device="cuda")

        def error(out):
            """The error of the last rows of the last head of the last batch entry."""
            q, k, v = (x[-1:, :, -1] for x in point.qkv)
            sizes = [shape[name] for name in ("batch", "heads", "seqlen_q", "seqlen_k")]
            kept = dropout_mask(state, chance, *sizes)[-1, -1, -rows:]
            expected = attention.exact(q[:, -rows:], k, v, causal=point.causal, kept=kept.double() / (1 - chance))[0]
            return norm_error(out[0][-1:, -rows:, -1], expected)

        def own(kind, p):
            change = lambda params: put(params, p_dropout=p, rng_state=state) and []
            name = lambda which: kernel_name(which, shape["head_dim"], "bf16", shape["causal"], "sm80",
                ["dropout"] if p else [])
            return point.of_kind(kind, bench.library, name, change, judge=error if p else unjudged)

        attend = lambda *qkv: fa2(*qkv, causal=point.causal, dropout_p=chance)()
        peers = {"fwd": lambda: attend(*point.qkv), "bwd": gradients_of(attend, point.qkv, point.dout)[1]}
        for kind, products in (("fwd", 2), ("bwd", 5)):
            contenders = {"kgen": own(kind, chance), "plain": own(kind, 0.0), "fa2": Contender(peers[kind])}
            point.time(bench, f"{kind} {name_of(shape)}", contenders, judge=unjudged, allowed=0.02, graph=False,
                products=products, details={"what": kind})


if __name__ == "__main__":
    main(__doc__)
