"""Tests of `kgen_peers`: `python3 -m unittest python/peers_test.py`. Those of tensors need PyTorch, without a GPU."""

import io
import json
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kgen_peers import table, worker
from kgen_peers.card import Card
from kgen_peers.errors import Absent, Refused, Wrong, first_line, imported
from kgen_peers.pace import Pace, count_to_fill
from kgen_peers.problem import Problem

try:
    import torch
except ImportError:
    torch = None

POINT = {"kind": "fwd", "head_dim": 64, "dtype": "bf16", "causal": True, "features": [], "target": "sm90",
    "shape": {"batch": 2, "heads": 4, "heads_k": 2, "seqlen_q": 70, "seqlen_k": 100}}


def problem(**changes):
    shape = {name: changes.pop(name) for name in list(changes) if name in {*POINT["shape"], "page_size"}}
    return Problem.of({**POINT, **changes, "shape": {**POINT["shape"], **shape}})


class FakeDevice:
    """Each call takes as long as it says; events tell the time."""

    def __init__(self):
        self.ms = 0.0

    def event(self):
        device = self

        class Event:
            def record(self):
                self.ms = device.ms

            def wait(self):
                pass

            def ms_until(self, later):
                return later.ms - self.ms

        return Event()

    def capture(self, act):
        return act


class Problems(unittest.TestCase):
    def test_a_point_is_read_and_what_is_no_attention_is_refused(self):
        p = problem(head_dim_v=32, page_size=16)
        self.assertEqual((p.head_dim, p.head_dim_v, p.page_size, p.groups, p.is_backward), (64, 32, 16, 2, False))
        with self.assertRaisesRegex(Refused, "`transpose` is no attention"):
            Problem.of({"kind": "transpose", "dtype": "bf16", "target": "sm90", "shape": {"rows": 4, "columns": 4}})

    def test_the_mask_is_aligned_to_the_last_query_and_key(self):
        p = problem()
        self.assertEqual([p.visible(row) for row in (0, 69)], [31, 100])
        self.assertEqual(problem(seqlen_k=30).visible(0), 0)
        self.assertEqual(problem(causal=False).visible(0), 100)

    def test_what_a_peer_does_not_compute_is_named(self):
        for changes, refusal, said in (
            ({"dtype": "fp8"}, {}, "not fp8"),
            ({"features": ["paged"]}, {}, "the feature `paged`"),
            ({"features": [{"name": "decay"}]}, {}, "the feature `score`"),
            ({"kind": "bwd"}, {"backward": False}, "backward"),
            ({}, {"aligned_to_top": True}, "aligned to the first"),
            ({"head_dim_v": 32}, {"equal_head_dims": True}, "heads of V"),
        ):
            with self.assertRaisesRegex(Refused, said):
                problem(**changes).refuse(**refusal)
        problem(seqlen_q=1).refuse(aligned_to_top=True)
        problem(features=["paged"]).refuse(features=("paged",))

    def test_decoding_rotates_through_copies_that_leave_the_l2_cold(self):
        self.assertEqual(problem().copies(50 << 20), (1, False))
        decoding = problem(kind="fwd_split", seqlen_q=1, batch=1, seqlen_k=16384, head_dim_v=64)
        self.assertEqual(decoding.copies(50 << 20), (63, True))
        self.assertEqual(problem(kind="fwd_split", batch=1, seqlen_k=16).copies(50 << 20), (512, False))

    def test_sampled_rows_are_the_first_the_middle_and_the_last(self):
        self.assertEqual(problem(batch=1).picks(1, 1), [(0, 0, 0)])
        self.assertEqual(len(problem().picks(4, 70)), 6)


