"""Unsupported arguments are refused by an exception that names them; nothing is computed then."""

import pytest
import torch

from engine import FP8, Step
from test_fa3_forms import DEFAULTS, NAMES, integers, packed, random

VARLEN_NAMES = (
    "q k v out cu_seqlens_q cu_seqlens_k seqused_k leftpad_k block_table alibi_slopes max_seqlen_q max_seqlen_k p_dropout softmax_scale "
    "zero_tensors is_causal window_size_left window_size_right softcap return_softmax num_splits gen"
).split()
KVCACHE_NAMES = (
    "q kcache vcache k v seqlens_k rotary_cos rotary_sin cache_batch_idx leftpad_k block_table alibi_slopes out softmax_scale is_causal "
    "window_size_left window_size_right softcap is_rotary_interleaved num_splits"
).split()


def paged():
    step = Step([1, 4], [20, 30])
    common = dict(q=step.q, k=step.k, v=step.v, out=step.out, cu_seqlens_q=step.cu_seqlens_q, seqused_k=step.used, max_seqlen_q=4, max_seqlen_k=30)
    return common, step.page_table


def fa3():
    common, table = paged()
    return torch.ops._vllm_fa3_C.fwd, NAMES, DEFAULTS | common | dict(page_table=table)


def varlen():
    common, table = paged()
    defaults = dict(p_dropout=0.0, softmax_scale=0.125, zero_tensors=False, is_causal=True, window_size_left=-1, window_size_right=-1, softcap=0.0)
    defaults |= dict(return_softmax=False, num_splits=0, cu_seqlens_k=common["cu_seqlens_q"])
    return torch.ops._vllm_fa2_C.varlen_fwd, VARLEN_NAMES, defaults | common | dict(block_table=table)


def kvcache():
    defaults = dict(softmax_scale=0.125, is_causal=True, window_size_left=-1, window_size_right=-1, softcap=0.0, is_rotary_interleaved=True, num_splits=0)
    tensors = dict(q=random(2, 1, 4, 64), kcache=random(2, 20, 2, 64), vcache=random(2, 20, 2, 64), seqlens_k=integers(20, 3))
    return torch.ops._vllm_fa2_C.fwd_kvcache, KVCACHE_NAMES, defaults | tensors


def refused(emulator, call, changes, *words):
    op, names, values = call()
    assert set(changes) <= set(names)
    values = values | changes
    with pytest.raises(RuntimeError) as raised:
        emulator.run(op, [values.get(name) for name in names], [values["out"]] if values.get("out") is not None else [])
    message = str(raised.value)
    assert all(word in message for word in words), message
    assert "\n" not in message.split("Exception raised from")[0].strip(), message
    if values.get("out") is not None and values["out"].dtype == torch.bfloat16:
        assert values["out"].isnan().all(), "something was computed"


ONE = torch.ones(1)

FA3 = {
    "sm_margin": 8, "cp_world_size": 2, "cp_rank": 1, "cp_tot_seqused_k": integers(1, 2), "window_size_left": -2, "window_size_right": -3,
    "softcap": -1.0, "num_splits": -1, "max_seqlen_q": None, "cu_seqlens_k": integers(0, 1, 2), "leftpad_k": integers(0, 0), "k_new": random(2, 1, 2, 64),
    "rotary_cos": random(8, 8), "seqlens_rotary": integers(0, 0), "cu_seqlens_k_new": integers(0, 1, 2), "scheduler_metadata": torch.zeros(7, dtype=torch.int32),
    "s_aux": random(3), "q_v": random(5, 4, 64), "seqused_k": integers(1, 2, 3), "seqused_q": torch.ones(2), "page_table": integers(1, 2), "kv_batch_idx": integers(0),
    "out": torch.full((5, 4, 64), torch.nan), "cu_seqlens_q": torch.tensor([0, 1, 5]), "q": random(5, 4, 32), "k": random(4, 16, 2, 32), "v": random(4, 16, 3, 64),
    "softmax_scale": -1.0,
}  # fmt: skip


@pytest.mark.parametrize("name", FA3)
def test_an_argument_of_fa3(emulator, name):
    refused(emulator, fa3, {name: FA3[name]}, "_vllm_fa3_C.fwd: ", {"q": "`k`", "q_v": "`qv`"}.get(name, name))


