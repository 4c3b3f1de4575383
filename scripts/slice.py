#!/usr/bin/env python3
"""Builds the set `slice` with nvcc and smoke-tests it on the emulator (`kgen build-all`), except for kernels on record.

    scripts/slice.py KGEN                          kernels that are not on record, and one of eight that are
    KGEN_UPDATE_FAULTS=1 scripts/slice.py KGEN     all kernels; those that pass are the new record

The record is tests/slice.json: for each kernel a hash of all that its build and its verdict depend on. As in the record
of planted faults (tests/emulator/faults/README.md), the host's compiler and the processor are not part of it, and which
kernels on record run follows from the keys of all. A warning of nvcc is an error. The dispatcher of the whole set is
compiled each time: it depends on the names of all kernels.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/slice.json"
# Of so many kernels on record one runs.
SAMPLE = 8
# What compiles a kernel, beside what judges it (`JUDGES` in build.rs): the flags, the version of nvcc, what is read in
# its output and in the machine code.
BUILDERS = ["src/build", "src/toolchain"]
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)', re.MULTILINE)


def digest(parts):
    """Hash of a list of texts and bytes without ambiguity."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest()


def files_below(folder):
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def reached(texts, headers):
    """The headers that texts include, and those that these include, by path."""
    todo, found = list(texts), {}
    while todo:
        for path in INCLUDE.findall(todo.pop()):
            if path in headers and path not in found:
                found[path] = headers[path]
                todo.append(headers[path])
    return found


def code(root):
    """Hash of the code that builds and judges, and of the versions of the crates that it uses."""
    judges = re.search(r"const JUDGES: \[&str; \d+\] = \[(.*?)\];", (root / "build.rs").read_text(), re.DOTALL)
    folders = re.findall(r'"([^"]+)"', judges[1]) + BUILDERS
    texts = [part for folder in folders for file in files_below(root / folder).items() for part in (folder, *file)]
    return digest([*texts, (root / "Cargo.lock").read_bytes(), Path(__file__).read_bytes()])


def keys(kernels, headers, emulator, code):
    """The key of each kernel. `kernels` has its text and its entry in the manifest, by name."""
    of_emulator = digest(part for file in sorted(emulator.items()) for part in file)
    found = {}
    for name, (text, entry) in kernels.items():
        files = reached([text, *emulator.values()], headers)
        of_headers = digest(part for file in sorted(files.items()) for part in file)
        plan = json.dumps(entry, sort_keys=True)
        found[name] = digest([name, text, plan, of_headers, of_emulator, code])[:16]
    return found


def to_run(keys, record):
    """The kernels that are not on record with today's keys, and a sample of the others, which changes with any key."""
    seed = digest(part for key in sorted(keys.items()) for part in key)
    sampled = {name for name in keys if int(digest([seed, name])[:8], 16) % SAMPLE == 0}
    return sorted(name for name, key in keys.items() if record.get(name) != key or name in sampled)


def rendered(kgen, folder):
    """Writes the set to a folder. Returns what the keys of its kernels are made of."""
    subprocess.run([kgen, "generate", "--quiet", "--set", "slice", "--output", folder], check=True)
    variants = json.loads((folder / "manifest.json").read_text())["variants"]
    kernels = {entry["name"]: ((folder / entry["file"]).read_text(), entry) for entry in variants}
    headers = {path: text.decode() for path, text in files_below(folder / "include").items()}
    emulator = {path: text.decode() for path, text in files_below(ROOT / "templates/emulator").items()}
    return kernels, headers, emulator


def compile_dispatcher(kgen, folder):
    subprocess.run([kgen, "toolchain", "install", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    shown = subprocess.run([kgen, "toolchain", "show", "--format", "json"], check=True, stdout=subprocess.PIPE)
    nvcc = json.loads(shown.stdout)[0]["program"]
    flags = ["-std=c++17", "-Werror", "all-warnings", "-I", "include"]
    subprocess.run([nvcc, *flags, "-c", "kgen_dispatch.cpp", "-o", "dispatch.o"], check=True, cwd=folder)


def warnings(log):
    lines = [(path, line) for path, text in files_below(log).items() for line in text.decode().splitlines()]
    return [f"{log}/{path}: {line}" for path, line in lines if "warning #" in line]


def main(kgen):
    updates = "KGEN_UPDATE_FAULTS" in os.environ
    with tempfile.TemporaryDirectory() as folder:
        kernels, headers, emulator = rendered(kgen, Path(folder))
        of = keys(kernels, headers, emulator, code(ROOT))
        names = sorted(of) if updates else to_run(of, json.loads(RECORD.read_text()))
        print(f"slice: {len(names)} of {len(of)} kernels are built and checked, the others are on record", flush=True)
        compile_dispatcher(kgen, folder)
    if names:
        command = [kgen, "build-all", *names, "--device", "emulator", "--generated", "build/generated"]
        subprocess.run(command, check=True, cwd=ROOT)
    if found := warnings(ROOT / "build/log"):
        sys.exit("\n".join([*found, "error: nvcc warns about generated kernels, as listed above"]))
    if updates:
        RECORD.write_text(json.dumps(of, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        main(Path(sys.argv[1]).resolve())
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: {error}")