class Paces(unittest.TestCase):
    PLAN = {"warm_up_ms": 10, "measure_ms": 100, "rounds": 10, "graph": False}

    def pace(self, calls=1, **plan):
        device, self.made = FakeDevice(), []

        def call(number):
            self.made.append(number)
            device.ms += 0.5

        return Pace([lambda n=n: call(n) for n in range(calls)], {**self.PLAN, **plan}, device)

    def test_rounds_are_as_long_as_the_plan_says_and_calls_rotate(self):
        pace = self.pace(calls=3)
        self.assertEqual(pace.launches, 20)
        self.made.clear()
        self.assertEqual(pace.round(), [500.0])
        self.assertEqual(len(self.made), 21, "one call is not counted")
        self.assertEqual(sorted(self.made)[6:8], [0, 1])

    def test_a_graph_holds_every_copy_and_its_time_is_that_of_a_launch(self):
        pace = self.pace(calls=3, graph=True)
        self.assertTrue(pace.is_graph)
        self.assertEqual((pace.launches % 3, pace.round()), (0, [500.0]))

    def test_exact_counts_time_each_call(self):
        self.made = []
        pace = self.pace(counts={"warm_ups": 100, "runs": 1000})
        self.assertEqual(len(self.made), 1 + 3 + 100)
        self.assertEqual((pace.launches, pace.round()), (1, [500.0] * 100))

    def test_at_least_one_call_fills_any_time(self):
        self.assertEqual([count_to_fill(25, each, 1000) for each in (1, 40, 0)], [25, 1, 1000])


class FakeExperiment:
    launches = 7

    def __init__(self, point):
        if point == "refused":
            raise Refused("not this")
        if point == "checked":
            raise RuntimeError("the head dim must be a multiple of 8")
        if point == "large":
            raise RuntimeError("CUDA out of memory")
        self.point = point

    def round(self):
        if self.point == "faults":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if self.point == "dies":
            raise MemoryError("no memory\nmore lines")
        return {"microseconds": [1.0], "card": {}}

    def finish(self):
        if self.point == "wrong":
            raise Wrong("O is wrong")
        return {"relative_error": 0.0, "graph": False, "cold_l2": False}


