#!/usr/bin/env python3
"""Draws the report of a race as a terminal shows it, for README.md: a barrier is taken out of a kernel, and kgen checks
what is left.

    scripts/race_picture.py docs/images/race.svg

The barrier is one of the planted faults of tests/emulator/faults/forward.toml. KGEN names the kgen binary (default
target/release/kgen). Needs `rich`, as scripts/picture.py does.
"""

import os
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from picture import draw, terminal_output

ROOT = Path(__file__).resolve().parent.parent
FAULT = "two stages: no barrier behind the wait"
GAP = r"(?:\s|//[^\n]*)*"  # what may stand between any two characters of a fault's text
WIDTH = 112
COMMAND = ["--templates", "templates", "check", "flash_fwd_hdim64_fp16_causal_sm80", "--device", "emulator"]


def plant(templates):
    """Takes the fault's text out of the templates."""
    faults = tomllib.loads((ROOT / "tests/emulator/faults/forward.toml").read_text(encoding="utf-8"))["fault"]
    fault = next(fault for fault in faults if fault["name"] == FAULT)
    path = templates / "attention/fwd_sm80.cu.tera"
    text = path.read_text(encoding="utf-8")
    found = re.compile(GAP.join(map(re.escape, "".join(fault["find"].split()))))
    planted, count = found.subn(lambda _: fault["replace"], text)
    if count != 1:
        raise SystemExit(f"`{path.name}` does not hold the text of the fault `{FAULT}` once")
    path.write_text(planted, encoding="utf-8")


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    kgen = Path(os.environ.get("KGEN", ROOT / "target/release/kgen")).resolve()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "templates", Path(folder) / "templates")
        plant(Path(folder) / "templates")
        command = [str(kgen), *COMMAND]
        printed = terminal_output(command, WIDTH, expected=1, folder=folder)
    draw(sys.argv[1], command, WIDTH, printed)


if __name__ == "__main__":
    main()
