"""One peer at one point: checked, warm, timed round by round, checked again."""

from kgen_peers import reference, tensors
from kgen_peers.gpu import Device
from kgen_peers.pace import Pace
from kgen_peers.problem import Problem

OUTPUTS = {False: ("O",), True: ("dQ", "dK", "dV")}


class Experiment:
    def __init__(self, peer, point, plan, seed, device=None):
        self.device = device or Device()
        self.problem = Problem.of(point)
        copies, self.is_cold = self.problem.copies(self.device.l2_bytes)
        sets = [tensors.draw(self.problem, seed + copy, self.device.name) for copy in range(copies)]
        calls = [peer.call(self.problem, of) for of in sets]
        self.latest, self.is_fresh = None, False

        def first():
            self.latest, self.is_fresh = calls[0](), True

        first()
        self.expected = reference.expectations(self.problem, sets[0])
        self.relative_error = self.judge("before")
        self.pace = Pace([first, *calls[1:]], plan, self.device)
        self.launches = self.pace.launches
        self.is_fresh = self.pace.is_graph  # a graph contains every call
        # What is found afterwards was written by a timed call.
        for output in self.outputs().values():
            output.detach().fill_(float("nan"))

    def outputs(self):
        latest = self.latest if isinstance(self.latest, (tuple, list)) else (self.latest,)
        return dict(zip(OUTPUTS[self.problem.is_backward], latest))

    def judge(self, when):
        return reference.judge(self.problem, self.outputs(), self.expected, when)

    def round(self):
        return {"microseconds": self.pace.round(), "card": self.device.card.state()}

    def finish(self):
        while not self.is_fresh:  # few rounds of many copies have not come to the first one again
            self.pace.act()
        self.judge("after")
        facts = {"relative_error": self.relative_error, "graph": self.pace.is_graph, "cold_l2": self.is_cold,
            "memory_bytes": self.device.peak_bytes()}
        return facts
