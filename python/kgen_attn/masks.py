"""Masks for transformers' models, computed once per call for the attention of all layers.

`mask` replaces transformers' mask creation. It returns None if all keys are visible, a bool tensor (batch, keys
seen), or an int32 tensor of four axes. Models, `generate` and compiled graphs pass a tensor of four axes through
unchanged, and no mask of a model is int32. The size of its last axis determines its meaning:

    NOTHING  (batch, 1, seen, 0)     K and V have more rows than keys; all of the first `seen` are valid.
    COUNT    (batch, 1, 1, 1)        the number of valid rows, which come first.
    RANGE    (batch, 1, 1, 2)        the first valid row, and the number of valid rows.
    PLACES   (batch, 1, rows, 3)     any row may be valid. For each row of K and V and, after them, of Q: the number of the
                                     row to put there, valid ones first; its place among these; whether it is valid.

The last three keep lengths in device memory, so that they need no synchronisation and may change in a graph's replay.

A mask that kernels can compute only as a bias is bool of shape (batch, 1, rows, keys), like transformers' own for SDPA.

The second axis has size 1, or 1 plus the number of the mask's band (`bands.py`) if the layers would guess another band.
"""

from __future__ import annotations

from typing import Optional, Union

import torch
import torch.nn.functional as F

from . import bands
from .bands import Band, NoBand
from .tracing import is_eager

NOTHING, COUNT, RANGE, PLACES = range(4)


def may_look(tensor: torch.Tensor) -> bool:
    """True if Python may wait for the tensor's values: the call is neither traced nor captured."""
    return is_eager(tensor) and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def fail_unless(held: torch.Tensor, message: str) -> None:
    """Fails an assertion with this message on the device, without synchronisation, if `held` is False."""
    if _ASSERTIONS_COMPILE:
        torch._assert_async(held, message)
    else:
        _wait_for(held, message)


# Earlier versions of torch may drop assertions in compiled graphs; for these the graph is broken and the value read.
_ASSERTIONS_COMPILE = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


@torch.compiler.disable
def _wait_for(held: torch.Tensor, message: str) -> None:
    if not bool(held):
        raise RuntimeError(message)


def mask(
    batch_size: int,
    kv_length: int,
    q_length: Optional[int] = None,
    q_offset: Union[int, torch.Tensor] = 0,
    kv_offset: Union[int, torch.Tensor] = 0,
    attention_mask: Optional[torch.Tensor] = None,
    cache_position: Optional[torch.Tensor] = None,
    device: Union[torch.device, str, None] = None,
    mask_function=None,
    config=None,
    **others,
) -> Optional[torch.Tensor]:
    """A mask as transformers requests it, with transformers' argument names.

    Queries start at position `q_offset`, keys at `kv_offset`. `q_offset` is a tensor if the cache has a fixed size
    (`StaticCache`), because its number of valid rows may change between runs of a compiled graph. `attention_mask`,
    (batch, positions) of bool, is False for padding. `mask_function` hides further keys: it must be a band, unless the
    library has kernels with `bias`; otherwise it is refused with its name. `cache_position` stands for `q_length` and
    `q_offset` in older versions.
    """
    if cache_position is not None:
        q_length, device = cache_position.shape[0], cache_position.device
        q_offset = 0 if q_length == kv_length else cache_position[0]
    encoder, window = "allow_is_bidirectional_skip" in others, others.get("local_size")
    call = bands.Call(config, batch_size, q_length, kv_length, q_offset, kv_offset, attention_mask, others.get("use_vmap", False))
    if mask_function is not None and bands.is_computed_as_a_mask(mask_function, _guess(encoder, window, config), call):
        return _once(bands.mask_of(mask_function, call, device))
    try:
        return _described(call, mask_function, encoder, window, device)
    except NoBand:
        if mask_function is None or not bands.has_bias():
            raise
    return bands.mask_of(mask_function, call, device)


def _described(call: bands.Call, mask_function, encoder: bool, window: Optional[int], device) -> Optional[torch.Tensor]:
    """The mask described by its band and by the valid rows. Raises `NoBand` for any other mask."""
    config, batch_size, q_length, kv_length, q_offset, kv_offset, attention_mask, _ = call
    seen = kv_length if encoder else q_offset + q_length - kv_offset
    band = None
    if mask_function is not None:
        band = _band(mask_function, encoder, window, call)
    if band is None:
        return _told(attention_mask, encoder, window, batch_size, kv_length, q_length, kv_offset, seen, device)
    window = max(band) if max(band) >= 0 else None
    if encoder and window is not None and q_length != kv_length:
        told = f"a window between {q_length} queries and {kv_length} keys of an encoder"
        raise NoBand(f"{told}; without kernels of `--features bias` kgen takes as many of both")
    told = _told(attention_mask, encoder, window, batch_size, kv_length, q_length, kv_offset, seen, device)
    if told is None:
        told = torch.empty((batch_size, 1, kv_length, NOTHING), dtype=torch.int32, device=device)
    elif told.dim() == 2:
        told = places(told, told[:, -q_length:])
    return told.expand(-1, 1 + bands.number_of(band), -1, -1)


def _band(mask_function, encoder: bool, window: Optional[int], call: bands.Call) -> Optional[Band]:
    """The band of the mask; None if its layers guess it from `is_causal` and, for a causal mask, from
    `sliding_window`."""
    guess = _guess(encoder, window, call.config)
    band = bands.band_of(mask_function, guess, call)
    # The window size that an encoder's layers pass differs by one key between models.
    return None if band == guess and (window is None or not encoder) else band


