"""FlashAttention's functions for sequences of equal lengths and packed sequences, on kgen's kernels."""

from __future__ import annotations

from typing import Optional, Union

import torch

from . import arguments, dropout, ops, tracing
from .bias import bias_of_four_axes
from .forward import NONE, ForwardPlan, layout_of, out_dtype, planned, rows_are_contiguous, run
from .launch import MOST_PLANS
from .repeats import Repeats, are_same

#: Plans of `flash_attn_func` by the caller's arguments: an equivalent call skips the checks.
_direct: dict[tuple, ForwardPlan] = {}

#: Plans of `flash_attn_varlen_func`.
_packed = Repeats()

#: Types of a plan's key in addition to the layout.
_NUMBERS = (float, int, bool, type(None))

Descale = Optional[Union[torch.Tensor, float]]
Result = Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
Window = tuple[Optional[int], Optional[int]]


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    seqused_q: Optional[torch.Tensor] = None,
    seqused_k: Optional[torch.Tensor] = None,
    attention_chunk: int = 0,
    num_splits: int = 0,
    s_aux: Optional[torch.Tensor] = None,
    q_descale: Descale = None,
    k_descale: Descale = None,
    v_descale: Descale = None,
    attn_bias: Optional[torch.Tensor] = None,
    rng_state: Optional[torch.Tensor] = None,
) -> Result:
    """softmax(softmax_scale · Q Kᵀ + bias + mask) V.

    Shapes:
        q: (batch, seqlen_q, heads, head_dim), float16 or bfloat16; float8_e4m3fn without gradients.
        k: (batch, seqlen_k, key heads, head_dim). `heads` is a multiple of `key heads`; query head h reads key head
            h // (heads / key heads).
        v: (batch, seqlen_k, key heads, head_dim_v).
        returns: (batch, seqlen_q, heads, head_dim_v), of the type of `q`, or bfloat16 if that is FP8.

    Arguments:
        dropout_p: the fraction of the weights that is dropped, at least 0 and below 1; the others are divided by
            1 - dropout_p. Applies in every call: pass 0.0 outside of training. Not with FP8, pages, softcap or splits.
        softmax_scale: default 1 / sqrt(head_dim).
        causal: row i sees key j if j <= i + seqlen_k - seqlen_q. A row that sees no key gives zeros.
        window_size: (left, right): row i, at position p = i + seqlen_k - seqlen_q, sees keys p - left to p + right;
            -1 is no limit.
        softcap: scores s become softcap · tanh(s / softcap); 0: no softcap.
        alibi_slopes: (heads,) or (batch, heads), float32: slope · |i + seqlen_k - seqlen_q - j| is subtracted
            from a score.
        deterministic: the backward pass gives the same bits for the same inputs. The forward pass always does.
        return_attn_probs: also return the log-sum-exp of each row, (batch, heads, seqlen_q) float32, and FlashAttention's
            S_dmask for tests of dropout (`dropout.signed_weights`), or an empty tensor without dropout. S_dmask takes
            the memory of several float32 tensors of all scores.
        seqused_q, seqused_k: (batch,) int32, rows of each sequence that are used: masks use these lengths. Rows
            of the result beyond them are not written.
        attention_chunk: a row sees only keys of its own chunk of this many positions; 0: no chunks.
        num_splits: number of parts into which the keys are divided; 0: kgen chooses, 1: not divided.
        s_aux: (heads,), attention sinks: a logit per head that is added to the softmax denominator of each row. Has a
            gradient.
        q_descale, k_descale, v_descale: (batch, key heads) float32, or a number for all: factors of FP8 tensors.
        rng_state: (2,) int64, seed and offset of dropout, which determine the dropped weights (`dropout_mask`). None:
            each call draws them from PyTorch's generator of the device.
        attn_bias: (batch, heads, seqlen_q, seqlen_k), each of these or 1, or only the last two or three axes: added to the
            scores after softmax_scale, softcap and alibi_slopes. float32 or the type of the result; -infinity
            hides a key. Or bool, True where a row sees a key: becomes a bias of 0 and -infinity, of the type
            of the result, in each call. A bias that is not bool has a gradient, summed over axes of 1; not beside
            `softcap`, and not over axes of 1 if `deterministic`. NaN and +infinity give NaN.

    Head dims that are not multiples of 8 are padded with zeros. Gradients flow to `q`, `k`, `v`, `s_aux` and
    `attn_bias`, from the result and from the log-sum-exp; anything else that requires grad is refused. Derivatives are
    of first order, in reverse mode: second derivatives, forward mode and `torch.func`'s transforms raise
    `NotImplementedError`.

    Numbers may be passed as one-element tensors. The call reads them, which waits for their device.

    Raises `MissingKernel` if the library has no kernel for the call, `KgenError` if it refuses the call, and
    `TypeError`, `ValueError` or `NotImplementedError` with the argument's name.
    """
    plain = alibi_slopes is None and s_aux is None and q_descale is None and k_descale is None and v_descale is None
    plain = plain and seqused_q is None and seqused_k is None and attn_bias is None and rng_state is None
    layout = plan = None
    try:
        if plain and tracing.is_direct(q, k, v):
            layout = layout_of(q, k, v)
            asked = (layout, dropout_p, softmax_scale, causal, tuple(window_size), softcap, attention_chunk, num_splits)
            plan = _direct.get(asked)
    except (AttributeError, TypeError, RuntimeError):  # an argument has a wrong type, which is reported below
        layout = None
    if plan is not None:
        out, lse = run(plan, q, k, v, NONE, return_attn_probs)
        return (out, lse, ops.nothing(out)) if return_attn_probs else out
    arguments.check_tensors(q, k, v, 4, 4)
    if k.shape[0] != q.shape[0]:
        raise ValueError(f"`k` has {k.shape[0]} batch entries, `q` {q.shape[0]}")
    q, k, v = arguments.cast(q, k, v)
    causal, left, right = arguments.windows(causal, window_size, q.shape[1], k.shape[1])
    head_dim, head_dim_v = q.shape[-1], v.shape[-1]
    padded = arguments.is_padded(head_dim) or arguments.is_padded(head_dim_v)
    scale = head_dim**-0.5 if softmax_scale is None else arguments.number(softmax_scale, "softmax_scale")
    if padded:
        q, k, v = arguments.padded(q), arguments.padded(k), arguments.padded(v)
    optional = NONE
    if not plain:
        q_descale, k_descale, v_descale = descales(q_descale, k_descale, v_descale, q.shape[0], k)
        # fmt: off
        optional = (None, None, seqused_q, seqused_k, None, None, None, alibi_slopes, arguments.sinks(s_aux),
                    q_descale, k_descale, v_descale, None, bias_of_four_axes(attn_bias, out_dtype(q)))
        # fmt: on
    chunk, splits = arguments.integer(attention_chunk, "attention_chunk"), arguments.integer(num_splits, "num_splits")
    numbers = (0, 0, scale, causal, left, right, chunk, arguments.softcap(softcap), splits)
    deterministic = arguments.flag(deterministic, "deterministic")
    dropped = dropout.drawn(dropout_p, rng_state, (q, k, v, *optional), numbers)
    out, lse = ops.attend(q, k, v, optional, numbers, deterministic, return_attn_probs, dropped)
    if layout is not None and not padded and dropped[1] == 0.0 and rows_are_contiguous(layout) and _lasts(asked):
        if len(_direct) >= MOST_PLANS:
            _direct.clear()
        _direct[asked] = planned(layout, q, k, v, NONE, numbers)
    if padded:
        out = out[..., :head_dim_v]
    return _with_probs(out, lse, q, k, optional, numbers, dropped) if return_attn_probs else out


