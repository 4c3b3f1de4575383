"""Sequences of equal lengths, forward and backward."""

import pytest
import torch
from reference import assert_close, batch

from kgen_attn import (
    KgenError,
    abi,
    backward,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    forward,
    launch,
    missing,
)
from kgen_attn.library import library

MASKS = [
    dict(),
    dict(causal=True),
    dict(window_size=(5, 3)),
    dict(causal=True, window_size=(7, -1)),
    dict(window_size=(-1, 0)),
    dict(softcap=2.0),
    dict(causal=True, softcap=2.0, window_size=(9, 0)),
]


def references(q, k, v, options, slopes=None, sinks=None):
    """The expected result with these options, in float64 and in the type of `q`."""
    options = dict(options)
    words = {"causal": options.pop("causal", False), "window": options.pop("window_size", (-1, -1))}
    words |= {"scale": options.pop("softmax_scale", None), "softcap": options.pop("softcap", 0.0), "slopes": slopes, "sinks": sinks}
    assert not options
    inputs = [t.detach().cpu() for t in (q, k, v)]
    return [batch(*inputs, dtype=dtype, **words) for dtype in (torch.float64, q.dtype)]


def check(q, k, v, options, **more):
    out, lse, _ = flash_attn_func(q, k, v, return_attn_probs=True, **options, **more)
    (exact, exact_lse), (low, low_lse) = references(q, k, v, options, more.get("alibi_slopes"), more.get("s_aux"))
    assert_close(out.detach().cpu(), exact, low, "O")
    assert_close(lse.detach().cpu(), exact_lse, low_lse, "LSE")
    alone = flash_attn_func(q, k, v, **options, **more)
    assert torch.equal(alone, out), "the same without LSE"
    return out


