"""Calls like one before: plans are found by what the caller gave, in front of all checks, which such a call has passed.

What a check or a plan depends on is in the key, except what changes without it: values in tensors, which those who run
a plan look at where they can. A call that anything stands between and the kernel, such as a tracer, autocast or a
gradient, has no key.
"""

from __future__ import annotations

import operator
from typing import Any, Optional, Sequence

import torch

from .launch import MOST_PLANS
from .ops import is_unobserved

#: What a call may be known by besides tensors: a tensor or an array in place of a number has other values later.
_NUMBERS = frozenset((float, int, bool, type(None)))

#: What may be a window and be looked at twice.
_PAIRS = frozenset((tuple, list))


class Repeats:
    """What is remembered of one function's calls: whatever it keeps for each key."""

    def __init__(self) -> None:
        self._kept: dict[tuple, Any] = {}

    def find(self, tensors: Sequence[object], window_size: object, *numbers: object) -> tuple[Optional[tuple], Any]:
        """The key of a call, the first of whose `tensors` are Q, K and V, and what was kept for it; None for what there
        is not.

        Absent tensors are None. A call that wants gradients has no key, nor has one with a tensor or an array in place
        of a number, nor what is no tensor, window or number: the checks name it.
        """
        q, k, v, *_ = tensors
        if type(window_size) not in _PAIRS or not is_unobserved(q):
            return None, None
        try:
            wants_gradients = torch.is_grad_enabled()
            if wants_gradients and (q.requires_grad or k.requires_grad or v.requires_grad):
                return None, None
            left, right = window_size
            # Types come first: 2.0 and True are equal to integers, and tensors compare as an operation.
            types = (type(left), type(right), *map(type, numbers))
            key = (
                wants_gradients, types, left, right, *numbers,
                *[None if t is None else (t.shape, t.stride(), t.dtype, t.get_device(), t.requires_grad, t.is_neg()) for t in tensors],
            )  # fmt: skip
            found = self._kept.get(key)
        except (AttributeError, TypeError, ValueError, RuntimeError):  # the last of tensors without strides
            return None, None
        if found is None and not _lasts(types, tensors if wants_gradients else ()):
            return None, None
        return key, found

    def keep(self, key: tuple, what: Any) -> None:
        """Keeps it for a key of `find`."""
        if len(self._kept) >= MOST_PLANS:
            self._kept.clear()
        self._kept[key] = what

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


def _lasts(types: tuple, tensors: Sequence[object]) -> bool:
    """Whether a call with numbers of these types is the same later, and none of the tensors wants a gradient."""
    return _NUMBERS.issuperset(types) and not any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def are_same(given: Sequence[object], passed: Sequence[object]) -> bool:
    """Whether the checks have passed on what they were given, and nothing in place of it."""
    return all(map(operator.is_, given, passed))
