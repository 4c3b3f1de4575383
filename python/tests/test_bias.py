"""An additive bias of the scores, and bool masks: values, gradients, memory layouts, and refusals."""

import itertools

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from reference import assert_close, attention, batch

import kgen_attn
from kgen_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache, interface

KERNELS = [
    (64, torch.bfloat16, False),
    (64, torch.bfloat16, True),
    (64, torch.float16, False),
    (128, torch.bfloat16, False),
    (128, torch.bfloat16, True),
]

#: For batch, heads, rows and keys: which of these axes of a bias have size 1.
REPEATS = list(itertools.product((False, True), repeat=3))

INFINITY = float("inf")


def of_axes(repeats, whole):
    return [1 if repeated else size for repeated, size in zip(repeats, whole)]


@pytest.fixture
def inputs(draw):
    """Q, K and V of a batch of two: 20 rows of 4 heads, 37 keys of 2 key heads."""

    def inputs(dtype=torch.bfloat16, head_dim=64, rows=20, keys=37, grad=False, heads=4):
        shapes = (2, rows, heads, head_dim), (2, keys, 2, head_dim), (2, keys, 2, head_dim)
        return [draw(*shape, dtype=dtype, grad=grad) for shape in shapes]

    return inputs


def hidden(bias, part=0.2):
    """The bias with some keys hidden."""
    return bias.masked_fill(torch.rand(bias.shape, device=bias.device) < part, -INFINITY)


def compare(q, k, v, bias, **options):
    """Compares O, LSE and the gradients of a random loss of both with the reference."""
    leaves = [t.detach().requires_grad_() for t in (q, k, v, bias)]
    out, lse, _ = flash_attn_func(*leaves[:3], attn_bias=leaves[3], return_attn_probs=True, **options)
    finite = ~torch.isinf(lse.detach())
    dout, dlse = torch.randn(out.shape).to(out), torch.randn(lse.shape).to(lse)
    loss = lambda out, lse: (out * dout.to(out)).sum() + (lse.masked_fill(~finite.to(lse.device), 0.0) * dlse.to(lse)).sum()
    found = torch.autograd.grad((out, lse), leaves, (dout, dlse.masked_fill(~finite, 0.0)))
    expected = []
    words = {"causal": options.get("causal", False), "scale": options.get("softmax_scale")}
    for dtype in (torch.float64, q.dtype):
        apart = [t.detach().to(dtype).requires_grad_() for t in leaves]
        o, row_lse = batch(*apart[:3], bias=apart[3], dtype=dtype, **words)
        expected.append([o, row_lse, *torch.autograd.grad(loss(o, row_lse), apart)])
    for name, one, exact, low in zip(("O", "LSE", "dQ", "dK", "dV", "dbias"), (out, lse, *found), *expected):
        assert_close(one.detach(), exact, low, name)
    assert found[3].dtype == bias.dtype and found[3].shape == bias.shape
    return out, lse, found


@pytest.mark.parametrize("repeats", REPEATS, ids=lambda repeats: "".join("1" if r else c for r, c in zip(repeats, "bhq")))
@pytest.mark.parametrize("head_dim, dtype, causal", KERNELS)
def test_values_and_gradients(draw, inputs, head_dim, dtype, causal, repeats):
    """Grouped heads and unequal lengths, with the bias in fp32 or 16 bits."""
    q, k, v = inputs(dtype, head_dim)
    kind = torch.float32 if sum(repeats) % 2 else dtype
    bias = hidden(2 * draw(*of_axes(repeats, (2, 4, 20)), 37, dtype=kind))
    compare(q, k, v, bias, causal=causal)


