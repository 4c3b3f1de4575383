"""A pytest plugin that draws a sample of a test file's cases by the hash of their ids.

    KGEN_SUITE_CASES=400 KGEN_SUITE_SHARD=0/8 KGEN_SUITE_REPORT=0.json python -m pytest -p sample test_flash_attn.py

FlashAttention's suites multiply `parametrize` lists into some hundred thousand cases, which pytest would take minutes
to collect. For each function the KGEN_SUITE_CASES cases with the smallest hashes are kept (all if it is not set), with
the ids that pytest gives them. Cases for which KGEN_SUITE_WITHOUT, a Python expression in the names of the parameters,
is true are not drawn; names that a function does not have are None. KGEN_SUITE_SHARD is the part of the sample that
this process runs. The counts are written to KGEN_SUITE_REPORT as JSON, with the message of each failure.
"""

import hashlib
import heapq
import itertools
import json
import os

import pytest

CASES = int(os.environ.get("KGEN_SUITE_CASES", "0"))
SHARD, SHARDS = map(int, os.environ.get("KGEN_SUITE_SHARD", "0/1").split("/"))
REPORT = os.environ.get("KGEN_SUITE_REPORT")
WITHOUT = compile(os.environ.get("KGEN_SUITE_WITHOUT", "False"), "KGEN_SUITE_WITHOUT", "eval")


def id_of(name, value, index):
    """The part of pytest's id for a value of the parameter `name`."""
    return str(value) if value is None or isinstance(value, (str, int, float, bool)) else f"{name}{index}"


def axis(mark):
    """A `parametrize` mark as its names and, for each choice, an id and the values."""
    names, choices = mark.args[0], list(mark.args[1])
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [(choice,) if len(names) == 1 else tuple(choice) for choice in choices]
    return names, [("-".join(id_of(*item, index) for item in zip(names, row)), row) for index, row in enumerate(rows)]


class Given(dict):
    """A case's values by name; None for other names."""

    def __missing__(self, _):
        return None


def drawn(function, marks):
    names, choices = zip(*(axis(mark) for mark in marks))
    names = list(itertools.chain(*names))

    def cases():
        for parts in itertools.product(*choices):
            row = tuple(itertools.chain(*(values for _, values in parts)))
            if not eval(WITHOUT, {}, Given(zip(names, row))):
                name = "-".join(text for text, _ in parts)
                yield hashlib.blake2b(f"{function}[{name}]".encode(), digest_size=8).digest(), name, row

    by_hash = lambda case: case[0]
    kept = heapq.nsmallest(CASES, cases(), key=by_hash) if CASES else sorted(cases(), key=by_hash)
    kept = kept[SHARD::SHARDS]
    return names, [row for _, _, row in kept], [name for _, name, _ in kept]


def pytest_pycollect_makeitem(collector, name, obj):
    if not name.startswith("test_"):
        return
    marks = [mark for mark in getattr(obj, "pytestmark", []) if mark.name == "parametrize"]
    if not marks:
        return
    names, rows, ids = drawn(name, marks)
    others = [mark for mark in obj.pytestmark if mark.name != "parametrize"]
    obj.pytestmark = [*others, pytest.mark.parametrize(names, rows, ids=ids).mark]


outcomes, failures = {}, {}


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid] = report.outcome
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        failures[report.nodeid] = (crash.message if crash else str(report.longrepr))[:600]


def pytest_sessionfinish():
    if REPORT:
        counts = {outcome: sum(o == outcome for o in outcomes.values()) for outcome in ("passed", "skipped", "failed")}
        with open(REPORT, "w") as file:
            json.dump({"counts": counts, "failures": failures}, file, indent=1)
