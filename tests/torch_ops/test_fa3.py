"""`_vllm_fa3_C.fwd` and `get_scheduler_metadata` as vLLM's engine calls them."""

import pytest
import torch

from engine import FP8, Step
from reference import Asked, attention

FWD = torch.ops._vllm_fa3_C.fwd
METADATA = torch.ops._vllm_fa3_C.get_scheduler_metadata

BATCHES = {
    "decode": dict(queries=[1] * 5, keys=[3, 70, 33, 1, 128]),
    "decode of one": dict(queries=[1], keys=[150]),
    "decode and padding": dict(queries=[1, 1, 0, 0], keys=[40, 100, 0, 0], spare_tokens=2),
    "prefill": dict(queries=[37, 5, 64], keys=[37, 5, 64]),
    "chunked prefill": dict(queries=[20, 33], keys=[90, 33]),
    "mixed": dict(queries=[1, 1, 40, 1, 7], keys=[90, 17, 40, 128, 30]),
    "speculation": dict(queries=[4, 1, 4], keys=[64, 33, 100]),
}


def fwd(emulator, step, **given):
    arguments = step.arguments(**given)
    written = [step.out] if arguments[6] is not None else []
    metadata = given.get("metadata")
    out, lse, *parts = emulator.run(FWD, arguments, written + ([metadata] if metadata is not None else []))
    assert len(parts) == 2
    assert lse.dtype == torch.float32 and lse.shape == (step.heads, step.q.shape[0])
    if arguments[6] is not None:
        assert out.data_ptr() == step.out.data_ptr()
    return out, lse


