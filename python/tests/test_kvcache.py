"""Decoding with a KV cache."""

import pytest
import torch
from reference import assert_close, attention

from kgen_attn import flash_attn_with_kvcache, host_values


def rotated(x, cos, sin, positions, interleaved):
    """Rotary embedding of (rows, heads, head dim) in float32, rounded once."""
    dim = 2 * cos.shape[1]
    c, s = cos.float()[positions][:, None], sin.float()[positions][:, None]
    turned, rest = x[..., :dim].float(), x[..., dim:]
    a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.chunk(2, dim=-1)
    pair = a * c - b * s, b * c + a * s
    turned = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    return torch.cat([turned.to(x.dtype), rest], dim=-1)


def table_of(angles):
    return angles.cos().bfloat16(), angles.sin().bfloat16()


CACHES = ["dense", "slots", "leftpad", "paged"]


@pytest.mark.parametrize("interleaved", [None, True, False], ids=["no rotary", "interleaved", "halves"])
@pytest.mark.parametrize("new", [0, 1, 5])
@pytest.mark.parametrize("cache", CACHES)
def test_calls(draw, device, cache, new, interleaved):
    if interleaved is not None and new == 0:
        pytest.skip("rotary embedding goes with new keys")
    batch, rows, heads, key_heads, causal = 3, 48, 4, 2, new != 5
    lengths = [9, 0, 30]
    q, k_new, v_new = draw(batch, max(1, new), heads, 32), draw(batch, new, key_heads, 32), draw(batch, new, key_heads, 32)
    entries, entry_rows = (9, 16) if cache == "paged" else (4, rows)
    k_cache, v_cache = draw(entries, entry_rows, key_heads, 32), draw(entries, entry_rows, key_heads, 32)
    where, leftpad = {}, [0] * batch
    integers = lambda values: torch.tensor(values, dtype=torch.int32, device=device)
    if cache == "slots":
        where["cache_batch_idx"] = integers([2, 0, 3])
    if cache == "leftpad":
        leftpad = [2, 0, 7]
        where["cache_leftpad"] = integers(leftpad)
    if cache == "paged":
        where["block_table"] = torch.randperm(entries).reshape(3, 3).to(torch.int32).to(device)

    def sequence(x, b):
        if cache == "paged":
            return x[where["block_table"][b].long()].flatten(0, 1)
        return x[[2, 0, 3][b] if cache == "slots" else b]

    before = [sequence(k_cache, b).cpu().clone() for b in range(batch)], [sequence(v_cache, b).cpu().clone() for b in range(batch)]
    cos, sin = table_of(torch.rand(64, 8) * 6)
    rotary = {}
    if interleaved is not None:
        rotary = dict(rotary_cos=cos.to(device), rotary_sin=sin.to(device), rotary_interleaved=interleaved)
    out, lse = flash_attn_with_kvcache(
        q, k_cache, v_cache, *((k_new, v_new) if new else ()), cache_seqlens=integers(lengths), causal=causal,
        return_softmax_lse=True, **where, **rotary,
    )  # fmt: skip
    for b in range(batch):
        positions = torch.arange(lengths[b], lengths[b] + max(1, new))
        query, key = q[b].cpu(), k_new[b].cpu()
        if interleaved is not None:
            query = rotated(query, cos, sin, positions if causal else positions[:1].expand(len(positions)), interleaved)
            key = rotated(key, cos, sin, positions[:new], interleaved)
        end = lengths[b] + new
        keys, values = before[0][b].clone(), before[1][b].clone()
        keys[lengths[b] : end], values[lengths[b] : end] = key, v_new[b].cpu()
        assert_close(sequence(k_cache, b).cpu(), keys.double(), keys, "K of the cache")
        assert torch.equal(sequence(v_cache, b).cpu(), values), "V of the cache"
        seen = slice(leftpad[b], max(end, leftpad[b]))
        words = dict(causal=causal)
        (exact, exact_lse), (low, low_lse) = (
            attention(query, keys[seen], values[seen], dtype=dtype, **words) for dtype in (torch.float64, torch.bfloat16)
        )
        assert_close(out[b].cpu(), exact, low, "O")
        assert_close(lse[b].cpu(), exact_lse, low_lse, "LSE")


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("paged", [False, True])
def test_packed_new_keys_and_queries(draw, device, paged, rotary):
    """Sequences with unequal numbers of queries and of new keys; the cache has its entries in another order."""
    queries, new, lengths, order = [2, 0, 3], [1, 2, 3], [9, 0, 12], [2, 0, 3]
    starts = lambda counts: torch.tensor([0, *counts], dtype=torch.int32, device=device).cumsum(0, dtype=torch.int32)
    q, k_new, v_new = draw(sum(queries), 4, 32), draw(sum(new), 2, 32), draw(sum(new), 2, 32)
    k_cache, v_cache = (draw(12, 16, 2, 32) if paged else draw(4, 32, 2, 32) for _ in range(2))
    table = torch.randperm(12)[:8].reshape(4, 2).to(torch.int32).to(device)
    sequence = lambda cache, b: cache[table[order[b]].long()].flatten(0, 1) if paged else cache[order[b]]
    before = [[sequence(cache, b).cpu().clone() for b in range(3)] for cache in (k_cache, v_cache)]
    cos, sin = table_of(torch.rand(64, 8) * 6)
    out = flash_attn_with_kvcache(
        q, k_cache, v_cache, k_new, v_new, cos.to(device) if rotary else None, sin.to(device) if rotary else None,
        cache_seqlens=torch.tensor(lengths, dtype=torch.int32, device=device), causal=True,
        cache_batch_idx=torch.tensor(order, dtype=torch.int32, device=device), block_table=table if paged else None,
        cu_seqlens_q=starts(queries), max_seqlen_q=3, cu_seqlens_k_new=starts(new),
    )  # fmt: skip
    for b, (queries_of, new_of) in enumerate(zip(q.cpu().split(queries), zip(k_new.cpu().split(new), v_new.cpu().split(new)))):
        (key, value), begin, end = new_of, lengths[b], lengths[b] + new[b]
        if rotary:
            queries_of = rotated(queries_of, cos, sin, torch.arange(begin, begin + queries[b]), True)
            key = rotated(key, cos, sin, torch.arange(begin, end), True)
        keys, values = before[0][b], before[1][b]
        keys[begin:end], values[begin:end] = key, value
        assert_close(sequence(k_cache, b).cpu(), keys.double(), keys, "K of the cache")
        assert torch.equal(sequence(v_cache, b).cpu(), values), "V of the cache"
        exact, low = (
            attention(queries_of, keys[:end], values[:end], causal=True, dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16)
        )
        assert_close(out[sum(queries[:b]) : sum(queries[: b + 1])].cpu(), exact, low, "O")


