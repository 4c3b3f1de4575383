"""The arguments that a feature adds to a call, as its module describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Feature:
    """A feature that a call may use. Its arguments follow those of every call, named as the fields of `kgen.h`."""

    #: In names of kernels.
    name: str
    #: Tensors, None in a call without the feature.
    tensors: tuple[str, ...]
    #: Numbers, and their values in a call without the feature.
    numbers: dict[str, float]
    #: Raises for tensors that kernels cannot read. Takes the tensors and the device of Q.
    check: Callable[..., None]