@pytest.mark.parametrize("lengths", [(1, 1), (1, 70), (70, 20), (130, 3)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_lengths(draw, inputs, lengths, causal):
    q, k, v = inputs(rows=lengths[0], keys=lengths[1])
    compare(q, k, v, draw(2, 1, *lengths, dtype=torch.float32), causal=causal, softmax_scale=0.3)


def test_one_bias_for_all_keys(draw, inputs):
    """Such a bias changes only the log-sum-exp."""
    q, k, v = inputs()
    for shape in ((2, 4, 20, 1), (1, 1, 1, 1)):
        compare(q, k, v, draw(*shape), causal=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_bias_is_read_where_it_lies(draw, inputs, dtype):
    q, k, v = inputs()
    whole = (2, 4, 20, 37)
    views = {
        "rows of 40": draw(2, 4, 20, 40, dtype=dtype)[..., :37],
        "odd starts": draw(2, 4, 20, 41, dtype=dtype)[..., 3:40],
        "transposed": draw(2, 4, 37, 20, dtype=dtype).transpose(2, 3),
        "heads last": draw(2, 20, 37, 4, dtype=dtype).permute(0, 3, 1, 2),
        "every second key": draw(2, 4, 20, 74, dtype=dtype)[..., ::2],
        "batch expanded": draw(1, 4, 20, 37, dtype=dtype).expand(whole),
        "all but keys expanded": draw(37, dtype=dtype).expand(whole),
        "keys expanded": draw(2, 4, 20, 1, dtype=dtype).expand(whole),
        "one row of a transposed one": draw(37, 20, dtype=dtype).t()[3:4],
        "relative": draw(56, dtype=dtype).as_strided((20, 37), (1, 1)),
    }
    for name, view in views.items():
        leaf, copy = (t.detach().requires_grad_() for t in (view, view.contiguous()))
        pairs = []
        for bias in (leaf, copy):
            deterministic = bias.dim() == 4
            out = flash_attn_func(q, k, v, attn_bias=bias, deterministic=deterministic)
            pairs.append((out, *torch.autograd.grad(out, bias, torch.ones_like(out))))
        assert torch.equal(pairs[0][0], pairs[1][0]), name
        same = torch.equal if deterministic else lambda a, b: torch.allclose(a.float(), b.float(), atol=1e-2)
        assert same(pairs[0][1], pairs[1][1]), name


def test_a_leaf_that_is_expanded_gets_the_sum(draw, inputs):
    q, k, v = inputs()
    leaf = draw(1, 4, 1, 37, dtype=torch.float32, grad=True)
    dout = draw(2, 20, 4, 64)
    gradients = [
        torch.autograd.grad(flash_attn_func(q, k, v, attn_bias=bias, deterministic=flag), leaf, dout)[0]
        for bias, flag in ((leaf, False), (leaf.expand(2, 4, 20, 37), True), (leaf.expand(2, 4, 20, 37), False))
    ]
    assert torch.allclose(gradients[0], gradients[1], atol=1e-4) and torch.allclose(gradients[1], gradients[2], atol=1e-4)


def test_rank_two_and_three(draw, inputs):
    q, k, v = inputs()
    for shape in ((20, 37), (1, 37), (4, 20, 37), (1, 20, 37)):
        bias = draw(*shape, grad=True)
        out = flash_attn_func(q, k, v, attn_bias=bias)
        assert torch.equal(out, flash_attn_func(q, k, v, attn_bias=bias.detach().expand(2, 4, 20, 37)))
        assert torch.autograd.grad(out.float().sum(), bias)[0].shape == shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_whose_keys_are_all_hidden(draw, inputs, dtype):
    q, k, v = inputs(grad=True)
    bias = draw(2, 4, 20, 37, dtype=dtype)
    bias[:, :, 3] = -INFINITY
    bias[1, 2] = -INFINITY
    bias[:, :, :, 5] = -INFINITY
    bias.requires_grad_()
    out, lse, _ = flash_attn_func(q, k, v, attn_bias=bias, return_attn_probs=True)
    assert out[:, 3].abs().max() == 0 and out[1, :, 2].abs().max() == 0
    assert torch.isneginf(lse[:, :, 3]).all() and torch.isneginf(lse[1, 2]).all()
    dlse = torch.randn_like(lse).masked_fill(lse.isinf(), float("nan"))  # ignored there
    dq, dk, dv, dbias = torch.autograd.grad((out, lse), (q, k, v, bias), (draw(*out.shape), dlse))
    assert dq[:, 3].abs().max() == 0 and dq[1, :, 2].abs().max() == 0 and dk[:, 5].abs().max() == 0 and dv[:, 5].abs().max() == 0
    assert dbias[:, :, 3].abs().max() == 0 and dbias[1, 2].abs().max() == 0 and dbias[..., 5].abs().max() == 0
    assert all(gradient.isfinite().all() for gradient in (dq, dk, dv, dbias))
    compare(q, k, v, bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("value", ["least", -1e38], ids=str)
def test_finite_numbers_hide_nothing(draw, inputs, dtype, value):
    """As in PyTorch, a row whose biases are all one huge negative number gives the mean of V."""
    q, k, v = inputs(grad=True)
    bias = draw(2, 4, 20, 37, dtype=dtype)
    bias[:, :, 3] = torch.finfo(dtype).min if value == "least" else value
    bias.requires_grad_()
    out, lse, _ = flash_attn_func(q, k, v, attn_bias=bias, return_attn_probs=True)
    mean = v.float().mean(1).repeat_interleave(q.shape[2] // v.shape[2], 1)
    assert torch.allclose(out[:, 3].float(), mean, atol=2e-2)
    # The product of the least number and log2(e) exceeds float32: the log-sum-exp is -infinity, or -2^127 if keys are
    # split.
    assert (lse[:, :, 3] <= -(2.0**126.9)).all() if value == "least" else lse.isfinite().all()
    gradients = torch.autograd.grad(out, (q, k, v, bias), draw(*out.shape))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_mask_of_bool(draw, inputs):
    q, k, v = inputs(grad=True)
    for shape in ((2, 4, 20, 37), (2, 1, 20, 37), (2, 1, 1, 37), (20, 37), (4, 1, 37), (2, 1, 20, 1)):
        mask = torch.rand(*shape, device=q.device) < 0.6
        bias = torch.zeros(shape, device=q.device).masked_fill(~mask, -INFINITY)
        outs = [flash_attn_func(q, k, v, attn_bias=given, deterministic=True) for given in (mask, bias, bias.bfloat16())]
        assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])
        whole = mask.expand(2, 4, 20, 37)
        exact = torch.nn.functional.scaled_dot_product_attention(
            *(t.double().transpose(1, 2) for t in (q, k, v)), attn_mask=whole, enable_gqa=True
        ).transpose(1, 2).masked_fill(~whole.any(3).transpose(1, 2)[..., None], 0.0)
        low, _ = batch(q, k, v, bias=whole.double().log(), dtype=torch.bfloat16)
        assert_close(outs[0], exact, low, "O")
        gradients = [torch.autograd.grad(out.float().square().sum(), (q, k, v)) for out in outs[:2]]
        assert all(torch.equal(a, b) for a, b in zip(*gradients))


def test_an_expanded_mask_of_bool_stays_so(device):
    mask = (torch.rand(2, 1, 1, 5, device=device) < 0.5).expand(2, 3, 4, 5)
    bias = kgen_attn.bias.bias_of_four_axes(mask, torch.float16)
    assert bias.shape == mask.shape and bias.stride()[1:3] == (0, 0) and bias.dtype == torch.float16
    assert torch.equal(bias == 0, mask) and torch.equal(torch.isneginf(bias), ~mask)


def test_it_is_added_after_softcap_and_slopes(draw, inputs, device):
    q, k, v = inputs()
    bias, slopes = hidden(3 * draw(1, 4, 20, 37)), torch.rand(4, device=device)
    out, lse, _ = flash_attn_func(q, k, v, softcap=1.5, alibi_slopes=slopes, attn_bias=bias, softmax_scale=0.4, return_attn_probs=True)
    (exact, exact_lse), (low, low_lse) = (
        batch(q, k, v, softcap=1.5, slopes=slopes, bias=bias, scale=0.4, dtype=dtype) for dtype in (torch.float64, torch.bfloat16)
    )
    assert_close(out, exact, low, "O")
    assert_close(lse, exact_lse, low_lse, "LSE")


def test_splits(draw, inputs):
    q, k, v = inputs(rows=2, keys=300)
    bias = hidden(draw(2, 1, 2, 300, dtype=torch.float32))
    exact, low = (batch(q, k, v, bias=bias, dtype=dtype) for dtype in (torch.float64, torch.bfloat16))
    for splits in (1, 3):
        out, lse, _ = flash_attn_func(q, k, v, attn_bias=bias, num_splits=splits, return_attn_probs=True)
        assert_close(out, exact[0], low[0], "O")
        assert_close(lse, exact[1], low[1], "LSE")


@pytest.mark.parametrize("repeats", [(False, False, False), (True, False, False), (False, True, True), (True, True, True)], ids=str)
@pytest.mark.parametrize("used", [False, True])
def test_packed_sequences(draw, device, repeats, used):
    """The bias is indexed by the rows of a sequence; elements beyond its length are ignored and have gradient 0."""
    lengths_q, lengths_k = [5, 0, 18], [9, 4, 11]
    starts = lambda lengths: torch.tensor([0, *lengths], dtype=torch.int32, device=device).cumsum(0, dtype=torch.int32)
    q, k, v = draw(23, 4, 64, grad=True), draw(24, 2, 64, grad=True), draw(24, 2, 64, grad=True)
    bias = draw(*of_axes(repeats, (3, 4, 18)), 11, dtype=torch.float32)
    used_k = [7, 4, 6] if used else lengths_k
    options = {"seqused_k": torch.tensor(used_k, dtype=torch.int32, device=device)} if used else {}
    for b, (rows, keys) in enumerate(zip(lengths_q, used_k)):
        if not repeats[0] and not repeats[2]:
            bias[b, :, rows:] = float("nan")
        if not repeats[0]:
            bias[b, :, :, keys:] = float("nan")
    bias.requires_grad_()
    out = flash_attn_varlen_func(q, k, v, starts(lengths_q), starts(lengths_k), 18, 11, causal=True, attn_bias=bias, **options)
    dout = draw(23, 4, 64)
    found = torch.autograd.grad(out, (q, k, v, bias), dout)
    expected = []
    for dtype in (torch.float64, torch.bfloat16):
        apart = [t.detach().to(dtype).requires_grad_() for t in (q, k, v, bias)]
        outs = []
        for b, (rows, keys) in enumerate(zip(lengths_q, used_k)):
            of_q, of_k = (slice(sum(lengths[:b]), sum(lengths[:b]) + n) for lengths, n in ((lengths_q, rows), (lengths_k, keys)))
            part = apart[3][0 if repeats[0] else b][:, slice(None) if repeats[2] else slice(rows), :keys]
            outs.append(attention(apart[0][of_q], apart[1][of_k], apart[2][of_k], causal=True, bias=part, dtype=dtype)[0])
        outs = torch.cat(outs)
        expected.append([outs, *torch.autograd.grad(outs, apart, dout.to(dtype))])
    for name, one, exact, low in zip(("O", "dQ", "dK", "dV", "dbias"), (out.detach(), *found), *expected):
        assert_close(one, exact, low, name)


def test_packed_sequences_without_rows(draw, device):
    """The gradient of the bias is zeroed even if there are no queries."""
    q, k, bias = draw(0, 2, 64), draw(4, 2, 64), draw(1, 2, 3, 4, grad=True)
    starts = lambda *at: torch.tensor(at, dtype=torch.int32, device=device)
    out = flash_attn_varlen_func(q, k, k, starts(0, 0), starts(0, 4), 3, 4, attn_bias=bias)
    assert out.shape == q.shape and torch.equal(torch.autograd.grad(out.sum(), bias)[0], torch.zeros_like(bias))


def test_packed_tensors(draw, device):
    qkv, bias = draw(2, 9, 3, 2, 64, grad=True), draw(2, 2, 9, 9, grad=True)
    starts = torch.tensor([0, 9, 18], dtype=torch.int32, device=device)
    q, k, v = qkv.unbind(2)
    dout = draw(2, 9, 2, 64)
    flat = qkv.flatten(0, 1)
    calls = [
        lambda: flash_attn_func(q, k, v, causal=True, deterministic=True, attn_bias=bias),
        lambda: kgen_attn.flash_attn_qkvpacked_func(qkv, causal=True, deterministic=True, attn_bias=bias),
        lambda: kgen_attn.flash_attn_kvpacked_func(q, qkv[:, :, 1:], causal=True, deterministic=True, attn_bias=bias),
        lambda: kgen_attn.flash_attn_varlen_qkvpacked_func(flat, starts, 9, causal=True, deterministic=True, attn_bias=bias).unflatten(0, (2, 9)),
        lambda: kgen_attn.flash_attn_varlen_kvpacked_func(
            flat[:, 0], flat[:, 1:], starts, starts, 9, 9, causal=True, deterministic=True, attn_bias=bias
        ).unflatten(0, (2, 9)),
    ]
    results = [(out := call(), *torch.autograd.grad(out, (qkv, bias), dout)) for call in calls]
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, results[0]))


@pytest.mark.parametrize("kind", ["dense", "left padded", "slots", "pages"])
def test_caches(draw, device, kind):
    integers = lambda *values: torch.tensor(values, dtype=torch.int32, device=device)
    q, bias = draw(2, 3, 4, 64), hidden(draw(2, 4, 3, 32, dtype=torch.float32))
    caches = [draw(4, 16 if kind == "pages" else 32, 2, 64) for _ in range(2)]
    used, left, order, options = [20, 7], [0, 0], [0, 1], {}
    if kind == "left padded":
        left, options = [4, 2], {"cache_leftpad": integers(4, 2)}
    if kind == "slots":
        order, options = [3, 1], {"cache_batch_idx": integers(3, 1)}
    if kind == "pages":
        options = {"block_table": integers([2, 0], [1, 3])}
    for _ in range(2):  # the second time by the first one's plan
        out = flash_attn_with_kvcache(q, *caches, cache_seqlens=integers(*used), attn_bias=bias, **options)
        for b in range(2):
            rows = slice(left[b], used[b])
            keys = [cache[[[2, 0], [1, 3]][b]].flatten(0, 1)[rows] if kind == "pages" else cache[order[b], rows] for cache in caches]
            part = bias[b, :, :, : used[b] - left[b]]
            exact, low = (attention(q[b], *keys, bias=part, dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16))
            assert_close(out[b], exact, low, "O")
        bias = bias.flip(1)  # of the same kind


def test_new_keys_have_a_bias_too(draw, device):
    q, new, cache = draw(2, 2, 4, 64), draw(2, 2, 2, 64), draw(2, 24, 2, 64)
    bias = draw(2, 1, 2, 24, grad=True)
    call = lambda bias: flash_attn_with_kvcache(
        q, cache, cache, new, new, cache_seqlens=torch.tensor([4, 20], dtype=torch.int32, device=device), causal=True, attn_bias=bias
    )
    for _ in range(2):
        with torch.no_grad():
            out = call(bias)
        for b, end in enumerate((6, 22)):
            part = bias.detach()[b, ..., :end]
            exact, low = (attention(q[b], cache[b, :end], cache[b, :end], causal=True, bias=part, dtype=dtype)[0]
                          for dtype in (torch.float64, torch.bfloat16))  # fmt: skip
            assert_close(out[b], exact, low, "O")
    with pytest.raises(NotImplementedError, match="no gradients of `flash_attn_with_kvcache` with new keys"):
        call(bias).float().sum().backward()


def test_padded_head_dims_and_autocast(draw, inputs, device):
    q, k, v = inputs(head_dim=60)
    compare(q, k, v, draw(2, 4, 20, 37))
    wide = [t.float() for t in inputs(head_dim=64)]
    bias = draw(1, 1, 20, 37, dtype=torch.float16, grad=True)
    with torch.autocast(device, torch.bfloat16):
        out = flash_attn_func(*wide, attn_bias=bias)
        (gradient,) = torch.autograd.grad(out.float().sum(), bias)
    assert gradient.dtype == torch.float16
    assert torch.equal(out, flash_attn_func(*(t.bfloat16() for t in wide), attn_bias=bias.bfloat16()))
    with torch.autocast(device, torch.bfloat16):
        assert torch.equal(flash_attn_func(*wide, attn_bias=bias.float()), flash_attn_func(*wide, attn_bias=bias.float()))


def test_a_call_that_differs_in_its_bias(draw, inputs, device):
    """No call uses the plan of a different one."""
    q, k, v = inputs()
    whole = draw(2, 4, 20, 37)
    apart = whole.transpose(2, 3).contiguous().transpose(2, 3)
    given = [whole, whole[:1], whole.float(), whole[:, :, :1], apart, whole > 0, whole + 1, whole[:, :1]]
    exact = [batch(q, k, v, bias=t.double().log() if t.dtype == torch.bool else t, dtype=torch.float64)[0] for t in given]
    for _ in range(2):
        for bias, expected in zip(given, exact):
            assert torch.allclose(flash_attn_func(q, k, v, attn_bias=bias).double(), expected, atol=3e-2)
    packed, starts = [t[0] for t in (q, k, v)], [torch.tensor([0, n], dtype=torch.int32, device=device) for n in (20, 37)]
    interface._packed.clear()
    for _ in range(2):
        for bias in (whole[:1], whole[1:], whole[:1, :1], whole[0], whole[:1] > 0):
            out = flash_attn_varlen_func(*packed, *starts, 20, 37, attn_bias=bias)
            assert torch.equal(out, flash_attn_func(*(t[None] for t in packed), attn_bias=bias)[0])
    assert len(interface._packed) == 2, "of four axes and no bool"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_calls_compile_without_graph_breaks(draw, backend, dynamic):
    torch._dynamo.reset()

    def model(q, k, v, table, mask):
        bias = table[:, None, None] * torch.ones(q.shape[1], k.shape[1], device=q.device)
        first = flash_attn_func(q, k, v, attn_bias=bias, causal=True)
        return flash_attn_func(first, k, v, attn_bias=mask).float().sin()

    compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (8, 12):
        leaves = [draw(2, rows, 2, 64, grad=True) for _ in range(3)] + [torch.randn(2, device=draw(1).device).requires_grad_()]
        mask = torch.rand(2, 1, rows, rows, device=draw(1).device) < 0.7
        found, expected = compiled(*leaves, mask), model(*leaves, mask)
        assert torch.equal(found, expected)
        for a, b in zip(*(torch.autograd.grad(out, leaves, torch.ones_like(out)) for out in (found, expected))):
            assert torch.allclose(a, b, atol=2e-2)


def test_the_operators_pass_torchs_checks(draw, inputs, device):
    q, k, v = inputs(grad=True)
    bias = draw(2, 1, 20, 37, dtype=torch.float32, grad=True)
    numbers = (0, 0, 0.125, False, -1, -1, 0, 0.0)
    torch.library.opcheck(torch.ops.kgen_attn.forward.default, (q, k, v, *[None] * 13, bias, *numbers, 0, False))
    out, dout = draw(*q.shape), draw(*q.shape)
    given = (dout, *(t.detach() for t in (q, k, v)), out, torch.randn(2, 4, 20, device=device), *[None] * 7, bias.detach(), *numbers)
    for with_dbias in (False, True):
        torch.library.opcheck(torch.ops.kgen_attn.backward.default, (*given, False, with_dbias))


def test_derivatives_of_the_second_order_and_transforms_are_refused(draw, inputs):
    q, k, v = inputs()
    bias = draw(2, 4, 20, 37, grad=True)
    compiled = torch.compile(flash_attn_func, backend="eager", fullgraph=True)
    torch._dynamo.reset()
    for function in (flash_attn_func, compiled):
        (first,) = torch.autograd.grad(function(q, k, v, attn_bias=bias).float().sum(), bias, create_graph=True)
        with pytest.raises(NotImplementedError, match="no second derivatives"):
            first.float().square().sum().backward()
    call = lambda bias: flash_attn_func(q, k, v, attn_bias=bias)
    with pytest.raises(NotImplementedError, match="`attn_bias` is inside of `torch.func`"):
        torch.func.grad(lambda bias: call(bias).float().sum())(bias.detach())
    with pytest.raises(NotImplementedError, match="`attn_bias` is batched, by `torch.func.vmap`"):
        torch.func.vmap(call)(bias.detach()[None])
    with forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="`attn_bias` has a tangent"):
            call(forward_ad.make_dual(bias.detach(), bias.detach()))
    with pytest.raises(NotImplementedError, match="`s_aux` or `attn_bias` requires grad inside of a transform"):
        torch.func.grad(lambda x: (call(bias) * x).float().sum())(q)


