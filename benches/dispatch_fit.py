#!/usr/bin/env python3
"""Evaluates the results of benches/dispatch_regret.py: the regret, and factors by which the constants of the model
should change.

    python3 benches/dispatch_fit.py regret.jsonl
    python3 benches/dispatch_fit.py regret.jsonl --library build/lib/libkgen.so

A prediction is launch + tile + the longest of chain, step and memory and a part of the others + combine + scheduler
(docs/dispatch.md), and every part depends on a number in src/family/attention/cost (chain and step include the tiles
after a block's first as well, which are scaled with them). So the raw data suffice to estimate the predictions and
choices of other constants: factors on them are optimised, one after another, for the logarithms of the times. An
error counts quadratically up to a quarter and linearly beyond, so that one shape that the model does not describe has
little weight, and a factor stays near 1 unless the times require another, always between 1/2 and 2. The factors are
evaluated on shapes excluded from the fit, a fifth at a time, and printed only if they are better there than today's
constants, in time and in regret. Needs only Python.

With `--library` the predictions and choices come from another library's `kgen_explain_choice`, on a GPU like the one
of the data, and the times are the recorded ones: the regret of a changed model, from recorded times of forced paths.
Nothing is launched.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

from lab import record
from lab.kgen import DTYPE_NUMBERS, FLAG_CAUSAL, PATHS, FwdParams, Library, made
from lab.stats import spread

KERNELS = {"dense": "dense", "short": "short", "split": "split", "scheduled": "split"}
PARTS = ("launch", "tile", "chain", "step", "memory")  # parts of a predicted time
ALL_PARTS = ("predicted", *PARTS, "combine", "scheduler")
# Name of a factor, and the constant that it scales.
FACTORS = {
    f"{kernel}.{part}": f"{part}_{'ns' if part == 'launch' else 'cycles'} of KernelCost::{functions}"
    for kernel, functions in (("dense", "hopper or portable"), ("short", "short"), ("split", "split"))
    for part in PARTS[:-1]
} | {
    "memory": "1 / DRAM_PER_MILLE and 1 / l2_gbs",
    "rest": "0.2 of kernel_time::total in path_cost.cuh",
    "combine": "FwdCombine in KernelCost::of_attention",
    "scheduler": "PrepareScheduler in KernelCost::of_attention",
}
SMALLEST = 1.02
MOST = 2.0  # upper bound of a factor; the lower one is 1 / MOST
QUADRATIC = math.log2(1.25)  # errors up to here count quadratically
PULL = 0.0004  # penalty on the square of a factor's logarithm, towards 1
FOLDS = 5
FAR_OFF = 1.5  # a prediction worth reporting


def of_rows(rows):
    """One entry per shape: `name`, `shape`, `candidates` with their times `us`, the index `chosen`, and `own_us` and
    `old_us`."""
    shapes = {}
    for row in rows:
        us = row["numbers"] and row["numbers"]["microseconds"]["median"]
        if "request" not in row["details"]:
            continue
        found = shapes.setdefault(row["case"],
            {"name": row["case"], "shape": row["details"]["request"], "candidates": []})
        if row["contender"] in ("own", "old"):
            found[f"{row['contender']}_us"] = us
            continue
        if row["details"]["chosen"]:
            found["chosen"] = len(found["candidates"])
        found["candidates"].append({**row["details"], "us": us})
    return list(shapes.values())


def load(path):
    """(circumstances, shapes) of rows, or of the document that dispatch_regret.py wrote in earlier versions."""
    text = Path(path).read_text()
    if text.startswith('{"version": 2'):
        data = json.loads(text)
        return f"{data['gpu']}, torch {data['torch']}, seed {data['seed']}", data["rows"]
    rows = record.read(path)
    run = rows[0]["run"]
    return f"{run['gpu']['name']}, torch {run['torch']}, seed {run['seed']}", of_rows(rows)


def able(row):
    """Usable candidates with times."""
    return [c for c in row["candidates"] if c["excluded"] is None and c["us"] is not None]


def possible(row):
    """Usable candidates."""
    return [c for c in row["candidates"] if c["excluded"] is None]


def not_beside(row):
    """The fraction of the shorter of chain, step and memory that counts, from the row's own predictions; 0 if
    unknown."""
    parts = []
    for c in possible(row):
        beside = (c["chain"], c["step"], c["memory"])
        rest = c["predicted"] - c["launch"] - c["tile"] - max(beside) - c["combine"] - c["scheduler"]
        if sum(beside) > max(beside):
            parts.append(rest / (sum(beside) - max(beside)))
    return statistics.median(parts) if parts else 0.0


def predicted_us(candidate, factors, rest):
    kernel = KERNELS[candidate["path"]]
    by = lambda part: candidate[part] * factors.get(f"{kernel}.{part}", 1)
    beside = (by("chain"), by("step"), candidate["memory"] * factors.get("memory", 1))
    waits = max(beside) + rest * factors.get("rest", 1) * (sum(beside) - max(beside))
    helpers = candidate["combine"] * factors.get("combine", 1) + candidate["scheduler"] * factors.get("scheduler", 1)
    return (by("launch") + by("tile") + waits + helpers) / 1e3


def best_us(row):
    """The fastest measured time, including the old library's."""
    return min([c["us"] for c in able(row)] + [row[key] for key in ("old_us",) if key in row])


