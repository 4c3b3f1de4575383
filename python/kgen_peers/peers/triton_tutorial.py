"""The fused attention of Triton's tutorial: `06-fused-attention.py`, which users put into a folder of `--site`."""

import importlib.util
import inspect
import sys
from pathlib import Path

from kgen_peers.errors import Absent, Refused, first_line, imported
from kgen_peers.peers.common import Peer, across, by_autograd

FILE = "06-fused-attention.py"


def load():
    triton = imported("triton", "it comes with PyTorch for CUDA")
    path = next((path for path in (Path(folder, FILE) for folder in sys.path) if path.is_file()), None)
    if path is None:
        raise Absent(f"no folder of `--site` holds `{FILE}`, which Triton's sources have in python/tutorials")
    spec = importlib.util.spec_from_file_location("fused_attention_tutorial", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        attention, autograd = module.attention, module._attention
    except Exception as error:  # a file of the user's
        raise Absent(f"`{path}` cannot be used ({first_line(error)})") from error
    # Newer versions take a switch for warp specialisation, which Hopper's kernel does not need.
    switches = [False] if "warp_specialize" in inspect.signature(autograd.forward).parameters else []

    def call(problem, tensors):
        problem.refuse(equal_head_dims=True, aligned_to_top=True, decoding=False)
        if problem.groups > 1:
            raise Refused("it has as many key heads as query heads")
        contiguous = lambda *given: [x.contiguous() for x in across(*given)]
        turned = type(tensors)(*contiguous(tensors.q, tensors.k, tensors.v),
            dout=contiguous(tensors.dout)[0] if problem.is_backward else None)
        attend = lambda q, k, v: attention(q, k, v, problem.is_masked, problem.scale, *switches)
        run = by_autograd(attend, problem, turned)
        if problem.is_backward:
            return lambda: [x.transpose(1, 2) for x in run()]
        return lambda: run().transpose(1, 2)

    return Peer(f"Triton {triton.__version__}, {FILE}", call)