@pytest.mark.parametrize("window", [(-1, -1), (4, -1), (-1, 40)], ids=str)
def test_positions_of_queries_rise_with_a_mask_alone(draw, device, window):
    """A window that hides nothing still counts as a window, as in FlashAttention."""
    q, k_new, v_new = draw(1, 5, 2, 32), draw(1, 5, 2, 32), draw(1, 5, 2, 32)
    caches, (cos, sin) = [draw(1, 32, 2, 32) for _ in range(2)], table_of(torch.rand(64, 8) * 6)
    lengths = torch.tensor([7], dtype=torch.int32, device=device)
    rotary = dict(rotary_cos=cos.to(device), rotary_sin=sin.to(device))
    out = flash_attn_with_kvcache(q, *caches, k_new, v_new, cache_seqlens=lengths, window_size=window, **rotary)
    positions = torch.arange(7, 12)
    query = rotated(q[0].cpu(), cos, sin, positions if window != (-1, -1) else positions[:1].expand(5), True)
    keys, values = (cache[0, :12].cpu() for cache in caches)
    exact, low = (attention(query, keys, values, window=window, dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16))
    assert_close(out[0].cpu(), exact, low, "O")


def test_a_length_for_all_and_none(draw, device):
    q, k, v = draw(2, 1, 2, 32), draw(2, 20, 2, 32), draw(2, 20, 2, 32)
    whole = flash_attn_with_kvcache(q, k, v)
    assert torch.equal(whole, flash_attn_with_kvcache(q, k, v, cache_seqlens=20))
    assert not torch.equal(whole, flash_attn_with_kvcache(q, k, v, cache_seqlens=11))


