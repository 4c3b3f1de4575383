"""Common parts of all launches: device, stream, workspace, and errors."""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Iterable, Optional, Sequence

import torch

from . import abi, missing
from .errors import KgenError, MissingKernel
from .library import Library, library

TensorOrNone = Optional[torch.Tensor]

DTYPES = {getattr(torch, name): number for name, number in abi.DTYPES.items() if hasattr(torch, name)}
HALVES = (torch.float16, torch.bfloat16)
EIGHTS = tuple(dtype for dtype, number in DTYPES.items() if number in (2, 4))

POINTER = struct.Struct("=Q")

#: A non-NULL placeholder for a pointer in a plan; never passed to a kernel.
_SOMEWHERE = 16

#: Maximum number of cached shapes: far more than a model has.
MOST_PLANS = 4096

# The public function creates a Stream object, which takes ten times as long.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (lambda index: torch.cuda.current_stream(index).cuda_stream)

# The public function checks that CUDA is initialised, which a tensor on the GPU implies.
_current_device = getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device

# The emulator has a single list of declared tensors per process.
_emulator_lock = threading.Lock()


class Plan:
    """State shared by all calls of one shape: the structure without its pointers, and the library that runs them.

    `given` are the offsets of the pointers that each call sets in addition to Q, K, V and O. The plan depends on the
    set of tensors that are present, because it determines the kernel and the workspace.
    """

    __slots__ = ("library", "params", "workspace_bytes", "request")

    def __init__(self, params: ctypes.Structure, request: missing.Request, given: Iterable[int] = ()) -> None:
        buffer = bytearray(params)
        for offset in given:
            POINTER.pack_into(buffer, offset, _SOMEWHERE)
        self.params = bytes(buffer)
        self.request = request
        self.use(library())

    def use(self, chosen: Library) -> None:
        """Uses this library for later calls."""
        self.library = chosen
        of_pass = {"fwd": chosen.fwd_workspace, "bwd": chosen.bwd_workspace}.get(self.request.function)
        if of_pass is None:
            self.workspace_bytes = 0
        elif self.request.device < 0:
            self.workspace_bytes = of_pass(self.params)
        else:
            with torch.cuda.device(self.request.device):  # the library plans for the current device
                self.workspace_bytes = of_pass(self.params)

    def workspace(self, buffer: bytearray, offset: int, like: torch.Tensor) -> TensorOrNone:
        """Memory for one call; its address and size are stored at `offset`. It may be released after the call returns:
        torch reuses it only for later work on the same stream."""
        size = self.workspace_bytes
        if size == 0:
            return None
        memory = torch.empty_strided((size,), (1,), dtype=torch.uint8, device=like.device)
        _WORKSPACE.pack_into(buffer, offset, memory.data_ptr(), size)
        return memory

    def launch(
        self,
        buffer: bytearray,
        like: torch.Tensor,
        read: Sequence[TensorOrNone],
        written: Sequence[TensorOrNone],
        append: Optional[bytearray] = None,
    ) -> None:
        """Launches on the current stream of the device of `like`.

        `read` and `written` are the tensors that the structure points to, for the emulator. `append` is the
        structure of new rows that are written into the cache first; its tensors are among them.
        """
        chosen = self.library
        if append is None:
            launch, structures = getattr(chosen, self.request.function), (bytes(buffer),)
        else:
            launch, structures = chosen.fwd_kvcache, (bytes(append), bytes(buffer))
        if chosen.emulator is not None:
            self.check_values(read, append is not None)
            with _emulator_lock:
                chosen.emulator.declare(*_extents(read, written))
                code = launch(*structures, None)
        else:
            index = like.get_device()
            if index < 0:
                code = launch(*structures, None)
            elif index == _current_device():
                code = launch(*structures, _raw_stream(index))
            else:
                with torch.cuda.device(index):
                    code = launch(*structures, _raw_stream(index))
        if code != abi.SUCCESS:
            raise self._failed(code)

    def check_values(self, read: Sequence[TensorOrNone], appends: bool) -> None:
        """Raises for invalid values that the host can read; called only with CPU tensors. `appends`: the call writes
        new rows, so the lengths of the keys are known only after the launch."""

    def missing_kernel(self, error: MissingKernel) -> None:
        """Uses a library built for this request for later calls, if `KGEN_JIT` is set; else raises."""
        self.use(missing.made(self.request, error, self.library))

    def _failed(self, code: int) -> KgenError:
        message = self.library.last_error()
        if self.library.emulator is not None and (report := self.library.emulator.report()):
            message = f"{message}\n{report}"
        if code != abi.ERROR_NO_VARIANT:
            return KgenError(message, code)
        return missing.error(self.request, message, self.library)


