"""Tests of scripts/result_tables.py: a table has what its rows give, and settings that give nothing are refused."""

import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import result_tables


def row(head_dim, length, rate, status="ok"):
    return {
        "case": f"k{head_dim} seqlen_k={length}", "status": status, "dtype": "bf16", "run": {"id": "a1"},
        "shape": {"head_dim": head_dim, "seqlen_k": length, "causal": head_dim == 64},
        "numbers": {"tflops": rate} if status == "ok" else None, "kernel": {"name": f"k{head_dim}"},
    }


ROWS = [row(128, 512, 400.4), row(64, 512, 300.0), row(64, 1024, 350.0), row(128, 1024, None, "refused")]
PIVOT = """rows.jsonl
where: dtype=bf16 run.id=a*
group: shape.head_dim
name: s{shape.seqlen_k}
order: shape.head_dim
kernel: `{kernel.name}`, {mask}
512: {s512.numbers.tflops:.0f}
1024:
  {s1024.numbers.tflops:.0f}"""


def turn(head_dim, causal, ratios):
    """The rows of a point: kgen's and one of each peer."""
    run, shape = {"id": "a1"}, {"head_dim": head_dim, "causal": causal}
    name = f"k{head_dim}{causal}"
    common = {"run": run, "shape": shape, "dtype": "bf16", "status": "ok"}
    yield {**common, "case": f"{name} b=1", "own": True, "numbers": {"tflops": 1.0}, "kernel": {"name": name}}
    for place, ratio in enumerate(ratios):
        numbers = {"tflops": 1.0, "ratios": [{"to": name, "median": ratio}]}
        yield {**common, "case": f"p{place} {name} b=1", "own": False, "numbers": numbers, "kernel": {"kind": "fwd"}}


class ResultTables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("RESULTS", "ROOT"):
            patch = mock.patch.object(result_tables, name, self.folder)
            patch.start()
            self.addCleanup(patch.stop)
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ROWS))

    def refused(self, head, text):
        self.assertRaisesRegex(SystemExit, text, result_tables.rendered, head, "page.md:1")

    def test_groups_become_lines_and_their_members_columns(self):
        lines = result_tables.rendered(PIVOT, "page.md:1").splitlines()
        self.assertEqual(lines, [
            "| kernel | 512 | 1024 |", "| --- | ---: | ---: |", "| `k64`, causal | 300 | 350 |",
            "| `k128`, full | 400 | – |",
        ])

    def test_conditions_select_by_pattern_and_its_opposite(self):
        head = "rows.jsonl\nwhere: %s\ncase: {case}"
        kept = lambda where: result_tables.rendered(head % where, "page.md:1").count("\n") - 2
        self.assertEqual([kept("shape.head_dim=64"), kept("status!=ok"), kept("shape.causal=false"), kept('"case=k64 *"')],
            [2, 1, 2, 2])

    def test_means_take_the_fastest_peer_of_each_point(self):
        points = [turn(64, False, [2.0, 1.0]), turn(64, True, [0.5, 3.0]), turn(128, False, [4.0]), turn(256, True, [])]
        (self.folder / "turns.jsonl").write_text("".join(json.dumps(one) + "\n" for point in points for one in point))
        head = "turns.jsonl\nof: means\ngroup: shape.head_dim\n%s"
        columns = "d: {of}\nn: {points}\nmean: {mean:.2f}\nlow: {lowest:.1f}\nbelow: {below}\ncausal: {causal.mean:.1f}"
        lines = result_tables.rendered(head % columns, "page.md:1").splitlines()[2:]
        self.assertEqual(lines, [
            "| 64 | 2 | 0.71 | 0.5 | 1 | 0.5 |", "| 128 | 1 | 4.00 | 4.0 | 0 | – |", "| all | 3 | 1.26 | 0.5 | 1 | 0.5 |",
        ])
        full = result_tables.rendered(head % "where: shape.causal=false\nmean: {mean:.2f}", "page.md:1").splitlines()[2:]
        self.assertEqual(full, ["| 1.00 |", "| 4.00 |", "| 2.00 |"])

    def test_means_of_benches_take_the_ratio_to_the_base_of_a_case(self):
        common = {"run": {"id": "a1"}, "shape": {}, "case": "one", "status": "ok", "details": {"kind": "equal"}}
        rows = [{**common, "contender": name, "own": own, "numbers": {"ratio": {"to": "kgen", "median": ratio}}}
            for name, own, ratio in (("kgen", True, 1.0), ("before", True, 0.5), ("fa3", False, 0.9), ("cudnn", False, 1.2))]
        (self.folder / "own.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
        head = "own.jsonl\nof: means\ngroup: details.kind\nkind: {of}\nn: {points}\nlow: {lowest}\nbehind: {behind}"
        lines = result_tables.rendered(head, "page.md:1").splitlines()[2:]
        self.assertEqual(lines, ["| equal | 2 | 0.9 | 1 |", "| all | 2 | 0.9 | 1 |"])
        before = result_tables.rendered(head.replace("of: means", "of: means\nwhere: contender!=kgen"), "page.md:1")
        self.assertEqual(before.splitlines()[2:], ["| equal | 1 | 1.8 | 0 |", "| all | 1 | 1.8 | 0 |"])

    def test_what_gives_nothing_is_refused_with_its_place(self):
        self.refused("rows.jsonl\nwhere: dtype=fp8\ncase: {case}", "page.md:1: no row")
        self.refused("rows.jsonl\ncase: {case}\nrate: {numbers.typo:.0f}", "page.md:1: .*column `rate`")
        self.refused("rows.jsonl\ncase", "page.md:1: `case` is neither")
        self.refused("rows.jsonl\ngroup: dtype\nname: x\ncase: {case}", "page.md:1: two rows")

    def test_a_page_is_rendered_between_the_comments_alone(self):
        path = self.folder / "page.md"
        start = f"before\n<!-- rows: {PIVOT} -->\n"
        path.write_text(f"{start}old\n<!-- end of rows -->\nafter\n")
        before, after = result_tables.page(path)
        self.assertTrue(after.startswith(start) and after.endswith("| – |\n<!-- end of rows -->\nafter\n"))
        self.assertNotIn("old", after)
        path.write_text(after)
        self.assertEqual(result_tables.page(path), (after, after))
        path.write_text(start)
        self.assertRaisesRegex(SystemExit, "page.md: a table .* end of rows", result_tables.page, path)


if __name__ == "__main__":
    unittest.main()
