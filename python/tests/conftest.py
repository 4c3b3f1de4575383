"""The tests' device: a GPU, or the emulator with CPU tensors, depending on the library."""

import os

import pytest
import torch

from kgen_attn import bands
from kgen_attn.library import library

if library().device_type == "cuda" and not torch.cuda.is_available():
    pytest.exit(f"`{library().path}` is for GPUs, and there is none: KGEN_LIBRARY names one of `kgen wheel --device emulator`", 2)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(int(os.environ.get("KGEN_SEED", "1")))


@pytest.fixture(autouse=True)
def _poison():
    """Fills memory that torch allocates with NaN, so that elements that a kernel does not write are noticed."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def without_bias(monkeypatch):
    """Makes the package behave as with a library without `bias` kernels."""
    monkeypatch.setattr(bands, "has_bias", lambda: False)


@pytest.fixture
def device():
    return library().device_type


@pytest.fixture
def draw(device):
    """Draws tensors on the library's device; half-precision values, so that references see the same numbers."""

    def draw(*shape, dtype=torch.bfloat16, grad=False):
        return torch.randn(*shape).to(dtype).to(device).requires_grad_(grad)

    return draw
