"""The Python part of scripts/gpu_check.sh: the plan of its steps, a summary, and the tables of docs/results/.

    python3 scripts/gpu_report.py plan CAPABILITY <list.json     targets that the GPU runs, one small variant per template
    python3 scripts/gpu_report.py summary OUT_DIR                writes OUT_DIR/summary.json; exits 1 if a step failed
    python3 scripts/gpu_report.py tables OUT_DIR                 prints Markdown, with no number typed by hand
"""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benches"))

from lab import bench, record  # noqa: E402

# Compute capability of each target, and the newest one that runs its objects (src/plan/compile.rs): PTX runs on every
# newer GPU.
NEWER = 999

# Prefixes of kernel names, longer ones first.
KINDS = "fwd_split|fwd_short|fwd_combine|fwd|bwd|prepare_scheduler|append_kv|vector_add|transpose|reduce_sum|reduce_max|reduce_logsumexp|rmsnorm"
TARGETS = {"sm75": (75, NEWER), "sm80": (80, NEWER), "sm89": (89, NEWER), "sm90": (90, 90), "sm100": (100, 103), "sm120": (120, 121), "sm121": (121, 121)}


def runs_on(target, capability):
    oldest, newest = TARGETS[target]
    return oldest <= capability <= newest


def plan(capability, entries):
    """The plan of gpu_check.sh, as lines: `native`, `portable`, `run_as`, and `sanitize TEMPLATE VARIANT [RUN_AS]`."""
    targets = sorted({entry["target"] for entry in entries}, key=list(TARGETS).index)
    native = [target for target in targets if runs_on(target, capability)]
    # sm89 also runs through its PTX; compiled to this GPU's own machine code, its FP8 uses the same instructions as
    # Ada's.
    portable = [target for target in targets if target not in native or target == "sm89"]
    own = next((target for target, (oldest, _) in TARGETS.items() if oldest == capability and target not in portable), None)
    print("native", ",".join(native), sep="\t")
    print("portable", ",".join(portable), sep="\t")
    print("run_as", own or "", sep="\t")
    seen = set()
    # Kernels without a shape have no head dim.
    def smallest_first(entry):
        head_dim = entry["head_dim"] or 0
        return entry["target"] not in native, 0 < head_dim < 64, head_dim, not entry["causal"], entry["name"]

    for entry in sorted(entries, key=smallest_first):
        if not entry.get("plan") or not (entry["target"] in native or own):
            continue
        tile = entry["plan"]["tile"]
        fp8 = tile["fp8_mma"] if entry["dtype"] == "fp8" else ""
        template = "-".join(filter(None, [entry["plan"]["template"].split(".")[0], "tma" if tile["copy"] == "tma" else "", fp8]))
        if template not in seen:
            seen.add(template)
            print("sanitize", template, entry["name"], "" if entry["target"] in native else own, sep="\t")


def read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def bench_rows(path):
    return record.read(path) if path.is_file() else []


def build_summary(report):
    if report is None:
        return None
    families = {}
    for artifact in report["artifacts"]:
        for name, count in ((artifact.get("machine_code") or {}).get("tensor_cores") or {}).items():
            family = families.setdefault(artifact["target"], {}).setdefault(name, {"variants": 0, "instructions": 0})
            family["variants"] += 1
            family["instructions"] += count
    return {
        "nvcc": report["nvcc"],
        "variants": sum(a["target"] is not None for a in report["artifacts"]),
        "failures": [{key: f[key] for key in ("name", "kind", "message")} for f in report["failures"]],
        "spilling": [a["name"] for a in report["artifacts"] if any(r["spill_store_bytes"] + r["spill_load_bytes"] + r["stack_bytes"] for r in a["resources"])],
        "by_target": report["by_target"],
        "by_kind": report["by_kind"],
        "library": report["library"],
        "not_inspected": report["not_inspected"],
        "tensor_cores": families,
    }


def check_summary(verdicts):
    if verdicts is None:
        return None
    groups = {}
    for v in verdicts:
        kind, target = re.match(rf"(?:flash_)?({KINDS}).*_(sm\d+)$", v["name"]).groups()
        group = groups.setdefault(f"{kind} {target}", {"variants": 0, "passed": 0, "cases": 0, "worst": 0.0, "seconds": 0.0})
        group["variants"] += 1
        group["passed"] += v["status"] == "pass"
        group["cases"] = max(group["cases"], v["cases_run"])
        group["worst"] = max(group["worst"], ((v["worst"] or {}).get("ratio") or 0.0))
        group["seconds"] += v["seconds"]
    return {
        "device": next((v["device"] for v in verdicts), None),
        "level": next((v["level"] for v in verdicts), None),
        "groups": groups,
        "failures": [{key: v[key] for key in ("name", "status", "message")} for v in verdicts if v["status"] != "pass"],
    }


def sanitizer_summary(out):
    found = []
    for log in sorted(out.glob("sanitize-*.txt")):
        template, tool = re.match(r"sanitize-(.+)-(\w+)$", log.stem).groups()
        lines = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", log.read_text(errors="replace"))
        found.append({"template": template, "tool": tool, "says": sorted(set(lines)) or ["nothing"]})
    return found


