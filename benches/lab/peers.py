"""Peers that kgen is compared with. Each is imported on first use; one that a machine lacks raises `Absent` with its
name and the remedy.

Dense calls take (batch, seqlen, heads, head_dim) tensors and return O in the same form.
"""

import ctypes
import inspect
import sys
import time
from pathlib import Path

try:
    import torch
except ImportError:
    torch = None

sys.path.append(str(Path(__file__).resolve().parents[2] / "python"))
from kgen_peers.errors import Absent, first_line

RUN_BY = {"window_size_left": -1, "window_size_right": -1, "softcap": 0.0, "sm_margin": 0, "cp_world_size": 1,
    "cp_rank": 0}


def imported(name, module, remedy, site=None):
    """A module; raises `Absent` with the peer's name if it is missing."""
    if site and str(site) not in sys.path:
        sys.path[:0] = [str(site), f"{site}/nvidia_cutlass_dsl/dsl_packages"]
    try:
        return __import__(module, fromlist=["*"])
    except (ImportError, OSError, RuntimeError) as error:
        raise Absent(f"{name} is absent ({first_line(error)}): {remedy}") from error


def found(makers):
    """({name: peer}, {name: reason}) of {name: function that creates it}."""
    peers, absent = {}, {}
    for name, make in makers.items():
        try:
            peers[name] = make()
        except Absent as why:
            absent[name] = str(why)
    return peers, absent


class Sdpa:
    """PyTorch's scaled_dot_product_attention with a fixed backend: `fa2` is FlashAttention-2, `cudnn` cuDNN."""

    def __init__(self, name):
        if torch is None:
            raise Absent(f"{name} is absent: PyTorch is not installed")
        from torch.nn.attention import SDPBackend, sdpa_kernel

        self.backend = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}[name]
        self.pinned = sdpa_kernel

    def __call__(self, q, k, v, causal=False, **given):
        across, grouped = [x.transpose(1, 2) for x in (q, k, v)], q.shape[2] != k.shape[2]

        def attend():
            with self.pinned(self.backend):
                attention = torch.nn.functional.scaled_dot_product_attention
                return attention(*across, is_causal=causal, enable_gqa=grouped, **given).transpose(1, 2)

        return attend

    def masked(self, q, k, v, bias):
        """O with a bias (batch or 1, heads or 1, seqlen, seqlen), computed immediately."""
        return self(q, k, v, attn_mask=bias)()


class FlexAttention:
    """PyTorch's FlexAttention, compiled with a bias in its score function."""

    def __init__(self):
        attend = imported("flex", "torch.nn.attention.flex_attention", "this torch is too old").flex_attention
        torch._dynamo.config.recompile_limit = 1000  # beyond it, calls of further shapes are not compiled
        self.compiled = torch.compile(attend, dynamic=False)

    def masked(self, q, k, v, bias):
        batches, heads = bias.shape[:2]
        across = [x.transpose(1, 2) for x in (q, k, v)]
        score = lambda s, b, h, i, j: s + bias[b % batches, h % heads, i, j]
        return self.compiled(*across, score_mod=score).transpose(1, 2)


def gradients_of(attend, inputs, dout):
    """O = attend(*inputs), and its gradients by the inputs as a function that PyTorch's autograd computes anew."""
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_() for x in inputs]
        o = attend(*inputs)
    return o.detach(), lambda: torch.autograd.grad(o, inputs, dout, retain_graph=True)


def fa2_backward(q, k, v, causal, scale=None):
    """FlashAttention-2's forward pass: O, LSE (batch, heads, seqlen), and its backward pass as a function of dO and
    O."""
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    forward = torch.ops.aten._scaled_dot_product_flash_attention
    out, lse, cu_q, cu_k, max_q, max_k, seed, offset, _ = forward(*turned, 0.0, causal, False, scale=scale)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_backward

    def gradients(dout, given):
        turned_back = dout.transpose(1, 2), *turned, given.transpose(1, 2), lse
        found = backward(*turned_back, cu_q, cu_k, max_q, max_k, 0.0, causal, seed, offset, scale=scale)
        return [x.transpose(1, 2) for x in found]

    return out.transpose(1, 2), lse, gradients


