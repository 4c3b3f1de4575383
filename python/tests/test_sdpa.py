"""`kgen_attn.scaled_dot_product_attention` compared with PyTorch's."""

import inspect

import pytest
import torch
import torch.nn.functional as F
from reference import assert_close

import kgen_attn
from kgen_attn import scaled_dot_product_attention


@pytest.fixture
def inputs(draw):
    def inputs(rows=18, keys=29, heads=4, key_heads=4, head_dim=64, grad=False, dtype=torch.bfloat16):
        shapes = (2, heads, rows, head_dim), (2, key_heads, keys, head_dim), (2, key_heads, keys, head_dim)
        return [draw(*shape, dtype=dtype, grad=grad) for shape in shapes]

    return inputs


def plain(q, k, v, mask=None, is_causal=False, scale=None, enable_gqa=False):
    """Unfused attention in the type of `q`; a row that sees no key gives zeros."""
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    seen = torch.ones(scores.shape, dtype=torch.bool, device=q.device)
    if is_causal:
        seen = seen.tril()
    if mask is not None:
        shown = mask if mask.dtype == torch.bool else mask > -float("inf")
        seen = seen & shown
        scores = scores if mask.dtype == torch.bool else scores + mask.to(q.dtype).masked_fill(~shown, 0.0)
    weights = scores.masked_fill(~seen, -1e30).softmax(-1).masked_fill(~seen, 0.0)
    return weights @ v


def compare(q, k, v, mask=None, **options):
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    floats = mask is not None and mask.dtype != torch.bool
    leaves += [mask.detach().requires_grad_()] if floats else []
    call = lambda function, leaves, *mask: function(*leaves[:3], *(leaves[3:] or mask), **options)
    out = call(scaled_dot_product_attention, leaves, mask)
    dout = torch.randn(out.shape).to(out)
    found = [out.detach(), *torch.autograd.grad(out, leaves, dout)]
    expected = []
    for dtype in (torch.float64, q.dtype):
        apart = [t.detach().to(dtype).requires_grad_() for t in leaves]
        o = call(plain, apart, mask)
        expected.append([o, *torch.autograd.grad(o, apart, dout.to(dtype))])
    for name, one, exact, low in zip(("O", "dQ", "dK", "dV", "dmask"), found, *expected):
        if name == "dmask" and mask.shape[-1:] != k.shape[2:3]:
            assert one.abs().max() < 0.2, "one for all keys changes nothing"
            continue
        assert_close(one, exact, low, name)
    if mask is not None and mask.dim() < 2:  # which PyTorch refuses
        return
    # PyTorch's result in float64. Older versions gave NaN for rows that see no key.
    wide = mask.double() if floats else mask
    theirs = F.scaled_dot_product_attention(*(t.double() for t in (q, k, v)), wide, **options)
    assert torch.allclose(theirs.nan_to_num(0.0), expected[0][0], atol=1e-6)


def test_the_signature_is_pytorchs():
    parameters = inspect.signature(scaled_dot_product_attention).parameters
    assert list(parameters) == "query key value attn_mask dropout_p is_causal scale enable_gqa".split()
    assert [p.default for p in parameters.values()][3:] == [None, 0.0, False, None, False]


