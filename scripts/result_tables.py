#!/usr/bin/env python3
"""The tables of pages that are rendered from rows of docs/results/. No number is typed by hand.

    scripts/result_tables.py            writes the tables into their pages
    scripts/result_tables.py --check    exits 1 if a table differs from its rows

A table lies between two comments. The first one has a line for each setting and a line for each column:

    <!-- rows: 2026-11-27-noise.jsonl
    of: noise
    case: d{shape.head_dim} {mask}, b{shape.batch} h{shape.heads} s{shape.seqlen_k}
    floor, %: {noise.floor:.2f} -->
    <!-- end of rows -->

`rows` names files of docs/results/. Settings are:

    of       what becomes lines of the table: `rows` (the default); `noise`, the records of `kgen db noise` with the
             first row of each case; `validation`, the errors of `kgen predict --validate`; `means`, the geometric mean
             over kgen's rows of the lowest ratio of a peer to each, a line for each value of `group` and one for all
    where    conditions, all of which hold: `dtype=bf16`, `run.id=5e14*`, `shape.seqlen_k!=256`
    group    fields, such as `shape.head_dim`: what agrees in them becomes one line
    name     names each member of a group, so that a column can take a field of it: `{s512.numbers.tflops:.0f}`
    order    a field that orders the lines; without it the order is that of the file

Every other line is a column: its heading and Python's format of a cell. An indented line continues the one before.
Besides a row's own fields there are `mask` (`full` or `causal`), `size` (the case without the kernel's name),
`megabytes` (of `numbers.memory_bytes`), `counter` (counters of the kernel's longest launch, by metric) and `predicted`
(what `kgen predict` says of the row's kernel, size and card). A record of `means` has `of` (the value or `all`),
`points`, `mean`, `lowest`, `tenth` (above the lowest tenth), `below` and `behind` (how many are below 1 and 0.97), and
the same of the points with each mask (`{causal.mean:.2f}`). A cell without a value is a dash, and a column of dashes is
refused. KGEN names the kgen binary (default target/release/kgen).
"""

import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from statistics import geometric_mean

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/results"
KGEN = os.environ.get("KGEN", str(ROOT / "target/release/kgen"))
TABLE = re.compile(r"<!-- rows: (.+?) -->\n(.*?)<!-- end of rows -->\n", re.S)
SETTINGS = ("of", "where", "group", "name", "order")
ABSENT = "–"


class Node(dict):
    """A JSON object whose members a format can name after a point."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def kgen(*arguments, **given):
    done = subprocess.run([KGEN, *map(str, arguments)], capture_output=True, text=True, **given)
    if done.returncode:
        raise SystemExit(f"kgen {' '.join(map(str, arguments))} failed: {done.stderr}")
    return json.loads(done.stdout, object_hook=Node) if "json" in arguments else done.stdout


def loaded(files):
    rows = []
    for name in files:
        with (RESULTS / name).open(encoding="utf-8") as file:
            rows += [json.loads(line, object_hook=Node) for line in file]
    for row in rows:
        row["mask"] = "causal" if row["shape"].get("causal") else "full"
        row["size"] = row["case"].partition(" ")[2]
        row["megabytes"] = (row["numbers"] or {}).get("memory_bytes", 0) / 1e6
        launches = (row["numbers"] or {}).get("counters") or []
        by_metric = [Node((counter.metric, counter.value) for counter in launch.counters) for launch in launches]
        row["counter"] = max(by_metric, key=lambda counter: counter["gpu__time_duration.sum"], default=Node())
    return rows


def noise(rows, files):
    """The records of `kgen db noise`, each with the first row of its case."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "rows.db"
        kgen("db", "import", "--db", store, *(RESULTS / name for name in files))
        found = kgen("db", "noise", "--db", store, "--format", "json")["noise"]
    first = {row.case: row for row in reversed(rows)}
    percents = lambda record: Node(record, floor=100 * record.floor, claimed=100 * record.claimed)
    return [Node(first[record.case], noise=percents(record)) for record in found]


def validation(*_):
    """The errors of `kgen predict --validate` in percent, one record for each group and each axis that was held out."""
    found = kgen("predict", "--validate", "--format", "json")["validation"]
    percents = lambda errors: {name: 100 * errors[name] for name in ("mean", "p95", "worst")}
    return [Node(errors, held=of.held, axis=of.held.replace("_", " "), plan=100 * of.estimate_mean, **percents(errors))
        for of in found for errors in of.errors]


def predicted(row):
    """What `kgen predict` says of the kernel, size and card of a row."""
    card = row.run.gpu.name.split()[1].lower()
    sizes = [(name, row.shape[name]) for name in row.shape if name not in ("causal", "head_dim", "q_ratio")]
    flags = [word for name, value in sizes for word in (f"--{name.replace('_', '-')}", value)]
    [call] = kgen("predict", row.kernel.name, "--gpu", card, *flags, "--format", "json")["calls"]
    return Node(call, limit=call.limit.replace("_", " "))


