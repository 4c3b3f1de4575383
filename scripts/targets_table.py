#!/usr/bin/env python3
"""The table of docs/results/targets.md: the kernels verified for each target, and the method. No number is typed by
hand.

    kgen list --all --format json >grid.json
    kgen check --all --device emulator --format json >emulator.json
    kgen build --all --format json >build.json
    scripts/targets_table.py record --grid grid.json --emulator emulator.json --build build.json --date 2026-11-26
    scripts/targets_table.py record --grid grid.json --gpu "H100" check.json --date 2026-11-26
    scripts/targets_table.py record --grid grid.json --gpu "H100, run as sm90" runas-check.json --date 2026-11-26
    scripts/targets_table.py            writes the table into docs/results/targets.md
    scripts/targets_table.py --check    exits 1 if the page differs from the records, or a kernel has no record;
                                        with --complete also if a kernel has no verdict of the emulator

Records are lines of docs/results/targets.jsonl, one for each kernel of generated.b3, which has the hashes of the
whole grid. `record` merges a tool's output into them, as verdicts and instructions of the kernels' current sources
(whose hashes are kept), and drops kernels that the grid no longer has. scripts/gpu_check.sh writes the
JSON of `kgen check --device gpu`.
"""

import argparse
import datetime
import json
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HASHES = ROOT / "generated.b3"
RECORDS = ROOT / "docs/results/targets.jsonl"
PAGE = ROOT / "docs/results/targets.md"
START = "<!-- table: scripts/targets_table.py -->\n"
END = "<!-- end of the table -->\n"


def sources():
    """The first digits of the hash of each kernel of the grid, by name."""
    lines = HASHES.read_text(encoding="utf-8").splitlines()
    return {file.removesuffix(".cu"): digest[:12] for digest, file in (line.split("  ") for line in lines)}


def load(path):
    """The records by kernel."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {record["kernel"]: record for record in map(json.loads, lines)}


def save(path, records):
    lines = [json.dumps(records[name], separators=(",", ":")) for name in sorted(records)]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def verdicts(path, source_of, date):
    """The verdict of `kgen check` for each kernel."""
    found = {}
    for verdict in json.loads(path.read_text(encoding="utf-8")):
        name = verdict["name"]
        if name not in source_of:
            raise SystemExit(f"{path}: `{name}` is not in the grid of {HASHES.name}")
        worst = (verdict["worst"] or {}).get("ratio")
        found[name] = {
            "status": verdict["status"],
            "level": verdict["level"],
            "cases": verdict["cases_run"],
            "worst": None if worst is None else round(worst, 2),
            "date": date,
            "source": source_of[name],
        }
    return found


def instructions(path, source_of, date):
    """The tensor-core instructions that the disassembler found in each kernel's object."""
    found = {}
    for artifact in json.loads(path.read_text(encoding="utf-8"))["artifacts"]:
        if artifact["name"] in source_of and artifact.get("machine_code"):
            names = sorted((artifact["machine_code"].get("tensor_cores") or {}))
            found[artifact["name"]] = {"tensor_cores": names, "date": date, "source": source_of[artifact["name"]]}
    return found


def record(args):
    source_of = sources()
    grid = {kernel["name"]: kernel for kernel in json.loads(args.grid.read_text(encoding="utf-8"))}
    if grid.keys() != source_of.keys():
        first = sorted(grid.keys() ^ source_of.keys())[0]
        raise SystemExit(f"{args.grid} and {HASHES.name} do not have the same kernels (`{first}`); run scripts/generated.sh first")
    old = load(RECORDS)
    facts = ["kind", "target", "runs_on", "newer_by_ptx"]
    records = {name: {"kernel": name, **old.get(name, {}), **{fact: grid[name][fact] for fact in facts}} for name in grid}
    merged = []
    if args.emulator:
        merged.append(("emulator", verdicts(args.emulator, source_of, args.date)))
    if args.build:
        merged.append(("object", instructions(args.build, source_of, args.date)))
    for key, found in merged:
        for name, value in found.items():
            records[name][key] = value
    for gpu, path in args.gpu:
        for name, value in verdicts(Path(path), source_of, args.date).items():
            records[name].setdefault("gpu", {})[gpu] = value
    save(RECORDS, records)
    write(args)


def passed(found, of):
    """Passes among verdicts, as "8 of 18, smoke, 2026-11-26"; `of` is the number of kernels."""
    if not found:
        return f"0 of {of}: not recorded"
    good = sum(verdict["status"] == "pass" for verdict in found)
    levels = "/".join(sorted({verdict["level"] for verdict in found}))
    dates = sorted({verdict["date"] for verdict in found})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{good} of {of}, {levels}, {when}"


