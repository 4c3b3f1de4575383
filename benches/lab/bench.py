"""One run of a suite: its arguments, points that are verified and timed, rows, progress, and tables at the end."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from . import record, stats, timing
from .peers import MAKERS, first_line, found as made_of

NAN = float("nan")
SUITES = {}  # by name: the function, the options of its command, and how the suite ends
PLACES = {
    "site": {"default": os.environ.get("PEERS_SITE"), "help": "folder with the unpacked wheel fa3-fwd (PEERS_SITE)"},
    "fa3": {"metavar": "FILE", "help": "_vllm_fa3_C.abi3.so out of vLLM's wheel",
        "default": os.environ.get("PEERS") and os.path.join(os.environ["PEERS"], "_vllm_fa3_C.abi3.so")},
    "fa4": {"metavar": "FOLDER", "help": "where FlashAttention-4 and CuTe DSL are unpacked"},
}


def suite(group="head_dim", tables=True, **options):
    """A decorator that makes a function of a `Bench` a command of its file. `options` are those of `arguments`; `group`
    is the size by which the geometric means are grouped, `tables` whether there are tables at the end."""
    def keep(function):
        if function.__module__ == "__main__":  # not those of a file that is only imported
            SUITES[function.__name__] = function, options, group, tables
        return function
    return keep


def main(doc):
    """Runs the suite that the command line names; a file's only one also without its name."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = made.add_subparsers(dest="suite", required=True) if len(SUITES) > 1 else None
    for name, (function, options, _, _) in SUITES.items():
        text = function.__doc__ or doc
        to = names.add_parser(name, help=text.splitlines()[0], description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter) if names else made
        arguments(to, **options)
    made.set_defaults(**({} if names else {"suite": next(iter(SUITES))}))
    named = len(sys.argv) > 1 and not names and sys.argv[1] in SUITES
    args = made.parse_args(sys.argv[1 + named:])
    function, _, group, tables = SUITES[args.suite]
    bench = Bench(args)
    complaint = function(bench)
    sys.exit(complaint or bench.finish(group, tables))


