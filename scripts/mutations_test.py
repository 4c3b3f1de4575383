"""Tests of the mutations that scripts/mutations.py finds in a line. Run by `cargo test --test integration mutants`."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mutations import Mutant, applied, changes_of_line, mutants_of, skipped_lines


def changes(line, kind):
    return {changed for found, changed in changes_of_line(line) if found == kind}


class Mutations(unittest.TestCase):
    def test_operators_are_changed_and_template_brackets_are_not(self):
        self.assertEqual(changes("sum = pack<element>(low + high);", "operator"), {"sum = pack<element>(low - high);"})
        self.assertIn("if (-x <= y || z) f();", changes("if (-x < y || z) f();", "operator"))

    def test_constants_move_by_one_double_and_vanish(self):
        self.assertEqual(changes("f(2);", "constant"), {"f(1);", "f(3);", "f(4);", "f(0);"})
        self.assertEqual(changes("x = 0.0f;", "constant"), {"x = 1.0f;"})

    def test_whole_statements_are_removed_and_declarations_are_not(self):
        self.assertEqual(changes("    mbarrier_wait(full, parity);  // landed", "removed"), {"    ;  // landed"})
        self.assertEqual(changes("if (done) fence();", "removed"), {";", "fence();"})
        self.assertEqual(changes("const int row = first(tile);", "removed"), set())
        self.assertEqual(changes("const auto release = [&] { arrive(empty); };", "removed"), {"const auto release = [&] {  };"})

    def test_neighbouring_arguments_change_places_and_parameters_do_not(self):
        self.assertEqual(changes("f(a, g(b, c));", "swapped"), {"f(g(b, c), a);", "f(a, g(c, b));"})
        self.assertEqual(changes("KGEN_DEVICE void f(int a, int b) {", "swapped"), set())
        self.assertEqual(changes("x = a ? b : c;", "swapped"), {"x = a ? c : b;"})

    def test_loops_begin_later_and_end_earlier_and_later(self):
        expected = {f"for (int i = 0{a}; i < {n}; ++i) {{" for a, n in ((" + 1", "N"), ("", "(N) - 1"), ("", "(N) + 1"))}
        self.assertEqual(changes("for (int i = 0; i < N; ++i) {", "bound"), expected)

    def test_terms_and_conditions_are_dropped(self):
        self.assertEqual(changes("if (a && b(c)) {", "dropped"), {"if (a) {", "if (b(c)) {"})
        self.assertIn("x = y;", changes("x = y * f(2)[1];", "dropped"))

    def test_indices_change_and_extents_of_declared_arrays_do_not(self):
        self.assertEqual(changes("x = s[j];", "index"), {"x = s[j + 1];", "x = s[0];"})
        self.assertEqual(changes("float sum[2];", "index") | changes("float sum[2];", "constant"), set())

    def test_text_comments_and_expressions_of_the_plan_stay_as_they_are(self):
        line = 'f(1, "2 + 3");  // 4 + 5 {{ plan.a + 6 }}'
        self.assertEqual(changes(line, "constant"), {line.replace("f(1", f"f({n}") for n in (0, 2)})
        self.assertEqual(changes("constexpr int D = {{ plan.d + 1 }};", "constant"), set())

    def test_conditions_of_the_template_are_negated(self):
        self.assertIn("{%- if not (a > 1) %}", changes("{%- if a > 1 %}", "tag"))
        self.assertIn("{%- if a >= 1 %}", changes("{%- if a > 1 %}", "tag"))

    def test_refusals_of_a_launcher_and_what_they_alone_need_are_skipped(self):
        lines = [
            "const bool empty = n == 0;",
            "if (empty || m < 1) {",
            '    return fail(INVALID, "%d",',
            "                m);",
            "}",
            "x = m + 1;",
        ]
        self.assertEqual(skipped_lines(lines), {0, 1, 2, 3})

    def test_a_mutant_is_known_by_its_lines_wherever_they_stand(self):
        (of_line,) = mutants_of("f", "a();")
        moved = "b();\n    a();\n"
        self.assertEqual(applied(moved, of_line[0]), moved.replace("a();", of_line[0].after))
        self.assertIsNone(applied("b();", of_line[0]))
        twice = Mutant("f", 0, "a();", "", "removed", 1)
        self.assertNotEqual(twice.id, of_line[0].id)
        self.assertEqual(applied("a();\na();", twice), "a();\n")


if __name__ == "__main__":
    unittest.main()
