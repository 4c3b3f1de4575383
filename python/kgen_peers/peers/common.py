"""What several peers share."""

from kgen_peers.gpu import torch


class Peer:
    """An implementation: `library` is its name with its version, `call(problem, tensors)` prepares a function that
    returns O, or (dQ, dK, dV), as (batch, seqlen, heads, head dim). `kept` lives as long as the peer."""

    def __init__(self, library, call, kept=None):
        self.library, self.call, self.kept = library, call, kept


def across(*tensors):
    """(batch, heads, seqlen, head dim)."""
    return [x.transpose(1, 2) for x in tensors]


def gradients(attend, tensors):
    """A function that computes (dQ, dK, dV) of `attend(q, k, v)` by autograd, after one forward pass."""
    inputs = [x.detach().requires_grad_() for x in (tensors.q, tensors.k, tensors.v)]
    with torch.enable_grad():
        out = attend(*inputs)
    return lambda: torch.autograd.grad(out, inputs, tensors.dout, retain_graph=True)


def by_autograd(attend, problem, tensors):
    """The call of `attend(q, k, v)`, or of its gradients."""
    return gradients(attend, tensors) if problem.is_backward else lambda: attend(tensors.q, tensors.k, tensors.v)