def regret_of(row, factors):
    """Regret of the model's choice with these factors, from the times of forced paths; None if that path was not
    timed."""
    chosen = min(possible(row), key=lambda c: predicted_us(c, factors, row["rest"]))
    return None if chosen["us"] is None else chosen["us"] / best_us(row) - 1


def measured_regret(row, key="own_us"):
    """Regret of the dispatcher itself."""
    return row[key] / best_us(row) - 1


def label(candidate):
    return candidate["path"] + (f" {candidate['splits']}" if candidate["path"] in ("split", "scheduled") else "")


def ratio_of(row):
    """Ratio of predicted to measured time for the dispatcher's own choice."""
    return row["candidates"][row["chosen"]]["predicted"] / 1e3 / row["own_us"]


def line_of(row):
    chosen = row["candidates"][row["chosen"]]
    fastest = min(able(row), key=lambda c: c["us"], default=chosen)
    best = f"best of {len(able(row))} timed {label(fastest)}"
    timed = f"{best} {fastest['us']:.1f}" if fastest["us"] is not None else "no path timed alone"
    old = f", before {row['old_us']:.1f} ({100 * measured_regret(row, 'old_us'):+.1f} %)" if "old_us" in row else ""
    return (
        f"{row['name']}: {label(chosen)} {row['own_us']:.1f} us (predicted {chosen['predicted'] / 1e3:.1f}), {timed}, "
        f"regret {100 * measured_regret(row):.1f} %{old}"
    )


def is_packed(shape):
    return bool(shape["lengths"]) and shape["packed"]


def summary(rows):
    lines = []
    for kind, some in (("", rows), (" packed", [row for row in rows if is_packed(row["shape"])])):
        if not some:
            continue
        for who, key in (("dispatcher", "own_us"), ("library before", "old_us")):
            if all(key in row for row in some):
                found = spread([measured_regret(row, key) for row in some])
                lines.append(f"regret of the {who} over {len(some)}{kind} shapes: {found}")
    partly = sum(len(able(row)) < len(possible(row)) for row in rows)
    if partly:
        lines.append(f"Of {partly} shapes not every path was timed: their regret is at least what is counted here.")
    lines += ["", "| path | chosen | fastest | predicted / measured, median (10th to 90th percentile) |",
        "|---|---|---|---|"]
    for path in KERNELS:
        ratios = sorted(c["predicted"] / 1e3 / c["us"] for row in rows for c in able(row) if c["path"] == path)
        chosen = sum(row["candidates"][row["chosen"]]["path"] == path for row in rows)
        fastest = sum(min(able(row), key=lambda c: c["us"])["path"] == path for row in rows if able(row))
        share = lambda part: ratios[int(part * (len(ratios) - 1))]
        about = f"{share(0.5):.2f} ({share(0.1):.2f} to {share(0.9):.2f})" if ratios else "–"
        lines.append(f"| {path} | {chosen} | {fastest} | {about} |")
    worst = sorted(rows, key=measured_regret, reverse=True)[:10]
    lines += ["", "The largest:", *(f"* {line_of(row)}" for row in worst)]
    off = sorted((row for row in rows if abs(math.log(ratio_of(row))) > math.log(FAR_OFF)),
        key=lambda row: -abs(math.log(ratio_of(row))))
    lines += ["", f"Predicted more than {FAR_OFF} times too long or too short, {len(off)} shapes:"]
    for row in off:
        chosen = label(row["candidates"][row["chosen"]])
        lines.append(f"* {row['name']}: {chosen} {row['own_us']:.1f} us, predicted / measured {ratio_of(row):.2f}")
    return "\n".join(lines)


