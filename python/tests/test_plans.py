"""Calls are planned once and cached: a call that differs from an earlier one in a single respect must not reuse its
plan."""

import pytest
import torch

from kgen_attn import append_kv, flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache, forward, interface, kvcache
from kgen_attn.library import library

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
    plain = flash_attn_func(q, k, v)
    assert not torch.equal(flash_attn_func(q, k, v, 0.3), flash_attn_func(q, k, v, 0.3))
    with pytest.raises(ValueError, match="`dropout_p` is 1.5"):
        flash_attn_func(q, k, v, 1.5)
    assert torch.equal(flash_attn_func(q, k, v), plain)


@pytest.fixture
def packed(draw, device):
    """`flash_attn_varlen_func`, with a call in its cache."""
    cu = torch.tensor([0, 3, 9], dtype=torch.int32, device=device)
    given = {**{name: draw(9, 2, 32) for name in "qkv"}, "cu_seqlens_q": cu, "cu_seqlens_k": cu, "max_seqlen_q": 6, "max_seqlen_k": 6}
    interface._packed.clear()
    call = lambda **others: flash_attn_varlen_func(**{**given, **others})
    call()
    assert len(interface._packed) == 1
    return given, call


@pytest.fixture
def cached(draw, device):
    """`flash_attn_with_kvcache` with and without new keys, with calls in its cache."""
    lengths = torch.tensor([3, 9], dtype=torch.int32, device=device)
    given = {"q": draw(2, 1, 2, 32), "k_cache": draw(3, 16, 2, 32), "v_cache": draw(3, 16, 2, 32), "cache_seqlens": lengths}
    given["causal"] = True
    kvcache._remembered.clear()
    call = lambda **others: flash_attn_with_kvcache(**{**given, **others})
    call(), call(k=given["q"], v=given["q"]), call(cache_seqlens=5)
    assert len(kvcache._remembered) == 3
    return given, call


def unremembered(call, **others):
    """The result of the call without an earlier one."""
    for plans in (interface._packed, kvcache._remembered, forward._plans, append_kv._plans):
        plans.clear()
    return call(**others)


def test_a_packed_call_that_differs(packed, draw, device):
    given, call = packed
    cu, q = given["cu_seqlens_q"], given["q"]
    scale = torch.tensor(0.1)
    slopes = torch.ones(2, device=device)
    pages = draw(2, 16, 2, 32)
    paged = {"k": pages, "v": pages, "block_table": torch.tensor([[1], [0]], dtype=torch.int32, device=device)}
    changes = [
        *[{name: value} for options in DIFFERENCES[:2] for name, value in options.items()],
        *[{"softmax_scale": scale}, {"softmax_scale": 0.2}, {"num_splits": 1}],
        *[{"max_seqlen_k": 8}, {"q": q[:, :, None].expand(9, 2, 2, 32)[:, :, 1]}, {"k": torch.stack([q, q], 1)[:, 0]}],
        *[{"cu_seqlens_k": torch.tensor([0, 1, 5], dtype=torch.int32, device=device)}, {"seqused_k": cu[1:] - cu[:-1] - 1}],
        *[paged, {**paged, "cu_seqlens_k": None, "seqused_k": cu[1:] - cu[:-1]}],
    ]
    remembered = [call(**change).clone() for change in changes for _ in range(2)]
    for at, change in enumerate(changes):
        expected = unremembered(call, **change)
        assert all(torch.equal(one, expected) for one in remembered[2 * at : 2 * at + 2]), change
    assert torch.equal(call(softmax_scale=scale.fill_(0.4)), unremembered(call, softmax_scale=0.4))
    with torch.autocast(torch.device(device).type, torch.float16):
        assert call().dtype == torch.float16
    assert call(q=q.detach().requires_grad_()).requires_grad
    with pytest.raises(NotImplementedError, match="`alibi_slopes` requires grad"):
        call(alibi_slopes=slopes.requires_grad_())


