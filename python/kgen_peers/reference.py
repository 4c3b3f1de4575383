"""Attention in float64 for single rows, and the comparison of a peer's results with it."""

from kgen_peers.errors import Wrong
from kgen_peers.gpu import torch

# Queries whose scores are in memory at once.
CHUNK = 1024


def keys_of(problem, tensors, sequence, head_k):
    k, v = tensors.keys(sequence, head_k)
    return k[: problem.seqlen_k].double(), v[: problem.seqlen_k].double()


def weights(problem, q, k, first):
    """Softmax of the scores of queries `first`, `first` + 1, … over all keys."""
    scores = q @ k.T * problem.scale
    if problem.causal:
        rows = torch.arange(first, first + len(q), device=q.device)[:, None]
        hidden = torch.arange(problem.seqlen_k, device=q.device) > rows + problem.seqlen_k - problem.seqlen_q
        scores = scores.masked_fill(hidden, float("-inf"))
    # A row that sees no key has no weights.
    return torch.softmax(scores, -1).nan_to_num(0.0)


def output_row(problem, tensors, place):
    sequence, head, row = place
    k, v = keys_of(problem, tensors, sequence, head // problem.groups)
    return (weights(problem, tensors.q[sequence, row, head].double()[None], k, row) @ v)[0]


def query_gradient(problem, tensors, place):
    """dQ of one query."""
    sequence, head, row = place
    k, v = keys_of(problem, tensors, sequence, head // problem.groups)
    p = weights(problem, tensors.q[sequence, row, head].double()[None], k, row)[0]
    of_weights = v @ tensors.dout[sequence, row, head].double()
    return (p * (of_weights - p @ of_weights)) @ k * problem.scale


def key_gradients(problem, tensors, sequence, head_k, rows):
    """dK and dV of some keys, summed over the query heads that share them."""
    k, v = keys_of(problem, tensors, sequence, head_k)
    dk, dv = torch.zeros_like(k[rows]), torch.zeros_like(v[rows])
    for head in range(head_k * problem.groups, (head_k + 1) * problem.groups):
        for first in range(0, problem.seqlen_q, CHUNK):
            q = tensors.q[sequence, first : first + CHUNK, head].double()
            dout = tensors.dout[sequence, first : first + CHUNK, head].double()
            p = weights(problem, q, k, first)
            row_sums = (dout * (p @ v)).sum(-1, keepdim=True)
            chosen = p[:, rows]
            dv += chosen.T @ dout
            dk += (chosen * (dout @ v[rows].T - row_sums)).T @ q * problem.scale
    return dk, dv


def expectations(problem, tensors):
    """[(name of the output, place in it, expected row)]."""
    places = problem.picks(problem.heads, problem.seqlen_q)
    if not problem.is_backward:
        seen = [place for place in places if problem.visible(place[2]) > 0]
        return [("O", place, output_row(problem, tensors, place)) for place in seen]
    # The weight of a single key is 1 whatever the query is: its gradient is 0, and an error has no relation to it.
    moved = [place for place in places if problem.visible(place[2]) > 1]
    expected = [("dQ", place, query_gradient(problem, tensors, place)) for place in moved]
    of_keys = {}
    for sequence, head, row in problem.picks(problem.heads_k, problem.seqlen_k):
        of_keys.setdefault((sequence, head), []).append(row)
    for (sequence, head), rows in of_keys.items():
        for name, found in zip(("dK", "dV"), key_gradients(problem, tensors, sequence, head, rows)):
            expected += [(name, (sequence, head, row), x) for row, x in zip(rows, found)]
    return expected


def judge(problem, outputs, expected, when):
    """Largest relative error of the rows; raises `Wrong` if there is a NaN or a row is too far from the reference.
    `outputs` are tensors (batch, seqlen, heads, head dim) by name."""
    for name, tensor in outputs.items():
        # FP8 kernels give 16-bit outputs; every row must have been written.
        if torch.isnan(tensor).any():
            raise Wrong(f"{when} timing: {name} holds NaN")
    worst = 0.0
    for name, (sequence, head, row), exact in expected:
        got = outputs[name][sequence, row, head].double()
        norm, error = exact.norm().item(), (got - exact).norm().item()
        relative = 0.0 if error == 0 else error / norm if norm else float("inf")
        if not relative <= problem.largest_error:
            raise Wrong(f"{when} timing: {name} is wrong: the relative error of a sampled row is {relative:.2e}, "
                f"more than {problem.largest_error}")
        worst = max(worst, relative)
    return worst