def _lasts(asked: tuple) -> bool:
    """True if no argument is a tensor used as a number, whose value may change later."""
    return all(type(value) in _NUMBERS for value in (*asked[1:4], *asked[4], *asked[5:]))


def _with_probs(out, lse, q, k, optional: tuple, numbers: tuple, dropped: tuple) -> tuple:
    """The results with `return_attn_probs`: O, the log-sum-exp, and S_dmask, which is empty without dropout."""
    without = dropped[1] == 0.0
    return out, lse, ops.nothing(out) if without else dropout.signed_weights(q, k, optional, numbers, *dropped)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: Optional[torch.Tensor],
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
    block_table: Optional[torch.Tensor] = None,
    *,
    seqused_q: Optional[torch.Tensor] = None,
    seqused_k: Optional[torch.Tensor] = None,
    attention_chunk: int = 0,
    num_splits: int = 0,
    s_aux: Optional[torch.Tensor] = None,
    q_descale: Descale = None,
    k_descale: Descale = None,
    v_descale: Descale = None,
    attn_bias: Optional[torch.Tensor] = None,
    rng_state: Optional[torch.Tensor] = None,
) -> Result:
    """`flash_attn_func` for sequences packed along the row axis.

    Shapes:
        q: (total_q, heads, head_dim), sequence b from row cu_seqlens_q[b] to cu_seqlens_q[b + 1].
        k, v: (total_k, key heads, head_dim or head_dim_v), in the same way by `cu_seqlens_k`; with `block_table`
            (pages, page size, key heads, ·).
        cu_seqlens_q, cu_seqlens_k: (batch + 1,) int32, starting at 0.
        block_table: (batch, pages of a sequence) int32. Lengths of the keys are then `seqused_k`, or the differences of
            `cu_seqlens_k`.
        seqused_q, seqused_k: (batch,) int32, rows of each sequence that are used.
        attn_bias: (batch, heads, max_seqlen_q, max_seqlen_k), each of these or 1: by the rows and keys of a sequence.
            Elements beyond its own lengths are ignored, and have gradient 0.
        returns: (total_q, heads, head_dim_v); with `return_attn_probs` also the log-sum-exp, (heads, total_q) float32.
            Rows that belong to no sequence, before cu_seqlens_q[0], after cu_seqlens_q[-1] or beyond `seqused_q`, are
            not written: their contents are undefined, and they have no gradient.

    `max_seqlen_q` and `max_seqlen_k` are upper bounds of the lengths. The other arguments are as for `flash_attn_func`.
    """
    # fmt: off
    given = (q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, block_table, None, None, alibi_slopes, s_aux,
             q_descale, k_descale, v_descale, None, attn_bias)
    key, plan = _packed.find(given, window_size, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, softcap,
                             deterministic, attention_chunk, num_splits, rng_state)
    # fmt: on
    if plan is not None:
        optional = given[3:]
        if block_table is not None:
            optional = (cu_seqlens_q, None, seqused_q, _used(cu_seqlens_k, seqused_k), *given[7:])
        out, lse = run(plan, q, k, v, optional, return_attn_probs)
        return (out, lse, ops.nothing(out)) if return_attn_probs else out
    arguments.check_tensors(q, k, v, 3, 3 if block_table is None else 4)
    arguments.check_axes("cu_seqlens_q", cu_seqlens_q, 1)
    if cu_seqlens_k is not None:
        arguments.check_axes("cu_seqlens_k", cu_seqlens_k, 1)
    if block_table is not None and seqused_k is None:
        if cu_seqlens_k is None:
            raise ValueError("`block_table` needs the lengths of the keys: `seqused_k` or `cu_seqlens_k`")
        seqused_k = _used(cu_seqlens_k, None)
    if block_table is not None:
        cu_seqlens_k = None
    elif cu_seqlens_k is None:
        raise ValueError("`cu_seqlens_k` is None; without it `k` and `v` are paged, which `block_table` says")
    q, k, v = arguments.cast(q, k, v)
    max_seqlen_q, max_seqlen_k = (
        arguments.integer(max_seqlen_q, "max_seqlen_q"),
        arguments.integer(max_seqlen_k, "max_seqlen_k"),
    )
    causal, left, right = arguments.windows(causal, window_size, max_seqlen_q, max_seqlen_k)
    head_dim, head_dim_v = q.shape[-1], v.shape[-1]
    padded = arguments.is_padded(head_dim) or arguments.is_padded(head_dim_v)
    scale = head_dim**-0.5 if softmax_scale is None else arguments.number(softmax_scale, "softmax_scale")
    if padded:
        q, k, v = arguments.padded(q), arguments.padded(k), arguments.padded(v)
    if q_descale is not None or k_descale is not None or v_descale is not None:
        q_descale, k_descale, v_descale = descales(q_descale, k_descale, v_descale, cu_seqlens_q.shape[0] - 1, k)
    chunk, splits = arguments.integer(attention_chunk, "attention_chunk"), arguments.integer(num_splits, "num_splits")
    # fmt: off
    optional = (cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, block_table, None, None, alibi_slopes, arguments.sinks(s_aux),
                q_descale, k_descale, v_descale, None, bias_of_four_axes(attn_bias, out_dtype(q)))
    numbers = (max_seqlen_q, max_seqlen_k, scale, causal, left, right, chunk, arguments.softcap(softcap), splits)
    # fmt: on
    deterministic = arguments.flag(deterministic, "deterministic")
    dropped = dropout.drawn(dropout_p, rng_state, (q, k, v, *optional), numbers)
    out, lse = ops.attend(q, k, v, optional, numbers, deterministic, return_attn_probs, dropped)
    # (The cache key determines the kind of key lengths.)
    same = key is not None and are_same((*given[:4], *given[7:]), (q, k, v, cu_seqlens_q, *optional[4:]))
    if same and dropped[1] == 0.0 and rows_are_contiguous(layout_of(q, k, v)):
        _packed.keep(key, planned(layout_of(q, k, v), q, k, v, optional, numbers))
    if padded:
        out = out[..., :head_dim_v]
    return _with_probs(out, lse, q, k, optional, numbers, dropped) if return_attn_probs else out


def _used(cu_seqlens_k: torch.Tensor, seqused_k: Optional[torch.Tensor]) -> torch.Tensor:
    """The number of keys of each sequence in its pages."""
    return cu_seqlens_k[1:] - cu_seqlens_k[:-1] if seqused_k is None else seqused_k


def descales(q_descale: Descale, k_descale: Descale, v_descale: Descale, batch: int, k: torch.Tensor) -> tuple:
    """The three descale factors as tensors, or None."""
    named = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    return tuple(arguments.descale(value, name, batch, k.shape[-2], k.device) for name, value in named.items())
