"""Supported and refused derivatives: no gradient is lost silently."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from reference import assert_close, batch

from kgen_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache


def leaves(draw, rows=9, heads=2):
    return [draw(2, rows, heads, 32, grad=True) for _ in range(3)]


def expected(q, k, v, loss, dtype, causal=False, sinks=None):
    """Gradients of `loss(O, LSE)`, computed in `dtype`."""
    inputs = [t.detach().cpu().to(dtype).requires_grad_() for t in (q, k, v, *([] if sinks is None else [sinks]))]
    out, lse = batch(*inputs[:3], causal=causal, dtype=dtype, sinks=inputs[3] if sinks is not None else None)
    found = torch.autograd.grad(loss(out, lse), inputs, allow_unused=True)
    return [torch.zeros_like(t) if gradient is None else gradient for t, gradient in zip(inputs, found)]


@pytest.mark.parametrize("of", ["LSE", "both"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_log_sum_exp_has_a_gradient(draw, device, causal, of):
    q, k, v = draw(2, 20, 4, 32, grad=True), draw(2, 33, 2, 32, grad=True), draw(2, 33, 2, 32, grad=True)
    weights, dout = torch.randn(2, 4, 20), torch.randn(2, 20, 4, 32)

    def loss(out, lse):
        of_lse = (lse * weights.to(lse)).sum()
        return of_lse if of == "LSE" else of_lse + (out * dout.to(out)).sum()

    out, lse, _ = flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    found = torch.autograd.grad(loss(out, lse), (q, k, v))
    for name, one, exact, low in zip(("dQ", "dK", "dV"), found, *(expected(q, k, v, loss, d, causal) for d in (torch.float64, q.dtype))):
        assert_close(one.cpu(), exact, low, name)


def test_the_log_sum_exp_with_sinks_has_a_gradient(draw, device):
    q, k, v = leaves(draw)
    sinks, weights = torch.randn(2, device=device).requires_grad_(), torch.randn(2, 2, 9)
    loss = lambda out, lse: (lse * weights.to(lse)).sum() + out.sum()
    out, lse, _ = flash_attn_func(q, k, v, s_aux=sinks, return_attn_probs=True)
    found = torch.autograd.grad(loss(out, lse), (q, k, v, sinks))
    exact, low = (expected(q, k, v, loss, dtype, sinks=sinks) for dtype in (torch.float64, q.dtype))
    for name, *three in zip(("dQ", "dK", "dV", "dsinks"), found, exact, low):
        assert_close(three[0].cpu(), three[1], three[2], name)


def test_a_gradient_of_the_log_sum_exp_may_lie_anyhow(draw):
    q, k, v = leaves(draw)
    _, lse, _ = flash_attn_func(q, k, v, deterministic=True, return_attn_probs=True)
    whole = torch.randn(lse.shape, device=lse.device)
    for dlse in (torch.ones((), device=lse.device).expand(lse.shape), whole.transpose(1, 2).contiguous().transpose(1, 2)):
        found = torch.autograd.grad(lse, (q, k), dlse, retain_graph=True)
        for a, b in zip(found, torch.autograd.grad(lse, (q, k), dlse.contiguous(), retain_graph=True)):
            assert torch.equal(a, b)


def test_packed_log_sum_exp_has_a_gradient(draw, device):
    q, k, v = (draw(20, 2, 32, grad=True) for _ in range(3))
    cu = torch.tensor([0, 8, 20], dtype=torch.int32, device=device)
    weights = torch.randn(2, 20, device=device)
    _, lse, _ = flash_attn_varlen_func(q, k, v, cu, cu, 12, 12, causal=True, deterministic=True, return_attn_probs=True)
    found = torch.autograd.grad((lse * weights).sum(), (q, k))
    for begin, end in ((0, 8), (8, 20)):
        parts = [t[begin:end].detach()[None].requires_grad_() for t in (q, k, v)]
        _, alone, _ = flash_attn_func(*parts, causal=True, deterministic=True, return_attn_probs=True)
        for whole, part in zip(found, torch.autograd.grad((alone[0] * weights[:, begin:end]).sum(), parts[:2])):
            assert torch.equal(whole[begin:end], part[0])


def merged(q, k, v, at, causal):
    """Attention to the keys before `at` and from there on, merged by their log-sum-exp."""
    (first, lse_first, _), (second, lse_second, _) = (
        flash_attn_func(q, k[:, part], v[:, part], causal=causal and last, return_attn_probs=True)
        for part, last in ((slice(0, at), False), (slice(at, None), True))
    )
    lse = torch.logaddexp(lse_first, lse_second)
    weigh = lambda part: torch.exp(part - lse).transpose(1, 2)[..., None]
    return first.float() * weigh(lse_first) + second.float() * weigh(lse_second)


@pytest.mark.parametrize("causal", [False, True])
def test_two_chunks_merged_by_log_sum_exp_train_as_one_call(draw, causal):
    """Ring attention and cascades merge chunks in this way."""
    q, k, v = draw(2, 12, 4, 32, grad=True), draw(2, 40, 2, 32, grad=True), draw(2, 40, 2, 32, grad=True)
    dout = torch.randn(2, 12, 4, 32, device=q.device)
    found = torch.autograd.grad(merged(q, k, v, 24, causal), (q, k, v), dout)
    whole = torch.autograd.grad(flash_attn_func(q, k, v, causal=causal).float(), (q, k, v), dout)
    loss = lambda out, _: (out * dout.cpu().to(out)).sum()
    exact, low = (expected(q, k, v, loss, dtype, causal) for dtype in (torch.float64, q.dtype))
    for name, one, other, *three in zip(("dQ", "dK", "dV"), found, whole, exact, low):
        assert_close(one.cpu(), three[0], three[1], f"{name} of the merge")
        assert_close(other.cpu(), three[0], three[1], f"{name} of one call")


def penalty(function, q, k, v):
    (first,) = torch.autograd.grad(function(q, k, v).float().sum(), q, create_graph=True)
    return first.float().square().sum()


def test_a_second_derivative_is_refused(draw):
    """Second derivatives are refused even if the first gradient is that of a sum, so that dO does not require grad."""
    q, k, v = leaves(draw)
    flash_attn_func(q, k, v)
    operator = lambda q, k, v: torch.ops.kgen_attn.forward(q, k, v, *[None] * 14, 0, 0, 0.2, False, -1, -1, 0, 0.0, 0, True)[0]
    for function in (flash_attn_func, operator):
        with pytest.raises(NotImplementedError, match="no second derivatives"):
            penalty(function, q, k, v).backward()
    compiled = torch.compile(flash_attn_func, backend="eager", fullgraph=True)
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        penalty(compiled, q, k, v).backward()


def test_the_first_gradient_with_a_graph_is_the_same(draw):
    q, k, v = leaves(draw)
    take = lambda graph: torch.autograd.grad(flash_attn_func(q, k, v, deterministic=True).sum(), (q, k, v), create_graph=graph)
    for a, b in zip(take(False), take(True)):
        assert torch.equal(a, b)


@pytest.mark.parametrize("place", range(3))
def test_tangents_are_refused(draw, place):
    plain = [draw(1, 6, 1, 32) for _ in range(3)]
    flash_attn_func(*plain)
    with forward_ad.dual_level():
        dual = list(plain)
        dual[place] = forward_ad.make_dual(plain[place], draw(1, 6, 1, 32))
        with pytest.raises(NotImplementedError, match=f"`{'qkv'[place]}` has a tangent: no forward-mode derivatives"):
            flash_attn_func(*dual)
        with pytest.raises(NotImplementedError, match="no tangents through `torch.ops.kgen_attn`"):
            torch.ops.kgen_attn.forward(*dual, *[None] * 14, 0, 0, 0.2, False, -1, -1, 0, 0.0, 0, False)
        assert forward_ad.unpack_dual(flash_attn_func(*plain)).tangent is None  # no tangents, as before


def test_a_tangent_of_the_gradient_is_refused(draw):
    q, k, v = leaves(draw)
    out = flash_attn_func(q, k, v)
    with forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="the gradient of the result has a tangent"):
            torch.autograd.grad(out, q, forward_ad.make_dual(torch.ones_like(out), torch.ones_like(out)))


def test_transforms_are_refused(draw):
    q = draw(1, 6, 1, 32)
    for keywords in ({}, {"s_aux": torch.zeros(1, device=q.device)}):
        call = lambda x: flash_attn_func(x, q, q, **keywords)
        calls = {
            "inside of `torch.func`": lambda: torch.func.grad(lambda x: call(x).float().sum())(q),
            "inside of `torch.func`: kgen": lambda: torch.func.jvp(call, (q,), (q,)),
            "batched, by `torch.func.vmap`": lambda: torch.func.vmap(call)(q[None]),
            "no rules for transforms": lambda: torch.func.vjp(call, q),
        }
        for words, run in calls.items():
            with pytest.raises(NotImplementedError, match=words):
                run()
    with pytest.raises(NotImplementedError, match="no tangents"):
        torch.func.jvp(lambda x: torch.ops.kgen_attn.forward(x, q, q, *[None] * 14, 0, 0, 0.2, False, -1, -1, 0, 0.0, 0, False)[0], (q,), (q,))
    q.requires_grad_()
    with pytest.raises(NotImplementedError, match="requires grad inside of a transform"):
        torch.func.grad(lambda x: (flash_attn_func(q, q, q) * x).float().sum())(q.detach())
    assert torch.func.vmap(lambda x: x + flash_attn_func(q.detach(), q.detach(), q.detach()))(q.detach()[None]).shape[0] == 1


def test_batched_gradients_are_refused(draw):
    q, k, v = leaves(draw)
    out = flash_attn_func(q, k, v)
    with pytest.raises(NotImplementedError, match="the gradient of the result is batched"):
        torch.autograd.grad(out, q, torch.ones_like(out)[None], is_grads_batched=True)


@pytest.mark.parametrize("wanted", [False, True], ids=["alone", "beside q"])
def test_what_has_no_gradient_is_refused(draw, device, wanted):
    q = draw(1, 6, 1, 32, grad=wanted)
    one = lambda: torch.tensor([0.1], device=device, requires_grad=True)
    scalar = lambda: torch.tensor(0.3, device=device, requires_grad=True)
    given = {
        "alibi_slopes": one(),
        "softmax_scale": scalar(),
        "softcap": scalar(),
        "q_descale": one()[None],
        "k_descale": scalar(),
    }
    for name, tensor in given.items():
        with pytest.raises(NotImplementedError, match=f"`{name}` requires grad, and kgen has no gradient for it"):
            flash_attn_func(q, q, q, **{name: tensor})
    with torch.no_grad():
        for name in ("alibi_slopes", "softmax_scale"):
            options = {name: given[name], **({"window_size": (2, 2), "softcap": 3.0} if name == "alibi_slopes" else {})}
            if name == "alibi_slopes":
                options["s_aux"] = torch.zeros(1, device=device)
            assert not flash_attn_func(q, q, q, **options).requires_grad


def test_a_dense_cache_has_gradients(draw, device):
    q, k, v = (draw(2, rows, 2, 32, grad=True) for rows in (3, 20, 20))
    used = torch.tensor([20, 20], dtype=torch.int32, device=device)
    out = flash_attn_with_kvcache(q, k, v, cache_seqlens=used, causal=True)
    dout = draw(*out.shape)
    exact, low = (expected(q, k, v, lambda out, _: (out * dout.cpu().to(out)).sum(), d, causal=True) for d in (torch.float64, q.dtype))
    for name, *three in zip(("dQ", "dK", "dV"), torch.autograd.grad(out, (q, k, v), dout), exact, low):
        assert_close(three[0].cpu(), three[1], three[2], name)


@pytest.mark.parametrize("compiled", [False, True])
def test_new_keys_of_a_cache_have_none_and_say_so(draw, device, compiled):
    torch._dynamo.reset()
    q, new, cache = draw(2, 1, 2, 32, grad=True), draw(2, 1, 2, 32), draw(2, 20, 2, 32)
    used = torch.tensor([4, 7], dtype=torch.int32, device=device)
    call = lambda q: flash_attn_with_kvcache(q, cache, cache, new, new, cache_seqlens=used, causal=True, return_softmax_lse=True)
    with torch.no_grad():
        plain = call(q)
    for part, same in zip((torch.compile(call, backend="aot_eager", fullgraph=True) if compiled else call)(q), plain):
        assert torch.equal(part, same)
        with pytest.raises(NotImplementedError, match="no gradients of `flash_attn_with_kvcache` with new keys"):
            part.float().sum().backward(retain_graph=True)


def test_a_compiled_call_without_a_gradient_says_so_when_it_is_differentiated(draw, device):
    """Decoding without `torch.no_grad` is not training."""
    torch._dynamo.reset()
    q, cache = draw(2, 1, 2, 32, grad=True), draw(3, 20, 2, 32)
    entries = torch.tensor([2, 0], dtype=torch.int32, device=device)
    call = lambda q: flash_attn_with_kvcache(q, cache, cache, cache_batch_idx=entries, causal=True)
    out = torch.compile(call, backend="aot_eager", fullgraph=True)(q)
    assert torch.equal(out, call(q))
    with pytest.raises(NotImplementedError, match="no gradients with `cache_batch_idx`"):
        out.float().sum().backward()
