"""Repeated calls: plans are looked up by the caller's arguments before any check, since an equal call has passed the
checks.

The key contains everything that a check or a plan depends on, except values in tensors, which may change; the code
that runs a plan checks them if it can read them. A call under a tracer or autocast, or with gradients, has no key.
"""

from __future__ import annotations

import operator
from typing import Any, Optional, Sequence

import torch

from .launch import MOST_PLANS
from .tracing import is_unobserved

#: Types in a key in addition to tensors: a tensor or an array used as a number may change its value later.
_NUMBERS = frozenset((float, int, bool, type(None)))

#: Types of a window that can be read twice.
_PAIRS = frozenset((tuple, list))


class Repeats:
    """Cache of one function's calls: the values stored for each key."""

    def __init__(self) -> None:
        self._kept: dict[tuple, Any] = {}

    def find(self, tensors: Sequence[object], window_size: object, *numbers: object) -> tuple[Optional[tuple], Any]:
        """The key of a call and the value stored for it, each None if there is none. The first of `tensors` are Q, K
        and V.

        Absent tensors are None. A call has no key if it requires gradients, uses a tensor or an array as a
        number, or has an argument that is not a tensor, window or number: the checks report it.
        """
        q, k, v, *_ = tensors
        if type(window_size) not in _PAIRS or not is_unobserved(q):
            return None, None
        try:
            wants_gradients = torch.is_grad_enabled()
            if wants_gradients and (q.requires_grad or k.requires_grad or v.requires_grad):
                return None, None
            left, right = window_size
            # Types come first: 2.0 and True equal integers, and `==` on tensors is an operation.
            types = (type(left), type(right), *map(type, numbers))
            key = (
                wants_gradients, types, left, right, *numbers,
                *[None if t is None else (t.shape, t.stride(), t.dtype, t.get_device(), t.requires_grad, t.is_neg()) for t in tensors],
            )  # fmt: skip
            found = self._kept.get(key)
        except (AttributeError, TypeError, ValueError, RuntimeError):  # RuntimeError: tensors without strides
            return None, None
        if found is None and not _lasts(types, tensors if wants_gradients else ()):
            return None, None
        return key, found

    def keep(self, key: tuple, what: Any) -> None:
        """Stores a value for a key of `find`."""
        if len(self._kept) >= MOST_PLANS:
            self._kept.clear()
        self._kept[key] = what

    def clear(self) -> None:
        """Removes all keys."""
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


def _lasts(types: tuple, tensors: Sequence[object]) -> bool:
    """True if numbers of these types cannot change later, and none of the tensors requires a gradient."""
    return _NUMBERS.issuperset(types) and not any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def are_same(given: Sequence[object], passed: Sequence[object]) -> bool:
    """True if the checks returned all of their arguments unchanged."""
    return all(map(operator.is_, given, passed))
