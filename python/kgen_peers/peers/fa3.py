"""FlashAttention-3: flash-attn-interface or the wheel fa3-fwd for tensors of whole sequences, and the library in vLLM's
wheel for pages and where neither is there."""

import importlib.metadata
import sys
from pathlib import Path

from kgen_peers.errors import Absent, Refused, imported
from kgen_peers.gpu import torch
from kgen_peers.peers.common import Peer, by_autograd

LIBRARY = "_vllm_fa3_C.abi3.so"

# Arguments of the library's operator that have no default.
PLAIN = {"window_size_left": -1, "window_size_right": -1, "softcap": 0.0, "sm_margin": 0, "cp_world_size": 1,
    "cp_rank": 0, "attention_chunk": 0, "is_rotary_interleaved": False}


def dense():
    """(function, name with version, has a backward pass) of a wheel; None if there is none."""
    for module, package, backward in (("flash_attn_interface", "flash_attn_3", True), ("fa3_fwd_interface", "fa3-fwd",
            False)):
        try:
            function = imported(module, "").flash_attn_func
        except Absent:
            continue
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = "of unknown version"
        return function, f"{package} {version}", backward
    return None


def operator():
    """The operator of vLLM's library in a folder of `sys.path`; None if there is none."""
    for folder in sys.path:
        path = Path(folder, LIBRARY)
        if path.is_file():
            torch.ops.load_library(str(path))
            return torch.ops._vllm_fa3_C.fwd.default
    return None


def by_operator(op, problem, tensors, descales):
    """A call of vLLM's library."""
    flat = lambda x: x.flatten(0, 1)
    starts = lambda length: torch.arange(0, (problem.batch + 1) * length, length, dtype=torch.int32,
        device=tensors.q.device)
    given = {**PLAIN, **descales, "q": flat(tensors.q), "cu_seqlens_q": starts(problem.seqlen_q),
        "max_seqlen_q": problem.seqlen_q, "max_seqlen_k": problem.seqlen_k, "softmax_scale": problem.scale,
        "is_causal": problem.causal, "num_splits": 0 if problem.is_decoding else 1}
    if tensors.table is None and not problem.is_decoding:
        given |= {"k": flat(tensors.k), "v": flat(tensors.v), "cu_seqlens_k": starts(problem.seqlen_k)}
    else:
        used = torch.full((problem.batch,), problem.seqlen_k, dtype=torch.int32, device=tensors.q.device)
        given |= {"k": tensors.k, "v": tensors.v, "seqused_k": used, "page_table": tensors.table}
    default = lambda argument: argument.default_value if argument.has_default_value() else None
    arguments = [given.get(argument.name, default(argument)) for argument in op._schema.arguments]
    return lambda: op(*arguments)[0].unflatten(0, (problem.batch, problem.seqlen_q))


def load():
    wheel, op = dense(), operator()
    if wheel is None and op is None:
        raise Absent(f"neither `flash_attn_interface` nor `fa3_fwd_interface` can be imported, and no folder of "
            f"`--site` holds `{LIBRARY}`")
    names = [wheel[1]] if wheel else []
    names += [LIBRARY] if op else []

    def call(problem, tensors):
        problem.refuse(dtypes=("bf16", "fp16", "fp8"), features=("paged",), backward=bool(wheel and wheel[2]))
        descales = {}
        if problem.dtype == "fp8":
            one = torch.ones(problem.batch, problem.heads_k, device=tensors.q.device)
            descales = {name: one for name in ("q_descale", "k_descale", "v_descale")}
        if tensors.table is not None or wheel is None:
            if op is None:
                raise Refused(f"pages need `{LIBRARY}` in a folder of `--site`")
            return by_operator(op, problem, tensors, descales)
        # One split by default; 0 lets it choose, which decoding needs.
        splits = {"num_splits": 0} if problem.is_decoding else {}

        def attend(q, k, v):
            out = wheel[0](q, k, v, causal=problem.causal, **splits, **descales)
            return out[0] if isinstance(out, tuple) else out

        return by_autograd(attend, problem, tensors)

    return Peer("FlashAttention-3: " + ", ".join(names), call)