def summary(out):
    steps = []
    for line in (out / "steps.tsv").read_text().splitlines():
        name, status, seconds, command = line.split("\t")
        steps.append({"name": name, "status": status, "seconds": int(seconds), "command": command})
    result = {
        "machine": (out / "machine.txt").read_text().splitlines(),
        "steps": steps,
        "build": build_summary(read(out / "build.json")),
        "check": check_summary(read(out / "check.json")),
        "runas_build": build_summary(read(out / "runas-build.json")),
        "runas_check": check_summary(read(out / "runas-check.json")),
        "tma_build": build_summary(read(out / "tma-build.json")),
        "tma_check": check_summary(read(out / "tma-check.json")),
        "sanitizer": sanitizer_summary(out),
        "benches": {name: rows for name in ("bench-fwd", "bench-bwd", "bench-decode", "bench-tma") if (rows := bench_rows(out / f"{name}-rows.jsonl"))},
    }
    (out / "summary.json").write_text(json.dumps(result, indent=1) + "\n")
    failed = [step["name"] for step in steps if step["status"] != "passed" and not step["status"].startswith("skipped")]
    print(f"{out}/summary.json; " + (f"failed: {' '.join(failed)}" if failed else "all steps passed"))
    return 1 if failed else 0


def table(header, rows):
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [header, ["---"] * len(header), *rows]) + "\n"


def megabytes(size):
    return f"{size / 1e6:.1f} MB"


def build_tables(title, build):
    print(f"## {title}\n")
    print(f"nvcc {build['nvcc']}; {build['variants']} variants compiled, {len(build['failures'])} failed, {len(build['spilling'])} spill.\n")
    for failure in build["failures"]:
        print(f"* `{failure['name']}`: {failure['message']}\n")
    if build["library"]:
        print(f"Library {megabytes(build['library']['size_bytes'])}.\n")
    for name in ("target", "kind"):
        rows = [[key, s["variants"], megabytes(s["object_bytes"]), f"{s['mean_cpu_seconds']:.1f}", f"{s['most_cpu_seconds']:.1f}"] for key, s in build[f"by_{name}"].items()]
        print(table([name, "variants", "objects", "mean CPU s", "most CPU s"], rows))
    if build["not_inspected"]:
        print(f"Machine code not inspected: {build['not_inspected']}\n")
    rows = [[target, f"`{name}`", c["variants"], c["instructions"]] for target, names in build["tensor_cores"].items() for name, c in names.items()]
    if rows:
        print(table(["target", "tensor-core instruction", "variants", "instructions"], rows))


def check_tables(title, check):
    print(f"## {title}\n\n{check['device']}, {check['level']}.\n")
    rows = [[*key.split(), f"{g['passed']} of {g['variants']}", g["cases"], f"{g['worst']:.2f}", f"{g['seconds']:.0f}"] for key, g in check["groups"].items()]
    print(table(["kind", "target", "passed", "cases each", "worst error / allowed", "seconds"], rows))
    for failure in check["failures"]:
        print(f"* `{failure['name']}` {failure['status']}: {failure['message'].splitlines()[0] if failure['message'] else ''}\n")


def bench_table(name, rows):
    """The tables that a bench prints, from its rows (benches/README.md)."""
    run = rows[0]["run"]
    print(f"## {name}\n\n{run['gpu']['name']}, driver {run['driver']}; torch {run['torch']}.\n")
    print("\n\n".join(filter(None, [bench.table(rows), bench.geomeans(rows, "head_dim")])) + "\n")


def tables(out):
    result = read(out / "summary.json")
    if result is None:
        raise SystemExit(f"{out}/summary.json is not there; `scripts/gpu_check.sh {out}` makes it")
    print("\n".join(f"    {line}" for line in result["machine"]) + "\n")
    print(table(["step", "result", "seconds"], [[s["name"], s["status"], s["seconds"]] for s in result["steps"]]))
    for key, title in (("build", "Build"), ("runas_build", "Build to run as this GPU"), ("tma_build", "Build with TMA, to run as this GPU")):
        if result[key]:
            build_tables(title, result[key])
    for key, title in (("check", "Correctness"), ("runas_check", "Correctness, built to run as this GPU"), ("tma_check", "Correctness with TMA")):
        if result[key]:
            check_tables(title, result[key])
    if result["sanitizer"]:
        print("## compute-sanitizer\n")
        print(table(["template", "tool", "summary"], [[s["template"], s["tool"], "; ".join(s["says"])] for s in result["sanitizer"]]))
    for name, rows in result["benches"].items():
        bench_table(name, rows)


def main():
    match sys.argv[1:]:
        case ["plan", capability]:
            plan(int(capability), json.load(sys.stdin))
        case ["summary", out]:
            sys.exit(summary(Path(out)))
        case ["tables", out]:
            tables(Path(out))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
