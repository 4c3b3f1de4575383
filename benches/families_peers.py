"""What benches/families.py times kgen beside, PyTorch apart: kernels of families_peers.cu, cudaMemcpy and CuPy. What a
machine lacks is left out with a note."""

import ctypes
import os
import shutil
import subprocess
import tempfile

import torch

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families_peers.cu")
DEVICE_TO_DEVICE = 3  # cudaMemcpyDeviceToDevice


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class CompiledPeers:
    """The kernels of families_peers.cu."""

    def __init__(self, library):
        self.library = library
        self.never = torch.zeros(1, device="cuda", dtype=torch.int32)

    @classmethod
    def build(cls, note):
        """Compiled by this machine's nvcc; None without one."""
        nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
        if nvcc is None:
            return note("no nvcc: without the read probes, the naive and the tiled transposition")
        card = torch.cuda.get_device_properties(0)
        output = os.path.join(tempfile.mkdtemp(prefix="kgen-peers-"), "peers.so")
        command = [nvcc, "-O3", f"-arch=sm_{card.major}{card.minor}", "-shared", "-Xcompiler", "-fPIC", "-o", output, SOURCE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            return note(f"nvcc failed, so without the read probes, the naive and the tiled transposition: {done.stderr.strip()[:300]}")
        return cls(ctypes.CDLL(output))

    def readers(self):
        """Sides that read a set's `x` and write nothing."""
        blocks = torch.cuda.get_device_properties(0).multi_processor_count * 8
        ways = {"read 4": (4, 0), "read 8": (8, 0), "read 8 round": (8, blocks)}
        return {name: (lambda t, way=way: self.read(*way, t["x"])) for name, way in ways.items()}

    def read(self, loads, blocks, x):
        size = ctypes.c_uint64(x.numel() * x.element_size() // 16 * 16)
        expect_success(self.library.peer_read(loads, blocks, address(x), size, address(self.never), stream()))

    def transpose(self, in_tiles, x, out):
        rows, columns = map(ctypes.c_uint64, x.shape)
        expect_success(self.library.peer_transpose(int(in_tiles), x.element_size(), address(x), address(out), rows, columns, stream()))


def expect_success(code):
    if code != 0:
        raise RuntimeError(f"CUDA error {code}")


def cuda_memcpy(note):
    """`copy(out, x)` by cudaMemcpyAsync of the runtime that PyTorch has loaded; None where it cannot be found."""
    with open("/proc/self/maps") as maps:
        loaded = sorted({line.split()[-1] for line in maps if "libcudart" in line})
    if not loaded:
        return note("no libcudart.so is loaded: without cudaMemcpy; Tensor.copy_ calls it too")
    runtime = ctypes.CDLL(loaded[0])

    def copy(out, x):
        size = ctypes.c_size_t(x.numel() * x.element_size())
        expect_success(runtime.cudaMemcpyAsync(address(out), address(x), size, DEVICE_TO_DEVICE, stream()))

    return copy


def cupy_sides(operation, dtype, note):
    """{"cupy": call} of a set of tensors, or nothing."""
    try:
        import cupy
    except ImportError:
        note("no CuPy")
        return {}
    if dtype == "bf16" or operation == "logsumexp":
        return {}  # CuPy has neither

    def on_stream(function):
        def call(t):
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                return function(*(cupy.from_dlpack(t[name]) for name in ("x", "b", "out") if name in t))

        return call

    def transposed(x, out):
        out[...] = x.T

    to_torch = lambda found: torch.from_dlpack(found)
    sides = {
        "vector_add": lambda x, b, out: to_torch(cupy.add(x, b, out=out)),
        "transpose": transposed,
        "sum": lambda x, out: to_torch(cupy.sum(x, axis=1, dtype=cupy.float32)),
        "max": lambda x, out: to_torch(cupy.amax(x, axis=1)),
    }
    return {"cupy": on_stream(sides[operation])}
