"""References of benches/families.py in addition to libraries: the kernels of families_peers.cu, and CuPy."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from lab.peers import Absent, cupy


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class CompiledPeers:
    """The kernels of families_peers.cu, compiled by this machine's nvcc."""

    def __init__(self):
        nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
        what = "the read probes, the naive and the tiled transposition are absent"
        if nvcc is None:
            raise Absent(f"{what}: there is no nvcc")
        card, folder = torch.cuda.get_device_properties(0), Path(tempfile.mkdtemp(prefix="kgen-peers-"))
        command = [nvcc, "-O3", f"-arch=sm_{card.major}{card.minor}", "-shared", "-Xcompiler", "-fPIC", "-o",
            folder / "peers.so"]
        source = Path(__file__).resolve().with_suffix(".cu")
        done = subprocess.run([*command, source], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise Absent(f"{what}: nvcc says {done.stderr.strip()[:300]}")
        self.library = ctypes.CDLL(str(folder / "peers.so"))
        self.never = torch.zeros(1, device="cuda", dtype=torch.int32)
        self.blocks = 8 * card.multi_processor_count

    def launch(self, name, *arguments):
        code = getattr(self.library, name)(*arguments, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if code != 0:
            raise RuntimeError(f"{name}: CUDA error {code}")

    def readers(self):
        """Functions that read a set's `x` and write nothing, by name."""
        ways = {"read 4": (4, 0), "read 8": (8, 0), "read 8 round": (8, self.blocks)}
        size = lambda x: ctypes.c_uint64(x.nbytes // 16 * 16)
        read = lambda way, x: self.launch("peer_read", *way, address(x), size(x), address(self.never))
        return {name: (lambda t, way=way: read(way, t["x"])) for name, way in ways.items()}

    def transpose(self, in_tiles, x, out):
        sizes = map(ctypes.c_uint64, x.shape)
        self.launch("peer_transpose", int(in_tiles), x.element_size(), address(x), address(out), *sizes)


def cupy_call(operation, dtype):
    """CuPy's function of a set of tensors, on PyTorch's stream."""
    module = cupy()
    if dtype == "bf16" or operation == "logsumexp":
        raise Absent(f"cupy is absent for {operation} of {dtype}: it has neither bf16 nor logsumexp")

    def transposed(x, out):
        out[...] = x.T

    to_torch = torch.from_dlpack
    function = {
        "vector_add": lambda x, b, out: to_torch(module.add(x, b, out=out)),
        "transpose": transposed,
        "sum": lambda x, out: to_torch(module.sum(x, axis=1, dtype=module.float32)),
        "max": lambda x, out: to_torch(module.amax(x, axis=1)),
    }[operation]

    def call(t):
        with module.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            return function(*(module.from_dlpack(t[name]) for name in ("x", "b", "out") if name in t))

    return call
