"""The dispatcher's choices: how much slower they are than the best path, and constants of its model that fit better.

    python3 benches/dispatch.py regret --library build/lib/libkgen.so --out regret.jsonl
    python3 benches/dispatch.py fit regret.jsonl
"""

import math
import random
import statistics
import time

from lab import Contender, attention, main, record, suite
from lab.kgen import (
    DTYPE_NUMBERS, FLAG_CAUSAL, FLAG_PATHS, PARTS, PATHS, FwdParams, fwd_params, made, packed_params,
)
from lab.stats import spread

try:
    import torch
except ImportError:
    torch = None

MOST_BYTES = 6 << 30  # for tensors and for a workspace
MOST_FLOPS = 6e11
KERNELS = {"dense": "dense", "packed": "packed", "short": "short", "split": "split", "scheduled": "split"}
# Name of a factor, and the constant that it scales.
FACTORS = {
    f"{kernel}.{part}": f"{part}_{'ns' if part == 'launch' else 'cycles'} of KernelCost::{functions}"
    for kernel, functions in (("dense", "hopper or portable"), ("packed", "hopper, of `packgqa`"), ("short", "short"),
        ("split", "split"))
    for part in ("launch", "tile", "chain", "step")
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


def possible(row):
    """The candidates that the dispatcher reports as possible."""
    return [c for c in row["candidates"] if c["excluded"] is None]


def able(row):
    """The possible candidates that were timed."""
    return [c for c in possible(row) if c["us"] is not None]


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
    """The regret of the dispatcher's own choice."""
    return row[key] / best_us(row) - 1


def label(candidate):
    counted = candidate["path"] in ("split", "scheduled") or candidate["splits"] > 1
    return candidate["path"] + (f" {candidate['splits']}" if counted else "")


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


def best_factors(rows):
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
        for place, factors in enumerate((best_factors(others), {})):
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
    factors = best_factors(rows)
    lines += ["", "| factor | constant | multiply by |", "|---|---|---|"]
    lines += [f"| {name} | {constant} | {factors[name]:.3f} |" for name, constant in FACTORS.items()]
    return "\n".join(lines)


def told(candidate):
    """A `kgen_candidate` as details of a row."""
    text = lambda words: words and words.decode()
    return {"path": PATHS[candidate.path].lower(), "splits": candidate.num_splits, "variant": text(candidate.variant),
        "excluded": text(candidate.excluded), **{part: getattr(candidate, f"{part}_ns") for part in PARTS}}


def lengths_fields(shape, of_lengths):
    """The fields for the lengths of padded sequences: `of_lengths` gives a tensor or an address."""
    if not shape["lengths"]:
        return {}
    used = {f"seqused_{side}": of_lengths(x) for side, x in zip("qk", shape["lengths"]) if min(x) < max(x)}
    return {**used, "total_k": sum(shape["lengths"][1]) if shape["told"] else 0}


def asked(shape):
    """The parameters of a recorded shape; addresses are invented, since they are never dereferenced."""
    somewhere, packed, dim = 1 << 20, is_packed(shape), shape["head_dim"]
    fields = {"batch": shape["batch"], "seqlen_q": shape["queries"], "seqlen_k": shape["keys"],
        "num_heads": shape["heads"], "num_heads_k": shape["heads_k"], "head_dim": dim,
        "dtype": DTYPE_NUMBERS[shape["dtype"]], "softmax_scale": dim**-0.5, "workspace": somewhere,
        "workspace_bytes": 1 << 62}
    for name, heads, rows in (("q", "heads", "queries"), ("k", "heads_k", "keys"), ("v", "heads_k", "keys"),
            ("o", "heads", "queries")):
        row = shape[heads] * dim
        fields |= {name: somewhere, f"{name}_row_stride": row, f"{name}_head_stride": dim,
            f"{name}_batch_stride": 0 if packed else shape[rows] * row}
    if packed:
        fields |= {"cu_seqlens_q": somewhere, "cu_seqlens_k": somewhere,
            **dict(zip(("total_q", "total_k"), map(sum, shape["lengths"])))}
    else:
        fields |= lengths_fields(shape, lambda _: somewhere)
    return made(FwdParams, FLAG_CAUSAL if shape["causal"] else 0, **fields)


def predicted_anew(rows, library):
    """The rows with a library's predictions and choices; shapes whose choice was not timed are dropped, and their names
    returned second."""
    kept, untimed = [], []
    for row in rows:
        found, chosen = library.explain(asked(row["shape"]))
        if chosen is None:
            raise SystemExit(f"`{library.path}` does not serve {row['name']}: {library.last_error()}")
        key = lambda c: (c["path"], c["variant"], c["splits"])
        times = {key(c): c["us"] for c in row["candidates"]}
        candidates = [{**c, "us": times.get(key(c))} for c in map(told, found)]
        if candidates[chosen]["us"] is None:
            untimed.append(f"{row['name']}: {label(candidates[chosen])}")
        else:
            kept.append({**row, "candidates": candidates, "chosen": chosen, "own_us": candidates[chosen]["us"]})
    return kept, untimed


@suite(tables=False, gpu=False, library="", positional=["data"], path=("", *sorted(KERNELS)),
    without={"action": "append", "default": [], "metavar": "TEXT"})
def fit(bench):
    """Evaluates rows of `regret`: the regret, and factors by which the constants of the model should change.

    python3 benches/dispatch.py fit regret.jsonl [--library build/lib/libkgen.so]

    A prediction is launch + tile + the longest of chain, step and memory and a part of the others + combine + scheduler
    (docs/dispatch.md), and every part depends on a number in src/family/attention/cost (chain and step include the
    tiles after a block's first as well, which are scaled with them). So the raw data suffice to estimate the
    predictions and choices of other constants: factors on them are optimised, one after another, for the logarithms of
    the times. An error counts quadratically up to a quarter and linearly beyond, so that one shape that the model does
    not describe has little weight, and a factor stays near 1 unless the times require another, always between 1/2 and
    2. The factors are evaluated on shapes excluded from the fit, a fifth at a time, and printed only if they are better
    there than today's constants, in time and in regret. Needs only Python.

    With --library the predictions and choices come from another library's `kgen_explain_choice`, on a GPU like the one
    of the data, and the times are the recorded ones: the regret of a changed model, from recorded times of forced
    paths. Nothing is launched. --path keeps shapes of which a path of this kind was timed, --without leaves out shapes
    whose name contains this."""
    args, data = bench.args, record.read(bench.args.data)
    run = data[0]["run"]
    rows = [row for row in of_rows(data) if not args.path or any(c["path"] == args.path for c in able(row))]
    rows = [row for row in rows if not any(text in row["name"] for text in args.without)]
    print(f"{run['gpu']['name']}, torch {run['torch']}, seed {run['seed']}, {len(rows)} shapes\n")
    if args.library and rows:
        rows, untimed = predicted_anew(rows, bench.library)
        print(f"Choices of {bench.library.path} by the recorded times; {len(untimed)} were not timed:")
        print("\n".join([*(f"* {name}" for name in untimed), ""]))
    if not rows:
        return "fit: no shape is left"
    print(summary(rows))
    print(fitted(rows))


def power(draw, least, most):
    """A random number whose logarithm is uniformly distributed."""
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))


