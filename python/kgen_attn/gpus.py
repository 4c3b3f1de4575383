"""The GPUs of this machine, from the driver itself: neither torch nor a CUDA toolkit is needed."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@dataclass(frozen=True)
class Gpu:
    """A GPU by its index in the process; `capability` is major * 10 + minor."""

    index: int
    name: str
    capability: int


@functools.lru_cache(maxsize=None)
def found() -> tuple[Gpu, ...] | str:
    """The GPUs that this process may use; if there are none, the reason, as a clause for a message."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "NVIDIA's driver is not installed (`libcuda.so.1` is not found)"
    code = driver.cuInit(0)
    if code != 0:
        return f"NVIDIA's driver reports no usable GPU (cuInit gives {code})"
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "NVIDIA's driver reports no GPU; `CUDA_VISIBLE_DEVICES` may hide it"
    return tuple(_gpu(driver, index) for index in range(count.value))


def _gpu(driver: ctypes.CDLL, index: int) -> Gpu:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(name, len(name), device)
    numbers = []
    for attribute in (_MAJOR, _MINOR):
        number = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        numbers.append(number.value)
    return Gpu(index, name.value.decode(errors="replace"), numbers[0] * 10 + numbers[1])


def capability_of(index: int) -> int | None:
    """The compute capability of a GPU; None if the driver does not report it."""
    gpus = found()
    return next((gpu.capability for gpu in gpus if gpu.index == index), None) if not isinstance(gpus, str) else None
