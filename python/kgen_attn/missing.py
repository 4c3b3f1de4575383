"""Kernels that the library lacks: the command that builds one, and `KGEN_JIT`, which makes calls run it."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
from dataclasses import dataclass

from . import gpus
from .errors import LibraryError, MissingKernel
from .library import Library

#: Environment variable; 1: missing kernels are generated and compiled on first use, and kept.
VARIABLE = "KGEN_JIT"

_OFF, _ON = ("", "0", "no", "off", "false"), ("1", "yes", "on", "true")

_DTYPE_WORDS = {"float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8"}


@dataclass(frozen=True)
class Request:
    """The properties of a call that determine its kernel. `function` is fwd, bwd or append_kv."""

    function: str
    dtype: str
    head_dim: int = 0
    head_dim_v: int = 0
    causal: bool = False
    features: tuple[str, ...] = ()
    device: int = -1

    def selection(self, target: str) -> list[str]:
        """kgen's flags that select the kernel."""
        flags = ["--kind", self.function, "--dtype", _DTYPE_WORDS.get(self.dtype, self.dtype), "--target", target]
        if self.function == "append_kv":
            return flags
        pair = str(self.head_dim) if self.head_dim == self.head_dim_v else f"{self.head_dim}_{self.head_dim_v}"
        mask = "--causal" if self.causal else "--full"
        return [*flags, "--head-dim", pair, mask, "--features", ",".join(self.features) or "none"]


def command(request: Request, library: Library, folder: str) -> list[str]:
    """The command that builds a library with a kernel for the request, in `folder`/wheel/lib/libkgen.so."""
    if library.emulator is not None:
        target, device = f"sm{library.emulator.capability}", ["--device", "emulator"]
    else:
        capability = gpus.capability_of(request.device)
        target, device = f"sm{capability}" if capability else "native", []
    places = ["--generated", f"{folder}/generated", "--build-dir", folder, "--output", folder]
    return ["kgen", "wheel", *request.selection(target), *device, *places]


def error(request: Request, message: str, library: Library) -> MissingKernel:
    """The error for a request for which `library` has no kernel; `message` is the library's own."""
    line = shlex.join(command(request, library, "kgen-wheel"))
    remedy = f"`{line}` makes a library that has it, which KGEN_LIBRARY=kgen-wheel/wheel/lib/libkgen.so selects; or set {VARIABLE}=1"
    return MissingKernel(f"{message}\n{remedy}", 3, line)


def made(request: Request, wanted: MissingKernel, library: Library) -> Library:
    """The library that `KGEN_JIT` has built for the request; raises `wanted` if it is not set."""
    word = os.environ.get(VARIABLE, "")
    if word.lower() in _OFF:
        raise wanted
    if word.lower() not in _ON:
        raise MissingKernel(f"{wanted}\n{VARIABLE} is `{word}`, which is neither 1 nor 0: nothing was made", wanted.code, wanted.command)
    try:
        return _made(request, library)
    except LibraryError as failed:
        raise MissingKernel(f"{wanted}\n{VARIABLE}=1 could not make it: {failed}", wanted.code, wanted.command) from failed


def is_requested() -> bool:
    """True if `KGEN_JIT` requests building kernels that the library lacks."""
    return os.environ.get(VARIABLE, "").lower() in _ON


@functools.lru_cache(maxsize=None)
def _made(request: Request, library: Library) -> Library:
    kgen = _program()
    line = command(request, library, "")
    # Compiled kernels are in kgen's own cache; this folder only receives the library of the request.
    key = hashlib.sha256(repr((line, _version(kgen))).encode()).hexdigest()[:24]
    folder = cache() / key
    path = folder / "wheel" / "lib" / "libkgen.so"
    if path.is_file():
        try:
            return Library(path)
        except LibraryError:
            pass  # the file was truncated by a full disk or a crash, or is otherwise invalid: it is built again
    line = [kgen, *command(request, library, str(folder))[1:], "--quiet"]
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise LibraryError(f"`{kgen}` cannot be run: {error}") from error
    if done.returncode != 0:
        raise LibraryError(f"`{shlex.join(line)}` ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return Library(path)


def _program() -> str:
    """Path of the kgen program."""
    named = os.environ.get("KGEN")
    found = shutil.which(named or "kgen")
    if found is None and named:
        raise LibraryError(f"`{named}`, which `KGEN` names, cannot be run: it is no file that may be executed")
    if found is None:
        raise LibraryError("`kgen` is not in PATH; install it, or name it with `KGEN`")
    return found


def cache() -> pathlib.Path:
    """Folder of the libraries of single kernels."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "kgen" / "python"
    except RuntimeError as error:
        raise LibraryError("no folder to keep it in: the user has no home; name one with `XDG_CACHE_HOME`") from error


@functools.lru_cache(maxsize=None)
def _version(kgen: str) -> str:
    """Identity of the kgen program: another program generates other kernels."""
    try:
        stat = os.stat(kgen)
    except OSError as error:
        raise LibraryError(f"`{kgen}` cannot be run: {error}") from error
    return f"{os.path.realpath(kgen)} {stat.st_size} {stat.st_mtime_ns}"


def why_no_gpu() -> str:
    """The reason why there is no GPU, as a clause."""
    found = gpus.found()
    return found if isinstance(found, str) else "this torch is built without CUDA"
