#!/usr/bin/env python3
"""Updates entries of tests/emulator/equivalent_mutants/ after lines of templates have moved to other files.

    python3 scripts/relocate_mutants.py [--check] [--renamed attention/parts/close=attention/parts/epilogue]…

An entry names a line of one file, and its id is a hash of both. After a template was renamed or split, this searches
for the line in the renamed file (`--renamed`), then in all files of templates/, and writes the entry to the list of
the file that has it. An entry whose line is in no file, or in several and not in the one it names, is printed and
left unchanged: exit code 1. `--check` writes nothing. Needs only a Python without packages.
"""

import argparse
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from mutant_report import list_equivalent, read_list
from mutations import Mutant

ROOT = Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if an entry would move")
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW", help="a path below templates/, or the start of one")
    given = parser.parse_args()
    renamed = [pair.split("=", 1) for pair in given.renamed]
    templates, lists = ROOT / "templates", ROOT / "tests/emulator/equivalent_mutants"
    holders = defaultdict(list)  # files that contain a line, once per occurrence
    for path in sorted(templates.glob("**/*")):
        if path.is_file():
            for line in path.read_text(errors="replace").splitlines():
                holders[line.strip()].append(path.relative_to(templates).as_posix())

    entries, moved, lost = [], 0, 0
    for path in sorted(lists.glob("**/*.toml")):
        file = path.relative_to(lists).with_suffix("").as_posix()
        for entry in read_list(path):
            mutant = Mutant(file, 0, entry["before"], entry["after"], "listed", entry.get("occurrence", 0))
            having = holders[mutant.before]
            new = next((new + file.removeprefix(old) for old, new in renamed if file.startswith(old)), file)
            if file not in having:
                if having.count(new) > mutant.occurrence:
                    mutant, moved = replace(mutant, file=new), moved + 1
                elif len(set(having)) == 1:
                    mutant, moved = replace(mutant, file=having[0], occurrence=0), moved + 1
                    print(f"{mutant.file}: from `{file}`: {mutant.before}")
                else:
                    lost += 1
                    print(f"{file}: in {sorted(set(having)) or 'no file'}: {mutant.before}", file=sys.stderr)
            entries.append((mutant, entry["reason"]))
    if moved and not given.check:
        for path in lists.glob("**/*.toml"):
            path.unlink()
        for mutant, reason in entries:
            list_equivalent(lists, mutant, reason, False)
        for folder in sorted(lists.glob("**/"), reverse=True):
            if not any(folder.iterdir()):
                folder.rmdir()
    print(f"{len(entries)} entries, {moved} {'would move' if given.check else 'moved'}, {lost} without a line")
    return int(bool(lost or given.check and moved))


if __name__ == "__main__":
    sys.exit(main())