def log_error(rows, factors):
    """Mean error of log2(predicted / measured) over shapes, each averaged over its candidates."""
    return statistics.fmean(statistics.fmean(counted(math.log2(predicted_us(c, factors, row["rest"]) / c["us"]))
        for c in able(row)) for row in rows)


def counted(error):
    error = abs(error)
    return error * error / 2 if error <= QUADRATIC else QUADRATIC * (error - QUADRATIC / 2)


def loss(rows, factors):
    return log_error(rows, factors) + PULL * sum(math.log2(factor) ** 2 for factor in factors.values())


def fit(rows):
    """Coordinate descent over the factors, with decreasing steps, until none improves."""
    factors = dict.fromkeys(FACTORS, 1.0)
    best, step = loss(rows, factors), 1.3
    while step >= SMALLEST:
        gained = False
        for name in FACTORS:
            for by in (step, 1 / step):
                tried = {**factors, name: min(MOST, max(1 / MOST, factors[name] * by))}
                value = loss(rows, tried)
                if value < best - 1e-9:
                    factors, best, gained = tried, value, True
                    break
        if not gained:
            step = math.sqrt(step)
    return factors


def follows(row):
    """True if the predictions follow from their parts: if the number of keys is unknown, they are means of two
    guesses."""
    return all(abs(predicted_us(c, {}, row["rest"]) * 1e3 - c["predicted"]) <= 1e-6 * c["predicted"] for c in able(row))


def kept_out(rows):
    """For each fifth of the shapes, factors fitted to the others: mean error and regrets, with factors and with today's
    constants."""
    errors, regrets = ([], []), ([], [])
    for fold in range(FOLDS):
        others, kept = [row for i, row in enumerate(rows) if i % FOLDS != fold], rows[fold::FOLDS]
        for place, factors in enumerate((fit(others), {})):
            errors[place].append(log_error(kept, factors))
            regrets[place].extend(regret_of(row, factors) for row in kept)
    both = [pair for pair in zip(*regrets) if None not in pair]
    return [statistics.fmean(error) for error in errors], [[pair[place] for pair in both] for place in (0, 1)]


def fitted(rows):
    rest = statistics.median(not_beside(row) for row in rows)
    rows = [{**row, "rest": rest} for row in rows]
    everything, rows = rows, [row for row in rows if able(row) and follows(row)]
    if len(rows) < 4 * FOLDS:
        return f"\n{len(rows)} shapes are too few to fit factors to: {4 * FOLDS} at least"
    errors, regrets = kept_out(rows)
    left = len(everything) - len(rows)
    left_out = f" ({left} shapes of unknown length left out)" if left else ""
    lines = [
        "",
        f"Shapes kept out of the fit{left_out}: error of a time, and regret by forced times where both choices were "
        f"timed ({len(regrets[0])} shapes)",
        f"* with today's constants: {errors[1]:.4f}; {spread(regrets[1])}",
        f"* with factors fitted to the others: {errors[0]:.4f}; {spread(regrets[0])}",
    ]
    if errors[0] >= errors[1] or (regrets[0] and statistics.fmean(regrets[0]) > statistics.fmean(regrets[1]) + 1e-9):
        return "\n".join(
            [*lines, "", "Factors do no better on shapes that they were not fitted to: none are proposed."])
    factors = fit(rows)
    lines += ["", "| factor | constant | multiply by |", "|---|---|---|"]
    lines += [f"| {name} | {constant} | {factors[name]:.3f} |" for name, constant in FACTORS.items()]
    return "\n".join(lines)


