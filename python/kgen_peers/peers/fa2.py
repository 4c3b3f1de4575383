"""FlashAttention-2 from the package flash-attn."""

from kgen_peers.errors import imported
from kgen_peers.gpu import torch
from kgen_peers.peers.common import Peer, by_autograd


def load():
    package = imported("flash_attn", "install flash-attn, or name its folder with `--site`")
    attention = imported("flash_attn.flash_attn_interface", "install flash-attn 2")

    def call(problem, tensors):
        problem.refuse(features=("paged",), equal_head_dims=True)
        if problem.is_decoding or tensors.table is not None:
            lengths = torch.full((problem.batch,), problem.seqlen_k, dtype=torch.int32, device=tensors.q.device)
            return lambda: attention.flash_attn_with_kvcache(
                tensors.q, tensors.k, tensors.v, cache_seqlens=lengths, block_table=tensors.table,
                causal=problem.causal)
        attend = lambda q, k, v: attention.flash_attn_func(q, k, v, causal=problem.causal)
        return by_autograd(attend, problem, tensors)

    return Peer(f"flash-attn {getattr(package, '__version__', 'of unknown version')}", call)
