"""Translates FlashAttention's arguments for kgen: types, masks, lengths, head dims, autocast."""

from __future__ import annotations

import operator
from typing import Optional, Union

import torch
import torch.nn.functional as F

#: Above this head dim, kernels' head dims are multiples of 8.
_LEAST_HEAD_DIM = 16

TensorOrNone = Optional[torch.Tensor]

#: FlashAttention's names of Q, K, V and the optional tensors.
NAMES = (
    *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "block_table", "cache_batch_idx"),
    *("cache_leftpad", "alibi_slopes", "s_aux", "q_descale", "k_descale", "v_descale", "qv", "attn_bias"),
)


def number(value: object, name: str) -> float:
    """The value of a number or of a tensor that holds one.

    A tensor is read immediately, which waits for its device; later changes have no effect. Raises `TypeError` for
    anything else, and `NotImplementedError` for a tensor that requires a gradient.
    """
    if type(value) is float:
        return value
    if isinstance(value, torch.Tensor):
        value = _item(value, name)
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError):
        pass
    except OverflowError:
        raise ValueError(f"`{name}` has more digits than a float can hold; it must be finite in 32 bits") from None
    raise TypeError(f"`{name}` is {shown(value)}; it must be a number")


def integer(value: object, name: str) -> int:
    """The value of an integer or of a tensor that holds one, read like `number`; 2.0 is not an integer."""
    if type(value) is int:
        return value
    if isinstance(value, torch.Tensor):
        value = _item(value, name)
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` is {shown(value)}; it must be an integer") from None


def flag(value: object, name: str) -> bool:
    """The value of a bool or of a tensor that holds one, read like `number`."""
    if type(value) is bool:
        return value
    try:
        if not isinstance(value, (str, bytes)):  # "no" would be true
            return bool(_item(value, name) if isinstance(value, torch.Tensor) else value)
    except ValueError:  # for an array
        pass
    raise TypeError(f"`{name}` is {shown(value)}; it must be True or False")


def _item(tensor: torch.Tensor, name: str) -> Union[int, float, bool]:
    if tensor.numel() != 1:
        raise TypeError(f"`{name}` is a tensor of shape {tuple(tensor.shape)}; it must be a number, or a tensor that holds one")
    if tensor.is_meta:
        raise TypeError(f"`{name}` is a tensor on `meta`, which holds no number")
    refuse_gradients({name: tensor})
    return tensor.item()


def shown(value: object) -> str:
    """A value as shown in a message: a number or a string with its type, otherwise the type alone."""
    kind = type(value).__name__
    return f"{value!r}, of type {kind}" if isinstance(value, (int, float, str)) else f"of type {kind}"


def refuse_gradients(tensors: dict[str, TensorOrNone]) -> None:
    """Raises `NotImplementedError` for the first tensor that requires grad but would get no gradient."""
    for name, tensor in tensors.items():
        if getattr(tensor, "requires_grad", False) and torch.is_grad_enabled():
            raise NotImplementedError(f"`{name}` requires grad, and kgen has no gradient for it: pass `{name}.detach()`")


def softcap(value: object) -> float:
    """The softcap, with 0 for no cap: for 0 and for any negative number."""
    if type(value) is not float:
        value = number(value, "softcap")
    return 0.0 if value < 0.0 else value


def check_tensors(q: object, k: object, v: object, axes_q: int, axes_k: int, names: tuple[str, str, str] = ("q", "k", "v")) -> None:
    """Raises for an argument that is not a tensor, or has another number of axes."""
    plain = type(q) is type(k) is type(v) is torch.Tensor and q.layout is k.layout is v.layout is torch.strided
    plain = plain and not (q.is_nested or k.is_nested or v.is_nested)
    if plain and q.dim() == axes_q and k.dim() == axes_k and v.dim() == axes_k:
        return
    for name, tensor, axes in zip(names, (q, k, v), (axes_q, axes_k, axes_k)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"`{name}` is {shown(tensor)}; it must be a torch.Tensor")
        if tensor.layout is not torch.strided or tensor.is_nested:
            kind = "nested" if tensor.is_nested else str(tensor.layout)
            raise TypeError(f"`{name}` is {kind}; it must be a dense tensor, or packed ones with `cu_seqlens`")
        if tensor.dim() != axes:
            shape = "(total rows, heads, head dim)" if axes == 3 else "(batch, rows, heads, head dim)"
            raise ValueError(f"`{name}` has shape {tuple(tensor.shape)}; here it is {shape}")


def check_axes(name: str, tensor: object, axes: int) -> None:
    """Raises for an argument that is not a tensor, or has another number of axes."""
    if type(tensor) is torch.Tensor and tensor.dim() == axes:
        return
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"`{name}` is {shown(tensor)}; it must be a torch.Tensor")
    if tensor.dim() != axes:
        raise ValueError(f"`{name}` has shape {tuple(tensor.shape)}; it must have {axes} {'axis' if axes == 1 else 'axes'}")


def descale(value: object, name: str, batch: int, key_heads: int, device: torch.device) -> TensorOrNone:
    """The descale of an FP8 tensor as a tensor of shape (batch, key heads); a number applies to all of them."""
    if value is None or (isinstance(value, torch.Tensor) and value.dim() > 0):
        return value
    return torch.full((1, 1), number(value, name), dtype=torch.float32, device=device).expand(batch, key_heads)


def sides(window_size: tuple[Optional[int], Optional[int]]) -> tuple[int, int]:
    """The left and right side of a window, with -1 for no limit. Raises for any other negative number."""
    if type(window_size) is tuple and len(window_size) == 2:
        left, right = window_size
        if type(left) is int and type(right) is int and left >= -1 and right >= -1:
            return window_size
    try:
        left, right = window_size
    except (TypeError, ValueError):
        raise TypeError(f"`window_size` is {window_size!r}; it must be (left, right), -1 for a side without limit") from None
    left = -1 if left is None else integer(left, "window_size[0]")
    right = -1 if right is None else integer(right, "window_size[1]")
    if left < -1 or right < -1:
        raise ValueError(f"`window_size` is ({left}, {right}); a side is a number of keys, or -1 for no limit")
    return left, right


def windows(
    causal: bool, window_size: tuple[Optional[int], Optional[int]], seqlen_q: int, seqlen_k: int
) -> tuple[bool, int, int]:
    """A causal flag and a window's left and right side, -1 for no limit, that show the same keys as the given ones.

    A side that hides nothing in sequences of these lengths becomes -1, and a window equivalent to the causal mask
    becomes the causal mask, so that more kernels are usable.
    """
    causal, (left, right) = flag(causal, "causal"), sides(window_size)
    if causal or right == 0:
        causal, right = True, -1
    if left >= 0 and left >= seqlen_k - 1:  # positions are below seqlen_k
        left = -1
    if right >= 0 and right >= seqlen_q - 1:  # the first row is at seqlen_k - seqlen_q
        right = -1
    return causal, left, right


def is_padded(head_dim: int) -> bool:
    """True if no kernel can have the head dim, so that tensors are padded. Raises `ValueError` for 0."""
    if head_dim == 0:
        raise ValueError("`q`, `k` or `v` has head dim 0: there is nothing to attend with")
    return head_dim % 8 != 0 or head_dim < _LEAST_HEAD_DIM


def padded(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its head dim zero-padded to one that kernels can have."""
    head_dim = tensor.shape[-1]
    wanted = max(_LEAST_HEAD_DIM, (head_dim + 7) // 8 * 8)
    return tensor if head_dim == wanted else F.pad(tensor, (0, wanted - head_dim))


def cast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors, cast to autocast's dtype if autocast is enabled, like the inputs of torch's own attention."""
    if not any_autocast():
        return tensors
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(tensor.to(dtype) if tensor.dtype == torch.float32 or tensor.dtype in _HALVES else tensor for tensor in tensors)


_HALVES = (torch.float16, torch.bfloat16)
# True if autocast is enabled for any device type. Checked first: reading `tensor.device.type` takes longer.
any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def sinks(s_aux: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """The sinks, converted to a type that kernels read."""
    if s_aux is not None and not isinstance(s_aux, torch.Tensor):
        raise TypeError(f"`s_aux` is {shown(s_aux)}; it must be a torch.Tensor")
    return s_aux.float() if s_aux is not None and s_aux.dtype == torch.float16 else s_aux
