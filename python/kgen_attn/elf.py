"""Detection of truncated shared libraries. The loader would map such a file, and an access would kill the process with
SIGBUS."""

from __future__ import annotations

import os
import pathlib
import struct

#: Fields of a 64-bit ELF header: offset, size and number of the program headers.
_HEADER = struct.Struct("<32xQ14xHH")
_HEADER_BYTES = 64

#: Fields of a program header: type, offset in the file and bytes in the file.
_SEGMENT = struct.Struct("<I4xQ16xQ")
_LOAD = 1


def is_cut_off(path: pathlib.Path) -> bool:
    """True if the ELF file at `path` ends before the contents that its program headers describe, or before these
    headers.

    False for a file that is not little-endian 64-bit ELF, which the loader reports.
    """
    with open(path, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or not header.startswith(b"\x7fELF\x02\x01"):
            return header.startswith(b"\x7fELF") and len(header) < _HEADER_BYTES
        offset, size, count = _HEADER.unpack_from(header)
        if offset + size * count > length:
            return True
        file.seek(offset)
        table = file.read(size * count)
    for at in range(0, size * count, size):
        kind, begin, there = _SEGMENT.unpack_from(table, at)
        if kind == _LOAD and begin + there > length:
            return True
    return False
