"""The operators `torch.ops.kgen_attn.*`, for torch.compile and other tracers, and the gradient that they share with
eager calls.

An eager call bypasses the operators: dispatching a Python kernel costs torch several times the call itself.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from . import features
from .append_kv import fwd_kvcache
from .arguments import NAMES, refuse_gradients
from .backward import backward
from .bias import refuse_gradient_of_bias
from .forward import forward
from .tracing import REVERSE_ALONE, functorch_active, is_batched, is_eager, is_transformed, refuse_transforms

_LIBRARY = torch.library.Library("kgen_attn", "DEF")

#: Operator `forward`: the number of optional tensors, the number of parameters, and the indices of the sinks and of the
#: bias among the parameters.
_OPTIONAL, _PARAMETERS, _SINKS_AT, _BIAS_AT = 14, 27 + len(features.WITHOUT), 11, 16

#: Index, counted after V, of the first parameter that only one operator has: `deterministic`, or the new rows.
_OWN_AT = _OPTIONAL + 9

#: Indices in `NAMES`, counted after V: arguments that the backward pass does not support, and arguments that get no
#: gradient even if they require one.
_WITHOUT_BACKWARD = (4, 5, 6, 9, 10, 11, 12)
_WITHOUT_GRADIENT = (7, 9, 10, 11, 12)

#: Number of saved tensors of the backward pass that come before the sinks.
_SAVED = 10

#: Index of softcap among the numbers of `forward`, and of with_dbias among those of `backward`.
_SOFTCAP_AT, _WITH_DBIAS_AT = 7, 9

_TENSORS = (
    "Tensor q, Tensor k, Tensor v, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_q, Tensor? seqused_k, "
    "Tensor? page_table, Tensor? cache_batch_idx, Tensor? leftpad_k, Tensor? alibi_slopes, Tensor? sinks, "
    "Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, Tensor? qv, Tensor? attn_bias"
)
_NUMBERS = (
    "SymInt max_seqlen_q, SymInt max_seqlen_k, float softmax_scale, bool causal, SymInt window_left, SymInt window_right, "
    "SymInt attention_chunk, float softcap"
)
_SCHEMAS = {
    "forward": f"({_TENSORS}, {_NUMBERS}, SymInt num_splits, bool deterministic, {features.SCHEMA}) -> (Tensor, Tensor)",
    "backward": (
        "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
        "Tensor? seqused_q, Tensor? seqused_k, Tensor? alibi_slopes, Tensor? sinks, Tensor? dlse, Tensor? attn_bias, "
        f"{_NUMBERS}, bool deterministic, bool with_dbias, {features.SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
    # `seqused_k` counts the rows before the new ones.
    "fwd_kvcache": (
        f"({_TENSORS.replace('Tensor k, Tensor v', 'Tensor(a!) k, Tensor(b!) v')}, {_NUMBERS}, SymInt num_splits, Tensor k_new, "
        "Tensor v_new, Tensor? cu_seqlens_new, Tensor? rotary_cos, Tensor? rotary_sin, Tensor? seqlens_rotary, bool rising_positions, "
        "bool interleaved) -> (Tensor, Tensor)"
    ),
    "materialize": "(Tensor computed) -> Tensor",
    # Raises when it runs, not when it is traced.
    "no_gradient": "(Tensor dout, Tensor input, str why) -> Tensor",
}


def _forward(q, k, v, *others):
    _refuse_forward_mode()
    return _attend(q, k, v, *others)


def _attend(q, k, v, *others):
    # `deterministic` does not affect the forward pass.
    optional, numbers, _, added = _divided(others)
    return forward(q, k, v, optional, numbers, added=added)


def _divided(others: tuple) -> tuple[tuple, tuple, bool, tuple]:
    """The optional tensors, the numbers, `deterministic`, and the arguments that features add."""
    return others[:_OPTIONAL], others[_OPTIONAL:_OWN_AT], others[_OWN_AT], features.completed(others[_OWN_AT + 1 :])


def _forward_fake(q, k, v, cu_seqlens_q, *_):
    out = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype)
    shape = (q.shape[1], q.shape[0]) if cu_seqlens_q is not None else (q.shape[0], q.shape[2], q.shape[1])
    return out, q.new_empty(shape, dtype=torch.float32)


def _backward(*inputs):
    _refuse_forward_mode()
    return backward(*inputs)


def _backward_fake(dout, q, k, v, out, lse, cu_q, cu_k, used_q, used_k, slopes, sinks, dlse, bias, *numbers):
    dsinks = q.new_empty((0,) if sinks is None else sinks.shape, dtype=torch.float32)
    dbias = q.new_empty(bias.shape if numbers[_WITH_DBIAS_AT] else (0,), dtype=torch.float32)
    return *(t.new_empty(t.shape) for t in (q, k, v)), dsinks, dbias


def _fwd_kvcache(q, k, v, *others):
    _refuse_forward_mode()
    return fwd_kvcache(q, k, v, others[:_OPTIONAL], others[_OPTIONAL:_OWN_AT], others[_OWN_AT:])


def _materialize(computed):
    """A copy in separate memory. A compiler does not inline an operator, so the value is computed once for all its
    uses."""
    return computed.clone(memory_format=torch.contiguous_format)


def _materialize_fake(computed):
    return computed.new_empty(computed.shape)


def _no_gradient(_dout, _input, why):
    raise NotImplementedError(why)


def _no_gradient_fake(_dout, input, _why):
    return input.new_empty(input.shape)


def _refuse_forward_mode() -> None:
    # Tangents, and levels of torch.func.jvp, are invisible below torch's dispatcher.
    if forward_ad._current_level >= 0:
        raise NotImplementedError(f"no tangents through `torch.ops.kgen_attn`: {REVERSE_ALONE}")


_KERNELS = {
    "forward": _forward,
    "backward": _backward,
    "fwd_kvcache": _fwd_kvcache,
    "materialize": _materialize,
    "no_gradient": _no_gradient,
}
_FAKES = {
    "forward": _forward_fake,
    "backward": _backward_fake,
    "fwd_kvcache": _forward_fake,
    "materialize": _materialize_fake,
    "no_gradient": _no_gradient_fake,
}

for _name, _schema in _SCHEMAS.items():
    _LIBRARY.define(_name + _schema)
    for _key in ("CUDA", "CPU"):
        _LIBRARY.impl(_name, _KERNELS[_name], _key)
    torch.library.register_fake(f"kgen_attn::{_name}", _FAKES[_name], lib=_LIBRARY)


def _setup(ctx, inputs, output) -> None:
    q, k, v = inputs[:3]
    optional, numbers, deterministic, added = _divided(inputs[3:])
    ctx.set_materialize_grads(False)
    ctx.refused = () if _have_gradients(*optional) else _refused(optional, numbers)
    others = *optional[:4], *optional[7:9], optional[_BIAS_AT - 3]
    ctx.save_for_backward(q, k, v, *output, *others, *added[: features.TENSORS])
    ctx.numbers, ctx.added = (*numbers[:-1], deterministic), added[features.TENSORS :]  # without num_splits


def _have_gradients(_1, _2, _3, _4, pages, entries, leftpad, slopes, _9, q_descale, k_descale, v_descale, qv, bias) -> bool:
    """True if the call uses none of the arguments that `_refused` checks, as most calls do."""
    # fmt: off
    return (slopes is None and pages is None and entries is None and leftpad is None and q_descale is None
            and k_descale is None and v_descale is None and qv is None and bias is None)
    # fmt: on


def _refused(optional: tuple, numbers: tuple) -> list[str]:
    """Names of arguments that the backward pass does not support, and of those that require grad but get none."""
    in_vain = [at for at in _WITHOUT_GRADIENT if optional[at] is not None and optional[at].requires_grad]
    refused = [NAMES[3 + at] for at in (*_WITHOUT_BACKWARD, *in_vain) if optional[at] is not None]
    capped = optional[_BIAS_AT - 3] is not None and numbers[_SOFTCAP_AT] != 0.0
    return [*refused, *(("softcap", "attn_bias") if capped else ())]


def _gradient(ctx, dout, dlse):
    gradients = [None] * _PARAMETERS
    if dout is None and dlse is None:
        return tuple(gradients)
    tensors = ctx.saved_tensors
    if ctx.refused:  # at run time: compilers also trace backward passes that never run
        why = f"no gradients with `{'`, `'.join(ctx.refused)}`"
        given = dlse if dout is None else dout
        gradients[:3] = (torch.ops.kgen_attn.no_gradient(given, tensor, why) for tensor in tensors[:3])
        return tuple(gradients)
    if dout is None:
        dout = torch.zeros_like(tensors[3])
    eager = is_eager(dout) and is_eager(tensors[0])
    if eager and (is_transformed() or any(t is not None and is_batched(t) for t in (dout, dlse))):
        refuse_transforms({"the gradient of the result": dout, "the gradient of the log-sum-exp": dlse})
    # With `create_graph` through the operator, whose own gradient raises.
    run = backward if eager and not torch.is_grad_enabled() else torch.ops.kgen_attn.backward
    sinks, bias, *added = tensors[_SAVED:]
    with_dbias = bias is not None and bias.requires_grad
    given = (dout, *tensors[:_SAVED], sinks, dlse, bias, *ctx.numbers, with_dbias, *added, *ctx.added)
    *gradients[:3], dsinks, dbias = run(*given)
    if sinks is not None and sinks.requires_grad:
        gradients[_SINKS_AT] = dsinks.to(sinks.dtype)
    if with_dbias:
        gradients[_BIAS_AT] = dbias.to(bias.dtype)
    return tuple(gradients)


def _second_derivative(_ctx, *_):
    raise NotImplementedError("kgen has no second derivatives: a gradient made with `create_graph=True` cannot be differentiated again")


torch.library.register_autograd("kgen_attn::forward", _gradient, setup_context=_setup, lib=_LIBRARY)
torch.library.register_autograd("kgen_attn::backward", _second_derivative, lib=_LIBRARY)


class _Eager(torch.autograd.Function):
    """`forward` with the gradient of the operator. (With a separate `setup_context`, torch would inspect the signature
    in every call, which takes three times as long as the rest.)"""

    @staticmethod
    def forward(ctx, *inputs):
        output = _attend(*inputs)
        _setup(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, dout, dlse):
        return _gradient(ctx, dout, dlse)


_NEW_KEYS = (
    "no gradients of `flash_attn_with_kvcache` with new keys, `k` and `v`, which are written into the cache; call it under "
    "`torch.no_grad()`, or write them yourself and call `flash_attn_func`"
)


class _WithoutGradient(torch.autograd.Function):
    """The identity, with a gradient that raises."""

    @staticmethod
    def forward(ctx, computed, wanted):
        ctx.save_for_backward(wanted)
        return computed.view_as(computed)

    @staticmethod
    def backward(ctx, dout):
        return None, torch.ops.kgen_attn.no_gradient(dout, *ctx.saved_tensors, _NEW_KEYS)


def without_gradient(computed: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """`computed`, which depends on `wanted`; kgen has no gradient for `wanted`, so the backward pass raises."""
    return _WithoutGradient.apply(computed, wanted)


def _refuse_gradients(optional: tuple) -> None:
    _, _, _, _, _, _, _, slopes, _, q_descale, k_descale, v_descale, qv, _ = optional
    if slopes is None and q_descale is None and k_descale is None and v_descale is None and qv is None:
        return
    for at in _WITHOUT_GRADIENT:
        tensor = optional[at]
        if getattr(tensor, "requires_grad", False):
            refuse_gradients({NAMES[3 + at]: tensor})


def nothing(like: torch.Tensor) -> torch.Tensor:
    """An empty tensor."""
    return torch.empty_strided((0,), (1,), dtype=like.dtype, device=like.device)


def attend(q, k, v, optional: tuple, numbers: tuple, deterministic: bool, needs_lse: bool, added: tuple = features.WITHOUT):
    """O and LSE, differentiable in Q, K, V, the sinks and the bias, with the parameters of `forward`. LSE may be None
    if `needs_lse` is False."""
    wants_gradients = torch.is_grad_enabled()
    sinks, bias = optional[_SINKS_AT - 3], optional[_BIAS_AT - 3]
    if wants_gradients:
        _refuse_gradients(optional)
        if bias is not None and bias.requires_grad:
            refuse_gradient_of_bias(bias, q, optional[0], numbers[0], numbers[_SOFTCAP_AT], deterministic)
    if not is_eager(q):
        return torch.ops.kgen_attn.forward(q, k, v, *optional, *numbers, deterministic, *added)
    tensors = (q, k, v, *optional)
    if is_transformed():
        refuse_transforms(dict(zip(NAMES, tensors)))
    wants_gradients = wants_gradients and (q.requires_grad or k.requires_grad or v.requires_grad or _of_others(sinks, bias))
    if wants_gradients:
        # Plain tensors that require grad: an active torch.func transform records no gradients for tensors that it does
        # not wrap.
        if functorch_active():
            names = "`q`, `k`, `v`, `s_aux` or `attn_bias`"
            raise NotImplementedError(f"{names} requires grad inside of a transform of `torch.func`: {REVERSE_ALONE}")
        return _Eager.apply(*tensors, *numbers, deterministic, *added)
    return forward(q, k, v, optional, numbers, needs_lse, added=added)


def _of_others(sinks, bias) -> bool:
    return (sinks is not None and sinks.requires_grad) or (bias is not None and bias.requires_grad)


def attend_with_new_rows(q, k_cache, v_cache, optional: tuple, numbers: tuple, new: tuple, needs_lse: bool):
    """O and LSE, without gradients, with the parameters of `fwd_kvcache`."""
    if torch.is_grad_enabled():
        _refuse_gradients(optional)
        if new[3] is not None:
            refuse_gradients({"rotary_cos": new[3], "rotary_sin": new[4]})
    if not is_eager(q):
        return torch.ops.kgen_attn.fwd_kvcache(q, k_cache, v_cache, *optional, *numbers, *new)
    if is_transformed():
        refuse_transforms(dict(zip((*NAMES, "k", "v"), (q, k_cache, v_cache, *optional, *new[:2]))))
    return fwd_kvcache(q, k_cache, v_cache, optional, numbers, new, needs_lse)
