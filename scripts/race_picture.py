#!/usr/bin/env python3
"""Draws the report of a race as a terminal shows it, for README.md: a barrier is removed from a kernel, and kgen
checks the result.

    scripts/race_picture.py docs/images/race.svg

The barrier is that of the planted fault "two stages: no barrier behind the wait". KGEN names the kgen binary (default
target/release/kgen). Needs `rich`, as scripts/picture.py does.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from picture import draw, terminal_output

ROOT = Path(__file__).resolve().parent.parent
BARRIER = re.compile(r"(?<=cp_async_wait<0>\(\);\n) *block_sync\(\);.*\n(?= *const uint32_t next_stage)")
WIDTH = 112
COMMAND = ["--templates", "templates", "check", "flash_fwd_hdim64_fp16_causal_sm80", "--device", "emulator"]


def plant(templates):
    """Removes the barrier from the template."""
    path = templates / "attention/mma/double_buffered_mainloop.tera"
    text, count = BARRIER.subn("", path.read_text(encoding="utf-8"))
    if count != 1:
        raise SystemExit(f"`{path.name}` has no barrier behind the wait for a tile of two stages, or several")
    path.write_text(text, encoding="utf-8")


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
