"""kgen as an attention implementation of transformers: `register()`, then `attn_implementation="kgen"`."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch

from . import bands, masks
from .bias import additive
from .forward import out_dtype
from .interface import flash_attn_func, flash_attn_varlen_func

#: Arguments that a model may pass to an attention implementation, that change the result, and that kgen does not
#: support.
_REFUSED = ("head_mask", "cache")


#: True if transformers has version 4. Its models, such as GPT-2, may pass `is_causal=False` together with a causal
#: mask, because SDPA accepts only one of them; and masks with four axes may be longer than the keys.
_is_version_4 = False


class Packing(NamedTuple):
    """Sequences along one row axis: boundaries of their queries and keys, and upper bounds of the lengths."""

    cu_q: torch.Tensor
    cu_k: torch.Tensor
    longest_q: int
    longest_k: int


def register(name: str = "kgen") -> None:
    """Makes `name` an attention implementation of transformers (4.53 or newer).

    Supported are causal and full attention, grouped heads, sliding windows, softcap and sinks, padding masks (left or
    right), batches packed by `cu_seq_lens_q` or by position ids that restart, and KV caches, growing or of fixed size;
    with kernels of the feature `dropout` also attention dropout in training. A mask that is a band of keys (`bands.py`)
    is computed as a band. With kernels of the feature `bias`, any other mask, also of chunked attention, is computed as
    a bias with four axes; a caller may pass such a bias too, and a model may add a `position_bias`. Without such
    kernels the mask is refused with its name.

    Models compile without graph breaks. Position ids cannot be read there: if they restart in a batch of one, an
    assertion on the device fails. `cu_seq_lens_q` packs in compiled models too.
    """
    global _is_version_4
    from transformers import AttentionInterface, AttentionMaskInterface, __version__

    _is_version_4 = int(__version__.split(".")[0]) < 5
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, masks.mask)


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
    """The function that transformers calls for each layer.

    `query` is (batch, heads, rows, head dim), `key` and `value` (batch, key heads, keys, head dim); the result is
    (batch, rows, heads, head dim). `attention_mask` is None; or (batch, keys seen), False for padding; or (batch, heads
    or 1, rows, keys), bool or additive, which replaces the causal mask and the window; or int32 as described in
    `masks.py`. `position_bias`, (batch or 1, heads or 1, rows or 1, keys), is added to the scores.
    """
    for name in _REFUSED:
        if others.get(name) is not None:
            raise NotImplementedError(f"`{name}` is given; kgen has no such thing")
    if attention_mask is not None and not isinstance(attention_mask, torch.Tensor):
        raise TypeError(f"`attention_mask` is of type {type(attention_mask).__name__}; it must be a torch.Tensor")
    told = attention_mask is not None and attention_mask.dim() == 4 and attention_mask.dtype == torch.int32
    told = told and attention_mask.shape[3] <= masks.PLACES
    whole = attention_mask is not None and attention_mask.dim() == 4 and not told
    chunk = getattr(module.config, "attention_chunk_size", None)
    if chunk is not None and key.shape[2] > chunk and not whole:
        raise NotImplementedError(f"`attention_chunk_size` is {chunk}: chunked attention of a model does not reach kgen")
    if is_causal is None or (_is_version_4 and attention_mask is not None):
        is_causal = getattr(module, "is_causal", True)
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    kind, band = (attention_mask.shape[3], attention_mask.shape[1] - 1) if told else (None, 0)
    if band:
        attention_mask = attention_mask[:, :1]
    if kind == masks.NOTHING:
        k, v = (t[:, : attention_mask.shape[2]] for t in (k, v))
        attention_mask = None
    options = {"dropout_p": dropout, "softmax_scale": scaling, "causal": bool(is_causal), "softcap": softcap or 0.0}
    options["s_aux"] = s_aux
    position_bias = others.get("position_bias")
    if whole or position_bias is not None:
        for name in ("cu_seq_lens_q", "cu_seq_lens_k"):
            if others.get(name) is not None:
                told = "with a mask of four axes or `position_bias`, which are by rows of the whole batch"
                raise NotImplementedError(f"`{name}` {told}")
    if whole:
        options["causal"], options["attn_bias"] = False, _bias_of(attention_mask, position_bias, q, k)
        return flash_attn_func(q, k, v, **options), None
    if band:
        options["causal"], options["window_size"] = False, bands.numbered(band)
    elif sliding_window is not None and k.shape[1] > sliding_window:
        # With a causal mask the right side has no effect; an encoder's window is symmetric.
        options["window_size"] = (sliding_window - 1, sliding_window - 1)
    if position_bias is not None:
        return _with_bias(q, k, v, attention_mask, kind, position_bias, others.get("position_ids"), options), None
    if kind == masks.RANGE:
        return _in_ranges(q, k, v, attention_mask.flatten(1), options), None
    positions = others.get("position_ids")
    if positions is not None and (q.shape[1] == 1 or positions.shape not in ((1, q.shape[1]), q.shape[:2])):
        positions = None  # a single row is a decoding step, never packed
    if positions is not None and q.shape[0] > 1:
        # In a larger batch each row is one sequence, which `masks.py` has checked in eager calls.
        if attention_mask is None and is_causal and not masks.may_look(positions):
            _fail_if_several(positions)
        positions = None
    if kind == masks.PLACES:
        return _by_places(q, k, v, attention_mask[:, 0], positions, options), None
    if attention_mask is not None and kind is None:
        return _padded(q, k, v, attention_mask, positions, options), None
    packing = _packing(q, k.shape[1], others)
    if packing is None and positions is not None:
        packing = _packing_of_positions(positions)
    if packing is None:
        lengths = None if attention_mask is None else attention_mask.flatten()
        return flash_attn_func(q, k, v, seqused_k=lengths, **options), None
    if attention_mask is not None or (packing.cu_k is packing.cu_q and k.shape[1] != q.shape[1]):
        raise _packed_behind_a_cache(q.shape[1], k.shape[1])
    return flash_attn_varlen_func(q[0], k[0], v[0], *packing, **options)[None], None


def _bias_of(mask: torch.Tensor, position_bias: Optional[torch.Tensor], q, k) -> torch.Tensor:
    """A mask with four axes as a bias, plus `position_bias`. A bool mask is converted once for all layers."""
    keys = k.shape[1]
    if _is_version_4 and mask.shape[3] > keys:  # like transformers' own attention
        mask = mask[..., :keys]
    _check_bias("attention_mask", mask, q, keys)
    if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
        kinds = "torch.bool, True where a query sees a key, or of floating type, added to the scores"
        raise TypeError(f"`attention_mask` is {mask.dtype}; of four axes it must be {kinds}")
    if position_bias is not None:
        _check_bias("position_bias", position_bias, q, keys)
        return _readable(position_bias.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else position_bias + mask, q)
    if mask.dtype == torch.bool and masks.may_look(mask):
        dtype = out_dtype(q)
        return _remembered(mask, f"_kgen_bias_{dtype}", lambda mask: additive(mask, dtype))
    return mask if mask.dtype == torch.bool else _readable(mask, q)


def _check_bias(name: str, bias: torch.Tensor, q, keys: int) -> None:
    whole = (q.shape[0], q.shape[2], q.shape[1], keys)
    if bias.dim() != 4 or any(size not in (1, most) for size, most in zip(bias.shape, whole)):
        axes = f"(batch, heads, rows, keys), {whole} here, or 1 for any of these"
        raise ValueError(f"`{name}` has shape {tuple(bias.shape)}; it is {axes}")


def _readable(bias: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The bias, converted to a type that kernels read."""
    return bias if bias.dtype in (torch.float32, out_dtype(q)) else bias.float()


