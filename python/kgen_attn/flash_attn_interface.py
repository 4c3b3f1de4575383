"""FlashAttention-3's functions, with the parameters and defaults of its module `flash_attn_interface`:

    import kgen_attn.flash_attn_interface as flash_attn_interface

Parameters not described below have the same meaning as in the functions of `kgen_attn`. `pack_gqa` is a hint that does
not affect results, and is ignored: the library chooses the kernel that it predicts to be faster. Refused by name:
`sm_margin` other than 0, `scheduler_metadata` other than None, and `qv` without a KV cache.
"""

from __future__ import annotations

from typing import Optional, Union

import torch

from . import arguments, interface, kvcache
from .interface import Window

TensorOrNone = Optional[torch.Tensor]
Result = Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    qv: TensorOrNone = None,
    q_descale: TensorOrNone = None,
    k_descale: TensorOrNone = None,
    v_descale: TensorOrNone = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Result:
    """`kgen_attn.flash_attn_func`; with `return_attn_probs` (O, LSE)."""
    _refuse(qv=qv, sm_margin=sm_margin)
    # fmt: off
    found = interface.flash_attn_func(
        q, k, v, 0.0, softmax_scale, causal, window_size, softcap, None, deterministic, return_attn_probs,
        attention_chunk=attention_chunk, num_splits=num_splits, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    # fmt: on
    return found[:2] if return_attn_probs else found


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: TensorOrNone = None,
    seqused_k: TensorOrNone = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    qv: TensorOrNone = None,
    q_descale: TensorOrNone = None,
    k_descale: TensorOrNone = None,
    v_descale: TensorOrNone = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Result:
    """`kgen_attn.flash_attn_varlen_func`; with `return_attn_probs` (O, LSE). Rows that belong to no sequence are not
    written."""
    _refuse(qv=qv, sm_margin=sm_margin)
    # fmt: off
    found = interface.flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, softmax_scale, causal, window_size, softcap,
        None, deterministic, return_attn_probs, seqused_q=seqused_q, seqused_k=seqused_k, attention_chunk=attention_chunk,
        num_splits=num_splits, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    # fmt: on
    return found[:2] if return_attn_probs else found


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    q_descale: TensorOrNone = None,
    k_descale: TensorOrNone = None,
    v_descale: TensorOrNone = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: Optional[int] = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Result:
    """`flash_attn_func` of `qkv`, (batch, seqlen, 3, heads, head_dim), or (batch, seqlen, heads + 2 key heads,
    head_dim) with `num_heads_q` heads; it is read in place."""
    if not isinstance(qkv, torch.Tensor):
        raise TypeError(f"`qkv` is of type {type(qkv).__name__}; it must be a torch.Tensor")
    num_heads_q = None if num_heads_q is None else arguments.integer(num_heads_q, "num_heads_q")
    if qkv.dim() == 5 and qkv.shape[2] == 3:
        q, k, v = qkv.unbind(dim=2)
    elif qkv.dim() == 4 and num_heads_q is not None and 0 < num_heads_q < qkv.shape[2] and (qkv.shape[2] - num_heads_q) % 2 == 0:
        key_heads = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split([num_heads_q, key_heads, key_heads], dim=2)
    else:
        shapes = "(batch, seqlen, 3, heads, head dim), or (batch, seqlen, heads + 2 key heads, head dim) with `num_heads_q`"
        raise ValueError(f"`qkv` has shape {tuple(qkv.shape)} and `num_heads_q` is {num_heads_q}; it is {shapes}")
    # fmt: off
    return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk,
                           softcap, 1, None, deterministic, sm_margin, return_attn_probs)
    # fmt: on


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: TensorOrNone = None,
    v: TensorOrNone = None,
    qv: TensorOrNone = None,
    rotary_cos: TensorOrNone = None,
    rotary_sin: TensorOrNone = None,
    cache_seqlens: Optional[Union[int, torch.Tensor]] = None,
    cache_batch_idx: TensorOrNone = None,
    cache_leftpad: TensorOrNone = None,
    page_table: TensorOrNone = None,
    cu_seqlens_q: TensorOrNone = None,
    cu_seqlens_k_new: TensorOrNone = None,
    max_seqlen_q: Optional[int] = None,
    rotary_seqlens: TensorOrNone = None,
    q_descale: TensorOrNone = None,
    k_descale: TensorOrNone = None,
    v_descale: TensorOrNone = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: TensorOrNone = None,
    num_splits: int = 0,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
) -> Result:
    """`kgen_attn.flash_attn_with_kvcache`, whose `block_table` is `page_table` here. Rows that belong to no sequence of
    `cu_seqlens_q` are not written."""
    _refuse(sm_margin=sm_margin, scheduler_metadata=scheduler_metadata)
    # fmt: off
    return kvcache.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, page_table,
        softmax_scale, causal, window_size, softcap, rotary_interleaved, None, num_splits, return_softmax_lse,
        rotary_seqlens=rotary_seqlens, attention_chunk=attention_chunk, q_descale=q_descale, k_descale=k_descale,
        v_descale=v_descale, qv=qv, cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q, cu_seqlens_k_new=cu_seqlens_k_new)
    # fmt: on


def get_scheduler_metadata(*args, **kwargs) -> None:
    """Returns None, which `scheduler_metadata` accepts: each call determines its splits itself."""
    return None


def _refuse(**given) -> None:
    """Raises `NotImplementedError` with the name of an unsupported argument."""
    for name, value in given.items():
        if value is not None and not (isinstance(value, int) and value == 0):
            shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
            raise NotImplementedError(f"`{name}` is {shown}; kgen_attn has no `{name}`")
