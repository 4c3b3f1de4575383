"""The C interface of kgen (generated/include/kgen.h) for measurements: ctypes over torch tensors.

Parameters keep their tensors alive. The structures of attention come from the Python package.
"""

import ctypes
import sys
from pathlib import Path

try:
    import torch
except ImportError:
    torch = None

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from kgen_attn import abi  # noqa: E402
from kgen_attn.abi import (  # noqa: E402, F401
    FLAG_CAUSAL, FLAG_DETERMINISTIC, FLAG_MERGE_BY_LAST_BLOCK, FLAG_MERGE_BY_LAUNCH, FLAG_ROTARY_INTERLEAVED,
    FLAG_WINDOW, REDUCTIONS, AppendKvParams, AttentionFeatures, BwdParams, Candidate, Choice, DeclaredScore, FwdParams,
    ReduceParams, RmsnormParams, TransposeParams, VectorAddParams,
)

DTYPES = {getattr(torch, name): number for name, number in abi.DTYPES.items()} if torch else {}
DTYPE_NUMBERS = {  # by the words of kgen's flags
    word: abi.DTYPES[name] for word, name in (("fp16", "float16"), ("bf16", "bfloat16"), ("fp8", "float8_e4m3fn"))
}
PATHS = [path.upper() for path in abi.PATHS]
FLAG_PATHS = {path: getattr(abi, f"FLAG_PATH_{path}") for path in PATHS}
PARTS = ("predicted", "launch", "tile", "chain", "step", "memory", "combine", "scheduler")  # parts of a prediction


def made(structure, flags=0, **fields):
    """A structure with these fields."""
    return put(structure(struct_size=ctypes.sizeof(structure), flags=flags), **fields)


def put(p, **fields):
    """Sets fields: numbers unchanged, tensors as addresses, together with the strides that the structure has for them.
    Tensors of rows are (batch or page, row, head, …) or, packed, (row, head, …); the LSE (batch, head, row) or (head,
    row); descales (batch, head)."""
    names = {name for name, _ in p._fields_}
    for name, value in fields.items():
        if not hasattr(value, "data_ptr"):
            setattr(p, name, value)
            continue
        p.__dict__.setdefault("kept", []).append(value)
        setattr(p, name, value.data_ptr())
        axes = [axis for axis in ("batch", "page", "row", "head") if f"{name}_{axis}_stride" in names]
        axes = axes[1:] if value.dim() == (3 if "row" in axes else 2) and not name.endswith("descale") else axes
        for axis, stride in zip(axes, value.stride()):
            setattr(p, f"{name}_{axis}_stride", stride)
    return p


def fwd_params(q, k, v, o, lse, causal, scale=None, descales=None, flags=0, **fields):
    """Parameters of `kgen_fwd`. Q, K, V and O are (batch, seqlen, heads, head_dim), or (rows, heads, head_dim) with
    `cu_seqlens_q` among the fields; K and V may be caches of pages, with `page_table`. `descales` of Q, K and V,
    (batch, key heads) in fp32 each, are for FP8."""
    p = made(FwdParams, (FLAG_CAUSAL if causal else 0) | flags, q=q, k=k, v=v, o=o, lse=lse)
    p.num_heads, p.head_dim, p.num_heads_k, p.head_dim_v = q.shape[-2], q.shape[-1], k.shape[-2], v.shape[-1]
    if q.dim() == 4:
        p.batch, p.seqlen_q = q.shape[:2]
        p.seqlen_k = k.shape[1]
    if "page_table" in fields:
        table = fields["page_table"]
        p.page_table_stride, p.page_size, p.num_pages = table.stride(0), k.shape[1], k.shape[0]
    p.dtype = DTYPES[q.dtype]
    p.softmax_scale = scale if scale is not None else q.shape[-1] ** -0.5
    return put(p, **dict(zip(("q_descale", "k_descale", "v_descale"), descales or ())), **fields)


def packed_params(q, k, v, o, lse, causal, queries, keys, starts, **fields):
    """Parameters of `kgen_fwd` for Q (rows, heads, head_dim) of sequences that have these numbers of queries and
    keys."""
    common = {"batch": len(queries), "seqlen_q": max(queries), "seqlen_k": max(keys), "total_q": sum(queries),
        "total_k": sum(keys)}
    return fwd_params(q, k, v, o, lse, causal, **{**common, "cu_seqlens_q": starts, **fields})


def bwd_params(tensors, lse, causal, deterministic=False, scale=None, **fields):
    """Parameters of `kgen_bwd` for `tensors` = {q, k, v, o, dout, dq, dk, dv}, each (batch, seqlen, heads,
    head_dim)."""
    flags = (FLAG_CAUSAL if causal else 0) | (FLAG_DETERMINISTIC if deterministic else 0)
    p, (q, k, v) = made(BwdParams, flags, lse=lse, **tensors), (tensors[name] for name in "qkv")
    p.batch, p.seqlen_q, p.num_heads, p.head_dim = q.shape
    p.seqlen_k, p.num_heads_k, p.head_dim_v = k.shape[1], k.shape[2], v.shape[3]
    p.dtype, p.softmax_scale = DTYPES[q.dtype], scale if scale is not None else q.shape[-1] ** -0.5
    return put(p, **fields)


