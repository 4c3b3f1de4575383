"""What a CUDA graph keeps of a call hangs on shapes alone: the memory that it asks for."""

import ctypes

import pytest
import torch

from conftest import FOLDER
from engine import FP8, Step
from test_fa3 import fwd, metadata_of

ALLOCATIONS = ctypes.CDLL(str(FOLDER / "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so")).kgen_test_allocations
ALLOCATIONS.restype = ctypes.c_char_p

CONTENTS = {
    "captured": ([1] * 6, [1] * 6),
    "long": ([1] * 6, [200, 3, 17, 90, 1, 150]),
    "padded": ([1, 1, 0, 0, 0, 0], [30, 200, 0, 0, 0, 0]),
    "other divisions": ([4, 1, 1, 0, 0, 0], [200, 3, 17, 0, 0, 0]),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
@pytest.mark.parametrize("with_metadata", [False, True])
def test_memory_hangs_on_shapes_alone(emulator, with_metadata, dtype):
    asked_for = set()
    for queries, keys in CONTENTS.values():
        step = Step(queries, keys, width=16, spare_tokens=6 - sum(queries), dtype=dtype)
        metadata = metadata_of(emulator, step, num_splits=32) if with_metadata else None
        ALLOCATIONS()
        step.check(*fwd(emulator, step, metadata=metadata, num_splits=32, max_q=1, max_k=256))
        asked_for.add(ALLOCATIONS())
    assert len(asked_for) == 1, asked_for
    lse, *rest = (int(size) for size in asked_for.pop().split())
    assert lse == 6 * 4 * 4
    # Partial results of 32 splits: a row of 64 + 1 numbers for each token, head and split, and the counts without metadata.
    assert rest[-1] == 32 * 6 * 4 * (64 + 1) * 4 + (0 if with_metadata else 6 * 4)


def test_eager_decoding_of_short_sequences_asks_for_lse_alone(emulator):
    step = Step([1] * 6, [20, 3, 17, 9, 1, 15])
    metadata = metadata_of(emulator, step)
    ALLOCATIONS()
    step.check(*fwd(emulator, step, metadata=metadata))
    assert ALLOCATIONS() == b"96 "
