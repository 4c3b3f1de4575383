"""Calls that `_vllm_fa3_C.fwd` supports beyond the engine's decoder: packed and dense keys, slots of a cache, new keys
with rotary embedding, FP8 without pages, MLA."""

import pytest
import torch

from engine import FP8, Step
from reference import Asked, assert_close, attention

FWD = torch.ops._vllm_fa3_C.fwd
NAMES = (
    "q k v k_new v_new q_v out cu_seqlens_q cu_seqlens_k cu_seqlens_k_new seqused_q seqused_k max_seqlen_q max_seqlen_k page_table kv_batch_idx "
    "leftpad_k rotary_cos rotary_sin seqlens_rotary q_descale k_descale v_descale softmax_scale is_causal window_size_left window_size_right "
    "softcap is_rotary_interleaved scheduler_metadata num_splits pack_gqa sm_margin s_aux cp_world_size cp_rank cp_tot_seqused_k"
).split()
DEFAULTS = dict(softmax_scale=0.125, is_causal=True, window_size_left=-1, window_size_right=-1, softcap=0, is_rotary_interleaved=True, num_splits=0)
DEFAULTS |= dict(sm_margin=0, cp_world_size=1, cp_rank=0)
ASKED = Asked(0.125)


def fwd(emulator, written=(), **given):
    values = DEFAULTS | given
    return emulator.run(FWD, [values.get(name) for name in NAMES], written)[:2]


def starts(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)


def random(*sizes):
    return torch.randn(*sizes).to(torch.bfloat16)


def integers(*values):
    return torch.tensor(values, dtype=torch.int32)


def packed(rows_q, rows_k):
    """Q, K and V of sequences, and their cumulative lengths."""
    torch.manual_seed(1)
    q, k, v = (random(sum(rows), heads, 64) for rows, heads in ((rows_q, 4), (rows_k, 2), (rows_k, 2)))
    return q, k, v, starts(rows_q), starts(rows_k)


def check_packed(out, lse, q, k, v, cu_q, cu_k, asked=ASKED):
    for b in range(len(cu_q) - 1):
        of_q, of_k = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        assert_close(out[of_q], lse[:, of_q], q[of_q].double(), k[of_k].double(), v[of_k].double(), asked)


def test_packed_keys(emulator):
    q, k, v, cu_q, cu_k = packed([30, 1, 5], [30, 44, 5])
    out, lse = fwd(emulator, q=q, k=k, v=v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=30, max_seqlen_k=44)
    check_packed(out, lse, q, k, v, cu_q, cu_k)


def test_packed_keys_of_which_some_are_used(emulator):
    q, k, v, cu_q, cu_k = packed([20, 6], [40, 30])
    used_q, used_k = integers(13, 6), integers(33, 7)
    out = torch.full_like(q, torch.nan)
    given = dict(q=q, k=k, v=v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=20, max_seqlen_k=40)
    _, lse = fwd(emulator, [out], out=out, seqused_q=used_q, seqused_k=used_k, **given)
    for b in range(2):
        of_q, of_k = (slice(cu[b], cu[b] + used[b]) for cu, used in ((cu_q, used_q), (cu_k, used_k)))
        assert_close(out[of_q], lse[:, of_q], q[of_q].double(), k[of_k].double(), v[of_k].double(), ASKED)
    assert out[13:20].isnan().all()


def test_e4m3_without_pages(emulator):
    emulator.device(89)
    q, k, v, cu_q, cu_k = packed([30, 9], [30, 44])
    q, k, v = (t.to(FP8) for t in (q, k, v))
    given = dict(q=q, k=k, v=v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=30, max_seqlen_k=44)
    factors = (0.5, 0.25, 2.0)
    q_descale, k_descale, v_descale = (torch.full((2, 2), factor) for factor in factors)
    out, lse = fwd(emulator, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale, **given)
    assert out.dtype == torch.bfloat16
    # P is rounded to E4M3 as well, which the rule for bf16 does not cover.
    for b in range(2):
        of_q, of_k = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        exact, exact_lse = attention(*(t.double() * f for t, f in zip((q[of_q], k[of_k], v[of_k]), factors)), ASKED)
        assert (out[of_q].double() - exact).abs().max() < 0.08 * exact.abs().max()
        torch.testing.assert_close(lse[:, of_q].double(), exact_lse, rtol=1e-3, atol=1e-2)


