"""Whether a change of templates has changed machine code: compares two folders that `kgen build` has left.

    kgen build --set slice --templates before/templates --generated /tmp/before/gen --build-dir /tmp/before
    kgen build --set slice --templates templates --generated /tmp/after/gen --build-dir /tmp/after
    python3 scripts/compare_sass.py /tmp/before /tmp/after

For each kernel function of each variant in both folders: registers, spilled bytes, and the count of each opcode. Prints
the functions that differ, and a summary. Text that differs only in comments and layout need not be compiled:
--texts before/gen after/gen lists the variants that differ in more than that.

Exit codes: 0 nothing became worse (same or fewer instructions and registers, no new spills), 1 something did, 2 bad
usage or input.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.M)
FUNCTION = re.compile(r"^\s+Function : (\S+)$", re.M)

# nvcc puts a hash of the file into the names of an anonymous namespace.
HASHED = re.compile(r"_ZN\d+_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_[0-9a-f]+")


def bare(text):
    """A kernel's text without comments and layout."""
    return "".join(re.sub(r"//.*", "", text).split())


def short(name):
    """The name of a function without the part that depends on the file's content: `10attentionILb1EE…`."""
    return re.sub(r"^_[a-z0-9]{0,2}", "", HASHED.sub("", name)) or name


def disassembler():
    """cuobjdump as kgen has installed it, or the one on PATH."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    found = sorted(cache.glob("kgen/toolchain/disassembler-*/bin/cuobjdump"))
    return str(found[-1]) if found else "cuobjdump"


def report_of(folder):
    path = Path(folder) / "report.json"
    try:
        report = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        sys.exit(f"compare_sass.py: cannot read `{path}`: {error}; run `kgen build --build-dir {folder}` first")
    return {artifact["name"]: artifact for artifact in report["artifacts"]}


def opcodes(text):
    """The count of each, without the NOPs that pad a function's last line of code."""
    counts = Counter(INSTRUCTION.findall(text))
    del counts["NOP"]
    return counts


def functions(folder, artifact, program):
    """For each kernel function of an object: opcode counts, registers and spilled bytes."""
    command = [program, "-sass", str(Path(folder) / artifact["object"])]
    environment = {**os.environ, "PATH": f"{Path(program).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"compare_sass.py: `{' '.join(command)}` fails: {done.stderr.strip()}")
    pieces = FUNCTION.split(done.stdout)
    found = {short(name): [opcodes(text), 0, 0] for name, text in zip(pieces[1::2], pieces[2::2])}
    for resources in artifact["resources"]:
        entry = found.setdefault(short(resources["kernel"]), [Counter(), 0, 0])
        entry[1] = resources["registers"]
        entry[2] = resources["spill_store_bytes"] + resources["spill_load_bytes"] + resources["stack_bytes"]
    return found


def differences(before, after):
    """The differences between two of them as text; and whether they are for the worse."""
    words, worse = [], False
    total = [sum(side[0].values()) for side in (before, after)]
    if before[0] != after[0]:
        changes = {name: after[0][name] - before[0][name] for name in sorted(before[0] | after[0])}
        opcodes = [f"{name} {change:+d}" for name, change in changes.items() if change]
        words.append(f"instructions {total[0]} -> {total[1]} ({', '.join(opcodes)})")
        worse |= total[1] > total[0]
    for place, what in ((1, "registers"), (2, "bytes of stack and spills")):
        if before[place] != after[place]:
            words.append(f"{what} {before[place]} -> {after[place]}")
            worse |= after[place] > before[place]
    return words, worse


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="a build folder of `kgen build`; with --texts a generated one")
    parser.add_argument("after")
    texts = "compare generated folders: list the variants whose text differs"
    parser.add_argument("--texts", action="store_true", help=texts)
    parser.add_argument("--jobs", "-j", type=int, default=2)
    given = parser.parse_args()
    if given.texts:
        pairs = [(path, Path(given.after) / path.name) for path in sorted(Path(given.before).glob("*.cu"))]
        if not pairs:
            parser.error(f"`{given.before}` holds no kernel")
        for before, after in pairs:
            if after.exists() and bare(before.read_text()) != bare(after.read_text()):
                print(before.stem)
        return 0
    before, after = report_of(given.before), report_of(given.after)
    names = [name for name in after if name in before and after[name]["resources"]]
    if not names:
        parser.error("the folders have no variant in common")
    program = disassembler()

    def compare(name):
        reports = (given.before, before), (given.after, after)
        sides = [functions(folder, report[name], program) for folder, report in reports]
        if sides[0].keys() != sides[1].keys():
            return [f"functions {sorted(sides[0])} -> {sorted(sides[1])}"], True
        results = [(function, *differences(sides[0][function], sides[1][function])) for function in sides[0]]
        lines = [f"{function}: {'; '.join(words)}" for function, words, _ in results if words]
        return lines, any(worse for _, _, worse in results)

    different, worse = 0, 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for name, (lines, is_worse) in zip(names, pool.map(compare, names)):
            different += bool(lines)
            worse += is_worse
            for line in lines:
                print(f"{name}: {'WORSE: ' if is_worse else ''}{line}")
    print(f"{len(names)} variants compared: {len(names) - different} the same, {different - worse} better or other, {worse} worse")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
