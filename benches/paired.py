"""Statistics and tables of kernels timed side by side, round by round. Needs nothing but Python."""

import math
import random
import statistics

DRAWS = 2000  # bootstrap samples: the ends of a 95 % interval are then each 50 samples from the end


def interval(values, draws=DRAWS, seed=0):
    """95 % bootstrap interval of the median of `values`."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(draws))
    return [medians[draws // 40], medians[draws - 1 - draws // 40]]


def summary(values):
    """Median, spread (median absolute deviation), interval of the median and how many values there are."""
    middle = statistics.median(values)
    return {"median": middle, "mad": statistics.median(abs(v - middle) for v in values), "interval": interval(values), "n": len(values)}


def ratio(own, other):
    """How many times faster `own` is than `other`: both are times of the same rounds, so each round gives a ratio."""
    return summary([b / a for a, b in zip(own, other, strict=True)])


def geomean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def compare(times, own="kgen"):
    """Ratios of `own` to each other side of `times` ({side: times by round}) and to the fastest of them, by name."""
    others = {side: ratio(times[own], rounds) for side, rounds in times.items() if side != own}
    fastest = min(others, key=lambda side: statistics.median(times[side])) if others else None
    return {"ratios": others, "fastest": fastest}


def usable(rows):
    return [row for row in rows if row.get("ratios")]


def ratios_to(rows, side):
    """Median ratios of all rows that have that side, `fastest` being the fastest peer of each row."""
    name = (lambda row: row["fastest"]) if side == "fastest" else (lambda row: side)
    return [(row, row["ratios"][name(row)]["median"]) for row in usable(rows) if name(row) in row["ratios"]]


def geomeans(rows, sides):
    """For each side: geometric mean over all rows and by head dim, the lowest row, wins (interval above 1) and points."""
    result = {}
    for side in [*sides, "fastest"]:
        found = ratios_to(rows, side)
        if not found:
            continue
        dims = sorted({row["head_dim"] for row, _ in found})
        lowest, value = min(found, key=lambda pair: pair[1])
        wins = sum(row["ratios"][row["fastest"] if side == "fastest" else side]["interval"][0] > 1 for row, _ in found)
        result[side] = {
            "all": geomean([r for _, r in found]),
            "by_head_dim": {d: geomean([r for row, r in found if row["head_dim"] == d]) for d in dims},
            "lowest": {"ratio": value, "point": point(lowest)},
            "wins": wins,
            "points": len(found),
        }
    return result


def point(row):
    mask = "causal" if row["causal"] else "full"
    return f"d{row['head_dim']} {mask} s{row['seqlen']} b{row['batch']} h{row['heads']}"


def cell(found):
    """`1.214 [1.208, 1.219]`"""
    low, high = found["interval"]
    return f"{found['median']:.3f} [{low:.3f}, {high:.3f}]"


def markdown(rows, sides, unit):
    """The table: a row a point, kgen's rate, then each side's with kgen's ratio to it, then the ratio to the fastest.
    `unit` is a key of a row's `kernels`: `tflops` or `us`."""
    name, digits = {"tflops": ("TFLOP/s", 0), "us": ("µs", 2)}[unit]
    lines = ["| head dim | mask | s | b | h | kgen " + name + " | " + " | ".join(f"{s} (ratio)" for s in sides) + " | to the fastest |"]
    lines.append("|" + "---|" * (7 + len(sides)))
    for row in rows:
        cells = [row["head_dim"], "causal" if row["causal"] else "full", row["seqlen"], row["batch"], row["heads"]]
        value = lambda side: f"{row['kernels'][side][unit]:.{digits}f}" if side in row["kernels"] else "–"
        cells.append(value("kgen") if "kgen" in row["kernels"] else row.get("skipped", "–"))
        for side in sides:
            cells.append(f"{value(side)} ({cell(row['ratios'][side])})" if side in row.get("ratios", {}) else value(side))
        fastest = row.get("fastest")
        cells.append(f"{fastest} {cell(row['ratios'][fastest])}" if fastest else "–")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def markdown_geomeans(means):
    """The table of geometric means: a row a side, a column a head dim."""
    if not means:
        return "No point has both kgen and a peer."
    dims = sorted({d for side in means.values() for d in side["by_head_dim"]})
    lines = ["| ratio of kgen to | all | " + " | ".join(f"d{d}" for d in dims) + " | lowest | wins |", "|" + "---|" * (4 + len(dims))]
    for side, mean in means.items():
        by_dim = [f"{mean['by_head_dim'][d]:.3f}" if d in mean["by_head_dim"] else "–" for d in dims]
        lowest = f"{mean['lowest']['ratio']:.3f} at {mean['lowest']['point']}"
        cells = [side, f"**{mean['all']:.3f}**", *by_dim, lowest, f"{mean['wins']} of {mean['points']}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
