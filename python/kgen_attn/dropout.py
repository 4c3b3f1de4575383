"""Dropout of attention weights: the state of its random numbers, its mask, and S_dmask, which tests of dropout read."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .arguments import NAMES, integer, number
from .feature import Feature
from .launch import EIGHTS, TensorOrNone
from .tracing import is_eager, is_transformed, refuse_transforms

#: Probabilities from this one on round to 1 in fp32.
_ONE = 1.0 - 2.0**-25

#: Philox4x32: multipliers, increments of the key, rounds.
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 7
_WORD = 0xFFFFFFFF

#: A block of 32 queries and 32 keys uses 64 counters. One counter gives the 16 bytes of 4 queries and 4 keys, each 8
#: apart.
_BLOCK, _STEP = 32, 8

#: FlashAttention rounds the numbers of rows and columns of S_dmask up to multiples of this.
_ROUNDED = 128


def check_state(rng_state: object, device: torch.device) -> None:
    """Raises for a state that is not two 64-bit integers on the device."""
    if not isinstance(rng_state, torch.Tensor):
        raise TypeError(f"`rng_state` is of type {type(rng_state).__name__}; it must be a torch.Tensor")
    if rng_state.dtype != torch.int64:
        raise TypeError(f"`rng_state` is {rng_state.dtype}; it must be torch.int64")
    if rng_state.shape != (2,) or rng_state.stride(0) != 1:
        given = f"has shape {tuple(rng_state.shape)} and strides {rng_state.stride()}"
        raise ValueError(f"`rng_state` {given}; it must be contiguous, of shape (2,): the seed and the offset")
    if rng_state.device != device:
        raise ValueError(f"`rng_state` is on `{rng_state.device}`, `q` on `{device}`")


FEATURE = Feature("dropout", ("rng_state",), {"p_dropout": 0.0}, check_state)

#: `rng_state` and probability of a call without dropout.
_WITHOUT = (None, 0.0)


def drawn(dropout_p: object, rng_state: object, tensors: tuple, numbers: tuple) -> tuple:
    """State and probability of dropout for a call of `forward` with these tensors and numbers. The state is
    `rng_state`, or drawn from the device's generator. Raises `NotImplementedError`, with the argument's name, for
    options that kernels with dropout do not support."""
    q, k = tensors[:2]
    if rng_state is not None:
        check_state(rng_state, q.device)
    p = _probability(dropout_p, "dropout_p")
    if p == 0.0:
        return _WITHOUT
    named = dict(zip(NAMES, tensors))
    *_, softcap, num_splits = numbers
    why = None
    if q.dtype in EIGHTS or k.dtype in EIGHTS:
        why = f"`q` is {q.dtype} and `k` {k.dtype}: kernels with dropout take torch.float16 and torch.bfloat16"
    elif named["block_table"] is not None:
        why = "`block_table` is given: kernels with dropout read no pages"
    elif softcap != 0.0:
        why = f"`softcap` is {softcap}: there are no kernels with both, as in FlashAttention"
    elif num_splits > 1:
        why = f"`num_splits` is {num_splits}: kernels with dropout do not split the keys"
    if why is not None:
        raise NotImplementedError(f"`dropout_p` is {p} and {why}")
    if rng_state is None:
        if is_eager(q) and is_transformed():  # before drawing, for which vmap raises an error of its own
            refuse_transforms(named)
        # From torch's generator, whose state checkpointing restores and CUDA graphs advance.
        rng_state = torch.randint(2**63 - 1, (2,), dtype=torch.int64, device=q.device)
    return rng_state, p


def _probability(value: object, name: str) -> float:
    p = number(value, name)
    if not 0.0 <= p < _ONE:
        raise ValueError(f"`{name}` is {p}; it must be 0 or more, and less than 1 in 32 bits")
    return p


def dropout_mask(
    rng_state: torch.Tensor, p: float, batch: int, heads: int, seqlen_q: int, seqlen_k: int
) -> torch.Tensor:
    """The attention weights that a call with `rng_state` and `dropout_p=p` keeps: (batch, heads, seqlen_q, seqlen_k)
    bool, True where kept, on the device of `rng_state`.

    `heads` are those of Q. Queries and keys of packed sequences are counted from the start of their sequence. The mask
    of longer sequences begins with that of shorter ones.

    A weight is dropped if its byte exceeds floor(255 · (1 - p)); the others are divided by 1 - p. The bytes are output
    of Philox4x32 with 7 rounds. Its key is the seed, `rng_state[0]`. Query i and key j of head h in batch entry b have
    counter (i // 32 · 8 + i % 8, j // 32 · 8 + j % 8, b · heads + h, low 32 bits of the offset `rng_state[1]`), and of
    its four words byte j % 32 // 8 of word i % 32 // 8.

    torch computes it, with about 15 bytes of memory per weight.
    """
    check_state(rng_state, getattr(rng_state, "device", None))
    p = _probability(p, "p")
    for name, size in {"batch": batch, "heads": heads, "seqlen_q": seqlen_q, "seqlen_k": seqlen_k}.items():
        if integer(size, name) < 0:
            raise ValueError(f"`{name}` is {size}; it must be 0 or more")
    blocks_q, blocks_k = (-(-rows // _BLOCK) for rows in (seqlen_q, seqlen_k))
    upto = lambda count: torch.arange(count, dtype=torch.int64, device=rng_state.device)
    x, y, z = upto(blocks_q * _STEP)[:, None], upto(blocks_k * _STEP), upto(batch * heads)[:, None, None]
    seed, offset = rng_state.unbind()
    words = philox((x, y, z, offset & _WORD), (seed & _WORD, (seed >> 32) & _WORD))
    words = [word.unflatten(2, (blocks_k, _STEP)).unflatten(1, (blocks_q, _STEP)) for word in words]
    # (head, block of queries, word, query, block of keys, key, byte); the last four of eight bytes are 0.
    random = torch.stack(words, dim=2)[..., None].view(torch.uint8)[..., :4]
    keep = 1.0 - torch.full((), p, dtype=torch.float32, device=rng_state.device)
    kept = random.transpose(5, 6) <= (keep.double() * 255.0).floor().to(torch.uint8)
    return kept.reshape(batch, heads, blocks_q * _BLOCK, blocks_k * _BLOCK)[:, :, :seqlen_q, :seqlen_k]


def philox(counter: tuple, key: tuple) -> tuple:
    """The four output words of Philox4x32 for counters of four words and a key of two: 32-bit values in int64 tensors
    that broadcast."""
    a, b, c, d = counter
    for _ in range(_ROUNDS):
        high_a, low_a = _product(a, _MULTIPLIERS[0])
        high_c, low_c = _product(c, _MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ key[0], low_c, high_a ^ d ^ key[1], low_a
        key = tuple((word + increment) & _WORD for word, increment in zip(key, _INCREMENTS))
    return torch.broadcast_tensors(a, b, c, d)


def _product(word: torch.Tensor, multiplier: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The high and the low 32 bits of a product, computed from 16-bit halves: the product may exceed int64."""
    low = (word & 0xFFFF) * multiplier
    high = (word >> 16) * multiplier + (low >> 16)
    return high >> 16, (high & 0xFFFF) << 16 | (low & 0xFFFF)


@torch.no_grad()
def signed_weights(q, k, optional: tuple, numbers: tuple, rng_state: torch.Tensor, p: float) -> torch.Tensor:
    """FlashAttention's S_dmask for a call of `forward`: (batch, heads, seqlen_q, seqlen_k), the lengths rounded up to
    multiples of 128, of the type of Q.

    An element is exp(score - the largest score of its row), negative (-0.0 included) where the weight is dropped. It is
    0 where a mask hides the key and beyond the lengths. Computed by torch from all scores in float32.
    """
    cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, _, _, _, slopes, _, _, _, _, _, bias = optional
    max_seqlen_q, max_seqlen_k, scale, causal, left, right, chunk, _, _ = numbers
    dtype = q.dtype
    q, rows = _of_sequences(q, cu_seqlens_q, seqused_q, max_seqlen_q)
    k, keys = _of_sequences(k, cu_seqlens_k, seqused_k, max_seqlen_k)
    batch, seqlen_q, heads = q.shape[:3]
    seqlen_k = k.shape[1]
    k = k.repeat_interleave(heads // k.shape[2], dim=2)
    with torch.autocast(q.device.type, enabled=False):
        scores = torch.einsum("bihd,bjhd->bhij", q.float(), k.float()) * scale
    i, j = torch.arange(seqlen_q, device=q.device)[:, None], torch.arange(seqlen_k, device=q.device)
    position = i + keys - rows
    back = position - j
    if slopes is not None:
        scores = scores - slopes.expand(batch, heads)[..., None, None] * back.abs()
    if bias is not None:
        scores = scores + bias
    seen = (i < rows) & (j < keys)
    right = 0 if causal else right
    if left >= 0:
        seen = seen & (back <= left)
    if right >= 0:
        seen = seen & (back >= -right)
    if chunk != 0:
        seen = seen & (j // chunk == position // chunk)
    beyond = (0, -seqlen_k % _ROUNDED, 0, -seqlen_q % _ROUNDED)
    scores = F.pad(scores.masked_fill(~seen, float("-inf")), beyond, value=float("-inf"))
    if seqlen_k == 0:  # no row has a largest score
        return scores.to(dtype)
    highest = scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - highest.masked_fill(highest == float("-inf"), 0.0)).to(dtype)
    kept = dropout_mask(rng_state, p, batch, heads, *weights.shape[2:])
    return torch.where(kept, weights, -weights)


def _of_sequences(tensor: torch.Tensor, cu_seqlens: TensorOrNone, used: TensorOrNone, longest: int) -> tuple:
    """(batch, rows, heads, head dim) of a tensor that may be packed, and the lengths, (batch, 1, 1, 1)."""
    if cu_seqlens is None:
        lengths = torch.full((tensor.shape[0],), tensor.shape[1], device=tensor.device)
    else:
        starts, lengths = cu_seqlens[:-1, None].long(), cu_seqlens.diff()
        places = starts + torch.arange(longest, device=tensor.device)
        # Indices beyond the last row select an appended row of zeros.
        tensor = F.pad(tensor, (0, 0, 0, 0, 0, 1))[places.clamp(max=tensor.shape[0])]
    return tensor, (lengths if used is None else used)[:, None, None, None]
