"""One run of a bench: common arguments, points that are verified and timed, rows, progress, and tables at the end."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import record, stats, timing
from .peers import first_line, found as made_of

NAN = float("nan")


def parser(doc, rounds=7, round_ms=6.0, library="build/lib/libkgen.so", gpu=True, peers=(), **shapes):
    """The arguments common to all benches; `library` None omits --library. `peers` are the names among `site`, `fa3`
    and `fa4` that locate a peer, `shapes` default lists of sizes, such as `head_dim`."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", metavar="FILE", help="rows of JSON Lines, written as they are found")
    made.add_argument("--only", action="append", default=[], metavar="TEXT",
        help="cases whose names hold this; may be repeated")
    made.add_argument("--quick", action="store_true", help="a few cases and rounds, to see that all runs")
    made.add_argument("--limit-s", type=float, default=float("inf"), help="no case is begun after so many seconds")
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--round-ms", type=float, default=round_ms, help="milliseconds of each contender in each round")
    made.add_argument("--graph-below-ms", type=float, default=1, help="shorter calls are timed as replays of graphs")
    made.add_argument("--seed", type=int, default=1)
    if library:
        text = "a libkgen.so; more are timed beside the first"
        made.add_argument("--library", action="append", metavar="[NAME=]FILE", help=f"{text} ({library})")
    places = {
        "site": {"default": os.environ.get("PEERS_SITE"),
            "help": "folder with the unpacked wheel fa3-fwd (PEERS_SITE)"},
        "fa3": {"metavar": "FILE", "help": "_vllm_fa3_C.abi3.so out of vLLM's wheel"},
        "fa4": {"metavar": "FOLDER", "help": "where FlashAttention-4 and CuTe DSL are unpacked"},
    }
    for place in peers:
        made.add_argument(f"--{place}", **places[place])
    for name, default in shapes.items():
        made.add_argument(f"--{name.replace('_', '-')}", type=int, nargs="+", default=default)
    made.set_defaults(gpu=gpu, default_library=library)
    return made


def named(entries):
    """{name: path} of `NAME=PATH` and `PATH`; unnamed ones are called `kgen`, `kgen 2` and so on."""
    result = {}
    for place, entry in enumerate(entries, 1):
        name, _, path = entry.rpartition("=")
        result[name or ("kgen" if place == 1 else f"kgen {place}")] = path
    return result


@dataclass
class Contender:
    """One way to do a point's work: a call for each copy of its inputs. The last call is judged, by the tensors `out`
    that it writes, which are filled with NaN before, or by its return value. `own`: kgen's, whose errors make the
    bench fail."""

    calls: Callable | list
    out: object = None
    own: bool = False
    judge: Callable | None = None
    allowed: float | None = None
    bytes: float | None = None
    timed: bool = True
    details: dict = field(default_factory=dict)

    def __post_init__(self):
        self.calls = list(self.calls) if isinstance(self.calls, (list, tuple)) else [self.calls]

    def tensors(self):
        return self.out if isinstance(self.out, (list, tuple)) else [] if self.out is None else [self.out]

    def poison(self):
        for tensor in self.tensors():
            tensor.fill_(NAN if tensor.is_floating_point() else 0)

    def error(self, judge, run=True):
        """The relative error of the outputs; NaN if an element that must be written is NaN."""
        if run:
            self.poison()
            returned = self.calls[-1]()
        timing.torch.cuda.synchronize()
        result = returned if self.out is None else self.out
        if any(t.is_floating_point() and bool(t.isnan().any()) for t in self.tensors()):
            return NAN
        return (self.judge or judge)(result)


