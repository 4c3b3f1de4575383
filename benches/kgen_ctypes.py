"""The C interface of kgen (generated/include/kgen.h) for Python measurements: ctypes over torch tensors."""

import ctypes
import pathlib
import sys

import torch

# The structures of attention are those of the Python package, whose module needs nothing else of it.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
from kgen_attn import abi  # noqa: E402
from kgen_attn.abi import (  # noqa: E402, F401
    FLAG_CAUSAL,
    FLAG_DETERMINISTIC,
    FLAG_ROTARY_INTERLEAVED,
    FLAG_WINDOW,
    AppendKvParams,
    AttentionFeatures,
    BwdParams,
    DeclaredScore,
    FwdParams,
)

DTYPES = {getattr(torch, name): number for name, number in abi.DTYPES.items()}
REDUCTIONS = {"sum": 0, "max": 1, "logsumexp": 2}
PATHS = ["DENSE", "SHORT", "SPLIT", "SCHEDULED", "MIXED", "PACKED"]
FLAG_MERGE_BY_LAUNCH, FLAG_MERGE_BY_LAST_BLOCK = 0x4000, 0x8000
FLAG_PATHS = {path: 0x100 << number for number, path in enumerate(PATHS)}


def quantised(x):
    """(batch, seqlen, heads, head_dim) as E4M3, and its descales (batch, heads): amax / 448 each."""
    scale = x.abs().amax(dim=(1, 3)).float() / 448
    return (x.float() / scale[:, None, :, None]).to(torch.float8_e4m3fn), scale


def fwd_params(q, k, v, o, lse, causal, scale=None, descales=None):
    """Parameters for (batch, seqlen, heads, head_dim) tensors, of which V and O may have a head dim of their own; the
    caller keeps the tensors alive. `descales` of Q, K and
    V, (batch, key heads) in fp32 each, go with FP8."""
    p = FwdParams(struct_size=ctypes.sizeof(FwdParams), flags=FLAG_CAUSAL if causal else 0)
    for name, t in zip("qkvo", (q, k, v, o)):
        setattr(p, name, t.data_ptr())
        for axis, stride in zip(("batch", "row", "head"), t.stride()):
            setattr(p, f"{name}_{axis}_stride", stride)
    p.lse = lse.data_ptr()
    p.lse_batch_stride, p.lse_head_stride = lse.stride(0), lse.stride(1)
    p.batch, p.seqlen_q, p.num_heads, p.head_dim = q.shape
    p.seqlen_k, p.num_heads_k, p.head_dim_v = k.shape[1], k.shape[2], v.shape[3]
    p.dtype = DTYPES[q.dtype]
    p.softmax_scale = scale if scale is not None else q.shape[-1] ** -0.5
    for name, descale in zip("qkv", descales or ()):
        setattr(p, f"{name}_descale", descale.data_ptr())
        for axis, stride in zip(("batch", "head"), descale.stride()):
            setattr(p, f"{name}_descale_{axis}_stride", stride)
    return p


class Candidate(ctypes.Structure):
    """`kgen_candidate`, field for field."""

    _fields_ = [
        ("path", ctypes.c_int32),
        ("num_splits", ctypes.c_int32),
        ("variant", ctypes.c_char_p),
        ("excluded", ctypes.c_char_p),
        ("workspace_bytes", ctypes.c_size_t),
        *[(f"{part}_ns", ctypes.c_double) for part in ("predicted", "launch", "tile", "chain", "step", "memory", "combine", "scheduler")],
        *[(name, ctypes.c_int32) for name in ("by_last_block", "reserved")],
    ]


class Choice(ctypes.Structure):
    """`kgen_choice`, field for field."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("candidate_size", ctypes.c_uint32),
        ("candidates", ctypes.POINTER(Candidate)),
        *[(name, ctypes.c_int32) for name in ("capacity", "count", "chosen", "multiprocessors")],
    ]


def bwd_params(tensors, lse, causal, deterministic=False, scale=None):
    """Parameters for `tensors` = {q, k, v, o, dout, dq, dk, dv}, each (batch, seqlen, heads, head_dim), without a
    workspace; the caller keeps the tensors alive."""
    flags = (FLAG_CAUSAL if causal else 0) | (FLAG_DETERMINISTIC if deterministic else 0)
    p = BwdParams(struct_size=ctypes.sizeof(BwdParams), flags=flags)
    for name, t in tensors.items():
        setattr(p, name, t.data_ptr())
        for axis, stride in zip(("batch", "row", "head"), t.stride()):
            setattr(p, f"{name}_{axis}_stride", stride)
    q, k = tensors["q"], tensors["k"]
    p.lse = lse.data_ptr()
    p.lse_batch_stride, p.lse_head_stride = lse.stride(0), lse.stride(1)
    p.batch, p.seqlen_q, p.num_heads, p.head_dim = q.shape
    p.seqlen_k, p.num_heads_k, p.head_dim_v = k.shape[1], k.shape[2], tensors["v"].shape[3]
    p.dtype = DTYPES[q.dtype]
    p.softmax_scale = scale if scale is not None else q.shape[-1] ** -0.5
    return p


class VectorAddParams(ctypes.Structure):
    """`kgen_vector_add_params`, field for field."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        *[(name, ctypes.c_void_p) for name in ("a", "b", "out")],
        ("count", ctypes.c_uint64),
        *[(name, ctypes.c_int32) for name in ("dtype", "reserved")],
    ]


