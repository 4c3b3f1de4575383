"""How often calls are repeated, by kgen's plan. No torch here: a `Device` has the events and the graphs."""

import itertools
import math

GUESS_CALLS = 3
GRAPH_MS = 0.5
MOST_IN_GRAPH, MOST_IN_ROUND = 1000, 100_000


def count_to_fill(ms, each_ms, most):
    """Number of calls of `each_ms` that fill `ms`: at least one and at most `most`."""
    return max(1, min(most, math.ceil(ms / each_ms) if each_ms > 0 else most))


class Pace:
    """Calls in rotation, warm and counted. `device` gives `event()` with `record()`, `wait()` and `ms_until(event)`,
    and `capture(act)`, which returns a function that replays or None."""

    def __init__(self, calls, plan, device):
        self.device, self.is_graph = device, False
        turns = itertools.cycle(calls)
        self.act = lambda: next(turns)()
        self.act()
        guess, in_graph, counts = self.timed(GUESS_CALLS), 1, plan.get("counts")
        if plan["graph"]:
            wanted = count_to_fill(GRAPH_MS, guess, MOST_IN_GRAPH)
            wanted = -(-wanted // len(calls)) * len(calls)
            one = self.act
            replay = device.capture(lambda: [one() for _ in range(wanted)])
            if replay:
                self.act, in_graph, self.is_graph = replay, wanted, True
                self.act()
                guess = self.timed(GUESS_CALLS)
        warm_ups = max(1, counts["warm_ups"]) if counts else count_to_fill(plan["warm_up_ms"], guess, MOST_IN_ROUND)
        guess = self.timed(warm_ups)
        self.times = -(-counts["runs"] // plan["rounds"]) if counts else 1
        self.acts = 1 if counts else count_to_fill(plan["measure_ms"] / plan["rounds"], guess, MOST_IN_ROUND)
        self.launches = self.acts * in_graph

    def timed(self, count):
        """Milliseconds of a call, over `count` calls."""
        begin = self.mark()
        for _ in range(count):
            self.act()
        end = self.mark()
        end.wait()
        return begin.ms_until(end) / count

    def mark(self):
        event = self.device.event()
        event.record()
        return event

    def round(self):
        """Microseconds of a launch in each time of a round, after an uncounted call."""
        self.act()
        marks = [self.mark()]
        for _ in range(self.times):
            for _ in range(self.acts):
                self.act()
            marks.append(self.mark())
        marks[-1].wait()
        return [a.ms_until(b) * 1e3 / self.launches for a, b in zip(marks, marks[1:])]
