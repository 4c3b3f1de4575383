#!/usr/bin/env python3
"""Draws the figures of README.md as SVG pictures from rows of docs/results/, one of them by `kgen report`, and from a
table there whose rows were not kept. No number is typed by hand.

    scripts/plots.py            writes the pictures into docs/images/
    scripts/plots.py --check    exits 1 if a picture differs from the rows and tables

KGEN names the kgen binary (default target/release/kgen).
"""

import math
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

from result_tables import KGEN, RESULTS, ROOT, loaded

IMAGES = ROOT / "docs/images"

# Pictures of reports: rows, conditions and the picture's name in the report.
REPORTS = {"roofline-h200.svg": ("2026-11-27-timings-h200.jsonl", [], "roofline-1")}

# Page whose rows, of the same name, give the rates.
SPEED = "2026-11-28-forward-h200.md"
SEQLEN = 8192
# Page and heading of the table to draw.
COMPILE = ("2026-11-21-commands.md", "## One file")

# Name and colour of each contender.
KGEN_BARS = ("kgen", "#c05621")
FA2_BARS = ("FlashAttention-2", "#a0aec0")
CONTENDERS = {"kgen": KGEN_BARS, "fa3": ("FlashAttention-3", "#2b6cb0"), "sdpa-cudnn": ("cuDNN", "#63b3ed"), "sdpa-flash": FA2_BARS}
INK = "#1a202c"
GREY = "#718096"
RULE = "#e2e8f0"


def table(page, heading):
    """The rows of the first table after a heading, as dictionaries by the names of the columns."""
    lines = iter((RESULTS / page).read_text(encoding="utf-8").splitlines())
    if heading not in lines:  # reads up to it
        raise SystemExit(f"docs/results/{page} has no heading `{heading}`")
    rows = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows or line.startswith("## "):
            break
    if len(rows) < 3:
        raise SystemExit(f"docs/results/{page} has no table after `{heading}`")
    return [dict(zip(rows[0], row)) for row in rows[2:]]


def text(x, y, words, size=12, fill=INK, anchor="middle", weight="normal"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'


def rect(x, y, width, height, fill):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'


def line(x1, y1, x2, y2, stroke=RULE, width=1):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width}"/>'


def picture(title, width, height, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    return "\n".join([head, f"<title>{escape(title)}</title>", rect(0, 0, width, height, "white"), *parts, "</svg>"]) + "\n"


def forward_speed():
    rows = [row for row in loaded([SPEED.replace(".md", ".jsonl")]) if "_bf16" in row.case and "_sm90 " in row.case and row.shape.seqlen_k == SEQLEN]
    rates = {(row.shape.head_dim, row["mask"], row.contender): row.numbers.tflops for row in rows}
    [card] = {row.run.gpu.info.name for row in rows}
    head_dims = sorted({head_dim for head_dim, *_ in rates})
    left, panel, gap, top = 52, 220, 46, 84
    group, bar = 92, 19
    width = left + group * len(head_dims) + 16
    highest = math.ceil(max(rates.values()) / 100) * 100
    title = f"Forward pass in bf16 on an {card.removeprefix('NVIDIA ')}, {SEQLEN} queries and keys: TFLOP/s by head dim"
    parts = [text(12, 24, title, 15, anchor="start", weight="bold")]
    x = 12
    for name, colour in CONTENDERS.values():
        parts += [rect(x, 38, 14, 14, colour), text(x + 20, 50, name, 12, anchor="start")]
        x += 44 + 7 * len(name)
    for index, mask in enumerate(("full", "causal")):
        base = top + index * (panel + gap) + panel
        parts.append(text(12, base - panel - 8, f"{mask} mask", 12, INK, "start", "bold"))
        for tick in range(0, highest + 1, 200):
            y = base - panel * tick / highest
            parts += [line(left, y, width - 12, y), text(left - 8, y + 4, str(tick), 11, GREY, "end")]
        for place, head_dim in enumerate(head_dims):
            start = left + place * group + (group - bar * len(CONTENDERS)) / 2
            best = max(CONTENDERS, key=lambda name: rates[head_dim, mask, name])
            for slot, (name, (_, colour)) in enumerate(CONTENDERS.items()):
                rate = rates[head_dim, mask, name]
                tall = panel * rate / highest
                parts.append(rect(start + slot * bar, base - tall, bar - 2, tall, colour))
                weight = "bold" if name == best else "normal"
                parts.append(text(start + slot * bar + bar / 2 - 1, base - tall - 3, f"{rate:.0f}", 9, INK, weight=weight))
            parts.append(text(start + bar * len(CONTENDERS) / 2, base + 16, str(head_dim), 12))
        parts.append(line(left, base, width - 12, base, INK))
    height = top + 2 * panel + gap + 46
    parts.append(text(12, height - 10, f"Drawn from the rows of docs/results/{SPEED}, which has every length and the commands.", 11, GREY, "start"))
    return picture(title, width, height, parts)


def bounds(cell):
    """The ends of a range: "160 to 360", or a number for both."""
    ends = [float(word) for word in cell.split(" to ")]
    return ends[0], ends[-1]


def compile_time():
    rows = table(*COMPILE)
    left, plot, top, step = 260, 560, 74, 30
    width = left + plot + 88
    low, high = 0.5, 500
    place = lambda seconds: left + plot * math.log(seconds / low) / math.log(high / low)
    title = "What nvcc takes for one file, a kernel with one head dim, dtype and mask: CPU seconds"
    parts = [text(12, 24, title, 15, anchor="start", weight="bold"), text(12, 44, "logarithmic scale; the same nvcc on the same kind of machine", 11, GREY, "start")]
    bottom = top + step * len(rows)
    for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500):
        parts += [line(place(tick), top - 8, place(tick), bottom), text(place(tick), bottom + 16, f"{tick:g}", 11, GREY)]
    for index, row in enumerate(rows):
        y = top + index * step
        start, end = bounds(row["CPU s"])
        _, colour = KGEN_BARS if row["file of"].startswith("kgen") else FA2_BARS
        parts.append(text(left - 10, y + 14, row["file of"], 12, anchor="end"))
        parts.append(rect(left, y, place(end) - left, 20, colour if start == end else RULE))
        if start != end:
            parts.append(rect(place(start), y, place(end) - place(start), 20, colour))
        parts.append(text(place(end) + 6, y + 14, row["CPU s"], 12, INK, "start", "bold"))
    height = bottom + 46
    parts.append(text(12, height - 10, f"Drawn from docs/results/{COMPILE[0]}.", 11, GREY, "start"))
    return picture(title, width, height, parts)


def reported(rows, conditions, name):
    """A picture of `kgen report`."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["report", "--rows", str(RESULTS / rows), *conditions, "--as", "svg", "--out", folder]
        done = subprocess.run([KGEN, *words], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"kgen report failed: {done.stderr}")
        return (Path(folder) / f"{name}.svg").read_text(encoding="utf-8")


def main():
    pictures = {"forward-speed.svg": forward_speed(), "compile-time.svg": compile_time()}
    pictures |= {name: reported(*given) for name, given in REPORTS.items()}
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
