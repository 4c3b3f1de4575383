"""Determines the effect of a mutant for scripts/mutate.py: the kernels it changes, and the verdict of `kgen check`.

Needs a kgen binary, a C++ compiler and the templates; no Rust, no git. Every worker has its own folder and cache, which
are emptied after each mutant.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from mutations import applied

# Compiler flags that kgen uses for the emulator (src/device/emulator_kit.rs): two texts with the same assembly are the
# same kernel. The line number of a call, which emulated primitives report, is fixed: an additional line changes
# nothing.
FLAGS = ["-std=c++17", "-fPIC", "-ffp-contract=off", "-w", "-O1", "-D__builtin_LINE()=0"]
INCLUDES = ["-I", "emulator", "-I", "include"]

# A compiler that does not recompile the emulator's runtime if a changed header does not affect it.
WRAPPER = """#!/bin/sh
case "$*" in
*runtime.cpp*)
    for last; do :; done
    "{compiler}" -E -P "$@" || exit
    kept="{folder}/$(sha256sum <"$last" | cut -d' ' -f1).o"
    if [ ! -f "$kept" ]; then
        "{compiler}" "$@" || exit
        cp "$last" "$kept.$$" && mv "$kept.$$" "$kept"
    fi
    cp "$kept" "$last" ;;
*) exec "{compiler}" "$@" ;;
esac
"""


def bare(text):
    """A kernel's text without comments and layout."""
    return "".join(re.sub(r"//.*", "", text).split())


def numbered_anew(assembly):
    """Assembly with labels renumbered in order of appearance: a function that is never called would shift them all."""
    numbers = {}
    return re.sub(r"\.L[A-Z]*\d+", lambda label: f".L{numbers.setdefault(label.group(), len(numbers))}", assembly)


def shape_of(text):
    """A kernel's lines without comments and numbers: the rest differs if a template takes other branches."""
    lines = (re.sub(r"\d+", "#", re.sub(r"//.*", "", line)).strip() for line in text.splitlines())
    return frozenset(line for line in lines if line)


class OutOfTime(Exception):
    """The time limit of this run is over."""


class ToolError(Exception):
    """A failure not caused by a mutant."""


class UnharmedFails(Exception):
    """A kernel fails without a mutant, so failures of its mutants prove nothing."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of one grid."""

    grid: str | None  # file name of `--variants`; None: the built-in grid
    name: str


@dataclass
class Features:
    template: str
    headers: frozenset
    head_dim: int
    traits: frozenset  # kind, target, dtype, mask, and the plan's decisions
    constants: dict  # values as text, by name
    lines: frozenset  # the kernel's lines, without the numbers in them


