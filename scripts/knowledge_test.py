"""Tests of scripts/knowledge.py: each kind of fault is found, and the page is what the records give."""

import sys
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import knowledge

RECORD = """
[[pattern]]
id = "K-001"
name = "Turns"
status = "helps"
kinds = ["fwd"]
targets = ["sm90"]
when = "Short steps."
mechanism = "One multiplies while the others wait."
effect = "1.07 / 1.02"
page = "docs/results/ladder.md#turns"
quotes = ["| + turns | 1.07 / 1.02 |"]
code = ["templates/turns.cuh: await_turn"]
"""


class Knowledge(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        patch = mock.patch.object(knowledge, "ROOT", self.root)
        patch.start()
        self.addCleanup(patch.stop)
        self.write("variants.toml", '[targets.sm90]\n[[family]]\nkind = ["fwd"]\n')
        self.write("docs/results/ladder.md", "# Ladder\n\n| step | gain |\n| + turns   | 1.07 / 1.02 |\n")
        self.write("templates/turns.cuh", "void await_turn();\nconstexpr int TURNS = 3;\n")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def faults(self, text, up_to_date=True):
        if up_to_date:
            self.write("docs/knowledge/patterns.md", knowledge.page(text, tomllib.loads(text)["pattern"]))
        return knowledge.faults(text)

    def test_a_record_with_its_page_and_its_code_has_no_fault(self):
        self.assertEqual(self.faults("# Notes\n" + RECORD), [])
        page = (self.root / "docs/knowledge/patterns.md").read_text(encoding="utf-8")
        self.assertIn("1 records: 1 help, 0 have no effect, 0 hurt.", page)
        self.assertIn("### K-001\n\n**Turns**: helps.", page)
        self.assertIn("* Measured: 1.07 / 1.02 ([ladder.md](../results/ladder.md#turns))", page)
        self.assertNotIn("Kernels with it", page)
        self.assertEqual(self.faults(RECORD.replace("when =", "plan = ['tile.m >= 64']\nsource = [\"TURNS\"]\nwhen =")), [])
        tied = (self.root / "docs/knowledge/patterns.md").read_text(encoding="utf-8")
        self.assertIn("* Kernels with it: a plan with `tile.m >= 64`; a source with `TURNS`", tied)
        self.assertEqual(self.faults(RECORD.replace("when =", "plan = []\nwhen =")), [])
        tied = (self.root / "docs/knowledge/patterns.md").read_text(encoding="utf-8")
        self.assertIn("* Kernels with it: all of them", tied)
        self.assertIn("* Code: `await_turn` in `templates/turns.cuh`", page)

    def test_each_fault_of_a_record_is_found(self):
        for old, new, fault in [
            ('id = "K-001"', 'id = "17"', "an ID is K- and three digits"),
            ('when = "Short steps."\n', "", "has no `when`"),
            ("when =", "where = 1\nwhen =", "has an unknown key `where`"),
            ('"helps"', '"good"', "has the status `good`"),
            ('["fwd"]', '["bwd"]', "names the kind `bwd`"),
            ("when =", "plan = ['tile.m = 192', 'tile.m == 1']\nwhen =", "has the condition `tile.m == 1`"),
            ("when =", "plan = ['tile.m in 192']\nwhen =", "has the condition `tile.m in 192`"),
            ("when =", 'source = ["await_turn", "await"]\nwhen =', "names `await`, which no template has"),
            ('["sm90"]', '["sm91"]', "names the target `sm91`"),
            ("turns.cuh: ", "turn.cuh: ", "names `templates/turn.cuh`, which does not exist"),
            ("await_turn", "await_turns", "names `await_turns`, which `templates/turns.cuh` does not have"),
            ("results/ladder", "results/leader", "names the page `docs/results/leader.md`"),
            ("docs/results/ladder.md", "docs/knowledge/patterns.md", "is not a page of results or decisions"),
            ("+ turns", "+ turn", 'quotes "| + turn | 1.07 / 1.02 |"'),
            ('effect = "1.07', 'effect = "1.08', "has the figure 1.08, which none of its quotes has"),
        ]:
            with self.subTest(fault):
                found = knowledge.faults(RECORD.replace(old, new))
                self.assertTrue(any(fault in line for line in found), found)

    def test_ids_rise_and_names_differ(self):
        for second, fault in [("K-001", "stands after K-001"), ("K-000", "stands after K-001"), ("K-002", "has the name of another record")]:
            found = knowledge.faults(RECORD + RECORD.replace("K-001", second))
            self.assertTrue(any(fault in line for line in found), found)

    def test_a_page_that_differs_from_the_records_is_a_fault(self):
        self.faults(RECORD)
        changed = RECORD.replace("Short steps.", "Long steps.")
        self.assertEqual(self.faults(changed, up_to_date=False), ["patterns.md is not what patterns.toml gives; run scripts/knowledge.py"])

    def test_text_that_is_not_toml_is_one_fault(self):
        self.assertEqual(len(knowledge.faults("pattern")), 1)

    def test_other_pages_cite_records_and_code_that_exist(self):
        self.write("docs/knowledge/decisions.md", "Turns? → K-001\nNone → nothing\nSee K-009.\n")
        self.write("docs/knowledge/models.md", "[`await_turn`](../../templates/turns.cuh) [`take_turn`](../../templates/turns.cuh)\n")
        self.assertEqual(self.faults(RECORD), [
            "docs/knowledge/decisions.md:2: a leaf without an ID",
            "docs/knowledge/decisions.md:3: no record has the ID K-009",
            "docs/knowledge/models.md:1: `turns.cuh` does not have `take_turn`",
        ])

    def test_a_row_of_constants_has_the_numbers_of_its_code(self):
        row = "| [`{}`](../../templates/turns.cuh) | {} | at head dim `256` |\n"
        self.write("docs/knowledge/models.md", row.format("TURNS", 3) + row.format("TURNS", 4))
        self.assertEqual(self.faults(RECORD), ["docs/knowledge/models.md:2: 4 is not a number of the linked code"])

    def test_lines_fit_and_no_line_begins_a_list(self):
        lines = knowledge.wrapped("word " * 23 + "+ more `a span of code` and [a text of a link](b.md)").splitlines()
        self.assertTrue(all(len(line) <= knowledge.WIDTH and not line.startswith("+") for line in lines), lines)


if __name__ == "__main__":
    unittest.main()