def draw_shape(draw, head_dims, dtype):
    """A request; lengths of the sequences are equal, or random with a maximum of `queries` or `keys`."""
    style = draw.choice(["decode", "decode", "prefill", "prefill", "chunk", "any"])
    heads_k = draw.choice([1, 2, 4, 8, 8, 12, 16, 32])
    heads = min(64, heads_k * draw.choice([1, 1, 2, 4, 8]))
    heads -= heads % heads_k
    batch = draw.choice([1, 1, 2, power(draw, 1, 64)])
    if style == "decode":
        queries, keys = draw.choice([1, 1, 1, 2, 4, 8, 16]), power(draw, 64, 65536)
    elif style == "prefill":
        queries = keys = power(draw, 32, 16384)
    elif style == "chunk":
        queries, keys = power(draw, 16, 1024), power(draw, 512, 32768)
        keys = max(keys, queries)
    else:
        queries, keys = power(draw, 1, 16384), power(draw, 16, 16384)
    shape = {
        "style": style, "batch": batch, "heads": heads, "heads_k": heads_k, "queries": queries, "keys": keys,
        "head_dim": draw.choice(head_dims), "dtype": dtype, "causal": draw.random() < 0.5, "lengths": None,
    }
    if batch > 1 and draw.random() < 0.35:
        part = lambda longest, skew: [max(1, round(longest * draw.random() ** skew))
            for _ in range(batch - 1)] + [longest]
        skew = draw.choice([1, 1, 3])  # 3: one long sequence among many short ones
        lengths_k = part(keys, skew)
        if style == "prefill":
            lengths_q = lengths_k
        else:
            lengths_q = [queries] * batch if queries <= 16 else part(queries, 1)
        # A KV cache is padded, a prefill packed. `told` is true if the caller passes the total number of keys.
        shape |= {"lengths": [lengths_q, lengths_k], "packed": style != "decode"}
        shape["told"] = shape["packed"] or draw.random() < 0.5
    return shape


