"""Unsupported arguments are refused by name."""

import inspect

import pytest
import torch

import kgen_attn
from kgen_attn import arguments, flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache


def test_a_wrong_dropout_is_refused_everywhere(draw, device):
    q, starts = draw(1, 4, 1, 32), torch.tensor([0, 4], dtype=torch.int32, device=device)
    for name in (name for name in kgen_attn.__all__ if name.startswith("flash_attn")):
        function = getattr(kgen_attn, name)
        if "dropout_p" not in getattr(inspect.signature(function), "parameters", {}):
            continue
        places = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.kind == p.POSITIONAL_OR_KEYWORD]
        with pytest.raises(ValueError, match="`dropout_p` is 1.5"):
            tensor = q[0] if "varlen" in name else q
            values = {name: torch.stack([tensor] * parts, -3) for name, parts in (("qkv", 3), ("kv", 2))}
            values |= {"cu_seqlens": starts, "max_seqlen": 4}
            function(*(values.get(p.name, values.get(p.name[:-2], tensor)) for p in places), dropout_p=1.5)


def test_signatures_are_those_of_flash_attention():
    expected = {
        "flash_attn_func": "q k v dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_attn_probs",
        "flash_attn_qkvpacked_func": "qkv dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_attn_probs",
        "flash_attn_kvpacked_func": "q kv dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_attn_probs",
        "flash_attn_varlen_func": "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p softmax_scale causal window_size "
        "softcap alibi_slopes deterministic return_attn_probs block_table",
        "flash_attn_varlen_qkvpacked_func": "qkv cu_seqlens max_seqlen dropout_p softmax_scale causal window_size softcap alibi_slopes "
        "deterministic return_attn_probs",
        "flash_attn_varlen_kvpacked_func": "q kv cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p softmax_scale causal "
        "window_size softcap alibi_slopes deterministic return_attn_probs",
        "flash_attn_with_kvcache": "q k_cache v_cache k v rotary_cos rotary_sin cache_seqlens cache_batch_idx cache_leftpad block_table "
        "softmax_scale causal window_size softcap rotary_interleaved alibi_slopes num_splits return_softmax_lse",
    }
    for name, words in expected.items():
        parameters = inspect.signature(getattr(kgen_attn, name)).parameters.values()
        assert [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD] == words.split(), name


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 7), (5, 5), (3, 8), (8, 3)])
def test_windows_keep_their_meaning(lengths, causal):
    """A window's side is dropped only if it hides nothing."""
    rows, keys = lengths

    def seen(causal, left, right):
        position, key = torch.arange(rows)[:, None] + keys - rows, torch.arange(keys)[None]
        mask = torch.ones(rows, keys, dtype=torch.bool)
        if left >= 0:
            mask &= key >= position - left
        if right >= 0:
            mask &= key <= position + right
        return mask & (key <= position) if causal else mask

    for left in range(-1, 10):
        for right in range(-1, 10):
            short = arguments.windows(causal, (left, right), rows, keys)
            assert torch.equal(seen(*short), seen(causal, left, right)), (left, right, short)
    assert arguments.windows(False, (None, 0), 5, 5) == (True, -1, -1)


def test_what_is_wrong_is_named(draw, device):
    q, k = draw(1, 4, 2, 32), draw(1, 4, 2, 32)
    cu = torch.tensor([0, 4], dtype=torch.int32, device=device)
    packed = q[0]
    wrong = [
        (TypeError, "`q` is torch.float32", lambda: flash_attn_func(q.float(), k.float(), k.float())),
        (TypeError, "one type", lambda: flash_attn_func(q, k.half(), k.half())),
        (ValueError, "`k` and `v` have the same rows", lambda: flash_attn_func(q, k, k[:, :3])),
        (ValueError, "a multiple of its heads", lambda: flash_attn_func(draw(1, 4, 3, 32), k, k)),
        (ValueError, r"`q` has shape \(4, 2, 32\)", lambda: flash_attn_func(packed[None, :, :, :][0], k, k)),
        (TypeError, "`cu_seqlens_q` is torch.int64", lambda: flash_attn_varlen_func(packed, packed, packed, cu.long(), cu, 4, 4)),
        (ValueError, "`cu_seqlens_k` has shape", lambda: flash_attn_varlen_func(packed, packed, packed, cu, cu[:1], 4, 4)),
        (ValueError, "`cu_seqlens_k` is None", lambda: flash_attn_varlen_func(packed, packed, packed, cu, None, 4, 4)),
        (ValueError, "`alibi_slopes` is", lambda: flash_attn_func(q, k, k, alibi_slopes=torch.ones(3, device=device))),
        (ValueError, "`s_aux` is", lambda: flash_attn_func(q, k, k, s_aux=torch.ones(3, device=device))),
        (ValueError, "`k` and `v` come together", lambda: flash_attn_with_kvcache(q, k, k, k=k)),
        (ValueError, "`rotary_cos` goes with new keys", lambda: flash_attn_with_kvcache(q, k, k, rotary_cos=q, rotary_sin=q)),
        (ValueError, "give it", lambda: flash_attn_with_kvcache(q, k, k, k, k)),
        (ValueError, "needs `cache_seqlens`", lambda: flash_attn_with_kvcache(q, k, k, block_table=cu[None, :1])),
    ]
    for error, words, call in wrong:
        with pytest.raises((error, IndexError) if "4, 2, 32" in words else error, match=words):
            call()


def test_another_device_is_refused(draw, device):
    q = draw(1, 4, 1, 32)
    elsewhere = q.to("meta")
    with pytest.raises((ValueError, NotImplementedError), match="is on|meta"):
        flash_attn_func(q, elsewhere, elsewhere)


def test_no_gradient_through_pages(draw, device):
    q, pages = draw(3, 1, 32, grad=True), draw(2, 16, 1, 32)
    cu, used = torch.tensor([0, 3], dtype=torch.int32, device=device), torch.tensor([5], dtype=torch.int32, device=device)
    table = torch.tensor([[0]], dtype=torch.int32, device=device)
    out = flash_attn_varlen_func(q, pages, pages, cu, None, 3, 5, block_table=table, seqused_k=used)
    with pytest.raises(NotImplementedError, match="`block_table`"):
        out.sum().backward()


def test_a_missing_kernel_is_told_with_the_command_that_makes_it(draw, monkeypatch):
    monkeypatch.delenv("KGEN_JIT", raising=False)
    q = draw(1, 4, 1, 24)
    with pytest.raises(kgen_attn.MissingKernel) as caught:
        flash_attn_func(q, q, q, causal=True, window_size=(2, -1))
    assert "no variant" in str(caught.value) and "KGEN_JIT=1" in str(caught.value)
    command = caught.value.command
    assert command in str(caught.value)
    for words in ("kgen wheel", "--kind fwd", "--head-dim 24", "--dtype bf16", "--causal", "--features window"):
        assert words in command, command
