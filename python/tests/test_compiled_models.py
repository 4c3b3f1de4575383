"""Models of transformers under torch.compile, and with a KV cache of fixed size."""

import pytest
import torch
from test_huggingface import CONFIGURATIONS, TIES_SEE_EACH_OTHER, assert_as_good, models

from kgen_attn import huggingface, masks

transformers = pytest.importorskip("transformers")
PADDINGS = [None, "all valid", "left", "right"]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def on_the_host(device):
    if device != "cpu":
        pytest.skip("an assertion that fails on a GPU ends the process's use of it")


def compiled(model):
    """The model's logits; a graph break is an error."""
    return torch.compile(lambda **given: model(**given).logits, fullgraph=True, backend="aot_eager", dynamic=False)


def prompt(device, batch, rows, padding=None):
    """The arguments of a model, and the mask of valid tokens."""
    there = torch.ones(batch, rows, dtype=torch.long, device=device)
    if padding in ("left", "right"):
        there[0, slice(0, 5) if padding == "left" else slice(rows - 5, rows)] = 0
    given = {"input_ids": torch.randint(64, (batch, rows), device=device)}
    return given | ({} if padding is None else {"attention_mask": there}), there.bool()


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("batch", [1, 2])
def test_models_compile_without_graph_breaks(device, name, batch):
    kgen = models(name, device)[0]
    given, _ = prompt(device, batch, 14)
    with torch.no_grad():
        assert torch.equal(compiled(kgen)(**given), kgen(**given).logits)


