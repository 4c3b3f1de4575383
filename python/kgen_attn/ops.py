"""The operators `torch.ops.kgen_attn.*`, for torch.compile and other tracers, and the gradient that they share with
the eager way.

An eager call does not go through the operators: torch's dispatcher calls Python kernels at several times the cost of
the call itself.
"""

from __future__ import annotations

import torch

from .append_kv import fwd_kvcache
from .arguments import any_autocast
from .backward import backward
from .forward import forward

_LIBRARY = torch.library.Library("kgen_attn", "DEF")

#: Of the operator `forward`: how many tensors may be absent, how many parameters there are, and where the sinks stand.
_OPTIONAL, _PARAMETERS, _SINKS_AT = 13, 26, 11

#: Of `fwd_kvcache`: where what is said of new rows begins, counted after V.
_NEW_AT = _OPTIONAL + 9

#: FlashAttention's names of the tensors that the backward pass does not know, in the order of `forward`'s `optional`.
_WITHOUT_GRADIENT = ("block_table", "cache_batch_idx", "cache_leftpad", "q_descale", "k_descale", "v_descale", "qv")

_TENSORS = (
    "Tensor q, Tensor k, Tensor v, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_q, Tensor? seqused_k, "
    "Tensor? page_table, Tensor? cache_batch_idx, Tensor? leftpad_k, Tensor? alibi_slopes, Tensor? sinks, "
    "Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, Tensor? qv"
)
_NUMBERS = (
    "SymInt max_seqlen_q, SymInt max_seqlen_k, float softmax_scale, bool causal, SymInt window_left, SymInt window_right, "
    "SymInt attention_chunk, float softcap"
)
_SCHEMAS = {
    "forward": f"({_TENSORS}, {_NUMBERS}, SymInt num_splits, bool deterministic) -> (Tensor, Tensor)",
    "backward": (
        "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
        f"Tensor? seqused_q, Tensor? seqused_k, Tensor? alibi_slopes, Tensor? sinks, {_NUMBERS}, bool deterministic) "
        "-> (Tensor, Tensor, Tensor, Tensor)"
    ),
    # `seqused_k` counts the rows before the new ones.
    "fwd_kvcache": (
        f"({_TENSORS.replace('Tensor k, Tensor v', 'Tensor(a!) k, Tensor(b!) v')}, {_NUMBERS}, SymInt num_splits, Tensor k_new, "
        "Tensor v_new, Tensor? cu_seqlens_new, Tensor? rotary_cos, Tensor? rotary_sin, Tensor? seqlens_rotary, bool rising_positions, "
        "bool interleaved) -> (Tensor, Tensor)"
    ),
    "materialize": "(Tensor computed) -> Tensor",
}


def _forward(q, k, v, *others):
    # Whether the gradient is deterministic, which comes last, is no matter of the forward pass.
    return forward(q, k, v, others[:_OPTIONAL], others[_OPTIONAL:-1])


def _forward_fake(q, k, v, cu_seqlens_q, *_):
    out = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype)
    shape = (q.shape[1], q.shape[0]) if cu_seqlens_q is not None else (q.shape[0], q.shape[2], q.shape[1])
    return out, q.new_empty(shape, dtype=torch.float32)


def _backward_fake(dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, alibi_slopes, sinks, *_):
    dsinks = q.new_empty((0,) if sinks is None else sinks.shape, dtype=torch.float32)
    return *(t.new_empty(t.shape) for t in (q, k, v)), dsinks


def _fwd_kvcache(q, k, v, *others):
    return fwd_kvcache(q, k, v, others[:_OPTIONAL], others[_OPTIONAL:_NEW_AT], others[_NEW_AT:])


def _materialize(computed):
    """The same in memory of its own. No compiler looks into an operator, so that it is computed once for all its uses."""
    return computed.clone(memory_format=torch.contiguous_format)


def _materialize_fake(computed):
    return computed.new_empty(computed.shape)


