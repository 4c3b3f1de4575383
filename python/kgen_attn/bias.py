"""A bias of the scores: its axes, its fields in the structures, and its gradient."""

from __future__ import annotations

import torch

from .arguments import any_autocast, shown
from .launch import DTYPES, HALVES, TensorOrNone, enter_strides


def bias_of_four_axes(attn_bias: object, dtype: torch.dtype, name: str = "attn_bias", least_axes: int = 2) -> TensorOrNone:
    """`attn_bias` as an additive bias with four axes, (batch, heads, rows, keys), each of which may have size 1 and
    then applies to all; sizes are not checked here. A bool mask becomes a bias of `dtype`, the type of O, that hides
    keys where the mask is False."""
    if attn_bias is None:
        return None
    if not isinstance(attn_bias, torch.Tensor):
        raise TypeError(f"`{name}` is {shown(attn_bias)}; it must be a torch.Tensor")
    if attn_bias.layout is not torch.strided or attn_bias.is_nested:
        raise TypeError(f"`{name}` is {'nested' if attn_bias.is_nested else attn_bias.layout}; it must be a dense tensor")
    if not least_axes <= attn_bias.dim() <= 4:
        axes = f"{least_axes} to 4 axes, the last ones of (batch, heads, rows, keys)"
        raise ValueError(f"`{name}` has shape {tuple(attn_bias.shape)}; it must have {axes}")
    if attn_bias.dtype == torch.bool:
        attn_bias = additive(attn_bias, dtype)
    elif any_autocast() and attn_bias.dtype in HALVES and torch.is_autocast_enabled(attn_bias.device.type):
        attn_bias = attn_bias.to(dtype)
    return attn_bias if attn_bias.dim() == 4 else attn_bias[(None,) * (4 - attn_bias.dim())]


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A bias: 0 where the bool mask is True and -infinity where it is False. Expanded axes stay expanded. Types without
    an infinity are those of calls that are refused later, by the name of `q`, and get float32."""
    dtype = dtype if dtype.is_floating_point else torch.float32
    one = mask
    for axis, (size, stride) in enumerate(zip(mask.shape, mask.stride())):
        if stride == 0 and size > 1:
            one = one.narrow(axis, 0, 1)
    return one.new_zeros(one.shape, dtype=dtype).masked_fill(one.logical_not(), float("-inf")).expand(mask.shape)


def enter_bias(p, bias: TensorOrNone, own: torch.dtype) -> None:
    """Stores the type and the strides of a bias; axes of one element repeat. `own` is the type of O. To be called after
    the lengths are stored, and before those of tensors without rows are set to 0."""
    if bias is None:
        return
    axes = {"batch": p.batch, "head": p.num_heads, "row": p.seqlen_q, "column": p.seqlen_k}
    if bias.dim() != 4 or any(size not in (1, most) for size, most in zip(bias.shape, axes.values())):
        shape = ", ".join(f"{most} or 1" if most != 1 else "1" for most in axes.values())
        raise ValueError(f"`attn_bias` has shape {tuple(bias.shape)}; here (batch, heads, rows, keys) are ({shape})")
    if bias.dtype not in (torch.float32, own):
        raise TypeError(f"`attn_bias` is {bias.dtype}; it must be torch.float32, {own}, the type of the result, or torch.bool")
    enter_strides(p, "bias", strides_of_bias(bias), axes)
    p.bias_dtype = DTYPES[bias.dtype]


def strides_of_bias(bias: torch.Tensor) -> list[int]:
    """The strides of the four axes, 0 for axes of one element, which repeat."""
    return [0 if size == 1 else stride for size, stride in zip(bias.shape, bias.stride())]


def shape_of_dbias(bias: torch.Tensor, keys: int) -> tuple[int, ...]:
    """The shape of the gradient that the kernels write: they sum over repeated batch entries, heads and rows, but not
    over keys."""
    return (*bias.shape[:3], keys)


def refuse_gradient_of_bias(
    bias: torch.Tensor, q, cu_seqlens_q: TensorOrNone, max_seqlen_q: int, softcap: float, deterministic: bool
) -> None:
    """Raises `NotImplementedError` if the bias requires grad and kgen has no gradient for this call."""
    if softcap != 0.0:
        cap = f"`softcap`, which is {softcap}"
        raise NotImplementedError(f"`attn_bias` requires grad, and kgen has no gradients of a bias beside {cap}")
    if not deterministic or bias.dim() != 4:
        return
    batch, rows = q.shape[:2] if cu_seqlens_q is None else (cu_seqlens_q.shape[0] - 1, max_seqlen_q)
    extents = {"batch entry": batch, "head": q.shape[-2], "row": rows}
    for size, (axis, extent) in zip(bias.shape, extents.items()):
        if size == 1 and extent > 1:
            told = f"`attn_bias` has one {axis} for {extent} and requires grad, and `deterministic` is True"
            remedy = "pass `attn_bias.expand(...)` to all of them, whose gradient torch sums"
            raise NotImplementedError(f"{told}: kgen sums such a gradient in no fixed order; {remedy}")