def asked(shape):
    """The parameters of a recorded shape; addresses are invented, since they are never dereferenced."""
    somewhere, packed = 1 << 20, is_packed(shape)
    fields = {"batch": shape["batch"], "seqlen_q": shape["queries"], "seqlen_k": shape["keys"],
        "num_heads": shape["heads"]}
    fields |= {"num_heads_k": shape["heads_k"], "head_dim": shape["head_dim"], "dtype": DTYPE_NUMBERS[shape["dtype"]]}
    fields |= {"softmax_scale": shape["head_dim"] ** -0.5, "workspace": somewhere, "workspace_bytes": 1 << 62}
    for name, heads, rows in (("q", "heads", "queries"), ("k", "heads_k", "keys"), ("v", "heads_k", "keys"),
            ("o", "heads", "queries")):
        row = shape[heads] * shape["head_dim"]
        fields |= {name: somewhere, f"{name}_row_stride": row, f"{name}_head_stride": shape["head_dim"]}
        fields[f"{name}_batch_stride"] = 0 if packed else shape[rows] * row
    if packed:
        fields |= {"cu_seqlens_q": somewhere, "cu_seqlens_k": somewhere}
        fields |= dict(zip(("total_q", "total_k"), map(sum, shape["lengths"])))
    elif shape["lengths"]:
        fields |= {f"seqused_{side}": somewhere for side, x in zip("qk", shape["lengths"]) if min(x) < max(x)}
        fields["total_k"] = sum(shape["lengths"][1]) if shape["told"] else 0
    return made(FwdParams, FLAG_CAUSAL if shape["causal"] else 0, **fields)


def predicted_anew(rows, path):
    """The rows with a library's predictions and choices; shapes whose choice was not timed are dropped, and their names
    returned second."""
    library, kept, untimed = Library(path), [], []
    for row in rows:
        told, chosen = library.explain(asked(row["shape"]))
        if chosen is None:
            raise SystemExit(f"dispatch_fit.py: `{path}` does not serve {row['name']}: {library.last_error()}")
        times = {(c["path"], c["splits"]): c["us"] for c in row["candidates"]}
        candidates = [
            {
                "path": (name := PATHS[c.path].lower()), "splits": c.num_splits,
                "variant": c.variant and c.variant.decode(),
                "excluded": c.excluded and c.excluded.decode(), "us": times.get((name, c.num_splits)),
                **{part: getattr(c, f"{part}_ns") for part in ALL_PARTS},
            }
            for c in told
        ]
        if candidates[chosen]["us"] is None:
            untimed.append(f"{row['name']}: {label(candidates[chosen])}")
        else:
            kept.append({**row, "candidates": candidates, "chosen": chosen, "own_us": candidates[chosen]["us"]})
    return kept, untimed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="what dispatch_regret.py wrote with --out")
    parser.add_argument("--library", help="another libkgen.so, whose predictions and choices replace the recorded ones")
    parser.add_argument("--path", choices=sorted(KERNELS), help="only shapes of which a path of this kind was timed")
    parser.add_argument("--without", metavar="TEXT", action="append", default=[],
        help="leave out shapes whose name contains this")
    args = parser.parse_args()
    measured_on, shapes = load(args.data)
    rows = [row for row in shapes if not args.path or any(c["path"] == args.path for c in able(row))]
    rows = [row for row in rows if not any(text in row["name"] for text in args.without)]
    if not rows:
        parser.error("no shape is left")
    print(f"{measured_on}, {len(rows)} shapes\n")
    if args.library:
        rows, untimed = predicted_anew(rows, args.library)
        print(f"Choices of {args.library} by the recorded times; {len(untimed)} were not timed:")
        print("\n".join([*(f"* {name}" for name in untimed), ""]))
        if not rows:
            parser.error("no choice was timed")
    print(summary(rows))
    print(fitted(rows))


if __name__ == "__main__":
    main()