class TransposeParams(ctypes.Structure):
    """`kgen_transpose_params`, field for field."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        *[("in", ctypes.c_void_p), ("out", ctypes.c_void_p)],
        *[(name, ctypes.c_uint64) for name in ("rows", "columns")],
        *[(name, ctypes.c_int32) for name in ("element_bytes", "reserved")],
    ]


class ReduceParams(ctypes.Structure):
    """`kgen_reduce_params`, field for field."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        *[(name, ctypes.c_void_p) for name in ("in", "out", "workspace")],
        ("workspace_bytes", ctypes.c_size_t),
        *[(name, ctypes.c_uint64) for name in ("rows", "columns")],
        *[(name, ctypes.c_int32) for name in ("dtype", "operation")],
    ]


def append_kv_params(k, v, k_cache, v_cache, cache_seqlens, page_table=None, q=None, q_out=None, cos=None, sin=None):
    """Parameters for (batch, seqlen, heads, head_dim) tensors K, V and Q, and caches of (pages or batch entries, rows, heads, head_dim).
    The caller keeps the tensors alive, and sets flags and what else there is itself."""
    p = AppendKvParams(struct_size=ctypes.sizeof(AppendKvParams))
    given = {"k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache, "q": q, "q_out": q_out}
    for name, t in given.items():
        if t is None:
            continue
        setattr(p, name, t.data_ptr())
        first = "page" if name.endswith("cache") else "batch"
        for axis, stride in zip((first, "row", "head"), t.stride()):
            setattr(p, f"{name}_{axis}_stride", stride)
    p.cache_seqlens = cache_seqlens.data_ptr()
    p.batch, p.seqlen_new, p.num_heads_k, p.head_dim = k.shape
    p.head_dim_v = v.shape[3]
    p.num_pages, p.page_size = k_cache.shape[:2]
    p.dtype, p.cache_dtype = DTYPES[k.dtype], DTYPES[k_cache.dtype]
    if page_table is not None:
        p.page_table, p.page_table_stride, p.pages_per_sequence = page_table.data_ptr(), page_table.stride(0), page_table.shape[1]
    if q is not None:
        p.seqlen_q, p.num_heads = q.shape[1:3]
    if cos is not None:
        p.rotary_cos, p.rotary_sin, p.rotary_row_stride = cos.data_ptr(), sin.data_ptr(), cos.stride(0)
        p.rotary_rows, p.rotary_dim = cos.shape[0], 2 * cos.shape[1]
    return p


def vector_add_params(a, b, out):
    """Parameters for contiguous vectors of one length; the caller keeps them alive."""
    p = VectorAddParams(ctypes.sizeof(VectorAddParams), 0, a.data_ptr(), b.data_ptr(), out.data_ptr())
    p.count, p.dtype = a.numel(), DTYPES[a.dtype]
    return p


def transpose_params(x, out):
    """Parameters for a contiguous (rows, columns) matrix and its transposition; `out` may be `x` itself."""
    p = TransposeParams(ctypes.sizeof(TransposeParams), 0, x.data_ptr(), out.data_ptr())
    (p.rows, p.columns), p.element_bytes = x.shape, x.element_size()
    return p


def reduce_params(x, out, operation):
    """Parameters for a contiguous (rows, columns) matrix and its rows' results in fp32, without a workspace. `operation` is a key of
    REDUCTIONS."""
    p = ReduceParams(ctypes.sizeof(ReduceParams), 0, x.data_ptr(), out.data_ptr())
    (p.rows, p.columns), p.dtype, p.operation = x.shape, DTYPES[x.dtype], REDUCTIONS[operation]
    return p


class Library:
    """A built libkgen.so, or a shared library of one variant."""

    def __init__(self, path):
        self.path = path
        self.lib = ctypes.CDLL(str(pathlib.Path(path).absolute()))

    def holds(self, name):
        """Whether there is a launcher of that name."""
        return hasattr(self.lib, name)

    def launcher(self, name):
        """A callable `launch(params)` on torch's current stream; raises on any error code."""
        function = getattr(self.lib, name)
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        function.restype = ctypes.c_int

        def launch(params):
            code = function(ctypes.byref(params), torch.cuda.current_stream().cuda_stream)
            if code != 0:
                raise RuntimeError(f"{name}: kgen error {code}: {self.last_error()}")

        return launch

    def last_error(self):
        """What went wrong in this thread's last failed call. A library of one variant does not say."""
        if not self.holds("kgen_last_error"):
            return "no message"
        self.lib.kgen_last_error.restype = ctypes.c_char_p
        return self.lib.kgen_last_error().decode(errors="replace")

    def explain(self, params):
        """The candidates of `kgen_fwd(params)` and the place of the chosen one, None where the call would fail."""
        rows = (Candidate * 64)()
        choice = Choice(ctypes.sizeof(Choice), ctypes.sizeof(Candidate), rows, len(rows))
        function = self.lib.kgen_explain_choice
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int
        function(ctypes.byref(params), ctypes.byref(choice))
        return list(rows[: choice.count]), choice.chosen if choice.chosen >= 0 else None

    def workspace_bytes(self, params, name="kgen_fwd"):
        """Bytes of workspace that a call asks for."""
        function = getattr(self.lib, f"{name}_workspace")
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_size_t
        return function(ctypes.byref(params))

    def workspace(self, name, params):
        """The workspace that a launch of `name` asks for, entered in `params`; the caller keeps it."""
        function = getattr(self.lib, f"{name}_workspace")
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_size_t
        size = function(ctypes.byref(params))
        workspace = torch.full((max(1, size),), 0xFF, device="cuda", dtype=torch.uint8)
        params.workspace, params.workspace_bytes = workspace.data_ptr(), size
        return workspace