class Laboratory:
    def __init__(self, kgen, templates, grids, work, deadline, limits):
        """The templates, the kernels and the time limit of a run. `grids` are files in addition to the built-in
        grid."""
        self.deadline, self.limits = deadline, limits
        self.work = Path(work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        # A copy, so that edits and builds during the run have no effect.
        self.kgen = Path(shutil.copy2(kgen, self.work / "kgen"))
        # Keyed by name, so that results hold in another folder.
        self.grids = {None: None, **{Path(grid).name: Path(shutil.copy2(grid, self.work)) for grid in grids}}
        self.templates = self.work / "as-given"
        shutil.rmtree(self.templates, ignore_errors=True)
        shutil.copytree(templates, self.templates)
        self.lock = threading.Lock()
        self.running = set()
        self.stopped = False
        self.compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
        if self.compiler is None:
            raise ToolError("no C++ compiler: install g++, or name one with `CXX`")
        kept = self.work / "runtimes"
        kept.mkdir(exist_ok=True)
        self.wrapper = self.work / "compiler"
        self.wrapper.write_text(WRAPPER.format(compiler=self.compiler, folder=kept))
        self.wrapper.chmod(0o755)
        self.assembly_of = {}
        self.unharmed = {}  # (kernel, thorough): the verdict without a mutant
        self.texts = {}
        for grid in self.grids:
            texts = self.rendered(self.templates, grid, self.work / "unharmed")
            # Each family adds its block to kgen.h, so the header included by kernels is rendered too.
            self.interface = self.work / "interface"
            self.interface.mkdir(exist_ok=True)
            shutil.copy2(self.folder_of(grid, self.work / "unharmed") / "include/kgen.h", self.interface)
            # A kernel in several grids is run once.
            seen = set(self.texts.values())
            self.texts |= {kernel: text for kernel, text in texts.items() if text not in seen}
        files = {path: (self.templates / path).read_text() for path in self.files()}
        self.includes = {path: self.included(text) for path, text in files.items() if path.startswith("include/")}
        self.features = {kernel: self.features_of(kernel, text) for kernel, text in self.texts.items()}
        # Headers that only dispatchers use are excluded: no kernel could detect their mutants.
        used = {header for features in self.features.values() for header in features.headers}
        self.texts_of_files = {path: text for path, text in files.items() if path in used or not path.startswith("include/")}

    # -- processes

    def run(self, command, folder, environment=None, given=None):
        """Runs `command` in `folder`, with `given` as its standard input, until it exits. Returns (exit code, standard
        output, standard error); raises OutOfTime at the deadline or after `stop`."""
        with self.lock:
            if self.stopped or time.monotonic() > self.deadline:
                raise OutOfTime
            process = subprocess.Popen(
                [str(part) for part in command], cwd=folder, env={**os.environ, **(environment or {})}, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            )  # fmt: skip
            self.running.add(process)
        try:
            out, err = process.communicate(given, timeout=max(self.deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            raise OutOfTime from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
            with self.lock:
                self.running.discard(process)
        if self.stopped:
            raise OutOfTime
        return process.returncode, out, err

    def stop(self):
        """Stops running processes; nothing new starts."""
        with self.lock:
            self.stopped = True
            for process in self.running:
                os.killpg(process.pid, signal.SIGTERM)

    # -- the unmodified templates

    def files(self):
        """Kernels, their parts, and headers without a counterpart in the emulator, in the templates' folder."""
        texts = (path.relative_to(self.templates) for path in self.templates.glob("**/*.tera"))
        kernels = sorted(self.templates / path for path in texts if path.parts[0] != "bindings" and not path.match("*.cpp.tera"))
        headers = sorted(self.templates.glob("include/kgen/*.cuh"))
        used = [h for h in headers if not (self.templates / "emulator/kgen" / h.name).exists()]
        return [str(path.relative_to(self.templates)) for path in kernels + used]

    @staticmethod
    def included(text):
        return frozenset("include/" + path for path in re.findall(r'#include "(kgen/[\w.]+)"', text))

    @staticmethod
    def folder_of(grid, folder):
        return folder / (grid or "built-in")

    def variants(self, grid):
        return ["--variants", self.grids[grid]] if grid else []

    def rendered(self, templates, grid, folder):
        """The text of every kernel of a grid; None if the templates do not render."""
        folder = self.folder_of(grid, folder)
        command = [self.kgen, "generate", "--all", "--templates", templates, "-o", f"{folder}/"]
        code, _, error = self.run(command + self.variants(grid), self.work)
        if code != 0:
            if templates == self.templates:
                raise ToolError(f"`kgen generate` fails: {error.strip()}")
            return None
        return {Kernel(grid, path.stem): path.read_text() for path in sorted(folder.glob("*.cu"))}

    def features_of(self, kernel, text):
        template = re.search(r"from templates/([\w./]+)", text).group(1)
        headers = set(self.included(text))
        todo = list(headers)
        while todo:
            new = self.includes.get(todo.pop(), frozenset()) - headers
            headers |= new
            todo.extend(new)
        constants = dict(re.findall(r"^constexpr \w+ (\w+) = ([\w.]+);", text, re.M))
        shape = [c for c in constants.items() if re.fullmatch(r"STAGES|Q_SLOTS|CONSUMERS|CLUSTER|WARPS|WARPGROUPS|BLOCK_M|BLOCK_N|FOLD|\w*SPLIT\w*", c[0])]
        words = re.sub(r"hdim\d+(_\d+)?", "", kernel.name).split("_")
        traits = frozenset(words) | frozenset(shape) | self.included(text) | {f"columns {int(self.head_dim(kernel.name)) % 64}", template}
        return Features(template, frozenset(headers), self.head_dim(kernel.name), traits, constants, shape_of(text))

    @staticmethod
    def head_dim(name):
        found = re.search(r"hdim(\d+)", name)
        return int(found.group(1)) if found else 0

    # -- a mutant

    def plant(self, mutant, slot):
        """A copy of the templates with the mutant in it; None if its line is gone."""
        text = applied(self.texts_of_files[mutant.file], mutant)
        if text is None:
            return None
        folder = slot / "templates"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.templates, folder)
        (folder / mutant.file).write_text(text)
        return folder

    def affected(self, mutant, templates, slot):
        """The kernels that contain the mutant, with their texts; None if it does not render."""
        if mutant.file.startswith("include/"):
            return {kernel: text for kernel, text in self.texts.items() if mutant.file in self.features[kernel].headers}
        changed = {}
        for grid in self.grids:
            texts = self.rendered(templates, grid, slot / "rendered")
            if texts is None:
                return None
            # Most kernels are unchanged; removing comments is slow, and Python does it for one worker at a time.
            different = {kernel: text for kernel, text in texts.items() if kernel in self.texts and text != self.texts[kernel]}
            changed |= {kernel: text for kernel, text in different.items() if bare(text) != bare(self.texts[kernel])}
        return changed

    def in_order(self, kernels, mutant):
        """The kernels, each as different from the previous ones as possible, primarily in the constants that the
        changed line names; kernels with features that the line names before others, small ones before large ones, and the
        built-in grid's before those made for tests."""
        chance = random.Random(mutant.id)
        left = sorted(kernels, key=lambda k: (k.name, k.grid or ""))
        chance.shuffle(left)
        line = mutant.before + " " + mutant.after
        words = set(re.findall(r"[a-z]+[0-9a-z]*", line.lower()))  # including parts of names
        meant = {k: len(words.intersection(k.name.split("_"))) for k in left}
        fitting = sorted(filter(meant.get, left), key=meant.get, reverse=True)[:20]  # few kernels have a rare feature
        left = (fitting + [k for k in left if k not in fitting])[:100]
        cost = {k: max(self.features[k].head_dim - 128, 0) / 64 + (0.5 if k.grid else 0) - 4 * meant[k] for k in left}
        named = set(re.findall(r"\w+", line))
        values = {k: {c for c in self.features[k].constants.items() if c[0] in named} for k in left}
        order, distance = [], dict.fromkeys(left, 100.0)
        while left and len(order) < 16:
            best = max(left, key=lambda k: distance[k] - cost[k])
            order.append(best)
            left.remove(best)
            for kernel in left:
                one, other = self.features[kernel], self.features[best]
                different = one.traits ^ other.traits
                # Branches of the template that only one of them takes: each is a few lines.
                branches = min(len(one.lines ^ other.lines) / 4, 6)
                # Prefer one kernel with a causal mask and one without, if both exist.
                unlike = len(different) + branches + (2 if one.head_dim != other.head_dim else 0) + (8 if "causal" in different else 0)
                unlike += 12 if values[kernel] != values[best] else 0
                distance[kernel] = min(distance[kernel], unlike)
        return order

    def assembly(self, templates, kernel, text):
        """A hash of the compiler's output for an emulated kernel; None if it does not compile."""
        if templates == self.templates and kernel in self.assembly_of:
            return self.assembly_of[kernel]
        # Read from standard input and by relative paths: the folder must not affect the output.
        command = [self.compiler, *FLAGS, "-I", self.interface, *INCLUDES, "-x", "c++", "-S", "-o", "-", "-"]
        code, out, error = self.run(command, templates, given=text)
        result = hashlib.sha256(numbered_anew(out).encode()).hexdigest() if code == 0 else None
        if templates == self.templates:
            if result is None:
                raise ToolError(f"{kernel.name} does not compile as it is: {error.strip()[:500]}")
            self.assembly_of[kernel] = result
        elif result is None:
            self.assembly(self.templates, kernel, self.texts[kernel])  # raises if this does not compile
        return result

    def check(self, templates, kernel, slot, thorough, limit):
        """The verdict of `kgen check` on one kernel."""
        command = [self.kgen, "check", "--device", "emulator", "--templates", templates, "--format", "json", "-j", "1"]
        command += ["--time-limit", limit, "--filter", f"name == {kernel.name}"]
        command += self.variants(kernel.grid) + (["--thorough"] if thorough else [])
        environment = {"XDG_CACHE_HOME": str(slot / "cache"), "CXX": str(self.wrapper)}
        code, out, error = self.run(command, slot, environment)
        if code not in (0, 1):
            raise ToolError(f"`kgen check` ends with {code}: {error.strip()[-500:]}")
        (verdict,) = json.loads(out)
        return verdict

    def time_limit(self, kernel, slot, thorough):
        """Seconds after which a mutant of this kernel counts as killed. Raises if the kernel fails without one."""
        key = (kernel, thorough)
        if key not in self.unharmed:
            self.unharmed[key] = self.check(self.templates, kernel, slot, thorough, 4 * self.limits[thorough])
        verdict = self.unharmed[key]
        if verdict["status"] != "pass":
            raise UnharmedFails
        return max(self.limits[thorough], math.ceil(4 * verdict["seconds"]))

    def failing(self):
        """Messages of the kernels that fail without a mutant, one text each."""
        verdicts = sorted((kernel.name, verdict) for (kernel, _), verdict in self.unharmed.items() if verdict["status"] != "pass")
        return [f"`{name}` fails without a mutant: {verdict['status']}: {verdict['message'][:300]}" for name, verdict in verdicts]

    @staticmethod
    def sweep(slot, kept):
        """Removes the entries of mutants from a worker's cache."""
        folder = slot / "cache/kgen/emulator"
        for entry in folder.iterdir() if folder.is_dir() else []:
            if entry.name not in kept:
                shutil.rmtree(entry, ignore_errors=True)