class Bench:
    """The results of a run. `Bench(parser(__doc__).parse_args())`."""

    def __init__(self, args, **facts):
        self.args, self.name, self.begun = args, Path(sys.argv[0]).stem, time.monotonic()
        self.points, self.failed, self.libraries, self.noted = [], 0, {}, set()
        if args.quick:
            args.rounds, args.round_ms = min(args.rounds, 3), min(args.round_ms, 3)
        if args.gpu:
            timing.GRAPH_BELOW_US = 1e3 * args.graph_below_ms
            timing.torch.manual_seed(args.seed)
            timing.torch.set_grad_enabled(False)
        if getattr(args, "default_library", None) and args.gpu:
            from .kgen import Library

            facts["libraries"] = named(args.library or [args.default_library])
            self.libraries = {name: Library(path) for name, path in facts["libraries"].items()}
        self.run = record.circumstances(args.gpu, seed=args.seed, rounds=args.rounds, round_ms=args.round_ms, **facts)
        self.writer = record.Writer(args.out)
        gpu = self.run["gpu"]
        self.head = f"{gpu['name']}, driver {self.run['driver']}, torch {self.run['torch']}, " if gpu else ""
        self.head += f"kgen {self.run['kgen']} at {self.run['commit']}, {self.run['date']}"
        self.note(self.head)

    @property
    def library(self):
        return next(iter(self.libraries.values()))

    def note(self, message):
        """Prints a message on standard error, once."""
        if message not in self.noted:
            self.noted.add(message)
            print(f"# {message}", file=sys.stderr, flush=True)

    def selected(self, cases, name=lambda case: case[0], quick=2):
        """The cases that --only, --quick (the first `quick`) and --limit-s keep."""
        cases = list(cases)
        kept = [case for case in cases if not self.args.only or any(text in name(case) for text in self.args.only)]
        if not kept:
            sys.exit(f"{self.name}.py: no case has such a name; they are:\n" + "\n".join(map(name, cases)))
        kept = kept[:quick] if self.args.quick else kept
        for place, case in enumerate(kept):
            if time.monotonic() - self.begun > self.args.limit_s:
                self.note(
                    f"--limit-s is over: {len(kept) - place} of {len(kept)} cases are left out, from {name(case)} on")
                return
            yield case
            if self.args.gpu:
                timing.torch.cuda.empty_cache()

    def add(self, case, contender, status="ok", message="", numbers=None, own=True, shape=None, dtype=None, layout=None,
            card=None, details=None):
        """Writes a row."""
        row = {
            "format": record.FORMAT, "bench": self.name, "case": case, "contender": contender, "own": own,
            "shape": shape or {}, "dtype": dtype,
            "layout": layout, "status": status, "message": message, "numbers": numbers, "card": card or {},
            "details": details or {}, "run": self.run,
        }
        if status not in ("ok", "absent"):
            self.note(f"{case}: {contender} {status}: {message}")
            self.failed += own
        self.points.append(self.writer.write(row))
        return row

    def peers(self, makers):
        """The peers created by {name: function or None}; rows give the reason for those that this machine lacks."""
        there, absent = made_of(makers)
        for peer, reason in absent.items():
            self.note(reason)
            self.add("", peer, "absent", reason, own=False)
        return there

    def host(self, what, call, number=10000, rounds=9, timer=time.process_time, contender="kgen", settle=lambda: None,
            **more):
        """Times a call on the host: rounds of `number` calls by a clock, each followed by an untimed `settle`. The
        fastest round counts."""
        number, rounds = (max(1, number // 20), 3) if self.args.quick else (number, rounds)
        call()
        times = []
        for _ in range(rounds):
            settle()
            begun = timer()
            for _ in range(number):
                call()
            times.append((timer() - begun) / number * 1e6)
        self.clocked(what, times, number, contender, **more)

    def clocked(self, what, times, number=1, contender="kgen", **more):
        """Records microseconds, by round, of calls that were timed on the host."""
        found = stats.summary(times)
        numbers = {"microseconds": found, "round_microseconds": times, "launches_a_round": number, "repeated": "host",
            "l2": None}
        self.add(what, contender, numbers=numbers, **more)
        print(f"{what:60} {found['min']:10.2f} us (median {found['median']:.2f})", flush=True)

    def _prove(self, name, contender, judge, allowed, graph, run=True):
        """(status, message, error, timer) of a contender before it is timed."""
        limit = allowed if contender.allowed is None else contender.allowed
        try:
            error = contender.error(judge, run)
            if not error <= limit:
                when = "" if run else ", after it was timed"
                return "wrong", f"relative error {error:.3g}, allowed {limit:.3g}{when}", error, None
            if not run or not contender.timed:
                return "ok", "", error, None
            try:
                return "ok", "", error, timing.Timer(contender.calls, graph, self.args.round_ms)
            except RuntimeError as why:
                if contender.own or graph is False:
                    raise
                timing.torch.cuda.synchronize()
                timer = timing.Timer(contender.calls, False, self.args.round_ms)
                return "ok", f"launched, since it cannot be captured in a graph: {first_line(why)}", error, timer
        except Exception as why:  # a peer's refusal, of any kind, is not a failure of the bench
            return "error" if contender.own else "refused", first_line(why), NAN, None

    def _numbers(self, contender, error, limit, timer, times, flops, moved, rate, formula, l2, dtype):
        """The numbers of a row, and the reason if they are impossible."""
        found = stats.summary(times)
        moved = moved if contender.bytes is None else contender.bytes
        numbers = {
            "microseconds": found, "round_microseconds": times, "launches_a_round": timer.runs * timer.calls,
            "repeated": timer.repeated,
            "l2": l2, "relative_error": error, "allowed_error": limit, "flops": flops, "bytes": moved,
        }
        ceiling, refusal = self.run["ceiling"], ""
        for key, work, scale, peak in (
            ("tflops", flops, 1e6, ceiling.get("tflops_fp8" if dtype == "fp8" else "tflops_16_bit")),
            ("gbs", moved, 1e3, ceiling.get("memory_gbs") if l2 == "cold" else None),
        ):
            if work:
                numbers[key] = work / found["median"] / scale
                numbers[f"{key}_interval"] = [work / us / scale for us in reversed(found["interval"])]
                if peak and numbers[key] > peak:
                    refusal = f"{numbers[key]:.0f} {key} is beyond this card's {peak:.0f}: the measurement is wrong"
        key = rate or ("tflops" if flops else "gbs")
        numbers |= {"rate": numbers.get(key), "unit": {"tflops": "TFLOP/s", "gbs": "GB/s"}[key], "formula": formula}
        return numbers, refusal

    def point(self, case, shape, contenders, *, judge, allowed, dtype, layout="bshd", flops=None, moved=None, rate=None,
            formula="",
              l2="warm", graph=None, base=None, details=None):
        """Verifies {name: Contender}, times the correct ones in interleaved rounds, judges again the outputs of the
        timed calls, and writes a row for each. `flops` and `moved` (bytes) are per call, `formula` describes them.
        Ratios are times / the time of `base`, kgen's first, so above 1 if `base` is faster. Returns {name: row}."""
        rows, timers, errors, card = {}, {}, {}, {}
        common = {"shape": shape, "dtype": dtype, "layout": layout}
        more = lambda name: {**common, "own": contenders[name].own,
            "details": {**(details or {}), **contenders[name].details}, "card": card}
        messages = {}
        for name, contender in contenders.items():
            status, messages[name], errors[name], timer = self._prove(name, contender, judge, allowed, graph)
            if timer is None:
                limit = allowed if contender.allowed is None else contender.allowed
                numbers = {"relative_error": errors[name], "allowed_error": limit} if status == "ok" else None
                rows[name] = self.add(case, name, status, messages[name], numbers, **more(name))
            else:
                timers[name], graph = timer, (timer.repeated == "graph" if graph is None else graph)
        for name in timers:
            contenders[name].poison()  # values found afterwards were written by timed calls
        times = timing.race(timers, self.args.rounds)
        card |= record.card_state() if timers else {}
        if base not in timers:
            base = next((name for name in timers if contenders[name].own), next(iter(timers), None))
        for name, timer in timers.items():
            contender, message = contenders[name], messages[name]
            limit = allowed if contender.allowed is None else contender.allowed
            status = "ok"
            if contender.out is not None:
                status, why, _, _ = self._prove(name, contender, judge, allowed, graph, run=False)
                message = why or message
            numbers, refusal = self._numbers(contender, errors[name], limit, timer, times[name], flops, moved, rate,
                formula, l2, dtype)
            ratio = stats.ratio(times[name], times[base])
            numbers["ratio"] = {"to": base, "verdict": stats.verdict(ratio), **ratio}
            status, message = ("refused", refusal) if refusal else (status, message)
            rows[name] = self.add(case, name, status, message, numbers if status == "ok" else None, **more(name))
        print(f"# {case}: " + "; ".join(f"{name} {cell(row)}" for name, row in rows.items()), file=sys.stderr,
            flush=True)
        return rows

    def finish(self, group="head_dim", tables=True):
        """Prints the tables, and returns the exit code: 1 if any result of kgen was wrong."""
        if tables:
            print(f"{self.head}; {self.args.rounds} rounds of {self.args.round_ms:g} ms\n\n{table(self.points)}")
            if means := geomeans(self.points, group):
                print(f"\n{means}")
        print(f"\n{len(by_case(self.points))} cases, {self.failed} wrong, {time.monotonic() - self.begun:.0f} s")
        return 1 if self.failed else 0


def rate_of(row):
    numbers = row["numbers"]
    if "microseconds" not in numbers:
        return "right"
    rate = f" {numbers['rate']:.0f} {numbers['unit']}" if numbers.get("rate") else ""
    return f"{numbers['microseconds']['median']:.2f} us{rate}"


def cell(row):
    """`12.34 us 567 TFLOP/s (1.214 [1.208, 1.219])`, or the status."""
    if row["numbers"] is None:
        return row["status"]
    ratio = row["numbers"].get("ratio")
    if not ratio or ratio["to"] == row["contender"]:
        return rate_of(row)
    low, high = ratio["interval"]
    return f"{rate_of(row)} ({ratio['median']:.3f} [{low:.3f}, {high:.3f}])"


def by_case(rows):
    """{case: {contender: row}}"""
    cases = {}
    for row in rows:
        if row["status"] != "absent":
            cases.setdefault(row["case"], {})[row["contender"]] = row
    return cases


def fastest(found):
    """The fastest peer in {contender: row}; None if no peer was timed."""
    timed = [row for row in found.values() if row["numbers"] and not row["own"] and row["numbers"].get("ratio")]
    return min(timed, key=lambda row: row["numbers"]["microseconds"]["median"], default=None)


def table(rows):
    """Markdown: one row per case, one column per contender; in brackets its time / the base's, with the 95 %
    interval."""
    cases = by_case(rows)
    rows = [row for found in cases.values() for row in found.values()]
    names = dict.fromkeys(row["contender"] for row in sorted(rows, key=lambda row: not row["own"]))
    lines = ["| case | " + " | ".join(names) + " | fastest peer |", "|" + "---|" * (len(names) + 2)]
    for case, found in cases.items():
        peer = fastest(found)
        cells = [cell(found[name]) if name in found else "–" for name in names]
        lines.append("| " + " | ".join([case, *cells, peer["contender"] if peer else "–"]) + " |")
    return "\n".join(lines)


def geomeans(rows, group):
    """Markdown: for each contender the geometric means of its ratios, over all cases and by a size of the shape or a
    detail, and the base's wins, ties and losses; `fastest peer` is the fastest one of each case."""
    ratios = {}
    for found in by_case(rows).values():
        peer = fastest(found)
        for name, row in [*found.items(), *([("fastest peer", peer)] if peer else [])]:
            if row["numbers"] and row["numbers"].get("ratio") and row["numbers"]["ratio"]["to"] != row["contender"]:
                ratios.setdefault(name, []).append(row)
    if not ratios:
        return ""
    part = lambda row: {**row["details"], **row["shape"]}.get(group)
    groups = sorted({part(row) for found in ratios.values() for row in found} - {None})
    head = ["time / base's", "all", *(f"{group} {value}" for value in groups), "least", "base wins, ties, losses"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, found in ratios.items():
        median = lambda row: row["numbers"]["ratio"]["median"]
        means = [stats.geomean(median(row) for row in found if part(row) == value) for value in groups]
        least, verdicts = min(found, key=median), [row["numbers"]["ratio"]["verdict"] for row in found]
        cells = [name, f"**{stats.geomean(map(median, found)):.3f}**",
            *(f"{mean:.3f}" if mean else "–" for mean in means)]
        cells += [f"{median(least):.3f} at {least['case']}",
            ", ".join(str(verdicts.count(word)) for word in ("win", "tie", "loss"))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
