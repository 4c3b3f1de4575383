"""Calls are planned once and remembered: a call that differs from one before in one respect must not be taken for it."""

import pytest
import torch

from kgen_attn import flash_attn_func, forward, interface

DIFFERENCES = [
    {"softmax_scale": 0.3},
    {"causal": True},
    {"window_size": (3, -1)},
    {"window_size": [3, 2]},
    {"softcap": 5.0},
    {"num_splits": 2},
]


@pytest.mark.parametrize("options", DIFFERENCES, ids=str)
def test_a_call_that_differs_in_an_argument(draw, options):
    q, k, v = draw(1, 40, 2, 32), draw(1, 150, 2, 32), draw(1, 150, 2, 32)
    interface._direct.clear(), forward._plans.clear()
    alone = flash_attn_func(q, k, v, **options, return_attn_probs=True)
    for given in ({}, options, {}, options):
        out, lse, _ = flash_attn_func(q, k, v, **given, return_attn_probs=True)
        if given:
            assert torch.equal(out, alone[0]) and torch.equal(lse, alone[1])
    assert options.get("num_splits") or not torch.equal(alone[0], flash_attn_func(q, k, v))


def test_a_call_that_differs_in_strides(draw):
    q, k, v = (draw(1, 9, 2, 32) for _ in range(3))
    expected = flash_attn_func(q, k, v)
    other = torch.stack([q, q], dim=3)[..., 0, :]  # rows of 64
    assert other.stride() != q.stride()
    assert torch.equal(flash_attn_func(other, k, v), expected)
    columns = q.transpose(2, 3).contiguous().transpose(2, 3)
    for _ in range(2):
        assert torch.equal(flash_attn_func(columns, k, v), expected)


def test_a_call_under_autocast(draw, device):
    q, k, v = (draw(1, 9, 2, 32, dtype=torch.float16) for _ in range(3))
    assert flash_attn_func(q, k, v).dtype == torch.float16
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        assert flash_attn_func(q, k, v).dtype == torch.bfloat16
    assert flash_attn_func(q, k, v).dtype == torch.float16


def test_a_call_that_wants_gradients(draw):
    q, k, v = (draw(1, 9, 2, 32) for _ in range(3))
    flash_attn_func(q, k, v)
    assert flash_attn_func(q, k.requires_grad_(), v).requires_grad
    with torch.no_grad():
        assert not flash_attn_func(q, k, v).requires_grad


def test_a_call_with_dropout(draw):
    q, k, v = (draw(1, 9, 2, 32) for _ in range(3))
    flash_attn_func(q, k, v)
    with pytest.raises(NotImplementedError, match="`dropout_p` is 0.1"):
        flash_attn_func(q, k, v, 0.1)