def sizes(shape):
    """Total rows of Q and of K."""
    if is_packed(shape):
        return sum(shape["lengths"][0]), sum(shape["lengths"][1])
    return shape["batch"] * shape["queries"], shape["batch"] * shape["keys"]


def is_feasible(shape):
    rows_q, rows_k = sizes(shape)
    bytes_in_all = 4 * shape["head_dim"] * (rows_q * shape["heads"] + rows_k * shape["heads_k"])
    pairs = shape["batch"] * shape["queries"] * shape["keys"]
    pairs = sum(q * k for q, k in zip(*shape["lengths"])) if shape["lengths"] else pairs
    return bytes_in_all <= MOST_BYTES and 4 * pairs * shape["heads"] * shape["head_dim"] <= MOST_FLOPS


def name_of(shape):
    lengths = "" if not shape["lengths"] else " packed" if shape["packed"] else " padded"
    words = "b{batch} h{heads}/{heads_k} q{queries} k{keys} d{head_dim}".format(**shape)
    return f"{words} {attention.mask(shape['causal'])}{lengths}"


class Request:
    """Tensors of a shape, K and V in several copies, and calls to `kgen_fwd` on them."""

    def __init__(self, shape, copies):
        (rows_q, rows_k), self.shape, self.packed = sizes(shape), shape, is_packed(shape)
        dims = lambda rows, length: (rows,) if self.packed else (shape["batch"], length)
        make = lambda rows, length, heads: attention.normal(*dims(rows, length), heads, shape["head_dim"],
            dtype=shape["dtype"])
        self.q = make(rows_q, shape["queries"], shape["heads"])
        kv_bytes = 4 * rows_k * shape["heads_k"] * shape["head_dim"]
        count = max(1, min(copies, (256 << 20) // max(1, kv_bytes)))
        self.l2 = "cold" if count * kv_bytes > torch.cuda.get_device_properties(0).L2_cache_size else "warm"
        self.kv = [[make(rows_k, shape["keys"], shape["heads_k"]) for _ in "kv"] for _ in range(count)]
        self.o = torch.empty_like(self.q)
        lse = (shape["heads"], rows_q) if self.packed else (shape["batch"], shape["heads"], shape["queries"])
        self.lse, self.reference = torch.empty(lse, device="cuda"), None

    def params(self, kv, **forced):
        shape, numbers = self.shape, lambda values: torch.tensor(values, dtype=torch.int32, device="cuda")
        tensors = (self.q, *kv, self.o, self.lse, shape["causal"])
        if self.packed:
            starts = [numbers([0, *lengths]).cumsum(0, dtype=torch.int32) for lengths in shape["lengths"]]
            return packed_params(*tensors, *shape["lengths"], starts[0], cu_seqlens_k=starts[1], **forced)
        return fwd_params(*tensors, **lengths_fields(shape, numbers), **forced)

    def contender(self, library, details={}, launcher="kgen_fwd", **forced):
        all_params = [self.params(kv, **forced) for kv in self.kv]
        size = library.workspace_bytes(all_params[0])
        if size > MOST_BYTES:
            raise MemoryError(f"{size} bytes of workspace")
        return Contender([library.call(launcher, p) for p in all_params], own=True, details=details)

    def judge(self, _):
        """The largest difference of O to the first path's, by its largest element or 1; of padded sequences, only their
        own rows count."""
        o = self.o.float()
        if self.shape["lengths"] and not self.packed:
            o = torch.cat([o[b, :length] for b, length in enumerate(self.shape["lengths"][0])])
        self.reference = o.clone() if self.reference is None else self.reference
        far = (o - self.reference).abs().max().item() / max(1.0, self.reference.abs().max().item())
        self.o.fill_(float("nan"))  # for the next path
        return far


def measure(bench, shape, library, old):
    """Times a shape, and returns its rows, which `of_rows` reads."""
    request, name, contenders = Request(shape, bench.args.copies), name_of(shape), {}
    asked_for = request.params(request.kv[0], workspace=256, workspace_bytes=1 << 62)  # never dereferenced
    candidates, chosen = library.explain(asked_for)
    if chosen is None:
        raise SystemExit(f"{name}: {library.last_error()}")
    same = {"causal": int(shape["causal"]), "seqlen_q": shape["queries"], "seqlen_k": shape["keys"],
        **{key: shape[key] for key in ("batch", "heads", "heads_k", "head_dim")}}
    rows, always = [], ["own", "old"]
    for place, c in enumerate(map(told, candidates)):
        details, way = {"request": shape, **c, "chosen": place == chosen}, label(c)
        way += f", candidate {place}" if way in contenders else ""
        whole = c["path"] == "dense" and c["splits"] <= 1
        forced = {"num_splits": max(1, c["splits"]), "flags": FLAG_PATHS[c["path"].upper()]}
        try:
            if not c["excluded"]:
                # A flag forces the path; of its tiles, the dispatcher would then take one. Dense kernels are launched.
                contenders[way] = request.contender(library, details, c["variant"]) if whole else \
                    request.contender(library, details, **forced)
        except (MemoryError, torch.cuda.OutOfMemoryError) as error:
            details["excluded"] = str(error).splitlines()[0]
        always += [way] if place == chosen else []
        if details["excluded"]:
            rows.append(bench.add(name, way, "absent", f"excluded: {details['excluded']}", shape=same,
                dtype=shape["dtype"], details=details))
    contenders["own"] = request.contender(library, {"request": shape})
    if old:
        contenders["old"] = request.contender(old, {"request": shape})
    request.o.fill_(float("nan"))
    found = bench.point(name, same, contenders, judge=request.judge, dtype=shape["dtype"], layout=None, l2=request.l2,
        graph=True, base="own", near=(1.2, always))
    if bench.failed:
        raise SystemExit(f"{name}: O of two paths differs")
    return rows + list(found.values())


def head_dims_of(library, dtype):
    """Head dims for which the library has forward kernels for both masks; by name, sm80's and sm90's."""
    holds = lambda d, causal, target: library.holds(attention.kernel_name("fwd", d, dtype, causal, target))
    return [d for d in range(16, 257, 8) if any(holds(d, False, t) and holds(d, True, t) for t in ("sm80", "sm90"))]


@suite(tables=False, round_ms=1.5, head_dim=[], shapes=200, dtype=("fp16", "bf16"), copies=8, minutes=9.0, fit=False,
    seed=11)
def regret(bench):
    """The slowdown of the dispatcher's choice relative to the best of its paths, over random shapes.

    python3 benches/dispatch.py regret --library build/lib/libkgen.so --library old=before/lib/libkgen.so \\
        --out regret.jsonl --fit

    Shapes are drawn from a seed, for --minutes: decoding steps, prefills and shapes in between, with and without a
    causal mask, query heads in groups, and sequences that differ in length. For each, every path that
    `kgen_explain_choice` reports as possible is forced by a flag and timed, each split count and each dense kernel
    separately, and so is the dispatcher's own choice, with the workspace that it requests. A second library's
    dispatcher is timed in the same rounds. regret = time of the dispatcher / time of the fastest forced path - 1.

    Calls are graph replays; all are timed in one round, and those within a fifth of the best in all. They rotate
    through --copies of K and V, up to 8 and 256 MB: L2 is cold for large K and V and warm for small ones, as in a
    model. O of every path is compared with the first path's. A row is a forced path (`split 4`), the dispatcher (`own`)
    or the other library's dispatcher (`old`); its details contain the request and the prediction's parts. `fit`
    evaluates the rows, and fits the model's constants to them; --fit does so directly."""
    args, (library, old) = bench.args, [*bench.libraries.values(), None][:2]
    head_dims = args.head_dim or head_dims_of(library, args.dtype)
    if not head_dims:
        return f"{library.path} holds no forward kernels of {args.dtype} for both masks"
    draw, found, begun = random.Random(args.seed), [], time.monotonic()
    while len(found) < (6 if args.quick else args.shapes) and time.monotonic() - begun < 60 * args.minutes:
        shape = draw_shape(draw, head_dims, args.dtype)
        if is_feasible(shape):
            found += of_rows(measure(bench, shape, library, old))
            print(line_of(found[-1]), flush=True)
            torch.cuda.empty_cache()
    print(f"\n{bench.head}, seed {args.seed}, {len(found)} shapes in {time.monotonic() - begun:.0f} s\n")
    print(summary(found))
    for name, lib in (("own", library), ("old", old)):
        if lib:  # `settle` waits for the GPU after each round
            call = Request(found[0]["shape"], 1).contender(lib).calls[0]
            bench.host(f"a call on the host, {name}", call, 1, 300, time.perf_counter, settle=torch.cuda.synchronize)
    if args.fit:
        print(fitted(found))


if __name__ == "__main__":
    main(__doc__)
