"""Attention as PyTorch code: two products and a softmax, eager or compiled."""

from kgen_peers.gpu import torch
from kgen_peers.peers.common import Peer, across, by_autograd


def attend(q, k, v, scale, hidden):
    """(batch, heads, seqlen, head dim); `hidden` is a mask, or None."""
    groups = q.shape[1] // k.shape[1]
    q = q.unflatten(1, (k.shape[1], groups))
    scores = q @ k.unsqueeze(2).transpose(-1, -2) * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    return (torch.softmax(scores, -1) @ v.unsqueeze(2)).flatten(1, 2)


def load(compiled=False):
    # The caller captures CUDA graphs where the plan asks for them, of all contenders alike.
    mode = "max-autotune-no-cudagraphs"
    function = torch.compile(attend, mode=mode, dynamic=False) if compiled else attend

    def call(problem, tensors):
        problem.refuse()
        if compiled:
            torch._dynamo.reset()  # otherwise it stops compiling after a few shapes
        hidden = None
        if problem.is_masked:
            whole = torch.ones(problem.seqlen_q, problem.seqlen_k, dtype=torch.bool, device=tensors.q.device)
            hidden = whole.triu(problem.seqlen_k - problem.seqlen_q + 1)

        def whole_call(q, k, v):
            return function(*across(q, k, v), problem.scale, hidden).transpose(1, 2)

        return by_autograd(whole_call, problem, tensors)

    return Peer(f"PyTorch {torch.__version__}" + (f", torch.compile {mode}" if compiled else ""), call)
