"""Masks of models that are not bands of keys, masks with four axes and biases by position: computed by kernels with
`bias`, with the results of transformers' eager attention."""

import pytest
import torch
from test_huggingface import SMALL, TIES_SEE_EACH_OTHER, assert_as_good, models_of
from test_masks_of_models import asked, gemma3_with_images, of_positions_alone, prefix

import kgen_attn
from kgen_attn import bands, huggingface

transformers = pytest.importorskip("transformers")
masking = pytest.importorskip("transformers.masking_utils")
HEADS = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=64)  # for which the library has kernels


def of_config(config, device, kind=None):
    kind = kind or transformers.AutoModelForCausalLM
    return [model.to(device) for model in models_of(lambda **words: kind.from_config(config, **words))]


def llama(device, **words):
    return of_config(transformers.LlamaConfig(**SMALL, **HEADS, **words), device)


def mistral(device):
    return of_config(transformers.MistralConfig(**SMALL, **HEADS, sliding_window=4), device)


def any_mask(batch, rows, device):
    return (torch.rand(batch, 1, rows, rows, device=device) < 0.6) | torch.eye(rows, dtype=torch.bool, device=device)


def additive(mask, dtype):
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


@pytest.fixture
def biases(monkeypatch):
    """The biases that calls of attention receive."""
    seen, call = [], huggingface.flash_attn_func

    def watched(*given, **options):
        seen.append(options.get("attn_bias"))
        return call(*given, **options)

    monkeypatch.setattr(huggingface, "flash_attn_func", watched)
    return seen


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_of_four_axes(device, kind, biases):
    three = llama(device)
    tokens, mask = torch.randint(64, (2, 14), device=device), any_mask(2, 14, device)
    given = [mask if kind == "bool" else additive(mask, torch.bfloat16), additive(mask, torch.bfloat16), additive(mask, torch.float32)]
    with torch.no_grad():
        assert_as_good(*(model(tokens, attention_mask=mask).logits for model, mask in zip(three, given)), "logits")
    assert len(biases) == 2 and biases[0] is biases[1], "made once for all layers"


def test_training_with_a_mask_of_four_axes(device):
    three = [model.train() for model in llama(device)]
    tokens, mask = torch.randint(64, (2, 12), device=device), any_mask(2, 12, device)
    for model in three:
        dtype = next(model.parameters()).dtype
        model(tokens, attention_mask=mask if model is three[0] else additive(mask, dtype), labels=tokens).loss.backward()
    for (name, *_), *gradients in zip(three[0].named_parameters(), *([p.grad for p in m.parameters()] for m in three)):
        assert_as_good(*gradients, name)


def test_a_float_mask_has_a_gradient(draw, device):
    module = torch.nn.Module()
    module.config, module.is_causal = object(), True
    q, k, v = (draw(2, 2, 9, 64) for _ in range(3))
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):  # converted to a type that kernels read
        mask = draw(2, 1, 9, 9, dtype=dtype, grad=True)
        out, _ = huggingface.attention(module, q, k, v, mask)
        expected = kgen_attn.flash_attn_func(*(t.transpose(1, 2) for t in (q, k, v)), attn_bias=mask.detach().float())
        assert torch.allclose(out, expected, atol=2e-2) and torch.autograd.grad(out.float().sum(), mask)[0].dtype == dtype


def told(function, device, rows, by_element, padding=None):
    """transformers' own mask."""
    words = dict(batch_size=2, q_length=rows, kv_length=rows, mask_function=function, attention_mask=padding, device=device)
    return masking.sdpa_mask(**words, use_vmap=by_element, allow_is_causal_skip=False)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name, function, by_element", list(of_positions_alone()))
def test_masks_are_those_of_transformers(device, name, function, by_element, padded):
    padding = (torch.arange(30, device=device) >= 7).expand(2, 30) if padded else None
    found = asked(function, device, 30, batch=2, use_vmap=by_element, attention_mask=padding)
    assert found.dtype == torch.bool and torch.equal(found, told(function, device, 30, by_element, padding))


def test_bands_stay_bands(device, biases):
    for three in (llama(device), mistral(device)):
        there = torch.ones(2, 14, dtype=torch.long, device=device)
        there[0, :5] = 0
        with torch.no_grad():
            three[0](torch.randint(64, (2, 14), device=device), attention_mask=there)
            three[0](torch.randint(64, (2, 3), device=device))
    assert not any(bias is not None for bias in biases)


def test_without_a_kernel_for_the_head_dim_the_command_is_told(device, monkeypatch):
    monkeypatch.delenv("KGEN_JIT", raising=False)
    config = transformers.LlamaConfig(**SMALL, num_attention_heads=2, num_key_value_heads=1, head_dim=32)
    kgen = of_config(config, device)[0]
    with torch.no_grad(), pytest.raises(kgen_attn.MissingKernel, match="--features bias"):
        kgen(torch.randint(64, (1, 6), device=device), attention_mask=any_mask(1, 6, device))


