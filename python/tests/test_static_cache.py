"""KV caches of fixed size: generation compared with SDPA, eager and compiled, and the masks of such a cache."""

import pytest
import torch
from test_huggingface import CONFIGURATIONS, assert_as_good, models

from kgen_attn import flash_attn_func, huggingface, masks

transformers = pytest.importorskip("transformers")
NEW = 8  # tokens; with the prompt's, more than the windows


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def generating(name, device):
    """kgen and the peer in bf16, and the peer in fp32; all experts are active, because choosing among them is
    discontinuous."""
    three = models(name, device)
    for model in three:
        for end in ("bos_token_id", "eos_token_id"):
            setattr(model.generation_config, end, None)
        model.generation_config.pad_token_id = 0
        for part in model.modules():
            if hasattr(part, "top_k"):
                part.top_k = model.config.num_local_experts
    for model in three[1:]:
        if name not in ("gemma2", "gpt-oss"):  # SDPA has neither softcap nor sinks
            model.set_attn_implementation("sdpa")
    return three


def prompt(device, batch, rows, padding=None):
    there = torch.ones(batch, rows, dtype=torch.long, device=device)
    if padding == "left":
        there[0, :4] = 0
    elif padding == "between":
        there[0, 2:4] = 0
    return torch.randint(64, (batch, rows), device=device), there


def generated(model, tokens, there, compiled=False, **words):
    """New tokens, greedily chosen with a cache of fixed size, and the logits of each step."""
    if compiled:  # compile the steps after the prompt, as `generate` does on a GPU
        words["compile_config"] = transformers.CompileConfig(fullgraph=True, backend="aot_eager", mode=None)
        words["compile_config"]._compile_all_devices = True
    said = model.generate(
        tokens,
        attention_mask=there,
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        do_sample=False,
        cache_implementation="static",
        disable_compile=not compiled,
        return_dict_in_generate=True,
        output_logits=True,
        **words,
    )
    return said.sequences[:, tokens.shape[1] :], torch.stack(said.logits, 1)


def assert_same_text(found, peer, exact, tokens, there):
    """Compares (tokens, logits): kgen's tokens must equal the peer's until the peer's two best logits are closer than
    the errors of both sides, and up to there the error of kgen's logits must not exceed the peer's."""
    text, there = torch.cat([tokens, peer[0]], 1), torch.cat([there, torch.ones_like(peer[0])], 1)
    with torch.no_grad():
        positions = (there.cumsum(1) - 1).clamp(min=0)
        right = exact(text, attention_mask=there, position_ids=positions).logits[:, -NEW - 1 : -1]
    compared = []
    for b in range(len(tokens)):
        other = (found[0][b] != peer[0][b]).nonzero().flatten().tolist()
        steps = other[0] + 1 if other else NEW
        logits = [side[b, :steps].float() for side in (found[1], peer[1], right)]
        compared.append(logits)
        if other:
            best = logits[1][-1].topk(2).values
            rounding = sum((side - logits[2]).abs().max() for side in logits[:2])
            assert best[0] - best[1] <= rounding, f"sequence {b} differs at step {other[0]}"
    assert_as_good(*(torch.cat(side) for side in zip(*compared)), "logits")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("batch, padding", [(1, None), (2, "left")])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_generation_is_the_peers(device, name, batch, padding, compiled):
    kgen, low, exact = generating(name, device)
    tokens, there = prompt(device, batch, 9, padding)
    found, peer = generated(kgen, tokens, there, compiled), generated(low, tokens, there)
    assert_same_text(found, peer, exact, tokens, there)


@pytest.mark.parametrize("compiled", [False, True])
def test_padding_between_tokens(device, compiled):
    kgen, low, exact = generating("llama", device)
    tokens, there = prompt(device, 2, 9, "between")
    found, peer = generated(kgen, tokens, there, compiled), generated(low, tokens, there)
    assert_same_text(found, peer, exact, tokens, there)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("padding", [None, "left"])
def test_one_graph_serves_all_steps(device, name, padding):
    kgen = generating(name, device)[0]
    generated(kgen, *prompt(device, 2, 9, padding), compiled=True)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("rows", [9, 4])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral"])
def test_steps_without_a_mask(device, name, rows):
    """A prompt, and steps compiled by hand; the second, longer prompt finds the cache as the first left it."""
    kgen, low, _ = generating(name, device)
    low.set_attn_implementation("sdpa")
    step = torch.compile(lambda **given: kgen(**given).logits, fullgraph=True, backend="aot_eager")
    caches = [transformers.StaticCache(config=kgen.config, max_cache_len=24) for _ in range(2)]
    for length in (rows, rows + 3):
        ids = torch.randint(64, (1, length + 5), device=device)
        for cache in caches:
            cache.reset()
        for begin, end in ((0, length), *((i, i + 1) for i in range(length, length + 5))):
            part = ids[:, begin:end]
            run = step if end - begin == 1 else lambda **given: kgen(**given).logits
            with torch.no_grad():
                found, peer = run(input_ids=part, past_key_values=caches[0]), low(part, past_key_values=caches[1]).logits
            assert torch.allclose(found, peer, atol=0.1), f"rows {begin} to {end}"


