"""Tests of benches/lab that need no GPU and no package: `python3 -m unittest -q benches/lab_test.py`."""

import argparse
import atexit
import contextlib
import io
import json
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lab import Contender, bench, named, peers, record, stats, timing, unjudged  # noqa: E402
from lab.bench import Bench  # noqa: E402

SLOW, FAST = [2.0, 2.2, 2.1], [1.0, 1.1, 1.05]


def bench_of(*given, **facts):
    """A bench without a GPU, with the name of its suite."""
    parser = argparse.ArgumentParser()
    bench.arguments(parser, library=None, gpu=False)
    args = parser.parse_args(list(given))
    args.suite = "some_suite"
    with (mock.patch.object(atexit, "register"), mock.patch.object(sys, "argv", ["benches.py", *given]),
            contextlib.redirect_stderr(io.StringIO())):
        made = Bench(args)
    made.run |= facts
    return made


def kgen(*arguments):
    return subprocess.run([record.program(), *arguments], capture_output=True, text=True)


def numbers_of(times, base=None):
    ratio = stats.ratio(times, base or times)
    ratio = {"to": "kgen", "verdict": stats.verdict(ratio), **ratio}
    return {"microseconds": stats.summary(times), "round_microseconds": times, "rate": 5.0, "unit": "GB/s",
        "ratio": ratio}


class Statistics(unittest.TestCase):
    def test_summary_has_the_numbers_of_a_known_sample(self):
        found = stats.summary([1.0, 2.0, 3.0, 4.0, 100.0])
        self.assertEqual((found["median"], found["mad"], found["n"], found["mean"], found["min"], found["max"]),
            (3.0, 1.0, 5, 22.0, 1.0, 100.0))
        self.assertAlmostEqual(found["deviation"], math.sqrt((21**2 + 20**2 + 19**2 + 18**2 + 78**2) / 4))
        self.assertEqual(stats.summary([7.0])["deviation"], 0.0)
        self.assertAlmostEqual(found["p95"], 4 + 0.8 * 96)
        self.assertAlmostEqual(found["p99"], 4 + 0.96 * 96)
        low, high = found["interval"]
        self.assertTrue(low <= 3.0 <= high)

    def test_percentiles_lie_between_neighbours_and_at_the_ends(self):
        self.assertEqual([stats.percentile([3.0, 1.0, 2.0], at) for at in (0, 0.25, 0.5, 1)], [1.0, 1.5, 2.0, 3.0])
        self.assertEqual(stats.percentile([7.0], 0.95), 7.0)

    def test_nothing_and_nan_have_no_statistics(self):
        for values in ([], [1.0, math.nan]):
            self.assertRaises(ValueError, stats.summary, values)

    def test_an_interval_is_the_same_each_time_and_holds_the_median_of_normal_numbers(self):
        values = [10 + math.sin(7 * i) for i in range(25)]
        self.assertEqual(stats.interval(values), stats.interval(values))
        self.assertLess(stats.interval(values)[1] - stats.interval(values)[0], 2)

    def test_a_ratio_is_taken_round_by_round_and_says_how_much_faster_the_base_is(self):
        found = stats.ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
        self.assertEqual((found["median"], found["mad"], found["interval"]), (2.0, 0.0, [2.0, 2.0]))
        self.assertRaises(ValueError, stats.ratio, [1.0], [1.0, 2.0])

    def test_an_interval_that_holds_1_is_a_tie(self):
        verdicts = [stats.verdict({"interval": interval})
            for interval in ([1.01, 1.2], [0.9, 0.99], [0.99, 1.01], [1.0, 1.0])]
        self.assertEqual(verdicts, ["win", "loss", "tie", "tie"])

    def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_1(self):
        self.assertAlmostEqual(stats.geomean([4.0, 0.25]), 1.0)
        self.assertIsNone(stats.geomean([]))


