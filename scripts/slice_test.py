"""Tests of the record of scripts/slice.py. Run by `cargo test --test integration build_all::`."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import slice as tested  # noqa: E402

TEXT = '#include "kgen.h"\n#include "kgen/a.cuh"\n'
HEADERS = dict.fromkeys(["kgen.h", "kgen/b.cuh", "kgen/other.cuh", "kgen/e.cuh"], "")
HEADERS["kgen/a.cuh"] = ' # include "kgen/b.cuh"\n'
EMULATOR = {"runtime.cpp": "#include <kgen/e.cuh>\n"}


def key(text=TEXT, plan=1, headers=(), emulator=(), code="code"):
    kernels = {"k": (text, {"tile": plan})}
    return tested.keys(kernels, HEADERS | dict(headers), EMULATOR | dict(emulator), code)["k"]


class Keys(unittest.TestCase):
    def test_a_key_changes_with_all_that_the_verdict_depends_on(self):
        changed = [key(TEXT + " "), key(plan=2), key(code="other")]
        changed.append(key(emulator={"runtime.cpp": EMULATOR["runtime.cpp"] + " "}))
        used = ("kgen.h", "kgen/a.cuh", "kgen/b.cuh", "kgen/e.cuh")
        changed += [key(headers={path: HEADERS[path] + " "}) for path in used]
        self.assertEqual(len({key(), *changed}), 1 + len(changed))

    def test_a_header_that_nothing_includes_changes_no_key(self):
        self.assertEqual(key(headers={"kgen/other.cuh": " "}), key())

    def test_code_that_builds_or_judges_is_part_of_every_key(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path in ("src/check", "src/build", "src/toolchain", "src/other"):
                (root / path).mkdir(parents=True)
                (root / path / "file.rs").write_text("")
            (root / "build.rs").write_text('const JUDGES: [&str; 1] = ["src/check"];\n')
            (root / "Cargo.lock").write_text("")
            seen = {tested.code(root)}
            for path in ("src/check/file.rs", "src/build/file.rs", "src/toolchain/file.rs", "Cargo.lock"):
                (root / path).write_text("changed")
                self.assertNotIn(tested.code(root), seen, path)
                seen.add(tested.code(root))
            (root / "src/other/file.rs").write_text("changed")
            self.assertIn(tested.code(root), seen)

    def test_the_real_lists_name_folders(self):
        self.assertNotEqual(tested.code(ROOT), tested.digest([]))
        for folder in tested.BUILDERS:
            self.assertTrue(tested.files_below(ROOT / folder), folder)


class Selection(unittest.TestCase):
    keys = {str(number): f"key {number}" for number in range(1000)}

    def test_a_kernel_without_an_entry_or_with_another_key_runs(self):
        self.assertEqual(tested.to_run(self.keys, {}), sorted(self.keys))
        shifted = {str((number + 1) % 1000): f"key {number}" for number in range(1000)}
        self.assertEqual(tested.to_run(self.keys, shifted), sorted(self.keys), "an entry excuses one kernel")
        self.assertIn("7", tested.to_run(self.keys, self.keys | {"7": "another"}))

    def test_one_of_eight_on_record_runs_and_others_after_a_change(self):
        sample = set(tested.to_run(self.keys, self.keys))
        self.assertEqual(sample, set(tested.to_run(self.keys, self.keys)))
        self.assertLess(abs(len(sample) - 125), 40)
        changed = self.keys | {"7": "changed"}
        self.assertLess(len(sample & set(tested.to_run(changed, changed))), len(sample) / 2)


class Logs(unittest.TestCase):
    def test_a_warning_of_nvcc_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.log").write_text("fine\nx.cu(1): warning #177-D: declared but never referenced\n")
            self.assertEqual(len(tested.warnings(Path(folder))), 1)


if __name__ == "__main__":
    unittest.main()
