"""What FlashAttention's arguments mean to kgen: masks, lengths, head dims, autocast."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F

#: Head dims are multiples of 8 from here on.
_LEAST_HEAD_DIM = 16


def refuse_dropout(dropout_p: float) -> None:
    """Raises `NotImplementedError` for a dropout."""
    if dropout_p != 0.0:
        raise NotImplementedError(f"`dropout_p` is {dropout_p}: kgen has no dropout; pass 0.0")


def windows(
    causal: bool, window_size: tuple[Optional[int], Optional[int]], seqlen_q: int, seqlen_k: int
) -> tuple[bool, int, int]:
    """The causal mask and the window's left and right side that show the same keys, with -1 for a side without limit.

    A side that hides nothing in sequences of these lengths is left out, and a window that is the causal mask becomes
    it: so more kernels serve the call.
    """
    left, right = window_size
    left = -1 if left is None or left < 0 else int(left)
    right = -1 if right is None or right < 0 else int(right)
    if causal or right == 0:
        causal, right = True, -1
    if left >= 0 and left >= seqlen_k - 1:  # positions are below seqlen_k
        left = -1
    if right >= 0 and right >= seqlen_q - 1:  # the first row is at seqlen_k - seqlen_q
        right = -1
    return bool(causal), left, right


def is_padded(head_dim: int) -> bool:
    """Whether no kernel can have the head dim, so that tensors are padded."""
    return head_dim % 8 != 0 or head_dim < _LEAST_HEAD_DIM


def padded(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with zeros appended to its head dim, up to one that kernels can have."""
    head_dim = tensor.shape[-1]
    wanted = max(_LEAST_HEAD_DIM, (head_dim + 7) // 8 * 8)
    return tensor if head_dim == wanted else F.pad(tensor, (0, wanted - head_dim))


def cast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors as autocast wants them, where it is on: as torch casts the inputs of its own attention."""
    if not any_autocast():
        return tensors
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(tensor.to(dtype) if tensor.dtype == torch.float32 or tensor.dtype in _HALVES else tensor for tensor in tensors)


_HALVES = (torch.float16, torch.bfloat16)
# Asking for the type of device first takes longer than all of this.
any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def sinks(s_aux: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """Sinks in a type that kernels read."""
    return s_aux.float() if s_aux is not None and s_aux.dtype == torch.float16 else s_aux
