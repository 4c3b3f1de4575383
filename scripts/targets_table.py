"""The table of docs/results/targets.md: what is proven for each target, and how. No number is typed by hand.

    kgen list --plan --format json >list.json
    kgen check --all --device emulator --format json >emulator.json
    kgen build --all --format json >build.json
    python3 scripts/targets_table.py list.json --emulator emulator.json --build build.json --gpu build/gpu/summary.json

Everything but the list may be omitted: a cell then says that nothing is known. `--gpu` takes the output of
scripts/gpu_check.sh, for any number of GPUs.
"""

import argparse
import json
from pathlib import Path

from gpu_report import build_summary, check_summary, table


def where(entry):
    return ", ".join(entry["runs_on"]) + (" and newer" if entry["newer_by_ptx"] else "")


def total(groups, target):
    """Variants and passes of one target over its kinds, as "8 of 8"; None where there are none."""
    mine = [group for key, group in groups.items() if key.split()[1] == target]
    return f"{sum(g['passed'] for g in mine)} of {sum(g['variants'] for g in mine)}" if mine else None


def on_gpus(summaries, target):
    """Where a target's kernels passed: as shipped, or built from the same source for that GPU's own instructions."""
    cells = []
    for summary in summaries:
        name = summary["machine"][1].split(",")[0]
        for key, how in (("check", ""), ("runas_check", ", built to run as that GPU")):
            passed = total((summary[key] or {"groups": {}})["groups"], target)
            if passed:
                cells.append(f"{name}: {passed}{how}")
    return "; ".join(cells) or "no"


def machine_code(build, target):
    """Families of tensor-core instructions found in the objects, as a disassembler names them."""
    names = (build or {"tensor_cores": {}})["tensor_cores"].get(target, {})
    return ", ".join(f"`{name}`" for name in sorted(names)) or "not inspected"


def timed(summaries, target):
    """GPUs on which a bench timed this target's kernels."""
    gpus = sorted({s["machine"][1].split(",")[0] for s in summaries for b in s["benches"].values() if b.get("target") == target})
    return ", ".join(gpus) or "not measured for speed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--emulator", type=Path)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--gpu", type=Path, nargs="*", default=[])
    args = parser.parse_args()

    entries = json.loads(args.list.read_text())
    emulator = check_summary(json.loads(args.emulator.read_text())) if args.emulator else {"groups": {}}
    build = build_summary(json.loads(args.build.read_text())) if args.build else None
    summaries = [json.loads(path.read_text()) for path in args.gpu]
    rows = []
    for target in dict.fromkeys(sorted((e["target"] for e in entries), key=lambda name: int(name[2:]))):
        mine = [entry for entry in entries if entry["target"] == target]
        kinds = sorted({f"{e['kind']} {e['dtype']}" if e["dtype"] else e["kind"] for e in mine})
        rows.append(
            [
                target,
                where(mine[0]),
                f"{len(mine)}: {', '.join(kinds)}",
                total(emulator["groups"], target) or "not run",
                on_gpus(summaries, target),
                machine_code(build, target),
                timed(summaries, target),
            ]
        )
    print(table(["target", "runs on", "variants", "pass on the emulator", "pass on a GPU", "tensor-core instructions", "timed on"], rows), end="")


if __name__ == "__main__":
    main()