def append_kv_params(k, v, k_cache, v_cache, cache_seqlens, page_table=None, q=None, q_out=None, cos=None, sin=None,
        **fields):
    """Parameters of `kgen_append_kv` for (batch, seqlen, heads, head_dim) tensors K, V and Q, and caches of (pages or
    batch entries, rows, heads, head_dim)."""
    given = {"k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache, "q": q, "q_out": q_out,
        "cache_seqlens": cache_seqlens}
    given |= {"page_table": page_table, "rotary_cos": cos, "rotary_sin": sin}
    p = made(AppendKvParams, **{name: value for name, value in given.items() if value is not None})
    p.batch, p.seqlen_new, p.num_heads_k, p.head_dim = k.shape
    p.head_dim_v = v.shape[3]
    p.num_pages, p.page_size = k_cache.shape[:2]
    p.dtype, p.cache_dtype = DTYPES[k.dtype], DTYPES[k_cache.dtype]
    if page_table is not None:
        p.page_table_stride, p.pages_per_sequence = page_table.stride(0), page_table.shape[1]
    if q is not None:
        p.seqlen_q, p.num_heads = q.shape[1:3]
    if cos is not None:
        p.rotary_row_stride, p.rotary_rows, p.rotary_dim = cos.stride(0), cos.shape[0], 2 * cos.shape[1]
    return put(p, **fields)


def vector_add_params(a, b, out):
    """Parameters for contiguous vectors of one length."""
    return made(VectorAddParams, a=a, b=b, out=out, count=a.numel(), dtype=DTYPES[a.dtype])


def transpose_params(x, out):
    """Parameters for a contiguous (rows, columns) matrix and its transposition; `out` may be `x` itself."""
    return made(TransposeParams, **{"in": x}, out=out, rows=x.shape[0], columns=x.shape[1],
        element_bytes=x.element_size())


def reduce_params(x, out, operation):
    """Parameters for a contiguous (rows, columns) matrix and its rows' results in fp32. `operation` is a key of
    REDUCTIONS."""
    rows, columns = x.shape
    return made(ReduceParams, **{"in": x}, out=out, rows=rows, columns=columns, dtype=DTYPES[x.dtype],
        operation=REDUCTIONS[operation])


def rmsnorm_params(x, residual, weight, out, residual_out, eps):
    """Parameters for (rows, columns) matrices."""
    rows, columns = x.shape
    strides = {"in_row_stride": x, "residual_row_stride": residual, "out_row_stride": out,
        "residual_out_row_stride": residual_out}
    return made(RmsnormParams, **{"in": x}, residual=residual, weight=weight, out=out, residual_out=residual_out,
        rows=rows, columns=columns, eps=eps, dtype=DTYPES[x.dtype],
        **{name: tensor.stride(0) for name, tensor in strides.items()})


class Library:
    """A built libkgen.so, or a shared library of one variant."""

    def __init__(self, path):
        self.path, self.scratch = str(path), []
        self.lib = ctypes.CDLL(str(Path(path).absolute()))

    def holds(self, name):
        """True if there is a launcher of that name."""
        return hasattr(self.lib, name)

    def launcher(self, name):
        """A callable `launch(*params)` on torch's current stream; raises on any error code."""
        function = getattr(self.lib, name)
        function.restype = ctypes.c_int

        def launch(*params):
            code = function(*map(ctypes.byref, params), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            if code != 0:
                raise RuntimeError(f"{name}: kgen error {code}: {self.last_error()}")

        return launch

    def call(self, name, *params):
        """A callable without arguments that launches `name` with these parameters; the last of them gets the workspace
        it requests."""
        if self.holds(f"{name}_workspace"):
            self.workspace(name, params[-1])
        launch = self.launcher(name)
        return lambda: launch(*params)

    def last_error(self):
        """The message of this thread's last failed call; a library of one variant has none."""
        if not self.holds("kgen_last_error"):
            return "no message"
        self.lib.kgen_last_error.restype = ctypes.c_char_p
        return self.lib.kgen_last_error().decode(errors="replace")

    def explain(self, params):
        """The candidates of `kgen_fwd(params)` and the index of the chosen one, None if the call would fail."""
        rows = (Candidate * 64)()
        choice = Choice(ctypes.sizeof(Choice), ctypes.sizeof(Candidate), rows, len(rows))
        self.lib.kgen_explain_choice(ctypes.byref(params), ctypes.byref(choice))
        return list(rows[: choice.count]), choice.chosen if choice.chosen >= 0 else None

    def ways(self, params):
        """The paths that `kgen_fwd(params)` could take, by name."""
        return sorted({PATHS[way.path] for way in self.explain(params)[0] if way.variant and not way.excluded})

    def workspace_bytes(self, params, name="kgen_fwd"):
        """Bytes of workspace that a call requests."""
        function = getattr(self.lib, f"{name}_workspace")
        function.restype = ctypes.c_size_t
        return function(ctypes.byref(params))

    def workspace(self, name, params):
        """Sets the workspace that a launch of `name` requests. Calls of a library run one after another and share one;
        it is never zero at the start of a call."""
        size = self.workspace_bytes(params, name)
        if not self.scratch or self.scratch[-1].numel() < size:
            self.scratch.append(torch.full((max(1, size),), 0xFF, device="cuda", dtype=torch.uint8))
        put(params, workspace=self.scratch[-1])
        params.workspace_bytes = size
