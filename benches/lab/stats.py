"""Statistics of the times of rounds. Needs only Python."""

import math
import random
import statistics

DRAWS = 2000  # bootstrap samples: each end of a 95 % interval is then 50 samples from the extreme


def interval(values, draws=DRAWS, seed=0):
    """95 % bootstrap interval of the median: percentiles 2.5 and 97.5 of the medians of resamples (Efron, 1979)."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(draws))
    return [medians[draws // 40], medians[draws - 1 - draws // 40]]


def percentile(values, at):
    """The value below which a fraction `at` (0 to 1) of the values is, with linear interpolation."""
    ordered = sorted(values)
    place = at * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(values):
    """The statistics of `kgen bench`, by the same names. Refuses empty lists and NaN."""
    if not values or any(math.isnan(value) for value in values):
        raise ValueError(f"no statistics of {len(values)} values" + (", of which some are NaN" if values else ""))
    middle = statistics.median(values)
    return {
        "median": middle, "mad": statistics.median(abs(value - middle) for value in values),
        "interval": interval(values),
        "n": len(values), "mean": statistics.fmean(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else 0.0, "min": min(values), "max": max(values),
        "p95": percentile(values, 0.95), "p99": percentile(values, 0.99),
    }


def ratio(times, base):
    """Summary of times / base, round by round: above 1 if `base` is faster."""
    return summary([other / own for other, own in zip(times, base, strict=True)])


def verdict(found):
    """`win` of the base if the whole interval of its ratio is above 1, `loss` if below, otherwise `tie`."""
    low, high = found["interval"]
    return "win" if low > 1 else "loss" if high < 1 else "tie"


def geomean(values):
    """Geometric mean; None for an empty list."""
    values = list(values)
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def spread(values):
    """Mean, median, 95th percentile and maximum of fractions, as text in per cent."""
    if not values:
        return "none"
    parts = (statistics.fmean(values), statistics.median(values), percentile(values, 0.95), max(values))
    return "mean {:.2f} %, median {:.2f} %, 95th percentile {:.1f} %, worst {:.1f} %".format(
        *(100 * part for part in parts))
