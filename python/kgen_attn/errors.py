"""Exceptions of calls, in addition to `TypeError`, `ValueError` and `NotImplementedError` for their arguments."""

from __future__ import annotations


class KgenError(RuntimeError):
    """The library refused a call. `code` is a `KGEN_ERROR_*` of `kgen.h`; the message is the library's own."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class MissingKernel(KgenError):
    """The library has no kernel for the request on this device. `command` builds a library that does."""

    def __init__(self, message: str, code: int, command: str) -> None:
        super().__init__(message, code)
        self.command = command


class LibraryError(OSError):
    """There is no library, or it is unusable; the message names the problem and the remedy."""
