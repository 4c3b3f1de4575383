"""Small models of transformers with random weights, compared with transformers' own eager attention."""

import copy

import pytest
import torch

import kgen_attn

transformers = pytest.importorskip("transformers")
kgen_attn.register()

SMALL = dict(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, max_position_embeddings=64)
HEADS = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=32)
CONFIGURATIONS = {
    "gpt2": lambda: transformers.GPT2Config(vocab_size=64, n_embd=64, n_layer=2, n_head=2, n_positions=64, attn_pdrop=0.0,
                                            resid_pdrop=0.0, embd_pdrop=0.0),
    "llama": lambda: transformers.LlamaConfig(**SMALL, **HEADS),
    "mistral": lambda: transformers.MistralConfig(**SMALL, **HEADS, sliding_window=6),
    "gemma2": lambda: transformers.Gemma2Config(**SMALL, **HEADS, sliding_window=6, attn_logit_softcapping=20.0,
                                                query_pre_attn_scalar=32),
    "gpt-oss": lambda: transformers.GptOssConfig(**SMALL, **HEADS, sliding_window=6, num_local_experts=2, num_experts_per_tok=1),
}  # fmt: skip


def models(name, device):
    """The same model three times: kgen in bf16, eager in bf16, eager in fp32."""
    make = lambda **words: transformers.AutoModelForCausalLM.from_config(CONFIGURATIONS[name](), **words)
    return [model.to(device) for model in models_of(make)]


def models_of(make, implementation="kgen"):
    """The result of `make`, three times: kgen in bf16, eager in bf16, eager in fp32."""
    exact = make(attn_implementation="eager").eval()
    with torch.no_grad():  # larger than by default, so that attention matters
        for parameter in exact.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)
    low, kgen = copy.deepcopy(exact).bfloat16(), copy.deepcopy(exact).bfloat16()
    kgen.set_attn_implementation(implementation)
    exact.load_state_dict({key: value.float() for key, value in low.state_dict().items()})
    return kgen, low, exact


def assert_as_good(found, low, exact, what):
    """Compares root mean square errors: the largest error over a whole model varies by chance."""
    error, allowed = ((t.double() - exact.double()).square().mean().sqrt().item() for t in (found, low))
    assert error <= 1.5 * allowed + 1e-3, f"{what}: error {error:.3g}, eager's {allowed:.3g}"


@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_logits(device, name, padding):
    tokens, mask = torch.randint(64, (2, 14), device=device), torch.ones(2, 14, dtype=torch.long, device=device)
    if padding is not None:
        mask[0, slice(0, 5) if padding == "left" else slice(9, 14)] = 0
    with torch.no_grad():
        logits = [model(tokens, attention_mask=mask).logits[mask.bool()] for model in models(name, device)]
    assert_as_good(*logits, "logits")


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_generation_with_a_cache_and_padding(device, name):
    kgen, low, exact = models(name, device)
    tokens, mask = torch.randint(64, (2, 9), device=device), torch.ones(2, 9, dtype=torch.long, device=device)
    mask[0, :4] = 0
    caches = [transformers.DynamicCache(config=model.config) for model in (kgen, low, exact)]
    for _ in range(3):
        rows = tokens if caches[0].get_seq_length() == 0 else tokens[:, -1:]
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -rows.shape[1] :]
        with torch.no_grad():
            logits = [
                model(rows, attention_mask=mask, position_ids=positions, past_key_values=cache).logits[:, -1]
                for model, cache in zip((kgen, low, exact), caches)
            ]
        assert_as_good(*logits, "logits")
        tokens = torch.cat([tokens, logits[2].argmax(-1, keepdim=True)], dim=1)
        mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)


def test_packed_sequences_do_not_see_each_other(device):
    kgen, _, _ = models("llama", device)
    first, second = torch.randint(64, (1, 5), device=device), torch.randint(64, (1, 8), device=device)
    positions = torch.cat([torch.arange(5), torch.arange(8)])[None].to(device)
    with torch.no_grad():
        packed = kgen(torch.cat([first, second], dim=1), position_ids=positions).logits
        alone = torch.cat([kgen(first).logits, kgen(second).logits], dim=1)
    assert torch.allclose(packed, alone, atol=1e-2)


#: transformers 5.24 masks by positions if it sees several sequences: a query also sees later keys at its own position.
TIES_SEE_EACH_OTHER = hasattr(pytest.importorskip("transformers.masking_utils"), "remap_positions_for_packed_sequence")


@pytest.mark.parametrize("padded", [False, True])
def test_position_ids_that_repeat_do_not_cut_a_sequence(device, padded, without_bias):
    """Sequences begin at the smallest position, as in transformers' own packing."""
    kgen, low, exact = models("llama", device)
    tokens, positions = torch.randint(64, (1, 9), device=device), torch.tensor([[0, 1, 2, 2, 2, 3, 3, 3, 4]], device=device)
    given, end = {}, 9
    if padded:
        given["attention_mask"], end = (torch.arange(9, device=device) < 7).long()[None], 7
    whole = torch.ones(1, 9, dtype=torch.long, device=device)  # without a mask, transformers splits sequences
    if TIES_SEE_EACH_OTHER and not padded:
        with torch.no_grad(), pytest.raises(NotImplementedError, match="remap_positions_for_packed_sequence.*query 2 sees key 3"):
            kgen(tokens, position_ids=positions, use_cache=False)
        return
    with torch.no_grad():
        found = kgen(tokens, position_ids=positions, use_cache=False, **given).logits
        others = [model(tokens, position_ids=positions, attention_mask=whole, use_cache=False).logits for model in (low, exact)]
    assert_as_good(*(logits[:, :end] for logits in (found, *others)), "logits")


def test_training(device):
    kgen, low, exact = (model.train() for model in models("llama", device))
    tokens = torch.randint(64, (2, 12), device=device)
    for model in (kgen, low, exact):
        model(tokens, labels=tokens).loss.backward()
    for (name, *_), *gradients in zip(kgen.named_parameters(), *([p.grad for p in m.parameters()] for m in (kgen, low, exact))):
        assert_as_good(*gradients, name)
