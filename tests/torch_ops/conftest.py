"""The modules under test: a package `vllm.vllm_flash_attn` in $KGEN_TORCH_OPS, as created by scripts/test_torch_ops.sh.
Its ops are registered for tensors in host memory, and its libkgen_vllm.so runs kernels on the emulator."""

import os
import pathlib
import sys

import pytest
import torch  # noqa: F401  the modules need its libraries

FOLDER = pathlib.Path(os.environ["KGEN_TORCH_OPS"])
sys.path.insert(0, str(FOLDER))

from vllm.vllm_flash_attn import _vllm_fa2_C, _vllm_fa3_C  # noqa: E402, F401

from emulator import Emulator  # noqa: E402


@pytest.fixture
def emulator():
    return Emulator(FOLDER / "vllm" / "vllm_flash_attn" / "libkgen_vllm.so")