def test_several_rows_after_others(device):
    """A prompt in two pieces, the second one compiled."""
    kgen = generating("llama", device)[0]
    ids = torch.randint(64, (2, 14), device=device)
    cache = transformers.StaticCache(config=kgen.config, max_cache_len=24)
    piece = torch.compile(lambda **given: kgen(**given).logits, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        whole = kgen(ids).logits
        parts = kgen(ids[:, :9], past_key_values=cache).logits, piece(input_ids=ids[:, 9:], past_key_values=cache)
    assert torch.allclose(torch.cat(parts, 1), whole, atol=0.1)


def test_packed_sequences_are_refused_behind_others(device):
    kgen = generating("llama", device)[0]
    cache = transformers.StaticCache(config=kgen.config, max_cache_len=24)
    positions = torch.cat([torch.arange(3), torch.arange(4)])[None].to(device)
    ids = torch.randint(64, (1, 7), device=device)
    with torch.no_grad():
        kgen(ids, past_key_values=cache)
        cu = torch.tensor([0, 3, 7], dtype=torch.int32, device=device)
        lengths = dict(cu_seq_lens_q=cu, cu_seq_lens_k=cu.clone(), max_length_q=4, max_length_k=4)
        for packing in ({}, lengths):
            with pytest.raises(NotImplementedError, match="packing goes without a cache"):
                kgen(ids, position_ids=positions, past_key_values=cache, **packing)


@pytest.mark.parametrize("contiguous", [False, True])
def test_ranges_are_read_where_they_lie(draw, device, contiguous):
    q = draw(3, 4, 2, 32).transpose(1, 2).contiguous().transpose(1, 2)  # the strides that models pass
    k, v = (draw(3, 2, 10, 32).transpose(1, 2) for _ in range(2))
    if not contiguous:
        k, v = (torch.cat([t, t, t[:, :5]], 1)[:, :10] for t in (k, v))
    ranges = torch.tensor([[0, 7], [3, 4], [2, 8]], dtype=torch.int32, device=device)
    out = huggingface._in_ranges(q, k, v, ranges, {"causal": True})
    for b, (start, count) in enumerate(ranges.tolist()):
        expected = flash_attn_func(q[b : b + 1], *(t[b : b + 1, start : start + count] for t in (k, v)), causal=True)
        assert torch.allclose(out[b : b + 1], expected, atol=1e-2)


def asked(**words):
    return masks.mask(**{"batch_size": 2, "q_length": 1, "kv_length": 12, **words})


def test_masks_of_caches(device):
    offset = torch.tensor(6, device=device)
    there = torch.ones(2, 7, dtype=torch.bool, device=device)
    assert asked(q_length=12) is None
    assert asked(q_offset=11) is None
    assert asked(q_length=7, device=device).shape == (2, 1, 7, masks.NOTHING)
    assert asked(q_offset=6, device=device).tolist() == [[[[7]]]] * 2  # the count of a window, computed in Python
    assert asked(q_offset=offset).tolist() == asked(q_offset=offset, attention_mask=there).tolist() == [[[[7]]]] * 2
    assert asked(q_offset=offset + 20).tolist() == [[[[12]]]] * 2  # only existing rows
    there[0, :3] = False
    assert asked(q_offset=offset, attention_mask=there).tolist() == [[[[3, 4]]], [[[0, 7]]]]
    assert asked(q_offset=6, attention_mask=there).tolist() == [[[[3, 4]]], [[[0, 7]]]]
    longer = torch.nn.functional.pad(there, (0, 5), value=True)  # for rows that are not written yet
    assert asked(q_offset=offset, attention_mask=longer).tolist() == [[[[3, 4]]], [[[0, 7]]]]
    there[0, 4] = False
    assert asked(q_offset=offset, attention_mask=there).shape == (2, 1, 13, masks.PLACES)


def test_masks_of_windows_begin_where_the_cache_does(device):
    there = torch.ones(2, 20, dtype=torch.bool, device=device)
    there[0, :9] = False
    words = dict(attention_mask=there, kv_length=6, kv_offset=14)
    assert asked(q_offset=19, **words) is None
    assert asked(q_offset=18, kv_length=6, kv_offset=14, device=device).tolist() == [[[[5]]]] * 2
    there[0, 15] = False
    assert asked(q_offset=19, **words)[0, 0, :6, 2].tolist() == [1, 0, 1, 1, 1, 1]


def test_masks_of_encoders_are_not_those_of_a_cache(device):
    there = torch.ones(2, 12, dtype=torch.bool, device=device)
    words = dict(allow_is_bidirectional_skip=True, attention_mask=there)
    assert asked(q_length=3, **words) is None
    there[0, 5:] = False
    valid = asked(q_length=3, **words)[:, 0, :, 2]
    assert valid.sum(1).tolist() == [8, 15] and valid[:, 12:].all()


def test_masks_of_older_versions_of_transformers(device):
    at = torch.tensor([6], device=device)
    asked = lambda **words: masks.mask(batch_size=1, **words)
    assert asked(cache_position=at, kv_length=12).tolist() == [[[[7]]]]
    assert asked(cache_position=torch.arange(12, device=device), kv_length=12) is None
    assert asked(cache_position=at + 9, kv_length=6, kv_offset=at[0] + 4).tolist() == [[[[6]]]]