@pytest.mark.parametrize("name", ["llama", "mistral"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("padding", PADDINGS)
def test_padding_compiles(device, name, batch, padding):
    kgen, low, exact = models(name, device)
    given, there = prompt(device, batch, 14, padding)
    given["position_ids"] = (there.long().cumsum(1) - 1).clamp(min=0)  # like those of `generate`
    with torch.no_grad():
        runs = compiled(kgen), plain(kgen), plain(low), plain(exact)
        found, eager, *others = (run(**given, use_cache=False) for run in runs)
    assert_as_good(*(logits[there] for logits in (found, *others)), "logits")
    assert torch.allclose(found, eager, atol=1e-2)  # also for padding, where O is 0


def plain(model):
    """The model's logits, not compiled."""
    return lambda **given: model(**given).logits


def test_decoding_with_a_growing_cache_compiles(device):
    kgen = models("llama", device)[0]
    tokens = prompt(device, 1, 10)[0]["input_ids"]
    caches = [transformers.DynamicCache(config=kgen.config) for _ in range(2)]
    model = compiled(kgen)
    with torch.no_grad():
        for rows in (tokens[:, :9], tokens[:, 9:]):
            found, expected = (run(input_ids=rows, past_key_values=c) for run, c in zip((model, plain(kgen)), caches))
            assert torch.equal(found, expected)


def test_compiled_training_with_padding(device):
    kgen, low, exact = (model.train() for model in models("llama", device))
    given, there = prompt(device, 2, 14, "right")
    for model in (kgen, low, exact):
        run = compiled(model) if model is kgen else plain(model)
        logits = run(**given, use_cache=False)[there].float()
        torch.nn.functional.cross_entropy(logits, given["input_ids"][there]).backward()
    gradients = [[parameter.grad for parameter in model.parameters()] for model in (kgen, low, exact)]
    for (name, _), *three in zip(kgen.named_parameters(), *gradients):
        assert_as_good(*three, name)


def packed(device, lengths, first=0):
    """Tokens of a row with sequences of these lengths, and their positions."""
    positions = torch.cat([torch.arange(first, first + length) for length in lengths])[None].to(device)
    return torch.randint(64, positions.shape, device=device), positions


def alone(model, tokens, positions, lengths):
    """Logits of each sequence, computed separately."""
    parts = zip(tokens.split(lengths, 1), positions.split(lengths, 1))
    return torch.cat([model(input_ids=ids, position_ids=at).logits for ids, at in parts], dim=1)


def test_cu_seq_lens_pack_in_a_compiled_model(device):
    kgen, lengths = models("llama", device)[0], [5, 8]
    tokens, positions = packed(device, lengths)
    cu = torch.tensor([0, 5, 13], dtype=torch.int32, device=device)
    given = dict(cu_seq_lens_q=cu, cu_seq_lens_k=cu, max_length_q=8, max_length_k=8)
    with torch.no_grad():
        found = compiled(kgen)(input_ids=tokens, position_ids=positions, **given)
        assert torch.allclose(found, alone(kgen, tokens, positions, lengths), atol=1e-2)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("asserts", [False, True])
def test_position_ids_that_start_again_fail_in_a_compiled_model(device, on_the_host, masked, asserts, monkeypatch):
    monkeypatch.setattr(masks, "_ASSERTIONS_COMPILE", asserts)
    kgen = models("llama", device)[0]
    tokens, positions = packed(device, [5, 8])
    given = {"attention_mask": torch.ones_like(tokens)} if masked else {}
    model = torch.compile(lambda **given: kgen(**given).logits, fullgraph=asserts, backend="aot_eager")
    with torch.no_grad(), pytest.raises(RuntimeError, match="position_ids start again.*cu_seq_lens_q"):
        model(input_ids=tokens, position_ids=positions, **given)


@pytest.mark.parametrize("masked", [False, True])
def test_position_ids_that_repeat_are_one_sequence_in_a_compiled_model(device, masked):
    kgen = models("llama", device)[0]
    tokens, positions = torch.randint(64, (1, 6), device=device), torch.tensor([[0, 1, 2, 2, 2, 3]], device=device)
    given = {"attention_mask": torch.ones_like(tokens)} if masked else {}
    with torch.no_grad():
        found = compiled(kgen)(input_ids=tokens, position_ids=positions, **given)
        # If equal positions see each other, they are refused without a mask; with one they are one sequence.
        given = {"attention_mask": torch.ones_like(tokens)} if TIES_SEE_EACH_OTHER else {}
        assert torch.allclose(found, kgen(tokens, position_ids=positions, use_cache=False, **given).logits, atol=1e-2)


@pytest.mark.parametrize("expanded", [False, True])
def test_packed_rows_of_a_larger_batch_fail_in_a_compiled_model(device, on_the_host, expanded):
    kgen = models("llama", device)[0]
    positions = packed(device, [5, 8])[1].expand(2 if expanded else 1, -1)
    with torch.no_grad(), pytest.raises(RuntimeError, match="position_ids start again"):
        compiled(kgen)(input_ids=torch.randint(64, (2, 13), device=device), position_ids=positions)


def nodes_of(model, **given):
    """The nodes of the single graph of a call."""
    graphs = []

    def seen(graph, _):
        graphs.append(graph)
        return graph

    with torch.no_grad():
        torch.compile(lambda **given: model(**given).logits, fullgraph=True, backend=seen, dynamic=False)(**given)
    (graph,) = graphs
    return graph.graph.nodes


def test_a_graph_compares_no_two_ranges_of_numbers(device):
    """Triton takes minutes to compile a comparison of two ranges of thousands of numbers: position ids are a range, and
    are compared in each layer."""
    nodes = nodes_of(models("llama", device)[0], **prompt(device, 1, 14)[0])
    assert any("_assert_async" in str(node.target) for node in nodes)
    tensors = [node.meta.get("example_value") for node in nodes]
    assert not [t for t in tensors if isinstance(t, torch.Tensor) and t.dtype == torch.bool and t.numel() > 1]


def test_a_graph_computes_lengths_once_for_all_layers(device):
    kgen, tokens = models("llama", device)[0], prompt(device, 2, 10)[0]["input_ids"]
    cache = transformers.StaticCache(config=kgen.config, max_cache_len=16)
    with torch.no_grad():
        kgen(input_ids=tokens[:, :9], past_key_values=cache, use_cache=True)
    nodes = nodes_of(kgen, input_ids=tokens[:, 9:], past_key_values=cache, use_cache=True)
    named = [str(node.target) for node in nodes]
    assert sum("kgen_attn.materialize" in name for name in named) == 1
    assert sum("kgen_attn.forward" in name for name in named) == kgen.config.num_hidden_layers > 1


def test_assertions_are_not_left_out_by_inductor(device, on_the_host):
    @torch.compile(fullgraph=True)
    def half(number):
        masks.fail_unless((number % 2 == 0).all(), "number is odd")
        return number // 2

    assert half(torch.tensor([4])) == 2
    with pytest.raises(RuntimeError, match="number is odd"):
        half(torch.tensor([5]))


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("lengths", [[5, 8], [1, 1, 7], [3, 1]], ids=str)
def test_packed_sequences_are_found_where_positions_are_least(device, lengths, first):
    kgen = models("llama", device)[0]
    tokens, positions = packed(device, lengths, first)
    with torch.no_grad():
        found = kgen(input_ids=tokens, position_ids=positions).logits
        assert torch.allclose(found, alone(kgen, tokens, positions, lengths), atol=1e-2)


def test_packed_sequences_with_padding_after_them(device):
    kgen, lengths = models("llama", device)[0], [5, 8]
    tokens, positions = packed(device, [*lengths, 3])
    positions[0, 13:] = 0
    there = (torch.arange(16, device=device) < 13).long()[None]
    with torch.no_grad():
        found = kgen(input_ids=tokens, position_ids=positions, attention_mask=there, use_cache=False).logits[:, :13]
        assert torch.allclose(found, alone(kgen, tokens[:, :13], positions[:, :13], lengths), atol=1e-2)


def test_position_ids_that_were_written_to_are_looked_at_again(device):
    kgen, lengths = models("llama", device)[0], [5, 8]
    tokens, positions = packed(device, lengths)
    buffer = torch.arange(13, device=device)[None]
    with torch.no_grad():
        kgen(input_ids=tokens, position_ids=buffer)
        buffer.copy_(positions)
        found = kgen(input_ids=tokens, position_ids=buffer).logits
        assert torch.allclose(found, alone(kgen, tokens, positions, lengths), atol=1e-2)
    with torch.inference_mode():
        buffer = torch.arange(13, device=device)[None]
        kgen(input_ids=tokens, position_ids=buffer)
        buffer.copy_(positions)
        assert torch.equal(kgen(input_ids=tokens, position_ids=buffer).logits, found)


def test_packed_sequences_behind_a_cache_are_refused(device):
    kgen = models("llama", device)[0]
    cache = transformers.DynamicCache(config=kgen.config)
    tokens, positions = packed(device, [5, 8])
    with torch.no_grad():
        kgen(input_ids=tokens, past_key_values=cache)
        with pytest.raises(NotImplementedError, match="packing goes without a cache"):
            kgen(input_ids=tokens, position_ids=positions, past_key_values=cache)


def test_padding_between_tokens_is_refused_with_a_window(device, without_bias):
    kgen = models("mistral", device)[0]
    given, there = prompt(device, 1, 14, "left")
    given["attention_mask"][0, 7] = 0
    with torch.no_grad(), pytest.raises(NotImplementedError, match="attention_mask has padding between tokens"):
        kgen(**given)


def test_padding_between_tokens_fails_with_a_window_in_a_compiled_model(device, on_the_host):
    kgen = models("mistral", device)[0]
    given, there = prompt(device, 1, 14, "left")
    given["attention_mask"][0, 7] = 0
    with torch.no_grad(), pytest.raises(RuntimeError, match="attention_mask has padding between tokens"):
        compiled(kgen)(**given)


def test_models_of_transformers_4_are_causal_beside_a_mask(draw, device, monkeypatch):
    """GPT-2 in transformers 4 passes is_causal=False with a causal mask."""
    module = torch.nn.Module()
    module.config, module.is_causal = object(), True
    q, k, v = (draw(2, 2, 9, 32) for _ in range(3))
    nothing = torch.empty((2, 1, 9, masks.NOTHING), dtype=torch.int32, device=device)
    expected, _ = huggingface.attention(module, q, k, v, None, is_causal=True)
    for old in (False, True):
        monkeypatch.setattr(huggingface, "_is_version_4", old)
        assert torch.equal(huggingface.attention(module, q, k, v, nothing, is_causal=False)[0], expected) == old
