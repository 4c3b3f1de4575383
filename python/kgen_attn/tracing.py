"""Layers of torch that may intercept a call: tracers, autocast, gradients, transforms of `torch.func`."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from .arguments import any_autocast

#: End of the message that refuses other derivatives.
REVERSE_ALONE = "kgen has gradients of reverse mode alone, by `backward()` and `torch.autograd.grad`"

_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def is_eager(tensor: torch.Tensor) -> bool:
    """True if the tensor has memory that a kernel can use now: the call is not traced."""
    return type(tensor) in _PLAIN and not torch.compiler.is_compiling() and _modes() == 0


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_unobserved(q: object) -> bool:
    """True if nothing intercepts a call: no tracing, no autocast, no transform."""
    return is_eager(q) and not any_autocast() and not is_transformed()


def is_direct(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """True if a call runs the kernel directly: no tracing, no gradients, no autocast."""
    if not is_eager(q) or any_autocast() or is_transformed():
        return False
    return not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad))


#: True under a transform of `torch.func`.
functorch_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def is_transformed() -> bool:
    """True if tensors may have tangents, or belong to a transform of `torch.func`."""
    return functorch_active() or forward_ad._current_level >= 0


def refuse_transforms(tensors: dict) -> None:
    """Raises `NotImplementedError` for tensors with tangents, and for tensors of `torch.func`'s transforms."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if is_batched(tensor) or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            what = "batched, by `torch.func.vmap` or `is_grads_batched`" if is_batched(tensor) else "inside of `torch.func`"
            raise NotImplementedError(f"{_quoted(name)} is {what}: kgen has no rules for transforms of `torch.func`; {REVERSE_ALONE}")
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(f"{_quoted(name)} has a tangent: no forward-mode derivatives; {REVERSE_ALONE}")


def is_batched(tensor: torch.Tensor) -> bool:
    """True if the tensor represents a batch of a transform."""
    # `is_grads_batched` creates the second kind of such tensors, outside of any transform.
    return torch._C._functorch.is_batchedtensor(tensor) or torch._C._functorch.is_legacy_batchedtensor(tensor)


def _quoted(name: str) -> str:
    return name if " " in name else f"`{name}`"
