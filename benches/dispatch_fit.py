#!/usr/bin/env python3
"""Reads what benches/dispatch_regret.py measured: the regret, and the constants of the model with which it would be least.

    python3 benches/dispatch_fit.py regret.json

A prediction is launch + tile + the longest of chain, step and memory and a twentieth of the others + combine + scheduler (docs/dispatch.md), and every part is proportional to a
constant of src/family/attention/cost. So the raw data are enough to say what another constant would have predicted and chosen: factors on
them are searched, one after another, first for the logarithms of the times, then for the regret. Half of the shapes are kept out of a second
search, so that one sees what the factors are worth on others. Needs nothing but Python.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

KERNELS = {"dense": "dense", "short": "short", "split": "split", "scheduled": "split"}
PARTS = ("launch", "tile", "chain", "step", "memory")
# Name of a factor, and the constant that it multiplies.
FACTORS = {
    f"{kernel}.{part}": f"{part}_{'ns' if part == 'launch' else 'cycles'} of KernelCost::{functions}"
    for kernel, functions in (("dense", "hopper or portable"), ("short", "short"), ("split", "split"))
    for part in PARTS[:-1]
} | {
    "memory": "1 / DRAM_PER_MILLE and 1 / l2_gbs",
    "rest": "NOT_BESIDE in predict.rs, 0.05 in path_cost.cuh",
    "combine": "FwdCombine in KernelCost::of_attention",
    "scheduler": "PrepareScheduler in KernelCost::of_attention",
}
SMALLEST = 1.02


def able(row):
    """Candidates that can be taken and were timed."""
    return [c for c in row["candidates"] if c["excluded"] is None and c["us"] is not None]


def predicted_us(candidate, factors):
    kernel = KERNELS[candidate["path"]]
    by = lambda part: candidate[part] * factors.get(f"{kernel}.{part}", 1)
    beside = (by("chain"), by("step"), candidate["memory"] * factors.get("memory", 1))
    waits = max(beside) + 0.05 * factors.get("rest", 1) * (sum(beside) - max(beside))
    helpers = candidate["combine"] * factors.get("combine", 1) + candidate["scheduler"] * factors.get("scheduler", 1)
    return (by("launch") + by("tile") + waits + helpers) / 1e3


def regret_of(row, factors):
    """Of what the model would choose with these factors, by the times of forced paths alone."""
    candidates = able(row)
    chosen = min(candidates, key=lambda c: predicted_us(c, factors))
    return chosen["us"] / min(c["us"] for c in candidates) - 1


def measured_regret(row, key="own_us"):
    """Of the dispatcher itself."""
    return row[key] / min(c["us"] for c in able(row)) - 1


def label(candidate):
    return candidate["path"] + (f" {candidate['splits']}" if candidate["path"] in ("split", "scheduled") else "")


def line_of(row):
    candidates = able(row)
    best, chosen = min(candidates, key=lambda c: c["us"]), row["candidates"][row["chosen"]]
    old = f", before {row['old_us']:.1f} ({100 * measured_regret(row, 'old_us'):+.1f} %)" if "old_us" in row else ""
    return (
        f"{row['name']}: {label(chosen)} {row['own_us']:.1f} us (predicted {chosen['predicted'] / 1e3:.1f}), best {label(best)} {best['us']:.1f}, "
        f"regret {100 * measured_regret(row):.1f} %{old}"
    )


def spread(values):
    ordered = sorted(values)
    return f"mean {100 * statistics.fmean(values):.2f} %, median {100 * statistics.median(values):.2f} %, 95th percentile {100 * ordered[int(0.95 * (len(ordered) - 1))]:.1f} %, worst {100 * ordered[-1]:.1f} %"


def summary(rows):
    lines = [f"regret of the dispatcher over {len(rows)} shapes: {spread([measured_regret(row) for row in rows])}"]
    if all("old_us" in row for row in rows):
        lines.append(f"regret of the library before: {spread([measured_regret(row, 'old_us') for row in rows])}")
    lines += ["", "| path | chosen | fastest | predicted / measured, median (10th to 90th percentile) |", "|---|---|---|---|"]
    for path in KERNELS:
        ratios = sorted(c["predicted"] / 1e3 / c["us"] for row in rows for c in able(row) if c["path"] == path)
        chosen = sum(row["candidates"][row["chosen"]]["path"] == path for row in rows)
        fastest = sum(min(able(row), key=lambda c: c["us"])["path"] == path for row in rows)
        share = lambda part: ratios[int(part * (len(ratios) - 1))]
        about = f"{share(0.5):.2f} ({share(0.1):.2f} to {share(0.9):.2f})" if ratios else "–"
        lines.append(f"| {path} | {chosen} | {fastest} | {about} |")
    worst = sorted(rows, key=measured_regret, reverse=True)[:10]
    return "\n".join([*lines, "", "The largest:", *(f"* {line_of(row)}" for row in worst)])


def log_error(rows, factors):
    """Mean square of log2(predicted / measured), over candidates that take at most three times the best."""
    errors = []
    for row in rows:
        candidates = able(row)
        best = min(c["us"] for c in candidates)
        errors += [math.log2(predicted_us(c, factors) / c["us"]) ** 2 for c in candidates if c["us"] <= 3 * best]
    return statistics.fmean(errors)


def loss(rows, factors):
    """Mean regret, a part of the worst, and a little of the error, so that a factor that decides nothing still goes to its place."""
    regrets = [regret_of(row, factors) for row in rows]
    return statistics.fmean(regrets) + 0.05 * max(regrets) + 0.02 * log_error(rows, factors)


def search(rows, goal, factors, step):
    """Goes from factor to factor as long as one gains, with smaller and smaller steps."""
    factors = dict(factors)
    best = goal(rows, factors)
    while step >= SMALLEST:
        gained = False
        for name in FACTORS:
            for by in (step, 1 / step):
                tried = {**factors, name: min(8.0, max(0.125, factors[name] * by))}
                value = goal(rows, tried)
                if value < best - 1e-9:
                    factors, best, gained = tried, value, True
                    break
        if not gained:
            step = math.sqrt(step)
    return factors


def follows(row):
    """Whether the predictions follow from their parts: where nobody says how many keys there are, they are means of two guesses."""
    return all(abs(predicted_us(c, {}) * 1e3 - c["predicted"]) <= 1e-6 * c["predicted"] for c in able(row))


def fit(rows):
    start = dict.fromkeys(FACTORS, 1.0)
    return search(rows, loss, search(rows, log_error, start, 1.5), 1.3)


def fitted(rows):
    everything, rows = rows, [row for row in rows if able(row) and follows(row)]
    of = lambda rows, factors: spread([regret_of(row, factors) for row in rows])
    factors = fit(rows)
    half = fit(rows[::2])
    left_out = f" ({len(everything) - len(rows)} shapes of unknown length left out)" if len(rows) < len(everything) else ""
    lines = ["", f"By the times of forced paths, regret of the choice{left_out}", f"* with today's constants: {of(rows, {})}", f"* with the factors below: {of(rows, factors)}"]
    if len(rows) > 1:
        lines.append(f"* of every second shape, with factors fitted to the others: {of(rows[1::2], half)} (today's: {of(rows[1::2], {})})")
    lines += ["", "| factor | constant | multiply by |", "|---|---|---|"]
    lines += [f"| {name} | {constant} | {factors[name]:.3f} |" for name, constant in FACTORS.items()]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="what dispatch_regret.py wrote with --out")
    parser.add_argument("--path", help="only shapes of which a path of this kind was timed: dense, short, split, scheduled")
    args = parser.parse_args()
    data = json.loads(Path(args.data).read_text())
    rows = [row for row in data["rows"] if not args.path or any(c["path"] == args.path for c in able(row))]
    print(f"{data['gpu']}, torch {data['torch']}, seed {data['seed']}, {len(rows)} shapes\n")
    print(summary(rows))
    print(fitted(rows))


if __name__ == "__main__":
    main()
