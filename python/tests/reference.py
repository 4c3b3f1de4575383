"""Attention in float64 and in a low precision; the errors of kgen are compared with those of the latter."""

import math

import torch


def attention(
    q, k, v, *, scale=None, causal=False, window=(-1, -1), softcap=0.0, chunk=0, slopes=None, sinks=None, bias=None,
    kept=None, p=0.0, dtype=torch.float64,
):
    """O and LSE of (rows, heads, head dim) tensors of one sequence, all arithmetic in `dtype`, on the device of `q`.

    Row i is at position i + keys - rows. A row that sees no key gives zeros and an LSE of -infinity. The bias is (heads
    or 1, rows or 1, keys or 1). `kept`, (heads, rows, keys) bool, are the weights that dropout with `p` keeps.
    """
    rows, heads, keys, key_heads = q.shape[0], q.shape[1], k.shape[0], k.shape[1]
    q, k, v = (t.to(dtype) for t in (q, k, v))
    k, v = (t.repeat_interleave(heads // key_heads, dim=1) for t in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) * (scale if scale is not None else q.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    position = torch.arange(rows, device=q.device)[:, None] + keys - rows
    key = torch.arange(keys, device=q.device)[None, :]
    if slopes is not None:
        scores = scores - slopes.to(scores)[:, None, None] * (position - key).abs()
    seen = torch.ones(rows, keys, dtype=torch.bool, device=q.device)
    left, right = window[0], 0 if causal else window[1]
    if left >= 0:
        seen &= key >= position - left
    if right >= 0:
        seen &= key <= position + right
    if chunk:
        seen &= key // chunk == torch.div(position, chunk, rounding_mode="floor")
    if bias is not None:  # hidden elements have no gradient
        shown = bias > -(2.0**126)
        scores = scores + bias.to(dtype).masked_fill(~shown, 0.0)
        seen = seen & shown
    scores = scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores)[:, None, None].expand(heads, rows, 1)], dim=-1)
    lse = torch.logsumexp(scores, dim=-1) if scores.shape[-1] else torch.full((heads, rows), -math.inf, dtype=dtype, device=q.device)
    weights = torch.exp(scores - lse.masked_fill(lse == -math.inf, 0.0)[..., None])[..., :keys]
    if kept is not None:
        weights = weights.masked_fill(~kept, 0.0) / (1.0 - p)
    return torch.einsum("hij,jhd->ihd", weights, v), lse


def batch(q, k, v, **options):
    """`attention` for each entry of a batch. Slopes can be per head, or per entry and head. The bias and `kept` have four
    axes."""
    slopes, bias, kept = (options.pop(name, None) for name in ("slopes", "bias", "kept"))
    entry = lambda b: None if bias is None else bias[b if bias.shape[0] > 1 else 0]
    rows = [
        attention(
            q[b], k[b], v[b], slopes=slopes if slopes is None or slopes.dim() == 1 else slopes[b], bias=entry(b),
            kept=None if kept is None else kept[b], **options,
        )
        for b in range(q.shape[0])
    ]
    return torch.stack([o for o, _ in rows]), torch.stack([lse for _, lse in rows])


def assert_close(found, exact, low, what):
    """FlashAttention's rule: the error is at most twice the error of the same computation in the low precision, plus
    two roundings of the largest value. NaN never passes."""
    assert found.shape == exact.shape, f"{what}: shape {tuple(found.shape)}, not {tuple(exact.shape)}"
    assert not torch.isnan(found).any(), f"{what}: NaN"
    if exact.numel() == 0:
        return
    infinite = torch.isinf(exact)
    assert torch.equal(torch.isinf(found), infinite), f"{what}: infinite elsewhere"
    difference = lambda x: (x.double() - exact.double()).masked_fill(infinite, 0.0).abs().max().item()
    epsilon = 2 * torch.finfo(found.dtype).eps * exact.double().masked_fill(infinite, 0.0).abs().max().item()
    error, allowed = difference(found), 2 * difference(low) + epsilon + 1e-6
    assert error <= allowed, f"{what}: error {error:.3g}, allowed {allowed:.3g}"
