"""The forward pass, `kgen_fwd`, on tensors: one launch, or two if keys are split."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Optional

import torch

from . import abi, features, host_values
from .arguments import NAMES
from .bias import enter_bias
from .errors import KgenError, MissingKernel
from .features import TENSORS, WITHOUT_NUMBERS
from .launch import (
    DTYPES,
    EIGHTS,
    HALVES,
    MOST_PLANS,
    POINTER,
    Plan,
    TensorOrNone,
    check_beside,
    check_device,
    check_host,
    check_integers,
    check_signs,
    contiguous,
    enter_sizes,
    enter_strides,
    known,
    movable,
    no_rows,
    rows_contiguous,
)
from .missing import Request

if TYPE_CHECKING:
    from .append_kv import Append

_TENSORS = struct.Struct("=5Q")
_TENSORS_AT = abi.FwdParams.q.offset
_WORKSPACE_AT = abi.FwdParams.workspace.offset
_FEATURES_AT = abi.FwdParams.features.offset
#: Offsets of the pointers of optional tensors, in the order of `optional`.
_OPTIONAL_AT = (
    abi.FwdParams.cu_seqlens_q.offset,
    abi.FwdParams.cu_seqlens_k.offset,
    abi.FwdParams.seqused_q.offset,
    abi.FwdParams.seqused_k.offset,
    abi.FwdParams.page_table.offset,
    abi.FwdParams.cache_batch_idx.offset,
    abi.FwdParams.leftpad_k.offset,
    _FEATURES_AT + abi.AttentionFeatures.alibi_slopes.offset,
    _FEATURES_AT + abi.AttentionFeatures.sinks.offset,
    abi.FwdParams.q_descale.offset,
    abi.FwdParams.k_descale.offset,
    abi.FwdParams.v_descale.offset,
    abi.FwdParams.qv.offset,
    abi.FwdParams.bias.offset,
    *features.offsets(abi.FwdParams),  # absent from a call without these features
)
_PAGES_AT, _ENTRIES_AT, _QV_AT, _BIAS_AT = 4, 5, 12, 13
#: `optional` of a call without optional tensors. (Compared by identity, since `==` on tensors is an operation.)
NONE = (None,) * (_BIAS_AT + 1)

#: Requirements on numbers of the structure.
_SAID = {
    "batch": "the number of sequences",
    "num_heads": "the number of heads of `q`",
    "num_heads_k": "the number of heads of `k`",
    "seqlen_q": "`max_seqlen_q`, the rows of a sequence of `q`,",
    "seqlen_k": "`max_seqlen_k`, the rows of a sequence of `k`,",
    "total_q": "the number of rows of `q`",
    "total_k": "the number of rows of `k`",
    "head_dim": "the head dim of `q`",
    "head_dim_v": "the head dim of `v`",
    "num_pages": "the number of pages",
    "page_size": "the page size",
    "cache_entries": "the number of entries of `k`",
}

#: Maximum head dim of kernels, except for Q and K of DeepSeek's latents, and kernels with `qv`.
_MOST_HEAD_DIM = 256
_LATENT = (576, 512)


class ForwardPlan(Plan):
    """A plan, with the shapes and strides of O and LSE, both contiguous, and the numbers for which it was made."""

    __slots__ = ("out", "out_dtype", "out_is_like_q", "lse", "device", "rows", "numbers")

    def check_values(self, read, appends: bool) -> None:
        """Raises `ValueError` for lengths and indices beyond the tensors, and for tensors without memory."""
        named = dict(zip(NAMES, read))
        check_host(named)
        if appends:  # the append has checked the lengths and pages
            named["seqused_k"] = named["block_table"] = None
        _check_values(named, *self.rows)


_plans: dict[tuple, ForwardPlan] = {}


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    optional: tuple,
    numbers: tuple,
    with_lse: bool = True,
    out: TensorOrNone = None,
    append: Optional[Append] = None,
    added: tuple = features.WITHOUT,
) -> tuple[torch.Tensor, TensorOrNone]:
    """O and LSE of one call; LSE is None without `with_lse`. O is `out`, or a new tensor. `append` is written into the
    cache first. `added` are the arguments of `features`.

    `optional` are tensors or None: cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, cache_batch_idx,
    leftpad_k, alibi_slopes, sinks, q_descale, k_descale, v_descale, qv, bias. `numbers` are max_seqlen_q, max_seqlen_k,
    softmax_scale, causal, window_left, window_right, attention_chunk, softcap, num_splits. `kgen.h` documents the
    fields of the same names; here a side of the window is -1 if it has no limit.

    Shapes: Q (batch, seqlen_q, heads, D), or (total_q, heads, D) with `cu_seqlens_q`; K and V (batch, seqlen_k, key
    heads, D), (total_k, key heads, D) with `cu_seqlens_k`, or (pages, page size, key heads, D) with `page_table`. LSE
    is (batch, heads, seqlen_q) or (heads, total_q), fp32. The bias is (batch or 1, heads or 1, seqlen_q or 1, seqlen_k or
    1); with `cu_seqlens_q` and `cu_seqlens_k` the last two axes have the longest lengths, and with `page_table` the
    last one has all keys that a row of the table can have.
    """
    if added[TENSORS:] != WITHOUT_NUMBERS:
        optional, numbers = (*optional, *added[:TENSORS]), (*numbers, *added[TENSORS:])
    layout = layout_of(q, k, v)
    if not rows_are_contiguous(layout):
        q, k, v = rows_contiguous(q), rows_contiguous(k), rows_contiguous(v)
        layout = layout_of(q, k, v)
    return run(planned(layout, q, k, v, optional, numbers, out), q, k, v, optional, with_lse, out, append)


def layout_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple:
    """The properties of Q, K and V that a plan depends on; the strides come last."""
    # fmt: off
    return (q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.get_device(), k.get_device(), v.get_device(),
            q.is_neg() or k.is_neg() or v.is_neg(), q.stride(), k.stride(), v.stride())
    # fmt: on


def rows_are_contiguous(layout: tuple) -> bool:
    """True if the last axes of Q, K and V, described by `layout_of`, are contiguous."""
    return layout[-3][-1] == 1 and layout[-2][-1] == 1 and layout[-1][-1] == 1


def planned(layout: tuple, q, k, v, optional: tuple, numbers: tuple, out: TensorOrNone = None) -> ForwardPlan:
    """The plan of a call with this layout: from the cache, or a new one."""
    key = (layout, numbers, None if optional is NONE else tuple(map(known, optional)), known(out))
    plan = _plans.get(key)
    if plan is None:
        plan = _plan(q, k, v, optional, numbers, out)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan


def run(
    plan: ForwardPlan, q, k, v, optional: tuple, with_lse: bool, out: TensorOrNone = None, append: Optional[Append] = None
) -> tuple[torch.Tensor, TensorOrNone]:
    """Runs one call with its plan."""
    # `new_empty` takes two or three times as long as `torch.empty_strided`.
    if out is not None:
        pass
    elif plan.out_is_like_q:
        out = torch.empty_like(q)
    else:
        out = torch.empty_strided(*plan.out, dtype=plan.out_dtype, device=plan.device)
    lse = torch.empty_strided(*plan.lse, dtype=torch.float32, device=plan.device) if with_lse else None
    try:
        try:
            _launch(plan, q, k, v, out, lse, optional, append)
        except MissingKernel as error:
            if append is not None:  # the kernel of the append or of the attention may be missing
                raise
            plan.missing_kernel(error)
            _launch(plan, q, k, v, out, lse, optional, None)
    except KgenError as error:
        if error.code != abi.ERROR_UNSUPPORTED:
            raise
        _launch_copies(error, plan, q, k, v, out, lse, optional, append)
    return out, lse


def _launch_copies(refused: KgenError, plan: ForwardPlan, q, k, v, out, lse, optional, append) -> None:
    """Repeats the call on copies of the tensors that no kernel could read in place; raises `refused` if there are
    none. Only Hopper's kernels require TMA, whose strides and addresses are multiples of 16 bytes.

    Pages, slots and caches that receive new rows are not copied. If new rows were written before, the same rows
    are written again.
    """
    is_cache = append is not None or optional[_PAGES_AT] is not None or optional[_ENTRIES_AT] is not None
    if k.dim() == 4 and not is_cache:  # a cache with more entries than the batch
        batch = abi.FwdParams.from_buffer_copy(plan.params).batch
        k, v = k[:batch], v[:batch]
    given = q, k, v
    used = (movable(q), *((k, v) if is_cache else (movable(k), movable(v))))
    if all(one is other for one, other in zip(given, used)):
        raise refused
    copied = planned(layout_of(*used), *used, optional, plan.numbers, out)
    if copied.library is not plan.library:  # a library built for the request
        copied.use(plan.library)
    _launch(copied, *used, out, lse, optional, append)


def _launch(plan, q, k, v, out, lse, optional, append) -> None:
    buffer = bytearray(plan.params)
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), 0 if lse is None else lse.data_ptr()
    _TENSORS.pack_into(buffer, _TENSORS_AT, *pointers)
    if optional is not NONE:
        for offset, tensor in zip(_OPTIONAL_AT, optional):
            if tensor is not None:
                POINTER.pack_into(buffer, offset, tensor.data_ptr())
    workspace = plan.workspace(buffer, _WORKSPACE_AT, q)
    if append is None:
        plan.launch(buffer, q, (q, k, v, *optional), (out, lse, workspace))
    else:
        plan.launch(buffer, q, (q, k, v, *optional, *append.read), (out, lse, workspace, *append.written), append.buffer)


def _plan(q, k, v, optional, numbers, out) -> ForwardPlan:
    """Checks the arguments and fills in the parameter structure except for its pointers."""
    # fmt: off
    (cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, cache_batch_idx, leftpad_k, alibi_slopes, sinks,
     q_descale, k_descale, v_descale, qv, bias, *added_tensors) = optional
    (max_seqlen_q, max_seqlen_k, softmax_scale, causal, window_left, window_right, attention_chunk, softcap,
     num_splits, *added_numbers) = numbers
    # fmt: on
    check_device(q, "q")
    check_dtypes(q, k, v)
    integers = {
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_q": seqused_q,
        "seqused_k": seqused_k,
        "block_table": page_table,
        "cache_batch_idx": cache_batch_idx,
        "cache_leftpad": leftpad_k,
    }
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    others = {"alibi_slopes": alibi_slopes, "s_aux": sinks, **descales, "qv": qv, "attn_bias": bias}
    check_beside(q, {"k": k, "v": v, **integers, **others})
    check_integers(integers)
    check_rank(q, "q", cu_seqlens_q is not None)
    check_rank(k, "k", cu_seqlens_k is not None)
    check_rank(v, "v", cu_seqlens_k is not None)
    if k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1] or q.shape[-2] % max(1, k.shape[-2]) != 0:
        shapes = ", ".join(f"`{name}` {tuple(t.shape)}" for name, t in zip("qkv", (q, k, v)))
        raise ValueError(f"{shapes}: `k` and `v` have the same rows and heads, `q` the head dim of `k` and a multiple of its heads")

    p = abi.FwdParams(struct_size=ctypes.sizeof(abi.FwdParams))
    p.flags = (abi.FLAG_CAUSAL if causal else 0) | (abi.FLAG_WINDOW if window_left >= 0 or window_right >= 0 else 0)
    check_head_dims(q.shape[-1], v.shape[-1], qv is not None)
    sizes = {"head_dim": q.shape[-1], "head_dim_v": v.shape[-1], "num_heads": q.shape[-2], "num_heads_k": k.shape[-2]}
    enter_strides(p, "q", q.stride()[:-1], ("batch", "row", "head")[3 - (q.dim() - 1) :])
    for name, tensor in (("k", k), ("v", v)):
        enter_strides(p, name, tensor.stride()[:-1], ("batch", "row", "head")[3 - (tensor.dim() - 1) :])
    out_shape = (*q.shape[:-1], v.shape[-1])
    if cu_seqlens_q is None:
        sizes["batch"], sizes["seqlen_q"] = q.shape[:2]
        lse_shape = (q.shape[0], q.shape[2], q.shape[1])
        p.lse_batch_stride, p.lse_head_stride = q.shape[2] * q.shape[1], q.shape[1]
        p.o_batch_stride = q.shape[1] * q.shape[2] * v.shape[-1]
    else:
        if cu_seqlens_q.numel() == 0:
            raise ValueError("`cu_seqlens_q` is empty; it begins with 0 even where there is no sequence")
        sizes["batch"], sizes["seqlen_q"], sizes["total_q"] = cu_seqlens_q.numel() - 1, max_seqlen_q, q.shape[0]
        lse_shape = (q.shape[1], q.shape[0])
        p.lse_head_stride = q.shape[0]
    p.o_row_stride, p.o_head_stride = q.shape[-2] * v.shape[-1], v.shape[-1]
    if out is not None:
        check_out(out, q, out_shape)
        p.o_batch_stride = 0
        enter_strides(p, "o", out.stride()[:-1], ("batch", "row", "head")[3 - (out.dim() - 1) :])
    if page_table is not None:
        if cu_seqlens_k is not None or page_table.dim() != 2:
            raise ValueError("`block_table` is (batch, pages of a sequence) and goes with lengths of the keys, not with `cu_seqlens_k`")
        p.page_table_stride, sizes["num_pages"], sizes["page_size"] = page_table.stride(0), k.shape[0], k.shape[1]
        sizes["seqlen_k"] = max_seqlen_k if max_seqlen_k > 0 else page_table.shape[1] * k.shape[1]
    elif cu_seqlens_k is not None:
        sizes["seqlen_k"], sizes["total_k"] = max_seqlen_k, k.shape[0]
    else:
        sizes["seqlen_k"] = k.shape[1]
        if cache_batch_idx is None and k.shape[0] != sizes["batch"]:
            raise ValueError(f"`k` has {k.shape[0]} batch entries, `q` {sizes['batch']}")
    if cache_batch_idx is not None and page_table is None and cu_seqlens_k is None:  # elsewhere the library refuses it
        if k.shape[0] == 0:  # the structure has no field for the number of entries
            raise ValueError("`k` has no entries, of which `cache_batch_idx` could name one")
        sizes["cache_entries"] = k.shape[0]
    enter_sizes(p, sizes, _SAID)
    enter_bias(p, bias, out_dtype(q))
    if cu_seqlens_q is not None and q.shape[0] == 0:
        no_rows(p, "seqlen_q")
    if cu_seqlens_k is not None and k.shape[0] == 0:
        no_rows(p, "seqlen_k")
    check_numbers(numbers)
    check_lengths(p.batch, {**integers, "cu_seqlens_q": None, "cu_seqlens_k": None}, 0)
    check_lengths(p.batch, {"cu_seqlens_k": cu_seqlens_k}, 1)
    if qv is not None:
        if qv.shape != out_shape or qv.dtype != q.dtype or qv.stride(-1) != 1:
            given = f"{qv.dtype} of shape {tuple(qv.shape)} with stride {qv.stride(-1)} along its last axis"
            raise ValueError(f"`qv` is {given}; it must be {q.dtype} of shape {tuple(out_shape)}, with stride 1")
        enter_strides(p, "qv", qv.stride()[:-1], ("batch", "row", "head")[3 - (qv.dim() - 1) :])
    p.dtype = DTYPES[q.dtype]
    if k.dtype != q.dtype:
        p.kv_dtype = DTYPES[k.dtype]
    p.softmax_scale = softmax_scale
    enter_sizes(p, {"num_splits": num_splits}, {})
    for name, descale in descales.items():
        enter_descale(p, name, descale, (p.batch, p.num_heads_k))
    enter_features(p, window_left, window_right, attention_chunk, softcap, alibi_slopes, sinks)
    if added_numbers:
        features.check(added_tensors, q.device)
        features.enter(p, added_numbers)
    given = [offset for offset, tensor in zip(_OPTIONAL_AT, optional) if tensor is not None]
    plan = ForwardPlan(p, request_of("fwd", p, q, optional), given)
    plan.out, plan.lse = contiguous(out_shape), contiguous(lse_shape)
    plan.out_dtype, plan.device = out_dtype(q), q.device
    plan.numbers = numbers
    plan.rows = p.seqlen_q, p.seqlen_k, q.shape[0] if cu_seqlens_q is not None else q.shape[1]
    plan.out_is_like_q = q.is_contiguous() and out_shape == q.shape and plan.out_dtype == q.dtype
    return plan


def check_dtypes(q, k, v) -> None:
    """Raises `TypeError` for types that no kernel supports."""
    if q.dtype not in HALVES and q.dtype != torch.float8_e4m3fn:
        cast = "; cast `q`, `k` and `v` by `.to(torch.bfloat16)`, or call under `torch.autocast`" if q.dtype == torch.float32 else ""
        raise TypeError(f"`q` is {q.dtype}; kernels take torch.float16, torch.bfloat16 and torch.float8_e4m3fn{cast}")
    if k.dtype != v.dtype or (k.dtype != q.dtype and (k.dtype not in EIGHTS or q.dtype not in HALVES)):
        raise TypeError(f"`q`, `k` and `v` are {q.dtype}, {k.dtype} and {v.dtype}; cast them to one type, or have FP8 in `k` and `v`")


def check_head_dims(head_dim: int, head_dim_v: int, has_qv: bool) -> None:
    """Raises `NotImplementedError` for head dims that no kernel can have."""
    most = 2 * _MOST_HEAD_DIM if has_qv else _MOST_HEAD_DIM
    if (head_dim, head_dim_v) != _LATENT and (head_dim > _MOST_HEAD_DIM or head_dim_v > most):
        given = f"`q` and `k` have head dim {head_dim}, `v` {head_dim_v}"
        raise NotImplementedError(f"{given}: kernels can have {_MOST_HEAD_DIM} and less, which multiples of 8 from 16 on are made for")


def check_numbers(numbers: tuple) -> None:
    """Raises `ValueError` for invalid numbers, and for numbers that are infinite or 0 as 32-bit floats."""
    _, _, softmax_scale, _, window_left, window_right, attention_chunk, softcap = numbers[:8]
    if not 0.0 <= softmax_scale <= _MOST_FLOAT:
        raise ValueError(f"`softmax_scale` is {softmax_scale}; it must be 0 or more, and finite in 32 bits")
    if softcap != 0.0 and not _LEAST_FLOAT <= softcap <= _MOST_FLOAT:
        raise ValueError(f"`softcap` is {softcap}; it must be 0, for none, or above, and finite in 32 bits")
    if attention_chunk < 0 or window_left < -1 or window_right < -1:
        given = f"`attention_chunk` is {attention_chunk}, `window_size` ({window_left}, {window_right})"
        raise ValueError(f"{given}: a chunk has 0 keys, for none, or more, and a side of a window -1, for no limit, or more")


_LEAST_FLOAT, _MOST_FLOAT = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


def _check_values(named: dict[str, TensorOrNone], longest_q: int, longest_k: int, rows_q: int) -> None:
    k, table, starts_q, starts_k = named["k"], named["block_table"], named["cu_seqlens_q"], named["cu_seqlens_k"]
    used_q, used_k, entries = named["seqused_q"], named["seqused_k"], named["cache_batch_idx"]
    if starts_q is not None:
        longest = longest_q if used_q is None else None
        host_values.check_starts("cu_seqlens_q", starts_q, rows_q, "q", longest, "max_seqlen_q", used_q)
    if starts_k is not None:
        longest = longest_k if used_k is None else None
        host_values.check_starts("cu_seqlens_k", starts_k, k.shape[0], "k", longest, "max_seqlen_k", used_k)
    if used_q is not None:
        host_values.check_lengths("seqused_q", used_q, longest_q, "the longest sequence of `q`")
    if used_k is not None:
        host_values.check_lengths("seqused_k` or `cache_seqlens", used_k, longest_k, "the longest sequence of `k`")
    if entries is not None:
        host_values.check_numbers("cache_batch_idx", entries, k.shape[0])
    if table is not None:
        used = [longest_k] * table.shape[0] if used_k is None else used_k.tolist()
        host_values.check_pages(table, used, k.shape[1], k.shape[0])


def out_dtype(q: torch.Tensor) -> torch.dtype:
    """The type of O."""
    return torch.bfloat16 if q.dtype in EIGHTS else q.dtype


def check_out(out: torch.Tensor, q: torch.Tensor, shape: tuple) -> None:
    """Raises if `out` cannot receive O."""
    check_signs({"out": out})
    if tuple(out.shape) != tuple(shape) or out.stride(-1) != 1 or out.device != q.device:
        given = f"{tuple(out.shape)} on `{out.device}` with stride {out.stride(-1)} along its last axis"
        raise ValueError(f"`out` is {given}; it must be {tuple(shape)} on `{q.device}`, with stride 1")
    if out.dtype != out_dtype(q):
        raise TypeError(f"`out` is {out.dtype}; it must be {out_dtype(q)}")


def check_rank(tensor: torch.Tensor, name: str, packed: bool) -> None:
    """Raises `ValueError` for a tensor with a wrong number of axes."""
    axes = "(total rows, heads, head dim)" if packed else "(batch, rows, heads, head dim)"
    if tensor.dim() != (3 if packed else 4):
        raise ValueError(f"`{name}` has shape {tuple(tensor.shape)}; here it is {axes}")


def check_lengths(batch: int, tensors: dict[str, TensorOrNone], more: int) -> None:
    """Raises `ValueError` if the length of a tensor is not `batch + more`."""
    for name, tensor in tensors.items():
        axes = 2 if name == "block_table" else 1
        if tensor is not None and (tensor.dim() != axes or tensor.shape[0] != batch + more):
            raise ValueError(f"`{name}` has shape {tuple(tensor.shape)}; for {batch} sequences it has {batch + more} entries")


def enter_descale(p: ctypes.Structure, name: str, descale: TensorOrNone, shape: tuple[int, int]) -> None:
    """Stores the strides of a descale factor along batch entries and key heads."""
    if descale is None:
        return
    if descale.dtype != torch.float32 or descale.shape != shape:
        raise ValueError(f"`{name}` is {descale.dtype} of shape {tuple(descale.shape)}; it must be float32 of shape {shape}")
    enter_strides(p, name, descale.stride(), ("batch", "head"))


def enter_features(p, window_left, window_right, attention_chunk, softcap, alibi_slopes, sinks) -> None:
    """Stores the numbers of masks and scores, not the pointers."""
    f = p.features
    windows = (window_left, window_right) if p.flags & abi.FLAG_WINDOW else (0, 0)
    named = {field: "a side of `window_size`" for field in ("window_left", "window_right")}
    enter_sizes(f, {**dict(zip(named, windows)), "attention_chunk": attention_chunk}, named)
    f.softcap = softcap
    if alibi_slopes is not None:
        shapes = ((p.num_heads,), (p.batch, p.num_heads))
        if alibi_slopes.dtype != torch.float32 or tuple(alibi_slopes.shape) not in shapes or alibi_slopes.stride(-1) != 1:
            given = f"{alibi_slopes.dtype} of shape {tuple(alibi_slopes.shape)}"
            raise ValueError(f"`alibi_slopes` is {given}; it must be contiguous float32 of shape {shapes[0]} or {shapes[1]}")
        f.alibi_batch_stride = alibi_slopes.stride(0) if alibi_slopes.dim() == 2 else 0
    if sinks is not None:
        if sinks.dtype not in (torch.float32, torch.bfloat16) or tuple(sinks.shape) != (p.num_heads,) or sinks.stride(-1) != 1:
            given = f"{sinks.dtype} of shape {tuple(sinks.shape)}"
            raise ValueError(f"`s_aux` is {given}; it must be contiguous float32 or bfloat16 of shape ({p.num_heads},)")
        f.sinks_dtype = DTYPES[sinks.dtype]


def request_of(function: str, p, q: torch.Tensor, optional=NONE) -> Request:
    """The properties of the call that determine its kernel."""
    f = p.features
    page_table, cache_batch_idx, leftpad_k, alibi_slopes, sinks = optional[4:9]
    asked = {
        "window": bool(p.flags & abi.FLAG_WINDOW),
        "chunk": f.attention_chunk != 0,
        "softcap": f.softcap != 0,
        "alibi": alibi_slopes is not None,
        "sinks": sinks is not None,
        "paged": page_table is not None,
        "kv_e4m3": getattr(p, "kv_dtype", 0) == abi.DTYPES["float8_e4m3fn"],
        "kv_e5m2": getattr(p, "kv_dtype", 0) == abi.DTYPES["float8_e5m2"],
        "cache": cache_batch_idx is not None or leftpad_k is not None,
        "qv": optional[_QV_AT] is not None,
        "bias": optional[_BIAS_AT] is not None,
        **features.requested(p),
    }
    dtype = next(name for name, number in abi.DTYPES.items() if number == p.dtype)
    words = tuple(name for name, there in asked.items() if there)
    return Request(function, dtype, p.head_dim, p.head_dim_v, bool(p.flags & abi.FLAG_CAUSAL), words, q.get_device())