VARLEN = [
    ("p_dropout", 0.1), ("return_softmax", True), ("seqused_k", None), ("block_table", None), ("alibi_slopes", ONE), ("leftpad_k", integers(0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("name, value", VARLEN)
def test_an_argument_of_varlen_fwd(emulator, name, value):
    refused(emulator, varlen, {name: value}, "_vllm_fa2_C.varlen_fwd: ", name)


def test_a_generator(emulator):
    op, names, values = varlen()
    with pytest.raises(RuntimeError, match="Generator|`gen` is given"):  # torch 2.15 has the type
        emulator.run(op, [(values | dict(gen=torch.Generator())).get(name) for name in names])


@pytest.mark.parametrize("name, value", [("k", random(2, 1, 2, 64)), ("rotary_sin", random(20, 16)), ("alibi_slopes", ONE), ("cache_batch_idx", ONE)])
def test_an_argument_of_fwd_kvcache(emulator, name, value):
    refused(emulator, kvcache, {name: value}, "_vllm_fa2_C.fwd_kvcache: ", name)


def test_a_cache_with_fewer_entries_than_the_batch(emulator):
    refused(emulator, kvcache, dict(kcache=random(1, 20, 2, 64), vcache=random(1, 20, 2, 64)), "`kcache` has 1 entries")


def test_a_second_part_of_the_queries_with_columns_that_values_lack(emulator):
    refused(emulator, fa3, dict(q_v=random(5, 4, 32)), "`q_v` has shape (5, 4, 32)")


@pytest.mark.parametrize(
    "tensor, word",
    [
        (lambda t: t.float(), "dtype"),
        (lambda t: t.to(torch.float16), "another dtype"),
        (lambda t: t.to(FP8), "another dtype"),
        (lambda t: t.transpose(1, 2).contiguous().transpose(1, 2), "side by side"),
        (lambda t: t[0], "shape"),
    ],
    ids=["fp32", "fp16", "fp8", "columns apart", "rank 2"],
)
def test_queries_unlike_the_keys(emulator, tensor, word):
    refused(emulator, fa3, dict(q=tensor(random(5, 4, 64)), out=None), word)


def test_what_the_library_lacks_is_said_by_the_library(emulator):
    step = Step([1], [20], dim=96)
    given = dict(q=step.q, k=step.k, v=step.v, out=step.out, cu_seqlens_q=step.cu_seqlens_q, seqused_k=step.used, page_table=step.page_table)
    refused(emulator, fa3, given, "no variant for head_dim 96", "nearest")


METADATA = [
    (22, 1, "sm_margin"), (17, -2, "window_size_left"), (7, torch.float32, "qkv_dtype"), (8, integers(1), "seqused_k"),
    (9, integers(0, 1), "cu_seqlens_q"), (20, 300, "num_splits"),
]  # fmt: skip


@pytest.mark.parametrize("position, value, word", METADATA)
def test_an_argument_of_get_scheduler_metadata(emulator, position, value, word):
    arguments = Step([1, 4], [20, 30]).metadata_arguments()
    arguments[position] = value
    with pytest.raises(RuntimeError, match=word):
        emulator.run(torch.ops._vllm_fa3_C.get_scheduler_metadata, arguments)


@pytest.mark.parametrize("op, count", [("fwd_sparse", 15), ("varlen_fwd_sparse", 21)])
def test_block_sparse_attention(emulator, op, count):
    q, k, v, cu, _ = packed([4], [4])
    tables = [integers(1)] * 4
    rest = [None, None, 0.0, 0.125, True, 0.0, False, None] if op == "fwd_sparse" else [None, cu, cu, None, None, 4, 4, 0.0, 0.125, False, True, 0.0, False, None]
    arguments = [q, k, v, *tables, *rest]
    assert len(arguments) == count
    with pytest.raises(RuntimeError, match="block-sparse attention is not provided"):
        emulator.run(getattr(torch.ops._vllm_fa2_C, op), arguments)


def test_memory_that_is_not_there_is_an_exception(emulator):
    # O of 256 TiB.
    op, names, values = kvcache()
    q = torch.zeros(1, 1, 1, 64, dtype=torch.bfloat16).expand(2, 2**30, 1024, 64)
    keys = dict(kcache=torch.zeros(2, 20, 1024, 64, dtype=torch.bfloat16), vcache=torch.zeros(2, 20, 1024, 64, dtype=torch.bfloat16))
    values = values | keys | dict(q=q)
    with pytest.raises(RuntimeError, match=f"could not allocate {2 * 2**30 * 1024 * 64} elements"):
        op(*(values.get(name) for name in names))