def _with_bias(q, k, v, mask, kind, position_bias: torch.Tensor, positions, options: dict) -> torch.Tensor:
    """Attention with `position_bias`. Valid tokens are not packed, since element (i, j) belongs to row i and key j."""
    rows, causal = q.shape[1], options["causal"] or "window_size" in options
    there = None
    if kind == masks.COUNT:
        options["seqused_k"] = mask.flatten()
    elif kind == masks.PLACES:
        there = mask[:, 0, : mask.shape[2] - rows, 2].bool()
    elif kind == masks.RANGE:
        raise NotImplementedError("`position_bias` with padding on the left of a cache of fixed size")
    elif mask is not None:
        there = mask.bool()
        if there.dim() != 2 or there.shape[0] != q.shape[0] or not rows <= there.shape[1] <= k.shape[1]:
            told = f"it is (batch, keys), for {rows} rows and {k.shape[1]} keys"
            raise ValueError(f"`attention_mask` has shape {tuple(mask.shape)}; {told}")
        k, v = (t[:, : there.shape[1]] for t in (k, v))
    keys = k.shape[1]
    # In a larger batch each row is one sequence, which `masks.py` has checked.
    if positions is not None and positions.shape == (1, rows) and q.shape[0] == 1 and rows > 1:
        if not masks.may_look(positions) and there is None:
            _fail_if_several(positions)
        elif masks.may_look(positions):
            valid = positions[0] if there is None or there.shape[1] < rows else positions[0][there[0, -rows:]]
            if valid.numel() > 0 and _packing_of_rows(valid) is not None:
                raise NotImplementedError("`position_ids` start again: several sequences in a row, not with `position_bias`")
    if kind == masks.PLACES and (there.shape[1] != keys or (causal and rows != keys)):
        raise NotImplementedError(f"`position_bias` with padding of a cache of fixed size, of {keys} keys")
    if position_bias.dim() == 4 and position_bias.shape[3] > keys:  # more columns, for a cache of fixed size
        position_bias = position_bias[..., :keys]
    _check_bias("position_bias", position_bias, q, keys)
    if there is not None:
        position_bias = position_bias.masked_fill(~there[:, None, None], float("-inf"))
    return flash_attn_func(q, k, v, attn_bias=_readable(position_bias, q), **options)


