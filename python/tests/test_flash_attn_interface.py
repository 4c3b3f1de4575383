"""FlashAttention-3's names: the same results as the functions of the package, and refusals by name."""

import inspect

import pytest
import torch
from reference import assert_close, attention

import kgen_attn
import kgen_attn.flash_attn_interface as fa3


def test_functions_give_what_those_of_the_package_give(draw):
    q, k, v = draw(2, 21, 4, 32), draw(2, 21, 2, 32), draw(2, 21, 2, 32)
    out, lse = fa3.flash_attn_func(q, k, v, 0.2, True, return_attn_probs=True, pack_gqa=True, num_splits=0)
    expected = kgen_attn.flash_attn_func(q, k, v, 0.0, 0.2, True, return_attn_probs=True)
    assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1])
    qkv = torch.cat([q, k, v], dim=2)
    assert torch.equal(fa3.flash_attn_qkvpacked_func(qkv, 0.2, True, num_heads_q=4), out)
    same = torch.stack([q, q, q], dim=2)
    assert torch.equal(fa3.flash_attn_qkvpacked_func(same, causal=True), fa3.flash_attn_func(q, q, q, causal=True))
    with pytest.raises(ValueError, match="`num_heads_q` is None"):
        fa3.flash_attn_qkvpacked_func(qkv)


def test_gradients_flow(draw):
    q, k, v = (draw(1, 9, 2, 32, grad=True) for _ in range(3))
    fa3.flash_attn_func(q, k, v, causal=True).float().square().sum().backward()
    assert all(bool(t.grad.isfinite().all()) and bool(t.grad.any()) for t in (q, k, v))


def test_packed_sequences(draw, device):
    q, k, v = draw(13, 4, 32), draw(13, 2, 32), draw(13, 2, 32)
    cu = torch.tensor([0, 5, 13], dtype=torch.int32, device=device)
    out, lse = fa3.flash_attn_varlen_func(q, k, v, cu, cu, 8, 8, causal=True, return_attn_probs=True)
    expected = kgen_attn.flash_attn_varlen_func(q, k, v, cu, cu, 8, 8, causal=True, return_attn_probs=True)
    assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1])


def test_a_cache_in_pages_with_queries_of_unequal_lengths(draw, device):
    pages = draw(6, 16, 2, 32), draw(6, 16, 2, 32)
    table = torch.tensor([[3, 0], [5, 1]], dtype=torch.int32, device=device)
    used, cu = (torch.tensor(t, dtype=torch.int32, device=device) for t in ([20, 7], [0, 3, 4]))
    q = draw(4, 4, 32)
    out, lse = fa3.flash_attn_with_kvcache(
        q, *pages, cache_seqlens=used, page_table=table, cu_seqlens_q=cu, max_seqlen_q=3, causal=True, return_softmax_lse=True
    )
    for sequence, (begin, end) in enumerate([(0, 3), (3, 4)]):
        k, v = (t[table[sequence].long()].flatten(0, 1)[: int(used[sequence])].cpu() for t in pages)
        one = q[begin:end].cpu()
        (exact, exact_lse), (low, low_lse) = (attention(one, k, v, causal=True, dtype=dtype) for dtype in (torch.float64, torch.bfloat16))
        assert_close(out[begin:end].cpu(), exact, low, f"sequence {sequence}")
        assert_close(lse[:, begin:end].cpu(), exact_lse, low_lse, f"LSE of {sequence}")
    rows = draw(2, 1, 4, 32)
    assert torch.equal(
        fa3.flash_attn_with_kvcache(rows, *pages, cache_seqlens=used, page_table=table, causal=True),
        kgen_attn.flash_attn_with_kvcache(rows, *pages, cache_seqlens=used, block_table=table, causal=True),
    )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("paged", [False, True])
def test_queries_of_two_parts(draw, device, paged, packed):
    """MLA decoding: K has 64 columns with rotary embedding and a latent of 512 columns, which is V as well."""
    queries, heads, used = [1, 3], 16, [37, 16]
    width, page = 48, 16
    k, v = draw(2, width, 1, 64), draw(2, width, 1, 512)
    q, qv = draw(4, heads, 64), draw(4, heads, 512)
    lengths, cu = (torch.tensor(t, dtype=torch.int32, device=device) for t in (used, [0, 1, 4]))
    caches, options = (k, v), {"cache_seqlens": lengths, "causal": True}
    if paged:
        caches = tuple(t.reshape(2 * width // page, page, 1, -1) for t in caches)
        options["page_table"] = torch.arange(2 * width // page, dtype=torch.int32, device=device).reshape(2, -1)
    if packed:
        out = fa3.flash_attn_with_kvcache(q, *caches, qv=qv, cu_seqlens_q=cu, max_seqlen_q=3, **options)
    else:
        q, qv, queries = q[:2, None], qv[:2, None], [1, 1]
        out = fa3.flash_attn_with_kvcache(q, *caches, qv=qv, **options).flatten(0, 1)
        q, qv = q.flatten(0, 1), qv.flatten(0, 1)
    begin = 0
    for sequence, count in enumerate(queries):
        rows = slice(begin, begin + count)
        both = torch.cat([q[rows], qv[rows]], dim=-1).cpu()
        latent = v[sequence, : used[sequence]].cpu()
        keys = torch.cat([k[sequence, : used[sequence]].cpu(), latent], dim=-1)
        exact, low = (attention(both, keys, latent, causal=True, dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16))
        assert_close(out[rows].cpu(), exact, low, f"sequence {sequence}")
        begin += count


def test_what_is_not_there_is_refused_by_name(draw, device):
    q = draw(1, 4, 2, 32)
    cu = torch.tensor([0, 4], dtype=torch.int32, device=device)
    for options in ({"qv": q}, {"sm_margin": 2}):
        (name,) = options
        with pytest.raises(NotImplementedError, match=f"`{name}` is .*kgen_attn has no `{name}`"):
            fa3.flash_attn_func(q, q, q, **options)
        with pytest.raises(NotImplementedError, match=f"`{name}` is"):
            fa3.flash_attn_varlen_func(q[0], q[0], q[0], cu, cu, 4, 4, **options)
    with pytest.raises(NotImplementedError, match="`scheduler_metadata` is"):
        fa3.flash_attn_with_kvcache(q, q, q, scheduler_metadata=q)
    assert fa3.get_scheduler_metadata(1, 1, 1, 1, 1, 32, cu) is None
    with pytest.raises(ValueError, match="`cu_seqlens_k_new` goes with new keys"):
        fa3.flash_attn_with_kvcache(q, q, q, cache_seqlens=4, cu_seqlens_k_new=cu)
    with pytest.raises(ValueError, match="needs `max_seqlen_q`"):
        fa3.flash_attn_with_kvcache(q[0], q, q, cache_seqlens=4, cu_seqlens_q=cu)


@pytest.mark.parametrize("name", ["flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache", "flash_attn_qkvpacked_func"])
def test_every_parameter_is_used(name):
    """A parameter that is neither passed on nor refused would be ignored; only `pack_gqa` is."""
    function = getattr(fa3, name)
    body = inspect.getsource(function).partition('"""')[2].partition('"""')[2]
    unused = [parameter for parameter in inspect.signature(function).parameters if parameter not in body]
    assert unused in ([], ["pack_gqa"])
