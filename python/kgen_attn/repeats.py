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
        self.kept: dict[tuple, Any] = {}

    def find(self, tensors: Sequence[object], window_size: object, *numbers: object) -> tuple[Optional[tuple], Any]:
        """The key of a call, the first of whose `tensors` is Q, and what was kept for it; None for what there is not.

        Absent tensors are None. What is no tensor, no window or no number has no key: the checks name it.
        """
        if type(window_size) not in _PAIRS or not is_unobserved(tensors[0]):
            return None, None
        try:
            left, right = window_size
            # Types come first: 2.0 and True are equal to integers, and tensors compare as an operation.
            key = (
                torch.is_grad_enabled(), (type(left), type(right), *map(type, numbers)), left, right, *numbers,
                *[None if t is None else (t.shape, t.stride(), t.dtype, t.get_device(), t.requires_grad) for t in tensors],
            )  # fmt: skip
            return key, self.kept.get(key)
        except (AttributeError, TypeError, ValueError):
            return None, None

    def keep(self, key: tuple, what: Any) -> None:
        """Keeps it for a key of `find`, unless that may stand for other calls later."""
        grad_enabled, types, *others = key
        tensors = others[len(types) :]
        if not _NUMBERS.issuperset(types) or (grad_enabled and any(tensor is not None and tensor[-1] for tensor in tensors)):
            return
        if len(self.kept) >= MOST_PLANS:
            self.kept.clear()
        self.kept[key] = what


def are_same(given: Sequence[object], passed: Sequence[object]) -> bool:
    """Whether the checks have passed on what they were given, and nothing in place of it."""
    return all(map(operator.is_, given, passed))