def _packing(q: torch.Tensor, keys: int, others: dict) -> Optional[Packing]:
    """The packing that the model's caller passes."""
    cu_q, cu_k = others.get("cu_seq_lens_q"), others.get("cu_seq_lens_k")
    if cu_q is None:
        return None
    if q.shape[0] != 1:
        raise ValueError(f"`cu_seq_lens_q` goes with a batch of one; given {q.shape[0]}")
    missing = [name for name in ("max_length_q", "max_length_k") if others.get(name) is None]
    if missing:
        raise ValueError(f"`cu_seq_lens_q` goes with `{'` and `'.join(missing)}`, the longest sequences' rows; give it too")
    longest = (others["max_length_q"], q.shape[1]), (others["max_length_k"], keys)
    # An upper bound suffices: the host reads the tensor only if it may wait for it.
    longest = (most if isinstance(n, torch.Tensor) and not masks.may_look(n) else int(n) for n, most in longest)
    return Packing(cu_q, cu_q if cu_k is None else cu_k, *longest)


def _packed_behind_a_cache(rows: int, keys: int) -> NotImplementedError:
    told = f"several sequences in {rows} rows, by `position_ids` or `cu_seq_lens_q`, with {keys} keys"
    return NotImplementedError(f"{told}: packing goes without a cache")


def _packing_of_positions(positions: torch.Tensor) -> Optional[Packing]:
    """The packing implied by position ids (1, rows); None for one sequence."""
    if masks.may_look(positions):
        return _remembered(positions, "_kgen_packing", lambda positions: _packing_of_rows(positions[0]))
    _fail_if_several(positions)
    return None


def _fail_if_several(positions: torch.Tensor) -> None:
    """Fails an assertion on the device if a sequence starts after the first row. It compares minima, because Triton
    takes minutes to compile a comparison of two ranges of numbers, and in most graphs positions are a range."""
    masks.fail_unless((positions[:, 1:].amin(1) > positions[:, 0]).all(), _SEVERAL)


_SEVERAL = (
    "position_ids start again: several sequences in one row. In a compiled or captured model kgen takes them by "
    "cu_seq_lens_q, cu_seq_lens_k, max_length_q and max_length_k"
)


def _packing_of_rows(positions: torch.Tensor) -> Optional[Packing]:
    """The packing of rows at these positions: a sequence starts at the smallest position, as in transformers."""
    (starts,) = torch.nonzero(positions[1:] == positions.min(), as_tuple=True)
    if starts.numel() == 0:
        return None
    rows = positions.shape[0]
    cu = torch.nn.functional.pad(torch.nn.functional.pad(starts + 1, (1, 0)), (0, 1), value=rows).to(torch.int32)
    return Packing(cu, cu, rows, rows)


def _remembered(tensor: torch.Tensor, name: str, make):
    """The result of `make` for a tensor that every layer of a model receives: computed once, and kept until the tensor
    is modified."""
    if tensor.is_inference():  # its version counter is unavailable
        return make(tensor)
    version, made = getattr(tensor, name, (None, None))
    if version != tensor._version:
        version, made = tensor._version, make(tensor)
        setattr(tensor, name, (version, made))
    return made


class _Places(NamedTuple):
    """The flat indices of a padded batch's valid tokens, and their packing."""

    q: torch.Tensor
    k: torch.Tensor
    packing: Packing


