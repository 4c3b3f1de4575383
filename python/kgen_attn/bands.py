"""The band of keys that a mask function of transformers shows to queries: derived from the function, and verified.

Kernels compute bands: a query sees the keys from `left` positions before it to `right` after it. A mask function may be
arbitrary. If it depends only on positions, it is evaluated once, at a long row and at sampled pairs, and its band is
cached by its code and numbers. If it contains tensors, such as a marker of image tokens, it is evaluated at all pairs
in each call. If the mask is not a band, `mask_of` gives the mask itself, which becomes a bias.
"""

from __future__ import annotations

import types
from typing import Callable, NamedTuple, Optional, Union

import torch

from . import missing
from .library import library
from .tracing import is_eager


class NoBand(NotImplementedError):
    """A mask that kernels cannot compute without a bias; the message gives the reason."""


class Band(NamedTuple):
    """Number of visible keys before and after a query's position; -1: no limit."""

    left: int
    right: int


#: Bands to which masks refer by index.
_numbered: list[Band] = []


def number_of(band: Band) -> int:
    """The index of a band, from 1 on, which becomes part of a mask's shape."""
    if band not in _numbered:
        _numbered.append(band)
    return _numbered.index(band) + 1


def numbered(number: int) -> Band:
    """The band with this index."""
    return _numbered[number - 1]


class Call(NamedTuple):
    """Other properties of the mask that transformers requests."""

    config: object
    batch: int
    rows: int
    keys: int
    q_offset: Union[int, torch.Tensor]
    kv_offset: Union[int, torch.Tensor]
    padding: Optional[torch.Tensor]
    by_element: bool  # the function takes numbers, not tensors, and is mapped over pairs


#: The largest position that is tested; models have fewer. A wider window counts as unlimited.
_FAR = 2**20

#: A dummy tensor, which is eager unless the call is traced.
_ANY = torch.empty(0, device="cpu")

#: Number of pairs evaluated at once.
_PAIRS = 2**24

#: Bands of functions that contain no tensors.
_known: dict[tuple, Band] = {}

#: Bands of models' own mask functions without tensors, for compiled calls, which cannot inspect a function. Keys are
#: the configuration's `id` and the guess. Values are the band and the configuration, which is kept alive so that its
#: `id` is not reused. The band is None, permanently, once one such function was found not to be a band.
_own: dict[tuple, tuple[Optional[Band], object]] = {}


def band_of(function: Callable, guess: Band, call: Call) -> Band:
    """The band of `function`: `guess` if the function is consistent with it.

    Raises `NoBand` with the function's name if it is not a band, and `NotImplementedError` if a compiled call cannot
    determine it. Not to be called if `is_computed_as_a_mask`.
    """
    if _is_traced():
        return _known_while_compiling(function, guess, call)
    numbers: list[int] = []
    key = _identity(function, numbers)
    if key is None:
        _take_masks(function, guess, call)
        return _of_tensors(function, guess, call)
    band = _known.get(key)
    if band is None:
        try:
            band = _known[key] = _read(_conjuncts(function), numbers, call.by_element)
        except NoBand:
            _take_masks(function, guess, call)
            raise
    if _is_models_own(function, call) and _own.get((id(call.config), guess), (band,))[0] is not None:
        _own[id(call.config), guess] = band, call.config
    return band


def _take_masks(function: Callable, guess: Band, call: Call) -> None:
    """From now on, compiled calls compute the masks of this function as a bias, if the library has such kernels."""
    if _is_models_own(function, call) and has_bias():
        _own[id(call.config), guess] = None, call.config


def has_bias() -> bool:
    """True if the library has kernels with `bias`, or if `KGEN_JIT` builds missing ones."""
    return missing.is_requested() or any("bias" in kernel.features for kernel in library().kernels)


def is_computed_as_a_mask(function: Callable, guess: Band, call: Call) -> bool:
    """True if a compiled call computes the mask as a bias, because an eager call found that the model's own function is
    not a band, or depends on tensors."""
    return _is_traced() and _is_models_own(function, call) and _own.get((id(call.config), guess), (guess,))[0] is None


def mask_of(function: Callable, call: Call, device: Union[torch.device, str, None]) -> torch.Tensor:
    """The mask that transformers makes of the function and of padding: bool of shape (batch, 1, rows, keys), True where
    a query sees a key."""
    batch = torch.arange(call.batch, device=device)
    q, k = (torch.arange(n, device=device) + at for n, at in ((call.rows, call.q_offset), (call.keys, call.kv_offset)))
    seen = _seen([function], batch, q, k, call.by_element)
    return (seen & _there(call.padding, k)[:, None])[:, None]


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or not is_eager(_ANY)


def _of_tensors(function: Callable, guess: Band, call: Call) -> Band:
    """The band of a function that contains tensors."""
    whole = _conjuncts(function)
    parts = [part for part in whole if not _is(part, "packed_sequence_mask_function")]
    if call.batch > 1 and len(parts) < len(whole):
        # A batch of one is packed by the position ids that the attention function receives.
        raise NoBand(_SEVERAL.format(call.batch))
    parts = [part for part in parts if not _is_within_a_chunk(part, call)]
    numbers: list[int] = []
    key = tuple(_identity(part, numbers) for part in parts)
    if None in key:
        return _verified_in_full(parts, guess, call)
    if key not in _known:
        _known[key] = _read(parts, numbers, call.by_element)
    return _known[key]