def test_a_packed_call_that_becomes_wrong(packed, device):
    given, call = packed
    cu = given["cu_seqlens_q"]
    wrong = [
        (TypeError, "`max_seqlen_q` is 6.0", {"max_seqlen_q": 6.0}),
        (ValueError, f"`max_seqlen_k.* is {2**32 + 6}", {"max_seqlen_k": 2**32 + 6}),
        (TypeError, "`num_splits` is 0.0", {"num_splits": 0.0}),
        (TypeError, r"`window_size\[1\]` is -1.0", {"window_size": (-1, -1.0)}),
        (TypeError, "`deterministic` is a tensor", {"deterministic": torch.ones(3)}),
        (ValueError, "`dropout_p` is 1.5", {"dropout_p": 1.5}),
        (TypeError, "`cu_seqlens_q` is torch.int64", {"cu_seqlens_q": cu.long()}),
        (ValueError, "`cu_seqlens_k` has stride 2", {"cu_seqlens_k": torch.stack([cu, cu], 1)[:, 0]}),
        (ValueError, "on `meta`", {"cu_seqlens_k": cu.to("meta")}),
        (ValueError, "on `meta`", {"v": given["v"].to("meta")}),
        (TypeError, "`cu_seqlens_k` is of type list", {"cu_seqlens_k": [0, 3, 9]}),
    ]
    for error, words, change in wrong:
        with pytest.raises(error, match=words):
            call(**change)
    if library().emulator is not None:
        with pytest.raises(ValueError, match="`cu_seqlens_q` ends at 10; `q` has 9 rows"):
            cu[2] = 10
            call()


@pytest.mark.parametrize("new", [False, True])
def test_a_call_with_a_cache_that_differs(cached, draw, device, new):
    given, call = cached
    q, caches = given["q"], [given["k_cache"], given["v_cache"]]
    before = [cache.clone() for cache in caches]
    more = {"k": draw(2, 1, 2, 32), "v": draw(2, 1, 2, 32)} if new else {}
    integers = lambda *values: torch.tensor(values, dtype=torch.int32, device=device)
    angles = torch.rand(20, 8)
    rotary = {"rotary_cos": angles.cos().bfloat16().to(device), "rotary_sin": angles.sin().bfloat16().to(device)}
    changes = [
        *[{}, {"causal": False}, {"softmax_scale": 0.2}, {"cache_seqlens": 7}, {"cache_seqlens": 2}, {"cache_seqlens": torch.tensor(4)}],
        *[{"cache_seqlens": integers(8, 1)}, {"cache_batch_idx": integers(2, 0)}, {"cache_leftpad": integers(1, 2)}],
        *[{"block_table": integers(2, 0).reshape(2, 1)}, {"q": torch.stack([q, q], 2)[:, :, 1]}],
    ]
    if new:
        changes += [rotary, {**rotary, "rotary_interleaved": False}, {**rotary, "rotary_seqlens": integers(0, 4)}]
        changes += [{"k": torch.stack([more["k"]] * 2, 2)[:, :, 0]}, {"k": more["k"].transpose(2, 3).contiguous().transpose(2, 3)}]

    def outcome(make, change):
        for cache, old in zip(caches, before):
            cache.copy_(old)
        return [make(**{**more, **change}).clone(), *(cache.clone() for cache in caches)]

    changes = [change for change in changes if not (new and "cache_leftpad" in change and "block_table" in change)]
    remembered = [outcome(call, change) for change in changes for _ in range(2)]
    for at, change in enumerate(changes):
        expected = outcome(lambda **words: unremembered(call, **words), change)
        for found in remembered[2 * at : 2 * at + 2]:
            assert all(map(torch.equal, found, expected)), change


@pytest.mark.parametrize("new", [False, True])
def test_a_call_with_a_cache_that_becomes_wrong(cached, device, new):
    given, call = cached
    more = {"k": given["q"], "v": given["q"]} if new else {}
    lengths = given["cache_seqlens"]
    wrong = [
        (ValueError, "`cache_seqlens` is 17", {"cache_seqlens": 17}),
        (ValueError, "`cache_seqlens` is -1", {"cache_seqlens": -1}),
        (ValueError, f"`cache_seqlens` is {2**32 + 5}", {"cache_seqlens": 2**32 + 5}),
        (TypeError, "`cache_seqlens` is 5.0", {"cache_seqlens": 5.0}),
        (TypeError, "`cache_seqlens` is torch.int64", {"cache_seqlens": lengths.long()}),
        (ValueError, "on `meta`", {"cache_seqlens": lengths.to("meta")}),
        (ValueError, "on `meta`", {"q": given["q"].to("meta")}),
        (ValueError, "on `meta`", {"v_cache": given["v_cache"].to("meta")}),
        (ValueError, "on `meta`", {"alibi_slopes": torch.ones(2, device="meta")}),
        (ValueError, "on `meta`", {"cache_leftpad": lengths.to("meta")}),
    ]
    for error, words, change in wrong:
        for _ in range(2):
            with pytest.raises(error, match=words):
                call(**more, **change)
    if library().emulator is not None:
        with pytest.raises(ValueError, match="`cache_seqlens` holds 17"):
            lengths[1] = 17
            call(**more)
