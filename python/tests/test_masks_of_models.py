"""Masks that models define: computed with the results of transformers' eager attention, or refused with their name by a
library without `bias` kernels. `test_masks_as_bias.py` tests the others."""

import pytest
import torch
from test_huggingface import HEADS, SMALL, assert_as_good, models_of

import kgen_attn
from kgen_attn import bands, huggingface

transformers = pytest.importorskip("transformers")
masking = pytest.importorskip("transformers.masking_utils")
WINDOW = 4


def modernbert():
    config = transformers.ModernBertConfig(
        **SMALL, num_attention_heads=2, local_attention=2 * WINDOW, global_attn_every_n_layers=2, pad_token_id=0, cls_token_id=1,
        sep_token_id=2, bos_token_id=1, eos_token_id=2, reference_compile=False,
    )  # fmt: skip
    return models_of(lambda **words: transformers.AutoModel.from_config(config, **words))


def gemma3(bidirectional):
    config = transformers.Gemma3TextConfig(
        **SMALL, **HEADS, sliding_window=WINDOW, query_pre_attn_scalar=32, use_bidirectional_attention=bidirectional,
        layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    return models_of(lambda **words: transformers.AutoModel.from_config(config, **words))


def t5gemma():
    part = dict(**SMALL, **HEADS, sliding_window=WINDOW, query_pre_attn_scalar=32, attn_logit_softcapping=None,
                layer_types=["sliding_attention", "full_attention"])  # fmt: skip
    config = transformers.T5GemmaConfig(encoder=dict(part), decoder=dict(part), vocab_size=64, dropout_rate=0.0, attention_dropout=0.0)
    models = models_of(lambda **words: transformers.AutoModelForSeq2SeqLM.from_config(config, **words))
    return [model.get_encoder() for model in models]


def t5gemma2():
    from transformers.models.t5gemma2 import modeling_t5gemma2 as source

    config = transformers.T5Gemma2TextConfig(
        **SMALL, **HEADS, sliding_window=WINDOW + 1, query_pre_attn_scalar=32, dropout_rate=0.0,
        layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip

    def make(attn_implementation):
        config._attn_implementation = attn_implementation
        return source.T5Gemma2TextEncoder(config)

    return models_of(make)


ENCODERS = {"modernbert": modernbert, "gemma3": lambda: gemma3(True), "t5gemma": t5gemma, "t5gemma2": t5gemma2}


def prompt(device, batch, rows, padding):
    there = torch.ones(batch, rows, dtype=torch.long, device=device)
    if padding is not None:
        there[0, slice(0, 5) if padding == "left" else slice(rows - 5, rows)] = 0
    return {"input_ids": torch.randint(3, 64, (batch, rows), device=device), "attention_mask": there}


@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ENCODERS)
def test_windows_of_encoders(device, name, batch, padding):
    three = [model.to(device) for model in ENCODERS[name]()]
    given = prompt(device, batch, 17, padding)
    with torch.no_grad():
        states = [model(**given).last_hidden_state[given["attention_mask"].bool()] for model in three]
    assert_as_good(*states, "hidden states")


@pytest.mark.parametrize("padding", [None, "right"])
@pytest.mark.parametrize("name", ENCODERS)
def test_windows_of_compiled_encoders(device, name, padding):
    torch._dynamo.reset()
    kgen = ENCODERS[name]()[0].to(device)
    given = prompt(device, 2, 17, padding)
    there = given["attention_mask"].bool()
    if padding is None:
        given.pop("attention_mask")
    model = torch.compile(lambda **given: kgen(**given).last_hidden_state, fullgraph=True, backend="aot_eager", dynamic=False)
    with torch.no_grad():
        if name in ("gemma3", "t5gemma2"):
            bands._own.clear()
            with pytest.raises(Exception, match="call the model once without compiling"):
                model(**given)
            torch._dynamo.reset()
        expected = kgen(**given).last_hidden_state
        assert torch.allclose(model(**given)[there], expected[there], atol=2e-2)


def test_layers_that_guess_another_window_do_as_the_mask_says(draw, device):
    """T5Gemma's and ModernBERT's layers pass the same number for windows that differ by one key."""
    module = torch.nn.Module()
    module.config, module.is_causal = object(), False
    q, k, v = (draw(1, 1, 20, 32) for _ in range(3))
    told = asked(masking.sliding_window_bidirectional_mask_function(5), device, 20, encoder=True, local_size=5)
    for layers in (5, 6, 7):
        out, _ = huggingface.attention(module, q, k, v, told, sliding_window=layers)
        expected = kgen_attn.flash_attn_func(*(t.transpose(1, 2) for t in (q, k, v)), window_size=(5, 5))
        assert torch.equal(out, expected)


def asked(function, device, rows, encoder=False, batch=1, **words):
    """kgen's mask for a function."""
    from kgen_attn import masks

    if encoder:
        words["allow_is_bidirectional_skip"] = True
    config = words.pop("config", None)
    return masks.mask(batch, rows, rows, device=torch.device(device), mask_function=function, config=config, **words)


def prefix(length):
    return lambda b, h, q, k: (k < length) | (k <= q)


def of_positions_alone():
    yield "prefix", prefix(3), False
    yield "prefix", prefix(900), False
    yield "dilated", lambda b, h, q, k: (k <= q) & ((q - k) % 2 == 0), False
    yield "chunks", lambda b, h, q, k: (k <= q) & (q // 100 == k // 100), False
    yield "sinks", lambda b, h, q, k: (k <= q) & ((q - k < 8) | (k < 4)), False
    yield "or", masking.or_masks(masking.causal_mask_function, prefix(5)), True


@pytest.mark.parametrize("name, function, by_element", list(of_positions_alone()))
def test_functions_that_are_no_band_are_refused_at_any_length(device, without_bias, name, function, by_element):
    """The 14 positions of the call itself may not reveal that."""
    with pytest.raises(NotImplementedError, match="the model's mask is .*(prefix|of_positions_alone).*no band of keys"):
        asked(function, device, 14, use_vmap=by_element)


def test_bands_are_read_off_functions_and_remembered(device):
    def find(function, guess=bands.Band(-1, 0)):
        return bands.band_of(function, guess, bands.Call(None, 2, 9, 9, 0, 0, None, False))

    for left, right in ((0, 0), (7, 0), (5, 6), (4096, 4095)):
        assert find(lambda b, h, q, k: (q - k <= left) & (k - q <= right)) == (left, right)
    assert find(masking.causal_mask_function) == (-1, 0)
    assert find(masking.bidirectional_mask_function) == (-1, -1)
    assert find(masking.sliding_window_causal_mask_function(6)) == (5, 0)
    assert find(masking.sliding_window_bidirectional_mask_function(6)) == (6, 6)
    known = dict(bands._known)
    assert find(masking.sliding_window_causal_mask_function(6)) == (5, 0) and bands._known == known
    assert find(masking.sliding_window_causal_mask_function(7)) == (6, 0) and bands._known != known


DOCUMENTS = torch.zeros(64, dtype=torch.long)


def test_functions_that_read_what_may_change_are_looked_at_in_each_call(device, without_bias):
    """A tensor may also be a global variable, or be reached through a function or an object."""
    def by_global(b, h, q, k):
        return (k <= q) & (DOCUMENTS.to(q.device)[q] == DOCUMENTS.to(q.device)[k])

    class Holder:
        def __call__(self, b, h, q, k):
            return by_global(b, h, q, k)

    holder, DOCUMENTS[:] = Holder(), 0
    for function in (by_global, holder, lambda *at: holder(*at)):
        DOCUMENTS[:] = 0
        assert asked(function, device, 14) is None
        DOCUMENTS[7:] = 1
        with pytest.raises(NotImplementedError, match="query 7 does not see key 0 in sequence 0"):
            asked(function, device, 14)


def test_a_mask_that_shows_more_than_its_layers_guess_is_taken(draw, device):
    module = torch.nn.Module()
    module.config, module.is_causal = object(), True
    q, k, v = (draw(1, 1, 9, 32) for _ in range(3))
    told = asked(masking.or_masks(masking.causal_mask_function, lambda *at: torch.tensor(True)), device, 9, use_vmap=True)
    out, _ = huggingface.attention(module, q, k, v, told)
    assert torch.equal(out, kgen_attn.flash_attn_func(*(t.transpose(1, 2) for t in (q, k, v))))


def gemma3_with_images(device, heads=HEADS):
    text = dict(**SMALL, **heads, sliding_window=WINDOW, query_pre_attn_scalar=32, layer_types=["sliding_attention", "full_attention"])
    vision = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=63)
    make = lambda **words: transformers.Gemma3ForConditionalGeneration._from_config(config, **words)
    return [model.to(device) for model in models_of(make, implementation={"text_config": "kgen", "vision_config": "eager"})]


def test_an_image_of_gemma_3_is_refused_and_text_alone_is_not(device, without_bias):
    three = gemma3_with_images(device)
    tokens = torch.randint(3, 60, (2, 14), device=device)
    kinds = torch.zeros_like(tokens)
    with torch.no_grad():
        assert_as_good(*(model(input_ids=tokens, token_type_ids=kinds).logits for model in three), "logits")
        kinds[1, 5:9] = 1
        with pytest.raises(NotImplementedError, match=r"\(causal_mask_function \| blockwise_overlay\).*query 5 sees key 6 in sequence 1"):
            three[0](input_ids=tokens, token_type_ids=kinds)


def test_a_prefix_that_sees_itself_is_refused(device, without_bias):
    """PaliGemma's mask: tokens of the prefix see each other."""
    config = transformers.LlamaConfig(**SMALL, **HEADS)
    config._attn_implementation = "kgen"
    rows = torch.zeros(2, 12, 64, device=device)
    blocks = torch.full((2, 12), -1, device=device)
    words = dict(config=config, inputs_embeds=rows, attention_mask=None, past_key_values=None)
    assert masking.create_causal_mask(**words, block_sequence_ids=blocks) is None
    blocks[:, :1] = 0  # a block of one token, which hides nothing
    assert masking.create_causal_mask(**words, block_sequence_ids=blocks) is None
    blocks[1, :7] = 0
    with pytest.raises(NotImplementedError, match="blockwise_overlay.*query 0 sees key 1 in sequence 1"):
        masking.create_causal_mask(**words, block_sequence_ids=blocks)
    padding = torch.ones(2, 12, device=device)
    padding[1, :6] = 0  # padding may see anything
    words["attention_mask"] = padding
    assert masking.create_causal_mask(**words, block_sequence_ids=blocks) is not None


@pytest.mark.parametrize("rows, padding", [(8, 0), (8, 3), (9, 0)])
def test_chunked_attention_is_taken_within_its_first_chunk(device, without_bias, rows, padding):
    config = transformers.Llama4TextConfig(**SMALL, **HEADS, attention_chunk_size=8)
    config._attn_implementation = "kgen"
    there = torch.ones(1, rows, device=device)
    there[:, :padding] = 0
    words = dict(config=config, inputs_embeds=torch.zeros(1, rows, 64, device=device), attention_mask=there, past_key_values=None)
    if rows == 8:
        told = masking.create_chunked_causal_mask(**words)
        assert told is None if padding == 0 else told.shape == there.shape
    else:
        with pytest.raises(NotImplementedError, match="chunked_overlay.*query 8 does not see key"):
            masking.create_chunked_causal_mask(**words)


def test_packed_rows_of_a_larger_batch_are_refused(device, without_bias):
    config = transformers.LlamaConfig(**SMALL, **HEADS)
    config._attn_implementation = "kgen"
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]], device=device)
    words = dict(config=config, inputs_embeds=torch.zeros(2, 5, 64, device=device), attention_mask=None, past_key_values=None)
    assert masking.create_causal_mask(**words, position_ids=positions[:1].expand(2, -1)) is None
    with pytest.raises(NotImplementedError, match="several sequences in a row.*batch of one; given 2"):
        masking.create_causal_mask(**words, position_ids=positions)