def test_only_what_is_wanted_has_a_gradient(draw, inputs):
    q, k, v = inputs()
    bias = draw(2, 4, 20, 37)
    assert not flash_attn_func(q, k, v, attn_bias=bias).requires_grad
    q.requires_grad_()
    (gradient,) = torch.autograd.grad(flash_attn_func(q, k, v, attn_bias=bias[:1], deterministic=True).float().sum(), q)
    assert gradient.isfinite().all()
    with torch.no_grad():
        assert not flash_attn_func(q, k, v, attn_bias=bias.requires_grad_(), deterministic=True).requires_grad


def test_deterministic_gradients_are_the_same_bits(draw, inputs):
    q, k, v = inputs(rows=40, keys=140, grad=True)
    bias, dout = draw(2, 4, 40, 140, grad=True), draw(2, 40, 4, 64)
    run = lambda: torch.autograd.grad(flash_attn_func(q, k, v, attn_bias=bias, deterministic=True), (q, k, v, bias), dout)
    assert all(torch.equal(a, b) for a, b in zip(run(), run()))


@pytest.mark.parametrize("axis, words", [(0, "one batch entry for 2"), (1, "one head for 4"), (2, "one row for 20")])
def test_a_deterministic_sum_is_refused(draw, inputs, axis, words):
    q, k, v = inputs()
    bias = draw(2, 4, 20, 37).narrow(axis, 0, 1)
    flash_attn_func(q, k, v, attn_bias=bias, deterministic=True)  # without the gradient of the bias
    with pytest.raises(NotImplementedError, match=f"`attn_bias` has {words} and requires grad, and `deterministic` is True.*expand"):
        flash_attn_func(q, k, v, attn_bias=bias.requires_grad_(), deterministic=True)
    one = draw(1, 1, 1, 64)  # nothing is summed
    flash_attn_func(one, one, one, attn_bias=draw(1, 1, 1, 1, grad=True), deterministic=True).float().sum().backward()