def _padded(q, k, v, mask: torch.Tensor, positions: Optional[torch.Tensor], options: dict) -> torch.Tensor:
    """Attention with a padding `mask`: valid tokens are packed; O of padding is 0."""
    rows, seen = q.shape[1], mask.shape[-1] if mask.dim() > 0 else 0
    if mask.dim() != 2 or mask.shape[0] != q.shape[0] or not rows <= seen <= k.shape[1]:
        raise ValueError(f"`attention_mask` has shape {tuple(mask.shape)}; it is (batch, keys), for {rows} rows and {k.shape[1]} keys")
    if not masks.may_look(mask):
        return _by_places(q, k, v, masks.places(mask.bool(), mask.bool()[:, -rows:])[:, 0], positions, options)
    k, v = k[:, :seen], v[:, :seen]  # a cache of fixed size has more rows
    places = _remembered(mask, f"_kgen_places_{rows}", lambda mask: _places(mask, rows, positions))
    packed = (t.flatten(0, 1)[where] for t, where in ((q, places.q), (k, places.k), (v, places.k)))
    out = flash_attn_varlen_func(*packed, *places.packing, **options)
    whole = out.new_zeros((q.shape[0] * rows, *out.shape[1:]))
    return whole.index_copy(0, places.q, out).unflatten(0, (q.shape[0], rows))


def _places(mask: torch.Tensor, rows: int, positions: Optional[torch.Tensor]) -> _Places:
    there = mask.bool()
    there_q = there[:, -rows:]
    places_q, places_k = (torch.nonzero(t.flatten(), as_tuple=True)[0] for t in (there_q, there))
    packing = None if positions is None else _packing_of_rows(positions[0][places_q])
    if packing is None:
        cu_q, cu_k = (torch.nn.functional.pad(t.sum(1).cumsum(0), (1, 0)).to(torch.int32) for t in (there_q, there))
        packing = Packing(cu_q, cu_k, rows, mask.shape[1])
    elif len(places_k) != len(places_q):
        raise _packed_behind_a_cache(rows, mask.shape[1])
    return _Places(places_q, places_k, packing)


def _in_ranges(q, k, v, ranges: torch.Tensor, options: dict) -> torch.Tensor:
    """Attention to a cache of fixed size whose valid rows are given by `ranges`, (batch, 2): start and count."""
    batch, rows = q.shape[:2]
    heads, length = k.shape[2], k.shape[1]
    starts = torch.arange(batch + 1, dtype=torch.int32, device=q.device)
    if not all(t.transpose(1, 2).is_contiguous() for t in (k, v)):
        k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (k, v))
    # A cache is (batch, heads, length, head dim). Viewed as a single axis of rows, heads are `length` rows apart and
    # sequences `heads * length`, so a sequence can begin at any row without a copy.
    total = ((batch - 1) * heads + 1) * length
    k, v = (t.as_strided((total, heads, t.shape[3]), (t.stride(1), t.stride(2), 1)) for t in (k, v))
    cu_k = starts * (heads * length)
    cu_k = torch.cat([cu_k[:-1] + ranges[:, 0], cu_k[-1:]])
    used_k = ranges[:, 1].contiguous()
    out = flash_attn_varlen_func(q.flatten(0, 1), k, v, starts * rows, cu_k, rows, length, seqused_k=used_k, **options)
    return out.unflatten(0, (batch, rows))


def _by_places(q, k, v, places: torch.Tensor, positions: Optional[torch.Tensor], options: dict) -> torch.Tensor:
    """`_padded` for a mask that the host may not read: the same computation on all rows of each sequence. `places` is
    (batch, keys and queries, 3), the mask PLACES of `masks.py`."""
    rows, seen = q.shape[1], places.shape[1] - q.shape[1]
    of_k, of_q = places[:, :seen], places[:, seen:]
    there = of_q[..., 2].bool()
    if positions is not None:
        is_first = of_q[0, :, 1] == 0
        first = torch.where(there[0] & is_first, positions[0], 0).sum()
        others = torch.where(there[0] & ~is_first, positions[0], torch.iinfo(positions.dtype).max).amin()
        masks.fail_unless(others > first, _SEVERAL)
    packed = [_taken(tensor, of[..., 0]) for tensor, of in ((q, of_q), (k[:, :seen], of_k), (v[:, :seen], of_k))]
    used_q, used_k = (of[:, -1, 1] + 1 for of in (of_q, of_k))  # the last row's place gives the number of valid rows
    out = flash_attn_func(*packed, seqused_q=used_q, seqused_k=used_k, **options)
    return torch.where(there[..., None, None], _taken(out, of_q[..., 1].clamp(min=0)), 0)


def _taken(tensor: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows of (batch, rows, heads, head dim) by their indices, (batch, ·)."""
    return torch.gather(tensor, 1, rows.long()[..., None, None].expand(-1, -1, *tensor.shape[2:]))