@pytest.mark.parametrize("num_splits", [1, 3])
def test_splits(draw, num_splits):
    q, k, v = draw(1, 1, 4, 32), draw(1, 300, 1, 32), draw(1, 300, 1, 32)
    out = flash_attn_with_kvcache(q, k, v, num_splits=num_splits)
    exact, low = (attention(q[0].cpu(), k[0].cpu(), v[0].cpu(), dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16))
    assert_close(out[0].cpu(), exact, low, "O")


def test_a_cache_in_fp8(draw, device):
    q, k_new, v_new = draw(2, 1, 2, 32), draw(2, 1, 1, 32), draw(2, 1, 1, 32)
    caches = [draw(2, 20, 1, 32).to(torch.float8_e4m3fn) for _ in range(2)]
    scales = [torch.tensor([[0.5], [2.0]], device=device), torch.tensor([[1.5], [0.25]], device=device)]
    lengths = torch.tensor([4, 11], dtype=torch.int32, device=device)
    out = flash_attn_with_kvcache(
        q, *caches, k_new, v_new, cache_seqlens=lengths, causal=True, k_descale=scales[0], v_descale=scales[1]
    )
    for b, length in enumerate((4, 11)):
        keys, values = (cache[b, : length + 1].float().cpu() * scale[b].cpu() for cache, scale in zip(caches, scales))
        stored = (k_new[b, 0].float().cpu() / scales[0][b].cpu()).to(torch.float8_e4m3fn)
        assert torch.equal(caches[0][b, length].float().cpu(), stored.float()), "what is stored"
        exact, low = (attention(q[b].cpu(), keys, values, dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16))
        assert_close(out[b].cpu(), exact, low, "O")


def test_a_padded_head_dim(draw, device):
    q, k_new, v_new = draw(1, 1, 2, 36), draw(1, 1, 2, 36), draw(1, 1, 2, 36)
    caches = [draw(1, 20, 2, 36) for _ in range(2)]
    before = [cache.clone() for cache in caches]
    out = flash_attn_with_kvcache(q, *caches, k_new, v_new, cache_seqlens=6, causal=True)
    for cache, old, new in zip(caches, before, (k_new, v_new)):
        old[:, 6] = new[:, 0]
        assert torch.equal(cache, old)
    exact, low = (attention(q[0].cpu(), *(c[0, :7].cpu() for c in caches), dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16))
    assert_close(out[0].cpu(), exact, low, "O")


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("index", [4, 2**31 - 1, -1, -(2**31)])
def test_an_entry_that_the_cache_has_not(draw, device, index, new, monkeypatch):
    """The sequence has no keys and receives no new ones, and nothing is read or written outside of the cache. (Values
    that the host can read are refused earlier; here it reads none, as with GPU tensors.)"""
    monkeypatch.setattr(host_values, "_known", lambda tensor: [])
    q, k_new, v_new = draw(3, 1, 4, 32), draw(3, 1, 2, 32), draw(3, 1, 2, 32)
    caches = [draw(4, 20, 2, 32) for _ in range(2)]
    before = [cache.clone() for cache in caches]
    integers = lambda *values: torch.tensor(values, dtype=torch.int32, device=device)
    lengths, entries = [7, 5, 20 - new], integers(2, index, 3)
    given = dict(cache_seqlens=integers(*lengths), cache_batch_idx=entries, causal=True, return_softmax_lse=True)
    out, lse = flash_attn_with_kvcache(q, *caches, *((k_new, v_new) if new else ()), **given)
    for b, entry in ((0, 2), (2, 3)):
        end = lengths[b] + new
        for cache, old, rows in zip(caches, before, (k_new, v_new)):
            if new:
                old[entry, lengths[b]] = rows[b, 0]
        exact, low = (attention(q[b].cpu(), *(c[entry, :end].cpu() for c in before), dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16))
        assert_close(out[b].cpu(), exact, low, "O")
    assert torch.equal(out[1], torch.zeros_like(out[1])) and torch.isneginf(lse[1]).all()
    assert all(torch.equal(cache, old) for cache, old in zip(caches, before))


def test_a_cache_without_entries(draw, device):
    q, cache = draw(1, 1, 2, 32), draw(0, 20, 2, 32)
    with pytest.raises(ValueError, match="`k` has no entries, of which `cache_batch_idx` could name one"):
        flash_attn_with_kvcache(q, cache, cache, cache_batch_idx=torch.zeros(1, dtype=torch.int32, device=device))
