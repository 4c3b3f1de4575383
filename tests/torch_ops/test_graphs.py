"""The launches and the memory of a CUDA graph depend only on shapes."""

import ctypes
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from conftest import FOLDER
from engine import FP8, Step
from test_fa3 import fwd, metadata_of

ALLOCATIONS = ctypes.CDLL(str(FOLDER / "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so")).kgen_test_allocations
ALLOCATIONS.restype = ctypes.c_char_p

TOKENS = 10
CONTENTS = {
    "captured": ([1] * 10, [1] * 10),
    "long": ([1] * 10, [200, 3, 17, 90, 1, 150, 2, 2, 2, 2]),
    "padded": ([1] * 2 + [0] * 8, [30, 200] + [0] * 8),
    "other divisions": ([8, 1, 1] + [0] * 7, [200, 3, 17] + [0] * 7),
    "one has all tokens": ([10] + [0] * 9, [200] + [0] * 9),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
@pytest.mark.parametrize("with_metadata", [False, True])
def test_launches_and_memory_hang_on_shapes_alone(emulator, with_metadata, dtype):
    asked_for, launches = set(), set()
    for queries, keys in CONTENTS.values():
        step = Step(queries, keys, width=16, spare_tokens=TOKENS - sum(queries), dtype=dtype)
        metadata = metadata_of(emulator, step, num_splits=32) if with_metadata else None
        ALLOCATIONS()
        step.check(*fwd(emulator, step, metadata=metadata, num_splits=32, max_q=1, max_k=256))
        asked_for.add(ALLOCATIONS())
        launches.add(" ".join(emulator.launches()))
    assert len(asked_for) == 1, asked_for
    # Any of the ten sequences may have all queries, which with two heads are two row tiles: times two key heads. Splits
    # have counts, so there are blocks for the first split of each, and two for each of the emulator's five
    # multiprocessors. The metadata have counters for eight tiles of each sequence, so the last blocks merge.
    assert launches == {("" if with_metadata else "prepare:1 ") + f"split:{10 * 2 * 2 + 2 * 5}"}
    lse, *rest = (int(size) for size in asked_for.pop().split())
    assert lse == TOKENS * 4 * 4
    # Partial results of 32 splits: a row of 64 + 1 numbers for each token, head and split. Without metadata also the
    # counts, and a one-byte counter for each row tile.
    assert rest[-1] == 32 * TOKENS * 4 * (64 + 1) * 4 + (0 if with_metadata else TOKENS * 4 + 10 * 2 * 2)


def test_eager_decoding_of_short_sequences_asks_for_lse_alone(emulator):
    step = Step([1] * 6, [20, 3, 17, 9, 1, 15])
    metadata = metadata_of(emulator, step)
    ALLOCATIONS()
    step.check(*fwd(emulator, step, metadata=metadata))
    assert ALLOCATIONS() == b"96 " and emulator.launches() == ["split:12"]


def test_splits_that_nobody_asked_for_take_128_mib_at_most(emulator):
    emulator.lib.kgen_emulator_multiprocessors(20000)  # enough that the library would use 256 splits
    step = Step([1] * 256, [1] * 256, heads=64, heads_k=1)
    metadata = metadata_of(emulator, step, max_k=1 << 15)
    ALLOCATIONS()
    out, lse = fwd(emulator, step, metadata=metadata, max_k=1 << 15)
    emulator.lib.kgen_emulator_multiprocessors(5)
    of_split = 256 * 64 * (64 + 1) * 4
    assert int(ALLOCATIONS().split()[-1]) == 2**27 // of_split * of_split
    step.check(out, lse)


PROGRAM = """
import conftest, torch
from emulator import Emulator
from engine import Step
from test_fa3 import fwd
emulator = Emulator(conftest.FOLDER / "vllm/vllm_flash_attn/libkgen_vllm.so")
step = Step([9, 0, 0, 0, 0, 0, 0, 0, 0], [40, 0, 0, 0, 0, 0, 0, 0, 0])
print(fwd(emulator, step, num_splits=32, max_q=1, max_k=256)[0].isnan().any().item())
"""


@pytest.mark.parametrize("value, said", [(None, "False"), ("0", "False"), ("1", "True"), ("yes", "KGEN_VLLM_UNIFORM_GRAPHS is `yes`; expected 0 or 1")])
def test_graphs_that_are_said_to_be_uniform_have_no_longer_sequences(value, said):
    environment = {name: text for name, text in os.environ.items() if name != "KGEN_VLLM_UNIFORM_GRAPHS"}
    environment |= {"KGEN_VLLM_UNIFORM_GRAPHS": value} if value else {}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
    assert said in done.stdout + done.stderr