class Workers(unittest.TestCase):
    def answers(self, orders):
        line = worker.Line.__new__(worker.Line)
        line.orders = io.StringIO("".join(json.dumps(order) + "\n" for order in orders))
        line.answers, line.token, self.forgotten = io.StringIO(), "token", 0

        def forget():
            self.forgotten += 1

        request = {"points": ["good", "refused", "wrong", "dies", "faults", "checked", "large"], "time_limit_seconds": 60}
        worker.serve(line, request, FakeExperiment, forget)
        said = line.answers.getvalue().splitlines()
        self.assertTrue(all(text.startswith("token ") for text in said))
        return [json.loads(text.split(" ", 1)[1]) for text in said]

    def test_each_order_has_its_answer(self):
        found = self.answers([{"prepare": 0}, "round", "round", "finish"])
        self.assertEqual([answer["event"] for answer in found], ["ready", "round", "round", "finished"])
        self.assertEqual((found[0]["launches"], self.forgotten), (7, 1))

    def test_a_failure_is_an_answer_and_the_next_point_is_prepared(self):
        orders = [{"prepare": 1}, {"prepare": 2}, "finish", {"prepare": 3}, "round", "round", {"prepare": 0}]
        found = self.answers(orders)
        self.assertEqual([answer["event"] for answer in found],
            ["failed", "ready", "failed", "ready", "failed", "failed", "ready"])
        self.assertEqual([answer.get("status") for answer in found],
            ["refused", None, "wrong", None, "error", "error", None])
        self.assertEqual((found[0]["message"], found[4]["message"]), ("not this", "MemoryError: no memory"))
        self.assertIn("before a point was prepared", found[5]["message"])

    def test_what_a_library_checks_is_refused_and_too_little_memory_is_an_error(self):
        found = self.answers([{"prepare": 5}, {"prepare": 6}])
        self.assertEqual([answer["status"] for answer in found], ["refused", "error"])

    def test_after_a_fault_the_worker_ends_because_its_context_is_lost(self):
        with self.assertRaisesRegex(SystemExit, "illegal memory access"):
            self.answers([{"prepare": 4}, "round"])

    def test_every_peer_has_a_file_and_one_without_its_library_is_absent(self):
        folder = Path(table.__file__).parent / "peers"
        self.assertTrue(all((folder / f"{module}.py").is_file() for module, _ in table.PEERS.values()))
        with self.assertRaisesRegex(Absent, "`no_such_module` cannot be imported .*; install it"):
            imported("no_such_module", "install it")
        if torch is None:
            with self.assertRaisesRegex(Absent, "`torch`"):
                table.load("sdpa-flash")

    def test_an_error_is_one_line_and_a_card_that_is_not_there_has_no_state(self):
        self.assertEqual(first_line(ValueError("a\nb")), "ValueError: a")
        with mock.patch("ctypes.CDLL", side_effect=OSError):
            self.assertEqual(set(Card("0000:00:00.0").state().values()), {None})


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Tensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with mock.patch("torch.cuda.is_available", return_value=True):
            from kgen_peers import gpu, reference, tensors
        cls.reference, cls.tensors = reference, tensors

    def exact(self, p, t):
        """O, and its gradients, of the whole call by autograd in float64."""
        q, k, v = (x.double().requires_grad_() for x in (t.q, t.k, t.v))
        across = [x.transpose(1, 2) for x in (q, k, v)]
        k_, v_ = (x.repeat_interleave(p.groups, 1) for x in across[1:])
        hidden = torch.ones(p.seqlen_q, p.seqlen_k, dtype=torch.bool).triu(p.seqlen_k - p.seqlen_q + 1)
        scores = (across[0] @ k_.transpose(-1, -2) * p.scale).masked_fill(hidden & p.causal, float("-inf"))
        out = (torch.softmax(scores, -1) @ v_).transpose(1, 2)
        return {"O": out.detach()} | dict(zip(("dQ", "dK", "dV"), torch.autograd.grad(out, (q, k, v), t.dout.double())))

    def test_the_reference_is_attention_and_its_gradients(self):
        for kind in ("fwd", "bwd"):
            p = problem(kind=kind, head_dim=16)
            given = self.tensors.draw(problem(kind="bwd", head_dim=16), 1, "cpu")
            exact = self.exact(p, given)
            with mock.patch.object(self.reference, "CHUNK", 32):
                expected = self.reference.expectations(p, given)
            self.assertEqual(len(expected), 6 if kind == "fwd" else 18)
            for name, (b, h, i), row in expected:
                place = (b, i, h)
                self.assertLess((row - exact[name][place]).norm() / row.norm(), 1e-12, f"{name} {place}")
            outputs = {name: exact[name].clone() for name in {name for name, _, _ in expected}}
            self.assertLess(self.reference.judge(p, outputs, expected, "before"), 1e-12)
            name, (b, h, i), _ = expected[-1]
            outputs[name][b, i, h] *= 1.1
            with self.assertRaisesRegex(Wrong, f"{name} is wrong"):
                self.reference.judge(p, outputs, expected, "after")
            outputs[name][0, 0, 0, 0] = float("nan")
            with self.assertRaisesRegex(Wrong, "after timing: .* holds NaN"):
                self.reference.judge(p, outputs, expected, "after")

    def test_a_query_that_sees_one_key_has_no_gradient_to_compare(self):
        p = problem(kind="bwd", head_dim=16, seqlen_k=70)
        expected = self.reference.expectations(p, self.tensors.draw(p, 1, "cpu"))
        self.assertEqual([place[2] for name, place, _ in expected if name == "dQ"], [35, 69] * 2)

    def test_pages_hold_the_keys_of_their_sequence(self):
        p = problem(page_size=16, features=["paged"])
        t = self.tensors.draw(p, 1, "cpu")
        self.assertEqual(sorted(t.table.flatten().tolist()), list(range(2 * 7)))
        k, _ = t.keys(1, 0)
        self.assertTrue(torch.equal(k[16:32], t.k[t.table[1, 1], :, 0]))


if __name__ == "__main__":
    unittest.main()