def kinds(records):
    """Kernels by kind, for example "`bwd` 64, `fwd` 177"."""
    count = Counter(record["kind"] for record in records)
    return ", ".join(f"`{kind}` {count[kind]}" for kind in sorted(count))


def row(target, mine):
    cases = sum(record["emulator"]["cases"] for record in mine if "emulator" in record)
    emulator = passed([record["emulator"] for record in mine if "emulator" in record], len(mine))
    by_gpu = {}
    for one in mine:
        for gpu, verdict in one.get("gpu", {}).items():
            by_gpu.setdefault(gpu, []).append(verdict)
    on_gpus = "; ".join(f"{gpu}: {passed(found, len(mine))}" for gpu, found in sorted(by_gpu.items()))
    found = sorted({name for record in mine for name in record.get("object", {}).get("tensor_cores", [])})
    inspected = sum("object" in record for record in mine)
    code = ", ".join(f"`{name}`" for name in found)
    runs_on = ", ".join(mine[0]["runs_on"]) + (" and newer" if mine[0]["newer_by_ptx"] else "")
    return [
        target,
        runs_on,
        f"{len(mine)}: {kinds(mine)}",
        emulator + (f"; {cases} cases" if cases else ""),
        on_gpus or "not recorded",
        f"{code} ({inspected} of {len(mine)} objects)" if inspected else "not recorded",
    ]


def table(records):
    header = ["target", "runs on", "kernels", "pass on the emulator", "pass on a GPU", "tensor-core instructions"]
    targets = sorted({record["target"] for record in records.values()}, key=lambda name: int(name[2:]))
    rows = [row(target, [record for record in records.values() if record["target"] == target]) for target in targets]
    lines = ["| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *rows]]
    emulated = [record["emulator"] for record in records.values() if "emulator" in record]
    worst = max((verdict["worst"] for verdict in emulated if verdict["worst"] is not None), default=None)
    good = sum(verdict["status"] == "pass" for verdict in emulated)
    total = f"The grid has {len(records)} kernels. Recorded passes on the emulator: {good}."
    if worst is not None:
        total += f" The worst error is {worst} of what is allowed."
    return total + "\n\n" + "\n".join(lines) + "\n"


def page(text, body):
    """The page with another table."""
    before, _, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{PAGE.name} lacks the comments around the table")
    return f"{before}{START}\n{body}\n{END}{after}"


def write(args):
    source_of, records = sources(), load(RECORDS)
    text = PAGE.read_text(encoding="utf-8")
    made = page(text, table(records))
    if not args.check:
        PAGE.write_text(made, encoding="utf-8")
        return
    missing, gone = sorted(source_of.keys() - records.keys()), sorted(records.keys() - source_of.keys())
    if missing or gone:
        first = (missing or gone)[0]
        raise SystemExit(f"{RECORDS.name}: {len(missing)} kernels of the grid have no line, {len(gone)} lines are of no kernel (`{first}`); "
                         "run `scripts/targets_table.py record`, with what `kgen check` wrote")
    unknown = [name for name, record in records.items() if "emulator" not in record]
    if args.complete and unknown:
        raise SystemExit(f"{RECORDS.name}: {len(unknown)} kernels have no verdict of the emulator, the first is `{unknown[0]}`")
    failed = [name for name, record in records.items() if record.get("emulator", {}).get("status", "pass") != "pass"]
    if failed:
        raise SystemExit(f"{RECORDS.name}: {len(failed)} kernels have not passed, the first is `{failed[0]}`")
    if made != text:
        raise SystemExit(f"{PAGE.name} is not what its records give; run scripts/targets_table.py")
    older = sum(record["emulator"]["source"] != source_of[name] for name, record in records.items() if "emulator" in record)
    print(f"{len(records)} kernels, {older} of whose verdicts are of an earlier source")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=["record"])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--complete", action="store_true")
    parser.add_argument("--grid", type=Path, metavar="JSON", help="`kgen list --all --format json`; needed by `record`")
    parser.add_argument("--emulator", type=Path, metavar="JSON")
    parser.add_argument("--build", type=Path, metavar="JSON")
    parser.add_argument("--gpu", nargs=2, action="append", default=[], metavar=("NAME", "JSON"))
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    args = parser.parse_args()
    if args.command and not args.grid:
        parser.error("`record` needs --grid, the output of `kgen list --all --format json`")
    record(args) if args.command else write(args)


if __name__ == "__main__":
    main()
