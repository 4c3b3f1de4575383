"""Device time of calls: CUDA events around batches of launches or of graph replays, contenders in interleaved
rounds."""

import math

try:
    import torch
except ImportError:
    torch = None

WARM_UP_MS = 25
GRAPH_MS = 2.0  # duration of one graph
MOST_CALLS = 400  # maximum number of calls in one graph
GRAPH_BELOW_US = 1000  # shorter calls are timed as graph replays, unless a bench decides otherwise


def interleave(names, rounds):
    """(round, name) of every measurement: all names in every round, in an order that reverses with each round."""
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            yield number, name


def copies_for(bytes_each, times, most=64):
    """Number of copies of tensors of this many bytes that total `times` the L2 cache, so that calls that rotate through
    them find the L2 cold."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    return max(1, min(most, math.ceil(times * l2 / bytes_each)))


def elapsed_us(run, times):
    """Microseconds per run of `times` runs between two CUDA events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        run()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end) / times


def capture(calls):
    """A CUDA graph of the calls, after one launch of each on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in dict.fromkeys(calls):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


class Timer:
    """The calls of one contender, one for each copy of its inputs, prepared for repeated rounds.

    `repeated` is the unit between two events: `launch`, calls one after another, or `graph`, replays of a graph
    that rotates through the copies for about GRAPH_MS. `graph` None: a graph if a call takes less than
    GRAPH_BELOW_US.
    """

    def __init__(self, calls, graph, round_ms):
        calls = list(calls)
        for call in calls:
            call()
        torch.cuda.synchronize()
        once = elapsed_us(lambda: [call() for call in calls], 3) / len(calls)
        self.repeated = "graph" if (once < GRAPH_BELOW_US if graph is None else graph) else "launch"
        self.calls, self.lead = len(calls), 0
        if self.repeated == "graph":
            calls *= max(1, min(math.ceil(MOST_CALLS / len(calls)), round(1e3 * GRAPH_MS / (once * len(calls)))))
            self.graph = capture(calls)
            self.run, self.calls = self.graph.replay, len(calls)
        else:
            self.run = lambda: [call() for call in calls]
            # Uncounted runs, so that the device never waits for the host.
            self.lead = int(once < GRAPH_BELOW_US)
        first = elapsed_us(self.run, 1)
        each = elapsed_us(self.run, max(1, int(1e3 * WARM_UP_MS / first)))
        self.runs = max(1, round(1e3 * round_ms / each))

    def round(self):
        """Microseconds of a call, the mean over a round."""
        for _ in range(self.lead):
            self.run()
        return elapsed_us(self.run, self.runs) / self.calls


def race(timers, rounds):
    """{name: microseconds of a call by round} of {name: Timer}, interleaved."""
    times = {name: [] for name in timers}
    for _, name in interleave(list(timers), rounds):
        times[name].append(timers[name].round())
    return times


def median_us(call, rounds=5, round_ms=10, graph=False):
    """The median time of a call that is timed without other contenders."""
    timer = Timer([call], graph, round_ms)
    return sorted(timer.round() for _ in range(rounds))[rounds // 2]


def copy_gbs():
    """GB/s of a kernel that copies 1 GiB, negated; bytes read and written count. A copy node of a graph reaches two
    thirds of it on an H200, because it uses the copy engine."""
    a = torch.ones(1 << 28, dtype=torch.int32, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.nbytes / median_us(lambda: torch.neg(a, out=b)) / 1e3