_SEVERAL = (
    "position_ids do not rise one by one, and no attention_mask is given: several sequences in a row. kgen takes them "
    "in a batch of one; given {}"
)


def _known_while_compiling(function: Callable, guess: Band, call: Call) -> Band:
    if not _is_models_own(function, call):
        return guess  # only transformers' own functions, which tests compare with the guess
    if (id(call.config), guess) in _own:
        return _own[id(call.config), guess][0]
    raise NotImplementedError(_LOOK_FIRST)


_LOOK_FIRST = (
    "the model defines a mask function of its own, which kgen cannot look at in a compiled model: call the model once "
    "without compiling, or use attn_implementation='sdpa'"
)


def _is_models_own(function: Callable, call: Call) -> bool:
    """True if `function` may contain anything but transformers' causal and full masks, windows and packings."""
    return call.by_element or getattr(function, "__name__", "") not in _OF_TRANSFORMERS


_OF_TRANSFORMERS = ("causal_mask_function", "bidirectional_mask_function", "and_mask")


def _is(function: Callable, maker: str) -> bool:
    """True if transformers' `maker` created the function."""
    return getattr(function, "__qualname__", "").startswith(f"{maker}.<locals>.") and function.__module__ == _MASKS


_MASKS = "transformers.masking_utils"


def _is_within_a_chunk(function: Callable, call: Call) -> bool:
    """True for chunked attention that hides no key yet: all tokens are in the first chunk of their sequence."""
    if not _is(function, "chunked_overlay") or isinstance(call.kv_offset, torch.Tensor):
        return False
    return call.kv_offset + call.keys <= _contents(function)["chunk_size"]


def _conjuncts(function: Callable) -> list[Callable]:
    """The functions that must all show a key."""
    if not _is(function, "and_masks"):
        return [function]
    return [part for inner in _contents(function)["mask_functions"] for part in _conjuncts(inner)]


def _contents(function: Callable) -> dict[str, object]:
    """The values of the function's free variables."""
    return dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))


def _identity(value: object, numbers: list[int]) -> Optional[tuple]:
    """A hashable key of a function's behaviour, if the function consists of code and constants; appends its integers to
    `numbers`."""
    kind = type(value)
    if kind in _CONSTANTS:
        if kind is int:
            numbers.append(value)
        return kind, value
    if kind is types.FunctionType:
        key = [value.__code__]
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        held += value.__defaults__ or ()
        held += (value.__kwdefaults__ or {}).values()
        if value.__module__ != _MASKS:
            # Functions of other modules may read globals, which then belong to the key.
            read = (value.__globals__.get(name) for name in value.__code__.co_names)
            held += [part for part in read if not isinstance(part, (types.ModuleType, type))]
    elif kind is tuple or kind is list:
        key, held = [kind, len(value)], value
    else:
        return None
    for part in held:
        of_part = _identity(part, numbers)
        if of_part is None:
            return None
        key.append(of_part)
    return tuple(key)


_CONSTANTS = (int, float, bool, str, type(None))


def _seen(
    parts: list[Callable], batch: torch.Tensor, q: torch.Tensor, k: torch.Tensor, by_element: bool
) -> torch.Tensor:
    """True where query `q[i]` sees key `k[j]` in the sequence `batch[b]`, (b, i, j), according to transformers'
    masks."""
    head = torch.zeros((), dtype=torch.long, device=q.device)
    seen = torch.ones((len(batch), len(q), len(k)), dtype=torch.bool, device=q.device)
    for part in parts:
        if by_element:
            from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

            mapped = part
            for axes in ((None, None, None, 0), (None, None, 0, None), (0, None, None, None)):
                mapped = torch.vmap(mapped, in_dims=axes)
            with TransformGetItemToIndex():
                seen = seen & mapped(batch, head, q, k).to(seen.device)
        else:
            seen = seen & part(batch[:, None, None], head, q[:, None], k).to(seen.device)
    return seen


