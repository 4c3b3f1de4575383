"""Sequences packed along the row axis."""

import pytest
import torch
from reference import assert_close, attention

from kgen_attn import flash_attn_varlen_func, flash_attn_varlen_kvpacked_func, flash_attn_varlen_qkvpacked_func

LENGTHS = [([20, 1, 0, 33], [20, 40, 5, 33]), ([7, 9], [0, 30])]


def starts(lengths, device):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)


def each(q, k, v, lengths_q, lengths_k, dtype, **words):
    """The expected O and LSE of all sequences, packed."""
    parts = zip(q.split(lengths_q), k.split(lengths_k), v.split(lengths_k))
    rows = [attention(*part, dtype=dtype, **words) for part in parts]
    return torch.cat([o for o, _ in rows]), torch.cat([lse for _, lse in rows], dim=1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_lengths(draw, device, lengths, causal):
    lengths_q, lengths_k = lengths
    q, k, v = (draw(sum(rows), heads, 32, grad=True) for rows, heads in ((lengths_q, 4), (lengths_k, 2), (lengths_k, 2)))
    cu = starts(lengths_q, device), starts(lengths_k, device)
    call = lambda: flash_attn_varlen_func(q, k, v, *cu, max(lengths_q), max(lengths_k), causal=causal, return_attn_probs=True)
    out, lse, _ = call()
    dout = draw(*out.shape)
    found = [out, lse, *torch.autograd.grad(out, (q, k, v), dout)]
    expected = []
    for dtype in (torch.float64, torch.bfloat16):
        leaves = [t.detach().cpu().to(dtype).requires_grad_() for t in (q, k, v)]
        o, row_lse = each(*leaves, lengths_q, lengths_k, dtype, causal=causal)
        expected.append([o, row_lse, *torch.autograd.grad(o, leaves, dout.cpu().to(dtype))])
    for name, *three in zip(("O", "LSE", "dQ", "dK", "dV"), found, *expected):
        assert_close(three[0].detach().cpu(), three[1].detach(), three[2].detach(), name)


def test_packed_forms_are_the_same(draw, device):
    cu = starts([5, 11], device)
    qkv = draw(16, 3, 2, 32)
    expected = flash_attn_varlen_func(*qkv.unbind(1), cu, cu, 11, 11, causal=True)
    assert torch.equal(flash_attn_varlen_qkvpacked_func(qkv, cu, 11, causal=True), expected)
    assert torch.equal(flash_attn_varlen_kvpacked_func(qkv[:, 0], qkv[:, 1:], cu, cu, 11, 11, causal=True), expected)


@pytest.mark.parametrize("by", ["cu_seqlens_k", "seqused_k"])
def test_pages(draw, device, by):
    lengths_q, lengths_k = [1, 6, 3], [20, 6, 33]
    q = draw(10, 2, 32)
    pages, page_size = 12, 16
    k_pages, v_pages = draw(pages, page_size, 1, 32), draw(pages, page_size, 1, 32)
    table = torch.randperm(pages)[:9].reshape(3, 3).to(torch.int32).to(device)
    lengths = {"seqused_k": torch.tensor(lengths_k, dtype=torch.int32, device=device)} if by == "seqused_k" else {}
    cu_k = starts(lengths_k, device) if by == "cu_seqlens_k" else None
    out = flash_attn_varlen_func(q, k_pages, v_pages, starts(lengths_q, device), cu_k, 6, 33, causal=True, block_table=table, **lengths)
    gather = lambda x: torch.cat([x[table[b].long()].flatten(0, 1)[:n] for b, n in enumerate(lengths_k)]).cpu()
    exact, low = (
        each(q.cpu(), gather(k_pages), gather(v_pages), lengths_q, lengths_k, dtype, causal=True)[0]
        for dtype in (torch.float64, torch.bfloat16)
    )
    assert_close(out.cpu(), exact, low, "O")


@pytest.mark.parametrize("lengths", [[33] * 4, [1] * 9], ids=str)
def test_workspace_of_packed_sequences(draw, device, lengths):
    """The workspace size depends on whether sequences are packed."""
    q, k, v = (draw(sum(lengths), 1, 32, grad=True) for _ in range(3))
    cu = starts(lengths, device)
    for deterministic in (False, True):
        out = flash_attn_varlen_func(q, k, v, cu, cu, max(lengths), max(lengths), deterministic=deterministic)
        out.sum().backward()


def test_rows_outside_all_sequences_have_no_gradient(draw, device):
    q, k, v = (draw(12, 1, 32, grad=True) for _ in range(3))
    cu = starts([8], device)
    flash_attn_varlen_func(q, k, v, cu, cu, 8, 8)[:8].sum().backward()
    for tensor in (q, k, v):
        assert tensor.grad[:8].isfinite().all() and tensor.grad[8:].abs().max() == 0


def test_used_lengths(draw, device):
    q, k, v = (draw(20, 1, 32, grad=True) for _ in range(3))
    cu, used_q, used_k = starts([8, 12], device), starts([3, 4], device)[1:], starts([5, 4], device)[1:]
    out = flash_attn_varlen_func(q, k, v, cu, cu, 12, 12, seqused_q=used_q, seqused_k=used_k)
    rows = [(slice(0, 3), slice(0, 5)), (slice(8, 15), slice(8, 17))]
    loss = sum(out[i].float().sum() for i, _ in rows)
    loss.backward()
    for i, j in rows:
        exact, low = (attention(q[i].detach().cpu(), *(t[j].detach().cpu() for t in (k, v)), dtype=d)[0] for d in (torch.float64, q.dtype))
        assert_close(out[i].detach().cpu(), exact, low, "O")
    assert q.grad[3:8].abs().max() == 0 and k.grad[5:8].abs().max() == 0 and v.grad[17:].abs().max() == 0
    assert all(t.grad.isfinite().all() for t in (q, k, v))
