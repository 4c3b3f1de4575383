"""Results of mutants: the record that scripts/mutate.py writes and resumes, and its tables."""

import json
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

from mutant_laboratory import Kernel
from mutations import Mutant, applied

KILLS = ("fail", "crash", "timeout")
LEVELS = ("smoke", "more", "thorough")


# Stands in an entry instead of the changed line, for any change.
EVERY = "*"


class Listed:
    """Mutants that are known to be equivalent, each with the reason."""

    def __init__(self):
        self.reasons = {}

    def __contains__(self, mutant):
        every = replace(mutant, after=EVERY)
        return mutant.id in self.reasons or every.id in self.reasons


class Record:
    """Events of a run. In its file, one JSON object per line: the `head`, then `mutant`, `run` and `chosen` as they occur."""

    def __init__(self, head):
        self.head = {"event": "head", "version": 1, **head}
        self.events = []
        self.mutants = {}  # id: (Mutant, state, kernels)
        self.runs = {}  # id: {(level, kernel): verdict}
        self.sample = None  # ids of the mutants that count; None until it is complete
        self.listed = Listed()
        self.file = None
        self.lock = threading.Lock()

    @classmethod
    def read(cls, path):
        try:
            lines = Path(path).read_text().splitlines()
        except OSError as error:
            sys.exit(f"mutate.py: cannot read `{path}`: {error.strerror}")
        events = []
        for number, line in enumerate(lines):
            try:
                events.append(json.loads(line))
            except json.JSONDecodeError:
                if number != len(lines) - 1:  # the last one may have been cut off
                    sys.exit(f"mutate.py: line {number + 1} of `{path}` is no JSON")
        if not events or events[0].get("event") != "head" or events[0].get("version") != 1:
            sys.exit(f"mutate.py: `{path}` is no record of this version of mutate.py")
        record = cls({key: value for key, value in events[0].items() if key not in ("event", "version")})
        for event in events[1:]:
            record.take(event)
        return record

    def write_to(self, path):
        """Writes every event from now on, including those so far."""
        text = "".join(json.dumps(event) + "\n" for event in [self.head, *self.events])
        Path(path).write_text(text)
        self.file = Path(path).open("a")

    def take(self, event):
        with self.lock:
            self.events.append(event)
            if event["event"] == "mutant":
                mutant = Mutant(**event["mutant"])
                self.mutants[mutant.id] = (mutant, event["state"], [Kernel(*kernel) for kernel in event["kernels"]])
            elif event["event"] == "run":
                self.runs.setdefault(event["id"], {})[event["level"], Kernel(*event["kernel"])] = event
            elif event["event"] == "chosen":
                self.sample = event["ids"]
            if self.file:
                self.file.write(json.dumps(event) + "\n")
                self.file.flush()

    def mutant(self, mutant, state, kernels):
        kernels = [[kernel.grid, kernel.name] for kernel in kernels]
        self.take({"event": "mutant", "id": mutant.id, "state": state, "mutant": mutant.__dict__, "kernels": kernels})

    def run(self, identity, kernel, level, verdict):
        kept = {key: verdict[key] for key in ("status", "message", "cases_run", "seconds")}
        self.take({"event": "run", "id": identity, "level": level, "kernel": [kernel.grid, kernel.name], **kept})

    def chosen(self, mutants):
        self.take({"event": "chosen", "ids": [mutant.id for mutant in mutants]})

    def known(self, identity):
        if identity not in self.mutants:
            return None
        _, state, kernels = self.mutants[identity]
        return {"state": state, "kernels": kernels}

    def has_run(self, identity, kernel, level):
        return (level, kernel) in self.runs.get(identity, {})

    def killed(self, identity):
        """The level at which it was killed first, or None."""
        runs = self.runs.get(identity, {}).items()
        levels = [level for (level, _), run in runs if run["status"] in KILLS]
        return min(levels, key=LEVELS.index, default=None)

    def refused(self, identity):
        """True if kgen could not check the kernel; that is not a verdict."""
        return any(run["status"] == "error" for run in self.runs.get(identity, {}).values())

    def state(self, identity):
        mutant, state, _ = self.mutants[identity]
        if state == "valid" and self.refused(identity):
            return "does not compile"
        if killed := self.killed(identity):
            return f"killed ({killed})"
        if state in ("valid", "invisible") and mutant in self.listed:
            return "equivalent"
        if state == "valid" and identity not in self.runs:
            return "not run yet"
        return "alive" if state in ("valid", "invisible") else state

    def counted(self):
        """The mutants of the sample that have been determined so far."""
        known = [i for i in self.mutants if self.state(i) == "alive" or self.state(i).startswith("killed")]
        return known if self.sample is None else [i for i in known if i in set(self.sample)]

    def surviving(self):
        return [self.mutants[i][0] for i in self.counted() if not self.killed(i)]


def equivalents(folder, files=None):
    """The entries of the lists in a folder. An entry whose line has changed is no longer valid, and is refused with a
    warning; without `files`, this is not checked."""
    listed = Listed()
    for path, mutant, entry in entries_of(Path(folder)):
        if files is not None and (mutant.file not in files or applied(files[mutant.file], mutant) is None):
            warn(f"{path}: the line of `{mutant.id}` is no longer in `{mutant.file}`: refused; look at it again or remove it")
        elif not entry.get("reason", "").strip():
            warn(f"{path}: `{mutant.id}` has no reason: refused")
        else:
            listed.reasons[mutant.id] = entry["reason"]
    return listed


