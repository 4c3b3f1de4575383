"""Runs a model of transformers with a chosen attention, and measures the errors of its results."""

import contextlib

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

#: FlashAttention's rule: an error may be at most this many times that of its peers in the same dtype.
RULE = 2.0

BACKENDS = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION}


def use(model, implementation):
    """The model with the chosen attention: kgen, eager, plain, SDPA as torch chooses, or one of SDPA's backends."""
    backend = BACKENDS.get(implementation)
    model.set_attn_implementation("sdpa" if backend is not None else implementation)
    return sdpa_kernel(backend) if backend is not None else contextlib.nullcontext()


def plain(module, query, key, value, attention_mask, scaling=None, dropout=0.0, softcap=None, s_aux=None, **_):
    """Attention with softcap and sinks, entirely in the dtype of the tensors: for the float64 model, and as a second
    peer if SDPA cannot be one. (Transformers' own softmax is in float32, where float64's lowest number, its mask, is
    minus infinity.)"""
    group = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(group, dim=1) for t in (key, value))
    scores = query @ key.mT * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if attention_mask is not None:
        scores = scores + attention_mask[..., : key.shape[-2]].clamp(min=-1e30)
    if s_aux is not None:
        scores = torch.cat([scores, s_aux.reshape(1, -1, 1, 1).to(scores.dtype).expand(*scores.shape[:-1], 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : key.shape[-2]]
    return (weights @ value).transpose(1, 2).contiguous(), None


def wide(module, query, key, value, attention_mask, **others):
    """`plain` in float32, with only O rounded. The second peer under autocast, where `plain` and eager attention round
    alike and are bit-identical."""
    mask = None if attention_mask is None else attention_mask.float()
    with torch.autocast(query.device.type, enabled=False):
        out, _ = plain(module, query.float(), key.float(), value.float(), mask, **others)
    return out.to(value.dtype), None


for _name, _function in {"plain": plain, "wide": wide}.items():
    AttentionInterface.register(_name, _function)
    AttentionMaskInterface.register(_name, eager_mask)


class Calls:
    """Number of calls to the library, by function, within this context."""

    def __init__(self):
        self.count = {"fwd": 0, "bwd": 0}

    def __enter__(self):
        from kgen_attn.library import library

        self.library, self.own = library(), {name: getattr(library(), name) for name in self.count}
        for name, function in self.own.items():
            setattr(self.library, name, self.counted(name, function))
        return self

    def counted(self, name, function):
        def call(*arguments):
            self.count[name] += 1
            return function(*arguments)

        return call

    def __exit__(self, *_):
        for name, function in self.own.items():
            setattr(self.library, name, function)


def outcome(model, implementation, given, there, labels, loss_scale=1.0):
    """Logits of the valid tokens, the loss of each, and gradients by name."""
    model.zero_grad(set_to_none=True)
    with use(model, implementation):
        logits = model(**given).logits[there]
        wide = logits if logits.dtype == torch.float64 else logits.float()
        losses = F.cross_entropy(wide, labels, ignore_index=-100, reduction="none")
        (losses.sum() / (labels >= 0).sum() * loss_scale).backward()
    gradients = {name: p.grad / loss_scale for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return {"logits": logits.detach(), "losses": losses.detach(), "gradients": gradients}


def errors(got, exact):
    """Largest and root mean square error against float64; NaN is infinite."""
    difference = (got.double() - exact).abs()
    if not bool(torch.isfinite(difference).all()):
        return {"max": float("inf"), "rms": float("inf")}
    return {"max": difference.max().item(), "rms": difference.square().mean().sqrt().item()}


def ratio(kgen, others, kinds=("max", "rms")):
    """The largest error of kgen divided by the largest error of the others."""
    return max(kgen[kind] / max(1e-30, max(other[kind] for other in others)) for kind in kinds)
