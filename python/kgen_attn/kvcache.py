"""FlashAttention's function for decoding with a KV cache."""

from __future__ import annotations

from typing import Optional, Union

import torch

from . import append_kv, arguments, host_values, ops
from .bias import bias_of_four_axes
from .forward import layout_of, out_dtype, planned, rows_are_contiguous, run
from .interface import Descale, Window, descales
from .launch import check_beside, check_integers
from .repeats import Repeats, are_same

#: Plans by the caller's arguments: that of the attention; with new keys also that of the append.
_remembered = Repeats()


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: Optional[torch.Tensor] = None,
    v: Optional[torch.Tensor] = None,
    rotary_cos: Optional[torch.Tensor] = None,
    rotary_sin: Optional[torch.Tensor] = None,
    cache_seqlens: Optional[Union[int, torch.Tensor]] = None,
    cache_batch_idx: Optional[torch.Tensor] = None,
    cache_leftpad: Optional[torch.Tensor] = None,
    block_table: Optional[torch.Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Optional[torch.Tensor] = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    rotary_seqlens: Optional[torch.Tensor] = None,
    attention_chunk: int = 0,
    s_aux: Optional[torch.Tensor] = None,
    q_descale: Descale = None,
    k_descale: Descale = None,
    v_descale: Descale = None,
    qv: Optional[torch.Tensor] = None,
    cu_seqlens_q: Optional[torch.Tensor] = None,
    max_seqlen_q: Optional[int] = None,
    cu_seqlens_k_new: Optional[torch.Tensor] = None,
    attn_bias: Optional[torch.Tensor] = None,
) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Attention to a KV cache. If new keys and values are given, they are written into the cache first.

    Shapes:
        q: (batch, seqlen_q, heads, head_dim).
        k_cache, v_cache: (entries, rows, key heads, head_dim), or (pages, page size, key heads, head_dim) with
            `block_table`. Of the type of `q`, or FP8 with factors `k_descale` and `v_descale`, (batch, key heads)
            float32, or a number for all. Changed in place by `k` and `v`.
        k, v: (batch, seqlen_new, key heads, head_dim): written from row `cache_seqlens` of each sequence on. Rows
            that do not fit in the cache are not written.
        rotary_cos, rotary_sin: (positions, rotary_dim / 2), of the type of `q`. New keys are rotated by their
            position, `cache_seqlens` for the first; queries too with a causal mask or a window, else all by the first
            position.
        cache_seqlens: int or (batch,) int32: rows in the cache before this call. None: all of them.
        cache_batch_idx: (batch,) int32: the entry of the cache that each sequence has; with `block_table`, its row.
        cache_leftpad: (batch,) int32: rows of an entry before its first key, which `cache_seqlens` counts.
        block_table: (batch, pages of a sequence) int32.
        cu_seqlens_q, max_seqlen_q: (batch + 1,) int32 and the longest sequence of queries: `q` is then packed,
            (total_q, heads, head_dim).
        cu_seqlens_k_new: (batch + 1,) int32: `k` and `v` are then packed, (total_new, key heads, head_dim).
        attn_bias: (batch, heads, seqlen_q, rows of the cache), each of these or 1; seqlen_q is `max_seqlen_q` of packed
            queries, and a cache in pages has as many rows as `block_table` has entries for a sequence. Key j of a
            sequence is its row j, including new rows; with `cache_leftpad`, its j-th row from the first key on.
        returns: O, of the shape of `q`, and with `return_softmax_lse` the log-sum-exp of each row, (batch, heads,
            seqlen_q) float32, or (heads, total_q). Rows that belong to no sequence of `cu_seqlens_q` are not
            written: their contents are undefined.

    Caches whose head dim is not a multiple of 8 are copied in each call to be padded.

    `rotary_interleaved`: pairs of rotated columns are adjacent; otherwise they come from the two halves of
    `rotary_dim`. `rotary_seqlens`, (batch,) int32: first positions other than `cache_seqlens`. `q_descale`, (batch, key
    heads) float32, is the factor of an FP8 `q`. `qv`, (batch, seqlen_q, heads, head_dim_v), is a second part of the
    queries, which is multiplied with V: scores are those of Q Kᵀ + QV Vᵀ, and the default scale is 1 / sqrt(head_dim +
    head_dim_v). This is DeepSeek's MLA decoding with absorbed projections. The other arguments, masks and errors are as
    for `flash_attn_func`.

    Gradients flow through a dense cache without new keys. With new keys, pages, `cache_batch_idx` or `cache_leftpad`
    there are none: the backward pass raises `NotImplementedError`.
    """
    # fmt: off
    lengths, for_all = (None, True) if type(cache_seqlens) is int else (cache_seqlens, False)
    given = (q, k_cache, v_cache, cu_seqlens_q, None, None, lengths, block_table, cache_batch_idx, cache_leftpad,
             alibi_slopes, s_aux, q_descale, k_descale, v_descale, qv, attn_bias)
    given_new = (k, v, cu_seqlens_k_new, rotary_cos, rotary_sin, rotary_seqlens)
    key, plans = _remembered.find((*given, *given_new), window_size, for_all, max_seqlen_q, softmax_scale, causal, softcap,
                                  rotary_interleaved, num_splits, attention_chunk)
    # fmt: on
    if plans is not None:
        optional = given[3:]
        if for_all:
            rows = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
            batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
            optional = (*given[3:6], _one_length(cache_seqlens, batch, rows, q.device), *given[7:])
        if k is None:
            out, lse = run(plans, q, k_cache, v_cache, optional, return_softmax_lse)
        else:
            out, lse = append_kv.run(plans, q, k_cache, v_cache, optional, given_new, return_softmax_lse)
        return (out, lse) if return_softmax_lse else out
    paged = block_table is not None
    arguments.check_tensors(q, k_cache, v_cache, 4 if cu_seqlens_q is None else 3, 4, ("q", "k_cache", "v_cache"))
    if (k is None) != (v is None):
        raise ValueError("`k` and `v` come together")
    if k is not None:
        arguments.check_tensors(q, k, v, q.dim(), 4 if cu_seqlens_k_new is None else 3)
    if (rotary_cos is None) != (rotary_sin is None):
        raise ValueError("`rotary_cos` and `rotary_sin` come together")
    if rotary_cos is None:  # FlashAttention accepts first positions without rotary tables
        rotary_seqlens = None
    if rotary_cos is not None and k is None:
        raise ValueError("`rotary_cos` goes with new keys, `k` and `v`")
    if cache_leftpad is not None and paged:
        raise NotImplementedError("`cache_leftpad` with `block_table`: pages have no rows before the first key")
    if cu_seqlens_k_new is not None and k is None:
        raise ValueError("`cu_seqlens_k_new` goes with new keys, `k` and `v`")
    if cu_seqlens_q is not None and max_seqlen_q is None:
        raise ValueError("`cu_seqlens_q` needs `max_seqlen_q`")
    if paged:
        arguments.check_axes("block_table", block_table, 2)
    if cu_seqlens_q is not None:
        arguments.check_axes("cu_seqlens_q", cu_seqlens_q, 1)
    if cache_batch_idx is not None and paged:  # the kernels read the rows of a table in order
        arguments.check_axes("cache_batch_idx", cache_batch_idx, 1)
        check_beside(q, {"block_table": block_table, "cache_batch_idx": cache_batch_idx})
        if cache_batch_idx.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"`cache_batch_idx` is {cache_batch_idx.dtype}; it must be torch.int32")
        host_values.check_numbers("cache_batch_idx", cache_batch_idx, block_table.shape[0])
        block_table, cache_batch_idx = block_table.index_select(0, cache_batch_idx), None
    wanted = None
    if k is not None and torch.is_grad_enabled():
        inputs = (q, k_cache, v_cache, k, v, s_aux, attn_bias)
        for tensor in inputs:
            if getattr(tensor, "requires_grad", False):
                wanted = tensor
        if wanted is not None:
            q, k_cache, v_cache, k, v, s_aux, attn_bias = (t if t is None else t.detach() for t in inputs)
    if arguments.any_autocast():  # the cache is written in place, so it is not converted
        (q,) = arguments.cast(q)
        k, v = (None, None) if k is None else arguments.cast(k, v)
    rows = block_table.shape[1] * k_cache.shape[1] if paged else k_cache.shape[1]
    head_dim, head_dim_v = q.shape[-1], v_cache.shape[-1]
    if cu_seqlens_q is None:
        batch, seqlen_q = q.shape[:2]
    else:
        batch, seqlen_q = cu_seqlens_q.shape[0] - 1, arguments.integer(max_seqlen_q, "max_seqlen_q")
    if cache_batch_idx is None and not paged and k_cache.shape[0] > batch:  # the first entries, as in FlashAttention
        k_cache, v_cache = k_cache[:batch], v_cache[:batch]
    if cache_seqlens is None and k is not None:
        raise ValueError("`k` and `v` go after `cache_seqlens` rows of the cache; give it")
    if cache_seqlens is not None and (not isinstance(cache_seqlens, torch.Tensor) or cache_seqlens.dim() == 0):
        cache_seqlens = _one_length(arguments.integer(cache_seqlens, "cache_seqlens"), batch, rows, q.device)
    elif cache_seqlens is not None:
        arguments.check_axes("cache_seqlens", cache_seqlens, 1)
        check_integers({"cache_seqlens": cache_seqlens})
    if qv is not None:
        arguments.check_axes("qv", qv, q.dim())
    caches, padded = (k_cache, v_cache), arguments.is_padded(head_dim) or arguments.is_padded(head_dim_v)
    if padded and qv is not None:
        given = f"head dims {head_dim} and {head_dim_v}"
        raise NotImplementedError(f"`qv` with {given}: they must be multiples of 8, and at least 16")
    if padded:  # copies of the caches, as in FlashAttention
        q, k_cache, v_cache = arguments.padded(q), arguments.padded(k_cache), arguments.padded(v_cache)
        k, v = (None, None) if k is None else (arguments.padded(k), arguments.padded(v))
    # The mask as requested decides: even a window that hides nothing implies that positions increase with the rows.
    causal = arguments.flag(causal, "causal")
    rising = causal or max(arguments.sides(window_size)) >= 0
    causal, left, right = arguments.windows(causal, window_size, seqlen_q, rows)
    if softmax_scale is None:
        softmax_scale = (head_dim + (0 if qv is None else qv.shape[-1])) ** -0.5
    if q_descale is not None or k_descale is not None or v_descale is not None:
        q_descale, k_descale, v_descale = descales(q_descale, k_descale, v_descale, batch, k_cache)
    if paged and cache_seqlens is None:
        raise ValueError("`block_table` needs `cache_seqlens`, the rows of each sequence")
    # fmt: off
    optional = (cu_seqlens_q, None, None, cache_seqlens, block_table, cache_batch_idx, cache_leftpad, alibi_slopes,
                arguments.sinks(s_aux), q_descale, k_descale, v_descale, qv, bias_of_four_axes(attn_bias, out_dtype(q)))
    numbers = (0 if cu_seqlens_q is None else seqlen_q, rows, arguments.number(softmax_scale, "softmax_scale"), causal, left,
               right, arguments.integer(attention_chunk, "attention_chunk"), arguments.softcap(softcap),
               arguments.integer(num_splits, "num_splits"))
    # fmt: on
    if k is None:
        out, lse = ops.attend(q, k_cache, v_cache, optional, numbers, False, return_softmax_lse)
    else:
        interleaved = arguments.flag(rotary_interleaved, "rotary_interleaved")
        new = (k, v, cu_seqlens_k_new, rotary_cos, rotary_sin, rotary_seqlens, rising, interleaved)
        out, lse = ops.attend_with_new_rows(q, k_cache, v_cache, optional, numbers, new, return_softmax_lse)
        if padded:
            for cache, wide in zip(caches, (k_cache, v_cache)):
                cache.copy_(wide[..., : cache.shape[-1]])
        if wanted is not None:
            out, lse = ops.without_gradient(out, wanted), lse if lse is None else ops.without_gradient(lse, wanted)
    # A cache with more entries than the batch is planned with its first entries, which start at the same address.
    same = key is not None and not padded and are_same((q, *given[4:6], *given[7:]), (given[0], *optional[1:3], *optional[4:]))
    if same and (for_all or cache_seqlens is lengths):
        if k is not None:
            plans = append_kv.plans(q, k_cache, v_cache, optional, numbers, new)
        elif rows_are_contiguous(layout_of(q, k_cache, v_cache)):
            plans = planned(layout_of(q, k_cache, v_cache), q, k_cache, v_cache, optional, numbers)
        if plans is not None:
            _remembered.keep(key, plans)
    out = out[..., :head_dim_v] if padded else out
    return (out, lse) if return_softmax_lse else out


def _one_length(used: int, batch: int, rows: int, device: torch.device) -> torch.Tensor:
    """The lengths of all sequences, as a tensor."""
    if not 0 <= used <= rows:
        raise ValueError(f"`cache_seqlens` is {used}; the cache has {rows} rows for each sequence")
    return torch.full((batch,), used, dtype=torch.int32, device=device)
