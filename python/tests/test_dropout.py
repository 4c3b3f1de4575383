"""Dropout: its mask, values and gradients with it, the state of its random numbers, and refusals."""

import math
import random

import numpy
import pytest
import torch
from reference import assert_close, attention, batch
from torch.utils.checkpoint import checkpoint

import kgen_attn
from kgen_attn import dropout, dropout_mask, flash_attn_func, flash_attn_varlen_func, scaled_dot_product_attention

KERNELS = [(torch.bfloat16, False), (torch.bfloat16, True), (torch.float16, False), (torch.float16, True)]


@pytest.fixture
def state(device):
    """Draws a state with any 64 bits."""
    return lambda: torch.tensor([random.getrandbits(64) - 2**63 for _ in range(2)], device=device)


@pytest.fixture(autouse=True)
def _seed_of_states():
    random.seed(1)


@pytest.fixture
def inputs(draw):
    """Q, K and V of a batch of two: 70 rows of 4 heads, 101 keys of 2. Both lengths end within a block of 32."""

    def inputs(dtype=torch.bfloat16, rows=70, keys=101, grad=False, heads=4, head_dim=32):
        shapes = (2, rows, heads, head_dim), (2, keys, 2, head_dim), (2, keys, 2, head_dim)
        return [draw(*shape, dtype=dtype, grad=grad) for shape in shapes]

    return inputs


def philox(counter, key):
    """Philox4x32 of 7 rounds with Python's integers."""
    counter, key = list(counter), list(key)
    for _ in range(7):
        first, second = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [second >> 32 ^ counter[1] ^ key[0], second % 2**32, first >> 32 ^ counter[3] ^ key[1], first % 2**32]
        key = [(word + step) % 2**32 for word, step in zip(key, (0x9E3779B9, 0xBB67AE85))]
    return counter


#: Of Random123 (kat_vectors, philox4x32 with 7 rounds): counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "5f6fb709 0d893f64 4f121f81 4f730a48"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "5207ddc2 45165e59 4d8ee751 8c52f662"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "4dfccaba 190a87f0 c47362ba b6b5242a"),
]