_KERNELS = {"forward": _forward, "backward": backward, "fwd_kvcache": _fwd_kvcache, "materialize": _materialize}
_FAKES = {"forward": _forward_fake, "backward": _backward_fake, "fwd_kvcache": _forward_fake, "materialize": _materialize_fake}

for _name, _schema in _SCHEMAS.items():
    _LIBRARY.define(_name + _schema)
    for _key in ("CUDA", "CPU"):
        _LIBRARY.impl(_name, _KERNELS[_name], _key)
    torch.library.register_fake(f"kgen_attn::{_name}", _FAKES[_name], lib=_LIBRARY)


def _setup(ctx, inputs, output) -> None:
    q, k, v = inputs[:3]
    optional, numbers = inputs[3 : 3 + _OPTIONAL], inputs[3 + _OPTIONAL :]
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    ctx.refused = [name for name, tensor in zip(_WITHOUT_GRADIENT, optional[4:7] + optional[9:]) if tensor is not None]
    ctx.save_for_backward(q, k, v, out, lse, *optional[:4], *optional[7:9])
    ctx.numbers = (*numbers[:-2], numbers[-1])  # without num_splits


def _gradient(ctx, dout, _dlse):
    if ctx.refused:
        raise NotImplementedError(f"no gradients with `{'`, `'.join(ctx.refused)}`")
    gradients = [None] * _PARAMETERS
    if dout is None:
        return tuple(gradients)
    tensors = ctx.saved_tensors
    run = backward if is_eager(dout) and is_eager(tensors[0]) else torch.ops.kgen_attn.backward
    *gradients[:3], dsinks = run(dout, *tensors, *ctx.numbers)
    sinks = tensors[-1]
    if sinks is not None and sinks.requires_grad:
        gradients[_SINKS_AT] = dsinks.to(sinks.dtype)
    return tuple(gradients)


torch.library.register_autograd("kgen_attn::forward", _gradient, setup_context=_setup, lib=_LIBRARY)


class _Eager(torch.autograd.Function):
    """`forward` with the gradient of the operator. (With a `setup_context` of its own, torch would look at the signature
    in every call, which takes three times as long as the rest.)"""

    @staticmethod
    def forward(ctx, *inputs):
        output = _forward(*inputs)
        _setup(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, dout, dlse):
        return _gradient(ctx, dout, dlse)


_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def is_eager(tensor: torch.Tensor) -> bool:
    """Whether the tensor has memory that a kernel can be given now: nothing traces the call."""
    return type(tensor) in _PLAIN and not torch.compiler.is_compiling() and _modes() == 0


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_direct(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether nothing stands between a call and the kernel: no tracing, no gradients, no autocast."""
    return is_eager(q) and not any_autocast() and not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad))



def nothing(like: torch.Tensor) -> torch.Tensor:
    """An empty tensor."""
    return torch.empty_strided((0,), (1,), dtype=like.dtype, device=like.device)


def attend(q, k, v, optional: tuple, numbers: tuple, deterministic: bool, needs_lse: bool):
    """O and LSE, differentiable in Q, K, V and the sinks, with the parameters of `forward`. LSE may be None where it is
    not needed."""
    if not is_eager(q):
        return torch.ops.kgen_attn.forward(q, k, v, *optional, *numbers, deterministic)
    sinks = optional[8]
    if torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or (sinks is not None and sinks.requires_grad)
    ):
        return _Eager.apply(q, k, v, *optional, *numbers, deterministic)
    return forward(q, k, v, optional, numbers, needs_lse)


def attend_with_new_rows(q, k_cache, v_cache, optional: tuple, numbers: tuple, new: tuple, needs_lse: bool):
    """O and LSE with the parameters of `fwd_kvcache`; no gradients."""
    if not is_eager(q):
        return torch.ops.kgen_attn.fwd_kvcache(q, k_cache, v_cache, *optional, *numbers, *new)
    return fwd_kvcache(q, k_cache, v_cache, optional, numbers, new, needs_lse)
