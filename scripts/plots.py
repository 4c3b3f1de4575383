#!/usr/bin/env python3
"""The pictures of README.md, which `kgen report` draws from rows of docs/results/. No number is typed by hand.

    scripts/plots.py            writes the pictures into docs/images/
    scripts/plots.py --check    exits 1 if a picture differs from what the rows give

KGEN names the kgen binary (default target/release/kgen).
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from result_tables import KGEN, RESULTS, ROOT

IMAGES = ROOT / "docs/images"

# Pictures by file: the rows, and the section and title in their report.
SPEED = "2026-11-28-forward-h200.jsonl"
PICTURES = {
    "roofline-h200.svg": ("2026-11-27-timings-h200.jsonl", "roofline", None),
    "forward-speed-full.svg": (SPEED, "dims", "bf16, batch=2 causal=false seqlen_k=8192 seqlen_q=8192"),
    "forward-speed-causal.svg": (SPEED, "dims", "bf16, batch=2 causal=true seqlen_k=8192 seqlen_q=8192"),
    "compile-time.svg": ("2026-11-28-compilation.jsonl", "costs", None),
}


def drawn(rows):
    """The pictures of a report of rows, by their names."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["report", "--rows", str(RESULTS / rows), "--as", "svg", "--out", folder]
        done = subprocess.run([KGEN, *words], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"kgen report failed: {done.stderr}")
        return {file.stem: file.read_text(encoding="utf-8") for file in Path(folder).glob("*.svg")}


def chosen(pictures, section, title):
    """The only picture of a section, or the one whose title ends so."""
    of_section = {name: text for name, text in pictures.items() if name.startswith(f"{section}-")}
    ends = re.compile(f"<title id=[^>]*>[^<]*{re.escape(title)}</title>" if title else "")
    found = [text for text in of_section.values() if ends.search(text)]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} pictures of the section `{section}` have the title `{title}`")
    return found[0]


def main():
    reports = {rows: drawn(rows) for rows in sorted({rows for rows, *_ in PICTURES.values()})}
    pictures = {name: chosen(reports[rows], section, title) for name, (rows, section, title) in PICTURES.items()}
    match sys.argv[1:]:
        case []:
            for name, content in pictures.items():
                (IMAGES / name).write_text(content, encoding="utf-8")
        case ["--check"]:
            stale = [name for name, content in pictures.items() if not (IMAGES / name).is_file() or (IMAGES / name).read_text(encoding="utf-8") != content]
            if stale:
                raise SystemExit(f"docs/images/{', '.join(stale)}: not what docs/results/ gives; run scripts/plots.py")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
