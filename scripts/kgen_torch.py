"""Attention by libkgen.so on torch tensors, with gradients: a thin layer over kgen_fwd and kgen_bwd (generated/include/kgen.h).

Tensors are (batch, rows, heads, head_dim), with any strides. Sequences packed along the rows of a batch of one are a
`Packing`. With a library built for the emulator, tensors are in host memory, and its reports are raised as errors.
"""

import ctypes
import pathlib
import sys
from dataclasses import dataclass

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "benches"))
from kgen_ctypes import FLAG_CAUSAL, FLAG_DETERMINISTIC, Library, bwd_params, fwd_params  # noqa: E402


@dataclass
class Packing:
    """The boundaries of packed sequences: sequence b from cu_q[b] to cu_q[b + 1], and its keys likewise (int32, on the device)."""

    cu_q: torch.Tensor
    cu_k: torch.Tensor
    longest_q: int
    longest_k: int

    def enter(self, params, q, k):
        params.cu_seqlens_q, params.cu_seqlens_k = self.cu_q.data_ptr(), self.cu_k.data_ptr()
        params.batch = self.cu_q.numel() - 1
        params.seqlen_q, params.seqlen_k = self.longest_q, self.longest_k
        params.total_q = q.shape[1]
        if hasattr(params, "total_k"):
            params.total_k = k.shape[1]

    def tensors(self):
        return [self.cu_q, self.cu_k]


class Kgen:
    """A library with the dispatcher: kgen_fwd, kgen_bwd and their workspaces."""

    def __init__(self, path):
        self.library = Library(str(path))
        self.calls = {"kgen_fwd": 0, "kgen_bwd": 0}
        lib = self.library.lib
        for name in ("kgen_fwd", "kgen_bwd"):
            getattr(lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
            getattr(lib, f"{name}_workspace").argtypes = [ctypes.c_void_p]
            getattr(lib, f"{name}_workspace").restype = ctypes.c_size_t
        self.is_emulated = self.library.holds("kgen_emulator_tensor")
        if self.is_emulated:
            lib.kgen_emulator_reset.argtypes = [ctypes.c_uint64]
            lib.kgen_emulator_tensor.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
            lib.kgen_emulator_report.restype = ctypes.c_char_p

    def forward(self, q, k, v, causal, scale, packing=None):
        """O, (batch, rows, heads, head_dim of V), and the log-sum-exp of each row, (batch, heads, rows)."""
        q, k, v = (with_contiguous_rows(t) for t in (q, k, v))
        o = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype, device=q.device)
        lse = torch.empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32, device=q.device)
        params = fwd_params(q, k, v, o, lse, causal, scale)
        read = [q, k, v]
        if packing is not None:
            packing.enter(params, q, k)
            read += packing.tensors()
        self.launch("kgen_fwd", params, read, [o, lse])
        return o, lse

    def backward(self, dout, q, k, v, o, lse, causal, scale, packing=None, deterministic=False):
        """dQ, dK and dV, contiguous."""
        q, k, v, o, dout = (with_contiguous_rows(t) for t in (q, k, v, o, dout))
        dq, dk, dv = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v))
        tensors = {"q": q, "k": k, "v": v, "o": o, "dout": dout, "dq": dq, "dk": dk, "dv": dv}
        params = bwd_params(tensors, lse, causal, deterministic, scale)
        read = [q, k, v, o, dout, lse]
        if packing is not None:
            packing.enter(params, q, k)
            read += packing.tensors()
        self.launch("kgen_bwd", params, read, [dq, dk, dv])
        return dq, dk, dv

    def launch(self, name, params, read, written):
        """One call, with the workspace that it needs. The workspace may be released once the call has returned: torch reuses
        its memory only for later work of the same stream."""
        lib = self.library.lib
        size = getattr(lib, f"{name}_workspace")(ctypes.byref(params))
        if size > 0:
            workspace = torch.empty(size, dtype=torch.uint8, device=read[0].device)
            params.workspace, params.workspace_bytes = workspace.data_ptr(), size
            written = [*written, workspace]
        stream = None if self.is_emulated else torch.cuda.current_stream(read[0].device).cuda_stream
        if self.is_emulated:
            self.declare(read, written)
        code = getattr(lib, name)(ctypes.byref(params), stream)
        if code != 0:
            raise RuntimeError(f"`{name}`: kgen error {code}: {self.library.last_error()}")
        if self.is_emulated and (report := lib.kgen_emulator_report()):
            raise RuntimeError(f"`{name}` on the emulator: {report.decode(errors='replace')}")
        self.calls[name] += 1

    def declare(self, read, written):
        """Registers the memory that a call may access with the emulator."""
        self.library.lib.kgen_emulator_reset(1)
        for writable, tensors in ((0, read), (1, written)):
            for tensor in tensors:
                extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
                self.library.lib.kgen_emulator_tensor(b"tensor", tensor.data_ptr(), extent * tensor.element_size(), None, 1, writable)


def with_contiguous_rows(tensor):
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, kgen, causal, scale, packing):
        o, lse = kgen.forward(q, k, v, causal, scale, packing)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.of_call = kgen, causal, scale, packing
        return o

    @staticmethod
    def backward(ctx, dout):
        kgen, causal, scale, packing = ctx.of_call
        q, k, v, o, lse = ctx.saved_tensors
        return *kgen.backward(dout, q, k, v, o, lse, causal, scale, packing), None, None, None, None


def attention(kgen, q, k, v, causal=False, scale=None, packing=None):
    """softmax(scale Q K^T + mask) V, differentiable. Under autocast the inputs are cast like those of torch's own attention."""
    kind = q.device.type
    if torch.is_autocast_enabled(kind):
        q, k, v = (t.to(torch.get_autocast_dtype(kind)) for t in (q, k, v))
    return _Attention.apply(q, k, v, kgen, causal, scale if scale is not None else q.shape[-1] ** -0.5, packing)


__all__ = ["FLAG_CAUSAL", "FLAG_DETERMINISTIC", "Kgen", "Packing", "attention"]