class Order(unittest.TestCase):
    def test_every_round_has_all_names_and_turns_around(self):
        self.assertEqual(list(timing.interleave(["a", "b"], 3)),
            [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")])

    def test_a_race_times_contenders_in_that_order(self):
        calls = []
        timer = lambda name: mock.Mock(round=lambda: calls.append(name) or float(len(calls)))
        times = timing.race({name: timer(name) for name in "abc"}, 2)
        self.assertEqual("".join(calls), "abccba")
        self.assertEqual(times, {"a": [1.0, 6.0], "b": [2.0, 5.0], "c": [3.0, 4.0]})


class Records(unittest.TestCase):
    def row(self, **changed):
        made = bench_of()
        return {**made.add("case", "kgen", numbers=numbers_of(FAST), shape={"batch": 2}), **changed}

    def test_a_row_is_read_as_it_was_written_and_names_its_circumstances(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.jsonl"
            made = bench_of("--out", str(path), seed_of_day=7)
            made.add("d64 s512", "kgen", numbers=numbers_of(FAST), shape={"batch": 2}, dtype="bf16", layout="bshd")
            with contextlib.redirect_stderr(io.StringIO()):
                made.add("d64 s512", "fa2", "refused", "no such head dim", own=False)
            rows = record.read(path)
        self.assertEqual([row["contender"] for row in rows], ["kgen", "fa2"])
        self.assertEqual(rows[0]["numbers"]["round_microseconds"], FAST)
        run = rows[0]["run"]
        self.assertEqual((rows[0]["bench"], run["command"], run["seed_of_day"]),
            ("some_suite", ["python3", "benches.py", "--out", str(path)], 7))
        self.assertRegex(run["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertRegex(run["kgen"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(rows[0]["run"]["id"], rows[1]["run"]["id"])

    def test_a_row_of_another_form_is_refused_by_the_name_of_what_is_wrong(self):
        good = self.row()
        self.assertEqual(record.complaints(good), [])
        wrong = {
            "`status`": {"status": "fine"}, "`format`": {"format": 99}, "`numbers`": {"numbers": None},
            "`shape`": {"shape": [1]},
            "`colour`": {"colour": "red"},
        }
        for word, change in wrong.items():
            self.assertIn(word, " ".join(record.complaints({**good, **change})))
        self.assertIn("`dtype` is missing",
            record.complaints({key: value for key, value in good.items() if key != "dtype"}))
        self.assertRaisesRegex(ValueError, "`status`", record.Writer(None).write, {**good, "status": "fine"})

    def test_a_time_that_is_none_and_a_run_without_identity_are_refused(self):
        good = self.row()
        for median in (0.0, -1.0, None, "fast"):
            numbers = {"microseconds": {"median": median}}
            self.assertIn("microseconds.median", " ".join(record.complaints({**good, "numbers": numbers})))
        untimed = {**good, "numbers": {"relative_error": 0.1}}
        self.assertEqual(record.complaints(untimed), [])
        self.assertIn("microseconds.median", " ".join(record.complaints({**untimed, "bench": "kgen bench"})))
        self.assertIn("`run`", " ".join(record.complaints({**good, "run": {"id": "a"}})))

    def test_facts_about_a_kernel_come_from_the_manifest_of_its_library(self):
        variant = {"name": "k1", "kind": "fwd", "target": "sm90", "registers": 128, "sass": "aa"}
        manifest = {"nvcc": "13.0", "host_compiler": "g++", "targets": {"sm90": {"flags": ["-O3"]}},
            "variants": [variant]}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "manifest.json").write_text(json.dumps(manifest))
            found = record.kernels(Path(folder) / "libkgen.so")
            self.assertEqual(found["k1"], {**variant, "nvcc": "13.0", "host_compiler": "g++", "flags": ["-O3"]})
            self.assertEqual(record.kernels(Path(folder) / "none/libkgen.so"), {})
        made = bench_of()
        made.kernels = {"kgen": found, "kgen 2": {}, "old": {"k1": {"registers": 64}}}
        given = {"kernel": "k1", "what": 1}
        rows = [made.add("case", name, numbers=numbers_of(FAST), details=given)
            for name in ("kgen", "old, again", "kgen 2")]
        self.assertEqual([row["kernel"].get("registers") for row in rows], [128, 64, None])
        self.assertEqual([row["details"] for row in rows], [{"what": 1}] * 3)
        made.kernels = {}
        tiled = made.add("case", "64 x 64", numbers=numbers_of(FAST), details={**given, "tile": {"m": 64}})
        self.assertEqual(tiled["kernel"], {"name": "k1", "tile": {"m": 64}})
        self.assertNotIn("kernel", made.add("case", "fa2", numbers=numbers_of(FAST), own=False))

    @unittest.skipIf(record.program() is None, "there is no kgen")
    def test_the_store_has_every_row_as_it_was_written(self):
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "rows.db"
            made = bench_of("--db", str(store))
            made.add("d64 s512", "kgen", numbers=numbers_of(FAST), shape={"batch": 2}, details={"kernel": "k1"})
            with contextlib.redirect_stderr(io.StringIO()):
                made.add("d64 s512", "fa2", "refused", "no such head dim", own=False)
            made.add("d64 s512", "fa3", numbers=numbers_of(SLOW, FAST), own=False)
            made.add("errors", "kgen", numbers={"relative_error": 0.25})
            written = record.read(made.writer.path)
            made.writer.keep()
            self.assertFalse(made.writer.path.exists())
            said = kgen("db", "export", "--db", str(store))
            rows = [json.loads(line) for line in said.stdout.splitlines()]
            self.assertEqual((said.stderr, rows), ("", written))
            self.assertEqual([row["own"] for row in rows], [True, False, False, True])
            # A run without rows makes no store.
            made = bench_of("--db", str(Path(folder) / "none.db"))
            made.writer.keep()
            self.assertEqual([path.name for path in Path(folder).glob("none*")], [])
            # A store that cannot be written leaves the file.
            made = bench_of("--db", folder)
            made.add("d64 s512", "kgen", numbers=numbers_of(FAST))
            with contextlib.redirect_stderr(io.StringIO()) as told:
                made.writer.keep()
            self.assertIn(str(made.writer.path), told.getvalue())
            self.assertTrue(made.writer.path.is_file())
            made.writer.path.unlink()

    def test_a_store_needs_kgen(self):
        with mock.patch.object(record, "program", lambda: None):
            self.assertRaisesRegex(SystemExit, "no kgen.*KGEN.*--out", bench_of, "--db", "x.db")

    def test_published_rows_of_kgen_and_of_benches_are_read(self):
        results = record.ROOT / "docs/results"
        published = [path for path in results.glob("*.jsonl") if path.name != "targets.jsonl"]
        self.assertGreaterEqual(len(published), 4)
        for path in published:
            self.assertTrue(record.read(path))

    def test_an_old_document_is_refused_with_file_and_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "old.json"
            for text in ('{"rows": []}', "no json", "[1]"):
                path.write_text(text)
                self.assertRaisesRegex(SystemExit, r"old\.json:1: ", record.read, path)

    def test_what_json_cannot_hold_becomes_null_or_text(self):
        found = record.finite({"a": math.nan, "b": [math.inf, 1.5], "c": (True, None), "d": Path("x"), 5: 1})
        self.assertEqual(found, {"a": None, "b": [None, 1.5], "c": [True, None], "d": "x", "5": 1})
        json.dumps(found, allow_nan=False)


class Peers(unittest.TestCase):
    def test_an_absent_peer_is_refused_by_its_name_with_a_remedy(self):
        makers = {
            "fa3": lambda: peers.Fa3Wheel("/nowhere"), "fa3_vllm": lambda: peers.Fa3("/nowhere/_vllm_fa3_C.abi3.so"),
            "flash_mla": peers.flash_mla, "here": lambda: "peer",
        }
        there, absent = peers.found(makers)
        self.assertEqual((there, sorted(absent)), ({"here": "peer"}, ["fa3", "fa3_vllm", "flash_mla"]))
        self.assertRegex(absent["fa3"], "^fa3 is absent .*scripts/fetch_peers.sh")
        self.assertRegex(absent["fa3_vllm"], "^fa3 is absent.*_vllm_fa3_C")

    def test_absent_peers_are_rows_and_no_failures(self):
        made = bench_of()
        with contextlib.redirect_stderr(io.StringIO()):
            made.peers(fa4=lambda: peers.Fa4("/nowhere", 1))
        self.assertEqual([(row["contender"], row["status"]) for row in made.points], [("fa4", "absent")])
        self.assertEqual(made.failed, 0)


class Benches(unittest.TestCase):
    def test_libraries_are_named(self):
        self.assertEqual(named(["a.so", "b.so", "old=c.so"]), {"kgen": "a.so", "kgen 2": "b.so", "old": "c.so"})

    def test_cases_are_selected_by_text_and_a_text_that_none_has_names_them(self):
        cases = [("decode B1", 1), ("decode B2", 2), ("prefill", 3)]
        self.assertEqual(list(bench_of("--only", "B2", "--only", "pre").selected(cases)), cases[1:])
        self.assertEqual(list(bench_of("--quick").selected(cases)), cases[:2])
        self.assertRaisesRegex(SystemExit, "(?s)no case.*decode B1.*prefill", list,
            bench_of("--only", "x").selected(cases))
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(list(bench_of("--limit-s", "-1").selected(cases)), [])

    def test_a_wrong_result_of_kgen_fails_the_bench_and_a_peers_refusal_does_not(self):
        made = bench_of()
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            made.add("case", "fa2", "refused", "no", own=False)
            self.assertEqual(made.finish(), 0)
            made.add("case", "kgen", "wrong", "relative error nan, allowed 0.01")
            self.assertEqual(made.finish(), 1)

    def test_nan_never_passes(self):
        made, contender = bench_of(), Contender(lambda: None, own=True)
        with mock.patch.object(Contender, "error", lambda *_: math.nan):
            status, message, _, timer = made._prove(contender, unjudged, 1e9, None)
        self.assertEqual((status, timer), ("wrong", None))
        self.assertIn("nan", message)

    def test_a_rate_beyond_the_card_is_refused(self):
        made, timer = bench_of(), mock.Mock(runs=3, calls=2, repeated="graph")
        made.run["ceiling"] = {"tflops_16_bit": 1000.0, "tflops_fp8": 2000.0, "memory_gbs": 4000.0}
        judge = lambda **work: made._numbers(FAST, timer, work.get("flops"), work.get("moved"), None, work["l2"],
            work["dtype"])
        self.assertEqual(judge(flops=1e9, l2="warm", dtype="bf16")[1], "")
        self.assertIn("beyond", judge(flops=1.5e9, l2="warm", dtype="bf16")[1])
        self.assertEqual(judge(flops=1.5e9, l2="warm", dtype="fp8")[1], "")
        self.assertIn("beyond", judge(moved=6e6, l2="cold", dtype="bf16")[1])
        numbers, refusal = judge(moved=6e6, l2="warm", dtype="bf16")
        self.assertEqual((refusal, numbers["launches_a_round"], numbers["unit"]), ("", 6, "GB/s"))
        self.assertAlmostEqual(numbers["rate"], 6e6 / 1.05 / 1e3)

    def test_tables_put_kgen_first_and_count_wins_ties_and_losses(self):
        made = bench_of()
        for case, dim, peer in (("one", 64, SLOW), ("two", 128, FAST)):
            given = {"shape": {"head_dim": dim}}
            made.add(case, "fa2", numbers=numbers_of(peer, FAST), own=False, **given)
            made.add(case, "kgen", numbers=numbers_of(FAST), **given)
        lines = bench.table(made.points).splitlines()
        self.assertEqual(lines[0], "| case | kgen | fa2 | fastest peer |")
        self.assertIn("| one | 1.05 us 5 GB/s | 2.10 us 5 GB/s (2.000 [2.000, 2.000]) | fa2 |", lines[2])
        means = bench.geomeans(made.points, "head_dim").splitlines()
        self.assertEqual(means[2], "| fa2 | **1.414** | 2.000 | 1.000 | 1.000 at two | 1, 1, 0 |")


LIBRARIES = [f"--library={name}={name}/libkgen.so" for name in ("plain", "window", "features")]
CACHES = [f"--library={name}={name}/libkgen.so" for name in ("bf16", "e4m3", "e5m2", "fp8", "old")]
# Command lines that together execute every line of the suites without a GPU. {folder}: a temporary folder that
# contains rows of `regret`.
REHEARSALS = """
dense.py forward --head-dim 64 --seqlen 512 --fa3 x
dense.py forward --dtype fp8 --head-dim 64 --seqlen 512 --peers fa3 fa2_bf16
dense.py forward --short --quick
dense.py backward --quick --head-dim 64 --deterministic
dense.py backward --quick --head-dim 64 --mask causal --cudnn --fa4 x
dense.py features {libraries} --fa3 x --fa4 x --head-dim 64
dense.py features --fa4 x --compile-fa4 --quick
dense.py masked_backward {libraries} --head-dim 64 --seqlen 512
dense.py alibi_dlse {libraries} --seqlen 1024
dense.py bias --head-dim 64 --seqlen 1024
dense.py dropout --head-dim 64 --seqlen 1024
serving.py decode --only unequal --only B1 --splits 2 --fa3 x
serving.py paged --ways --splits 2 --fa3 x --only 145 --only d64
serving.py kv_fp8 {caches} --fa3 x --only B64 --only mixed
serving.py mla --fa3 x --splits 2 --only queries --only 128..
serving.py packed_batches --ways --fa3 x
random_shapes.py shapes --ways --shapes 12 --fa3 x --site x
random_shapes.py few_queries --shapes 3 --fa3 x --site x
serving.py append_kv --only prefill
serving.py append_kv --check-only
serving.py fwd_kvcache --only B64
decode_graph.py --quick
errors.py accuracy --speed --seqlen 1024 --only x1
errors.py windows --fa3 x
errors.py gradients_scale1 --calls 8
families.py families --quick
families.py huge
families.py rmsnorm --quick
tiles.py portable --head-dim 64
tiles.py hopper --candidates {folder}/candidates.json
tiles.py tma --quick
tiles.py split --quick
dispatch.py regret {libraries} --shapes 25 --fit --out {folder}/regret.jsonl
dispatch.py fit {folder}/regret.jsonl --library x/libkgen.so
host.py commands --quick
host.py spills
host.py compilation --head-dim 64
"""


@unittest.skipIf(timing.torch is None, "PyTorch is not installed")
class Rehearsals(unittest.TestCase):
    """Runs benches on stand-ins for a GPU, a library and peers (lab/rehearsal.py)."""

    def run_suite(self, folder, words):
        """The rows of a suite, and its calls of libraries and peers."""
        from lab.rehearsal import rehearsal

        notes, rows, code, said = [], [], None, io.StringIO()
        program = str(Path(__file__).resolve().parent / words[0])
        kept = lambda writer, row: rows.append(row) or write(writer, row)
        write = record.Writer.write
        with (mock.patch.object(record.Writer, "write", kept), mock.patch.dict(bench.SUITES, clear=True),
                mock.patch.object(sys, "argv", [program, *words[1:]]), contextlib.redirect_stderr(said),
                contextlib.redirect_stdout(said), rehearsal(lambda *note: notes.append(note))):
            try:
                runpy.run_path(program, run_name="__main__")
            except SystemExit as end:
                code = end.code
        self.assertEqual(code, 0, said.getvalue()[-2000:])
        return rows, notes

    def test_every_suite_prepares_calls_and_records(self):
        with tempfile.TemporaryDirectory() as folder:
            candidates = {"64": [{"m": 128, "n": 128}, {}], "128 causal": [{"m": 192, "n": 96, "templates": "/t"}]}
            (Path(folder) / "candidates.json").write_text(json.dumps(candidates))
            given = {"folder": folder, "libraries": " ".join(LIBRARIES), "caches": " ".join(CACHES)}
            every = record.Writer(Path(folder) / "every.jsonl")
            for line in REHEARSALS.format(**given).strip().splitlines():
                with self.subTest(line):
                    rows, notes = self.run_suite(folder, line.split())
                    if " fit " not in line and "--compile-fa4" not in line:
                        self.assertTrue(rows and notes)
                    wrong = [row for row in rows if row["status"] not in ("ok", "absent")]
                    self.assertEqual(wrong, [])
                    for row in rows:
                        every.write(row)
            if record.program():
                told = kgen("db", "import", "--db", str(Path(folder) / "rows.db"), str(every.path))
                self.assertRegex(told.stdout, r"\d{3,} rows added", told.stderr)

    def test_every_suite_is_rehearsed_or_needs_no_stand_ins(self):
        rehearsed = {tuple(line.split()[:2]) for line in REHEARSALS.strip().splitlines()}
        for path in Path(__file__).resolve().parent.glob("*.py"):
            suites = re.findall(r"^@suite\(.*?\)\ndef (\w+)", path.read_text(), re.M | re.S)
            for name in suites if len(suites) > 1 else ():
                # These call the package or a compiler: they are run by hand, `gpu` on a GPU.
                if name not in ("package", "ops", "gpu", "dispatcher"):
                    self.assertIn((path.name, name), rehearsed)


if __name__ == "__main__":
    unittest.main()
