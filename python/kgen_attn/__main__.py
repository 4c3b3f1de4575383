"""`python -m kgen_attn`: the contents of the library, its GPUs, and what runs on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections import defaultdict

from . import gpus
from .errors import LibraryError
from .library import EVERY_NEWER_GPU, Kernel, Library, library

#: kgen's exit code if something is missing on the machine.
_MISSING = 3


def main() -> int:
    """Prints the contents; returns 3 if there is no library."""
    parser = argparse.ArgumentParser(prog="python -m kgen_attn", description="Print what the library of kernels holds.")
    parser.add_argument("--format", choices=("human", "json"), default="human", help="how it is printed")
    form = parser.parse_args().format
    try:
        loaded = library()
    except LibraryError as error:
        print(f"error: {error}", file=sys.stderr)
        if form == "json":
            print(json.dumps({"error": {"exit_code": _MISSING, "kind": "environment", "message": str(error)}}, indent=2))
        return _MISSING
    try:
        print(json.dumps(document(loaded), indent=2) if form == "json" else text(loaded), flush=True)
    except BrokenPipeError:
        # A reader such as `head` has closed the pipe: discard what Python would still write at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def document(loaded: Library) -> dict[str, object]:
    """The contents as a JSON document."""
    found = gpus.found()
    here = [] if isinstance(found, str) else found
    return {
        "library": str(loaded.path),
        "emulated": loaded.emulator is not None,
        "kernels": [dataclasses.asdict(kernel) for kernel in loaded.kernels],
        "gpus": [{**dataclasses.asdict(gpu), "kernels": _count(loaded, gpu.capability)} for gpu in here],
        "no_gpu": found if isinstance(found, str) else None,
    }


def text(loaded: Library) -> str:
    """The contents as text: a line for each kind, type, set of features and target, and a line for each GPU."""
    groups: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for kernel in loaded.kernels:
        groups[_group(kernel)].add(_head_dims(kernel))
    rows = [("kind", "dtype", "features", "compute capability", "head dims")]
    rows += [(*group, " ".join(sorted(dims, key=lambda dim: [int(n) for n in dim.split("_") if n]))) for group, dims in sorted(groups.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([f"{loaded.path}: {len(loaded.kernels)} kernels", "", *lines, "", *_here(loaded)])


def _group(kernel: Kernel) -> tuple[str, str, str, str]:
    def version(capability: int) -> str:
        return f"{capability // 10}.{capability % 10}"

    newest = "" if kernel.target_max == kernel.target else f" to {version(kernel.target_max)}"
    if kernel.target_max == EVERY_NEWER_GPU:
        newest = " and newer"
    features = ",".join([*kernel.features, *([f"score {kernel.score}"] if kernel.score else [])])
    has_dtype = kernel.head_dim > 0 or kernel.kind not in ("fwd_combine", "prepare_scheduler")
    return kernel.kind, kernel.dtype if has_dtype else "-", features or "-", version(kernel.target) + newest


def _head_dims(kernel: Kernel) -> str:
    if kernel.head_dim == 0:
        return ""
    return str(kernel.head_dim) if kernel.head_dim == kernel.head_dim_v else f"{kernel.head_dim}_{kernel.head_dim_v}"


def _here(loaded: Library) -> list[str]:
    if loaded.emulator is not None:
        return ["The library is built for kgen's emulator: it takes CPU tensors, and is for tests."]
    found = gpus.found()
    if isinstance(found, str):
        return [f"No kernel runs here: {found}."]
    return [
        f"GPU {gpu.index}, {gpu.name} (compute capability {gpu.capability // 10}.{gpu.capability % 10}): "
        f"{_count(loaded, gpu.capability)} of {len(loaded.kernels)} kernels run there"
        for gpu in found
    ]


def _count(loaded: Library, capability: int) -> int:
    return sum(kernel.runs_on(capability) for kernel in loaded.kernels)


if __name__ == "__main__":
    sys.exit(main())
