"""`_vllm_fa2_C`: packed and paged batches, and the cache of `fwd_kvcache`."""

import pytest
import torch

from engine import Step
from reference import Asked, assert_close
from test_fa3_forms import check_packed, integers, packed, random, rotated

VARLEN = torch.ops._vllm_fa2_C.varlen_fwd
KVCACHE = torch.ops._vllm_fa2_C.fwd_kvcache


def varlen(emulator, step, alibi=None, zero_tensors=False, num_splits=0):
    never_read = torch.full_like(step.cu_seqlens_q, 1 << 30)
    left, right = step.asked.window
    arguments = [
        step.q, step.k, step.v, step.out, step.cu_seqlens_q, never_read, step.used, None, step.page_table, alibi, max(step.queries), max(step.keys),
        0.0, step.asked.scale, zero_tensors, step.asked.causal, left, right, step.asked.softcap or 0, False, num_splits, None,
    ]  # fmt: skip
    return emulator.run(VARLEN, arguments, [step.out])


@pytest.mark.parametrize("num_splits", [0, 1])
@pytest.mark.parametrize("queries, keys", [([1] * 4, [3, 70, 0, 33]), ([1, 30, 0, 5], [90, 30, 0, 40])], ids=["decode", "mixed"])
def test_pages(emulator, queries, keys, num_splits):
    queries = [count if used else 0 for count, used in zip(queries, keys)]
    step = Step(queries, keys, width=8)
    step.check(*varlen(emulator, step, num_splits=num_splits))


@pytest.mark.parametrize("asked", [Asked(0.125, softcap=30.0), Asked(0.125, window=(20, 0))], ids=["softcap", "window"])
def test_scores_and_windows(emulator, asked):
    step = Step([1, 30], [90, 30], asked=asked)
    step.check(*varlen(emulator, step))


@pytest.mark.parametrize("of_batch", [False, True], ids=["by head", "by sequence and head"])
def test_alibi(emulator, of_batch):
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    step = Step([1, 30], [90, 30], asked=Asked(0.125, alibi=slopes))
    step.check(*varlen(emulator, step, alibi=slopes.expand(2, 4).contiguous() if of_batch else slopes))


def test_zero_tensors_fills_rows_of_no_sequence(emulator):
    step = Step([1, 1], [9, 30], spare_tokens=2)
    out, lse = varlen(emulator, step, zero_tensors=True)
    assert (out[2:] == 0).all() and (lse[:, 2:] == -torch.inf).all()
    out[2:] = torch.nan
    step.check(out, lse)


def test_packed_keys(emulator):
    q, k, v, cu_q, cu_k = packed([30, 1, 5], [30, 44, 5])
    arguments = [q, k, v, None, cu_q, cu_k, None, None, None, None, 30, 44, 0.0, 0.125, False, True, -1, -1, 0.0, False, 0, None]
    out, lse = emulator.run(VARLEN, arguments)
    assert lse.shape == (4, 36)
    check_packed(out, lse, q, k, v, cu_q, cu_k)


def test_a_dense_cache_with_new_keys(emulator):
    torch.manual_seed(5)
    q, k, v = random(2, 3, 4, 64), random(4, 40, 2, 64), random(4, 40, 2, 64)
    k_new, v_new = random(2, 3, 2, 64), random(2, 3, 2, 64)
    slots, cached = [3, 1], [20, 31]
    angles = torch.rand(64, 32) * 6
    cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
    arguments = [q, k, v, k_new, v_new, integers(*cached), cos, sin, integers(*slots), None, None, None, None, 0.125, True, -1, -1, 0.0, False, 0]
    out, lse = emulator.run(KVCACHE, arguments, [k, v])
    assert lse.shape == (2, 4, 3)
    for b, (slot, count) in enumerate(zip(slots, cached)):
        positions = torch.arange(count, count + 3)
        torch.testing.assert_close(k[slot, count : count + 3], rotated(k_new[b], positions, cos, sin, False))
        torch.testing.assert_close(v[slot, count : count + 3], v_new[b])
        keys, values = (t[slot, : count + 3].double() for t in (k, v))
        assert_close(out[b], lse[b], rotated(q[b], positions, cos, sin, False).double(), keys, values, Asked(0.125))


def test_a_paged_cache(emulator):
    step = Step([1, 1, 1], [3, 70, 33])
    arguments = [step.q.unsqueeze(1), step.k, step.v, None, None, step.used, None, None, None, None, step.page_table, None, step.out.unsqueeze(1)]
    out, lse = emulator.run(KVCACHE, [*arguments, 0.125, True, -1, -1, 0.0, True, 0], [step.out])
    step.check(out.squeeze(1), lse.squeeze(2).transpose(0, 1))