def test_padding_between_tokens_with_a_window(device):
    """Windows include it, as in transformers."""
    three = mistral(device)
    there = torch.ones(2, 14, dtype=torch.long, device=device)
    there[0, :3] = there[0, 8] = 0
    tokens = torch.randint(64, (2, 14), device=device)
    with torch.no_grad():
        logits = [model(tokens, attention_mask=there).logits[there.bool()] for model in three]
    assert_as_good(*logits, "logits")


def test_packed_rows_of_a_larger_batch(device):
    kgen, low, exact = llama(device)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 0, 1, 2, 3]], device=device)
    tokens = torch.randint(64, (2, 7), device=device)
    with torch.no_grad():
        logits = [model(tokens, position_ids=positions, use_cache=False).logits for model in (kgen, low, exact)]
        alone = kgen(tokens[1:, 3:], use_cache=False).logits
    assert_as_good(*logits, "logits")
    assert torch.allclose(logits[0][1:, 3:], alone, atol=2e-2)


@pytest.mark.skipif(not TIES_SEE_EACH_OTHER, reason="as of transformers 5.24")
def test_equal_positions_see_each_other(device):
    three = llama(device)
    tokens, positions = torch.randint(64, (1, 9), device=device), torch.tensor([[0, 1, 2, 2, 2, 3, 3, 3, 4]], device=device)
    with torch.no_grad():
        assert_as_good(*(model(tokens, position_ids=positions, use_cache=False).logits for model in three), "logits")


def test_chunked_attention_beyond_its_first_chunk(device):
    config = transformers.Llama4TextConfig(**SMALL, **HEADS, attention_chunk_size=8, num_local_experts=1, num_experts_per_tok=1,
                                           layer_types=["chunked_attention"] * 2, intermediate_size_mlp=64)  # fmt: skip
    three = of_config(config, device)
    tokens, there = torch.randint(64, (2, 21), device=device), torch.ones(2, 21, dtype=torch.long, device=device)
    there[0, :4] = 0
    with torch.no_grad():
        assert_as_good(*(model(tokens, attention_mask=there).logits[there.bool()] for model in three), "logits")


@pytest.mark.parametrize("padded", [False, True])
def test_an_image_of_gemma_3(device, padded):
    three = gemma3_with_images(device, HEADS)
    tokens, kinds = torch.randint(3, 60, (2, 14), device=device), torch.zeros(2, 14, dtype=torch.long, device=device)
    there = torch.ones_like(tokens)
    if padded:
        there[0, :4] = 0
    kinds[1, 5:9] = 1
    with torch.no_grad():
        given = dict(input_ids=tokens, token_type_ids=kinds, attention_mask=there)
        assert_as_good(*(model(**given).logits[there.bool()] for model in three), "logits")


@pytest.mark.parametrize("padded", [False, True])
def test_a_compiled_model_with_an_image(device, padded):
    torch._dynamo.reset()
    bands._own.clear()
    kgen = gemma3_with_images(device, HEADS)[0]
    tokens, kinds = torch.randint(3, 60, (2, 14), device=device), torch.zeros(2, 14, dtype=torch.long, device=device)
    given = dict(input_ids=tokens, token_type_ids=kinds, use_cache=False)
    if padded:
        given["attention_mask"] = torch.ones_like(tokens)
        given["attention_mask"][0, :4] = 0
    model = torch.compile(lambda **given: kgen(**given).logits, fullgraph=True, backend="aot_eager", dynamic=False)
    with torch.no_grad():
        with pytest.raises(Exception, match="call the model once without compiling"):
            model(**given)
        torch._dynamo.reset()
        kgen(**given)  # only text, so the mask is a band
        for image in (False, True):
            kinds[1, 5:9] = int(image)
            expected = kgen(**given).logits
            assert torch.allclose(model(**given), expected, atol=2e-2)


def test_a_mask_that_was_none_once_stays_a_mask_in_compiled_calls(device):
    """Functions with the same configuration and guess; the last one that is inspected may be either."""
    bands._own.clear()
    config = transformers.LlamaConfig(**SMALL, **HEADS)
    band = lambda b, h, q, k: (k <= q) & (q - k < 2**19)
    for function in (prefix(3), band):
        asked(function, device, 9, config=config)
    call = bands.Call(config, 1, 9, 9, 0, 0, None, False)
    (found,) = bands._own.values()
    assert found[0] is None

    def model(x):
        return asked(band, device, 9, config=config) & x

    x = torch.ones(1, 1, 9, 9, dtype=torch.bool, device=device)
    assert torch.equal(torch.compile(model, fullgraph=True, backend="aot_eager")(x), bands.mask_of(band, call, device))