class Fa3Wheel:
    """FlashAttention-3 from the wheel `fa3-fwd`: bf16 and FP8."""

    def __init__(self, site=None):
        remedy = "fetch it with scripts/fetch_peers.sh and name its folder with --site"
        self.attend = imported("fa3", "fa3_fwd_interface", remedy, site).flash_attn_func

    def __call__(self, q, k, v, causal=False, descales=None):
        # One split by default; 0 lets FA3 choose, which decoding needs.
        given = {"num_splits": 0} if q.shape[1] == 1 else {}
        given |= dict(zip(("q_descale", "k_descale", "v_descale"), descales or ()))

        def attend():
            out = self.attend(q, k, v, causal=causal, **given)
            return out[0] if isinstance(out, tuple) else out

        return attend


class Fa3:
    """FlashAttention-3 from the library in vLLM's wheel: packed and paged, with every feature."""

    def __init__(self, path):
        if torch is None or not Path(path or "").is_file():
            raise Absent(
                f"fa3 is absent: `{path}` is no file; _vllm_fa3_C.abi3.so comes from vLLM's wheel (benches/README.md)")
        torch.ops.load_library(str(path))
        self.fwd = torch.ops._vllm_fa3_C.fwd.default
        self.metadata_op = torch.ops._vllm_fa3_C.get_scheduler_metadata.default

    @staticmethod
    def arguments(op, given):
        default = lambda a: a.default_value if a.has_default_value() else None
        return [given.get(a.name, default(a)) for a in op._schema.arguments]

    def call(self, q, k, v, *, metadata=None, **given):
        """A call on rows of heads, which returns O; if `metadata` is not None, its scheduler runs once, with these
        arguments."""
        given = {**RUN_BY, "attention_chunk": 0, "is_rotary_interleaved": False, "softmax_scale": q.shape[-1] ** -0.5,
            **given}
        if metadata is not None:
            sizes = {"num_heads": q.shape[-2], "num_heads_k": k.shape[-2], "headdim": q.shape[-1],
                "headdim_v": v.shape[-1]}
            sizes |= {"qkv_dtype": k.dtype, "max_seqlen_k_new": 0, "has_softcap": False,
                "batch_size": len(given["cu_seqlens_q"]) - 1}
            given["scheduler_metadata"] = self.metadata_op(
                *self.arguments(self.metadata_op, {**given, **sizes, **metadata}))
        arguments = self.arguments(self.fwd, {**given, "q": q, "k": k, "v": v})
        return lambda: self.fwd(*arguments)[0]

    def __call__(self, q, k, v, causal=False, descales=None, window=None, softcap=0.0, sinks=None, splits=1, used=None):
        (batch, seqlen, _, _), keys = q.shape, k.shape[1]
        starts = lambda length: torch.arange(0, (batch + 1) * length, length, device="cuda", dtype=torch.int32)
        flat = lambda x: x.reshape(-1, *x.shape[2:])
        left, right = window or (-1, -1)
        # Sequences that do not fill their keys are passed as a batch of K and V.
        of_k = {"seqused_k": used} if used is not None else {"cu_seqlens_k": starts(keys)}
        call = self.call(
            flat(q), *((k, v) if used is not None else (flat(k), flat(v))), **of_k, cu_seqlens_q=starts(seqlen),
            max_seqlen_q=seqlen,
            max_seqlen_k=keys, is_causal=causal, window_size_left=left, window_size_right=right, softcap=softcap,
            s_aux=sinks, num_splits=splits, **dict(zip(("q_descale", "k_descale", "v_descale"), descales or ())),
        )
        return lambda: call().unflatten(0, (batch, seqlen))


