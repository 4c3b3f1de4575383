"""Measures the sensitivity of `kgen check`: changes one line of a template or device header at a time, and checks
kernels that contain it.

    python3 scripts/mutate.py --seed 20261122 --count 400 --jobs 16 --out mutants.jsonl
    python3 scripts/mutate.py --resume mutants.jsonl --jobs 16 --seconds 540 --out mutants.jsonl   # continues a run
    python3 scripts/mutate.py --survivors mutants.jsonl --out again.jsonl                          # with new cases or rules
    python3 scripts/mutate.py --try attention/mma/prologue.tera 'cp_async_wait<1>();' ';'              # your own mutant
    python3 scripts/mutate.py --table mutants.jsonl                                                # only the tables
    python3 scripts/mutate.py --equal mutants.jsonl 44575ab7 'costs time only: …'                  # an equivalent one

Every file has its share of the sample. A mutant is first run on two kernels that differ from each other as much as
possible ("smoke"); survivors are run on more ("more"), then with --thorough. A mutant is killed when a check fails,
crashes or takes too long. Mutants that do not compile, and those that change nothing in any kernel, are replaced by
others; so are those listed with a reason in tests/emulator/equivalent_mutants/. See docs/checking.md. Needs only a
kgen binary, a C++ compiler and Python.

Exit codes: 0 done, 1 the score is below --require or a kernel fails without a mutant, 2 bad usage or input, 3 out of
time: continue with --resume.
"""

import argparse
import json
import math
import os
import queue
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from hashlib import sha256
from pathlib import Path

from mutant_laboratory import Laboratory, OutOfTime, ToolError, UnharmedFails
from mutant_report import LEVELS, Record, equivalents, list_equivalent, print_tables, scores
from mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent

# Grids in addition to the built-in one: that of the emulator's tests, and one of kernels that are in neither.
GRIDS = ("faults/grids/kernels.toml", "mutants_grid.toml")

# Kernels per mutant: at first, in the second round, and with every case.
SMOKE, MORE, THOROUGH = 2, 6, 3

# Minimum share of the sample, for a file of few lines.
LEAST_SHARE = 0.01

# Seconds after which a check counts as failed; four times the unharmed kernel's time if that is more.
LIMITS = {False: 40, True: 400}


def sample(files, seed):
    """For each file all its mutants in the order of trial: a line's second one comes after every line's first one."""
    for file, text in files.items():
        chance = random.Random(f"{seed} {file}")
        lines = []
        for of_line in mutants_of(file, text):
            # Kinds of mutation alternate, so that no line gets more of the rare ones first than others.
            kinds = {}
            for mutant in of_line:
                kinds.setdefault(mutant.kind, []).append(mutant)
            for mutants in kinds.values():
                chance.shuffle(mutants)
            # Numbers alone do not reveal removed waits, barriers and fences.
            order = sorted(kinds, key=lambda kind: chance.random() * (0.5 if kind == "removed" else 1))
            turns = [kinds[kind][turn] for turn in range(max(map(len, kinds.values()))) for kind in order if turn < len(kinds[kind])]
            lines.append(turns)
        chance.shuffle(lines)
        longest = max(map(len, lines), default=0)
        yield file, len(lines), [line[turn] for turn in range(longest) for line in lines if turn < len(line)]


def shares(lines, count):
    """The number of mutants of each file, out of `count`, by its lines."""
    least = max(1, round(count * LEAST_SHARE)) if count >= len(lines) else 0
    total = sum(lines.values())
    exact = {file: max(least, count * n / total) for file, n in lines.items()}
    scale = count / sum(exact.values())
    exact = {file: share * scale for file, share in exact.items()}
    given = {file: math.floor(share) for file, share in exact.items()}
    for file in sorted(exact, key=lambda f: given[f] - exact[f])[: count - sum(given.values())]:
        given[file] += 1
    return given


