"""Checks of the values of integer tensors that the host can read without waiting: those of CPU tensors, for the
emulator.

Values on a GPU are not read here: that would wait for all earlier work.
"""

from __future__ import annotations

from typing import Optional

import torch

TensorOrNone = Optional[torch.Tensor]


def check_numbers(name: str, tensor: torch.Tensor, count: int) -> None:
    """Raises `ValueError` if a value is not an index below `count`."""
    values = _known(tensor)
    wrong = next((value for value in values if not 0 <= value < count), None)
    if wrong is not None:
        raise ValueError(f"`{name}` holds {wrong}; it holds numbers from 0 to {count - 1}")


def check_lengths(name: str, tensor: torch.Tensor, most: int, of: str) -> None:
    """Raises `ValueError` if a sequence is longer than `most`, the number of rows of `of`."""
    values = _known(tensor)
    if values and max(values) > most:
        raise ValueError(f"`{name}` holds {max(values)}; {of} has {most}")


def check_starts(name: str, tensor: torch.Tensor, total: int, of: str, longest: Optional[int], said: str, used: Optional[torch.Tensor] = None) -> None:
    """Raises `ValueError` for starts of packed sequences that decrease, exceed the rows of `of`, or are further apart
    than `longest`, the value of the argument named `said`. If `used` is passed, only that many rows of each sequence
    are read: the last entry may then be beyond the tensor, as in ranges of a cache."""
    values = _known(tensor)
    if not values:
        return
    if min(values) < 0 or any(after < before for before, after in zip(values, values[1:])):
        raise ValueError(f"`{name}` is {values}; it must begin at 0 and never fall")
    lengths = [] if used is None else _known(used)
    ends = [min(start + length, end) for start, end, length in zip(values, values[1:], lengths)] or values[-1:]
    if max(ends) > total:
        raise ValueError(f"`{name}` ends at {max(ends)}; `{of}` has {total} rows")
    if longest is not None:
        found = max(after - before for before, after in zip(values, values[1:])) if len(values) > 1 else 0
        if found > longest:
            raise ValueError(f"`{said}` is {longest}; by `{name}` a sequence has {found} rows")


def check_pages(table: torch.Tensor, used: list[int], page_size: int, pages: int) -> None:
    """Raises `ValueError` if a table entry within the lengths `used` is not the number of a page."""
    for row, length in zip(_known(table), used):
        for page in row[: -(-max(0, length) // page_size)]:
            if not 0 <= page < pages:
                raise ValueError(f"`block_table` holds {page}; the cache has {pages} pages, numbered from 0")


def _known(tensor: torch.Tensor) -> list:
    """The values; empty if the host would have to wait for them, or if a compiler traces the call."""
    known = tensor.device.type == "cpu" and not torch.compiler.is_compiling() and type(tensor) is torch.Tensor
    return tensor.tolist() if known and torch._C._len_torch_dispatch_stack() == 0 else []