def test_slots_of_a_dense_cache(emulator):
    torch.manual_seed(2)
    q, k, v = random(3, 5, 4, 64), random(6, 40, 2, 64), random(6, 40, 2, 64)
    slots, used, left = [4, 0, 3], [40, 17, 30], [7, 0, 29]
    given = dict(seqused_k=integers(*used), kv_batch_idx=integers(*slots), leftpad_k=integers(*left))
    out, lse = fwd(emulator, q=q, k=k, v=v, **given)
    assert out.shape == q.shape and lse.shape == (3, 4, 5)
    for b, (slot, last, first) in enumerate(zip(slots, used, left)):
        assert_close(out[b], lse[b], q[b].double(), k[slot, first:last].double(), v[slot, first:last].double(), ASKED)


@pytest.mark.parametrize("slot", [6, 2**31 - 1, -1])
def test_a_slot_that_the_cache_has_not(emulator, slot):
    """Such a sequence has no keys, and nothing outside of the cache is read."""
    torch.manual_seed(2)
    q, k, v = random(3, 5, 4, 64), random(6, 40, 2, 64), random(6, 40, 2, 64)
    out, lse = fwd(emulator, q=q, k=k, v=v, seqused_k=integers(40, 17, 30), kv_batch_idx=integers(5, slot, 0))
    for b, entry, last in ((0, 5, 40), (2, 0, 30)):
        assert_close(out[b], lse[b], q[b].double(), k[entry, :last].double(), v[entry, :last].double(), ASKED)
    assert torch.equal(out[1], torch.zeros_like(out[1])) and torch.isneginf(lse[1]).all()