class Campaign:
    """Runs mutants on a laboratory's kernels and records the results."""

    def __init__(self, laboratory, record, jobs, level):
        self.laboratory, self.record, self.level = laboratory, record, LEVELS.index(level)
        self.slots = queue.SimpleQueue()
        for number in range(jobs):
            slot = laboratory.work / f"worker-{number}"
            (slot / "cache").mkdir(parents=True, exist_ok=True)
            self.slots.put(slot)
        self.pool = ThreadPoolExecutor(jobs)
        self.kits = {}

    def everything(self, lines, candidates, count):
        """Tries candidates of each file until `count` are found: if a file has too few lines, other files provide
        more."""
        places = dict.fromkeys(candidates, 0)
        chosen = {file: [] for file in candidates}
        while missing := count - sum(map(len, chosen.values())):
            left = {file: lines[file] for file in candidates if places[file] < len(candidates[file])}
            if not left:
                break
            # Each round ends before the next one's shares are computed, so that they depend only on the seed.
            quotas = {file: len(chosen[file]) + more for file, more in shares(left, missing).items()}
            self.fill(quotas, candidates, places, chosen)
        return [mutant for mutants in chosen.values() for mutant in mutants]

    def fill(self, quotas, candidates, places, chosen):
        """Tries the next candidates of each file until the file has its quota or no candidates are left."""
        pending = {}
        while True:
            for file, quota in quotas.items():
                running = sum(1 for f, _ in pending.values() if f == file)
                while len(chosen[file]) + running < quota and places[file] < len(candidates[file]):
                    mutant = candidates[file][places[file]]
                    places[file] += 1
                    if self.is_listed(mutant):
                        continue
                    pending[self.pool.submit(self.smoke, mutant)] = (file, mutant)
                    running += 1
            if not pending:
                return
            for done in wait(pending, return_when=FIRST_COMPLETED).done:
                file, mutant = pending.pop(done)
                if done.result():
                    chosen[file].append(mutant)

    def is_listed(self, mutant):
        """True if the mutant is known to be equivalent; then records it."""
        if mutant in self.record.listed and self.record.known(mutant.id) is None:
            self.record.mutant(mutant, "equivalent", [])
        return mutant in self.record.listed

    def survivors(self, mutants):
        """Runs the survivors with more kernels and with every case."""
        left = [mutant for mutant in mutants if not self.record.killed(mutant.id)]
        for done in [self.pool.submit(self.further, mutant) for mutant in left]:
            done.result()

    def smoke(self, mutant):
        """True if the mutant counts, after it was run on the first kernels."""
        with Slot(self, mutant) as slot:
            known = self.record.known(mutant.id)
            if known is None:
                known = self.examine(mutant, slot, SMOKE)
                self.record.mutant(mutant, known["state"], known["kernels"])
            if known["state"] != "valid":
                return known["state"] == "invisible"
            self.run_on(mutant, known["kernels"][:SMOKE], "smoke", slot)
            return self.record.refused(mutant.id) is False

    def further(self, mutant):
        with Slot(self, mutant) as slot:
            known = self.record.known(mutant.id)
            if known["state"] != "valid" or self.level < LEVELS.index("more"):
                return
            if len(known["kernels"]) <= SMOKE:
                known = self.examine(mutant, slot, SMOKE + MORE)
                self.record.mutant(mutant, known["state"], known["kernels"])
            kernels = known["kernels"]
            self.run_on(mutant, kernels[SMOKE:], "more", slot)
            if self.level < LEVELS.index("thorough"):
                return
            small = sorted(kernels, key=lambda k: self.laboratory.features[k].head_dim)
            self.run_on(mutant, small[:THOROUGH], "thorough", slot)

    def examine(self, mutant, slot, most):
        """The kernels that the mutant changes, at most `most`, in the order in which to run them."""
        lab = self.laboratory
        nothing = lambda state: {"state": state, "kernels": []}
        templates = slot.templates
        if templates is None:
            return nothing("gone")
        affected = lab.affected(mutant, templates, slot.folder)
        if affected is None:
            return nothing("does not render")
        changed, tried = [], 0
        for kernel in lab.in_order(affected, mutant):
            assembly = lab.assembly(templates, kernel, affected[kernel])
            if assembly is None:
                tried += 1
                if tried == 2 and not changed:
                    return nothing("does not compile")
            elif assembly != lab.assembly(lab.templates, kernel, lab.texts[kernel]):
                changed.append(kernel)
                if len(changed) == most:
                    break
        if changed:
            return {"state": "valid", "kernels": changed}
        if not affected or tried:
            return nothing("does not compile" if tried else "changes no kernel")
        # No kernel calls that function of a header; but a kernel's own line without effect must be explained.
        return nothing("changes no kernel" if mutant.file.startswith("include/") else "invisible")

    def run_on(self, mutant, kernels, level, slot):
        lab = self.laboratory
        for kernel in kernels:
            if self.record.killed(mutant.id):
                return
            if self.record.has_run(mutant.id, kernel, level):
                continue
            limit = lab.time_limit(kernel, slot.folder, level == "thorough")
            slot.keep()
            verdict = lab.check(slot.templates, kernel, slot.folder, level == "thorough", limit)
            self.record.run(mutant.id, kernel, level, verdict)
            if verdict["status"] == "error":
                return


