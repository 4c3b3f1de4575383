"""Wrong arguments: each is reported by name, after any earlier calls, and a number in a tensor counts as a number."""

import re

import pytest
import torch

import kgen_attn
import kgen_attn.flash_attn_interface as fa3
from kgen_attn import abi, append_kv, backward, flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache, forward, interface
from kgen_attn.library import library

on_the_host = pytest.mark.skipif(library().emulator is None, reason="values in a GPU's memory are not looked at")


@pytest.fixture
def integers(device):
    return lambda *values: torch.tensor(values, dtype=torch.int32, device=device)


@pytest.fixture
def q(draw):
    """A tensor for which the call is valid."""
    q = draw(1, 6, 1, 32)
    flash_attn_func(q, q, q)
    return q


SCALARS = {
    "softmax_scale": (0.1, 1.0),
    "softcap": (0.5, 5.0),
    "num_splits": (1, 1),
    "causal": (False, True),
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_tensor_in_place_of_a_number_is_read_in_every_call(q, name):
    before, after = SCALARS[name]
    given = torch.tensor(before)
    for value in (before, after, before):
        given.fill_(value)
        wide = {"window_size": (2, 2), "s_aux": torch.zeros(1, device=q.device), "alibi_slopes": torch.ones(1, device=q.device)}
        more = wide if name == "softcap" else {}
        assert torch.equal(flash_attn_func(q, q, q, **{name: given}, **more), flash_attn_func(q, q, q, **{name: value}, **more))


def test_sides_of_a_window_may_be_tensors(q):
    left = torch.tensor(1)
    for value in (1, 3):
        left.fill_(value)
        assert torch.equal(flash_attn_func(q, q, q, window_size=(left, torch.tensor(1))), flash_attn_func(q, q, q, window_size=(value, 1)))
    import numpy

    assert torch.equal(flash_attn_func(q, q, q, window_size=numpy.array([1, 1])), flash_attn_func(q, q, q, window_size=(1, 1)))


def test_lengths_may_be_tensors(draw, integers):
    x, cu, most = draw(8, 1, 32), integers(0, 3, 8), torch.tensor(5)
    assert torch.equal(flash_attn_varlen_func(x, x, x, cu, cu, most, most), flash_attn_varlen_func(x, x, x, cu, cu, 5, 5))


def test_a_factor_of_fp8_may_be_a_number(draw, device, integers):
    q, caches = draw(2, 1, 2, 32), [draw(2, 20, 1, 32).to(torch.float8_e4m3fn) for _ in range(2)]
    call = lambda k, v: flash_attn_with_kvcache(q, *caches, cache_seqlens=integers(4, 11), causal=True, k_descale=k, v_descale=v)
    whole = lambda value: torch.full((2, 1), value, device=device)
    assert torch.equal(call(0.5, 2), call(whole(0.5), whole(2.0)))
    scale = torch.tensor(0.5, device=device)
    first = call(scale, 1.0)
    assert not torch.equal(first, call(scale.fill_(1.5), 1.0)) and torch.equal(call(scale, 1.0), call(whole(1.5), None))


HUGE = (2**31, 2**32, 2**32 + 1, 2**63)


@pytest.mark.parametrize("size", HUGE)
def test_numbers_that_a_structure_cannot_hold(draw, q, integers, size):
    x, cu, none, nowhere = draw(6, 1, 32), integers(0, 6), draw(0, 1, 32), integers(0, 0)
    calls = {
        "num_splits": lambda: flash_attn_func(q, q, q, num_splits=size),
        "attention_chunk": lambda: flash_attn_func(q, q, q, attention_chunk=size),
        "max_seqlen_q": lambda: flash_attn_varlen_func(x, x, x, cu, cu, size, 6),
        "max_seqlen_k": lambda: flash_attn_varlen_func(x, x, x, cu, cu, 6, size),
        "max_seqlen_q of no rows": lambda: flash_attn_varlen_func(none, x, x, nowhere, cu, size, 6),
        "max_seqlen_k of no rows": lambda: flash_attn_varlen_func(x, none, none, cu, nowhere, 6, size),
        "cache_seqlens": lambda: flash_attn_with_kvcache(q, q, q, cache_seqlens=size),
        "max_seqlen_q`": lambda: flash_attn_with_kvcache(x, q, q, cu_seqlens_q=cu, max_seqlen_q=size),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"`{name.split(' ')[0]}.* is {size}"):
            call()
    if size < 2**63:
        with pytest.raises(ValueError, match=f"sequences is {size}"):
            wide = torch.zeros(1, 1, 1, 32, dtype=q.dtype, device=q.device).expand(size, 1, 1, 32)
            flash_attn_func(wide, wide, wide)


def test_a_window_of_any_size_is_one(q):
    """A side that hides nothing is dropped, even beyond the range of a structure's field."""
    assert torch.equal(flash_attn_func(q, q, q, window_size=(2**32 + 2, 2**40)), flash_attn_func(q, q, q))


@pytest.mark.parametrize("module", [forward, backward, append_kv])
def test_no_number_enters_a_structure_unchecked(module):
    """32-bit fields are set only by `enter_sizes`, which checks the range."""
    import inspect

    narrow = {name for one in (abi.FwdParams, abi.BwdParams, abi.AppendKvParams, abi.AttentionFeatures) for name, kind in one._fields_
              if kind is abi.ctypes.c_int32}  # fmt: skip
    written = set(re.findall(r"\b[pf]\.(\w+)(?:, [pf]\.\w+)* =", inspect.getsource(module)))
    assert written & narrow <= {"dtype", "kv_dtype", "cache_dtype", "sinks_dtype", "bias_dtype"}


def test_what_is_wrong_is_named_whatever_was_called_before(draw, q, device, integers):
    x, cu = draw(6, 1, 32), integers(0, 6)
    columns = [draw(1, 6, 32, 32).transpose(2, 3)[:, :, :1] for _ in range(2)]
    three, empty = draw(3, 6, 1, 32), torch.zeros(1, 6, 1, 0, dtype=q.dtype, device=device)
    wrong = [
        (TypeError, "`q` is 1, of type int", lambda: flash_attn_func(1, 2, 3)),
        (TypeError, "`k` is 2, of type int", lambda: flash_attn_func(q, 2, q)),
        (TypeError, "`v` is of type NoneType", lambda: flash_attn_func(q, q, None)),
        (TypeError, "`seqused_k` is of type int", lambda: flash_attn_func(q, q, q, seqused_k=6)),
        (TypeError, "`alibi_slopes` is of type float", lambda: flash_attn_func(q, q, q, alibi_slopes=0.5)),
        (TypeError, "`s_aux` is of type list", lambda: flash_attn_func(q, q, q, s_aux=[0.5])),
        (TypeError, "`qkv` is of type int", lambda: kgen_attn.flash_attn_qkvpacked_func(1)),
        (TypeError, "`qkv` is of type int", lambda: fa3.flash_attn_qkvpacked_func(1)),
        (NotImplementedError, "`sm_margin` is 1.5", lambda: fa3.flash_attn_func(q, q, q, sm_margin=1.5)),
        (TypeError, "`softmax_scale` is 'x', of type str", lambda: flash_attn_func(q, q, q, softmax_scale="x")),
        (TypeError, "`softmax_scale` is a tensor of shape", lambda: flash_attn_func(q, q, q, softmax_scale=torch.ones(2))),
        (TypeError, "`window_size` is 3;", lambda: flash_attn_func(q, q, q, window_size=3)),
        (TypeError, r"`window_size\[0\]` is 2.5", lambda: flash_attn_func(q, q, q, window_size=(2.5, 0))),
        (TypeError, "`num_splits` is 1.5", lambda: flash_attn_func(q, q, q, num_splits=1.5)),
        (TypeError, "`attention_chunk` is of type NoneType", lambda: flash_attn_func(q, q, q, attention_chunk=None)),
        (TypeError, "`max_seqlen_q` is 6.5", lambda: flash_attn_varlen_func(x, x, x, cu, cu, 6.5, 6)),
        (TypeError, "`cu_seqlens_q` is of type list", lambda: flash_attn_varlen_func(x, x, x, [0, 6], cu, 6, 6)),
        (TypeError, "`cu_seqlens_k` is of type list", lambda: flash_attn_varlen_func(x, x, x, cu, [0, 6], 6, 6)),
        (TypeError, "`cache_seqlens` is 2.5, of type float", lambda: flash_attn_with_kvcache(q, q, q, cache_seqlens=2.5)),
        (TypeError, "`k_cache` is of type NoneType", lambda: flash_attn_with_kvcache(q, None, q)),
        (TypeError, "`k` is 1, of type int", lambda: flash_attn_with_kvcache(q, q, q, 1, 2, cache_seqlens=1)),
        (TypeError, "`cache_leftpad` is of type int", lambda: flash_attn_with_kvcache(q, q, q, cache_leftpad=1)),
        (TypeError, "`rotary_cos` is of type", lambda: flash_attn_with_kvcache(q, q, q, q, q, 1, 1, cache_seqlens=1)),
        (TypeError, "`block_table` is of type", lambda: flash_attn_with_kvcache(q, q, q, block_table=[[0]], cache_seqlens=1)),
        (ValueError, r"`window_size` is \(-2, 0\)", lambda: flash_attn_func(q, q, q, window_size=(-2, 0))),
        (ValueError, r"`window_size` is \(-1, -7\)", lambda: flash_attn_with_kvcache(q, q, q, window_size=(-1, -7))),
        (ValueError, "`softmax_scale` is nan", lambda: flash_attn_func(q, q, q, softmax_scale=float("nan"))),
        (ValueError, "`softmax_scale` is 1e\\+39", lambda: flash_attn_func(q, q, q, softmax_scale=1e39)),
        (ValueError, "`softmax_scale` is -1.0", lambda: flash_attn_func(q, q, q, softmax_scale=-1.0)),
        (ValueError, "`softcap` is nan", lambda: flash_attn_func(q, q, q, softcap=float("nan"))),
        (ValueError, "`softcap` is 1e-60", lambda: flash_attn_func(q, q, q, softcap=1e-60)),
        (ValueError, "`softcap` is inf", lambda: flash_attn_func(q, q, q, softcap=float("inf"))),
        (ValueError, "`attention_chunk` is -1", lambda: flash_attn_func(q, q, q, attention_chunk=-1)),
        (ValueError, "`q`, `k` or `v` has head dim 0", lambda: flash_attn_func(empty, empty, empty)),
        (ValueError, "`q`, `k` or `v` has head dim 0", lambda: flash_attn_func(q, q, empty)),
        (ValueError, r"`q` has shape \(32,\)", lambda: flash_attn_func(q[0, 0, 0], q, q)),
        (ValueError, r"`k` has shape \(\)", lambda: flash_attn_func(q, q[0, 0, 0, 0], q)),
        (ValueError, "`k` has 3 batch entries, `q` 1", lambda: flash_attn_func(q, three, three)),
        (ValueError, "`k` has 1 batch entries, `q` 3", lambda: flash_attn_func(three, q, q)),
        (ValueError, "`k` has 1 batch entries, `q` 3", lambda: flash_attn_with_kvcache(three, q, q)),
        (ValueError, "`cache_seqlens` is 7; the cache has 6 rows", lambda: flash_attn_with_kvcache(q, q, q, cache_seqlens=7)),
        (ValueError, "`cache_seqlens` is -1", lambda: flash_attn_with_kvcache(q, q, q, cache_seqlens=-1)),
        (ValueError, "`block_table` has shape", lambda: flash_attn_with_kvcache(q, q, q, block_table=cu, cache_seqlens=cu[1:])),
        (ValueError, "`cache_seqlens` has shape", lambda: flash_attn_with_kvcache(q, q, q, q, q, cache_seqlens=cu[None])),
        (ValueError, "`k_cache` has stride 32", lambda: flash_attn_with_kvcache(q, *columns, q, q, cache_seqlens=cu[1:])),
        (TypeError, "`k` is torch.sparse_coo", lambda: flash_attn_func(q, q.to_sparse(), q)),
        (TypeError, "`q` is nested", lambda: flash_attn_func(torch.nested.nested_tensor([q[0], q[0]]), q, q)),
        (TypeError, "`softmax_scale` is a tensor on `meta`", lambda: flash_attn_func(q, q, q, softmax_scale=torch.ones((), device="meta"))),
        (TypeError, "`softmax_scale` is '0.5', of type str", lambda: flash_attn_func(q, q, q, softmax_scale="0.5")),
        (ValueError, "`softmax_scale` has more digits", lambda: flash_attn_func(q, q, q, softmax_scale=10**400)),
        (TypeError, "`causal` is 'no', of type str", lambda: flash_attn_func(q, q, q, causal="no")),
        (TypeError, "`causal` is of type ndarray", lambda: flash_attn_func(q, q, q, causal=torch.ones(3).numpy())),
        (ValueError, "`cu_seqlens_q` is empty", lambda: flash_attn_varlen_func(x, x, x, cu[:0], cu[:0], 6, 6)),
        (ValueError, r"`seqused_q` has shape \(1, 1\)", lambda: flash_attn_func(q, q, q, seqused_q=cu[None, 1:])),
        (TypeError, "`qv` is 3, of type int", lambda: flash_attn_with_kvcache(q, q, q, qv=3)),
        (ValueError, "`cache_batch_idx` is on `meta`", lambda: flash_attn_with_kvcache(q, q, q, cache_seqlens=cu[1:],
                                                         block_table=cu[None, :1], cache_batch_idx=cu[:1].to("meta"))),
        (TypeError, "`cache_batch_idx` is torch.float32", lambda: flash_attn_with_kvcache(q, q, q, cache_seqlens=cu[1:],
                                                          block_table=cu[None, :1], cache_batch_idx=torch.zeros(1, device=device))),
        (TypeError, "`num_heads_q` is 'x'", lambda: fa3.flash_attn_qkvpacked_func(q.expand(1, 6, 6, 32), num_heads_q="x")),
        (ValueError, "`num_heads_q` is -2", lambda: fa3.flash_attn_qkvpacked_func(q.expand(1, 6, 6, 32), num_heads_q=-2)),
        (TypeError, "`q` is torch.float32.*cast `q`, `k` and `v`.*autocast", lambda: flash_attn_func(*[q.float()] * 3)),
        (TypeError, "cast them to one type", lambda: flash_attn_func(q, q.float(), q.float())),
    ]
    for error, words, call in wrong:
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("place", range(3))
def test_tensors_without_memory(q, place):
    """A tensor on `meta` looks like a host tensor."""
    inputs = [q, q, q]
    inputs[place] = q.to("meta")
    with pytest.raises(ValueError, match=f"`{'qkv'[place]}` is on `meta`"):
        flash_attn_func(*inputs)


def test_optional_tensors_without_memory(draw, integers):
    x, cu = draw(6, 1, 32), integers(0, 6)
    flash_attn_varlen_func(x, x, x, cu, cu, 6, 6)
    with pytest.raises(ValueError, match="`cu_seqlens_k` is on `meta`"):
        flash_attn_varlen_func(x, x, x, cu, cu.to("meta"), 6, 6)


@pytest.mark.parametrize("head_dim", [264, 512, 1000])
def test_a_head_dim_that_no_kernel_has_gets_no_command(draw, head_dim):
    """`kgen` would refuse a command with these values."""
    x = draw(1, 4, 1, head_dim)
    with pytest.raises(NotImplementedError, match=f"head dim {head_dim}, .* 256 and less"):
        flash_attn_func(x, x, x)
    with pytest.raises(NotImplementedError, match="256 and less"):
        flash_attn_func(x[..., :32], x[..., :32], x)


@pytest.mark.parametrize("shape", [(24, 24), (24, 40), (256, 256), (248, 16)])
def test_the_command_for_a_missing_kernel_is_one_that_kgen_takes(draw, shape, monkeypatch):
    import os
    import shlex
    import subprocess

    kgen = os.environ.get("KGEN")
    if kgen is None:
        pytest.skip("KGEN names no kgen")
    monkeypatch.delenv("KGEN_JIT", raising=False)
    q, v = draw(1, 4, 1, shape[0]), draw(1, 4, 1, shape[1])
    with pytest.raises(kgen_attn.MissingKernel) as caught:
        flash_attn_func(q, q, v)
    words = shlex.split(caught.value.command)
    selection = words[2 : words.index("--device") if "--device" in words else words.index("--generated")]
    done = subprocess.run([kgen, "list", *selection], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "1 variant" in done.stdout + done.stderr, done


def test_a_cache_of_more_entries_than_the_batch(draw, integers):
    """As in FlashAttention, the first entries are read."""
    q, cache = draw(2, 1, 2, 32), draw(5, 20, 2, 32)
    assert torch.equal(flash_attn_with_kvcache(q, cache, cache), flash_attn_with_kvcache(q, cache[:2], cache[:2]))
    new, before = draw(2, 1, 2, 32), cache.clone()
    flash_attn_with_kvcache(q, cache, cache, new, new, cache_seqlens=integers(3, 4))
    assert torch.equal(cache[2:], before[2:]) and torch.equal(cache[1, 4], new[1, 0])


def test_a_cache_whose_heads_are_padded_to_unequal_widths(draw):
    q, k, v = draw(1, 2, 2, 36), draw(1, 20, 2, 36), draw(1, 20, 2, 30)
    assert torch.equal(flash_attn_with_kvcache(q, k, v), flash_attn_func(q, k, v))


@on_the_host
def test_values_that_the_host_can_read(draw, integers):
    x, q, cache = draw(6, 1, 32), draw(2, 1, 1, 32), draw(3, 16, 1, 32)
    cu, two = integers(0, 2, 6), integers(4, 4)
    packed = lambda *starts, q=4, k=4: flash_attn_varlen_func(x, x, x, cu, integers(*starts), q, k)
    ranges = lambda *used: flash_attn_varlen_func(x, x, x, cu, integers(0, 3, 9), 4, 6, seqused_k=integers(*used))
    cached = lambda **words: flash_attn_with_kvcache(q, cache, cache, **words)
    new = {"k": q, "v": q}
    wrong = [
        ("`cu_seqlens_k` ends at 7; `k` has 6 rows", lambda: packed(0, 3, 7)),
        ("`cu_seqlens_k` ends at 7; `k` has 6 rows", lambda: ranges(3, 4)),
        ("never fall", lambda: packed(0, 4, 2)),
        ("never fall", lambda: packed(-1, 4, 5)),
        ("`max_seqlen_q` is 3; by `cu_seqlens_q` a sequence has 4 rows", lambda: packed(0, 3, 6, q=3)),
        ("`max_seqlen_k` is 2; by `cu_seqlens_k`", lambda: packed(0, 3, 6, k=2)),
        ("`cache_seqlens` holds 17", lambda: cached(cache_seqlens=integers(4, 17))),
        ("`cache_seqlens` holds 17", lambda: cached(cache_seqlens=integers(4, 17), **new)),
        ("`cache_batch_idx` holds 3;", lambda: cached(cache_batch_idx=integers(0, 3))),
        ("`cache_batch_idx` holds -1;", lambda: cached(cache_batch_idx=integers(0, -1))),
        ("`cache_batch_idx` holds 3;", lambda: cached(cache_batch_idx=integers(0, 3), cache_seqlens=two, **new)),
        ("`cache_batch_idx` holds 2;", lambda: cached(cache_batch_idx=integers(0, 2), cache_seqlens=two, block_table=two[:, None])),
        ("`block_table` holds 4;", lambda: cached(cache_seqlens=two, block_table=two[:, None])),
        ("`block_table` holds -2;", lambda: cached(cache_seqlens=two, block_table=integers(0, -2)[:, None])),
    ]
    for words, call in wrong:
        with pytest.raises(ValueError, match=re.escape(words)):
            call()
    # The last range may end anywhere if its used rows exist, and table entries that no key reaches are arbitrary.
    assert ranges(3, 3).isfinite().all()
    table = torch.stack([integers(0, 1), integers(99, -5)], dim=1)
    assert cached(cache_seqlens=two, block_table=table.contiguous()).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_a_type_that_no_kernel_has_is_named_beside_a_mask_too(draw, integers, dtype):
    """The mask becomes a bias with -infinity, which such a type cannot hold."""
    q, k, starts = draw(1, 6, 1, 32), draw(1, 6, 1, 32), integers(0, 6)
    wrong, mask = q.to(dtype), torch.ones(6, 6, device=q.device) > 0
    calls = [
        lambda: flash_attn_func(wrong, k, k, attn_bias=mask),
        lambda: flash_attn_varlen_func(wrong[0], k[0], k[0], starts, starts, 6, 6, attn_bias=mask),
        lambda: flash_attn_with_kvcache(wrong, k, k, attn_bias=mask),
        lambda: kgen_attn.scaled_dot_product_attention(wrong, wrong, wrong, attn_mask=mask[:1, :1]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=f"`q` is {dtype}"):
            call()


VARLEN = [
    kgen_attn.flash_attn_varlen_func,
    kgen_attn.flash_attn_varlen_kvpacked_func,
    kgen_attn.flash_attn_varlen_qkvpacked_func,
    kgen_attn.flash_attn_with_kvcache,
    fa3.flash_attn_varlen_func,
    fa3.flash_attn_with_kvcache,
]


@pytest.mark.parametrize("function", VARLEN, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_every_docstring_says_which_rows_are_not_written(function):
    assert "not written" in " ".join(function.__doc__.split()), function


def test_rows_of_no_sequence_are_not_written_and_have_no_gradient(draw, integers):
    """Rows of padding get gradient 0 even if their incoming gradient is NaN."""
    x = [draw(12, 1, 32, grad=True) for _ in range(3)]
    cu = integers(0, 3, 8)
    out, lse, _ = flash_attn_varlen_func(*x, cu, cu, 5, 5, return_attn_probs=True)
    apart = [t.detach()[:8].requires_grad_() for t in x]
    expected = flash_attn_varlen_func(*apart, cu, cu, 5, 5)
    assert torch.equal(out[:8], expected) and torch.isnan(out[8:]).all() and torch.isnan(lse[:, 8:]).all()
    dout = draw(12, 1, 32)
    dout[8:] = float("nan")
    for found, part in zip(torch.autograd.grad(out, x, dout), torch.autograd.grad(expected, apart, dout[:8])):
        assert torch.allclose(found[:8], part, atol=1e-2) and found[8:].abs().max() == 0


def test_no_plan_is_known_by_a_tensor(q):
    interface._direct.clear()
    flash_attn_func(q, q, q, softmax_scale=torch.tensor(0.5))
    assert not interface._direct


def test_what_a_model_may_give_wrongly(draw, integers):
    """Direct calls to the function that transformers calls."""
    import types

    from kgen_attn.huggingface import attention

    module, x = types.SimpleNamespace(config=types.SimpleNamespace(), is_causal=True), draw(1, 2, 8, 32)
    call = lambda mask=None, **others: attention(module, x, x, x, mask, **others)
    wrong = [
        (TypeError, "`attention_mask` is of type list", lambda: call([[1] * 8])),
        (ValueError, r"`attention_mask` has shape \(8,\)", lambda: call(integers(*[1] * 8).bool())),
        (ValueError, r"`attention_mask` has shape \(1, 1, 8, 7\); it is .*\(1, 2, 8, 8\) here", lambda: call(x.new_zeros(1, 1, 8, 7))),
        (TypeError, "`attention_mask` is torch.int64; of four axes", lambda: call(integers(*[[1] * 8] * 8)[None, None].long())),
        (TypeError, "`attention_mask` is torch.int32; of four axes", lambda: call(integers(*[[1] * 8] * 8)[None, None])),
        (NotImplementedError, "`cu_seq_lens_q` with a mask of four axes",
         lambda: call(x.new_zeros(1, 1, 8, 8), cu_seq_lens_q=integers(0, 8))),
        (ValueError, r"`position_bias` has shape \(2, 8, 8\)", lambda: call(position_bias=x.new_zeros(2, 8, 8))),
        (NotImplementedError, "`cu_seq_lens_k` with a mask .* or `position_bias`",
         lambda: call(position_bias=x.new_zeros(1, 2, 8, 8), cu_seq_lens_k=integers(0, 8))),
        (NotImplementedError, "`position_ids` start again",
         lambda: call(position_bias=x.new_zeros(1, 2, 8, 8), position_ids=integers(*range(4), *range(4))[None])),
        (NotImplementedError, "`head_mask` is given", lambda: call(head_mask=x)),
        (ValueError, "with `max_length_q` and `max_length_k`", lambda: call(cu_seq_lens_q=integers(0, 3, 8))),
        (ValueError, "with `max_length_k`, ", lambda: call(cu_seq_lens_q=integers(0, 3, 8), max_length_q=5, max_length_k=None)),
    ]
    for error, words, function in wrong:
        with pytest.raises(error, match=words):
            function()


def test_negated_views(draw, q, device, integers):
    """Torch negates their elements on reads; a kernel would read the memory as it is."""
    negated = torch._neg_view(q)
    for place, name in enumerate("qkv"):
        given = [negated if other == place else q for other in range(3)]
        with pytest.raises(ValueError, match=f"`{name}` is a negated view.*`{name}.resolve_neg"):
            flash_attn_func(*given)
        assert torch.equal(flash_attn_func(*(t.resolve_neg() for t in given)), flash_attn_func(*(-q if t is negated else q for t in given)))
    slopes = torch._neg_view(torch.ones(1, device=device))
    with pytest.raises(ValueError, match="`alibi_slopes` is a negated view"):
        flash_attn_func(q, q, q, alibi_slopes=slopes)
    packed, starts = q[0], integers(0, 6)
    flash_attn_varlen_func(packed, packed, packed, starts, starts, 6, 6)
    with pytest.raises(ValueError, match="`k` is a negated view"):
        flash_attn_varlen_func(packed, torch._neg_view(packed), packed, starts, starts, 6, 6)
    cache, used, new = draw(1, 20, 1, 32), integers(4), draw(1, 1, 1, 32)
    for refused in (dict(k=torch._neg_view(new), v=new), dict(k=new, v=torch._neg_view(new))):
        call = lambda more: flash_attn_with_kvcache(new, cache, cache.clone(), cache_seqlens=used, causal=True, **more)
        call({name: new for name in refused})
        with pytest.raises(ValueError, match="is a negated view"):
            call(refused)
    leaf = q.clone().requires_grad_()
    dout = torch.randn_like(q)
    out = flash_attn_func(leaf, q, q)
    (found,) = torch.autograd.grad(out, leaf, torch._neg_view(dout), retain_graph=True)
    (expected,) = torch.autograd.grad(out, leaf, -dout)
    assert torch.equal(found, expected)
