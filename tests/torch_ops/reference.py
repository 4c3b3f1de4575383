"""Attention of one sequence in float64, and in the kernels' precision; FlashAttention's rule to compare a result."""

from dataclasses import dataclass

import torch


@dataclass
class Asked:
    """Features of a call in addition to Q, K and V. `window`: (left, right), -1 for no limit. `alibi`, `sinks`:
    by head."""

    scale: float
    causal: bool = True
    window: tuple = (-1, -1)
    softcap: float = 0.0
    alibi: torch.Tensor | None = None
    sinks: torch.Tensor | None = None


def visible(rows, keys, asked):
    """(rows, keys): true if a row sees a key. The last row is at the last key's position."""
    distance = torch.arange(keys)[None, :] - (torch.arange(rows)[:, None] + keys - rows)
    left, right = asked.window
    seen = torch.ones(rows, keys, dtype=torch.bool)
    if asked.causal:
        seen &= distance <= 0
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen, distance.abs()


def attention(q, k, v, asked, dtype=torch.float64):
    """O (rows, heads, D) and LSE (heads, rows), computed in `dtype`. q (rows, heads, D), k and v (keys, key heads, D)."""
    rows, heads, _ = q.shape
    keys, heads_k, _ = k.shape
    group = heads // heads_k
    q, k, v = (t.to(dtype).transpose(0, 1) for t in (q, k, v))
    k, v = (t.repeat_interleave(group, dim=0) for t in (k, v))
    scores = (q * asked.scale) @ k.transpose(1, 2)
    if asked.softcap > 0:
        scores = asked.softcap * torch.tanh(scores / asked.softcap)
    seen, distance = visible(rows, keys, asked)
    if asked.alibi is not None:
        scores = scores - asked.alibi.to(dtype)[:, None, None] * distance.to(dtype)
    scores = scores.masked_fill(~seen, -torch.inf)
    joined = scores if asked.sinks is None else torch.cat([scores, asked.sinks.to(dtype)[:, None, None].expand(heads, rows, 1)], dim=2)
    lse = torch.logsumexp(joined.double(), dim=2) if joined.shape[2] else torch.full((heads, rows), -torch.inf, dtype=torch.float64)
    weights = torch.exp(scores.double() - lse[:, :, None]).nan_to_num(0).to(dtype)
    return (weights @ v).transpose(0, 1), lse


def assert_close(result, lse, q, k, v, asked):
    """The error is at most twice that of the same computation in the result's dtype, plus a little for rounding O."""
    exact, exact_lse = attention(q, k, v, asked)
    rough, _ = attention(q, k, v, asked, result.dtype)
    rounding = torch.finfo(result.dtype).eps * exact.abs().max() if exact.numel() else 0
    error, allowed = (result.double() - exact).abs(), 2 * (rough.double() - exact).abs().max() + rounding if exact.numel() else 0
    assert not result.isnan().any(), "O holds NaN"
    assert exact.numel() == 0 or error.max() <= allowed, f"the error of O is {error.max():.3g}; allowed is {allowed:.3g}"
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-4, atol=2e-3)