class Fa4:
    """FlashAttention-4's functions for Hopper; it compiles a kernel for each new case, taking `seconds` in total."""

    def __init__(self, site, seconds):
        remedy = "unpack flash-attn-4 and CuTe DSL into a folder and name it with --fa4"
        self.made, self.seconds = imported("fa4", "flash_attn.cute.interface", remedy, site), seconds
        self.compiled = set()

    def __call__(self, q, k, v, causal=False, window=None, softcap=0.0, sinks=None):
        left, right = window or (None, None)
        given = {"causal": causal, "window_size_left": left, "window_size_right": right, "softcap": softcap or None}
        given |= {"learnable_sink": sinks, "return_lse": True, "out": torch.empty_like(q)}
        given["lse"] = torch.empty(q.shape[0], q.shape[2], q.shape[1], device="cuda")
        call = lambda: self.made._flash_attn_fwd(q, k, v, **given)[0]
        return self.once(call, ("fwd", q.shape[-1], causal, window is not None, softcap, sinks is not None))

    def backward(self, q, k, v, o, dout, lse, causal=False):
        """dQ, dK and dV; the LSE is (batch, heads, seqlen)."""
        call = lambda: list(self.made._flash_attn_bwd(q, k, v, o, dout, lse, causal=causal)[:3])
        return self.once(call, ("bwd", q.shape[-1], causal))

    def once(self, call, case):
        """`call`, after its kernel has been compiled."""
        if case not in self.compiled:
            if self.seconds <= 0:
                raise Absent("fa4 has not compiled this case: no time is left of --fa4-seconds")
            begun = time.monotonic()
            call()
            torch.cuda.synchronize()
            self.seconds -= time.monotonic() - begun
            self.compiled.add(case)
        return call


class Varlen:
    """PyTorch's `varlen_attn` (2.10 or newer), on packed sequences."""

    def __init__(self):
        self.attend = imported("varlen_attn", "torch.nn.attention.varlen", "it needs PyTorch 2.10 or newer").varlen_attn

    def __call__(self, q, k, v, starts, longest, causal):
        # Some versions of PyTorch accept fewer key heads without a flag.
        told = "enable_gqa" in inspect.signature(self.attend).parameters and q.shape[1] != k.shape[1]
        given = {**({"enable_gqa": True} if told else {}), **({"window_size": (-1, 0)} if causal else {})}
        return lambda: self.attend(q, k, v, starts, starts, longest, longest, **given)


def flash_mla():
    return imported("flash_mla", "flash_mla", "install FlashMLA")


def cupy():
    return imported("cupy", "cupy", "install CuPy")


def compiled(function):
    """`function` through torch.compile, specialised for the shapes of its first call."""
    torch._dynamo.reset()  # otherwise it stops compiling after a few cases
    return torch.compile(function, dynamic=False)


def cuda_memcpy():
    """`copy(out, x)` by cudaMemcpyAsync from the runtime that PyTorch has loaded."""
    with open("/proc/self/maps") as maps:
        loaded = sorted({line.split()[-1] for line in maps if "libcudart" in line})
    if not loaded:
        raise Absent("cudaMemcpy is absent: no libcudart.so is loaded; Tensor.copy_ calls it too")
    runtime = ctypes.CDLL(loaded[0])

    def copy(out, x):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        size, device_to_device = ctypes.c_size_t(x.nbytes), 3
        code = runtime.cudaMemcpyAsync(ctypes.c_void_p(out.data_ptr()), ctypes.c_void_p(x.data_ptr()), size,
            device_to_device, stream)
        if code != 0:
            raise RuntimeError(f"cudaMemcpyAsync: CUDA error {code}")

    return copy


# Functions that create a peer from a suite's arguments, by the name in rows. `Fa3` is selected by passing its file.
MAKERS = {
    "fa2": lambda args: Sdpa("fa2"), "cudnn": lambda args: Sdpa("cudnn"), "fa3": lambda args: Fa3(args.fa3),
    "fa3 wheel": lambda args: Fa3Wheel(args.site), "fa4": lambda args: Fa4(args.fa4, args.fa4_seconds),
    "varlen_attn": lambda args: Varlen(), "flash_mla": lambda args: flash_mla(), "flex": lambda args: FlexAttention(),
    "sdpa efficient": lambda args: Sdpa("efficient"), "sdpa cudnn": lambda args: Sdpa("cudnn"),
}