def entries_of(folder):
    """Every entry of the lists in a folder: its list, the mutant, and its keys. An entry with a wrong id is refused."""
    for path in sorted(folder.glob("**/*.toml")):
        file = path.relative_to(folder).with_suffix("").as_posix()
        for entry in read_list(path):
            mutant = Mutant(file, 0, entry["before"], entry["after"], "listed", entry.get("occurrence", 0))
            if mutant.id == entry["id"]:
                yield path.relative_to(folder), mutant, entry
            else:
                warn(f"{path.relative_to(folder)}: `{entry['id']}` is not the id of what it says, which is `{mutant.id}`: refused")


def list_equivalent(folder, mutant, reason, every):
    """Adds a mutant to the list of its file; `every`: all mutants of that line."""
    mutant = replace(mutant, before=mutant.before.strip(), after=EVERY if every else mutant.after.strip())
    path = Path(folder) / f"{mutant.file}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = "".join(f"{key} = {json.dumps(getattr(mutant, key), ensure_ascii=False)}\n" for key in ("id", "before", "after"))
    entry += f"occurrence = {mutant.occurrence}\n" if mutant.occurrence else ""
    separator = "\n" if path.exists() else ""
    with path.open("a") as file:
        file.write(f"{separator}[[mutant]]\n{entry}reason = {json.dumps(reason, ensure_ascii=False)}\n")


def warn(text):
    print(f"mutate.py: warning: {text}", file=sys.stderr)


def read_list(path):
    """The tables `[[mutant]]` of a TOML file whose values are numbers and single-line strings: Python before 3.11 has no reader."""
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.strip()
        if line == "[[mutant]]":
            entries.append({})
        elif found := re.fullmatch(r"(\w+) = (\d+|\".*\"|'.*')", line):
            key, value = found.groups()
            entries[-1][key] = value[1:-1] if value[0] == "'" else json.loads(value)
        elif line and not line.startswith("#"):
            sys.exit(f"mutate.py: line {number} of `{path}` is neither `[[mutant]]` nor a key with a number or a text")
    return entries


def scores(record):
    """Percent killed at smoke level, and in total."""
    counted = record.counted()
    killed = [record.killed(i) for i in counted]
    part = lambda n: 100.0 * n / len(counted) if counted else 0.0
    return part(killed.count("smoke")), part(sum(level is not None for level in killed))


def rows(record):
    """For each file, and in total: number of mutants, and number killed at each level."""
    files = {}
    for identity in record.counted():
        row = files.setdefault(record.mutants[identity][0].file, dict.fromkeys(("mutants", *LEVELS, "alive"), 0))
        row["mutants"] += 1
        row[record.killed(identity) or "alive"] += 1
    total = {key: sum(row[key] for row in files.values()) for key in ("mutants", *LEVELS, "alive")}
    return {**dict(sorted(files.items())), "all": total}


def print_tables(record, style):
    table = rows(record)
    alive = [(i, *record.mutants[i]) for i in record.counted() if not record.killed(i)]
    smoke, final = scores(record)
    left_out = {}
    for identity in record.mutants:
        state = record.state(identity)
        if state != "alive" and not state.startswith("killed"):
            left_out[state] = left_out.get(state, 0) + 1
    if style == "json":
        survivors = [{"id": i, **mutant.__dict__, "kernels": [k.name for k in kernels], "ran": ran(record, i)} for i, mutant, _, kernels in alive]
        counts = {"smoke_percent": smoke, "all_percent": final, "complete": record.sample is not None}
        print(json.dumps({**counts, "files": table, "left_out": left_out, "survivors": survivors}, indent=1))
        return
    width = max(len(file) for file in table)
    print(f"{'file':{width}}  mutants  smoke   more  thorough  alive")
    for file, row in table.items():
        print(f"{file:{width}}  {row['mutants']:7}  {row['smoke']:5}  {row['more']:5}  {row['thorough']:8}  {row['alive']:5}")
    print(f"\nkilled at smoke level: {smoke:.1f} %, in all: {final:.1f} %" + ("" if record.sample is not None else " (not complete)"))
    if left_out:
        print("left out: " + ", ".join(f"{count} {state}" for state, count in sorted(left_out.items())))
    for identity, (mutant, _, _) in record.mutants.items():
        if mutant in record.listed and record.killed(identity):
            warn(f"`{identity}` is listed as equivalent, but was killed: look at it again")
    for identity, mutant, state, kernels in alive:
        print(f"\n{identity}  {mutant.file}:{mutant.line + 1}  {mutant.kind}{'' if state == 'valid' else ', ' + state}; passed: {ran(record, identity)}")
        print(f"  - {mutant.before.strip()}\n  + {mutant.after.strip()}")


def ran(record, identity):
    levels = {}
    for level, kernel in record.runs.get(identity, {}):
        levels.setdefault(level, []).append(kernel.name.removeprefix("flash_"))
    return "; ".join(f"{level} {', '.join(names)}" for level, names in levels.items()) or "nothing"
