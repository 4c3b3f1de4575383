"""The backward pass, `kgen_bwd`, on tensors."""

from __future__ import annotations

import ctypes
import struct

import torch

from . import abi, features
from .bias import enter_bias, shape_of_dbias, strides_of_bias
from .errors import KgenError, MissingKernel
from .forward import check_dtypes, enter_features, request_of
from .launch import (
    DTYPES,
    MOST_PLANS,
    POINTER,
    Plan,
    TensorOrNone,
    enter_sizes,
    enter_strides,
    known,
    movable,
    no_rows,
    rows_contiguous,
)

_TENSORS = struct.Struct("=9Q")
_TENSORS_AT = abi.BwdParams.q.offset
_WORKSPACE_AT = abi.BwdParams.workspace.offset
_FEATURES_AT = abi.BwdParams.features.offset
_OPTIONAL_AT = (
    abi.BwdParams.cu_seqlens_q.offset,
    abi.BwdParams.cu_seqlens_k.offset,
    abi.BwdParams.seqused_q.offset,
    abi.BwdParams.seqused_k.offset,
    _FEATURES_AT + abi.AttentionFeatures.alibi_slopes.offset,
    _FEATURES_AT + abi.AttentionFeatures.sinks.offset,
    abi.BwdParams.dlse.offset,
    abi.BwdParams.bias.offset,
    *features.offsets(abi.BwdParams),
)
#: Offsets of the pointers to the optional gradients: those of the sinks and of the bias.
_GRADIENTS_AT = abi.BwdParams.dsinks.offset, abi.BwdParams.dbias.offset

_plans: dict[tuple, Plan] = {}


def backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: TensorOrNone,
    cu_seqlens_k: TensorOrNone,
    seqused_q: TensorOrNone,
    seqused_k: TensorOrNone,
    alibi_slopes: TensorOrNone,
    sinks: TensorOrNone,
    dlse: TensorOrNone,
    bias: TensorOrNone,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool,
    window_left: int,
    window_right: int,
    attention_chunk: int,
    softcap: float,
    deterministic: bool,
    with_dbias: bool,
    *added: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """dQ, dK and dV, contiguous; dsinks, fp32 of shape (heads,), empty without sinks; dbias, contiguous fp32 of the
    shape of `bias`, empty unless `with_dbias`.

    The parameters are those of `forward`, which returned `out` and `lse`. `dlse` is the gradient of `lse`, or None for
    0. Rows that no sequence uses have gradient 0.
    """
    q, k, v, out, dout = (rows_contiguous(t) for t in (q, k, v, out, dout.resolve_neg()))
    dlse = dlse if dlse is None else rows_contiguous(dlse.resolve_neg())
    added = features.completed(added)
    optional = cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, alibi_slopes, sinks, dlse, bias, *added[: features.TENSORS]
    # fmt: off
    numbers = (max_seqlen_q, max_seqlen_k, softmax_scale, causal, window_left, window_right, attention_chunk, softcap,
               deterministic, with_dbias, *added[features.TENSORS :])
    key = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), out.stride(), dout.stride(), lse.stride(), q.dtype,
           q.get_device(), numbers, tuple(map(known, optional)))
    # fmt: on
    plan = _plans.get(key)
    if plan is None:
        plan = _plan(q, k, v, out, dout, lse, optional, numbers)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    # Kernels do not write rows that belong to no sequence.
    new = torch.empty if cu_seqlens_q is None and seqused_q is None and seqused_k is None else torch.zeros
    dq, dk, dv = (new(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v))
    dsinks = torch.empty(0 if sinks is None else sinks.shape, dtype=torch.float32, device=q.device)
    keys = k.shape[1] if cu_seqlens_k is None else max_seqlen_k
    # The launch zeroes the rows that no sequence uses. There is no launch for tensors without rows, whose length is
    # passed as 0.
    new = torch.empty if q.numel() > 0 and k.numel() > 0 else torch.zeros
    dbias = new(shape_of_dbias(bias, keys) if with_dbias else 0, dtype=torch.float32, device=q.device)
    tensors = q, k, v, out, dout, lse, dq, dk, dv
    of_others = None if sinks is None else dsinks, dbias if with_dbias else None
    try:
        try:
            _launch(plan, tensors, optional, *of_others)
        except MissingKernel as error:
            plan.missing_kernel(error)
            _launch(plan, tensors, optional, *of_others)
    except KgenError as error:
        # Only Hopper's kernels require TMA, whose strides and addresses are multiples of 16 bytes.
        given = dout, q, k, v
        used = tuple(map(movable, given)) if error.code == abi.ERROR_UNSUPPORTED else given
        if all(one is other for one, other in zip(given, used)):
            raise
        return backward(*used, out, lse, *optional[:6], dlse, bias, *numbers[:9], with_dbias, *added)
    if with_dbias and dbias.shape != bias.shape:
        dbias = dbias.sum(3, keepdim=True)
    return dq, dk, dv, dsinks, dbias


