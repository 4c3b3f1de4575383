"""vLLM's own flash_attn_interface.py, unmodified, on these modules. $VLLM_INTERFACE names the file; it is copied beside
them, and its imports from vLLM are stubbed."""

import importlib
import os
import shutil
import sys
import types

import pytest
import torch

from conftest import FOLDER
from engine import FP8, Step
from reference import Asked
from test_fa3_forms import check_packed, packed

FILE = os.environ.get("VLLM_INTERFACE")
pytestmark = pytest.mark.skipif(not FILE, reason="VLLM_INTERFACE names no flash_attn_interface.py of vLLM")


@pytest.fixture(scope="module")
def vllm():
    platforms = types.ModuleType("vllm.platforms")
    platforms.current_platform = types.SimpleNamespace(has_device_capability=lambda wanted: wanted <= 90, is_device_capability_family=lambda family: family == 90)
    sys.modules["vllm.platforms"] = platforms
    shutil.copy(FILE, FOLDER / "vllm" / "vllm_flash_attn" / "flash_attn_interface.py")
    module = importlib.import_module("vllm.vllm_flash_attn.flash_attn_interface")
    yield module
    del sys.modules["vllm.platforms"]


def function(emulator, vllm, step, written=(), **given):
    """Calls flash_attn_varlen_func, which may read all tensors and write `out`."""
    tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
    return emulator.run(lambda *_: vllm.flash_attn_varlen_func(**given), tensors, written)


def paged(step, **more):
    batch = len(step.queries)
    ones = torch.ones(1).expand(batch, step.heads_k)
    return dict(
        q=step.q, k=step.k, v=step.v, out=step.out, cu_seqlens_q=step.cu_seqlens_q, max_seqlen_q=max(step.queries), seqused_k=step.used,
        max_seqlen_k=max(step.keys), softmax_scale=step.asked.scale, causal=True, window_size=list(step.asked.window), block_table=step.page_table,
        softcap=step.asked.softcap or 0, return_softmax_lse=True, k_descale=ones, v_descale=ones, **more,
    )  # fmt: skip


def test_both_versions_are_available(vllm):
    assert vllm.is_fa_version_supported(2) and vllm.is_fa_version_supported(3)
    assert vllm.FA2_UNAVAILABLE_REASON is None and vllm.FA3_UNAVAILABLE_REASON is None


@pytest.mark.parametrize("splits", [0, 32])
@pytest.mark.parametrize("asked", [None, Asked(0.125, window=(15, 0)), Asked(0.125, softcap=50.0)], ids=["plain", "window", "softcap"])
def test_a_step_with_fa3(emulator, vllm, splits, asked):
    step = Step([1, 1, 40, 7], [90, 17, 40, 30], width=16, asked=asked)
    metadata = emulator.run(
        lambda *_: vllm.get_scheduler_metadata(
            batch_size=4, max_seqlen_q=40, max_seqlen_k=90, num_heads_q=4, num_heads_kv=2, headdim=64, cache_seqlens=step.used, qkv_dtype=torch.bfloat16,
            cu_seqlens_q=step.cu_seqlens_q, page_size=16, causal=True, window_size=list(step.asked.window), has_softcap=step.asked.softcap > 0, num_splits=splits,
        ),
        [step.used, step.cu_seqlens_q],
    )  # fmt: skip
    # The engine's builder copies the metadata into such a buffer for graphs.
    buffer = torch.full((17,), 7, dtype=torch.int32)
    buffer[: len(metadata)] = metadata
    buffer[len(metadata) :] = 0
    given = paged(step, fa_version=3, scheduler_metadata=buffer[: len(metadata)], num_splits=splits, q_descale=torch.ones(1).expand(4, 2))
    step.check(*function(emulator, vllm, step, [step.out, buffer], **given))


def test_a_step_with_fp8(emulator, vllm):
    step = Step([1, 1, 40, 7], [90, 17, 40, 30], dtype=FP8)
    step.check(*function(emulator, vllm, step, [step.out], **paged(step, fa_version=3, q_descale=torch.ones(1).expand(4, 2))))


def test_sinks_with_fa3(emulator, vllm):
    sinks = torch.tensor([-1.0, 0.5, 3.0, 8.0], dtype=torch.bfloat16)
    step = Step([1, 1, 40, 7], [90, 17, 40, 30], asked=Asked(0.125, sinks=sinks))
    step.check(*function(emulator, vllm, step, [step.out], **paged(step, fa_version=3, s_aux=sinks)))


@pytest.mark.parametrize("alibi", [None, torch.tensor([0.5, 0.25, 0.125, 0.0625])], ids=["plain", "alibi"])
def test_a_step_with_fa2(emulator, vllm, alibi):
    step = Step([1, 1, 40, 7], [90, 17, 40, 30], asked=Asked(0.125, alibi=alibi))
    step.check(*function(emulator, vllm, step, [step.out], **paged(step, fa_version=2, alibi_slopes=alibi)))


@pytest.mark.parametrize("version", [2, 3])
def test_packed_keys(emulator, vllm, version):
    q, k, v, cu_q, cu_k = packed([30, 1, 5], [30, 44, 5])
    given = dict(q=q, k=k, v=v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=30, max_seqlen_k=44, softmax_scale=0.125, causal=True)
    out, lse = function(emulator, vllm, None, **given, return_softmax_lse=True, fa_version=version)
    check_packed(out, lse, q, k, v, cu_q, cu_k)


@pytest.mark.parametrize("version", [2, 3])
def test_a_refusal_reaches_the_caller(emulator, vllm, version):
    step = Step([1], [20])
    word, wrong = ("p_dropout", dict(dropout_p=0.5)) if version == 2 else ("cp_world_size", dict(cp_world_size=2))
    with pytest.raises(RuntimeError, match=word):
        function(emulator, vllm, step, [step.out], **paged(step, fa_version=version, **wrong))