def points(rows, *_):
    """kgen's rows beside peers, each with the lowest `ratio` of a peer: its time by kgen's."""
    lowest = {}
    # What a ratio is to: in rows of `kgen bench` a kernel's name and the shape, in those of benches/ a contender's and
    # the case.
    ratios = lambda row: [(ratio.to, row.shape, ratio.median) for ratio in (row["numbers"] or {}).get("ratios") or []]
    of_case = lambda row: [(ratio.to, row.case, ratio.median) for ratio in [(row["numbers"] or {}).get("ratio")] if ratio]
    for row in rows:
        for to, of, ratio in [] if row["own"] else ratios(row) + of_case(row):
            key = (row.run.id, to, str(of))
            lowest[key] = min(ratio, lowest.get(key, ratio))
    own = lambda row: [(row.get("kernel", {}).get("name"), row.shape, 1), *of_case(row)]
    found = lambda row: [lowest[key] / ratio for to, of, ratio in own(row) if (key := (row.run.id, to, str(of))) in lowest]
    return [Node(row, ratio=min(found(row))) for row in rows if row["own"] and found(row)]


def means(found, field):
    """The geometric means of groups of points, and of all."""
    groups = {}
    for point in found:
        groups.setdefault(text(value(point, field)), []).append(point)

    def mean(points):
        ratios = sorted(point.ratio for point in points)
        below, behind = (sum(ratio < limit for ratio in ratios) for limit in (1, 0.97))
        return Node(points=len(ratios), mean=geometric_mean(ratios), lowest=ratios[0], tenth=ratios[len(ratios) // 10],
            below=below, behind=behind)

    def record(name, points):
        masks = {mask: mean(list(of)) for mask, of in groupby(sorted(points, key=by_mask), by_mask)}
        return Node(mean(points), of=name, **masks)

    by_mask = lambda point: point["mask"]
    return [record(*group) for group in (*groups.items(), ("all", found))]


def value(record, field):
    for part in field.split("."):
        record = record[int(part)] if isinstance(record, list) else (record or {}).get(part)
    return record


def text(found):
    return {None: "null", True: "true", False: "false"}.get(found) if found in (None, True, False) else str(found)


def holds(record, conditions):
    for condition in conditions:
        field, differs, pattern = re.fullmatch(r"([\w.]+)(!?)=(.*)", condition).groups()
        if fnmatch.fnmatchcase(text(value(record, field)), pattern) == bool(differs):
            return False
    return True


def cell(template, record):
    if "{predicted." in template:
        record = Node(record, predicted=predicted(record))
    try:
        return template.format_map(record)
    except (KeyError, AttributeError, TypeError):
        return ABSENT


def rendered(head, where):
    """The table of a comment's text."""
    files, *lines = re.sub(r"\n\s+", " ", head).split("\n")
    files = [name.strip() for name in files.split(",")]
    settings, columns = {"of": "rows", "where": ""}, []
    for line in lines:
        name, colon, rest = line.partition(": ")
        if not colon:
            raise SystemExit(f"{where}: `{line}` is neither a setting nor a column")
        if name in SETTINGS and not columns:
            settings[name] = rest
        else:
            columns.append((name, rest))
    rows = loaded(files)
    sources = {"rows": lambda *_: rows, "noise": noise, "validation": validation, "means": points}
    records = sources[settings["of"]](rows, files)
    # Conditions lie between spaces; a value with a space is in quotes.
    conditions = [word.replace('"', "") for word in re.findall(r'(?:[^\s"]|"[^"]*")+', settings["where"])]
    records = [record for record in records if holds(record, conditions)]
    if not records:
        raise SystemExit(f"{where}: no row meets the conditions")
    if order := settings.get("order"):
        records.sort(key=lambda record: value(record, order))
    if settings["of"] == "means":
        records = means(records, settings["group"])
    elif "group" in settings:
        key = lambda record: [text(value(record, field)) for field in settings["group"].split()]
        first = {}
        for record in records:
            first.setdefault(str(key(record)), len(first))
        place = lambda record: first[str(key(record))]
        groups = [list(found) for _, found in groupby(sorted(records, key=place), place)]
        records = []
        for found in groups:
            members = {settings["name"].format_map(record): record for record in found}
            if len(members) < len(found):
                raise SystemExit(f"{where}: two rows of a group have the same name, among {sorted(members)}")
            records.append(Node(found[0], **members))
    numeric = [":" in template.partition("{")[2] for _, template in columns]
    table = [[name for name, _ in columns], ["---:" if right else "---" for right in numeric]]
    table += [[cell(template, record) for _, template in columns] for record in records]
    for name in (head for head, _, *cells in zip(*table) if set(cells) == {ABSENT}):
        raise SystemExit(f"{where}: no line has a value in column `{name}`")
    return "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def page(path):
    """The page with the tables that its rows give."""
    shown = path.relative_to(ROOT)
    before = path.read_text(encoding="utf-8")
    if before.count("<!-- rows: ") != len(TABLE.findall(before)):
        raise SystemExit(f"{shown}: a table of rows has no `<!-- end of rows -->`")

    def replaced(found):
        head = found[1]
        line = before[: found.start()].count("\n") + 1
        return f"<!-- rows: {head} -->\n{rendered(head, f'{shown}:{line}')}<!-- end of rows -->\n"

    return before, TABLE.sub(replaced, before)


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    count = 0
    for path in pages:
        before, after = page(path)
        count += before.count("<!-- rows: ")
        if before != after and "--check" in sys.argv:
            shown = path.relative_to(ROOT)
            raise SystemExit(f"{shown}: a table is not what its rows give; run scripts/result_tables.py")
        if before != after:
            path.write_text(after, encoding="utf-8")
    print(f"{count} tables")


if __name__ == "__main__":
    main()
