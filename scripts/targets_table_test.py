"""Tests of scripts/targets_table.py: records keep the tools' results, and the table counts the whole grid."""

import argparse
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import targets_table


def entry(name, kind, target):
    return {"name": name, "kind": kind, "target": target, "runs_on": ["8.0"], "newer_by_ptx": True}


def verdict(name, status="pass"):
    return {"name": name, "status": status, "level": "smoke", "cases_run": 7, "worst": {"ratio": 0.254}}


class TargetsTable(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name, file in {"HASHES": "generated.b3", "RECORDS": "targets.jsonl", "PAGE": "targets.md"}.items():
            patch = mock.patch.object(targets_table, name, self.folder / file)
            patch.start()
            self.addCleanup(patch.stop)
        self.grid(entry("flash_fwd_a_sm80", "fwd", "sm80"), entry("reduce_sum_fp32_sm80", "reduce_sum", "sm80"))
        targets_table.PAGE.write_text(f"before\n{targets_table.START}old{targets_table.END}after\n")

    def write(self, name, value):
        (self.folder / name).write_text(json.dumps(value))
        return self.folder / name

    def grid(self, *entries):
        self.write("grid.json", entries)
        targets_table.HASHES.write_text("".join(f"0123456789abcdef  {one['name']}.cu\n" for one in entries))

    def arguments(self, **given):
        return argparse.Namespace(**{"grid": self.folder / "grid.json", "check": False, "complete": False, "emulator": None, "build": None, "gpu": [], "date": "2026-01-02", **given})

    def check(self, complete=False):
        with mock.patch("builtins.print"):
            targets_table.write(self.arguments(check=True, complete=complete))

    def test_a_kernel_without_a_verdict_is_counted_and_said(self):
        path = self.write("emulator.json", [verdict("flash_fwd_a_sm80")])
        targets_table.record(self.arguments(emulator=path))
        page = targets_table.PAGE.read_text()
        self.assertIn("1 of 2, smoke, 2026-01-02; 7 cases", page)
        self.assertTrue(page.startswith("before") and page.endswith("after\n"), page)
        self.check()
        with self.assertRaisesRegex(SystemExit, "1 kernels have no verdict"):
            self.check(complete=True)

    def test_gpus_and_objects_stand_beside_the_emulator(self):
        build = {"artifacts": [{"name": "flash_fwd_a_sm80", "machine_code": {"tensor_cores": {"HMMA.16816.F32": 4}}}]}
        gpu = self.write("check.json", [verdict("flash_fwd_a_sm80"), verdict("reduce_sum_fp32_sm80")])
        targets_table.record(self.arguments(build=self.write("build.json", build), gpu=[("H100", gpu)]))
        page = targets_table.PAGE.read_text()
        self.assertIn("H100: 2 of 2, smoke, 2026-01-02", page)
        self.assertIn("`HMMA.16816.F32` (1 of 2 objects)", page)

    def test_a_grid_with_other_kernels_than_the_records_is_refused(self):
        targets_table.record(self.arguments())
        self.grid(entry("flash_fwd_b_sm80", "fwd", "sm80"))
        with self.assertRaisesRegex(SystemExit, "1 kernels of the grid have no line"):
            self.check()

    def test_a_grid_of_another_time_than_the_hashes_is_refused(self):
        self.write("grid.json", [entry("flash_fwd_b_sm80", "fwd", "sm80")])
        with self.assertRaisesRegex(SystemExit, "do not have the same kernels"):
            targets_table.record(self.arguments())

    def test_a_failure_and_a_page_edited_by_hand_are_refused(self):
        targets_table.record(self.arguments(emulator=self.write("emulator.json", [verdict("flash_fwd_a_sm80", "fail")])))
        with self.assertRaisesRegex(SystemExit, "not passed"):
            self.check()
        targets_table.record(self.arguments(emulator=self.write("emulator.json", [verdict("flash_fwd_a_sm80")])))
        targets_table.PAGE.write_text(targets_table.PAGE.read_text().replace("1 of 2", "2 of 2"))
        with self.assertRaisesRegex(SystemExit, "not what its records give"):
            self.check()

    def test_a_verdict_of_no_kernel_of_the_grid_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "flash_fwd_c_sm80"):
            targets_table.record(self.arguments(emulator=self.write("emulator.json", [verdict("flash_fwd_c_sm80")])))


if __name__ == "__main__":
    unittest.main()
