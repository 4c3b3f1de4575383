"""FlashAttention's functions for packed tensors, which hold K and V, or Q, K and V."""

from __future__ import annotations

from typing import Optional

import torch

from .interface import Result, Window, flash_attn_func, flash_attn_varlen_func


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    attn_bias: Optional[torch.Tensor] = None,
) -> Result:
    """`flash_attn_func` of `qkv`, (batch, seqlen, 3, heads, head_dim), which is read in place."""
    _check(qkv, "qkv", 5, 3)
    q, k, v = qkv.unbind(dim=2)
    # fmt: off
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs, attn_bias=attn_bias)
    # fmt: on


def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    attn_bias: Optional[torch.Tensor] = None,
) -> Result:
    """`flash_attn_func` of `kv`, (batch, seqlen_k, 2, key heads, head_dim), which is read in place."""
    _check(kv, "kv", 5, 2)
    k, v = kv.unbind(dim=2)
    # fmt: off
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs, attn_bias=attn_bias)
    # fmt: on


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    attn_bias: Optional[torch.Tensor] = None,
) -> Result:
    """`flash_attn_varlen_func` of `qkv`, (total, 3, heads, head_dim), which is read in place. Rows of the result that
    belong to no sequence are not written."""
    _check(qkv, "qkv", 4, 3)
    q, k, v = qkv.unbind(dim=1)
    # fmt: off
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
                                  window_size, softcap, alibi_slopes, deterministic, return_attn_probs, attn_bias=attn_bias)
    # fmt: on


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    attn_bias: Optional[torch.Tensor] = None,
) -> Result:
    """`flash_attn_varlen_func` of `kv`, (total_k, 2, key heads, head_dim), which is read in place. Rows of the result
    that belong to no sequence are not written."""
    _check(kv, "kv", 4, 2)
    k, v = kv.unbind(dim=1)
    # fmt: off
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
                                  causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
                                  attn_bias=attn_bias)
    # fmt: on


def _check(tensor: torch.Tensor, name: str, axes: int, parts: int) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"`{name}` is of type {type(tensor).__name__}; it must be a torch.Tensor")
    if tensor.dim() != axes or tensor.shape[-3] != parts:
        shape = "(batch, seqlen, " if axes == 5 else "(total, "
        raise ValueError(f"`{name}` has shape {tuple(tensor.shape)}; it is {shape}{parts}, heads, head dim)")