def _guess(encoder: bool, window: Optional[int], config) -> Band:
    if encoder:
        return Band(-1, -1) if window is None else Band(window, window)
    if window is None or window == getattr(config, "attention_chunk_size", None):
        return Band(-1, 0)  # chunked attention within the first chunk
    return Band(window - 1, 0)


def _told(
    attention_mask: Optional[torch.Tensor],
    encoder: bool,
    window: Optional[int],
    batch_size: int,
    kv_length: int,
    q_length: int,
    kv_offset: Union[int, torch.Tensor],
    seen: Union[int, torch.Tensor],
    device: Union[torch.device, str, None],
) -> Optional[torch.Tensor]:
    """The valid rows among `seen` keys."""
    if attention_mask is None:
        return _once(_first(batch_size, seen, kv_length, q_length, device))
    if isinstance(seen, torch.Tensor) or (q_length == 1 and seen < kv_length):
        return _once(_padded_in_a_cache(attention_mask, seen, kv_length, kv_offset, q_length, window))
    there = _columns(attention_mask, kv_offset, min(seen, kv_length))
    if may_look(there) and bool(there.all()):
        return _first(batch_size, seen, kv_length, q_length, there.device)
    _refuse_holes(there, window)
    if encoder and window is None:  # cross-attention: the keys may belong to another sequence
        return _once(places(there, there.new_ones((len(there), q_length))))
    # `generate` creates a mask before it calls a model, which passes it in again as `attention_mask`, unless the mask
    # has four axes.
    again = not encoder and not isinstance(kv_offset, torch.Tensor) and kv_offset == 0
    # An encoder's window is relative to the query's position among the keys.
    return there if again and may_look(there) else _once(places(there, there[:, -q_length:]))


def _once(told: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """The same tensor; in a compiled graph, the output of an operator that Inductor does not inline. Inductor would
    otherwise recompute such a cheap value for each layer, in an extra kernel before the attention kernel."""
    return told if told is None or is_eager(told) else torch.ops.kgen_attn.materialize(told)


def places(there_k: torch.Tensor, there_q: torch.Tensor) -> torch.Tensor:
    """PLACES if these rows are valid, (batch, keys) and (batch, queries) of bool."""
    return torch.cat([_places(there_k), _places(there_q)], dim=1)[:, None]


def _places(there: torch.Tensor) -> torch.Tensor:
    order = torch.argsort((~there).to(torch.uint8), dim=1, stable=True)
    return torch.stack([order, there.cumsum(1) - 1, there], dim=2).to(torch.int32)


def _first(batch: int, seen: Union[int, torch.Tensor], kv_length: int, q_length: int, device) -> Optional[torch.Tensor]:
    """The mask NOTHING or COUNT of `seen` valid rows."""
    if isinstance(seen, torch.Tensor):
        return seen.clamp(max=kv_length).to(torch.int32).expand(batch).contiguous().view(batch, 1, 1, 1)
    if seen >= kv_length:
        return None
    if q_length > 1:
        return torch.empty((batch, 1, seen, NOTHING), dtype=torch.int32, device=device)
    # The graph of a decoding step must work for the next one, so the number must not be part of a shape.
    return torch.full((batch, 1, 1, COUNT), seen, dtype=torch.int32, device=device)


def _columns(attention_mask: torch.Tensor, kv_offset: Union[int, torch.Tensor], count: int) -> torch.Tensor:
    """`count` columns of the mask from `kv_offset` on; missing ones are False, as in transformers' own masks."""
    if isinstance(kv_offset, torch.Tensor):
        at = torch.arange(count, device=attention_mask.device) + kv_offset
        last = attention_mask.shape[1] - 1
        return attention_mask[:, at.clamp(max=last)] & (at <= last)
    there = attention_mask[:, kv_offset : kv_offset + count]
    return F.pad(there, (0, count - there.shape[1])) if there.shape[1] < count else there


def _padded_in_a_cache(
    attention_mask: torch.Tensor,
    seen: Union[int, torch.Tensor],
    kv_length: int,
    kv_offset: Union[int, torch.Tensor],
    q_length: int,
    window: Optional[int],
) -> torch.Tensor:
    """The mask of a cache of fixed size: the valid rows among those that have been written."""
    rows = torch.arange(kv_length, device=attention_mask.device)
    there = _columns(attention_mask, kv_offset, kv_length) & (rows < seen)
    if may_look(there):
        count = there.sum(1)
        start = seen - count
        # With padding only on the left, the queries are at the end of the keys.
        on_the_left = (there == ((rows >= start[:, None]) & (rows < seen))).all()
        padded, on_the_left = torch.stack([start.max() > 0, on_the_left]).tolist()
        if not padded:
            return _first(len(there), seen, kv_length, q_length, there.device)
        if on_the_left:
            return torch.stack([start, count], dim=1).to(torch.int32).view(-1, 1, 1, RANGE)
    _refuse_holes(there, window)
    return places(there, there[:, torch.arange(q_length, device=there.device) + (seen - q_length)])


def _refuse_holes(there: torch.Tensor, window: Optional[int]) -> None:
    """Refuses a window with a mask that has holes: valid rows are packed, which would change a window that spans rows
    between them."""
    if window is None or there.shape[1] <= window:
        return
    starts = (there[:, 1:] & ~there[:, :-1]).sum(1) + there[:, 0]
    if not may_look(there):
        fail_unless((starts <= 1).all(), _HOLES)
    elif bool((starts > 1).any()):
        raise NoBand(_HOLES)


_HOLES = "attention_mask has padding between tokens; with a sliding window kgen takes it before or after them"
