"""Tests of the mutants that scripts/mutate.py counts. Run by `cargo test --test integration mutants::`."""

import contextlib
import io
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mutant_report import Record, equivalents, list_equivalent, scores
from mutate import Campaign, sample
from mutations import Mutant

FILES = {"long": "\n".join(f"f({n}, a + {n});" for n in range(40)), "short": "g(1);\nh(2);", "unused": "if (a) b();"}


class Sampling(Campaign):
    """A campaign in which every mutant is killed; those that `unseen` names do not count."""

    def __init__(self, listed=(), unseen=lambda mutant: mutant.file == "unused"):
        self.record, self.pool, self.unseen = Record({}), ThreadPoolExecutor(4), unseen
        self.record.listed.reasons = dict.fromkeys(listed, "a reason")

    def smoke(self, mutant):
        return not self.unseen(mutant)

    def drawn(self, seed, count):
        lines, candidates = {}, {}
        for file, number, mutants in sample(FILES, seed):
            lines[file], candidates[file] = number, mutants
        mutants = self.everything(lines, candidates, count)
        self.pool.shutdown()
        return sorted(mutant.id for mutant in mutants)


def recorded(*verdicts):
    """A record of mutants, each with its verdict at smoke level; None: not run."""
    record = Record({})
    mutants = [Mutant("f", 0, "a();", f"b({n});", "own", 0) for n in range(len(verdicts))]
    for mutant, status in zip(mutants, verdicts):
        record.mutant(mutant, "valid", [])
        if status:
            verdict = {"status": status, "message": "", "cases_run": 1, "seconds": 1}
            record.take({"event": "run", "id": mutant.id, "level": "smoke", "kernel": [None, "k"], **verdict})
    return record, mutants


class Drawing(unittest.TestCase):
    def test_files_that_run_out_of_mutants_are_made_up_for_by_others(self):
        self.assertEqual(len(Sampling().drawn(1, 60)), 60)

    def test_the_seed_alone_decides_what_is_drawn(self):
        self.assertEqual(Sampling().drawn(1, 60), Sampling().drawn(1, 60))
        self.assertNotEqual(Sampling().drawn(1, 60), Sampling().drawn(2, 60))

    def test_listed_mutants_are_replaced(self):
        listed = Sampling().drawn(1, 60)[:30]
        drawn = Sampling(listed).drawn(1, 60)
        self.assertEqual((len(drawn), set(drawn) & set(listed)), (60, set()))

    def test_a_sample_larger_than_what_there_is_ends(self):
        self.assertEqual(len(Sampling(unseen=lambda mutant: mutant.file != "short").drawn(1, 60)), 8)


class Counting(unittest.TestCase):
    def test_only_mutants_that_ran_count(self):
        record, _ = recorded("pass", "fail", None)
        self.assertEqual((len(record.counted()), scores(record)), (2, (50.0, 50.0)))

    def test_what_was_listed_since_is_no_survivor(self):
        record, (survivor, killed) = recorded("pass", "fail")
        record.listed.reasons = {survivor.id: "a reason", killed.id: "a wrong one"}
        self.assertEqual((record.surviving(), scores(record)), ([], (100.0, 100.0)))

    def test_an_entry_is_read_as_it_was_written_and_refused_once_its_line_is_gone(self):
        one = Mutant("attention/f.tera", 3, "  a(\"x\");", "  ;", "removed", 2)
        with TemporaryDirectory() as folder:
            list_equivalent(folder, one, "costs time only", False)
            list_equivalent(folder, replace(one, occurrence=0), "the same", True)
            listed = equivalents(folder)
            self.assertEqual(sorted(listed.reasons.values()), ["costs time only", "the same"])
            self.assertIn(one, listed)
            self.assertIn(replace(one, occurrence=0, after="other"), listed)
            self.assertNotIn(replace(one, after="other"), listed)
            with contextlib.redirect_stderr(io.StringIO()) as said:
                listed = equivalents(folder, {one.file: 'a("x");'})
            self.assertEqual((list(listed.reasons.values()), said.getvalue().count("refused")), (["the same"], 1))


if __name__ == "__main__":
    unittest.main()
