"""The description of the arguments that a feature adds to a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Feature:
    """A feature that a call may use. Its arguments follow those that every call has; their names are those of the
    fields of `kgen.h`."""

    #: The feature's word in names of kernels.
    name: str
    #: Names of its tensors, which are None in a call without the feature.
    tensors: tuple[str, ...]
    #: Names of its numbers, with their values in a call without the feature.
    numbers: dict[str, float]
    #: Raises for tensors that kernels cannot read. Its parameters are the tensors and the device of Q.
    check: Callable[..., None]
