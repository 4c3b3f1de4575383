"""torch.compile, fake tensors and torch's own checks of operators."""

import pytest
import torch

from kgen_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_forward_and_backward_compile_without_graph_breaks(draw, backend, dynamic):
    torch._dynamo.reset()

    def model(q, k, v):
        out, lse, _ = flash_attn_func(q * 1.5, k, v, causal=True, return_attn_probs=True)
        return out.float().sin(), lse

    compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (8, 12):
        inputs = [draw(1, rows, 2, 32, grad=True) for _ in range(3)]
        expected, found = model(*inputs), compiled(*inputs)
        for a, b in zip(expected, found):
            assert torch.equal(a, b)
        ones = torch.ones_like(expected[0])
        for a, b in zip(torch.autograd.grad(expected[0], inputs, ones), torch.autograd.grad(found[0], inputs, ones)):
            assert torch.allclose(a, b, atol=2e-2)  # dQ is summed in varying order


def test_padded_head_dims_and_autocast_compile(draw, device):
    torch._dynamo.reset()
    inputs = [torch.randn(1, 8, 2, 36, device=device) for _ in range(3)]

    def model(q, k, v):
        with torch.autocast(device, torch.bfloat16):
            return flash_attn_func(q, k, v)

    assert torch.equal(torch.compile(model, fullgraph=True, backend="aot_eager")(*inputs), model(*inputs))


def test_varlen_compiles(draw, device):
    torch._dynamo.reset()
    cu = torch.tensor([0, 3, 10], dtype=torch.int32, device=device)
    q = draw(10, 2, 32)
    model = lambda q: flash_attn_varlen_func(q, q, q, cu, cu, 7, 7, causal=True)
    assert torch.equal(torch.compile(model, fullgraph=True, backend="aot_eager")(q), model(q))


def test_a_cache_that_is_written_compiles(draw, device):
    torch._dynamo.reset()
    lengths = torch.tensor([2, 7], dtype=torch.int32, device=device)
    q, new, cos = draw(2, 1, 2, 32), draw(2, 1, 1, 32), draw(32, 8)
    caches = [draw(2, 16, 1, 32) for _ in range(2)]
    copies = [cache.clone() for cache in caches]

    def model(q, new, k_cache, v_cache, lengths):
        return flash_attn_with_kvcache(
            q, k_cache, v_cache, new, new, rotary_cos=cos, rotary_sin=cos, cache_seqlens=lengths, causal=True
        )

    expected = model(q, new, *caches, lengths)
    found = torch.compile(model, fullgraph=True, backend="aot_eager")(q, new, *copies, lengths)
    assert torch.equal(found, expected)
    for a, b in zip(caches, copies):
        assert torch.equal(a, b)


NUMBERS = (0, 0, 0.125, True, -1, -1, 0, 0.0)


def test_forward_passes_torchs_checks(draw):
    inputs = [draw(1, 8, 2, 32, grad=True) for _ in range(3)]
    flash_attn_func(*inputs)  # registers the operators
    torch.library.opcheck(torch.ops.kgen_attn.forward.default, (*inputs, *[None] * 14, *NUMBERS, 0, True))


def test_packed_forward_passes_torchs_checks(draw, device):
    inputs = [draw(10, 2, 32, grad=True) for _ in range(3)]
    flash_attn_func(*(draw(1, 4, 1, 32) for _ in range(3)))
    cu = torch.tensor([0, 3, 10], dtype=torch.int32, device=device)
    numbers = (7, 7, *NUMBERS[2:])
    torch.library.opcheck(torch.ops.kgen_attn.forward.default, (*inputs, cu, cu, *[None] * 12, *numbers, 0, True))


def test_backward_passes_torchs_checks(draw, device):
    q, k, v, out, dout = (draw(1, 8, 2, 32) for _ in range(5))
    flash_attn_func(q, k, v)
    lse = torch.randn(1, 2, 8, device=device)
    torch.library.opcheck(torch.ops.kgen_attn.backward.default, (dout, q, k, v, out, lse, *[None] * 8, *NUMBERS, True, False))


def test_fwd_kvcache_passes_torchs_checks(draw, device):
    new, cache, q = draw(2, 1, 1, 32), draw(2, 16, 1, 32), draw(2, 1, 2, 32)
    flash_attn_func(*(draw(1, 4, 1, 32) for _ in range(3)))
    lengths, cos = torch.tensor([2, 7], dtype=torch.int32, device=device), draw(32, 8)
    optional = (None, None, None, lengths, *[None] * 10)
    arguments = (q, cache, cache.clone(), *optional, *(0, 16, 0.2, True, -1, -1, 0, 0.0, 0), new, new, None, cos, cos.clone(), None, True, True)
    torch.library.opcheck(torch.ops.kgen_attn.fwd_kvcache.default, arguments)


def test_fake_tensors_take_the_operators_way(draw):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        q = mode.from_tensor(draw(1, 8, 2, 32))
        out, lse, _ = flash_attn_func(q, q, q, return_attn_probs=True)
    assert out.shape == (1, 8, 2, 32) and lse.shape == (1, 2, 8) and lse.dtype == torch.float32