class Slot:
    """A worker's folder, with the mutant planted if requested."""

    def __init__(self, campaign, mutant):
        self.campaign, self.mutant = campaign, mutant

    def __enter__(self):
        self.folder = self.campaign.slots.get()
        self.planted = False
        return self

    @property
    def templates(self):
        if not self.planted:
            self.place = self.campaign.laboratory.plant(self.mutant, self.folder)
            self.planted = True
        return self.place

    def keep(self):
        """The cache now contains only unharmed kernels, and is kept."""
        if not hasattr(self, "seen"):
            self.seen = True
            folder = self.folder / "cache/kgen/emulator"
            kits = {entry.name for entry in folder.iterdir() if entry.name.startswith("kit-")} if folder.is_dir() else set()
            self.campaign.kits.setdefault(self.folder, set()).update(kits)

    def __exit__(self, *_):
        self.campaign.laboratory.sweep(self.folder, self.campaign.kits.get(self.folder, set()))
        shutil.rmtree(self.folder / "templates", ignore_errors=True)
        shutil.rmtree(self.folder / "rendered", ignore_errors=True)
        self.campaign.slots.put(self.folder)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("which mutants")
    what.add_argument("--seed", type=int, default=1, help="draws the sample [1]")
    what.add_argument("--count", type=int, default=400, help="mutants that count [400]")
    what.add_argument("--file", action="append", help="only files whose path below the templates contains this; may be repeated")
    what.add_argument("--survivors", metavar="FILE", help="those that survived there, again")
    what.add_argument("--try", nargs=3, dest="own", metavar=("FILE", "OLD", "NEW"), help="one of your own: in the line that contains OLD once")
    what.add_argument("--resume", metavar="FILE", help="go on with the run that wrote this file; seed and count are its own")
    what.add_argument("--table", metavar="FILE", help="print the tables of a file, less what is listed as equivalent, and end")
    what.add_argument("--equal", nargs=3, metavar=("FILE", "ID", "REASON"), help="add a survivor of a file to the list of equivalent ones, and end")
    what.add_argument("--every", action="store_true", help="with --equal: whatever is changed in that line")
    how = parser.add_argument_group("how")
    how.add_argument("--kgen", default=ROOT / "target/release/kgen", help="the binary [target/release/kgen]")
    how.add_argument("--templates", default=ROOT / "templates", help="what is mutated [templates/]")
    how.add_argument("--grid", action="append", help="grid files besides the built-in grid [faults/grids/kernels.toml and mutants_grid.toml of tests/emulator]")
    how.add_argument("--jobs", "-j", type=int, default=os.cpu_count(), help="mutants at once [one for each core]")
    how.add_argument("--seconds", type=float, default=1e6, help="end after so long, with exit code 3 if something is left")
    how.add_argument("--level", choices=LEVELS, default="thorough", help="how far survivors are pursued [thorough]")
    how.add_argument("--work", help="folder for templates and caches [a new one, removed at the end]")
    how.add_argument("--equivalent", metavar="DIR", default=ROOT / "tests/emulator/equivalent_mutants", help="lists of mutants that change nothing")
    out = parser.add_argument_group("results")
    out.add_argument("--out", metavar="FILE", help="JSON lines, written as results come")
    out.add_argument("--require", nargs=2, type=float, metavar=("SMOKE", "ALL"), help="least scores in percent, for example 97 99")
    out.add_argument("--format", choices=["human", "json"], default="human", help="tables, or one JSON document")
    return parser.parse_args()