@pytest.mark.parametrize("options", MASKS, ids=str)
@pytest.mark.parametrize("lengths", [(33, 33), (1, 40), (70, 20)], ids=str)
def test_masks_and_lengths(draw, options, lengths):
    q, k, v = draw(2, lengths[0], 2, 32), draw(2, lengths[1], 1, 32), draw(2, lengths[1], 1, 32)
    check(q, k, v, options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_types_and_scale(draw, dtype):
    check(draw(1, 20, 2, 32, dtype=dtype), draw(1, 30, 2, 32, dtype=dtype), draw(1, 30, 2, 32, dtype=dtype), dict(softmax_scale=0.3))


@pytest.mark.parametrize("by_entry", [False, True])
def test_alibi_and_sinks(draw, device, by_entry):
    q, k, v = draw(2, 12, 4, 32), draw(2, 20, 2, 32), draw(2, 20, 2, 32)
    slopes = torch.rand(*((2, 4) if by_entry else (4,)), device=device)
    check(q, k, v, dict(causal=True), alibi_slopes=slopes)
    check(q, k, v, dict(), s_aux=torch.randn(4, device=device))


@pytest.mark.parametrize("shape", [(40, 32), (36, 36), (33, 30)], ids=str)
def test_head_dims(draw, shape):
    """Unequal head dims, and head dims that are padded."""
    head_dim, head_dim_v = shape
    q, k, v = draw(1, 9, 2, head_dim, grad=True), draw(1, 17, 1, head_dim, grad=True), draw(1, 17, 1, head_dim_v, grad=True)
    out = check(q, k, v, dict(causal=True))
    assert out.shape == (1, 9, 2, head_dim_v)
    gradients(q, k, v, dict(causal=True))


def test_empty_sequences(draw):
    q, k = draw(2, 5, 1, 32), draw(2, 0, 1, 32)
    out, lse, _ = flash_attn_func(q, k, k, return_attn_probs=True)
    assert out.abs().max() == 0 and torch.isneginf(lse).all()
    assert flash_attn_func(draw(2, 0, 1, 32), draw(2, 4, 1, 32), draw(2, 4, 1, 32)).shape == (2, 0, 1, 32)
    assert flash_attn_func(draw(0, 3, 1, 32), draw(0, 4, 1, 32), draw(0, 4, 1, 32)).shape == (0, 3, 1, 32)


def test_views_are_read_where_they_lie(draw):
    packed = draw(2, 12, 3, 2, 32)
    check(*packed.unbind(2), dict())
    transposed = draw(2, 2, 12, 32).transpose(1, 2)
    check(transposed, transposed, transposed, dict(causal=True))
    by_columns = draw(2, 12, 32, 2).transpose(2, 3)
    for place in range(3):
        check(*(by_columns if other == place else transposed for other in range(3)), dict())
    one = draw(1, 12, 2, 32).expand(2, -1, -1, -1)
    check(one, one, one, dict())


@pytest.fixture
def copies(monkeypatch):
    """Number of tensors copied by each call since the last check, if one Hopper kernel is used."""
    assert {kernel.target for kernel in library().kernels if kernel.head_dim == 48} == {90}
    copied, movable = [], forward.movable

    def watched(tensor):
        used = movable(tensor)
        if used is not tensor:
            copied.append(tensor)
        return used

    monkeypatch.setattr(forward, "movable", watched)

    def looked_at():
        count = len(copied)
        copied.clear()
        return count

    return looked_at


def shifted(draw, *shape):
    """A tensor whose rows begin at odd element offsets."""
    return draw(*shape[:-1], shape[-1] + 4)[..., 1:-3]


def test_what_tma_cannot_move_is_copied(draw, copies):
    q, k, v = draw(2, 12, 2, 48), draw(2, 20, 2, 48), draw(2, 20, 2, 48)
    wide = lambda t: draw(*t.shape[:-1], 52)[..., :48]  # rows of 104 bytes
    expanded = lambda t: draw(t.shape[0], t.shape[1], 1, 48).expand(t.shape)
    for change in (lambda t: shifted(draw, *t.shape), wide, expanded):
        for place in range(3):
            given = [change(t) if other == place else t for other, t in enumerate((q, k, v))]
            check(*given, dict(causal=True))
            assert copies() == 2, "one with LSE, one without"
    check(shifted(draw, *q.shape), wide(k), expanded(v), dict())
    assert copies() == 6
    check(q, k, v, dict())
    assert copies() == 0


def test_gradients_of_what_tma_cannot_move(draw):
    """Only Hopper has kernels of head dim 72."""
    assert {kernel.target for kernel in library().kernels if kernel.head_dim == 72} == {90}
    plain = [draw(2, 12, 2, 72), draw(2, 20, 2, 72), draw(2, 20, 2, 72), draw(2, 12, 2, 72)]

    def gradients(q, k, v, dout):
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        out = flash_attn_func(*leaves, causal=True, deterministic=True)
        return torch.autograd.grad(out, leaves, dout)

    for place in range(4):
        odd = shifted(draw, *plain[place].shape)
        odd.copy_(plain[place])
        given = [odd if other == place else t for other, t in enumerate(plain)]
        assert all(map(torch.equal, gradients(*given), gradients(*plain)))
    # The gradient of a sum over the heads: expanded, with a stride of 0.
    one = draw(2, 12, 1, 72)
    assert all(map(torch.equal, gradients(*plain[:3], one.expand(2, 12, 2, 72)), gradients(*plain[:3], one.repeat(1, 1, 2, 1))))


def test_o_is_written_where_it_lies(draw, copies):
    q, out = draw(2, 12, 2, 48), shifted(draw, 2, 12, 2, 48)
    run = lambda q: forward.forward(q, q, q, forward.NONE, (0, 0, 0.2, True, -1, -1, 0, 0.0, 0), out=out)[0]
    expected = forward.forward(q, q, q, forward.NONE, (0, 0, 0.2, True, -1, -1, 0, 0.0, 0))[0]
    assert run(q) is out and torch.equal(out, expected) and copies() == 0
    other = shifted(draw, *q.shape)
    other.copy_(q)
    out.zero_()
    assert run(other) is out and torch.equal(out, expected) and copies() == 3


def test_packed_sequences_that_tma_cannot_move(draw, copies, device):
    starts = torch.tensor([0, 5, 12], dtype=torch.int32, device=device)
    packed = [shifted(draw, 12, 2, 48) for _ in range(3)]
    out = flash_attn_varlen_func(*packed, starts, starts, 7, 7, causal=True)
    assert copies() == 3
    for rows in (slice(0, 5), slice(5, 12)):
        alone = flash_attn_func(*(t[None, rows].contiguous() for t in packed), causal=True)
        assert torch.equal(out[rows], alone[0])


def test_caches_that_tma_cannot_move(draw, copies, device):
    integers = lambda *values: torch.tensor(values, dtype=torch.int32, device=device)
    q, odd = draw(2, 3, 2, 48), shifted(draw, 2, 3, 2, 48)
    odd.copy_(q)
    cache, far = draw(4, 32, 2, 48), shifted(draw, 4, 32, 2, 48)
    far.copy_(cache)
    for _ in range(2):  # the second time with the first one's plan
        out = flash_attn_with_kvcache(q, far, far, cache_seqlens=integers(20, 7), causal=True)
        assert torch.equal(out, flash_attn_with_kvcache(q, cache, cache, cache_seqlens=integers(20, 7), causal=True))
        assert copies() == 2
    # Pages, slots and caches that receive new rows: only Q is copied.
    new = draw(2, 3, 2, 48)
    for more in (dict(block_table=integers([0, 1], [2, 3])), dict(cache_batch_idx=integers(3, 1)), dict(k=new, v=new)):
        call = lambda q, cache: flash_attn_with_kvcache(q, cache, cache.clone(), cache_seqlens=integers(20, 7), causal=True, **more)
        expected = call(q, cache.clone())
        assert copies() == 0
        assert torch.equal(call(odd, cache.clone()), expected) and copies() == 1
        for given in (q, odd):
            with pytest.raises(KgenError, match="K: the tensor starts at"):
                call(given, far)
            copies()


def test_copies_are_read_by_a_kernel_that_was_made(draw, copies, monkeypatch):
    """The kernel of a library that `KGEN_JIT=1` would build; the original library lacks it."""
    real = library()

    class Lacking:
        path, emulator, device_type, kernels = real.path, real.emulator, real.device_type, real.kernels
        fwd_workspace = bwd_workspace = staticmethod(lambda params: 0)
        fwd = staticmethod(lambda *_: abi.ERROR_NO_VARIANT)
        last_error = staticmethod(lambda: "no kernel")

    monkeypatch.setattr(launch, "library", Lacking)
    monkeypatch.setattr(missing, "made", lambda *_: real)
    monkeypatch.setattr(forward, "_plans", {})
    q = shifted(draw, 1, 4, 1, 48)
    for _ in range(2):
        assert torch.equal(forward.forward(q, q, q, forward.NONE, (0, 0, 0.2, False, -1, -1, 0, 0.0, 0))[0], flash_attn_func(q, q, q, softmax_scale=0.2))
        assert copies() == 6
    monkeypatch.undo()


def gradients(q, k, v, options, **more):
    """Gradients compared with the reference's, for a random gradient of O."""
    inputs = [q, k, v] + ([more["s_aux"]] if "s_aux" in more else [])
    out = flash_attn_func(q, k, v, **options, **more)
    dout = torch.randn(out.shape).to(out.dtype).to(out.device)
    found = torch.autograd.grad(out, inputs, dout)
    expected = []
    for dtype in (torch.float64, q.dtype):
        leaves = [t.detach().cpu().to(dtype).requires_grad_() for t in inputs]
        words = {"causal": options.get("causal", False), "window": options.get("window_size", (-1, -1))}
        words |= {"softcap": options.get("softcap", 0.0), "slopes": more.get("alibi_slopes")}
        o, _ = batch(*leaves[:3], dtype=dtype, sinks=leaves[3] if len(leaves) > 3 else None, **words)
        expected.append(torch.autograd.grad(o, leaves, dout.cpu().to(dtype)))
    for name, *three in zip(("dQ", "dK", "dV", "dsinks"), found, *expected):
        assert_close(three[0].cpu(), three[1], three[2], name)
    return found


@pytest.mark.parametrize("options", MASKS, ids=str)
def test_gradients(draw, options):
    q, k, v = draw(2, 20, 4, 32, grad=True), draw(2, 33, 2, 32, grad=True), draw(2, 33, 2, 32, grad=True)
    gradients(q, k, v, options, deterministic=True)


def test_gradients_of_sinks_and_with_alibi(draw, device):
    q, k, v = draw(1, 20, 2, 32, grad=True), draw(1, 20, 2, 32, grad=True), draw(1, 20, 2, 32, grad=True)
    gradients(q, k, v, dict(), s_aux=torch.randn(2, device=device).requires_grad_())
    gradients(q, k, v, dict(causal=True), alibi_slopes=torch.rand(2, device=device))


def test_deterministic_gradients_are_the_same_bits(draw):
    q, k, v = (draw(2, 40, 2, 32, grad=True) for _ in range(3))
    dout = draw(2, 40, 2, 32)
    run = lambda flag: torch.autograd.grad(flash_attn_func(q, k, v, deterministic=flag), (q, k, v), dout)
    for first, second in zip(run(True), run(True)):
        assert torch.equal(first, second)
    # Every backward pass is deterministic on the emulator, so check the flag that the library received.
    for flag in (False, True):
        backward._plans.clear()
        run(flag)
        (plan,) = backward._plans.values()
        told = abi.BwdParams.from_buffer_copy(plan.params).flags & abi.FLAG_DETERMINISTIC
        assert bool(told) == flag


@pytest.mark.skipif(library().emulator is None, reason="about the emulator")
def test_what_the_emulator_finds_is_an_error(draw, monkeypatch):
    """A launch that reads beyond its declared memory."""
    whole = launch.extent
    monkeypatch.setattr(launch, "extent", lambda tensor: (whole(tensor)[0], whole(tensor)[1] // 2))
    with pytest.raises(KgenError, match="out of bounds(.|\n)*\n.*outside every tensor"):
        flash_attn_func(*(draw(1, 20, 1, 32) for _ in range(3)))


def test_only_some_inputs_need_gradients(draw):
    q, k, v = draw(1, 8, 1, 32), draw(1, 8, 1, 32, grad=True), draw(1, 8, 1, 32)
    flash_attn_func(q, k, v).sum().backward()
    assert k.grad is not None and q.grad is None
    with torch.no_grad():
        assert flash_attn_func(q, k, v).grad_fn is None


def test_packed_forms_are_the_same(draw):
    qkv = draw(2, 12, 3, 2, 32, grad=True)
    out = flash_attn_qkvpacked_func(qkv, causal=True)
    assert torch.equal(out, flash_attn_func(*qkv.unbind(2), causal=True))
    q, kv = draw(2, 12, 2, 32), draw(2, 12, 2, 1, 32)
    assert torch.equal(flash_attn_kvpacked_func(q, kv), flash_attn_func(q, *kv.unbind(2)))
    dout = draw(2, 12, 2, 32)
    (whole,) = torch.autograd.grad(out, qkv, dout)
    parts = [t.detach().requires_grad_() for t in qkv.unbind(2)]
    apart = torch.autograd.grad(flash_attn_func(*parts, causal=True, deterministic=True), parts, dout)
    assert_close(whole.cpu(), torch.stack(apart, 2).cpu().double(), torch.stack(apart, 2).cpu(), "dQKV")


def test_autocast(draw, device):
    q, k, v = (torch.randn(1, 8, 2, 32, device=device) for _ in range(3))
    with torch.autocast(device, torch.bfloat16):
        out = flash_attn_func(q, k, v)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, flash_attn_func(*(t.bfloat16() for t in (q, k, v))))


def test_memory_is_poisoned():
    assert torch.empty(3).isnan().all(), "else these tests would not see what is left unwritten"
