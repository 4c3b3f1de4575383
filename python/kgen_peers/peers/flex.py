"""PyTorch's FlexAttention, compiled, with a block mask where the call is causal."""

from kgen_peers.errors import imported
from kgen_peers.gpu import torch
from kgen_peers.peers.common import Peer, across, by_autograd


def load():
    flex = imported("torch.nn.attention.flex_attention", "PyTorch 2.5 and newer have it")
    torch._dynamo.config.recompile_limit = 1000  # beyond it, further shapes are not compiled
    compiled = torch.compile(flex.flex_attention, dynamic=False)

    def call(problem, tensors):
        problem.refuse()
        mask, last = None, problem.seqlen_k - problem.seqlen_q
        if problem.is_masked:
            sees = lambda b, h, i, j: j <= i + last
            mask = flex.create_block_mask(sees, None, None, problem.seqlen_q, problem.seqlen_k, tensors.q.device)

        def attend(q, k, v):
            out = compiled(*across(q, k, v), block_mask=mask, enable_gqa=problem.groups > 1)
            return out.transpose(1, 2)

        return by_autograd(attend, problem, tensors)

    return Peer(f"PyTorch {torch.__version__}", call)