def test_functions_of_numbers_compile(device):
    """Mask functions that are mapped over pairs, such as `or_mask_function`."""
    bands._own.clear()
    config = transformers.LlamaConfig(**SMALL, **HEADS)
    function = masking.or_masks(masking.causal_mask_function, prefix(5))
    expected = asked(function, device, 9, config=config, use_vmap=True)
    torch._dynamo.reset()
    model = torch.compile(lambda x: asked(function, device, 9, config=config, use_vmap=True) & x, fullgraph=True, backend="aot_eager")
    assert torch.equal(model(torch.ones_like(expected)), expected) and not expected.all()


def t5(device):
    config = transformers.T5Config(
        vocab_size=64, d_model=64, d_kv=64, d_ff=64, num_layers=2, num_heads=2, dropout_rate=0.0, relative_attention_num_buckets=8,
        relative_attention_max_distance=16, decoder_start_token_id=0,
    )  # fmt: skip
    three = of_config(config, device, transformers.AutoModelForSeq2SeqLM)
    for model in three:  # T5 does not scale scores: in large ones one bit would change the result
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith(".q.weight"):
                    parameter.mul_(0.125)
    return three


def of_t5(device, padding):
    there = torch.ones(2, 13, dtype=torch.long, device=device)
    if padding is not None:
        there[0, slice(0, 5) if padding == "left" else slice(8, 13)] = 0
    return dict(input_ids=torch.randint(1, 64, (2, 13), device=device), attention_mask=there)


@pytest.mark.parametrize("padding", [None, "left", "right"])
def test_biases_by_position(device, padding):
    """T5 adds such biases."""
    three = t5(device)
    given = of_t5(device, padding) | dict(decoder_input_ids=torch.randint(1, 64, (2, 9), device=device))
    given["decoder_attention_mask"] = torch.ones(2, 9, dtype=torch.long, device=device)
    if padding == "right":
        given["decoder_attention_mask"][1, 6:] = 0
    with torch.no_grad():
        logits = [model(**given).logits[given["decoder_attention_mask"].bool()] for model in three]
    assert_as_good(*logits, "logits")


def test_biases_by_position_are_trained(device):
    three = [model.train() for model in t5(device)]
    given = of_t5(device, "right") | dict(labels=torch.randint(1, 64, (2, 9), device=device))
    for model in three:
        model(**given).loss.backward()
    trained = 0
    for (name, *_), *gradients in zip(three[0].named_parameters(), *([p.grad for p in m.parameters()] for m in three)):
        assert_as_good(*gradients, name)
        trained += "relative_attention_bias" in name and bool((gradients[0] != 0).any())
    assert trained == 2


@pytest.mark.parametrize("implementation", ["dynamic", "static"])
def test_generation_with_biases_by_position(device, implementation):
    kgen, _, exact = t5(device)
    given = of_t5(device, "right")
    words = dict(max_new_tokens=5, min_new_tokens=5, do_sample=False, output_logits=True, return_dict_in_generate=True)
    found, expected = (model.generate(**given, **words, cache_implementation=implementation) for model in (kgen, exact))
    first = [torch.stack(result.logits[:1]) for result in (found, expected)]
    assert torch.allclose(first[0].float(), first[1], atol=0.1)


def test_a_compiled_model_with_biases_by_position(device):
    torch._dynamo.reset()
    kgen = t5(device)[0]
    given = of_t5(device, "right") | dict(decoder_input_ids=torch.randint(1, 64, (2, 9), device=device), use_cache=False)
    with torch.no_grad():
        expected = kgen(**given).logits
        model = torch.compile(lambda **given: kgen(**given).logits, fullgraph=True, backend="aot_eager", dynamic=False)
        assert torch.allclose(model(**given), expected, atol=2e-2)


def test_a_bias_by_position_beside_a_mask_of_four_axes(draw, device):
    module = torch.nn.Module()
    module.config, module.is_causal = object(), True
    q, k, v = (draw(2, 2, 9, 64) for _ in range(3))
    bias, mask = draw(1, 2, 9, 9), any_mask(2, 9, device)
    expected = kgen_attn.flash_attn_func(
        *(t.transpose(1, 2) for t in (q, k, v)), attn_bias=bias.float() + torch.zeros(mask.shape, device=device).masked_fill(~mask, -float("inf"))
    )
    for given in (mask, torch.zeros(mask.shape, device=device).masked_fill(~mask, -float("inf"))):
        out, _ = huggingface.attention(module, q, k, v, given, position_bias=bias)
        assert torch.allclose(out, expected, atol=1e-2)
    out, _ = huggingface.attention(module, q, k, v, None, position_bias=bias)
    assert torch.equal(out, kgen_attn.flash_attn_func(*(t.transpose(1, 2) for t in (q, k, v)), attn_bias=bias, causal=True))
