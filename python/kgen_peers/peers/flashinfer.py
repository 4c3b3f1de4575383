"""FlashInfer: prefill of packed sequences, decoding from pages."""

from kgen_peers.errors import Refused, imported
from kgen_peers.gpu import torch
from kgen_peers.peers.common import Peer

WORKSPACE_BYTES = 256 << 20


def load():
    library = imported("flashinfer", "install flashinfer-python, or name its folder with `--site`")

    def call(problem, tensors):
        problem.refuse(features=("paged",), backward=False)
        device = tensors.q.device
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        starts = lambda length: torch.arange(0, (problem.batch + 1) * length, length, dtype=torch.int32, device=device)
        flat = tensors.q.flatten(0, 1)
        if tensors.table is None:
            wrapper = library.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
            wrapper.plan(
                starts(problem.seqlen_q), starts(problem.seqlen_k), problem.heads, problem.heads_k, problem.head_dim,
                head_dim_vo=problem.head_dim_v, causal=problem.causal, q_data_type=flat.dtype)
            run = lambda: wrapper.run(flat, tensors.k.flatten(0, 1), tensors.v.flatten(0, 1))
        elif problem.seqlen_q == 1 and problem.head_dim == problem.head_dim_v:
            each = tensors.table.shape[1]
            rest = problem.seqlen_k - (each - 1) * problem.page_size
            last = torch.full((problem.batch,), rest, dtype=torch.int32, device=device)
            wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
                workspace, "NHD", use_tensor_cores=problem.groups > 1)
            wrapper.plan(
                starts(each), tensors.table.flatten(), last, problem.heads, problem.heads_k, problem.head_dim,
                problem.page_size, q_data_type=flat.dtype, kv_data_type=tensors.k.dtype)
            run = lambda: wrapper.run(flat, (tensors.k, tensors.v))
        else:
            raise Refused("pages are read only for one query of each sequence, with equal head dims")
        return lambda: run().unflatten(0, (problem.batch, problem.seqlen_q))

    return Peer(f"FlashInfer {library.__version__}", call)