def rotated(x, positions, cos, sin, interleaved):
    """x (rows, heads, D): the first columns rotated by the angles of each row's position."""
    columns = 2 * cos.shape[1]
    turned = x.float()[..., :columns]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else (turned[..., : columns // 2], turned[..., columns // 2 :])
    c, s = (t[positions].float()[:, None, :] for t in (cos, sin))
    halves = (a * c - b * s, b * c + a * s)
    joined = torch.stack(halves, dim=-1).flatten(-2) if interleaved else torch.cat(halves, dim=-1)
    return torch.cat([joined.to(x.dtype), x[..., columns:]], dim=-1)


def appending(emulator, new_rows, packed_rows, interleaved, rotary=True, width=None):
    """Appends keys to a paged cache, in a batch with as many queries as new keys."""
    cached = [20, 5]
    step = Step(queries=new_rows, keys=[c + n for c, n in zip(cached, new_rows)], width=width)
    k_all, v_all = zip(*(step.rows_of(b) for b in range(2)))
    k_new, v_new = (torch.cat([t[b][cached[b] :] for b in range(2)]).contiguous() for t in (k_all, v_all))
    for b in range(2):  # empty so far
        for row in range(cached[b], cached[b] + new_rows[b]):
            step.k[step.page_table[b, row // 16], row % 16] = torch.nan
            step.v[step.page_table[b, row // 16], row % 16] = torch.nan
    angles = torch.rand(64, 16) * 6
    cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
    given = dict(k_new=k_new, v_new=v_new, cu_seqlens_k_new=starts(new_rows)) if packed_rows else {}
    if not packed_rows:
        given = dict(k_new=k_new.view(2, -1, 2, 64), v_new=v_new.view(2, -1, 2, 64))
    if rotary:
        given |= dict(rotary_cos=cos, rotary_sin=sin, is_rotary_interleaved=interleaved)
    arguments = dict(q=step.q, k=step.k, v=step.v, cu_seqlens_q=step.cu_seqlens_q, max_seqlen_q=max(new_rows), page_table=step.page_table)
    arguments |= dict(max_seqlen_k=max(cached))  # before
    out, lse = fwd(emulator, [step.k], seqused_k=integers(*cached), **arguments, **given)
    first = 0
    for b, count in enumerate(new_rows):
        positions = torch.arange(cached[b], cached[b] + count)
        q, k = step.q[first : first + count], k_all[b]
        if rotary:
            q = rotated(q, positions, cos, sin, interleaved)
            k = torch.cat([k[: cached[b]], rotated(k[cached[b] :], positions, cos, sin, interleaved)])
        k_cached, v_cached = step.rows_of(b)
        torch.testing.assert_close(k_cached, k)
        torch.testing.assert_close(v_cached, v_all[b])
        assert_close(out[first : first + count], lse[:, first : first + count], q.double(), k.double(), v_all[b].double(), ASKED)
        first += count


def test_new_keys_with_rotary_embedding(emulator):
    appending(emulator, [3, 3], packed_rows=False, interleaved=True)
    assert [launch.split(":")[0] for launch in emulator.launches()] == ["split"], "attention writes them itself"


def test_new_keys_of_unequal_numbers_with_halves_rotated(emulator):
    appending(emulator, [6, 2], packed_rows=True, interleaved=False)
    assert emulator.launches()[0].startswith("append"), "attention takes as many of each sequence"


def test_new_keys_of_more_queries_than_a_tile_has_rows(emulator):
    appending(emulator, [9, 9], packed_rows=False, interleaved=False)
    assert emulator.launches()[0].startswith("append"), "two row tiles would write them twice"


def test_new_keys_that_are_not_rotated(emulator):
    appending(emulator, [4, 4], packed_rows=False, interleaved=True, rotary=False)


def test_with_new_keys_sequences_may_fill_their_pages_whatever_was_the_longest(emulator):
    appending(emulator, [4, 4], packed_rows=False, interleaved=True, width=128)
    assert any(launch.startswith("combine") for launch in emulator.launches()), "2048 keys are worth splits; 20 are not"


def test_metadata_counts_keys_that_will_be_appended(emulator):
    op = torch.ops._vllm_fa3_C.get_scheduler_metadata
    for cu_new, most in ((None, 5), (starts([5, 0, 2]), 0)):
        empty = integers(0, 0, 0)
        counts = emulator.run(op, [3, 5, 40, 4, 2, 64, 64, torch.bfloat16, empty, starts([5, 5, 5]), None, cu_new, None, None, 16, most, True, -1, -1, False, 0, None, 0])
        assert counts[4:7].tolist() == ([1, 1, 1] if cu_new is None else [1, 0, 1])


@pytest.mark.parametrize("splits", [0, 1, 32])
def test_queries_of_two_parts(emulator, splits):
    """DeepSeek's decoding as vLLM calls it: latent and rotated keys in one cache."""
    emulator.device(90)
    torch.manual_seed(3)
    used, page = [350, 17], 16
    order = torch.randperm(30).to(torch.int32)
    table = torch.full((2, 24), 1 << 20, dtype=torch.int32)
    table[0, :22], table[1, :2] = order[:22], order[22:24]
    cache = random(30, page, 1, 576)
    v, k = cache[..., :512], cache[..., 512:]
    both, cu_q, seqused_k = random(3, 4, 576), starts([2, 1]), integers(*used)
    q_v, q = both[..., :512], both[..., 512:]
    scale = (64 + 512) ** -0.5
    metadata = emulator.run(
        torch.ops._vllm_fa3_C.get_scheduler_metadata,
        [2, 2, 384, 4, 1, 64, 512, torch.bfloat16, seqused_k, cu_q, None, None, None, None, page, 0, True, -1, -1, False, splits, None, 0],
    )
    assert splits == 1 or metadata[4] > metadata[5] == 1
    given = dict(max_seqlen_q=2, max_seqlen_k=384, page_table=table, softmax_scale=scale, scheduler_metadata=metadata, num_splits=splits)
    # The metadata's counters, by which the last block of a row tile merges, are zero again afterwards.
    out, lse = fwd(emulator, [metadata], q=q, k=k, v=v, q_v=q_v, cu_seqlens_q=cu_q, seqused_k=seqused_k, **given)
    assert not metadata[8:].any()
    for b, count in enumerate(used):
        pages = table[b, : -(-count // page)].long()
        keys, values = (t[pages].reshape(-1, 1, t.shape[-1])[:count].double() for t in (k, v))
        of = slice(cu_q[b], cu_q[b + 1])
        both_q, both_k = torch.cat([q[of], q_v[of]], dim=-1).double(), torch.cat([keys, values], dim=-1)
        assert_close(out[of], lse[:, of], both_q, both_k, values, Asked(scale))