_WORKSPACE = struct.Struct("=QQ")


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and size in bytes of the memory from a tensor's first element to its last."""
    if tensor.numel() == 0:
        return tensor.data_ptr(), 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), (last + 1) * tensor.element_size()


def _extents(read: Sequence[TensorOrNone], written: Sequence[TensorOrNone]) -> tuple[list, list]:
    """The extents of read and of written tensors; a tensor that is both is declared once, as written."""
    to_write = [extent(t) for t in written if t is not None]
    return [piece for piece in (extent(t) for t in read if t is not None) if piece not in to_write], to_write


def known(tensor: TensorOrNone) -> object:
    """The properties of an optional tensor that a plan depends on. An argument that is not a tensor gets no plan:
    `check_beside` refuses it."""
    try:
        return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device(), tensor.is_neg())
    except (AttributeError, TypeError):
        return type(tensor)


def contiguous(shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and the strides of a contiguous tensor, as `torch.empty_strided` takes them."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(1, size))
    return tuple(shape), tuple(reversed(strides))


def rows_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied if its last axis is not contiguous."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def movable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied if TMA cannot move it (CUDA driver API, cuTensorMapEncodeTiled)."""
    size = tensor.element_size()
    strides = [stride * size for extent, stride in zip(tensor.shape[:-1], tensor.stride()) if extent > 1]
    if tensor.data_ptr() % 16 == 0 and all(stride > 0 and stride % 16 == 0 for stride in strides):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def enter_strides(params: ctypes.Structure, name: str, strides: Sequence[int], axes: Sequence[str]) -> None:
    """Stores `name_axis_stride` for each axis."""
    for axis, stride in zip(axes, strides):
        setattr(params, f"{name}_{axis}_stride", stride)


def enter_sizes(params: ctypes.Structure, sizes: dict[str, int], names: dict[str, str]) -> None:
    """Stores 32-bit numbers. Raises `ValueError` for numbers that do not fit, with the argument name that `names` gives
    for the field."""
    for field, size in sizes.items():
        if not -_LIMIT <= size < _LIMIT:
            raise ValueError(f"{names.get(field, f'`{field}`')} is {size}; kgen takes numbers below 2^31")
        setattr(params, field, size)


def no_rows(params: ctypes.Structure, size: str) -> None:
    """Sets the sizes of a tensor without rows to 0: it has no address, so no row may be read, even if the caller passes
    larger lengths. Called after `enter_sizes`, which refuses invalid lengths."""
    setattr(params, size, min(0, getattr(params, size)))


_LIMIT = 1 << 31


def check_host(tensors: dict[str, TensorOrNone]) -> None:
    """Raises `ValueError` for tensors without memory: the device distinguishes them from tensors on a GPU, but nothing
    in a plan's key distinguishes them from CPU tensors."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.is_meta:
            raise ValueError(f"`{name}` is on `meta`, and has no values; move all tensors to one device")


def check_device(tensor: torch.Tensor, name: str) -> None:
    """Raises `ValueError` if the library cannot read the tensor's memory."""
    check_signs({name: tensor})
    loaded = library()
    kind = tensor.device.type
    if kind == loaded.device_type:
        return
    if loaded.emulator is not None:
        raise ValueError(f"`{name}` is on `{tensor.device}`; `{loaded.path}` is built for kgen's emulator, which takes CPU tensors")
    if torch.cuda.is_available():
        raise ValueError(f"`{name}` is on `{tensor.device}`; the kernels run on a GPU: move the tensors with `.cuda()`")
    raise ValueError(f"`{name}` is on `{tensor.device}`, and no GPU can be used here: {missing.why_no_gpu()}")


def check_beside(first: torch.Tensor, tensors: dict[str, TensorOrNone]) -> None:
    """Raises if one of the arguments is not a tensor, or is on another device than `first`."""
    for name, tensor in tensors.items():
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            raise TypeError(f"`{name}` is of type {type(tensor).__name__}; it must be a torch.Tensor")
        if tensor is not None and tensor.device != first.device:
            raise ValueError(f"`{name}` is on `{tensor.device}`, `q` on `{first.device}`")
    check_signs(tensors)


def check_signs(tensors: dict[str, TensorOrNone]) -> None:
    """Raises `ValueError` for views whose elements are stored negated, which torch resolves on reads."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.is_neg():
            raise ValueError(f"`{name}` is a negated view of its memory; pass `{name}.resolve_neg()`")


def check_integers(tensors: dict[str, TensorOrNone], dtype: torch.dtype = torch.int32) -> None:
    """Raises if one of the tensors is not contiguous along its last axis, or has another type."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.dtype != dtype:
            raise TypeError(f"`{name}` is {tensor.dtype}; it must be {dtype}")
        if tensor.dim() > 0 and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"`{name}` has stride {tensor.stride(-1)} along its last axis; make it contiguous")
