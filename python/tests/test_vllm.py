"""Tests of the vLLM plugin with stand-ins for vLLM's classes, or with the real ones if `VLLM_SOURCES` is an unpacked
wheel."""

import importlib
import logging
import types
from importlib import metadata

import pytest
import torch
import vllm_stub
from reference import assert_close, attention


@pytest.fixture
def vllm(monkeypatch):
    vllm_stub.install(monkeypatch)
    yield
    vllm_stub.forget()


def backend():
    return importlib.import_module("kgen_attn.vllm_backend")


HEADS, HEADS_K, DIM, PAGE = 4, 2, 32, 16


def layer_of(**given):
    options = dict(num_heads=HEADS, head_size=DIM, scale=DIM**-0.5, num_kv_heads=HEADS_K, alibi_slopes=None, sliding_window=None,
                   kv_cache_dtype="auto")  # fmt: skip
    return backend().KgenImpl(**(options | given))


def step_of(device, queries, keys, width=8):
    """vLLM's metadata of a step with these numbers of queries and keys per sequence, and a cache with interleaved K and
    V."""
    from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadata

    pages = [-(-count // PAGE) for count in keys]
    order = torch.randperm(sum(pages) + 1)
    table = torch.full((len(keys), width), 1 << 20, dtype=torch.int32)
    cache = torch.full((sum(pages) + 1, PAGE, HEADS_K, 2 * DIM), torch.nan)
    taken = 0
    for sequence, count in enumerate(keys):
        for page in range(pages[sequence]):
            table[sequence, page] = order[taken]
            rows = min(PAGE, count - page * PAGE)
            cache[order[taken], :rows] = torch.randn(rows, HEADS_K, 2 * DIM)
            taken += 1
    starts = torch.tensor([0, *queries]).cumsum(0).to(torch.int32)
    # fmt: off
    step = FlashAttentionMetadata(
        num_actual_tokens=sum(queries), max_query_len=max(queries), query_start_loc=starts.to(device), max_seq_len=max(keys),
        seq_lens=torch.tensor(keys, dtype=torch.int32, device=device), block_table=table.to(device), slot_mapping=None,
        use_cascade=False, common_prefix_len=0, cu_prefix_query_lens=None, prefix_kv_lens=None, suffix_kv_lens=None)
    # fmt: on
    return step, cache.bfloat16().to(device).transpose(1, 2)


def rows_of(step, cache, sequence):
    """Keys and values of a sequence: (keys, key heads, D) each."""
    count = int(step.seq_lens[sequence])
    pages = step.block_table[sequence, : -(-count // PAGE)].long()
    rows = cache.transpose(1, 2)[pages].reshape(-1, HEADS_K, 2 * DIM)[:count]
    return rows[..., :DIM], rows[..., DIM:]


SCALES = types.SimpleNamespace(_q_scale=torch.ones(1), _k_scale=torch.ones(1), _v_scale=torch.ones(1))


def test_it_registers_itself_under_the_name_for_others(vllm):
    importlib.import_module("kgen_attn.vllm").register()
    registry = importlib.import_module("vllm.v1.attention.backends.registry")
    assert registry._ATTN_OVERRIDES == {registry.AttentionBackendEnum.CUSTOM: "kgen_attn.vllm_backend.KgenBackend"}
    assert backend().KgenBackend.get_name() in registry.AttentionBackendEnum.__members__
    assert backend().KgenBackend.get_impl_cls() is backend().KgenImpl


def test_the_wheel_names_it_as_a_plugin():
    found = [point for point in metadata.entry_points(group="vllm.general_plugins") if point.name == "kgen"]
    assert [point.value for point in found] == ["kgen_attn.vllm:register"]


def test_in_another_vllm_it_says_so_in_one_sentence(monkeypatch, caplog):
    vllm_stub.install(monkeypatch, "0.31.2")
    sentence = "kgen_attn's attention backend is written for vLLM 0.26; this is vLLM 0.31.2"
    try:
        with caplog.at_level(logging.WARNING):
            importlib.import_module("kgen_attn.vllm").register()
        assert [record.getMessage() for record in caplog.records] == [sentence]
        with pytest.raises(ImportError, match=sentence):
            backend()
    finally:
        vllm_stub.forget()


@pytest.mark.parametrize("queries, keys", [([1, 1, 1], [17, 5, 33]), ([9, 4], [9, 4]), ([1, 7, 1], [40, 23, 16])])
def test_a_step_is_what_the_reference_gives(device, vllm, queries, keys):
    step, cache = step_of(device, queries, keys)
    spare = 3  # tokens beyond the step's, as in a padded graph
    fused = torch.randn(sum(queries) + spare, (HEADS + 2 * HEADS_K) * DIM).bfloat16().to(device)
    query = fused[:, : HEADS * DIM].view(-1, HEADS, DIM)  # a view of the projection
    output = torch.full((sum(queries) + spare, HEADS, DIM), 7.0, dtype=torch.bfloat16, device=device)
    assert layer_of().forward(SCALES, query, None, None, cache, step, output) is output
    assert bool((output[sum(queries) :] == 7).all())
    begin = 0
    for sequence, count in enumerate(queries):
        k, v = rows_of(step, cache, sequence)
        q = query[begin : begin + count]
        given = [t.cpu() for t in (q, k, v)]
        exact, low = (attention(*given, causal=True, dtype=dtype)[0] for dtype in (torch.float64, torch.bfloat16))
        assert_close(output[begin : begin + count].cpu(), exact, low, f"sequence {sequence}")
        begin += count


def test_a_step_in_another_order_takes_the_same_plan(device, vllm):
    from kgen_attn import forward

    layer = layer_of()
    forward._plans.clear()
    for keys in ([17, 5], [18, 6], [70, 9]):
        step, cache = step_of(device, [1, 1], keys)
        cache = torch.cat([cache, cache])[:8].contiguous() if cache.shape[0] < 8 else cache[:8].contiguous()
        step.block_table %= 8
        layer.forward(SCALES, torch.randn(2, HEADS, DIM).bfloat16().to(device), None, None, cache, step, torch.empty(2, HEADS, DIM).bfloat16().to(device))
    assert len(forward._plans) == 1


def test_a_profiling_run_gives_zeros(device, vllm):
    output = torch.full((2, HEADS, DIM), 7.0, device=device)
    assert not bool(layer_of().forward(SCALES, None, None, None, None, None, output).any())


def test_what_it_has_not_is_refused(device, vllm):
    step, cache = step_of(device, [1], [5])
    query, output = torch.randn(1, HEADS, DIM).bfloat16().to(device), torch.empty(1, HEADS, DIM).bfloat16().to(device)
    for change in ({"use_cascade": True}, {"causal": torch.ones(1, dtype=torch.bool)}, {"rswa_prefix_lens": torch.ones(1)}):
        other = types.SimpleNamespace(**(vars(step) | change))
        with pytest.raises(NotImplementedError, match="no cascades and no masks"):
            layer_of().forward(SCALES, query, None, None, cache, other, output)
    with pytest.raises(NotImplementedError, match="quantise its output"):
        layer_of().forward(SCALES, query, None, None, cache, step, output, torch.ones(1))
    with pytest.raises(NotImplementedError, match="for decoders"):
        layer_of(attn_type="encoder_only")
    with pytest.raises(TypeError, match="`out` is torch.float32"):
        layer_of().forward(SCALES, query, None, None, cache, step, output.float())
    with pytest.raises(ValueError, match="`out` is"):
        layer_of().forward(SCALES, query, None, None, cache, step, output[..., :16])


def test_it_supports_what_kernels_can(vllm):
    from vllm.v1.attention.backend import AttentionCGSupport

    kgen = backend().KgenBackend
    assert kgen.supports_head_size(72) and not kgen.supports_head_size(20) and not kgen.supports_head_size(512)
    assert kgen.supports_kv_cache_dtype("fp8") and not kgen.supports_kv_cache_dtype("int8")
    assert kgen.supports_sink() and not kgen.supports_mm_prefix()
    assert kgen.supports_attn_type("decoder") and not kgen.supports_attn_type("encoder_only")
    assert kgen.get_builder_cls()._cudagraph_support == AttentionCGSupport.UNIFORM_BATCH