def fingerprint(given, grids):
    """A hash of everything that determines the results, except the mutant: kgen, the grids and the templates."""
    digest = sha256(Path(given.kgen).read_bytes())
    for path in grids:
        digest.update(Path(path).read_bytes())
    for path in sorted(Path(given.templates).rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(given.templates)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def refuse(message):
    print(f"mutate.py: {message}", file=sys.stderr)
    sys.exit(2)


def own_mutant(given, files):
    file, old, new = given.own
    if file not in files:
        refuse(f"`{file}` is no file that is mutated; one is `{next(iter(files))}`")
    lines = files[file].split("\n")
    found = [n for n, line in enumerate(lines) if old in line]
    if len(found) != 1:
        refuse(f"`{old}` is in {len(found)} lines of `{file}`, not in one")
    before = lines[found[0]]
    occurrence = [n for n, line in enumerate(lines) if line.strip() == before.strip()].index(found[0])
    return Mutant(file, found[0], before, before.replace(old, new), "own", occurrence)


def main():
    given = arguments()
    if given.table:
        record = Record.read(given.table)
        record.listed = equivalents(given.equivalent)
        print_tables(record, given.format)
        return 0
    if given.equal:
        file, identity, reason = given.equal
        mutants = [mutant for mutant in Record.read(file).surviving() if mutant.id.startswith(identity)]
        if len(mutants) != 1:
            refuse(f"`{identity}` begins the id of {len(mutants)} survivors of `{file}`, not of one")
        list_equivalent(given.equivalent, mutants[0], reason, given.every)
        return 0
    for name in ("kgen", "templates"):
        if not Path(getattr(given, name)).exists():
            refuse(f"`{getattr(given, name)}` is not there: name the {'binary' if name == 'kgen' else 'folder'} with `--{name}`")
    if given.count < 1 or given.jobs < 1:
        refuse("`--count` and `--jobs` must be at least 1")
    grids = given.grid or list(filter(Path.exists, [ROOT / "tests/emulator" / name for name in GRIDS]))
    made_with = fingerprint(given, grids)
    if given.resume:
        record = Record.read(given.resume)
        if record.head["made_with"] != made_with:
            refuse(f"`{given.resume}` was made with other templates, other grids or another kgen: its results do not hold for these")
        record.write_to(given.out or given.resume)
    else:
        if given.out and Path(given.out).exists():
            refuse(f"`{given.out}` exists: go on with `--resume {given.out}`, or name another file")
        head = {"seed": given.seed, "count": given.count, "files": given.file, "made_with": made_with, "level": given.level}
        if given.own:
            head["own"] = given.own
        if given.survivors:
            head["again"] = [mutant.__dict__ for mutant in Record.read(given.survivors).surviving()]
        record = Record(head)
        if given.out:
            record.write_to(given.out)
    deadline = time.monotonic() + given.seconds
    work = given.work or tempfile.mkdtemp(prefix="kgen-mutants-")
    code = 0
    try:
        laboratory = Laboratory(given.kgen, given.templates, grids, work, deadline, LIMITS)
        files = laboratory.texts_of_files
        record.listed = equivalents(given.equivalent, files)
        campaign = Campaign(laboratory, record, given.jobs, record.head["level"])
        code = run(campaign, record, given, files)
    except ToolError as error:
        print(f"mutate.py: {error}", file=sys.stderr)
        return 2
    finally:
        if not given.work:
            shutil.rmtree(work, ignore_errors=True)
    print_tables(record, given.format)
    for text in laboratory.failing():
        print(f"mutate.py: {text}", file=sys.stderr)
    if code == 0 and given.require:
        smoke, final = scores(record)
        code = int(smoke < given.require[0] or final < given.require[1])
    return code


def run(campaign, record, given, files):
    """Does all remaining work; returns 3 if it runs out of time, 1 if a kernel fails without a mutant."""
    head = record.head
    watch = threading.Thread(target=progress, args=(record,), daemon=True)
    if given.format == "human":
        watch.start()
    try:
        if head.get("own") or head.get("again"):
            given.own = head.get("own")
            mutants = [own_mutant(given, files)] if given.own else [Mutant(**mutant) for mutant in head["again"]]
            mutants = [mutant for mutant in mutants if not campaign.is_listed(mutant)]
            for done in [campaign.pool.submit(campaign.smoke, mutant) for mutant in mutants]:
                done.result()
        else:
            wanted = {f: t for f, t in files.items() if not head["files"] or any(part in f for part in head["files"])}
            if not wanted:
                refuse(f"no file's path contains `{head['files'][0]}`")
            lines, candidates = {}, {}
            for file, count, mutants in sample(wanted, head["seed"]):
                lines[file], candidates[file] = count, mutants
            mutants = campaign.everything(lines, candidates, head["count"])
        record.chosen(mutants)
        campaign.survivors(mutants)
    except OutOfTime:
        campaign.laboratory.stop()
        campaign.pool.shutdown(cancel_futures=True)
        if campaign.laboratory.failing():
            return 1
        print(f"mutate.py: the time is over; go on with `--resume {given.out or given.resume}`", file=sys.stderr)
        return 3
    except UnharmedFails:
        campaign.laboratory.stop()
        campaign.pool.shutdown(cancel_futures=True)
        return 1
    except BaseException:
        campaign.laboratory.stop()
        campaign.pool.shutdown(cancel_futures=True)
        raise
    return 0


def progress(record):
    """Prints one line of progress per minute."""
    while True:
        time.sleep(60)
        states = Counter(record.state(mutant) for mutant in list(record.mutants))
        print(", ".join(f"{count} {state}" for state, count in sorted(states.items())), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