def _launch(plan: Plan, tensors, optional, dsinks: TensorOrNone, dbias: TensorOrNone) -> None:
    buffer = bytearray(plan.params)
    _TENSORS.pack_into(buffer, _TENSORS_AT, *(tensor.data_ptr() for tensor in tensors))
    for offset, tensor in zip(_OPTIONAL_AT, optional):
        if tensor is not None:
            POINTER.pack_into(buffer, offset, tensor.data_ptr())
    for offset, tensor in zip(_GRADIENTS_AT, (dsinks, dbias)):
        if tensor is not None:
            POINTER.pack_into(buffer, offset, tensor.data_ptr())
    workspace = plan.workspace(buffer, _WORKSPACE_AT, tensors[0])
    plan.launch(buffer, tensors[0], (*tensors[:6], *optional), (*tensors[6:], dsinks, dbias, workspace))


def _plan(q, k, v, out, dout, lse, optional, numbers) -> Plan:
    """Fills in the parameter structure except for its pointers. `forward` has checked the arguments."""
    cu_seqlens_q, cu_seqlens_k, _, _, alibi_slopes, sinks, dlse, bias, *_ = optional
    # fmt: off
    (max_seqlen_q, max_seqlen_k, softmax_scale, causal, window_left, window_right, attention_chunk, softcap, deterministic,
     with_dbias, *added_numbers) = numbers
    # fmt: on
    check_dtypes(q, k, v)
    if q.dtype not in (torch.float16, torch.bfloat16) or k.dtype != q.dtype:
        raise TypeError(f"no gradients for `q` of {q.dtype} and `k` of {k.dtype}: torch.float16 or torch.bfloat16 alone has them")
    if dout.dtype != q.dtype:
        raise TypeError(f"the gradient of the output is {dout.dtype}; it must be {q.dtype}")
    p = abi.BwdParams(struct_size=ctypes.sizeof(abi.BwdParams))
    p.flags = (
        (abi.FLAG_CAUSAL if causal else 0)
        | (abi.FLAG_WINDOW if window_left >= 0 or window_right >= 0 else 0)
        | (abi.FLAG_DETERMINISTIC if deterministic else 0)
    )
    sizes = {"head_dim": q.shape[-1], "head_dim_v": v.shape[-1], "num_heads": q.shape[-2], "num_heads_k": k.shape[-2]}
    gradients = {"dq": q, "dk": k, "dv": v}  # contiguous, of these shapes
    for name, tensor in {"q": q, "k": k, "v": v, "o": out, "dout": dout, **gradients}.items():
        strides = tensor.stride() if name not in gradients else torch.empty(tensor.shape, device="meta").stride()
        enter_strides(p, name, strides[:-1], ("batch", "row", "head")[3 - (tensor.dim() - 1) :])
    if cu_seqlens_q is None:
        sizes["batch"], sizes["seqlen_q"] = q.shape[:2]
        p.lse_batch_stride, p.lse_head_stride = lse.stride()[:2]
    else:
        sizes["batch"], sizes["seqlen_q"], sizes["total_q"] = cu_seqlens_q.numel() - 1, max_seqlen_q, q.shape[0]
        p.lse_head_stride = lse.stride(0)
    if cu_seqlens_k is None:
        sizes["seqlen_k"] = k.shape[1]
    else:
        sizes["seqlen_k"], sizes["total_k"] = max_seqlen_k, k.shape[0]
    enter_sizes(p, sizes, {})
    enter_bias(p, bias, q.dtype)
    if with_dbias:
        written = torch.empty(shape_of_dbias(bias, p.seqlen_k), device="meta")
        enter_strides(p, "dbias", strides_of_bias(written), ("batch", "head", "row", "column"))
    for size, tensor in (("seqlen_q", q), ("seqlen_k", k)):
        if tensor.shape[0] == 0:
            no_rows(p, size)
    if dlse is not None:
        if dlse.dtype != torch.float32 or dlse.shape != lse.shape:
            given = f"{dlse.dtype} of shape {tuple(dlse.shape)}"
            raise ValueError(f"the gradient of the log-sum-exp is {given}; it must be torch.float32 of shape {tuple(lse.shape)}")
        enter_strides(p, "dlse", dlse.stride()[:-1], ("batch", "head")[3 - dlse.dim() :])
    p.dtype, p.softmax_scale = DTYPES[q.dtype], softmax_scale
    features.enter(p, added_numbers)
    enter_features(p, window_left, window_right, attention_chunk, softcap, alibi_slopes, sinks)
    named = (cu_seqlens_q, cu_seqlens_k, *[None] * 5, alibi_slopes, sinks, *[None] * 4, bias)
    given = [offset for offset, tensor in zip(_OPTIONAL_AT, optional) if tensor is not None]
    given += [offset for offset, there in zip(_GRADIENTS_AT, (sinks is not None, with_dbias)) if there]
    return Plan(p, request_of("bwd", p, q, named), given)
