"""Shows whether a change of templates has changed machine code: compares two folders of `kgen build`.

    kgen build --set slice --templates before/templates --generated /tmp/before/gen --build-dir /tmp/before
    kgen build --set slice --templates templates --generated /tmp/after/gen --build-dir /tmp/after
    python3 scripts/compare_sass.py /tmp/before /tmp/after

For each kernel function of each variant in both folders: registers, spilled bytes, and the count of each opcode. Prints
the functions that differ, and a summary. Objects with identical machine code are not disassembled; counts of the
others are kept in `sass/` of their build folder. Sources that differ only in comments and layout need not be compiled:
`--texts before/gen after/gen` lists the variants that differ in more than that.

Exit codes: 0 nothing became worse (same or fewer instructions and registers, no new spills), 1 something became
worse, 2 bad usage or input.
"""

import argparse
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.M)
FUNCTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)", re.M)

# nvcc puts a hash of the file into the names of an anonymous namespace.
HASHED = re.compile(r"_ZN\d+_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_[0-9a-f]+")
ELF_MAGIC = b"\x7fELF"


def bare(text):
    """A kernel's text without comments and layout."""
    return "".join(re.sub(r"//.*", "", text).split())


def short(name):
    """The name of a function without the part that depends on the file's content: `10attentionILb1EE…`."""
    return re.sub(r"^_[a-z0-9]{0,2}", "", HASHED.sub("", name)) or name


def disassembler():
    """kgen's own nvdisasm, or the one on PATH."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    found = sorted(cache.glob("kgen/toolchain/disassembler-*/bin/nvdisasm"))
    return str(found[-1]) if found else "nvdisasm"


def cubins(path):
    """The ELF images of machine code in an object. nvcc stores them uncompressed; a compressed one is not found."""
    data = path.read_bytes()
    found, at = [], data.find(ELF_MAGIC, 1)
    while at >= 0:
        (sections,) = struct.unpack_from("<Q", data, at + 0x28)
        entry_bytes, count = struct.unpack_from("<HH", data, at + 0x3A)
        (programs,) = struct.unpack_from("<Q", data, at + 0x20)
        program_bytes, program_count = struct.unpack_from("<HH", data, at + 0x36)
        size = max(sections + entry_bytes * count, programs + program_bytes * program_count)
        found.append(data[at : at + size])
        at = data.find(ELF_MAGIC, at + size)
    if not found:
        sys.exit(f"compare_sass.py: `{path}` holds no plain machine code; was it built by `kgen build`?")
    return found


def report_of(folder):
    path = Path(folder) / "report.json"
    try:
        report = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        sys.exit(f"compare_sass.py: cannot read `{path}`: {error}; run `kgen build --build-dir {folder}` first")
    return {artifact["name"]: artifact for artifact in report["artifacts"]}


def opcodes(text):
    """The count of each opcode, without the NOPs that pad a function's last line of code."""
    counts = Counter(INSTRUCTION.findall(text))
    del counts["NOP"]
    return counts


def machine_code(images):
    """The bytes of each function."""
    found = {}
    for image in images:
        (sections,) = struct.unpack_from("<Q", image, 0x28)
        entry_bytes, count, names = struct.unpack_from("<HHH", image, 0x3A)
        rows = [struct.unpack_from("<I20xQQ", image, sections + entry_bytes * i) for i in range(count)]
        for name_at, start, size in rows:
            at = rows[names][1] + name_at
            name = image[at : image.index(b"\0", at)].decode()
            if name.startswith(".text."):
                found[short(name.removeprefix(".text."))] = image[start : start + size]
    return found


def counted(folder, name, images, program):
    """The opcode counts for each function of a variant; from an earlier comparison if the code is the same."""
    digest = hashlib.sha256(b"".join([program.encode(), *images])).hexdigest()
    kept = Path(folder) / "sass" / f"{name}.json"
    try:
        before = json.loads(kept.read_text())
        if before["digest"] == digest:
            return before["functions"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # missing or incomplete
    found = {}
    for image in images:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(image)
            file.flush()
            command = [program, "--print-code", "--no-dataflow", file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"compare_sass.py: `{program}` fails for `{name}` in `{folder}`: {done.stderr.strip()}")
        pieces = FUNCTION.split(done.stdout)
        found |= {short(function): opcodes(text) for function, text in zip(pieces[1::2], pieces[2::2])}
    kept.parent.mkdir(exist_ok=True)
    # Another comparison may write the same file.
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
        json.dump({"digest": digest, "functions": found}, file)
    os.replace(file.name, kept)
    return found


def functions(counts, artifact):
    """For each kernel function of an object: opcode counts, registers and spilled bytes."""
    found = {name: [Counter(opcodes), 0, 0] for name, opcodes in counts.items()}
    for resources in artifact["resources"]:
        entry = found.setdefault(short(resources["kernel"]), [Counter(), 0, 0])
        entry[1] = resources["registers"]
        entry[2] = resources["spill_store_bytes"] + resources["spill_load_bytes"] + resources["stack_bytes"]
    return found


def differences(before, after):
    """The differences between two functions as text, and True if the second one is worse."""
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


def compare(name, folders, artifacts, program):
    """The differences of a variant's functions as lines, and True if one function became worse."""
    images = [cubins(Path(folder) / artifact["object"]) for folder, artifact in zip(folders, artifacts)]
    if machine_code(images[0]) == machine_code(images[1]):
        counts = [{}, {}]
    else:
        counts = [counted(folder, name, side, program) for folder, side in zip(folders, images)]
    sides = [functions(*side) for side in zip(counts, artifacts)]
    if sides[0].keys() != sides[1].keys():
        return [f"functions {sorted(sides[0])} -> {sorted(sides[1])}"], True
    results = [(function, *differences(sides[0][function], sides[1][function])) for function in sides[0]]
    lines = [f"{function}: {'; '.join(words)}" for function, words, _ in results if words]
    return lines, any(worse for _, _, worse in results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="a build folder of `kgen build`; with --texts a generated one")
    parser.add_argument("after")
    texts = "compare generated folders: list the variants whose text differs"
    parser.add_argument("--texts", action="store_true", help=texts)
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count())
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

    different, worse = 0, 0
    folders = (given.before, given.after)
    with ProcessPoolExecutor(given.jobs) as pool:
        runs = [pool.submit(compare, name, folders, (before[name], after[name]), program) for name in names]
        for name, run in zip(names, runs):
            lines, is_worse = run.result()
            different += bool(lines)
            worse += is_worse
            for line in lines:
                print(f"{name}: {'WORSE: ' if is_worse else ''}{line}")
    print(f"{len(names)} variants compared: {len(names) - different} the same, {different - worse} better or other, {worse} worse")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
