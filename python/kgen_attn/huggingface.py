"""kgen as an attention implementation of transformers: `register()`, then `attn_implementation="kgen"`."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch

from .interface import flash_attn_func, flash_attn_varlen_func

#: What a model may hand to an attention implementation that changes its result and that kgen does not have.
_REFUSED = ("position_bias", "head_mask", "cache")


class Packing(NamedTuple):
    """Sequences along one row axis: boundaries of their queries and keys, and the longest lengths or more."""

    cu_q: torch.Tensor
    cu_k: torch.Tensor
    longest_q: int
    longest_k: int


def register(name: str = "kgen") -> None:
    """Makes `name` an attention implementation of transformers (4.53 or newer).

    Causal and full attention, grouped heads, sliding windows, softcap and sinks, padding masks (left or right), batches
    packed by `cu_seq_lens_q` or by position ids that start again, and KV caches. Attention dropout is refused: set it
    to 0 in the model's configuration. So are chunked attention and biases. A mask that a model defines in another way,
    such as a prefix that sees itself, does not reach an attention implementation of this kind.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import flash_attention_mask

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, flash_attention_mask)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    sliding_window: Optional[int] = None,
    softcap: Optional[float] = None,
    is_causal: Optional[bool] = None,
    s_aux: Optional[torch.Tensor] = None,
    **others,
) -> tuple[torch.Tensor, None]:
    """What transformers calls for each layer.

    `query` is (batch, heads, rows, head dim), `key` and `value` (batch, key heads, keys, head dim); the result is
    (batch, rows, heads, head dim). `attention_mask`, (batch, keys seen), is False for padding.
    """
    for name in _REFUSED:
        if others.get(name) is not None:
            raise NotImplementedError(f"`{name}` is given; kgen has no such thing")
    chunk = getattr(module.config, "attention_chunk_size", None)
    if chunk is not None and key.shape[2] > chunk:
        raise NotImplementedError(f"`attention_chunk_size` is {chunk}: chunked attention of a model does not reach kgen")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    options = {"dropout_p": dropout, "softmax_scale": scaling, "causal": bool(causal), "softcap": softcap or 0.0, "s_aux": s_aux}
    if sliding_window is not None and key.shape[2] > sliding_window:
        # Of a causal mask the right side says nothing; an encoder's window is as wide on both sides.
        options["window_size"] = (sliding_window - 1, sliding_window - 1)
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    if attention_mask is not None:
        return _padded(q, k, v, attention_mask, options), None
    packing = _packing(q, others)
    if packing is None:
        return flash_attn_func(q, k, v, **options), None
    return flash_attn_varlen_func(q[0], k[0], v[0], *packing, **options)[None], None


def _packing(q: torch.Tensor, others: dict) -> Optional[Packing]:
    """The packing that a model's caller gives, or that position ids show; None for one sequence in each entry."""
    cu_q, cu_k = others.get("cu_seq_lens_q"), others.get("cu_seq_lens_k")
    if cu_q is not None:
        if q.shape[0] != 1:
            raise ValueError(f"`cu_seq_lens_q` goes with a batch of one; given {q.shape[0]}")
        return Packing(cu_q, cu_q if cu_k is None else cu_k, int(others["max_length_q"]), int(others["max_length_k"]))
    positions = others.get("position_ids")
    # One row is decoding: its cache is one sequence.
    if positions is None or positions.dim() != 2 or positions.shape != q.shape[:2] or q.shape[0] != 1 or q.shape[1] == 1:
        return None
    return _remembered(positions, "_kgen_packing", _packing_of_positions)


@torch.compiler.disable  # how many sequences there are depends on values
def _remembered(tensor: torch.Tensor, name: str, make):
    """The result of `make` for a tensor that every layer of a model gets: computed once, stored with it."""
    if not hasattr(tensor, name):
        setattr(tensor, name, make(tensor))
    return getattr(tensor, name)


def _packing_of_positions(positions: torch.Tensor) -> Optional[Packing]:
    (starts,) = torch.nonzero(positions[0] == 0, as_tuple=True)
    if starts.numel() < 2:
        return None
    end = starts.new_tensor([positions.shape[1]])
    cu = torch.cat([starts, end]).to(torch.int32)
    return Packing(cu, cu, positions.shape[1], positions.shape[1])


class _Places(NamedTuple):
    """Which tokens of a padded batch are valid, flat, and their packing."""

    q: torch.Tensor
    k: torch.Tensor
    packing: Packing


def _padded(q, k, v, mask: torch.Tensor, options: dict) -> torch.Tensor:
    """Attention where `mask` says which keys are there: valid tokens are packed, and O of the others is 0."""
    rows, seen = q.shape[1], mask.shape[1]
    if mask.dim() != 2 or mask.shape[0] != q.shape[0] or not rows <= seen <= k.shape[1]:
        raise ValueError(f"`attention_mask` has shape {tuple(mask.shape)}; it is (batch, keys), for {rows} rows and {k.shape[1]} keys")
    k, v = k[:, :seen], v[:, :seen]  # a cache of fixed size has more
    places = _remembered(mask, f"_kgen_places_{rows}", lambda mask: _places(mask, rows))
    packed = (t.flatten(0, 1)[where] for t, where in ((q, places.q), (k, places.k), (v, places.k)))
    out = flash_attn_varlen_func(*packed, *places.packing, **options)
    whole = out.new_zeros((q.shape[0] * rows, *out.shape[1:]))
    return whole.index_copy(0, places.q, out).unflatten(0, (q.shape[0], rows))


def _places(mask: torch.Tensor, rows: int) -> _Places:
    there = mask.bool()
    there_q = there[:, -rows:]
    places_q, places_k = (torch.nonzero(t.flatten(), as_tuple=True)[0] for t in (there_q, there))
    cu_q, cu_k = (torch.nn.functional.pad(t.sum(1).cumsum(0), (1, 0)).to(torch.int32) for t in (there_q, there))
    return _Places(places_q, places_k, Packing(cu_q, cu_k, rows, mask.shape[1]))
