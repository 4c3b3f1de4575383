"""PyTorch's scaled_dot_product_attention with one backend."""

from kgen_peers.errors import Absent
from kgen_peers.gpu import torch
from kgen_peers.peers.common import Peer, across, by_autograd


def load(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not hasattr(SDPBackend, backend):
        raise Absent(f"PyTorch {torch.__version__} has no backend {backend}")
    # For the whole process, which calls nothing else: entered for each call, it would cost the host as much as a short
    # kernel takes. The context ends with its last reference.
    chosen = sdpa_kernel(getattr(SDPBackend, backend))
    chosen.__enter__()
    cudnn = f", cuDNN {torch.backends.cudnn.version()}" if "CUDNN" in backend else ""

    def call(problem, tensors):
        problem.refuse(aligned_to_top=True)
        grouped = problem.groups > 1

        def attend(q, k, v):
            out = torch.nn.functional.scaled_dot_product_attention(
                *across(q, k, v), is_causal=problem.is_masked, enable_gqa=grouped)
            return out.transpose(1, 2)

        return by_autograd(attend, problem, tensors)

    return Peer(f"PyTorch {torch.__version__}{cudnn}", call, chosen)
