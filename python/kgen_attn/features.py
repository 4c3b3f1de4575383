"""Features whose arguments follow those that every call has: all tensors, then all numbers. The two passes and the
operators are built from these tables; each feature is described by its own module."""

from __future__ import annotations

import torch

from . import dropout

FEATURES = (dropout.FEATURE,)

_FIELDS = tuple(name for feature in FEATURES for name in feature.tensors)
_NUMBERS = {name: number for feature in FEATURES for name, number in feature.numbers.items()}

#: Number of these arguments that are tensors.
TENSORS = len(_FIELDS)

#: Values of the numbers, and of all these arguments, in a call without the features.
WITHOUT_NUMBERS = tuple(_NUMBERS.values())
WITHOUT = (*[None] * TENSORS, *WITHOUT_NUMBERS)

#: These arguments in the schema of an operator.
SCHEMA = ", ".join(
    (*(f"Tensor? {name}=None" for name in _FIELDS), *(f"float {name}={number}" for name, number in _NUMBERS.items()))
)


def offsets(structure: type) -> tuple[int, ...]:
    """Offsets of the tensors' pointers in a structure."""
    return tuple(getattr(structure, name).offset for name in _FIELDS)


def completed(arguments: tuple) -> tuple:
    """The arguments, with the trailing defaults that torch omits."""
    count = len(arguments)
    return arguments if count == len(WITHOUT) else (*arguments, *WITHOUT[count:])


def check(tensors: tuple, device: torch.device) -> None:
    """Raises for tensors that kernels cannot read."""
    for feature in FEATURES:
        count = len(feature.tensors)
        feature.check(*tensors[:count], device)
        tensors = tensors[count:]


def enter(p, numbers: tuple) -> None:
    """Stores the numbers in a structure."""
    for field, number in zip(_NUMBERS, numbers):
        setattr(p, field, number)


def requested(p) -> dict[str, bool]:
    """For each feature, True if the structure requests it: one of its numbers differs from that of a call without the
    feature."""
    differs = lambda numbers: any(getattr(p, field) != without for field, without in numbers.items())
    return {feature.name: differs(feature.numbers) for feature in FEATURES}
