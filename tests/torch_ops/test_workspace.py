"""The workspace size is queried once for successive calls with the same numbers, and is right for each call."""

from engine import Step
from reference import Asked
from test_fa3 import fwd
from test_graphs import ALLOCATIONS


def test_calls_that_alternate_have_workspaces_of_their_own(emulator):
    steps = [Step([1, 1], [90, 200]), Step([1, 1], [90, 200], asked=Asked(0.125, softcap=5.0)), Step([1, 1, 1], [90, 200, 9]), Step([1, 1], [90, 200], dim=128)]
    for step in [*steps, *steps]:
        ALLOCATIONS()
        step.check(*fwd(emulator, step, num_splits=8))
        rows = len(step.queries) * 4
        counts = 4 * len(step.queries)
        counters = -(-len(step.queries) * 2 // 4) * 4  # a byte per sequence and key head, rounded up to words
        assert int(ALLOCATIONS().split()[1]) == 8 * rows * (step.dim + 1) * 4 + counts + counters


def test_a_refusal_says_why_each_time(emulator):
    from test_refusals import test_what_the_library_lacks_is_said_by_the_library as refused

    refused(emulator)
    refused(emulator)


def test_of_layers_the_workspace_is_asked_for_once(emulator):
    count = emulator.lib.kgen_test_questions
    steps = [Step([1, 1], [90, 200], seed=seed) for seed in range(3)]
    before = count()
    for step in steps:
        step.check(*fwd(emulator, step, num_splits=9))
    assert count() - before == 1
