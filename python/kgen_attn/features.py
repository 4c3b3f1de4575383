"""Features whose arguments follow those of every call: all tensors, then all numbers. The passes and the operators fold
these tables; a feature's own module describes it."""

from __future__ import annotations

import torch

from . import dropout

FEATURES = (dropout.FEATURE,)

_FIELDS = tuple(name for feature in FEATURES for name in feature.tensors)
_NUMBERS = {name: number for feature in FEATURES for name, number in feature.numbers.items()}

#: How many of the arguments are tensors.
TENSORS = len(_FIELDS)

#: The numbers of a call without these features, and all its arguments.
WITHOUT_NUMBERS = tuple(_NUMBERS.values())
WITHOUT = (*[None] * TENSORS, *WITHOUT_NUMBERS)

#: Parameters of an operator.
SCHEMA = ", ".join(
    (*(f"Tensor? {name}=None" for name in _FIELDS), *(f"float {name}={number}" for name, number in _NUMBERS.items()))
)


def offsets(structure: type) -> tuple[int, ...]:
    """Offsets of the pointers of the tensors in a structure."""
    return tuple(getattr(structure, name).offset for name in _FIELDS)


def completed(arguments: tuple) -> tuple:
    """The arguments, with trailing defaults, which torch leaves out."""
    count = len(arguments)
    return arguments if count == len(WITHOUT) else (*arguments, *WITHOUT[count:])


def check(tensors: tuple, device: torch.device) -> None:
    """Raises for tensors that kernels cannot read."""
    for feature in FEATURES:
        count = len(feature.tensors)
        feature.check(*tensors[:count], device)
        tensors = tensors[count:]


def enter(p, numbers: tuple) -> None:
    """Stores the numbers."""
    for field, number in zip(_NUMBERS, numbers):
        setattr(p, field, number)


def requested(p) -> dict[str, bool]:
    """Whether a structure requests each feature: one of its numbers differs from that of a call without."""
    differs = lambda numbers: any(getattr(p, field) != without for field, without in numbers.items())
    return {feature.name: differs(feature.numbers) for feature in FEATURES}