@pytest.mark.parametrize("lengths", [(20, 20), (9, 30), (30, 9), (1, 7), (7, 2)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_causal_mask_begins_at_the_first_key(inputs, lengths, is_causal):
    """PyTorch's causal mask: for any lengths, row 0 sees only key 0."""
    compare(*inputs(*lengths, head_dim=32), is_causal=is_causal)


MASKS = [(2, 4, 18, 29), (2, 1, 18, 29), (1, 4, 18, 29), (2, 1, 1, 29), (4, 18, 29), (18, 29), (18, 1), (1, 1), (29,), ()]


@pytest.mark.parametrize("shape", MASKS, ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.bfloat16], ids=str)
def test_masks(draw, inputs, dtype, shape):
    mask = torch.rand(shape, device=draw(1).device) < 0.7
    if dtype != torch.bool:
        mask = draw(1, *shape, dtype=dtype)[0].masked_fill(~mask, -float("inf"))
    compare(*inputs(), mask)


def test_grouped_heads_and_scale(draw, inputs):
    q, k, v = inputs(key_heads=2)
    compare(q, k, v, draw(2, 4, 18, 29), enable_gqa=True, scale=0.3)
    compare(*inputs(key_heads=4), enable_gqa=True, mask=draw(18, 29) > 0)


def test_deterministic_algorithms(draw, inputs):
    q, k, v = inputs(grad=True)
    mask = draw(1, 1, 1, 29, grad=True)
    dout = draw(2, 4, 18, 64)
    run = lambda: torch.autograd.grad(scaled_dot_product_attention(q, k, v, mask), (q, k, v, mask), dout)
    torch.use_deterministic_algorithms(False)
    free = run()
    torch.use_deterministic_algorithms(True)
    first, second = run(), run()
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    assert all(torch.allclose(a, b, atol=2e-2, rtol=2e-2) for a, b in zip(first, free))


def test_autocast(draw, inputs, device):
    q, k, v = (t.float() for t in inputs())
    mask = draw(18, 29, dtype=torch.float16)
    with torch.autocast(device, torch.bfloat16):
        out = scaled_dot_product_attention(q, k, v, mask)
    assert torch.equal(out, scaled_dot_product_attention(*(t.bfloat16() for t in (q, k, v)), mask.bfloat16()))


@pytest.mark.parametrize("dynamic", [False, True])
def test_it_compiles_without_graph_breaks(draw, inputs, dynamic):
    torch._dynamo.reset()
    model = lambda q, k, v, mask: scaled_dot_product_attention(q, k, v, mask, enable_gqa=True).float().sin()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (8, 12):
        q, k, v = inputs(rows, rows + 4, key_heads=2, grad=True)
        mask = draw(2, 1, rows, rows + 4, dtype=torch.float32, grad=True)
        found, expected = compiled(q, k, v, mask), model(q, k, v, mask)
        assert torch.equal(found, expected)
        for a, b in zip(*(torch.autograd.grad(out.sum(), (q, k, v, mask)) for out in (found, expected))):
            assert torch.allclose(a, b, atol=2e-2)
    causal = lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True)
    q, k, v = inputs(7, 12, head_dim=32)
    assert torch.equal(torch.compile(causal, fullgraph=True, backend="aot_eager", dynamic=dynamic)(q, k, v), causal(q, k, v))


def test_what_is_wrong_is_named(draw, inputs):
    q, k, v = inputs()
    mask = draw(18, 29)
    call = lambda *tensors, **options: scaled_dot_product_attention(*tensors, **options)
    wrong = [
        (ValueError, "`dropout_p` is 1.5", lambda: call(q, k, v, dropout_p=1.5)),
        (ValueError, "`is_causal` is True and `attn_mask` is given", lambda: call(q, k, v, mask, is_causal=True)),
        (ValueError, r"`attn_mask` has shape \(18, 28\), which does not broadcast to \(2, 4, 18, 29\)", lambda: call(q, k, v, mask[:, :28])),
        (ValueError, r"`attn_mask` has shape \(3, 1, 1, 1\), which", lambda: call(q, k, v, mask[0, 0].expand(3, 1, 1, 1) > 0)),
        (ValueError, r"`attn_mask` has shape \(1, 1, 1, 18, 29\); it must have 0 to 4 axes", lambda: call(q, k, v, mask[None, None, None])),
        (TypeError, "`attn_mask` is torch.float64; it must be torch.bool, torch.float32 or torch.bfloat16", lambda: call(q, k, v, mask.double())),
        (TypeError, "`attn_mask` is torch.float16", lambda: call(q, k, v, mask.half())),
        (TypeError, "`attn_mask` is 1, of type int", lambda: call(q, k, v, 1)),
        (TypeError, "`query` is of type NoneType", lambda: call(None, k, v)),
        (TypeError, "`value` is nested", lambda: call(q, k, torch.nested.nested_tensor([v[0], v[0]]))),
        (ValueError, r"`key` has shape \(4, 29, 64\)", lambda: call(q, k[0], v)),
        (ValueError, r"`query` \(2, 4, 18, 64\), `key` \(1, 4, 29, 64\)", lambda: call(q, k[:1], v[:1])),
        (ValueError, "`value` the heads and rows of `key`", lambda: call(q, k, v[:, :, :28])),
        (ValueError, "`key` has 2 heads, `query` 4; `enable_gqa=True`", lambda: call(q, k[:, :2], v[:, :2])),
        (ValueError, "`key` has 3 heads, `query` 4; they must be a divisor", lambda: call(q, k[:, :3], v[:, :3], enable_gqa=True)),
        (TypeError, "`scale` is 'x'", lambda: call(q, k, v, scale="x")),
        (TypeError, "`is_causal` is 'no'", lambda: call(q, k, v, is_causal="no")),
        (TypeError, "`q` is torch.float32", lambda: call(*(t.float() for t in (q, k, v)))),
        (NotImplementedError, "`scale` requires grad", lambda: call(q, k, v, scale=torch.tensor(0.3, requires_grad=True))),
    ]
    for error, words, function in wrong:
        with pytest.raises(error, match=words):
            function()


def test_it_is_a_function_of_the_package():
    assert "scaled_dot_product_attention" in kgen_attn.__all__ and kgen_attn.scaled_dot_product_attention is scaled_dot_product_attention
