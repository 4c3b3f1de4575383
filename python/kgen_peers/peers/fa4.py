"""FlashAttention-4, in CuTe DSL; it compiles a kernel for each new case."""

import importlib.metadata

from kgen_peers.errors import imported
from kgen_peers.gpu import torch
from kgen_peers.peers.common import Peer


def load():
    remedy = "unpack flash-attn-4 and CuTe DSL into a folder and name it with `--site`"
    interface = imported("flash_attn.cute.interface", remedy)
    try:
        version = importlib.metadata.version("flash-attn-4")
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"

    def call(problem, tensors):
        problem.refuse()
        q, k, v = tensors.q, tensors.k, tensors.v
        sizes = (problem.batch, problem.seqlen_q, problem.heads, problem.head_dim_v)
        out = torch.empty(sizes, dtype=q.dtype, device=q.device)
        lse = torch.empty(problem.batch, problem.heads, problem.seqlen_q, device=q.device)
        forward = lambda: interface._flash_attn_fwd(
            q, k, v, causal=problem.causal, return_lse=True, out=out, lse=lse)[:2]
        if not problem.is_backward:
            return lambda: forward()[0]
        o, sums = forward()
        return lambda: interface._flash_attn_bwd(q, k, v, o, tensors.dout, sums, causal=problem.causal)[:3]

    return Peer(f"flash-attn-4 {version}", call)