def _in_band(band: Band, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """True where a query sees a key, (i, j)."""
    back = q[:, None] - k
    seen = torch.ones_like(back, dtype=torch.bool)
    if band.left >= 0:
        seen &= back <= band.left
    if band.right >= 0:
        seen &= back >= -band.right
    return seen


def _read(parts: list[Callable], numbers: list[int], by_element: bool) -> Band:
    """The band of functions that depend only on positions."""
    zero, middle = (torch.tensor([at], device="cpu") for at in (0, _FAR))
    row = torch.arange(2 * _FAR + 1, device="cpu")
    (places,) = torch.nonzero(_seen(parts, zero, middle, row, by_element)[0, 0], as_tuple=True)
    if places.numel() == 0:
        raise _no_band(parts, 0, _FAR, _FAR, False)
    first, last = places[0].item(), places[-1].item()
    band = Band(-1 if first == 0 else _FAR - first, -1 if last == 2 * _FAR else last - _FAR)
    at = _sampled(band, numbers)
    for k in (row, at):
        q = middle if k is row else at
        _compare(parts, _seen(parts, zero, q, k, by_element), _in_band(band, q, k), q, k)
    return band


def _sampled(band: Band, numbers: list[int]) -> torch.Tensor:
    """Sampled positions: the first ones, those around the function's integers and their multiples, powers of two,
    random ones, and for some of these the positions around the band's edges."""
    near = torch.arange(-2, 3, device="cpu")
    marks = [0, 3, 8, *(m * n for n in numbers[:16] for m in (1, 2, 3)), *(2**i for i in range(4, 21))]
    marks = torch.tensor(marks, device="cpu").clamp(0, _FAR)
    anchors = torch.cat([marks, torch.randint(_FAR, (48,), generator=torch.Generator().manual_seed(0), device="cpu")])
    sides = torch.tensor([0, *(side for side in (band.left, -band.right) if abs(side) > 1)], device="cpu")
    at = anchors[:, None] + near
    beside = (anchors[-24:, None] - sides)[..., None] + near
    return torch.cat([at.flatten(), beside.flatten()]).clamp(0, _FAR).unique()


def _verified_in_full(parts: list[Callable], guess: Band, call: Call) -> Band:
    """The band of functions that contain tensors, valid only for the positions and the padding of this call."""
    given = (call.q_offset, call.kv_offset, call.padding, *_tensors(parts))
    device = next((t.device for t in given if isinstance(t, torch.Tensor)), "cpu")
    batch = torch.arange(call.batch, device=device)
    q, k = (torch.arange(n, device=device) + at for n, at in ((call.rows, call.q_offset), (call.keys, call.kv_offset)))
    there_q, there_k = _there(call.padding, q), _there(call.padding, k)
    there_k = there_k & (k <= q[-1]) if guess.right == 0 and call.padding is None else there_k
    step = max(1, _PAIRS // max(1, call.batch * call.keys))

    def pairs():
        for begin in range(0, call.rows, step):
            piece = slice(begin, begin + step)
            there = there_q[:, piece, None] & there_k[:, None]
            yield q[piece], there, _seen(parts, batch, q[piece], k, call.by_element)

    def is_band(band: Band) -> bool:
        return all(bool((~there | (seen == _in_band(band, at, k))).all()) for at, there, seen in pairs())

    if is_band(guess):
        return guess
    farthest = torch.tensor([0, 0, 0, 0], device=device)  # per side: the farthest visible key, and the farthest key
    for at, there, seen in pairs():
        back = at[:, None] - k
        sides = [(back * of).amax() for of in (there & seen, there)]
        sides += [(-back * of).amax() for of in (there & seen, there)]
        farthest = torch.maximum(farthest, torch.stack(sides))
    left, most_left, right, most_right = farthest.tolist()
    band = Band(-1 if left == most_left else left, -1 if right == most_right else right)
    if not is_band(band):
        for at, there, seen in pairs():
            _compare(parts, seen & there, _in_band(guess, at, k) & there, at, k)
    return band


def _there(padding: Optional[torch.Tensor], at: torch.Tensor) -> torch.Tensor:
    """True for valid tokens at these positions, (batch or 1, positions)."""
    if padding is None:
        return torch.ones((1, len(at)), dtype=torch.bool, device=at.device)
    last = padding.shape[1] - 1
    return padding.bool()[:, at.clamp(max=last)] & (at <= last)


def _tensors(value: object) -> list[torch.Tensor]:
    """The tensors in the functions' free variables."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, types.FunctionType):
        value = [cell.cell_contents for cell in value.__closure__ or ()]
    return [t for part in value for t in _tensors(part)] if isinstance(value, (list, tuple)) else []


def _compare(parts: list[Callable], seen: torch.Tensor, band: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> None:
    """Raises `NoBand` for the first pair (batch, i, j) at which the function and the band differ."""
    differ = seen != band
    if not bool(differ.any()):
        return
    b, i, j = torch.nonzero(differ)[0].tolist()
    raise _no_band(parts, b, q[i].item(), k[j].item(), bool(seen[b, i, j]))


def _no_band(parts: list[Callable], b: int, q: int, k: int, sees: bool) -> NoBand:
    names = " & ".join(map(_name, parts))
    told = f"the model's mask is `{names}`: no band of keys, which is what kernels without `bias` compute"
    pair = f"(query {q} {'sees' if sees else 'does not see'} key {k} in sequence {b})"
    return NoBand(f"{told} {pair}; use attn_implementation='sdpa', or a library with kernels of `--features bias`")


def _name(function: Callable) -> str:
    """The function's qualified name, and the names of functions it combines."""
    name = getattr(function, "__qualname__", type(function).__qualname__).split(".<locals>")[0]
    if name in ("and_masks", "or_masks") and _is(function, name):
        inner = _contents(function)["mask_functions"]
        return f"({(' & ' if name == 'and_masks' else ' | ').join(map(_name, inner))})"
    return name