@pytest.mark.parametrize("counter, key, result", KNOWN)
def test_known_answers_of_philox(device, counter, key, result):
    counter, key, result = ([int(word, 16) for word in words.split()] for words in (counter, key, result))
    of = lambda words: tuple(torch.tensor(word, device=device) for word in words)
    assert [word.item() for word in dropout.philox(of(counter), of(key))] == result
    assert philox(counter, key) == result


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.17, 0.5, 0.999])
def test_the_mask_is_the_documented_one(state, p):
    given = state()
    found = dropout_mask(given, p, 2, 3, 70, 101)
    assert found.shape == (2, 3, 70, 101) and found.dtype == torch.bool and found.device == given.device
    seed, offset = (word % 2**64 for word in given.tolist())
    most = math.floor(float(numpy.float32(1) - numpy.float32(p)) * 255.0)
    for _ in range(300):
        b, h, i, j = (random.randrange(size) for size in found.shape)
        counter = i // 32 * 8 + i % 8, j // 32 * 8 + j % 8, b * 3 + h, offset % 2**32
        words = philox(counter, (seed % 2**32, seed >> 32))
        byte = words[i % 32 // 8] >> 8 * (j % 32 // 8) & 0xFF
        assert found[b, h, i, j].item() == (byte <= most), (b, h, i, j)


def test_a_mask_begins_with_that_of_shorter_sequences(state):
    given = state()
    long = dropout_mask(given, 0.3, 2, 2, 130, 97)
    for rows, keys in ((1, 1), (31, 33), (0, 5), (7, 0), (130, 64)):
        assert torch.equal(dropout_mask(given, 0.3, 2, 2, rows, keys), long[:, :, :rows, :keys])


@pytest.mark.parametrize("p", [0.1, 0.17, 0.5, 0.9])
def test_as_many_weights_are_kept_as_bytes_allow(state, p):
    kept = dropout_mask(state(), p, 4, 4, 256, 256).double()
    part = (math.floor((1 - p) * 255) + 1) / 256
    assert abs(part - (1 - p)) <= 1 / 256
    deviation = (part * (1 - part) / kept.numel()) ** 0.5
    assert abs(kept.mean().item() - part) <= 5 * deviation
    for axis in range(4):  # no head, row or column differs from the others
        means = kept.mean(dim=[other for other in range(4) if other != axis])
        assert (means - part).abs().max().item() <= 5 * deviation * kept.shape[axis] ** 0.5


def compare(q, k, v, p, rng_state, bias=None, sinks=None, **options):
    """Compares O, LSE and the gradients of a random loss of both with a reference with the same mask."""
    others = {"attn_bias": bias, "s_aux": sinks}
    names = [name for name, tensor in others.items() if tensor is not None]
    leaves = [t.detach().requires_grad_() for t in (q, k, v, *(others[name] for name in names))]
    given = dict(zip(names, leaves[3:]))
    out, lse, _ = flash_attn_func(*leaves[:3], p, rng_state=rng_state, return_attn_probs=True, **given, **options)
    dout, dlse = torch.randn(out.shape).to(out), torch.randn(lse.shape).to(lse)
    finite = ~torch.isinf(lse.detach())
    dlse = dlse.masked_fill(~finite, 0.0)
    found = torch.autograd.grad((out, lse), leaves, (dout, dlse))
    words = {"window_size": "window", "alibi_slopes": "slopes"}
    masks = {words.get(name, name): value for name, value in options.items()}
    kept = dropout_mask(rng_state, p, q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    expected = []
    for dtype in (torch.float64, q.dtype):
        apart = [t.detach().to(dtype).requires_grad_() for t in leaves]
        own = dict(zip(("bias" if name == "attn_bias" else "sinks" for name in names), apart[3:]))
        o, row_lse = batch(*apart[:3], kept=kept, p=p, dtype=dtype, **own, **masks)
        loss = (o * dout.to(o)).sum() + (row_lse.masked_fill(~finite, 0.0) * dlse.to(row_lse)).sum()
        expected.append([o, row_lse, *torch.autograd.grad(loss, apart)])
    for name, one, exact, low in zip(("O", "LSE", "dQ", "dK", "dV", *names), (out, lse, *found), *expected):
        assert_close(one.detach(), exact, low, name)
    return out


@pytest.mark.parametrize("p", [0.02, 0.17, 0.5, 0.9])
@pytest.mark.parametrize("dtype, causal", KERNELS)
def test_values_and_gradients(inputs, state, dtype, causal, p):
    compare(*inputs(dtype), p, state(), causal=causal)


@pytest.mark.parametrize("lengths", [(1, 1), (1, 70), (70, 20), (130, 3), (33, 260)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_lengths(inputs, state, lengths, causal):
    compare(*inputs(rows=lengths[0], keys=lengths[1]), 0.3, state(), causal=causal)


def test_windows_slopes_and_sinks(inputs, state, device):
    slopes, sinks = torch.rand(2, 4, device=device), torch.randn(4, device=device)
    compare(*inputs(), 0.17, state(), window_size=(20, 7))
    compare(*inputs(), 0.17, state(), alibi_slopes=slopes)
    compare(*inputs(), 0.17, state(), window_size=(9, 0), alibi_slopes=slopes, sinks=sinks)
    compare(*inputs(), 0.17, state(), sinks=sinks)


def test_a_bias(inputs, state, draw):
    compare(*inputs(head_dim=64), 0.17, state(), bias=draw(2, 4, 70, 101, dtype=torch.float32))


def test_padded_head_dims(inputs, state):
    compare(*inputs(head_dim=29), 0.25, state(), causal=True)


LENGTHS = [(0, 0), (5, 40), (35, 0), (0, 12), (70, 70)]


def starts(device):
    """`cu_seqlens` of the queries and of the keys of `LENGTHS`."""
    return [torch.tensor([0, *numpy.cumsum(of)], dtype=torch.int32, device=device) for of in zip(*LENGTHS)]


def test_packed_sequences(draw, state, device):
    """Unequal lengths, including empty sequences; the mask of each is counted from its own first query and key."""
    (rows, keys), (cu_q, cu_k) = zip(*LENGTHS), starts(device)
    given, p = state(), 0.3
    leaves = [draw(cu[-1].item(), heads, 32, grad=True) for cu, heads in ((cu_q, 4), (cu_k, 2), (cu_k, 2))]
    options = {"causal": True, "rng_state": given, "return_attn_probs": True}
    out, lse, _ = flash_attn_varlen_func(*leaves, cu_q, cu_k, 70, 71, p, **options)
    dout = draw(*out.shape)
    found = torch.autograd.grad(out, leaves, dout)
    mask = dropout_mask(given, p, len(rows), 4, 70, 71)
    expected = []
    for dtype in (torch.float64, torch.bfloat16):
        apart = [t.detach().to(dtype).requires_grad_() for t in leaves]
        parts = [torch.split(t, lengths) for t, lengths in zip(apart, (rows, keys, keys))]
        kept = [mask[b, :, :i, :j] for b, (i, j) in enumerate(LENGTHS)]
        results = [attention(*own[:3], causal=True, kept=own[3], p=p, dtype=dtype) for own in zip(*parts, kept)]
        o, row_lse = torch.cat([o for o, _ in results]), torch.cat([row_lse for _, row_lse in results], dim=1)
        expected.append([o, row_lse, *torch.autograd.grad(o, apart, dout.to(dtype))])
    for name, one, exact, low in zip(("O", "LSE", "dQ", "dK", "dV"), (out, lse, *found), *expected):
        assert_close(one.detach(), exact, low, name)


def test_used_lengths(inputs, state, device):
    q, k, v = inputs()
    used_q, used_k = (torch.tensor(lengths, dtype=torch.int32, device=device) for lengths in ((33, 70), (90, 8)))
    given = state()
    out = flash_attn_func(q, k, v, 0.3, seqused_q=used_q, seqused_k=used_k, rng_state=given)
    mask = dropout_mask(given, 0.3, 2, 4, 70, 101)
    for b, (i, j) in enumerate(((33, 90), (70, 8))):
        given = q[b, :i], k[b, :j], v[b, :j]
        kept = mask[b, :, :i, :j]
        exact, low = (attention(*given, kept=kept, p=0.3, dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16))
        assert_close(out[b, :i], exact, low, f"O of {b}")


def test_no_dropout_is_the_call_without_it(inputs, state):
    q, k, v = inputs(grad=True)
    torch.manual_seed(3)
    expected = flash_attn_func(q, k, v, deterministic=True)
    dout = torch.randn_like(expected)
    before = torch.get_rng_state()
    wanted = torch.autograd.grad(expected, (q, k, v), dout)
    for given in ({"dropout_p": 0.0}, {"dropout_p": 0}, {"dropout_p": torch.tensor(0.0)}, {"rng_state": state()}):
        out, _, weights = flash_attn_func(q, k, v, **given, deterministic=True, return_attn_probs=True)
        assert torch.equal(out, expected) and weights.numel() == 0
        assert all(torch.equal(a, b) for a, b in zip(torch.autograd.grad(out, (q, k, v), dout), wanted))
    assert torch.equal(torch.get_rng_state(), before), "random numbers were drawn"


@pytest.mark.parametrize("packed", [False, True])
def test_the_generator_determines_what_is_dropped(inputs, packed, device):
    q, k, v = inputs(rows=33, keys=33)
    cu = torch.tensor([0, 33, 66], dtype=torch.int32, device=device)
    given = [t.flatten(0, 1) for t in (q, k, v)] + [cu, cu, 33, 33] if packed else [q, k, v]
    run = lambda **options: (flash_attn_varlen_func if packed else flash_attn_func)(*given, 0.3, **options)
    torch.manual_seed(5)
    first, second = run(), run()
    torch.manual_seed(5)
    drawn = torch.randint(2**63 - 1, (2,), device=device)
    torch.manual_seed(5)
    assert torch.equal(run(), first) and torch.equal(run(), second) and not torch.equal(first, second)
    after = lambda seed, offset: run(rng_state=drawn + torch.tensor([seed, offset], device=device))
    assert torch.equal(after(0, 0), first) and torch.equal(after(0, 0), first)
    assert torch.equal(after(0, 2**32), first), "of the offset 32 bits count"
    assert not any(torch.equal(after(*more), first) for more in ((1, 0), (2**32, 0), (0, 1)))


def test_a_repeated_call_drops_other_weights(inputs):
    """Calls without gradients and with equal arguments reuse a plan."""
    q, k, v = inputs()
    plain = flash_attn_func(q, k, v)
    outs = [flash_attn_func(q, k, v, 0.3) for _ in range(3)]
    assert not any(torch.equal(a, b) for a, b in ((outs[0], outs[1]), (outs[1], outs[2]), (outs[0], plain)))
    assert torch.equal(flash_attn_func(q, k, v), plain)
    assert not torch.equal(flash_attn_func(q, k, v, 0.1), flash_attn_func(q, k, v, 0.3))


def test_the_backward_pass_has_the_mask_of_the_forward_pass(inputs, state):
    """The masks of both calls, even if numbers were drawn or tensors overwritten since."""
    q, k, v = inputs(grad=True)
    dout = torch.randn_like(q)
    given, run = state(), lambda p, rng: flash_attn_func(q, k, v, p, rng_state=rng, deterministic=True)
    expected = [torch.autograd.grad(run(p, given), (q, k, v), dout) for p in (0.2, 0.6)]
    outs = [run(p, given) for p in (0.2, 0.6)]
    flash_attn_func(q, k, v, 0.4)
    for out, wanted in zip(outs, expected):
        assert all(torch.equal(a, b) for a, b in zip(torch.autograd.grad(out, (q, k, v), dout), wanted))
    out = run(0.2, given)
    given += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out, (q, k, v), dout)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_repeats_the_mask(inputs, use_reentrant):
    q, k, v = inputs(grad=True)
    dout = torch.randn_like(q)
    layer = lambda q, k, v: flash_attn_func(q * 1.5, k, v, 0.3, causal=True, deterministic=True)

    def run(layer):
        torch.manual_seed(9)
        for leaf in (q, k, v):
            leaf.grad = None
        out = layer(q, k, v)
        torch.rand(5, device=q.device)  # other code draws numbers before the backward pass
        out.backward(dout)
        return out, *(leaf.grad for leaf in (q, k, v))

    expected = run(layer)
    found = run(lambda *leaves: checkpoint(layer, *leaves, use_reentrant=use_reentrant))
    assert all(torch.equal(a, b) for a, b in zip(found, expected))
    forgotten = run(lambda *leaves: checkpoint(layer, *leaves, use_reentrant=use_reentrant, preserve_rng_state=False))
    assert torch.equal(forgotten[0], expected[0]) and not torch.equal(forgotten[1], expected[1])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_it_compiles_without_graph_breaks(inputs, backend, dynamic):
    torch._dynamo.reset()

    def model(q, k, v):
        out, lse, weights = flash_attn_func(q * 1.5, k, v, 0.3, causal=True, deterministic=True, return_attn_probs=True)
        return out.float().sin(), lse, weights

    compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (40, 70):
        given = inputs(rows=rows, grad=True)
        results = []
        for function in (model, compiled):
            torch.manual_seed(rows)
            found = function(*given)
            torch.rand(5)
            results.append((*found, *torch.autograd.grad(found[0], given, torch.ones_like(found[0]))))
        assert all(torch.equal(a, b) for a, b in zip(*results))


def test_a_compiled_checkpoint_repeats_the_mask(inputs):
    torch._dynamo.reset()
    leaves = inputs(grad=True)
    layer = lambda q, k, v: flash_attn_func(q * 1.5, k, v, 0.3, causal=True, deterministic=True)
    model = lambda *leaves: checkpoint(layer, *leaves, use_reentrant=False)
    results = []
    for function in (layer, torch.compile(model, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(9)
        out = function(*leaves)
        torch.rand(5, device=out.device)
        dout = torch.randn_like(out)
        results.append((out, *torch.autograd.grad(out, leaves, dout)))
        # O is linear in V: with the same mask in both passes <O, dO> = <V, dV>.
        o_by_do, v_by_dv = (x.double() * y.double() for x, y in ((out, dout), (leaves[2], results[-1][3])))
        assert abs(o_by_do.sum() - v_by_dv.sum()) < 0.05 * o_by_do.norm()
    # On a GPU, checkpoints under torch.compile have separate random numbers.
    if out.device.type == "cpu":
        assert all(torch.equal(a, b) for a, b in zip(*results))


#: Numbers of the operators, from max_seqlen_q to softcap.
NUMBERS = (0, 0, 0.125, True, -1, -1, 0, 0.0)


def test_operators_pass_torchs_checks(inputs, state):
    q, k, v = inputs(rows=9, keys=9, heads=2, grad=True)
    out, lse, _ = flash_attn_func(q, k, v, return_attn_probs=True)
    torch.library.opcheck(torch.ops.kgen_attn.forward.default, (q, k, v, *[None] * 14, *NUMBERS, 0, True, state(), 0.3))
    tensors = [t.detach() for t in (torch.randn_like(out), q, k, v, out, lse)]
    given = *tensors, *[None] * 8, *NUMBERS, True, False, state(), 0.3
    torch.library.opcheck(torch.ops.kgen_attn.backward.default, given)


def softmax(q, k, causal):
    k = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
    scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) * q.shape[3] ** -0.5
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(k.shape[1] - q.shape[1]), -math.inf)
    return scores.softmax(-1)


@pytest.mark.parametrize("causal", [False, True])
def test_return_attn_probs_gives_the_weights_and_the_mask(inputs, state, causal):
    """FlashAttention's own tests read S_dmask in this way: the sign is the mask, the magnitude exp(score - largest
    score)."""
    q, k, v = inputs()
    given, p = state(), 0.3
    out, lse, signed = flash_attn_func(q, k, v, p, causal=causal, rng_state=given, return_attn_probs=True)
    assert signed.shape == (2, 4, 128, 128) and signed.dtype == q.dtype
    assert signed[:, :, 70:].abs().max() == 0 and signed[..., 101:].abs().max() == 0
    signed = signed[:, :, :70, :101]
    kept = dropout_mask(given, p, 2, 4, 70, 101)
    assert torch.equal(signed.signbit(), ~kept)
    weights = softmax(q, k, causal)
    assert (signed.abs().double() - weights / weights.amax(-1, keepdim=True)).abs().max() <= 2**-8
    v = v.double().repeat_interleave(2, 2)
    exact = torch.einsum("bhij,bjhd->bihd", weights.masked_fill(signed < 0, 0.0) / (1 - p), v)
    assert (out.double() - exact).abs().max() <= 0.05


def test_the_weights_of_packed_sequences(draw, state, device):
    cu_q, cu_k = starts(device)
    q, k, given, p = draw(cu_q[-1].item(), 4, 32), draw(cu_k[-1].item(), 2, 32), state(), 0.3
    _, _, signed = flash_attn_varlen_func(q, k, k, cu_q, cu_k, 70, 150, p, rng_state=given, return_attn_probs=True)
    assert signed.shape == (5, 4, 128, 256)
    kept = dropout_mask(given, p, 5, 4, 128, 256)
    for b, (i, j) in enumerate(LENGTHS):
        hidden = torch.ones(128, 256, dtype=torch.bool, device=device)
        hidden[:i, :j] = False
        assert signed[b, :, hidden].abs().sum() == 0
        if i and j:
            weights = softmax(q[None, cu_q[b] : cu_q[b + 1]], k[None, cu_k[b] : cu_k[b + 1]], False)[0]
            found = signed[b, :, :i, :j]
            assert torch.equal(found.signbit(), ~kept[b, :, :i, :j])
            assert (found.abs().double() - weights / weights.amax(-1, keepdim=True)).abs().max() <= 2**-8


def test_the_weights_under_autocast(inputs, state, device):
    q, k, v = (t.float() for t in inputs())
    given = state()
    with torch.autocast(device, torch.bfloat16):
        found = flash_attn_func(q, k, v, 0.3, rng_state=given, return_attn_probs=True)
    cast = (t.bfloat16() for t in (q, k, v))
    expected = flash_attn_func(*cast, 0.3, rng_state=given, return_attn_probs=True)
    assert all(torch.equal(a, b) for a, b in zip(found, expected))


def test_the_weights_of_every_other_argument(inputs, state, device, draw):
    """O is the sum of the values times the kept weights, divided by the sum of all weights."""
    used = torch.tensor([101, 60], dtype=torch.int32, device=device)
    slopes = torch.rand(4, device=device)
    bias = draw(1, 4, 70, 101).masked_fill(torch.rand(1, 4, 70, 101, device=device) < 0.2, -math.inf)
    bias[:, 1, 3] = -math.inf
    calls = [{"window_size": (20, 7)}, {"alibi_slopes": slopes}, {"seqused_k": used}]
    calls += [{"window_size": (9, 0), "seqused_k": used}, {"attn_bias": bias}]
    for options in calls:
        q, k, v = inputs(head_dim=64 if "attn_bias" in options else 32)
        out, _, signed = flash_attn_func(q, k, v, 0.3, rng_state=state(), return_attn_probs=True, **options)
        signed = signed.double()[:, :, :70, :101]
        kept = signed.clamp(min=0.0) / signed.abs().sum(-1, keepdim=True).clamp(min=1e-9)
        exact = torch.einsum("bhij,bjhd->bihd", kept / 0.7, v.double().repeat_interleave(2, 2))
        assert (out.double() - exact).abs().max() <= 0.05, options
    assert signed[:, 1, 3].abs().max() == 0


def test_the_packed_functions_and_pytorchs(draw, device):
    qkv = draw(2, 33, 3, 2, 32)
    q, k, v = qkv.unbind(2)
    cu = torch.tensor([0, 33, 66], dtype=torch.int32, device=device)
    flat = qkv.flatten(0, 1)
    first = [t.transpose(1, 2) for t in (q, k, v)]
    calls = [
        lambda: flash_attn_func(q, k, v, 0.3, causal=True),
        lambda: kgen_attn.flash_attn_qkvpacked_func(qkv, 0.3, causal=True),
        lambda: kgen_attn.flash_attn_kvpacked_func(q, qkv[:, :, 1:], 0.3, causal=True),
        lambda: flash_attn_varlen_func(*flat.unbind(1), cu, cu, 33, 33, 0.3, causal=True),
        lambda: kgen_attn.flash_attn_varlen_qkvpacked_func(flat, cu, 33, 0.3, causal=True),
        lambda: kgen_attn.flash_attn_varlen_kvpacked_func(flat[:, 0], flat[:, 1:], cu, cu, 33, 33, 0.3, causal=True),
        lambda: scaled_dot_product_attention(*first, dropout_p=0.3, is_causal=True).transpose(1, 2),
    ]
    outs = []
    for call in calls:
        torch.manual_seed(4)
        outs.append(call().reshape(2, 33, 2, 32))
    assert all(torch.equal(out, outs[0]) for out in outs)
    assert not torch.equal(outs[0], flash_attn_func(q, k, v, causal=True))


def test_what_is_wrong_is_named(draw, inputs, state, device):
    q, k, v = inputs()
    integers = lambda *values: torch.tensor(values, dtype=torch.int32, device=device)
    cu, used, table, pages = integers(0, 3), integers(5), integers(0)[None], draw(2, 16, 2, 32)
    eights = [t.to(torch.float8_e4m3fn) for t in (q, k, v)]
    call = lambda p=0.1, tensors=(q, k, v), **options: flash_attn_func(*tensors, p, **options)
    options = {"block_table": table, "seqused_k": used}
    paged = lambda p: flash_attn_varlen_func(draw(3, 4, 32), pages, pages, cu, None, 3, 5, p, **options)
    zeros = lambda count: torch.zeros(count, dtype=torch.int64, device=device)
    operator = lambda *given: torch.ops.kgen_attn.forward(q, k, v, *[None] * 14, *NUMBERS, 0, False, *given)
    numbers = "it must be 0 or more, and less than 1 in 32 bits"
    wrong = [
        (ValueError, f"`dropout_p` is 1.0; {numbers}", lambda: call(1.0)),
        (ValueError, f"`dropout_p` is 0.99999999; {numbers}", lambda: call(0.99999999)),
        (ValueError, f"`dropout_p` is -0.1; {numbers}", lambda: call(-0.1)),
        (ValueError, f"`dropout_p` is nan; {numbers}", lambda: call(math.nan)),
        (TypeError, "`dropout_p` is 'x'", lambda: call("x")),
        (NotImplementedError, "`dropout_p` requires grad", lambda: call(torch.tensor(0.1, requires_grad=True))),
        (NotImplementedError, "`dropout_p` is 0.1 and `softcap` is 2.0", lambda: call(softcap=2)),
        (NotImplementedError, "`dropout_p` is 0.1 and `num_splits` is 2", lambda: call(num_splits=2)),
        (NotImplementedError, "`dropout_p` is 0.1 and `block_table` is given", lambda: paged(0.1)),
        (NotImplementedError, "`dropout_p` is 0.1 and `q` is torch.float8_e4m3fn", lambda: call(tensors=eights)),
        (NotImplementedError, "`dropout_p` is 0.1 and .* `k` torch.float8", lambda: call(tensors=(q, *eights[1:]))),
        (TypeError, "`rng_state` is of type int", lambda: call(rng_state=5)),
        (TypeError, "`rng_state` is torch.int32", lambda: call(rng_state=state().int())),
        (ValueError, r"`rng_state` has shape \(3,\)", lambda: call(rng_state=zeros(3))),
        (ValueError, "`rng_state` has shape .* and strides", lambda: call(rng_state=zeros(4)[::2])),
        (ValueError, "`rng_state` is on `meta`", lambda: call(rng_state=state().to("meta"))),
        (ValueError, "`rng_state` is on `meta`", lambda: call(0.0, rng_state=state().to("meta"))),
        (TypeError, "dropout_p", lambda: kgen_attn.flash_attn_with_kvcache(q, k, v, dropout_p=0.1)),
        (ValueError, f"`p` is 1.0; {numbers}", lambda: dropout_mask(state(), 1.0, 1, 1, 2, 2)),
        (TypeError, "`rng_state` is of type list", lambda: dropout_mask([1, 2], 0.1, 1, 1, 2, 2)),
        (ValueError, "`seqlen_q` is -2; it must be 0 or more", lambda: dropout_mask(state(), 0.1, 1, 1, -2, 2)),
        (TypeError, "`heads` is 1.5", lambda: dropout_mask(state(), 0.1, 1, 1.5, 2, 2)),
        (TypeError, "`rng_state` is of type NoneType", lambda: operator(None, 0.1)),
        (TypeError, "`rng_state` is torch.int32", lambda: operator(state().int(), 0.1)),
    ]
    for error, words, function in wrong:
        with pytest.raises(error, match=words):
            function()
    flash_attn_func(q, k, v, 0.1, num_splits=1)


def test_a_missing_kernel_is_told_with_the_command_that_makes_it(draw, monkeypatch):
    monkeypatch.delenv("KGEN_JIT", raising=False)
    q = draw(1, 4, 1, 48)
    with pytest.raises(kgen_attn.MissingKernel) as caught:
        flash_attn_func(q, q, q, 0.1)
    assert "--features dropout" in caught.value.command and "--head-dim 48" in caught.value.command


transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("padded", [False, True])
def test_a_model_of_transformers_in_training(device, monkeypatch, padded):
    """Compares the model with its eager attention under the masks that kgen's calls draw; in evaluation there is no
    dropout."""
    from test_huggingface import HEADS, SMALL, assert_as_good, models_of

    def drop(weights, p=0.5, training=True, inplace=False):
        if not training or p == 0.0:
            return weights
        given = torch.randint(2**63 - 1, (2,), device=weights.device)
        return weights.masked_fill(~dropout_mask(given, p, *weights.shape), 0.0) / (1.0 - p)

    configuration = transformers.LlamaConfig(**SMALL, **HEADS, attention_dropout=0.3)
    models = models_of(lambda **words: transformers.AutoModelForCausalLM.from_config(configuration, **words).to(device))
    tokens, mask = torch.randint(64, (2, 40), device=device), torch.ones(2, 40, dtype=torch.long, device=device)
    if padded:
        mask[0, 35:] = 0
    labels = tokens.masked_fill(mask == 0, -100)
    results = {}
    for mode in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.functional, "dropout", drop)
            for model in models:
                model.train(mode).zero_grad()
                torch.manual_seed(8)
                found = model(tokens, attention_mask=mask, labels=labels)
                found.loss.backward()
                results.setdefault(mode, []).append((found.logits[mask.bool()], *(p.grad for p in model.parameters())))
        names = ["logits", *(name for name, _ in models[0].named_parameters())]
        for name, *tensors in zip(names, *results[mode]):
            assert_as_good(*tensors, name)
    assert not torch.allclose(results[True][0][0], results[False][0][0], atol=0.1)
    logits = models[0](tokens, attention_mask=mask).logits
    assert torch.equal(logits, models[0](tokens, attention_mask=mask).logits)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are captured on a GPU")
def test_a_captured_graph_draws_new_masks(inputs):
    q, k, v = inputs()
    flash_attn_func(q, k, v, 0.3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = flash_attn_func(q, k, v, 0.3)
    replays = []
    for _ in range(2):
        torch.cuda.manual_seed(6)
        for _ in range(2):
            graph.replay()
            replays.append(out.clone())
    assert torch.equal(replays[0], replays[2]) and torch.equal(replays[1], replays[3])
    assert not torch.equal(replays[0], replays[1])