def test_what_is_wrong_is_named_whatever_was_called_before(draw, inputs, device):
    q, k, v = inputs()
    whole = draw(2, 4, 20, 37)
    flash_attn_func(q, k, v, attn_bias=whole)
    starts = torch.tensor([0, 20], dtype=torch.int32, device=device)
    call = lambda bias, **options: flash_attn_func(q, k, v, attn_bias=bias, **options)
    packed = lambda bias: flash_attn_varlen_func(q[0], k[0, :20], v[0, :20], starts, starts, 20, 20, attn_bias=bias)
    wrong = [
        (TypeError, "`attn_bias` is 0.5, of type float", lambda: call(0.5)),
        (TypeError, "`attn_bias` is of type list", lambda: call([[0.5]])),
        (TypeError, "`attn_bias` is torch.sparse_coo", lambda: call(whole.to_sparse())),
        (TypeError, "`attn_bias` is nested", lambda: call(torch.nested.nested_tensor([whole[0], whole[0]]))),
        (ValueError, r"`attn_bias` has shape \(37,\); it must have 2 to 4 axes", lambda: call(whole[0, 0, 0])),
        (ValueError, r"`attn_bias` has shape \(1, 2, 4, 20, 37\); it must have 2 to 4", lambda: call(whole[None])),
        (ValueError, r"`attn_bias` has shape \(2, 4, 20, 36\); here .* are \(2 or 1, 4 or 1, 20 or 1, 37 or 1\)", lambda: call(whole[..., :36])),
        (ValueError, r"`attn_bias` has shape \(2, 4, 19, 37\)", lambda: call(whole[:, :, :19])),
        (ValueError, r"`attn_bias` has shape \(2, 2, 20, 37\)", lambda: call(whole[:, :2])),
        (ValueError, r"`attn_bias` has shape \(3, 4, 20, 37\)", lambda: call(whole[:1].expand(3, 4, 20, 37))),
        (ValueError, r"`attn_bias` has shape \(3, 1, 1, 37\)", lambda: call((whole[:1, :1, :1] > 0).expand(3, 1, 1, 37))),
        (ValueError, r"`attn_bias` has shape \(2, 4, 37, 20\)", lambda: call(whole.transpose(2, 3))),
        (TypeError, "`attn_bias` is torch.float64; it must be torch.float32, torch.bfloat16", lambda: call(whole.double())),
        (TypeError, "`attn_bias` is torch.float16; it must be", lambda: call(whole.half())),
        (TypeError, "`attn_bias` is torch.int64; it must be", lambda: call((whole > 0).long())),
        (ValueError, "`attn_bias` is on `meta`", lambda: call(whole.to("meta"))),
        (ValueError, "`attn_bias` is on `meta`", lambda: call((whole > 0).to("meta"))),
        (ValueError, "`attn_bias` is a negated view", lambda: call(torch._neg_view(whole))),
        (ValueError, r"`attn_bias` has shape \(2, 4, 20, 20\); here", lambda: packed(draw(2, 4, 20, 20))),
        (ValueError, r"`attn_bias` has shape \(1, 1, 1, 21\); here", lambda: packed(draw(1, 21))),
        (ValueError, r"`attn_bias` has shape \(1, 1, 1, 36\); here", lambda: flash_attn_with_kvcache(q, k, v, cache_seqlens=9, attn_bias=draw(1, 36))),
        (NotImplementedError, "`attn_bias` requires grad, and kgen has no gradients of a bias beside `softcap`, which is 2.0",
         lambda: call(whole.clone().requires_grad_(), softcap=2.0)),
    ]  # fmt: skip
    for error, words, function in wrong:
        with pytest.raises(error, match=words):
            function()


def test_no_gradients_beside_softcap(draw, inputs, device):
    """Raises when it is differentiated: decoding without `torch.no_grad` is not training."""
    q, k, v = inputs(grad=True)
    bias, slopes = draw(1, 4, 20, 37), torch.rand(4, device=device)
    with torch.no_grad():
        out = flash_attn_func(q, k, v, attn_bias=bias, softcap=3.0)
    again = flash_attn_func(q, k, v, attn_bias=bias, softcap=3.0)
    assert torch.equal(again, out)
    with pytest.raises(NotImplementedError, match="no gradients with `softcap`, `attn_bias`"):
        again.float().sum().backward()


def test_a_missing_kernel_is_told_with_the_command_that_makes_it(draw, monkeypatch):
    monkeypatch.delenv("KGEN_JIT", raising=False)
    q = draw(1, 4, 1, 32)
    with pytest.raises(kgen_attn.MissingKernel) as caught:
        flash_attn_func(q, q, q, attn_bias=draw(4, 4))
    assert "--features bias" in caught.value.command
