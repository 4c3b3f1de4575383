"""PyTorch's `scaled_dot_product_attention`, computed by kgen's kernels."""

from __future__ import annotations

from typing import Optional

import torch

from . import arguments
from .bias import bias_of_four_axes
from .forward import out_dtype
from .interface import flash_attn_func


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Optional[torch.Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, with the same parameters and meanings.

    Shapes:
        query: (batch, heads, seqlen_q, head_dim), float16 or bfloat16.
        key, value: (batch, heads, seqlen_k, head_dim or head_dim_v); with `enable_gqa` the number of heads may be a
            divisor of the query's.
        attn_mask: of a shape that broadcasts to (batch, heads, seqlen_q, seqlen_k). bool, True where a query sees a key,
            or float32 or the type of `query`, added to the scores, with a gradient. -infinity hides a
            key; a query that sees no key gives zeros.
        returns: (batch, heads, seqlen_q, head_dim_v), a transposed view of the result of `flash_attn_func`.

    Arguments:
        dropout_p: as for `flash_attn_func`. It applies in every call, in training and otherwise, as in PyTorch.
        is_causal: query i sees key j if j <= i, even if the lengths differ. Not with `attn_mask`.
        scale: default 1 / sqrt(head_dim).

    With `torch.use_deterministic_algorithms(True)` the gradients are the same bits for the same inputs. Errors are those of
    `flash_attn_func`.
    """
    _check(query, key, value, arguments.flag(enable_gqa, "enable_gqa"))
    is_causal = arguments.flag(is_causal, "is_causal")
    if is_causal and attn_mask is not None:
        raise ValueError("`is_causal` is True and `attn_mask` is given; give one of them, as to PyTorch's function")
    query, key, value = arguments.cast(query, key, value)
    rows, keys = query.shape[2], key.shape[2]
    shape = (query.shape[0], query.shape[1], rows, keys)
    deterministic = torch.are_deterministic_algorithms_enabled()
    attn_mask = _mask(attn_mask, shape, out_dtype(query))
    if deterministic and attn_mask is not None and attn_mask.requires_grad:
        # The kernel then writes a gradient of this shape, which autograd sums over repeated axes in a fixed order; the
        # kernel itself would sum in no fixed order.
        attn_mask = attn_mask.expand(shape)
    causal, window = False, (-1, -1)
    # No query sees the last keys. Without them, kgen's positions, which count from the last key, are PyTorch's.
    if is_causal and keys > rows:
        key, value = key[:, :, :rows], value[:, :, :rows]
    if is_causal and keys >= rows:
        causal = True
    elif is_causal:
        window = (-1, rows - keys)
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    scale = scale if scale is None else arguments.number(scale, "scale")
    # fmt: off
    out = flash_attn_func(q, k, v, dropout_p, scale, causal, window, deterministic=deterministic, attn_bias=attn_mask)
    # fmt: on
    return out.transpose(1, 2)


def _check(query: object, key: object, value: object, enable_gqa: bool) -> None:
    """Raises, with their names, for tensors whose types, devices or shapes do not match."""
    named = {"query": query, "key": key, "value": value}
    for name, tensor in named.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"`{name}` is of type {type(tensor).__name__}; it must be a torch.Tensor")
        if tensor.layout is not torch.strided or tensor.is_nested:
            kind = "nested" if tensor.is_nested else str(tensor.layout)
            raise TypeError(f"`{name}` is {kind}; it must be a dense tensor")
        if tensor.dim() != 4:
            raise ValueError(f"`{name}` has shape {tuple(tensor.shape)}; here it is (batch, heads, rows, head dim)")
    if query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3] or key.shape[:3] != value.shape[:3]:
        shapes = ", ".join(f"`{name}` {tuple(tensor.shape)}" for name, tensor in named.items())
        told = "all have one batch size, `key` the head dim of `query`, `value` the heads and rows of `key`"
        raise ValueError(f"{shapes}: {told}")
    heads, key_heads = query.shape[1], key.shape[1]
    if heads != key_heads and (not enable_gqa or key_heads == 0 or heads % key_heads != 0):
        remedy = "they must be a divisor of it" if enable_gqa else "`enable_gqa=True` lets several of `query` share one"
        raise ValueError(f"`key` has {key_heads} heads, `query` {heads}; {remedy}")


def _mask(attn_mask: object, shape: tuple, dtype: torch.dtype) -> Optional[torch.Tensor]:
    """The mask as a bias with four axes. Raises for a shape that does not broadcast, or another type."""
    bias = bias_of_four_axes(attn_mask, dtype, "attn_mask", 0)
    if bias is None:
        return None
    if any(size not in (1, whole) for size, whole in zip(bias.shape, shape)):
        raise ValueError(f"`attn_mask` has shape {tuple(attn_mask.shape)}, which does not broadcast to {shape}")
    if bias.dtype not in (torch.float32, dtype):
        raise TypeError(f"`attn_mask` is {bias.dtype}; it must be torch.bool, torch.float32 or {dtype}")
    return bias