def arguments(to, rounds=7, round_ms=6.0, library="build/lib/libkgen.so", gpu=True, places=(), positional=(), seed=1,
        limit_s=float("inf"), **options):
    """Adds the arguments of all suites, and those of one suite, to a parser. `library` None: no --library; "": without
    a default. `places` are names of PLACES. `options` are defaults by name: False is a flag, True a flag --no-NAME, a
    tuple the words to choose from, a list numbers, and a dictionary the arguments of `add_argument`. `gpu` None: if
    there is one."""
    add = to.add_argument
    for name in positional:
        add(name)
    add("--out", metavar="FILE", help="rows of JSON Lines, written as they are found")
    add("--db", metavar="FILE", default=os.environ.get("KGEN_DB"),
        help="the store that `kgen db import` adds the rows to in the end (KGEN_DB)")
    add("--only", action="append", default=[], metavar="TEXT", help="cases whose names hold this; may be repeated")
    add("--quick", action="store_true", help="a few cases and rounds, to see that all runs")
    add("--limit-s", type=float, default=limit_s, help="no case is begun after so many seconds")
    add("--rounds", type=int, default=rounds)
    add("--round-ms", type=float, default=round_ms, help="milliseconds of each contender in each round")
    add("--graph-below-ms", type=float, default=1, help="shorter calls are timed as replays of graphs")
    add("--seed", type=int, default=seed)
    if library is not None:
        text = f"a libkgen.so; more are timed beside the first ({library or 'none'})"
        add("--library", action="append", metavar="[NAME=]FILE", help=text)
    for place in places:
        add(f"--{place}", **PLACES[place])
    for name, default in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, dict):
            add(flag, **default)
        elif isinstance(default, bool):
            add(f"--no-{flag[2:]}" if default else flag, dest=name, action="store_false" if default else "store_true")
        elif isinstance(default, tuple):
            add(flag, choices=default, default=default[0])
        elif isinstance(default, list):
            add(flag, type=int, nargs="+", default=default)
        else:
            add(flag, type=type(default), default=default, help=f"({default})" if default else None)
    to.set_defaults(gpu=gpu, default_library=library)


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
    that it writes, which are filled with NaN before, or by its return value, which counts as a list too. `own`: kgen's,
    whose errors make the bench fail."""

    calls: Callable | list
    out: list | None = None
    own: bool = False
    judge: Callable | None = None
    allowed: float | None = None
    bytes: float | None = None
    timed: bool = True
    details: dict = field(default_factory=dict)

    def __post_init__(self):
        self.calls = list(self.calls) if isinstance(self.calls, (list, tuple)) else [self.calls]

    def poison(self):
        for tensor in self.out or ():
            tensor.fill_(NAN if tensor.is_floating_point() else 0)

    def error(self, judge, run=True):
        """The relative error of the outputs; NaN if an element that must be written is NaN."""
        if run:
            self.poison()
            returned = self.calls[-1]()
        timing.torch.cuda.synchronize()
        result = self.out
        if result is None:
            result = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        if any(t.is_floating_point() and bool(t.isnan().any()) for t in self.out or ()):
            return NAN
        return (self.judge or judge)(result)


def unjudged(_):
    """The error, 0, of an output that is not compared with a reference; it is only tested for NaN."""
    return 0.0


class Bench:
    """The results of a run."""

    def __init__(self, args):
        self.args, self.name, self.begun = args, args.suite, time.monotonic()
        self.points, self.failed, self.libraries, self.noted = [], 0, {}, set()
        if args.quick:
            args.rounds, args.round_ms = min(args.rounds, 3), min(args.round_ms, 3)
        if args.gpu is None:
            args.gpu = timing.torch is not None and timing.torch.cuda.is_available()
        if args.gpu:
            if timing.torch is None:
                sys.exit(f"{self.name}: PyTorch is not installed")
            timing.GRAPH_BELOW_US = 1e3 * args.graph_below_ms
            timing.torch.manual_seed(args.seed)
            timing.torch.set_grad_enabled(False)
        paths = named(getattr(args, "library", None) or filter(None, [args.default_library]))
        if paths and timing.torch is not None:
            from .kgen import Library

            self.libraries = {name: Library(path) for name, path in paths.items()}
        self.kernels = {name: record.kernels(path) for name, path in paths.items()}
        plan = {"rounds": args.rounds, "round_ms": args.round_ms, "graph_below_ms": args.graph_below_ms,
            "warm_up_ms": timing.WARM_UP_MS}
        self.run = record.circumstances(args.gpu, seed=args.seed, plan=plan, libraries=paths)
        self.writer = record.Writer(args.out, args.db)
        gpu = self.run["gpu"]
        self.head = f"{gpu['name']}, driver {self.run['driver']}, torch {self.run['torch']}, " if gpu else ""
        self.head += f"kgen {self.run['kgen']} at {self.run['commit']}, {self.run['date']}"
        self.note(self.head)

    @property
    def library(self):
        return next(iter(self.libraries.values()))

    def holding(self, name):
        """The libraries with a launcher of that name."""
        held = {label: library for label, library in self.libraries.items() if library.holds(name)}
        if not held:
            self.note(f"the library holds no {name}")
        return held

    def note(self, message):
        """Prints a message on standard error, once."""
        if message not in self.noted:
            self.noted.add(message)
            print(f"# {message}", file=sys.stderr, flush=True)

    def selected(self, cases, name=lambda case: case[0], quick=2):
        """The cases that --only, --quick (the first `quick`; None: all) and --limit-s keep."""
        cases = list(cases)
        kept = [case for case in cases if not self.args.only or any(text in name(case) for text in self.args.only)]
        if not kept:
            sys.exit(f"{self.name}: no case has such a name; they are:\n" + "\n".join(map(name, cases)))
        kept = kept[:quick] if self.args.quick else kept
        for place, case in enumerate(kept):
            if time.monotonic() - self.begun > self.args.limit_s:
                left = f"{len(kept) - place} of {len(kept)} cases"
                self.note(f"--limit-s is over: {left} are left out, from {name(case)} on")
                return
            yield case
            if self.args.gpu:
                timing.torch.cuda.empty_cache()

    def built(self, contender):
        """Facts about the kernels of a contender's library: of the one whose name the contender's begins with, or of
        the only one."""
        of = [name for name in self.kernels if contender.startswith(name)]
        only = list(self.kernels) if len(self.kernels) == 1 else []
        return self.kernels.get(max(of or only, key=len, default=None), {})

    def add(self, case, contender, status="ok", message="", numbers=None, own=True, shape=None, dtype=None, layout=None,
            card=None, details=None):
        """Writes a row. `kernel`, `tile` and `spill_bytes` of the details become facts of the row's kernel, beside
        those of the library's manifest."""
        details = dict(details or {})
        row = {"format": record.FORMAT, "bench": self.name, "case": case, "contender": contender, "own": own,
            "shape": shape or {}, "dtype": dtype, "layout": layout, "status": status, "message": message,
            "numbers": numbers, "card": card or {}, "details": details, "run": self.run}
        if name := own and details.pop("kernel", None):
            facts = {fact: details.pop(fact) for fact in ("tile", "spill_bytes") if fact in details}
            row["kernel"] = {"name": name, **self.built(contender).get(name, {}), **facts}
        if status not in ("ok", "absent"):
            self.note(f"{case}: {contender} {status}: {message}")
            self.failed += own
        self.points.append(self.writer.write(row))
        return row

    def peers(self, *names, **makers):
        """The peers of these names (`peers.MAKERS`), without FA3's and FA4's if no argument names their place, and
        those created by functions; rows give the reason for those that this machine lacks."""
        asked = [name for name in names if name not in ("fa3", "fa4") or getattr(self.args, name)]
        there, absent = made_of({**{name: partial(MAKERS[name], self.args) for name in asked}, **makers})
        for peer, reason in absent.items():
            self.note(reason)
            self.add("", peer, "absent", reason, own=False)
        return there

    def on(self, case, peers, make):
        """{name: make(peer)}, without the peers that refuse the case."""
        contenders = {}
        for name, peer in peers.items():
            try:
                contenders[name] = make(peer)
            except Exception as why:
                self.add(case, name, "refused", first_line(why), own=False)
        return contenders

    def host(self, what, call, number=10000, rounds=9, timer=time.process_time, contender="kgen", settle=lambda: None):
        """Times a call on the host: rounds of `number` calls by a clock, each followed by an untimed `settle`."""
        number, rounds = (max(1, number // 20), 3) if self.args.quick else (number, rounds)
        call()
        times = []
        for _ in range(rounds):
            settle()
            begun = timer()
            for _ in range(number):
                call()
            times.append((timer() - begun) / number * 1e6)
        self.clocked(what, times, number, contender)

    def clocked(self, what, times, number=1, contender="kgen", **more):
        """Records microseconds, by round, of calls that were timed on the host; the fastest round counts."""
        found = stats.summary(times)
        numbers = {"microseconds": found, "round_microseconds": times, "launches_a_round": number, "repeated": "host",
            "l2": None}
        self.add(what, contender, numbers=numbers, **more)
        print(f"{what:60} {found['min']:10.2f} us (median {found['median']:.2f})", flush=True)

    def _judged(self, contender, judge, limit, run=True):
        """(status, message, error) of a contender: of a new call, or of the outputs of the timed calls. A peer's
        refusal, of any kind, is not a failure of the bench."""
        try:
            error = contender.error(judge, run)
        except Exception as why:
            return "error" if contender.own else "refused", first_line(why), NAN
        when = "" if run else ", after it was timed"
        wrong = f"relative error {error:.3g}, allowed {limit:.3g}{when}"
        return ("ok", "", error) if error <= limit else ("wrong", wrong, error)

    def _prove(self, contender, judge, limit, graph):
        """(status, message, error, timer) of a contender before it is timed."""
        status, message, error = self._judged(contender, judge, limit)
        if status != "ok" or not contender.timed:
            return status, message, error, None
        try:
            return status, "", error, timing.Timer(contender.calls, graph, self.args.round_ms)
        except Exception as why:
            if contender.own or graph is False or not isinstance(why, RuntimeError):
                return "error" if contender.own else "refused", first_line(why), NAN, None
            message = f"launched, since it cannot be captured in a graph: {first_line(why)}"
            return status, message, error, timing.Timer(contender.calls, False, self.args.round_ms)

    def _numbers(self, times, timer, flops, moved, rate, l2, dtype):
        """The numbers of a row, and the reason for refusing them if they are physically impossible."""
        found, ceiling, refusal = stats.summary(times), self.run["ceiling"], ""
        numbers = {"microseconds": found, "round_microseconds": times, "launches_a_round": timer.runs * timer.calls,
            "repeated": timer.repeated, "l2": l2, "flops": flops, "bytes": moved}
        peaks = {"tflops": ceiling.get("tflops_fp8" if dtype == "fp8" else "tflops_16_bit"),
            "gbs": ceiling.get("memory_gbs") if l2 == "cold" else None}
        for key, work, scale in (("tflops", flops, 1e6), ("gbs", moved, 1e3)):
            if work:
                numbers[key] = work / found["median"] / scale
                numbers[f"{key}_interval"] = [work / us / scale for us in reversed(found["interval"])]
                if peaks[key] and numbers[key] > peaks[key]:
                    refusal = f"{numbers[key]:.0f} {key} is beyond this card's {peaks[key]:.0f}: wrongly measured"
        key = rate or ("tflops" if flops else "gbs")
        return {**numbers, "rate": numbers.get(key), "unit": {"tflops": "TFLOP/s", "gbs": "GB/s"}[key]}, refusal

    def point(self, case, shape, contenders, *, judge=unjudged, allowed=0.02, dtype="bf16", layout="bshd", flops=None,
            moved=None, rate=None, formula="", l2="warm", graph=None, base=None, near=None, details=None):
        """Verifies {name: Contender}, times the correct ones in interleaved rounds, judges again the outputs of the
        timed calls, and writes a row for each. `flops` and `moved` (bytes) are per call, `formula` describes them.
        Ratios are times / the time of `base`, kgen's first, so above 1 if `base` is faster. `near` is a factor and
        names: other contenders that take longer than this factor times the fastest one's time in a first round are
        timed only in that round. Returns {name: row}."""
        rows, timers, proofs, card = {}, {}, {}, {}
        limits = {name: allowed if c.allowed is None else c.allowed for name, c in contenders.items()}

        def add(name, status, message, numbers):
            mine = {"relative_error": proofs[name][2], "allowed_error": limits[name]}
            rows[name] = self.add(case, name, status, message, {**numbers, **mine} if status == "ok" else None,
                shape=shape, dtype=dtype, layout=layout, own=contenders[name].own, card=card,
                details={**(details or {}), **contenders[name].details})

        for name, contender in contenders.items():
            *proofs[name], timer = status, message, _, _ = self._prove(contender, judge, limits[name], graph)
            if timer is None:
                add(name, status, message, {})
            else:
                timers[name], graph = timer, (timer.repeated == "graph" if graph is None else graph)
        for name in timers:
            contenders[name].poison()  # values found afterwards were written by timed calls
        times = timing.race(timers, self.args.rounds if near is None else 1)
        if near is not None:
            most = near[0] * min((us for us, in times.values()), default=0)
            close = {name: timer for name, timer in timers.items() if times[name][0] <= most or name in near[1]}
            times |= timing.race(close, self.args.rounds)
        card |= record.card_state() if timers else {}
        if base not in timers:
            base = next((name for name in timers if contenders[name].own), next(iter(timers), None))
        for name, timer in timers.items():
            contender, (status, message, _) = contenders[name], proofs[name]
            if contender.out is not None:
                status, why, _ = self._judged(contender, judge, limits[name], run=False)
                message = why or message
            numbers, refusal = self._numbers(times[name], timer, flops,
                moved if contender.bytes is None else contender.bytes, rate, l2, dtype)
            ratio = stats.ratio(times[name], times[base][: len(times[name])])
            numbers |= {"formula": formula, "ratio": {"to": base, "verdict": stats.verdict(ratio), **ratio}}
            add(name, *(("refused", refusal) if refusal else (status, message)), numbers)
        print(f"# {case}: " + "; ".join(f"{name} {cell(row)}" for name, row in rows.items()), file=sys.stderr,
            flush=True)
        return rows

    def print_tables(self, group):
        print(f"{self.head}; {self.args.rounds} rounds of {self.args.round_ms:g} ms\n\n{table(self.points)}")
        if means := geomeans(self.points, group):
            print(f"\n{means}")

    def finish(self, group="head_dim", tables=True):
        """Prints the tables, and returns the exit code: 1 if any result of kgen was wrong."""
        if tables:
            self.print_tables(group)
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