def metadata_of(emulator, step, **given):
    metadata = emulator.run(METADATA, step.metadata_arguments(**given))
    batch = len(step.queries)
    assert metadata.dtype == torch.int32 and metadata.dim() == 1
    assert batch < len(metadata) <= 1 + 4 * (-(-batch // 4) * 4), "vLLM's buffer is too short for it"
    return metadata


@pytest.mark.parametrize("splits", [0, 1, 32])
@pytest.mark.parametrize("batch", BATCHES)
def test_a_step_of_the_engine_is_attention(emulator, batch, splits):
    step = Step(**BATCHES[batch], width=20)
    metadata = metadata_of(emulator, step, num_splits=splits)
    step.check(*fwd(emulator, step, metadata=metadata, num_splits=splits, max_k=320 if splits > 1 else None))


@pytest.mark.parametrize("splits", [0, 32])
def test_without_metadata_too(emulator, splits):
    step = Step(**BATCHES["mixed"])
    step.check(*fwd(emulator, step, num_splits=splits))


def test_out_is_made_where_it_is_not_given(emulator):
    step = Step(**BATCHES["decode"])
    out, lse = fwd(emulator, step, out=False)
    step.check(out, lse)


@pytest.mark.parametrize("splits", [0, 32])
def test_a_step_without_tokens(emulator, splits):
    for step in (Step(queries=[0, 0], keys=[0, 0]), Step(queries=[0, 0], keys=[5, 20]), Step(queries=[], keys=[], width=4)):
        metadata = metadata_of(emulator, step, num_splits=splits, max_q=1, max_k=64) if step.queries else None
        out, lse = fwd(emulator, step, metadata=metadata, num_splits=splits, max_q=1, max_k=64)
        assert out.shape == (0, 4, 64) and lse.shape == (4, 0)


def test_head_dim_128(emulator):
    step = Step(queries=[1, 3], keys=[40, 20], dim=128)
    step.check(*fwd(emulator, step, num_splits=32, metadata=metadata_of(emulator, step, num_splits=32)))


def test_heads_of_one_key_head_each(emulator):
    step = Step(queries=[1, 20], keys=[40, 20], heads=3, heads_k=3)
    step.check(*fwd(emulator, step))


@pytest.mark.parametrize("batch", ["decode", "mixed"])
@pytest.mark.parametrize(
    "asked",
    [
        Asked(0.125, window=(15, 0)),
        Asked(0.125, softcap=50.0),
        Asked(0.125, softcap=5.0, window=(15, 0)),
        Asked(0.125, causal=False),
        Asked(0.125, causal=False, window=(7, 3)),
    ],
    ids=["window", "softcap", "both", "full", "both sides"],
)
def test_masks_and_scores(emulator, batch, asked):
    step = Step(**BATCHES[batch], asked=asked)
    metadata = metadata_of(emulator, step)
    step.check(*fwd(emulator, step, metadata=metadata))
    step.check(*fwd(emulator, step))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_sinks(emulator, dtype):
    sinks = torch.tensor([-1.0, 0.5, 3.0, 8.0], dtype=dtype)
    step = Step(**BATCHES["mixed"], asked=Asked(0.125, sinks=sinks))
    step.check(*fwd(emulator, step, s_aux=sinks))


DESCALES = (0.5, 0.25, 2.0)


@pytest.mark.parametrize("splits", [0, 32])
@pytest.mark.parametrize("batch", ["decode", "mixed"])
def test_fp8_queries_and_cache(emulator, batch, splits):
    step = Step(**BATCHES[batch], dtype=FP8)
    metadata = metadata_of(emulator, step, num_splits=splits)
    step.check(*fwd(emulator, step, metadata=metadata, num_splits=splits, descales=DESCALES), DESCALES)


@pytest.mark.parametrize("queries, keys, converted", [([1] * 24, [600] * 24, True), ([200, 170], [200, 300], False)], ids=["decode", "prefill"])
def test_fp8_queries_are_converted_where_that_is_faster(emulator, queries, keys, converted):
    """On Hopper the library has kernels for both forms: FP8 products without splits, bf16 queries with E4M3 keys."""
    emulator.device(90)
    step = Step(queries=queries, keys=keys, dtype=FP8)
    out, lse = fwd(emulator, step, metadata=metadata_of(emulator, step), descales=DESCALES)
    out = out.clone()
    wide = Step(queries=queries, keys=keys, dtype=FP8)
    wide.q = wide.q.bfloat16()
    of_bf16, _ = fwd(emulator, wide, metadata=metadata_of(emulator, wide), descales=(1.0, DESCALES[0] * DESCALES[1], DESCALES[2]))
    assert torch.equal(out, of_bf16) == converted
    for sequence, (first, last) in enumerate(zip(step.starts, step.starts[1:])):
        rows = (step.q[first:last], *step.rows_of(sequence))
        exact, exact_lse = attention(*(t.double() * factor for t, factor in zip(rows, DESCALES)), step.asked)
        # P is rounded to E4M3 as well, which the rule for bf16 does not cover.
        assert (out[first:last].double() - exact).abs().max() < 0.08 * exact.abs().max()
        torch.testing.assert_close(lse[:, first:last].double(), exact_lse, rtol=1e-3, atol=1e-2)


def test_fp8_queries_whose_rows_lie_apart(emulator):
    step = Step(**BATCHES["mixed"], dtype=FP8)
    step.q = torch.cat([step.q, step.q], dim=1)[:, :4]
    assert not step.q.is_contiguous()
    step.check(*fwd(emulator, step))


def test_fp8_cache_and_queries_in_bf16(emulator):
    step = Step(**BATCHES["mixed"], cache_dtype=FP8)
    step.check(*fwd(emulator, step, descales=DESCALES), (1.0, *DESCALES[1:]))


def test_descales_of_a_cache_that_is_not_fp8_are_not_read(emulator):
    step = Step(**BATCHES["decode"])
    step.check(*fwd(emulator, step, descales=DESCALES))
    arguments = step.arguments()
    arguments[20:23] = [torch.ones(1, dtype=torch.int32)] * 3
    step.check(*emulator.run(FWD, arguments, [step.out])[:2])


# For head dim 128 the library splits only paged keys. E4M3 queries can be split only after conversion to bf16.
@pytest.mark.parametrize("dim, dtype", [(64, torch.bfloat16), (128, torch.bfloat16), (64, FP8)], ids=["64", "128", "fp8"])
def test_metadata_is_what_the_kernels_count(emulator, dim, dtype):
    step = Step(queries=[1, 1, 0, 1], keys=[1000, 130, 0, 1], heads=2, heads_k=1, dim=dim, dtype=dtype)
    counts = metadata_of(emulator, step, num_splits=32).tolist()
    assert counts[:4] == [0] * 4
    assert counts[4] > counts[5] >= 1 and counts[6:8] == [0, 1] and not any(counts[8:]), counts


def test_metadata_where_the_library_cannot_split_is_one_split_each(emulator):
    step = Step(**BATCHES["decode"], dim=32)
    assert metadata_of(emulator, step).tolist() == [0] * 4 + [1] * 5 + [0] * 23


@pytest.mark.parametrize("asked", [Asked(0.125, softcap=5.0), Asked(0.125, window=(15, 0)), Asked(0.125, causal=False)], ids=["softcap", "window", "full"])
def test_metadata_knows_what_attention_will_be_asked_for(emulator, asked):
    step = Step(queries=[1], keys=[1000], dim=128, asked=asked)  # for head dim 128 the library has only causal kernels
    assert metadata_of(emulator, step, num_splits=32)[4] == 1


def test_metadata_of_a_batch_has_one_length(emulator):
    lengths = {len(metadata_of(emulator, Step(queries=[1] * 6, keys=keys), num_splits=splits)) for keys in ([1] * 6, [300] * 6) for splits in (0, 1, 32)}
    assert lengths == {32}


def test_a_step_may_be_longer_than_its_graph_was_captured_with(emulator):
    """cudagraph_mode=FULL: captured with one query each, replayed with other divisions of the tokens."""
    step = Step(queries=[9, 0, 1, 0, 0, 0, 0, 0, 0, 0], keys=[40, 0, 30, 0, 0, 0, 0, 0, 0, 0])
    metadata = metadata_of(emulator, step, num_splits=32)
    step.check(*fwd(emulator, step, metadata=metadata, num_splits=32, max_q=1, max_k=320))


def test_the_work_counter_is_left_at_zero_for_the_next_layer(emulator):
    emulator.device(90)
    step = Step(queries=[40, 60, 33], keys=[90, 60, 100])
    metadata = metadata_of(emulator, step)
    for _ in range(2):
        step.out.fill_(torch.nan)
        step.check(*fwd(emulator, step, metadata=metadata))
        assert metadata[:4].tolist() == [0] * 4


def test_blocks_take_their_work_from_the_counter_of_the_metadata(emulator):
    emulator.device(90)
    step = Step(queries=[40, 60, 33], keys=[90, 60, 100], heads=32, heads_k=8)
    metadata = metadata_of(emulator, step)
    metadata[0] = 1 << 20  # no work is left
    out, _ = fwd(emulator, step, metadata=metadata)
    assert out.isnan().any()


def test_layers_merge_by_the_counters_of_the_metadata(emulator):
    """With few rows the last block of each row tile merges: no layer launches fwd_combine, and each layer finds the
    counters zero."""
    step = Step(queries=[1, 1], keys=[300, 500], heads=2, heads_k=1, dim=64)
    metadata = metadata_of(emulator, step, num_splits=2)
    for _ in range(3):
        step.out.fill_(torch.nan)
        step.check(*fwd(emulator, step, metadata=metadata, num_splits=2))
        assert not metadata[8:].any() and not any("combine" in name for name in emulator.launches())
