"""Search for and loading of a libkgen. Needs no torch."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from dataclasses import dataclass

from . import abi
from .elf import is_cut_off
from .errors import LibraryError

#: Environment variable with the path of a library to use instead of the package's.
VARIABLE = "KGEN_LIBRARY"

BUNDLED = pathlib.Path(__file__).resolve().parent / "lib" / "libkgen.so"

#: `target_max` of a kernel whose object contains PTX, which newer GPUs compile.
EVERY_NEWER_GPU = 999

#: Functions that take parameters and a stream, the one that takes two structures and a stream, and those that return
#: the workspace size in bytes.
_LAUNCHES = ("kgen_fwd", "kgen_bwd", "kgen_append_kv")
_DOUBLE_LAUNCH = "kgen_fwd_kvcache"
_WORKSPACES = ("kgen_fwd_workspace", "kgen_bwd_workspace")


@dataclass(frozen=True)
class Kernel:
    """A kernel of a library. Targets are compute capabilities, major * 10 + minor."""

    name: str
    kind: str
    head_dim: int
    head_dim_v: int
    dtype: str
    features: tuple[str, ...]
    target: int
    target_max: int
    score: str | None

    def runs_on(self, capability: int) -> bool:
        """True if a GPU of this compute capability (major * 10 + minor) can run the kernel."""
        return self.target <= capability <= self.target_max


class Library:
    """A loaded libkgen. Launch functions take the bytes of a parameter structure and a stream.

    `device_type` is the device of its tensors: "cuda", or "cpu" for a library built for kgen's emulator, which is
    recognised by functions that only such libraries have. `emulator` is the emulator's interface, or None.
    """

    def __init__(self, path: pathlib.Path) -> None:
        # The loader would search the system's library folders for a name without a slash.
        self.path = path = path.absolute()
        try:
            if is_cut_off(path):
                raise LibraryError(f"cannot load `{path}`: it is cut off, shorter than its ELF header says; make it again")
            self.lib = ctypes.CDLL(str(path))
        except OSError as error:
            raise LibraryError(f"cannot load `{path}`: {error}") from error
        needed = ("kgen_abi_version", "kgen_last_error", "kgen_variants", *_LAUNCHES, _DOUBLE_LAUNCH, *_WORKSPACES)
        missing = next((name for name in needed if not hasattr(self.lib, name)), None)
        if missing is not None:
            raise LibraryError(f"`{path}` is no libkgen: it lacks `{missing}`; `kgen build` makes one")
        self.lib.kgen_abi_version.restype = ctypes.c_uint32
        version = self.lib.kgen_abi_version()
        if version != abi.ABI_VERSION:
            remedy = "build both with the same kgen"
            raise LibraryError(f"`{path}` has version {version} of kgen's C interface, this package {abi.ABI_VERSION}; {remedy}")
        self.lib.kgen_last_error.restype = ctypes.c_char_p
        # `bytes` as char*: a structure is passed without creating an object for it.
        for name in (*_LAUNCHES, _DOUBLE_LAUNCH):
            function = getattr(self.lib, name)
            structures = [ctypes.c_char_p] * (2 if name == _DOUBLE_LAUNCH else 1)
            function.argtypes, function.restype = [*structures, ctypes.c_void_p], ctypes.c_int
            setattr(self, name[len("kgen_") :], function)
        for name in _WORKSPACES:
            function = getattr(self.lib, name)
            function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_size_t
            setattr(self, name[len("kgen_") :], function)
        self.emulator: Emulator | None = None
        self.device_type = "cuda"
        if hasattr(self.lib, "kgen_emulator_tensor"):
            self.emulator = Emulator(self.lib, max((kernel.target for kernel in self.kernels), default=80))
            self.device_type = "cpu"

    @functools.cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The table of kernels, sorted by name."""
        count = ctypes.c_size_t()
        variants = self.lib.kgen_variants
        variants.argtypes, variants.restype = [ctypes.POINTER(ctypes.c_size_t)], ctypes.POINTER(abi.Variant)
        rows = variants(ctypes.byref(count))
        return tuple(_kernel(rows[row]) for row in range(count.value))

    def last_error(self) -> str:
        """The message of this thread's last failed call."""
        return (self.lib.kgen_last_error() or b"no message").decode(errors="replace")


class Emulator:
    """The additional functions of an emulated library: all memory that a launch may access must be declared."""

    def __init__(self, lib: ctypes.CDLL, capability: int) -> None:
        self._reset, self._tensor, self._report = lib.kgen_emulator_reset, lib.kgen_emulator_tensor, lib.kgen_emulator_report
        self._reset.argtypes = [ctypes.c_uint64]
        self._tensor.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._report.restype = ctypes.c_char_p
        lib.kgen_emulator_device(ctypes.c_int(capability))
        self.capability = capability

    def declare(self, read: list[tuple[int, int]], written: list[tuple[int, int]]) -> None:
        """Declares the memory of the next launch, each piece by address and size; a launch may access no other."""
        self._reset(1)
        for writable, pieces in ((0, read), (1, written)):
            for address, size in pieces:
                self._tensor(b"tensor", address, size, None, 1, writable)

    def report(self) -> str:
        """All violations of the last launch, such as races and accesses out of bounds; the launch has then failed."""
        return (self._report() or b"").decode(errors="replace")


def _kernel(row: abi.Variant) -> Kernel:
    def word(words: dict[str, int], value: int) -> str:
        return next((name for name, number in words.items() if number == value), str(value))

    return Kernel(
        name=row.name.decode(),
        kind=word(abi.KINDS, row.kind),
        head_dim=row.head_dim,
        head_dim_v=row.head_dim_v,
        dtype=word(abi.DTYPES, row.dtype),
        features=tuple(name for name, bit in abi.FEATURES.items() if row.features & bit),
        target=row.target,
        target_max=row.target_max,
        score=row.score_name.decode() if row.score_name else None,
    )


def path_of_library() -> pathlib.Path:
    """The library at `KGEN_LIBRARY`, else the one in the package.

    Raises `LibraryError` if that file does not exist.
    """
    named = os.environ.get(VARIABLE)
    path = pathlib.Path(named).absolute() if named else BUNDLED
    if path.is_file():
        return path
    if named:
        raise LibraryError(f"`{VARIABLE}` names `{path}`, which is not a file")
    remedy = f"install a wheel of `kgen wheel`, or name a library of `kgen build` with `{VARIABLE}`"
    raise LibraryError(f"this copy of kgen_attn holds no library (`{path}`): {remedy}")


@functools.lru_cache(maxsize=None)
def library() -> Library:
    """The library of this process, loaded once."""
    return Library(path_of_library())
