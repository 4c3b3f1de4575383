"""The worker's side of kgen's protocol: one line of JSON for each order on standard input, one for each answer.

src/bench/turns/protocol.rs describes the lines. Only the standard library is imported here, so that a peer whose
libraries are missing can say so.
"""

import json
import os
import signal
import sys

from kgen_peers import table
from kgen_peers.errors import Absent, Refused, Wrong, first_line

PROTOCOL = 3

# Seconds between the parent's time limit and this process's own end.
GRACE_SECONDS = 10


class Line:
    """Orders in, answers out, on descriptors that nothing else in this process uses."""

    def __init__(self):
        self.orders = os.fdopen(os.dup(0))
        self.answers = os.fdopen(os.dup(1), "w")
        # What libraries print goes to the parent's log; what they start reads nothing.
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self.token = None

    def request(self):
        envelope = json.loads(self.orders.readline())
        self.token = envelope["token"]
        return envelope["request"]

    def order(self):
        """The next order as (word, number); None if there are no more."""
        line = self.orders.readline()
        if not line:
            return None
        order = json.loads(line)
        return (order, None) if isinstance(order, str) else next(iter(order.items()))

    def say(self, event, **facts):
        self.answers.write(f"{self.token} {json.dumps({'event': event, **facts})}\n")
        self.answers.flush()


def status_of(error, order):
    """The status of a failure, as kgen names it. Libraries check their arguments when a call is prepared."""
    if isinstance(error, Wrong):
        return "wrong"
    checked = isinstance(error, (NotImplementedError, ValueError, AssertionError, RuntimeError))
    refuses = order == "prepare" and checked and "out of memory" not in str(error)
    return "refused" if isinstance(error, Refused) or refuses else "error"


def serve(line, request, experiment_of, forget):
    """Answers orders until there are no more. `experiment_of(point)` prepares a point; the experiment has `launches`,
    `round()` and `finish()`. `forget()` frees the memory of one that is over."""
    experiment = None
    while (order := line.order()) is not None:
        signal.setitimer(signal.ITIMER_REAL, request["time_limit_seconds"] + GRACE_SECONDS)
        word, number = order
        try:
            if word == "prepare":
                experiment = experiment_of(request["points"][number])
                event, facts = "ready", {"launches": experiment.launches}
            elif experiment is None:
                raise LookupError(f"the order `{word}` came before a point was prepared")
            elif word == "round":
                event, facts = "round", experiment.round()
            else:
                event, facts = "finished", experiment.finish()
                experiment = None
        except Exception as error:  # whatever a library raises is this point's result
            experiment = None
            if "CUDA error" in str(error):
                # The context is lost: the parent starts another worker for the next point.
                sys.exit(first_line(error))
            message = str(error) if isinstance(error, (Refused, Wrong)) else first_line(error)
            event, facts = "failed", {"status": status_of(error, word), "message": message}
        if experiment is None:
            forget()
        signal.setitimer(signal.ITIMER_REAL, 0)
        line.say(event, **facts)


def main(sites):
    line = Line()
    request = line.request()
    if request["version"] != PROTOCOL:
        return f"the request has version {request['version']}, this worker speaks {PROTOCOL}"
    for site in reversed(sites):
        # CuTe DSL, which FlashAttention-4 needs, keeps its modules in a folder below its own.
        sys.path[1:1] = [site, os.path.join(site, "nvidia_cutlass_dsl", "dsl_packages")]
    try:
        peer = table.load(request["peer"])
        from kgen_peers.experiment import Experiment
        from kgen_peers.gpu import forget, torch
    except Absent as why:
        line.say("absent", message=str(why))
        return 0
    torch.set_grad_enabled(False)
    line.say("hello", protocol=PROTOCOL, library=peer.library)
    experiment_of = lambda point: Experiment(peer, point, request["plan"], request["seed"])
    serve(line, request, experiment_of, forget)
    return 0
